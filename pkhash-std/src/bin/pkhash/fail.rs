//! How a command ends.

use std::fmt;
use std::io;

/// A command that did its work.
pub(crate) enum Answer {
    Done,
    /// A key was not found, or nothing was: exit code 1.
    NotFound,
}

/// A command that could not do its work.
#[derive(Debug)]
pub(crate) enum Fail {
    Pkhash(pkhash_std::Error),
    /// A file, a line or an argument, and the cause.
    Message(String),
    /// The reader of our standard output has gone.
    OutputClosed,
}

pub(crate) type Result<T, E = Fail> = std::result::Result<T, E>;

impl Fail {
    pub(crate) fn message(message: impl fmt::Display) -> Self {
        Self::Message(message.to_string())
    }

    /// For `map_err`: a failed write to standard output.
    #[allow(clippy::needless_pass_by_value)]
    pub(crate) fn output(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::OutputClosed
        } else {
            Self::Message(format!("cannot write to standard output: {error}"))
        }
    }
}

impl From<pkhash_std::Error> for Fail {
    fn from(error: pkhash_std::Error) -> Self {
        Self::Pkhash(error)
    }
}

impl fmt::Display for Fail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pkhash(error) => error.fmt(f),
            Self::Message(message) => f.write_str(message),
            Self::OutputClosed => f.write_str("standard output was closed"),
        }
    }
}
