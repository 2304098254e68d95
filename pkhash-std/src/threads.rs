//! Threads for a piece of work.

use std::time::Duration;

#[cfg(feature = "write")]
use rayon::prelude::*;

use crate::error::{Error, Result};

/// Threads of their own, or, instead of a single one, the caller's.
#[cfg(feature = "write")]
pub(crate) struct Pool {
    threads: Option<rayon::ThreadPool>,
    /// Threads that could not be started.
    pub(crate) missing: usize,
}

#[cfg(feature = "write")]
impl Pool {
    /// So many threads, 0: one for each core, for so many partitions. Of threads that cannot be started it
    /// has fewer.
    pub(crate) fn new(threads: usize, partitions: u32) -> Self {
        let wanted = wanted(threads, partitions);
        let mut threads = wanted;
        while threads > 1 {
            if let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
                return Self { threads: Some(pool), missing: wanted - threads };
            }
            threads /= 2;
            // Those that did start need a moment to end.
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { threads: None, missing: wanted - 1 }
    }

    /// How many work at a time.
    pub(crate) fn threads(&self) -> usize {
        self.threads.as_ref().map_or(1, rayon::ThreadPool::current_num_threads)
    }

    /// Does both, at one time if there are threads for it, otherwise in this order.
    pub(crate) fn join<A: Send, B: Send>(
        &self,
        a: impl FnOnce() -> A + Send,
        b: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        match &self.threads {
            Some(pool) => pool.install(|| rayon::join(a, b)),
            None => (a(), b()),
        }
    }

    /// What becomes of each, in their order.
    pub(crate) fn map<T: Send, R: Send>(
        &self,
        items: Vec<T>,
        map: impl Fn(T) -> R + Send + Sync,
    ) -> Vec<R> {
        match &self.threads {
            Some(pool) => pool.install(|| items.into_par_iter().map(map).collect()),
            None => items.into_iter().map(map).collect(),
        }
    }

    /// Sorts.
    #[cfg(feature = "ordered")]
    pub(crate) fn sort_unstable_by<T: Send>(
        &self,
        items: &mut [T],
        order: impl Fn(&T, &T) -> std::cmp::Ordering + Send + Sync,
    ) {
        match &self.threads {
            Some(pool) => pool.install(|| items.par_sort_unstable_by(order)),
            None => items.sort_unstable_by(order),
        }
    }

    /// [`map`](Self::map) of 0…n, until one fails.
    pub(crate) fn try_map<R: Send>(
        &self,
        n: u32,
        map: impl Fn(u32) -> Result<R> + Send + Sync,
    ) -> Result<Vec<R>> {
        match &self.threads {
            Some(pool) => pool.install(|| (0..n).into_par_iter().map(map).collect()),
            None => (0..n).map(map).collect(),
        }
    }
}

/// How many threads have work to do.
fn wanted(threads: usize, partitions: u32) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = if threads == 0 { cores } else { threads };
    // No more than can have work, one of them for reading and writing; nor many more than there are
    // cores: idle threads look for work, and a thousand of them on two cores take seconds.
    threads.min((partitions as usize).saturating_add(1)).min(8 * cores).max(1)
}

/// Threads for what has to have a pool: see [`Pool::new`].
pub(crate) fn pool(threads: usize, partitions: u32) -> Result<rayon::ThreadPool> {
    let mut threads = wanted(threads, partitions);
    loop {
        match rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
            Err(_) if threads > 1 => {
                threads /= 2;
                std::thread::sleep(Duration::from_millis(20));
            }
            built => {
                let error = |error| Error::Threads { source: std::io::Error::other(error) };
                return built.map_err(error);
            }
        }
    }
}
