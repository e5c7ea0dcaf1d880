//! Deltas: what a file holds, as pieces with a hash each, and how a new file is built from the pieces of an old one. Pure.
//!
//! Files of one size are cut at the same places, since what changed in them changed in place; others where their content says so, so that
//! the pieces behind an insertion are the same again. Nothing is believed of a piece that has the same hash: the whole is proved
//! by its own before anybody sees it.

use crate::{Error, ErrorKind, Result, Version};
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, iter::Peekable, vec::IntoIter};

/// Bytes of a piece's hash: the first of its BLAKE3.
pub const ID: usize = 16;

/// Smaller files aren't worth the questions, in bytes.
pub const LEAST: u64 = 64 << 10;

/// Pieces of [`Chunking::Content`] have this size at least, and those of [`Chunking::Blocks`] in builds that say nothing of it, in bytes.
pub const SMALLEST: u32 = 16 << 10;
/// Blocks have this size at least, in bytes: what databases and file systems inside of images write at a time.
pub const SMALLEST_BLOCK: u32 = 4 << 10;
/// Blocks are larger where a file would otherwise have more than this many pieces or blocks: their hashes cross the link.
const MOST_PIECES: u64 = 1 << 18;
const MOST_BLOCKS: u64 = 1 << 19;
/// A piece is never larger, in bytes.
const LARGEST: u32 = 64 << 20;
/// Largest run, in bytes, so that progress stays visible.
const LONGEST_RUN: u64 = 64 << 20;

/// How files are cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Chunking {
    /// Fixed blocks of this many bytes.
    Blocks(u32),
    /// Content-defined: this many bytes on average (a power of two), from a quarter of it to four times as many.
    Content(u32),
}

/// Pieces of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// The version that was read.
    pub version: Option<Version>,
    /// Its bytes.
    pub size: u64,
    /// How it is cut.
    pub cut: Chunking,
    /// BLAKE3 of all of it.
    #[serde(with = "crate::wire::raw")]
    pub whole: Vec<u8>,
    /// Hashes of the pieces, one behind the other.
    #[serde(with = "crate::wire::raw")]
    ids: Vec<u8>,
    /// Bytes of the pieces, where they aren't all alike.
    sizes: Vec<u32>,
}

/// Bytes that are in the old file already.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// Number of the part that they are.
    pub index: u64,
    /// Their place in the new file.
    pub offset: u64,
    /// Their place in the old one.
    pub from: u64,
    /// How many.
    pub size: u64,
}

/// How a file is built: all of its bytes, once, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Runs that exist already.
    pub runs: Vec<Run>,
    /// Runs to send: number of the part, offset and length in bytes.
    pub literals: Vec<(u64, u64, u64)>,
}

impl Chunking {
    /// How to cut two files so that they can be compared. `smallest`: bytes of the smallest block that both ends know.
    pub fn of(old: u64, new: u64, smallest: u32) -> Chunking {
        let size = |most: u64, least: u32| {
            let wanted = old.max(new).div_ceil(most).max(u64::from(least));
            wanted.next_power_of_two().min(u64::from(LARGEST / 4)) as u32
        };
        match old == new {
            true => Chunking::Blocks(size(MOST_BLOCKS, smallest)),
            false => Chunking::Content(size(MOST_PIECES, SMALLEST)),
        }
    }

    /// Bytes that the recipe of a file of this size takes, about.
    pub fn bytes(self, size: u64) -> u32 {
        let (Chunking::Blocks(each) | Chunking::Content(each)) = self;
        u32::try_from(size.div_ceil(u64::from(each.max(1))) * (ID as u64 + 4)).unwrap_or(u32::MAX)
    }

    /// False for more pieces than [`Chunking::of`] makes of a file of this size: nothing needs to hold them. Files of more than 4 TiB that are
    /// cut by content, and of 8 TiB that are cut in blocks, have too many in any case.
    pub fn suits(self, size: u64) -> bool {
        match self {
            Chunking::Blocks(each) => size.div_ceil(u64::from(each.max(1))) <= MOST_BLOCKS,
            Chunking::Content(each) => size.div_ceil(u64::from(each.max(1))) <= MOST_PIECES,
        }
    }

