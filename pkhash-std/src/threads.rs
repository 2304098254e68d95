//! Threads for a piece of work, and how much memory it may take.

use std::time::Duration;

use pkhash_core::builder::{Entry, KeyStats, Plan};
use rayon::prelude::*;

use crate::error::{Error, Result};

/// Threads of their own, or, instead of a single one, the caller's.
pub(crate) struct Pool {
    threads: Option<rayon::ThreadPool>,
    /// Threads that could not be started.
    pub(crate) missing: usize,
}

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

/// What the partitions of a table take while they wait for being built, and while they are built, beside
/// what all take.
#[derive(Clone, Copy, Default)]
pub(crate) struct Costs {
    /// Bytes of each key from when its partition was loaded.
    pub(crate) loaded: u64,
    /// The same, for each byte of a key.
    pub(crate) loaded_key: u64,
    /// Bytes of each key while its partition is built.
    pub(crate) prepared: u64,
}

/// The most partitions that are loaded, built, and written at a time, so that all of it stays within
/// `memory`: the one rule for all that builds tables. One partition must fit.
pub(crate) fn window(
    plan: &Plan,
    stats: &KeyStats,
    costs: Costs,
    memory: u64,
    threads: usize,
) -> u32 {
    // One alone has its partitions in its cache.
    if threads <= 1 {
        return 1;
    }
    let threads = threads as u64;
    let keys = partition_keys(plan, stats) as u64;
    let key_bytes = (stats.key_bytes >> plan.partition_bits()).saturating_add(64);
    let scratch = 8 * plan.scratch_len(keys as usize) as u64;
    // Two lists of entries, for sorting.
    let building =
        keys.saturating_mul(2 * size_of::<Entry<'_>>() as u64 + costs.prepared) + scratch;
    // As many wait to be written as are built, and as many are loaded meanwhile.
    let output = keys.saturating_mul(u64::from(plan.value().width()) + OUTPUT_OVERHEAD);
    let output = output.saturating_add(key_bytes / 3 * 4);
    let loaded = keys
        .saturating_mul(costs.loaded)
        .saturating_add(key_bytes.saturating_mul(costs.loaded_key));
    let waiting = 2 * output.saturating_add(loaded).min(u64::MAX / 4);
    let few = memory / building.saturating_add(waiting).max(1);
    let window = if few < threads {
        few.max(1)
    } else {
        // Some for each thread, so that none waits long for the others.
        let more = (memory - threads * building) / waiting.max(1);
        more.clamp(threads, 4 * threads)
    };
    window as u32
}

/// Bytes that a key takes in a partition beside itself and its value, at most: slot word, control byte,
/// length and filter of the least dense layout.
const OUTPUT_OVERHEAD: u64 = 24;

/// About how many keys a partition has: they differ by some per cent.
pub(crate) fn partition_keys(plan: &Plan, stats: &KeyStats) -> usize {
    let each = usize::try_from(stats.keys >> plan.partition_bits()).unwrap_or(usize::MAX);
    each.saturating_add(each / 32).saturating_add(64)
}
