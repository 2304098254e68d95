//! How many partitions are built at a time, so that they keep to a memory budget.

use pkhash_core::builder::{Entry, KeyStats, Plan};

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