    /// False for an invalid cut.
    fn is_sound(self) -> bool {
        let (size, least) = match self {
            Chunking::Blocks(size) => (size, SMALLEST_BLOCK),
            Chunking::Content(size) => (size, SMALLEST),
        };
        size.is_power_of_two() && (least..=LARGEST / 4).contains(&size)
    }
}

/// Summand of each byte value in the rolling hash: any numbers do, as long as both ends use the same (splitmix64).
const GEAR: [u64; 256] = {
    let (mut table, mut at) = ([0; 256], 0);
    while at < 256 {
        let mut x = (at as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        table[at] = x ^ (x >> 31);
        at += 1;
    }
    table
};

/// A piece of which everything is known before it is read.
#[derive(Clone, Copy, Debug)]
pub struct KnownPiece {
    /// Where it begins in the file that is cut.
    at: u64,
    size: u32,
    id: [u8; ID],
}

/// Cuts a file whose bytes come one after another. The rolling hash is ours, as it is thirty lines over bytes that are hashed anyway, in
/// blocks as the disk gives them: crates for it (fastcdc) want the file in memory, or a reader of their own.
pub struct Cutter {
    cut: Chunking,
    piece: blake3::Hasher,
    /// Of the piece that isn't at its end.
    length: u32,
    gear: u64,
    /// That piece, where it is known.
    known_piece: Option<KnownPiece>,
    known: Peekable<IntoIter<KnownPiece>>,
    size: u64,
    ids: Vec<u8>,
    sizes: Vec<u32>,
}

impl Cutter {
    /// A new cutter.
    ///
    /// Errors: `Invalid` for an invalid piece size.
    pub fn new(cut: Chunking) -> Result<Cutter> {
        Cutter::knowing(cut, Vec::new())
    }

    /// A cutter that skips the bytes of known pieces, see [`Recipe::known`].
    ///
    /// Errors: as [`Cutter::new`].
    pub fn knowing(cut: Chunking, known: Vec<KnownPiece>) -> Result<Cutter> {
        if !cut.is_sound() {
            return Err(Error::new(ErrorKind::Invalid, "delta", "pieces can't have that size"));
        }
        let (piece, known) = (blake3::Hasher::new(), known.into_iter().peekable());
        let (ids, sizes) = (Vec::new(), Vec::new());
        Ok(Cutter { cut, piece, length: 0, gear: 0, known_piece: None, known, size: 0, ids, sizes })
    }

    /// How it cuts.
    pub fn cut(&self) -> Chunking {
        self.cut
    }

    /// The next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            if self.length == 0 {
                while self.known.next_if(|piece| piece.at < self.size).is_some() {}
                self.known_piece = self.known.next_if(|piece| piece.at == self.size);
            }
            let up_to = |size: u32| {
                let left = (size - self.length) as usize;
                (left.min(bytes.len()), left <= bytes.len())
            };
            let (took, ends) = match (self.known_piece, self.cut) {
                (Some(piece), _) => up_to(piece.size),
                (None, Chunking::Blocks(size)) => up_to(size),
                (None, Chunking::Content(average)) => self.roll(bytes, average),
            };
            if self.known_piece.is_none() {
                self.piece.update(&bytes[..took]);
            }
            self.length += took as u32;
            self.size += took as u64;
            if ends {
                self.end();
            }
            bytes = &bytes[took..];
        }
    }

    /// How many of these bytes belong to the piece, and whether it ends there. Below the average a cut is four times as rare, above it four
    /// times as likely, which keeps sizes near it.
    fn roll(&mut self, bytes: &[u8], average: u32) -> (usize, bool) {
        let (least, most) = (average / 4, average * 4);
        // The upper bits have seen the last 64 bytes.
        let bits = average.trailing_zeros();
        let (rare, likely) = (u64::MAX << (64 - (bits + 2)), u64::MAX << (64 - (bits - 2)));
        let upto = |length: u32| (length.saturating_sub(self.length) as usize).min(bytes.len());
        let (begins, steady, ends) = (upto(least), upto(average - 1), upto(most));
        let mut gear = self.gear;
        for (from, to, mask) in [(begins, steady, rare), (steady, ends, likely)] {
            if let Some(at) = scan(&mut gear, &bytes[from.min(to)..to], mask) {
                return (from + at + 1, true);
            }
        }
        self.gear = gear;
        (ends, self.length + ends as u32 == most)
    }

    fn end(&mut self) {
        match self.known_piece.take() {
            Some(known) => self.ids.extend_from_slice(&known.id),
            None => self.ids.extend_from_slice(&self.piece.finalize().as_bytes()[..ID]),
        }
        if matches!(self.cut, Chunking::Content(_)) {
            self.sizes.push(self.length);
        }
        self.piece.reset();
        (self.length, self.gear) = (0, 0);
    }

    /// All of it came; `whole` is its BLAKE3.
    pub fn finish(mut self, version: Option<Version>, whole: Vec<u8>) -> Recipe {
        if self.length > 0 {
            self.end();
        }
        Recipe { version, size: self.size, cut: self.cut, whole, ids: self.ids, sizes: self.sizes }
    }
}

