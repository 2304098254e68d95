//! How a command ends.

use std::fmt::{self, Write as _};
use std::io;

/// A command that did its work.
pub(crate) enum Outcome {
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
            Self::Pkhash(error) => {
                Chain(error).fmt(f)?;
                match error {
                    pkhash_std::Error::OutOfMemory { .. } => {
                        f.write_str(" (--memory and --threads make it take less)")
                    }
                    _ => Ok(()),
                }
            }
            Self::Message(message) => f.write_str(message),
            Self::OutputClosed => f.write_str("standard output was closed"),
        }
    }
}

/// An error and its causes, each of which says its own part.
pub(crate) struct Chain<'a>(pub(crate) &'a pkhash_std::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = std::error::Error::source(self.0);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// Prints an error on standard error.
pub(crate) fn complain(fail: &Fail) {
    eprintln!("pkhash: {}", Plain(&fail.to_string()));
}

/// Prints what is no error, but may not be what was meant.
pub(crate) fn note(message: impl fmt::Display) {
    eprintln!("pkhash: note: {}", Plain(&message.to_string()));
}

/// A message of one line, without anything that a terminal would obey: names of files and causes come from
/// others.
pub(crate) struct Plain<'a>(pub(crate) &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for char in self.0.chars() {
            if char.is_control() {
                for byte in char.encode_utf8(&mut [0; 4]).bytes() {
                    write!(f, "\\x{byte:02x}")?;
                }
            } else {
                f.write_char(char)?;
            }
        }
        Ok(())
    }
}
