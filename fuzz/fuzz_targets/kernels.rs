#![no_main]

libfuzzer_sys::fuzz_target!(|input: pkhash_fuzz::Groups| pkhash_fuzz::kernels(&input));
