//! Whether the bytes of an fst are one. The fst crate takes that for granted: on other bytes its lookups
//! panic, or walk in circles.
//!
//! Nodes lie back to back, each behind those that it leads to, the root last. So one walk from the last to
//! the first sees every node after all that lead to it, and what is known of the ways to a node is
//! complete when the node comes.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use super::format::{FST_MIN, FST_TAIL, Fault, HEAD_LEN, MAX_ORDERED_KEY_LEN, u64_at};

/// The first node begins here, behind version and type. 0 is the address of a node that is not there: final,
/// without transitions.
const FIRST: usize = 16;

/// Nodes with more transitions have an index of 256 bytes.
const INDEXED: usize = 32;

/// All ways from the root to a node together.
#[derive(Clone, Copy)]
struct Ways {
    count: u64,
    /// Transitions of the longest.
    longest: usize,
    /// The greatest sum of outputs.
    output: u64,
}

impl Ways {
    fn and(self, other: Self) -> Self {
        Self {
            count: self.count.saturating_add(other.count),
            longest: self.longest.max(other.longest),
            output: self.output.max(other.output),
        }
    }
}

/// A hash of addresses, for a forger must not choose them so that they meet: one multiplication, with a
/// seed that nobody knows before.
struct Seeded(u64);

struct AddressHasher(u64);

impl BuildHasher for Seeded {
    type Hasher = AddressHasher;

    fn build_hasher(&self) -> AddressHasher {
        AddressHasher(self.0)
    }
}

impl Hasher for AddressHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_usize((*byte).into());
        }
    }

    fn write_usize(&mut self, address: usize) {
        let product = u128::from(self.0 ^ address as u64) * 0x9e37_79b9_7f4a_7c15;
        self.0 = product as u64 ^ (product >> 64) as u64;
    }
}

/// Checks every node: that it lies within the fst and leads to nodes before it, that bytes rise within it,
/// that no output overflows, that no key is too long, and that as many keys are spelled as are said to be.
/// O(n), with memory for a bit of each byte and for the nodes that are waited for. Afterwards nothing that the fst crate does with the bytes panics, and to list all keys takes no more
/// than keys × longest key steps.
pub(super) fn check(fst: &[u8], keys: u64) -> Result<(), Fault> {
    let mut found = 0u64;
    if fst.len() == FST_MIN {
        // The empty key alone.
        found = 1;
    } else {
        let mut at = fst.len() - FST_TAIL - 1;
        let root = at;
        let seed = Seeded(RandomState::new().hash_one(root));
        let mut pending: HashMap<usize, Ways, Seeded> = HashMap::with_hasher(seed);
        // Which addresses are pending: most are not, and then the map need not be asked.
        let mut marked = vec![0u64; fst.len() / 64 + 1];
        // Of the node right before the last one: most nodes are children of the next.
        let mut near = Some(Ways { count: 1, longest: 0, output: 0 });
        loop {
            let far =
                if marked[at / 64] >> (at % 64) & 1 == 1 { pending.remove(&at) } else { None };
            let ways = match (near.take(), far) {
                (Some(near), Some(far)) => near.and(far),
                (Some(ways), None) | (None, Some(ways)) => ways,
                (None, None) => return Err(fault("ways to a node of the fst", at, 1, 0)),
            };
            let node = Node::parse(fst, at)?;
            if node.is_final {
                found = found.saturating_add(ways.count);
                add(at, ways.output, node.final_output)?;
            } else if node.transitions == 0 && at != root {
                return Err(fault("transitions of a node of the fst", at, 1, 0));
            }
            let longest = ways.longest + 1;
            if node.transitions > 0 && longest > MAX_ORDERED_KEY_LEN {
                let most = MAX_ORDERED_KEY_LEN as u64;
                return Err(fault("key length in the fst", at, most, longest as u64));
            }
            for i in 0..node.transitions {
                let output = add(at, ways.output, node.output(i))?;
                match node.target(at, i)? {
                    0 => found = found.saturating_add(ways.count),
                    target => {
                        let ways = Ways { count: ways.count, longest, output };
                        if target + 1 == node.start {
                            near = Some(near.map_or(ways, |near| near.and(ways)));
                        } else {
                            let known = pending.get(&target).map_or(ways, |known| known.and(ways));
                            pending.insert(target, known);
                            marked[target / 64] |= 1 << (target % 64);
                        }
                    }
                }
            }
            if node.start == FIRST {
                break;
            }
            at = node.start - 1;
        }
        if let Some(target) = pending.keys().max() {
            return Err(fault("address of a node of the fst", *target, at as u64, *target as u64));
        }
    }
    if found != keys {
        return Err(fault("keys that the fst spells", fst.len() - FST_TAIL, keys, found));
    }
    Ok(())
}

fn fault(what: &'static str, address: usize, expected: u64, found: u64) -> Fault {
    Fault::new(what, HEAD_LEN + address, expected, found)
}

fn add(at: usize, sum: u64, output: u64) -> Result<u64, Fault> {
    sum.checked_add(output).ok_or_else(|| fault("output of the fst", at, u64::MAX - sum, output))
}