/// The first byte after which none of the bits of `mask` is set. Two at a time: each needs what the one before it made, and nothing else
/// takes time here.
fn scan(gear: &mut u64, bytes: &[u8], mask: u64) -> Option<usize> {
    let value = |byte: u8| GEAR[usize::from(byte)];
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut now = *gear;
    for (number, &[one, two]) in pairs.iter().enumerate() {
        let first = (now << 1).wrapping_add(value(one));
        now = (now << 2).wrapping_add((value(one) << 1).wrapping_add(value(two)));
        if first & mask == 0 {
            return Some(2 * number);
        }
        if now & mask == 0 {
            return Some(2 * number + 1);
        }
    }
    for byte in rest {
        now = (now << 1).wrapping_add(value(*byte));
        if now & mask == 0 {
            return Some(bytes.len() - 1);
        }
    }
    *gear = now;
    None
}

impl Recipe {
    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        self.ids.len() + self.sizes.len() * size_of::<u32>() + size_of::<Recipe>()
    }

    /// Place, bytes and hash of each piece.
    fn pieces(&self) -> impl Iterator<Item = (u64, u64, &[u8; ID])> {
        let mut at = 0;
        self.ids.as_chunks::<ID>().0.iter().enumerate().map(move |(number, id)| {
            let from = at;
            let size = match self.cut {
                Chunking::Blocks(size) => u64::from(size).min(self.size.saturating_sub(from)),
                Chunking::Content(_) => u64::from(self.sizes.get(number).copied().unwrap_or(0)),
            };
            at += size;
            (from, size, id)
        })
    }

    /// The pieces that these runs contribute to a new file that is cut like this one.
    pub fn known(&self, runs: &[Run]) -> Vec<KnownPiece> {
        let pieces: Vec<_> = self.pieces().collect();
        let mut known = Vec::new();
        for run in runs {
            let end = run.from.saturating_add(run.size);
            let first = pieces.partition_point(|(from, ..)| *from < run.from);
            let inside = pieces[first..].iter().take_while(|(from, size, _)| from + size <= end);
            known.extend(inside.map(|(from, size, id)| KnownPiece {
                at: run.offset + (from - run.from),
                // The recipe was checked.
                size: *size as u32,
                id: **id,
            }));
        }
        known.sort_unstable_by_key(|piece| piece.at);
        known
    }

    /// Errors: `Corrupt` for one whose pieces don't make the file, which only a far end that lies can give.
    pub fn check(&self) -> Result<()> {
        let count = self.ids.len() / ID;
        let sized = match self.cut {
            Chunking::Blocks(size) => {
                self.sizes.is_empty() && self.size.div_ceil(u64::from(size.max(1))) == count as u64
            }
            Chunking::Content(_) => {
                self.sizes.len() == count && self.sizes.iter().all(|size| (1..=LARGEST).contains(size))
            }
        };
        let whole = self.pieces().map(|(_, size, _)| size).sum::<u64>() == self.size;
        let sound = self.cut.is_sound() && self.ids.len().is_multiple_of(ID) && self.whole.len() == blake3::OUT_LEN;
        match sized && whole && sound {
            true => Ok(()),
            false => Err(Error::new(ErrorKind::Corrupt, "delta", "the pieces that were told don't make the file")),
        }
    }
}

