//! The keys of a batch, and what it answers.

use core::ops::Deref;
use core::slice::ChunksExact;

use crate::error::{Error, Result};
use crate::layout::perfect::Sized;
use crate::table::Table;
use crate::value::Value;

mod sealed {
    pub trait Sealed {}

    impl<B> Sealed for &[B] {}
    impl<S: core::ops::Deref> Sealed for &S {}
    impl<B, const N: usize> Sealed for [B; N] {}
    impl<B> Sealed for super::HashedKeys<'_, B> {}
    impl Sealed for super::FixedKeys<'_> {}
    impl Sealed for Option<super::Value<'_>> {}
    impl Sealed for Option<u32> {}
    impl Sealed for bool {}
}

pub(super) use sealed::Sealed;

/// What a batch can answer for each key: the value, the doc ID, or whether the key is there.
///
/// `Option<u32>` is the doc ID. It is read when its key is compared, while the record is in the
/// first-level cache: reading it from the value of a large batch afterwards fetches the record again.
pub trait Answer<'a>: Copy + Sealed {
    /// The answer for a key that is not there.
    const ABSENT: Self;

    /// Whether each value must be sure to have a doc ID.
    #[doc(hidden)]
    const DOC_IDS: bool = false;

    /// The answer for a key that is there.
    #[doc(hidden)]
    fn found(value: Value<'a>) -> Self;

    /// The length of keys with which a table answers on the shortest path (see [`Table::get_direct`]);
    /// `usize::MAX` if it does not.
    #[doc(hidden)]
    #[inline(always)]
    fn direct_len(table: &Table<'a>) -> usize {
        table.direct_len
    }

    /// On that path, the answer for a key whose record can only lie at `at`, if it does.
    #[doc(hidden)]
    fn direct<const L: usize>(table: &Table<'a>, at: u64, key: &[u8; L]) -> Option<Self>;
}

impl<'a> Answer<'a> for Option<Value<'a>> {
    const ABSENT: Self = None;

    #[inline(always)]
    fn found(value: Value<'a>) -> Self {
        Some(value)
    }

    #[inline(always)]
    fn direct<const L: usize>(table: &Table<'a>, at: u64, key: &[u8; L]) -> Option<Self> {
        let value = Sized::<L>::of(table.fixed).value_at(table.body, at, key)?;
        Some(Some(Value::new(value)))
    }
}

impl<'a> Answer<'a> for Option<u32> {
    const ABSENT: Self = None;
    const DOC_IDS: bool = true;

    #[inline(always)]
    fn found(value: Value<'_>) -> Self {
        value.doc_id()
    }

    #[inline(always)]
    fn direct_len(table: &Table<'a>) -> usize {
        table.direct_doc_id_len
    }

    #[inline(always)]
    fn direct<const L: usize>(table: &Table<'a>, at: u64, key: &[u8; L]) -> Option<Self> {
        let number = Sized::<L>::of(table.fixed).number_at(table.body, at, key)?;
        Some(Some(number >> (table.doc_id_shift & 31)))
    }
}

impl<'a> Answer<'a> for bool {
    const ABSENT: Self = false;

    #[inline(always)]
    fn found(_: Value<'_>) -> Self {
        true
    }

    #[inline(always)]
    fn direct<const L: usize>(table: &Table<'a>, at: u64, key: &[u8; L]) -> Option<Self> {
        Sized::<L>::of(table.fixed).value_at(table.body, at, key).map(|_| true)
    }
}

/// The keys of a batch: a slice of anything that is bytes (or a `Vec` of it behind a reference, or an
/// array), [`FixedKeys`], or [`HashedKeys`].
///
/// They may be asked for more than once. An `AsRef` that answers differently each time gets wrong
/// answers, and no worse.
#[allow(clippy::len_without_is_empty)]
pub trait Keys: Sealed {
    /// How many there are.
    fn len(&self) -> usize;

    /// At most `n` keys from the `first` on.
    #[doc(hidden)]
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]>;

    /// The hash of key number `i`, if it is known.
    #[doc(hidden)]
    #[inline(always)]
    fn known_hash(&self, i: usize) -> Option<u64> {
        let _ = i;
        None
    }

    /// Whether the keys fit together.
    #[doc(hidden)]
    fn check(&self) -> Result<()> {
        Ok(())
    }
}

/// At most `n` elements from the `first` on. As a slice: walks through several of them at once have one end
/// to look for.
#[inline(always)]
fn some<T>(all: &[T], first: usize, n: usize) -> &[T] {
    let rest = all.get(first..).unwrap_or_default();
    rest.get(..n).unwrap_or(rest)
}