/// A node as it lies there, from its lowest address to its highest: final output, outputs, deltas of the
/// targets, bytes (all from the last transition to the first), index, sizes, number, state.
struct Node<'f> {
    start: usize,
    is_final: bool,
    final_output: u64,
    transitions: usize,
    outputs: &'f [u8],
    output_len: usize,
    /// None of a node whose one target is the node before it.
    deltas: Option<&'f [u8]>,
    delta_len: usize,
}

/// Reads a node backwards.
struct Reader<'f> {
    fst: &'f [u8],
    at: usize,
    node: usize,
}

impl<'f> Reader<'f> {
    fn bytes(&mut self, len: usize) -> Result<&'f [u8], Fault> {
        let from = self.at.checked_sub(len).filter(|from| *from >= FIRST);
        let from = from.ok_or_else(|| {
            fault("length of a node of the fst", self.node, (self.at - FIRST) as u64, len as u64)
        })?;
        let bytes = &self.fst[from..self.at];
        self.at = from;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, Fault> {
        Ok(self.bytes(1)?[0])
    }
}

impl<'f> Node<'f> {
    /// The node whose last byte is `at`.
    fn parse(fst: &'f [u8], at: usize) -> Result<Self, Fault> {
        let mut reader = Reader { fst, at: at + 1, node: at };
        let state = reader.byte()?;
        if state & 0x80 != 0 {
            return Self::parse_single(reader, state);
        }
        let transitions = match state & 0x3f {
            0 => match reader.byte()? {
                // One would be in the state.
                1 => 256,
                n => n.into(),
            },
            n => n.into(),
        };
        let (delta_len, output_len) = sizes(&mut reader, transitions)?;
        let index = if transitions > INDEXED { Some(reader.bytes(256)?) } else { None };
        let inputs = reader.bytes(transitions)?;
        // From the last to the first.
        if let Some(pair) = inputs.windows(2).find(|pair| pair[0] <= pair[1]) {
            let (expected, found) = (u64::from(pair[1]) + 1, pair[0].into());
            return Err(fault("order of bytes in the fst", at, expected, found));
        }
        if let Some(index) = index {
            let mut expected = [255; 256];
            for (i, byte) in inputs.iter().rev().enumerate() {
                expected[usize::from(*byte)] = i as u8;
            }
            if let Some((expected, found)) = expected.iter().zip(index).find(|(a, b)| a != b) {
                return Err(fault(
                    "index of a node of the fst",
                    at,
                    (*expected).into(),
                    (*found).into(),
                ));
            }
        }
        let deltas = reader.bytes(transitions * delta_len)?;
        let outputs = reader.bytes(transitions * output_len)?;
        let is_final = state & 0x40 != 0;
        let final_output = if is_final { number(reader.bytes(output_len)?) } else { 0 };
        let start = reader.at;
        let deltas = Some(deltas);
        Ok(Self {
            start,
            is_final,
            final_output,
            transitions,
            outputs,
            output_len,
            deltas,
            delta_len,
        })
    }

    /// A node of one transition that is not final.
    fn parse_single(mut reader: Reader<'f>, state: u8) -> Result<Self, Fault> {
        // Of common bytes the state has the number.
        if state & 0x3f == 0 {
            reader.byte()?;
        }
        let (mut deltas, mut outputs, mut delta_len, mut output_len) = (None, &[][..], 0, 0);
        if state & 0x40 == 0 {
            (delta_len, output_len) = sizes(&mut reader, 1)?;
            deltas = Some(reader.bytes(delta_len)?);
            outputs = reader.bytes(output_len)?;
        }
        let start = reader.at;
        Ok(Self {
            start,
            is_final: false,
            final_output: 0,
            transitions: 1,
            outputs,
            output_len,
            deltas,
            delta_len,
        })
    }

    fn output(&self, i: usize) -> u64 {
        number(self.nth(self.outputs, self.output_len, i))
    }

    /// Address of the target of transition `i`.
    fn target(&self, at: usize, i: usize) -> Result<usize, Fault> {
        let delta = match self.deltas {
            None => 1,
            Some(deltas) => number(self.nth(deltas, self.delta_len, i)),
        };
        if delta == 0 {
            return Ok(0);
        }
        let target = usize::try_from(delta).ok().and_then(|delta| self.start.checked_sub(delta));
        target
            .filter(|target| *target >= FIRST)
            .ok_or_else(|| fault("target in the fst", at, (self.start - FIRST) as u64, delta))
    }

    /// The i-th of equal parts, counted from the last.
    fn nth(&self, bytes: &'f [u8], len: usize, i: usize) -> &'f [u8] {
        let from = len * (self.transitions - 1 - i);
        &bytes[from..from + len]
    }
}

/// Bytes of each delta and of each output.
fn sizes(reader: &mut Reader<'_>, transitions: usize) -> Result<(usize, usize), Fault> {
    let sizes = reader.byte()?;
    let (delta, output) = (sizes >> 4, sizes & 15);
    if delta > 8 || output > 8 || (delta == 0 && transitions > 0) {
        return Err(fault("sizes in a node of the fst", reader.node, 0x88, sizes.into()));
    }
    Ok((delta.into(), output.into()))
}

/// A little-endian number of at most 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64_at(&wide, 0)
}