impl Plan {
    /// How to build `new` from `old`; with `in_place` only from runs with the same offset, since all others may be overwritten by then.
    /// Literal bytes come in parts of at most `most`.
    ///
    /// Errors: as [`Recipe::check`].
    pub fn of(old: &Recipe, new: &Recipe, in_place: bool, most: u64) -> Result<Plan> {
        old.check()?;
        new.check()?;
        let there: Vec<_> = old.pieces().collect();
        let mut by_id: HashMap<&[u8; ID], usize> = HashMap::with_capacity(there.len());
        for (number, (_, _, id)) in there.iter().enumerate() {
            by_id.entry(id).or_insert(number);
        }
        let (mut plan, mut index, mut next) = (Plan::default(), 0, 0);
        for (number, (offset, size, id)) in new.pieces().enumerate() {
            // At the same place, behind the last one that was found, anywhere.
            let same = |number: &usize| there.get(*number).is_some_and(|piece| piece.2 == id && piece.1 == size);
            let allowed = |number: &usize| !in_place || there[*number].0 == offset;
            let blocks = matches!(new.cut, Chunking::Blocks(_)).then_some(number);
            let found = blocks.into_iter().chain([next]).chain(by_id.get(id).copied());
            let found = found.filter(same).find(allowed);
            match found {
                Some(number) => {
                    next = number + 1;
                    let from = there[number].0;
                    match plan.runs.last_mut() {
                        Some(run)
                            if run.offset + run.size == offset
                                && run.from + run.size == from
                                && run.size + size <= LONGEST_RUN =>
                        {
                            run.size += size;
                        }
                        _ => {
                            plan.runs.push(Run { index, offset, from, size });
                            index += 1;
                        }
                    }
                }
                None => match plan.literals.last_mut() {
                    Some((_, at, length)) if *at + *length == offset && *length + size <= most => *length += size,
                    _ => {
                        plan.literals.push((index, offset, size));
                        index += 1;
                    }
                },
            }
        }
        Ok(plan)
    }

