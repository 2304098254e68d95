//! Whether there is a standard output.
//!
//! Before `main` the standard library opens `/dev/null` in the place of one that is closed, and all that is written
//! is lost without an error. Nothing tells that from a `/dev/null` that was asked for, so the look comes first. It
//! calls nothing that needs the library to be ready: one system call, and a store.

#[cfg(unix)]
use std::sync::atomic::{AtomicI32, Ordering};

use crate::fail::Result;

/// The error of the look; 0: none.
#[cfg(unix)]
static ERROR: AtomicI32 = AtomicI32::new(0);

#[cfg(unix)]
#[ctor::ctor(unsafe)]
fn look() {
    use std::os::fd::AsFd;
    if let Err(error) = std::io::stdout().as_fd().try_clone_to_owned() {
        ERROR.store(error.raw_os_error().unwrap_or_default(), Ordering::Relaxed);
    }
}

/// Fails if standard output was closed when the process began.
pub(crate) fn check_stdout() -> Result<()> {
    #[cfg(unix)]
    {
        // EMFILE is no closed output.
        const EBADF: i32 = 9;
        if ERROR.load(Ordering::Relaxed) == EBADF {
            return Err(crate::fail::Fail::output(std::io::Error::from_raw_os_error(EBADF)));
        }
    }
    Ok(())
}
