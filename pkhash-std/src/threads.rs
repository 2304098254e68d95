//! Threads for a piece of work.

use std::time::Duration;

use rayon::prelude::*;

use crate::error::Result;

/// Whose threads do the work.
enum Threads {
    /// The caller's one.
    Caller,
    /// Those of the pool that the caller runs in.
    Lent,
    Own(rayon::ThreadPool),
}

/// Threads for a piece of work.
pub(crate) struct Pool {
    threads: Threads,
    /// Threads that could not be started.
    #[cfg_attr(not(feature = "write"), expect(dead_code))]
    pub(crate) missing: usize,
}

impl Pool {
    /// So many threads for so many partitions. 0: those of the rayon pool that this is called in; without
    /// one, a thread for each core. Of threads that cannot be started it has fewer.
    pub(crate) fn new(threads: usize, partitions: u32) -> Self {
        if threads == 0 && rayon::current_thread_index().is_some() {
            return Self { threads: Threads::Lent, missing: 0 };
        }
        let wanted = wanted(threads, partitions);
        let mut threads = wanted;
        while threads > 1 {
            if let Ok(pool) = rayon::ThreadPoolBuilder::new().num_threads(threads).build() {
                return Self { threads: Threads::Own(pool), missing: wanted - threads };
            }
            threads /= 2;
            // Those that did start need a moment to end.
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { threads: Threads::Caller, missing: wanted - 1 }
    }

    /// How many work at a time.
    #[cfg(feature = "write")]
    pub(crate) fn threads(&self) -> usize {
        match &self.threads {
            Threads::Caller => 1,
            Threads::Lent => rayon::current_num_threads(),
            Threads::Own(pool) => pool.current_num_threads(),
        }
    }

    /// Does the work in parallel on these threads; with the caller's alone, one piece after the other.
    fn run<T: Send, R: Send>(
        &self,
        work: T,
        parallel: impl FnOnce(T) -> R + Send,
        alone: impl FnOnce(T) -> R,
    ) -> R {
        match &self.threads {
            Threads::Caller => alone(work),
            Threads::Lent => parallel(work),
            Threads::Own(pool) => pool.install(|| parallel(work)),
        }
    }

    /// Does both, at one time if there are threads for it, otherwise in this order.
    #[cfg(feature = "write")]
    pub(crate) fn join<A: Send, B: Send>(
        &self,
        a: impl FnOnce() -> A + Send,
        b: impl FnOnce() -> B + Send,
    ) -> (A, B) {
        self.run((a, b), |(a, b)| rayon::join(a, b), |(a, b)| (a(), b()))
    }

    /// What becomes of each, in their order.
    #[cfg(feature = "write")]
    pub(crate) fn map<T: Send, R: Send>(
        &self,
        items: Vec<T>,
        map: impl Fn(T) -> R + Send + Sync,
    ) -> Vec<R> {
        self.run(
            items,
            |items| items.into_par_iter().map(&map).collect(),
            |items| items.into_iter().map(&map).collect(),
        )
    }

    /// Sorts.
    #[cfg(feature = "ordered")]
    pub(crate) fn sort_unstable_by<T: Send>(
        &self,
        items: &mut [T],
        order: impl Fn(&T, &T) -> std::cmp::Ordering + Send + Sync,
    ) {
        self.run(
            items,
            |items| items.par_sort_unstable_by(&order),
            |items| items.sort_unstable_by(&order),
        );
    }

    /// The same, until one fails.
    pub(crate) fn try_map<T: Send, R: Send>(
        &self,
        items: impl IntoIterator<Item = T> + IntoParallelIterator<Item = T> + Send,
        map: impl Fn(T) -> Result<R> + Send + Sync,
    ) -> Result<Vec<R>> {
        self.run(
            items,
            |items| items.into_par_iter().map(&map).collect(),
            |items| items.into_iter().map(&map).collect(),
        )
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

#[cfg(all(test, feature = "write"))]
mod tests {
    use std::thread;

    use super::*;

    /// Which threads did it.
    fn workers(pool: &Pool) -> Vec<String> {
        let name = |_| thread::current().name().unwrap_or("unnamed").to_owned();
        let (a, b) = pool.join(|| name(0), || name(0));
        let mut names = pool.map((0..100).collect(), name);
        names.extend(pool.try_map(0..100, |i| Ok(name(i))).unwrap());
        names.extend([a, b]);
        names.sort_unstable();
        names.dedup();
        names
    }

    #[test]
    fn a_caller_s_pool_is_used_unless_threads_were_asked_for() {
        let caller = [thread::current().name().unwrap().to_owned()];
        assert_eq!(workers(&Pool::new(1, 100)), caller);
        assert_eq!(workers(&Pool::new(3, 100)), ["unnamed"]);
        for n in [1, 3] {
            let lent = rayon::ThreadPoolBuilder::new()
                .num_threads(n)
                .thread_name(|_| "lent".to_owned())
                .build()
                .unwrap();
            lent.install(|| {
                let pool = Pool::new(0, 100);
                assert_eq!((pool.threads(), pool.missing), (n, 0));
                assert_eq!(workers(&pool), ["lent"]);
                assert_eq!(workers(&Pool::new(1, 100)), ["lent"]);
                assert_eq!(workers(&Pool::new(3, 100)), ["unnamed"]);
            });
        }
    }
}