    /// Bytes that are there already.
    pub fn matched(&self) -> u64 {
        self.runs.iter().map(|run| run.size).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn recipe(bytes: &[u8], cut: Chunking, block: usize) -> Recipe {
        let mut cutter = Cutter::new(cut).unwrap();
        bytes.chunks(block).for_each(|block| cutter.update(block));
        cutter.finish(None, blake3::hash(bytes).as_bytes().to_vec())
    }

    fn noise(seed: u64, size: usize) -> Vec<u8> {
        let mut bytes = vec![0; size];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        bytes
    }

    fn built(plan: &Plan, old: &[u8], new: &[u8]) -> Vec<u8> {
        let mut parts: Vec<(u64, u64, &[u8])> = Vec::new();
        let slice = |from: u64, size: u64| from as usize..(from + size) as usize;
        for run in &plan.runs {
            parts.push((run.index, run.offset, &old[slice(run.from, run.size)]));
        }
        for (index, at, size) in &plan.literals {
            parts.push((*index, *at, &new[slice(*at, *size)]));
        }
        parts.sort_by_key(|(index, ..)| *index);
        let mut whole = Vec::new();
        for (number, (index, at, bytes)) in parts.iter().enumerate() {
            assert_eq!((*index, *at), (number as u64, whole.len() as u64), "each byte once, in order");
            whole.extend_from_slice(bytes);
        }
        whole
    }

    #[test]
    fn an_insertion_costs_a_piece_or_two_and_a_change_in_place_one() {
        let old = noise(1, 4 << 20);
        let mut new = old.clone();
        new.splice(1 << 20..1 << 20, *b"inserted");
        let cut = Chunking::of(old.len() as u64, new.len() as u64, SMALLEST);
        assert_eq!(cut, Chunking::Content(SMALLEST));
        let plan = Plan::of(&recipe(&old, cut, 1 << 20), &recipe(&new, cut, 1 << 20), false, 1 << 20).unwrap();
        assert_eq!(built(&plan, &old, &new), new);
        assert!(new.len() as u64 - plan.matched() < u64::from(8 * SMALLEST), "{}", plan.matched());
        let mut new = old.clone();
        new[1 << 20] ^= 1;
        let cut = Chunking::of(old.len() as u64, new.len() as u64, SMALLEST_BLOCK);
        let plan = Plan::of(&recipe(&old, cut, 777), &recipe(&new, cut, 1 << 20), true, 1 << 20).unwrap();
        assert_eq!(plan.literals, [(1, 1 << 20, u64::from(SMALLEST_BLOCK))]);
    }

    #[test]
    fn pieces_are_of_the_size_that_was_asked_for() {
        let recipe = recipe(&noise(2, 8 << 20), Chunking::Content(SMALLEST), 1 << 20);
        let average = recipe.size / recipe.sizes.len() as u64;
        assert!((u64::from(SMALLEST) / 2..u64::from(SMALLEST) * 2).contains(&average), "{average}");
        assert_eq!(Chunking::of(4 << 30, 4 << 30, SMALLEST_BLOCK), Chunking::Blocks(8 << 10));
        assert_eq!(Chunking::of(4 << 30, 4 << 30, SMALLEST), Chunking::Blocks(16 << 10));
        assert_eq!(Chunking::of(1 << 40, 1, SMALLEST_BLOCK), Chunking::Content(4 << 20));
        assert!(Cutter::new(Chunking::Blocks(0)).is_err() && Cutter::new(Chunking::Content(12_345)).is_err());
    }

    #[test]
    fn a_recipe_that_lies_is_refused() {
        let good = recipe(&noise(3, 300_000), Chunking::Content(SMALLEST), 4096);
        assert!(good.check().is_ok());
        let lies: [fn(&mut Recipe); 6] = [
            |recipe| recipe.size += 1,
            |recipe| recipe.sizes[0] += 1,
            |recipe| recipe.sizes[0] = u32::MAX,
            |recipe| _ = recipe.ids.pop(),
            |recipe| recipe.whole.clear(),
            |recipe| recipe.cut = Chunking::Blocks(SMALLEST),
        ];
        for (number, lie) in lies.into_iter().enumerate() {
            let mut bad = good.clone();
            lie(&mut bad);
            assert!(Plan::of(&bad, &good, false, 1 << 20).is_err(), "{number}");
            assert!(Plan::of(&good, &bad, false, 1 << 20).is_err(), "{number}");
        }
    }

    /// Sizes of pieces by the definition, byte by byte: remembered pieces and other builds have to agree with them.
    fn sizes(bytes: &[u8], average: u32) -> Vec<u32> {
        let bits = average.trailing_zeros();
        let (mut sizes, mut length, mut gear) = (Vec::new(), 0, 0_u64);
        for byte in bytes {
            length += 1;
            if length <= average / 4 {
                continue;
            }
            gear = (gear << 1).wrapping_add(GEAR[usize::from(*byte)]);
            let zeros = if length < average { bits + 2 } else { bits - 2 };
            if gear.leading_zeros() >= zeros || length == average * 4 {
                sizes.push(length);
                (length, gear) = (0, 0);
            }
        }
        sizes.extend(Some(length).filter(|length| *length > 0));
        sizes
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn cuts_are_where_the_definition_has_them(
            seed: u64,
            size in 0usize..600_000,
            block in prop_oneof![1usize..300, 1usize..200_000],
            zeros in 0usize..300_000,
        ) {
            let mut bytes = noise(seed, size);
            let flat = zeros.min(size);
            bytes[size - flat..].fill(0);
            prop_assert_eq!(recipe(&bytes, Chunking::Content(SMALLEST), block).sizes, sizes(&bytes, SMALLEST));
        }
        #[test]
        fn any_edits_are_rebuilt_exactly(
            size in 0usize..400_000,
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0usize..60_000, 0usize..60_000), 0..5),
            block in 1usize..100_000,
            in_place: bool,
            smallest: bool,
        ) {
            let old = noise(4, size);
            let mut new = old.clone();
            for (number, (at, remove, insert)) in edits.into_iter().enumerate() {
                let at = at.index(new.len() + 1);
                let end = (at + remove).min(new.len());
                new.splice(at..end, noise(5 + number as u64, insert));
            }
            let cut = Chunking::of(old.len() as u64, new.len() as u64, if smallest { SMALLEST_BLOCK } else { SMALLEST });
            let (before, after) = (recipe(&old, cut, 1 << 16), recipe(&new, cut, block));
            let plan = Plan::of(&before, &after, in_place, 50_000).unwrap();
            prop_assert_eq!(built(&plan, &old, &new), new.clone());
            prop_assert!(!in_place || plan.runs.iter().all(|run| run.from == run.offset));
            // Runs from the old file need no comparison.
            let mut cutter = Cutter::knowing(cut, before.known(&plan.runs)).unwrap();
            new.chunks(block).for_each(|block| cutter.update(block));
            prop_assert_eq!(cutter.finish(None, after.whole.clone()), after);
        }
    }
}
