#![no_main]

libfuzzer_sys::fuzz_target!(|input: pkhash_fuzz::Compared| pkhash_fuzz::kernels(&input));
