//! Shared by the tests of this folder: which kernels must be here, and all ways to ask one.

// Each test file uses a part of it.
#![allow(dead_code)]

pub(crate) use pkhash_core_testing as core;

use std::collections::{BTreeMap, BTreeSet};
use std::env;

use pkhash_core::{Answer, Dispatch, FixedKeys, HashedKeys, Keys, Result, Scalar, Table, Value};
use pkhash_simd::AnyKernel;

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
    // The intrinsics of big-endian NEON number lanes otherwise.
    if cfg!(all(target_arch = "aarch64", target_endian = "little")) {
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
pub(crate) fn with(name: &str, check: impl FnOnce(AnyKernel)) {
    match AnyKernel::by_name(name) {
        Some(kernel) => check(kernel),
        None => {
            assert!(!required().contains(name), "{name} must run on this machine, and cannot");
            println!("{name} cannot run here");
        }
    }
}

/// All kernels that can run here; fails if one that must is not among them.
pub(crate) fn kernels() -> Vec<AnyKernel> {
    let kernels: Vec<AnyKernel> = AnyKernel::available().collect();
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
    single_ids: Vec<Result<Option<u32>>>,
    batches: Vec<Result<Vec<Option<Vec<u8>>>>>,
    hashed: Vec<Result<Vec<Option<Vec<u8>>>>>,
    fixed: Vec<Result<Vec<Option<Vec<u8>>>>>,
    doc_ids: Result<Vec<Option<u32>>>,
    there: Result<Vec<bool>>,
}

/// A batch, in which all places must be written: they hold `wrong` before.
fn batch<'a, A: Answer<'a>>(
    table: &Table<'a>,
    by: impl Dispatch,
    keys: impl Keys,
    wrong: A,
) -> Result<(usize, Vec<A>)> {
    let mut out = vec![wrong; keys.len()];
    let found = table.get_batch(by, keys, &mut out)?;
    Ok((found, out))
}

/// The values of a batch.
fn values(table: &Table<'_>, by: impl Dispatch, keys: impl Keys) -> Result<Vec<Option<Vec<u8>>>> {
    let any = table.iter().find_map(Result::ok).map(|(_, value)| value);
    let (found, out) = batch(table, by, keys, any)?;
    assert_eq!(found, out.iter().flatten().count());
    Ok(out.into_iter().map(owned).collect())
}

/// Asks for these keys with `kernel`, or with core's scalar kernel.
pub(crate) fn answers(table: &Table<'_>, kernel: Option<AnyKernel>, keys: &[&[u8]]) -> Answers {
    match kernel {
        Some(kernel) => answers_by(table, kernel, keys),
        None => answers_by(table, Scalar, keys),
    }
}

fn answers_by(table: &Table<'_>, by: impl Dispatch, keys: &[&[u8]]) -> Answers {
    let hasher = table.footer().hasher();
    let mut singles = Vec::with_capacity(keys.len());
    let mut single_ids = Vec::with_capacity(keys.len());
    for key in keys {
        let single = table.get(by, key);
        assert_eq!(table.get_hashed(by, hasher.hash(key), key), single);
        singles.push(single.map(owned));
        single_ids.push(table.get_doc_id(by, key));
    }
    // All at once; and each again among the first keys of a batch, and among the last.
    let groups = || [keys].into_iter().chain(keys.chunks(5));
    let hashed = groups()
        .map(|keys| {
            let hashes: Vec<u64> = keys.iter().map(|key| hasher.hash(key)).collect();
            values(table, by, HashedKeys { keys, hashes: &hashes })
        })
        .collect();
    let batches = groups().map(|keys| values(table, by, keys)).collect();
    let mut by_len: BTreeMap<usize, Vec<&[u8]>> = BTreeMap::new();
    for key in keys.iter().filter(|key| !key.is_empty()) {
        by_len.entry(key.len()).or_default().push(key);
    }
    let fixed = by_len
        .into_iter()
        .map(|(len, keys)| {
            let buffer = keys.concat();
            let fixed = FixedKeys::new(&buffer, len).expect("keys of one length");
            values(table, by, fixed)
        })
        .collect();
    let doc_ids = batch(table, by, keys, Some(u32::MAX)).map(|(found, doc_ids)| {
        assert_eq!(found, doc_ids.iter().flatten().count());
        doc_ids
    });
    // Right in no place, whatever the answers.
    let before: Vec<bool> = singles.iter().map(|found| found != &Ok(None)).collect();
    let mut there: Vec<bool> = before.iter().map(|there| !there).collect();
    let there = table.get_batch(by, keys, &mut there).map(|found| {
        assert_eq!(found, there.iter().filter(|there| **there).count());
        there
    });
    Answers { singles, single_ids, batches, hashed, fixed, doc_ids, there }
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
                let there: Vec<bool> = whole.iter().map(Option::is_some).collect();
                assert_eq!(self.there.as_ref(), Ok(&there), "batch of bools");
                // An error that is not about one key is one for each.
                match &self.doc_ids {
                    Ok(doc_ids) => assert!(doc_ids.iter().eq(self.single_ids.iter().flatten())),
                    Err(error) => {
                        assert!(self.single_ids.iter().all(|id| id.as_ref() == Err(error)));
                    }
                }
                let mut of_some_length: Vec<_> =
                    keys.iter().zip(whole).filter(|(key, _)| !key.is_empty()).collect();
                // The order of the buffers: by length, otherwise as they came.
                of_some_length.sort_by_key(|(key, _)| key.len());
                let fixed = self.fixed.iter().flat_map(|batch| batch.as_ref().unwrap());
                assert!(fixed.eq(of_some_length.iter().map(|(_, found)| found)), "fixed batches");
            }
            Err(_) => assert!(
                self.batches[0].is_err() && self.hashed[0].is_err() && self.there.is_err(),
                "one of the keys alone is an error"
            ),
        }
    }
}