impl<B: AsRef<[u8]>> Keys for &[B] {
    #[inline(always)]
    fn len(&self) -> usize {
        <[B]>::len(self)
    }

    #[inline(always)]
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]> {
        some(self, first, n).iter().map(AsRef::as_ref)
    }
}

/// A slice, however it is held.
#[doc(hidden)]
pub trait KeySlice: Sealed {
    type Key: AsRef<[u8]>;

    fn keys(&self) -> &[Self::Key];
}

impl<B> Sealed for [B] {}

impl<B: AsRef<[u8]>> KeySlice for [B] {
    type Key = B;

    #[inline(always)]
    fn keys(&self) -> &[B] {
        self
    }
}

/// A `Vec`, a `Box<[B]>`, an `Arc<[B]>`.
impl<S: Deref<Target: KeySlice>> Keys for &S {
    #[inline(always)]
    fn len(&self) -> usize {
        self.keys().len()
    }

    #[inline(always)]
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]> {
        some(self.keys(), first, n).iter().map(AsRef::as_ref)
    }
}

impl<B: AsRef<[u8]>, const N: usize> Keys for [B; N] {
    #[inline(always)]
    fn len(&self) -> usize {
        N
    }

    #[inline(always)]
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]> {
        some(self, first, n).iter().map(AsRef::as_ref)
    }
}

/// Keys whose hashes are known: `hashes[i]` is that of `keys[i]`, by the table's
/// [`KeyHasher`](crate::KeyHasher). One hash serves all tables that share a seed. A key with another hash than its own may be
/// found or not.
#[derive(Debug)]
pub struct HashedKeys<'k, B> {
    /// The keys.
    pub keys: &'k [B],
    /// As many hashes.
    pub hashes: &'k [u64],
}

impl<B> Clone for HashedKeys<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for HashedKeys<'_, B> {}

impl<B: AsRef<[u8]>> Keys for HashedKeys<'_, B> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.keys.len()
    }

    #[inline(always)]
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]> {
        some(self.keys, first, n).iter().map(AsRef::as_ref)
    }

    #[inline(always)]
    fn known_hash(&self, i: usize) -> Option<u64> {
        Some(self.hashes.get(i).copied().unwrap_or_default())
    }

    fn check(&self) -> Result<()> {
        let (expected, found) = (self.keys.len(), self.hashes.len());
        if expected == found { Ok(()) } else { Err(Error::BatchLength { expected, found }) }
    }
}

/// Keys of one length, one behind the other in one buffer.
///
/// ```
/// # use pkhash_core::FixedKeys;
/// let keys = FixedKeys::new(b"B000000001B000000002", 10)?;
/// assert_eq!(keys.len(), 2);
/// assert_eq!(keys.get(1), Some(&b"B000000002"[..]));
/// assert_eq!((keys.get(2), keys.get(usize::MAX)), (None, None));
/// assert!(keys.iter().eq([b"B000000001", b"B000000002"]));
/// # Ok::<(), pkhash_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct FixedKeys<'k> {
    bytes: &'k [u8],
    width: usize,
}

impl<'k> FixedKeys<'k> {
    /// The keys of `width` bytes that `bytes` holds.
    ///
    /// # Errors
    /// [`Error::KeyLength`] if `width` is 0 or does not divide the length of `bytes`.
    pub const fn new(bytes: &'k [u8], width: usize) -> Result<Self> {
        if width == 0 || !bytes.len().is_multiple_of(width) {
            let found = if width == 0 { 0 } else { bytes.len() % width };
            return Err(Error::KeyLength { expected: width as u64, found: found as u64 });
        }
        Ok(Self { bytes, width })
    }

    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.bytes.len() / self.width
    }

    /// Whether there are no keys.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Key number `i`.
    #[must_use]
    pub fn get(&self, i: usize) -> Option<&'k [u8]> {
        let from = i.checked_mul(self.width)?;
        self.bytes.get(from..from.checked_add(self.width)?)
    }

    /// The keys, in order.
    pub fn iter(&self) -> ChunksExact<'k, u8> {
        self.bytes.chunks_exact(self.width)
    }
}

impl<'k> IntoIterator for FixedKeys<'k> {
    type Item = &'k [u8];
    type IntoIter = ChunksExact<'k, u8>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Keys for FixedKeys<'_> {
    #[inline(always)]
    fn len(&self) -> usize {
        FixedKeys::len(self)
    }

    #[inline(always)]
    fn from(&self, first: usize, n: usize) -> impl Iterator<Item = &[u8]> {
        // `first` is at most the number of keys: no overflow.
        let bytes = self.bytes.get(first * self.width..).unwrap_or_default();
        bytes.chunks_exact(self.width).take(n)
    }
}
