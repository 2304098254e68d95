//! Shared by the tests of this folder: which kernels must be here, and all ways to ask one.

// Each test file uses a part of it.
#![allow(dead_code)]

#[path = "../../../pkhash-core/tests/common/mod.rs"]
pub(crate) mod core;

use std::collections::{BTreeMap, BTreeSet};
use std::env;

use pkhash_core::{FixedKeys, Result, Table, Value};
use pkhash_simd::Kernel;

/// The kernels that must run here, by another way of detection than the crate's own: the standard
/// library's, which asks CPUID, and XGETBV for what the operating system saves. And all that
/// `PKHASH_EXPECT_KERNELS` names: CI knows what its machines have.
pub(crate) fn required() -> BTreeSet<String> {
    let mut names: BTreeSet<String> = ["scalar".to_owned()].into();
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        let bmi = has!("bmi1") && has!("bmi2");
        names.insert("sse2".to_owned());
        if bmi && has!("avx2") {
            names.insert("avx2".to_owned());
        }
        if bmi && has!("avx512f") && has!("avx512bw") {
            names.insert("avx512".to_owned());
        }
    }
    if cfg!(target_arch = "aarch64") {
        names.insert("neon".to_owned());
    }
    names.extend(expected().into_iter().flatten());
    names
}

/// What `PKHASH_EXPECT_KERNELS` names, if it is set.
pub(crate) fn expected() -> Option<Vec<String>> {
    let list = env::var("PKHASH_EXPECT_KERNELS").ok()?;
    Some(list.split(',').map(str::to_owned).collect())
}

/// Runs a check with the kernel of this name. That it cannot run here is accepted only from a kernel
/// that need not.
pub(crate) fn with(name: &str, check: impl FnOnce(Kernel)) {
    match Kernel::by_name(name) {
        Some(kernel) => check(kernel),
        None => {
            assert!(!required().contains(name), "{name} must run on this machine, and cannot");
            println!("{name} cannot run here");
        }
    }
}

/// All kernels that can run here; fails if one that must is not among them.
pub(crate) fn kernels() -> Vec<Kernel> {
    let kernels: Vec<Kernel> = Kernel::available().collect();
    let found: BTreeSet<String> = kernels.iter().map(|kernel| kernel.name().to_owned()).collect();
    assert_eq!(found, required(), "the kernels that must run here");
    kernels
}

pub(crate) type Found = Result<Option<Vec<u8>>>;

fn owned(value: Option<Value<'_>>) -> Option<Vec<u8>> {
    value.map(|value| value.as_bytes().to_vec())
}

/// What a table answers: key by key, in batches of all keys and of a few, and the keys of each length
/// in one buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answers {
    pub(crate) singles: Vec<Found>,
    batches: Vec<Result<Vec<Option<Vec<u8>>>>>,
    hashed: Vec<Result<Vec<Option<Vec<u8>>>>>,
    fixed: Vec<Result<Vec<Option<Vec<u8>>>>>,
    doc_ids: Result<Vec<Option<u32>>>,
}

fn batch<'a>(
    n: usize,
    get_batch: impl FnOnce(&mut [Option<Value<'a>>]) -> Result<usize>,
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut out = vec![None; n];
    let found = get_batch(&mut out)?;
    assert_eq!(found, out.iter().flatten().count());
    Ok(out.into_iter().map(owned).collect())
}

/// Asks for these keys with `kernel`, or with the methods of core that use its scalar kernel.
pub(crate) fn answers(table: &Table<'_>, kernel: Option<Kernel>, keys: &[&[u8]]) -> Answers {
    let mut singles = Vec::with_capacity(keys.len());
    for key in keys {
        let hash = table.footer().hasher.hash(key);
        singles.push(match kernel {
            Some(kernel) => {
                let single = kernel.get(table, key);
                assert_eq!(kernel.get_hashed(table, hash, key), single, "{}", kernel.name());
                single.map(owned)
            }
            None => table.get(key).map(owned),
        });
    }
    // All at once; and each again among the first keys of a batch, and among the last.
    let whole = [keys];
    let hashed = whole
        .into_iter()
        .chain(keys.chunks(5))
        .map(|keys| {
            let hasher = table.footer().hasher;
            let hashes: Vec<u64> = keys.iter().map(|key| hasher.hash(key)).collect();
            batch(keys.len(), |out| match kernel {
                Some(kernel) => kernel.get_batch_hashed(table, keys, &hashes, out),
                None => table.get_batch_hashed_with(pkhash_core::Scalar, keys, &hashes, out),
            })
        })
        .collect();
    let batches = whole
        .into_iter()
        .chain(keys.chunks(5))
        .map(|keys| {
            batch(keys.len(), |out| match kernel {
                Some(kernel) => kernel.get_batch(table, keys, out),
                None => table.get_batch(keys, out),
            })
        })
        .collect();
    let mut by_len: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
    for key in keys.iter().filter(|key| !key.is_empty()) {
        by_len.entry(key.len()).or_default().push(key);
    }
    let fixed = by_len
        .into_iter()
        .map(|(len, keys)| {
            let buffer = keys.concat();
            let fixed = FixedKeys::new(&buffer, len).expect("keys of one length");
            batch(keys.len(), |out| match kernel {
                Some(kernel) => kernel.get_batch_fixed(table, fixed, out),
                None => table.get_batch_fixed_with(pkhash_core::Scalar, fixed, out),
            })
        })
        .collect();
    let mut doc_ids = vec![None; keys.len()];
    let found = match kernel {
        Some(kernel) => kernel.get_batch_doc_ids(table, keys, &mut doc_ids),
        None => table.get_batch_doc_ids_with(pkhash_core::Scalar, keys, &mut doc_ids),
    };
    let doc_ids = found.map(|found| {
        assert_eq!(found, doc_ids.iter().flatten().count());
        doc_ids
    });
    Answers { singles, batches, hashed, fixed, doc_ids }
}

impl Answers {
    /// Whether all ways of asking gave one answer.
    pub(crate) fn assert_coherent(&self, keys: &[&[u8]]) {
        let whole: Result<Vec<_>> = self.singles.iter().cloned().collect();
        match whole {
            Ok(whole) => {
                assert_eq!(self.batches[0].as_ref(), Ok(&whole));
                let chunks = self.batches[1..].iter().flat_map(|chunk| chunk.as_ref().unwrap());
                assert!(chunks.eq(&whole), "batches of five");
                assert_eq!(self.hashed, self.batches, "batches with hashes");
                let mut of_some_length: Vec<_> =
                    keys.iter().zip(whole).filter(|(key, _)| !key.is_empty()).collect();
                // The order of the buffers: by length, otherwise as they came.
                of_some_length.sort_by_key(|(key, _)| key.len());
                let fixed = self.fixed.iter().flat_map(|batch| batch.as_ref().unwrap());
                assert!(fixed.eq(of_some_length.iter().map(|(_, found)| found)), "fixed batches");
            }
            Err(_) => assert!(
                self.batches[0].is_err() && self.hashed[0].is_err(),
                "one of the keys alone is an error"
            ),
        }
    }
}
