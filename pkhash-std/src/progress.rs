//! Watching long work, and ending it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};

/// Called with the work that is done and the work there is.
type Report = dyn Fn(u64, u64) + Send + Sync;

/// How a caller watches a long piece of work, and stops it.
#[derive(Clone, Default)]
pub struct Progress {
    report: Option<Arc<Report>>,
    cancel: Option<Arc<AtomicBool>>,
}

impl std::fmt::Debug for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Progress").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

impl Progress {
    /// Calls `report(done, all)` with the number of partitions written and of all; of an ordered
    /// companion, of keys.
    #[must_use]
    pub fn reported_to(mut self, report: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.report = Some(Arc::new(report));
        self
    }

    /// Stops with [`Error::Cancelled`] soon after the flag was set, and leaves nothing behind.
    #[must_use]
    pub fn cancelled_by(mut self, flag: Arc<AtomicBool>) -> Self {
        self.cancel = Some(flag);
        self
    }

    pub(crate) fn check(&self) -> Result<()> {
        match &self.cancel {
            Some(flag) if flag.load(Ordering::Relaxed) => Err(Error::Cancelled),
            _ => Ok(()),
        }
    }

    pub(crate) fn report(&self, done: u64, all: u64) {
        if let Some(report) = &self.report {
            report(done, all);
        }
    }
}
