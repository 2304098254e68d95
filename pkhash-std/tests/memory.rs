//! What builders take at most, with as many threads as are to be had, by an allocator that counts.

use std::sync::Mutex;

use peak_alloc::PeakAlloc;
use pkhash_std::{
    KeyHasher, Layout, LayoutChoice, MIN_MEMORY, MergeInput, MergeOptions, TableFile, TableOptions,
    TableWriter, WriterOptions, build_slice, merge,
};

#[global_allocator]
static COUNTED: PeakAlloc = PeakAlloc;

/// One test at a time, since the allocator counts for all of them.
static ALONE: Mutex<()> = Mutex::new(());

/// More than are started on machines of few cores.
const THREADS: usize = 64;

const KEYS: u64 = 1 << 20;

/// Beside the budget: what threads, blocks of output and the directory take, and 2 MiB for a moment, to see
/// whether they are left.
const BESIDE: usize = 6 << 20;

fn keys() -> Vec<[u8; 16]> {
    let mix = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let key = |i| ((u128::from(mix(i)) << 64) | u128::from(i)).to_le_bytes();
    (0..KEYS).map(key).collect()
}

/// The most bytes that are taken while `work` runs, beyond those before.
fn peak(work: impl FnOnce()) -> usize {
    let before = COUNTED.current_usage();
    COUNTED.reset_peak_usage();
    work();
    COUNTED.peak_usage() - before
}

/// Many partitions, all of which are soon waiting to be written if nothing bounds them.
fn options(layout: Layout) -> TableOptions {
    let layout = LayoutChoice::Fixed(layout);
    TableOptions::default().layout(layout).partition_bits(7)
}

fn within(what: &str, budget: usize, peak: usize) {
    println!("{what}: {peak} of {budget}");
    assert!(peak < budget + BESIDE, "{what}: {peak} bytes, with a budget of {budget}");
}

/// What takes its time, so that partitions wait for it.
struct Sink(u64);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        std::thread::sleep(std::time::Duration::from_millis(1));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

const BUDGETS: [usize; 2] = [MIN_MEMORY, 16 << 20];

const LAYOUTS: [Layout; 3] = [Layout::Perfect, Layout::TermOrder, Layout::Inline];

#[test]
fn a_writer_keeps_to_its_budget() {
    let _alone = ALONE.lock();
    let keys = keys();
    for (memory, layout) in BUDGETS.into_iter().zip(LAYOUTS) {
        let table = options(layout);
        let options = WriterOptions::default().table(table).memory(memory).threads(THREADS);
        let peak = peak(|| {
            let mut writer = TableWriter::new(options).unwrap();
            for (i, key) in keys.iter().enumerate() {
                writer.add(key, i as u64).unwrap();
            }
            let built = writer.write_to(&mut Sink(0)).unwrap();
            assert_eq!(built.footer.keys(), KEYS);
            assert!(built.spilled > 0);
        });
        within("writer", memory, peak);
    }
}

#[test]
fn a_slice_keeps_to_its_budget() {
    let _alone = ALONE.lock();
    let keys = keys();
    for (memory, layout) in BUDGETS.into_iter().zip(LAYOUTS) {
        let table = options(layout);
        let options = WriterOptions::default().table(table).memory(memory).threads(THREADS);
        let peak = peak(|| {
            let value = |i: usize| (i as u32).to_le_bytes();
            build_slice(&keys, value, &mut Sink(0), &options).unwrap();
        });
        // Hash and number of each key.
        within("slice", memory, peak - 16 * KEYS as usize);
    }
}

#[test]
fn a_merge_keeps_to_its_budget() {
    let _alone = ALONE.lock();
    let keys = keys();
    let inputs: Vec<TableFile> = keys
        .chunks(KEYS as usize / 8)
        .zip([1, 1, 1, 1, 2, 1, 1, 3])
        .map(|(keys, seed)| {
            let hasher = KeyHasher::new(seed);
            // One partition each: the merge has to look ahead in them.
            let table = TableOptions::default().hasher(hasher);
            let options = WriterOptions::default().table(table);
            let mut bytes = Vec::new();
            build_slice(keys, |i| (i as u32).to_le_bytes(), &mut bytes, &options).unwrap();
            TableFile::from_bytes(bytes).unwrap()
        })
        .collect();
    for (memory, rehash, layout) in [
        (BUDGETS[0], false, Layout::Perfect),
        (BUDGETS[0], true, Layout::TermOrder),
        (BUDGETS[1], true, Layout::Inline),
    ] {
        let inputs: Vec<_> = inputs
            .iter()
            .filter(|table| rehash || table.footer().hasher().seed() == 1)
            .map(MergeInput::new)
            .collect();
        let options = MergeOptions::default()
            .layout(layout)
            .partition_bits(7)
            .memory(memory)
            .threads(THREADS);
        let peak = peak(|| {
            let built = merge(&inputs, &mut Sink(0), &options).unwrap();
            assert_eq!(built.footer.keys(), inputs.len() as u64 * KEYS / 8);
            // Looking ahead in all inputs takes more than half of the smaller budget.
            assert_eq!(built.spilled > 0, rehash || memory == MIN_MEMORY, "{memory}");
        });
        within("merge", memory, peak);
    }
}
