//! Looks keys up while another thread reads, or writes, the control bytes.
use pkhash_core::{Table, Value};
use pkhash_simd::AnyKernel;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, what, kernel, path] = arguments.as_slice() else {
        println!("{}", AnyKernel::available().map(AnyKernel::name).collect::<Vec<_>>().join(" "));
        return;
    };
    let mut bytes = std::fs::read(path).unwrap();
    let keys: Vec<Vec<u8>> =
        Table::open(&bytes).unwrap().iter().map(|record| record.unwrap().0.to_vec()).collect();
    let footer = *Table::open(&bytes).unwrap().footer();
    assert_eq!((footer.partitions(), footer.filter_bits()), (1, 0));
    // Behind the head, since there is no filter.
    let (from, slots) = (64, footer.slots() as usize);
    let (address, len) = (bytes.as_mut_ptr() as usize, bytes.len());
    let kernel = AnyKernel::by_name(kernel).unwrap();
    // No step of one thread comes before one of the other, for all that the sanitizer knows.
    let ready = &AtomicUsize::new(0);
    let meet = move || {
        ready.fetch_add(1, Relaxed);
        while ready.load(Relaxed) < 2 {
            std::thread::yield_now();
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // SAFETY: `bytes` outlives the scope. That somebody writes to them is the point.
            let bytes = unsafe { std::slice::from_raw_parts(address as *const u8, len) };
            let table = Table::open(bytes).unwrap();
            meet();
            for key in keys.iter().cycle().take(2000) {
                let mut found = [None::<Value<'_>>];
                table.get_batch(kernel, [key], &mut found).unwrap();
            }
        });
        let write = what == "write";
        meet();
        for at in (0..slots).cycle().take(20_000) {
            let control = (address + from + at) as *mut u8;
            // SAFETY: one of the control bytes of `bytes`, which outlive the scope.
            let old = std::hint::black_box(unsafe { control.read() });
            if write {
                // SAFETY: as above; a race, on purpose.
                unsafe { control.write(old) };
            }
        }
    });
}
