//! The ordered join of two listings: pure, incremental, and the only place that may declare a key missing from a side.
//!
//! The engine feeds both listings in as they arrive and takes pairs out. A key is [`Pair::SrcOnly`] or
//! [`Pair::DstOnly`] only when the other listing provably passed it by; where it broke off, stopped or lost a
//! range, the answer is [`Pair::SrcUnknown`] or [`Pair::DstUnknown`], and nothing is ever deleted on that.

use crate::{
    Entry, Key,
    listing::{Listed, MissedRange, Side},
};
use std::collections::VecDeque;

/// Both sides of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pair {
    /// It is on both sides: source, destination.
    Both(Entry, Entry),
    /// Only the source has it: proved.
    SrcOnly(Entry),
    /// Only the destination has it: proved.
    DstOnly(Entry),
    /// The source has it; the destination was not seen there. It must be asked for before it is copied.
    SrcUnknown(Entry),
    /// The destination has it; the source was not seen there. It can never be deleted.
    DstUnknown(Entry),
}

impl Pair {
    /// The key of both.
    pub fn key(&self) -> &crate::Key {
        match self {
            Pair::Both(entry, _)
            | Pair::SrcOnly(entry)
            | Pair::DstOnly(entry)
            | Pair::SrcUnknown(entry)
            | Pair::DstUnknown(entry) => &entry.key,
        }
    }
}

/// A listing gave keys out of order, so the join can't be trusted from here on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the listing is out of order: {now} came after {before}")]
pub struct OutOfOrder {
    /// Which side.
    pub side: Side,
    /// The key before.
    pub before: Key,
    /// The key that should have come earlier.
    pub now: Key,
}

/// The state of a join under way. Holds what one side is ahead of the other, never a whole listing.
#[derive(Debug, Default)]
pub struct Join {
    src: Seen,
    dst: Seen,
}

#[derive(Debug, Default)]
struct Seen {
    waiting: VecDeque<Entry>,
    lost: Vec<MissedRange>,
    /// Entries that vanished during the listing: each may exist under another name, which the listing has passed by.
    vanished: Vec<MissedRange>,
    last: Option<Key>,
    ended: bool,
    stopped: bool,
}

impl Seen {
    fn starved(&self) -> bool {
        self.waiting.is_empty() && !self.ended && !self.stopped
    }

    /// Takes a batch in; a key that comes too late, with the one before it, when the batch is out of order. Entries are large
    /// and many, so they stay where they are as long as nothing is wrong with them.
    fn take(&mut self, mut entries: Vec<Entry>) -> Result<(), (Key, Key)> {
        if let (Some(last), Some(first)) = (&self.last, entries.first())
            && first.key < *last
        {
            return Err((last.clone(), first.key.clone()));
        }
        if let Some(pair) = entries.windows(2).find(|pair| pair[1].key < pair[0].key) {
            return Err((pair[0].key.clone(), pair[1].key.clone()));
        }
        if let Some(last) = &self.last {
            let doubled = entries.iter().take_while(|entry| entry.key == *last).count();
            entries.drain(..doubled);
        }
        entries.dedup_by(|now, before| now.key == before.key);
        if let Some(last) = entries.last() {
            self.last = Some(last.key.clone());
        }
        match self.waiting.is_empty() {
            true => self.waiting = entries.into(),
            false => self.waiting.extend(entries),
        }
        Ok(())
    }

    /// True when this side would have listed `key` if it existed. Only asked when this side's next entry is past `key` or
    /// there is no more.
    fn passed(&self, key: &Key) -> bool {
        let unknown = || self.lost.iter().chain(&self.vanished).any(|lost| lost.holds(key));
        (self.ended || !self.waiting.is_empty()) && !unknown()
    }
}

impl Join {
    /// A join of two listings of which nothing is known yet.
    pub fn new() -> Self {
        Self::default()
    }

    fn side(&mut self, side: Side) -> &mut Seen {
        match side {
            Side::Src => &mut self.src,
            Side::Dst => &mut self.dst,
        }
    }

    /// Takes in the next step of one side's listing. A key that repeats the one before is dropped.
    pub fn push(&mut self, side: Side, listed: Listed) -> Result<(), OutOfOrder> {
        let seen = self.side(side);
        match listed {
            Listed::Batch(entries) => {
                return seen.take(entries).map_err(|(before, now)| OutOfOrder { side, before, now });
            }
            Listed::Failed { lost, .. } => seen.lost.push(lost),
            Listed::Vanished(key) => seen.vanished.push(MissedRange::only(&key)),
            Listed::End => seen.ended = true,
        }
        Ok(())
    }

    /// Ends one side's listing. Without a [`Listed::End`] before, everything after its last key
    /// stays unknown.
    pub fn stop(&mut self, side: Side) {
        self.side(side).stopped = true;
    }

    /// The side whose next step is needed before another pair can come out.
    pub fn starved(&self) -> Option<Side> {
        if self.src.starved() {
            Some(Side::Src)
        } else if self.dst.starved() {
            Some(Side::Dst)
        } else {
            None
        }
    }

    /// True when every range of the source was seen.
    pub fn src_complete(&self) -> bool {
        self.src.ended && self.src.lost.is_empty()
    }

    /// Drops pairs from the front for as long as both sides have the key and `same` agrees: most of what an unchanged tree
    /// holds, without moving the entries.
    pub fn drop_while(&mut self, mut same: impl FnMut(&Entry, &Entry) -> bool) {
        while let (Some(a), Some(b)) = (self.src.waiting.front(), self.dst.waiting.front())
            && a.key == b.key
            && same(a, b)
        {
            self.src.waiting.pop_front();
            self.dst.waiting.pop_front();
        }
    }

    /// The next pair, in key order; `None` while a side is starved, and at the end.
    pub fn next_pair(&mut self) -> Option<Pair> {
        if self.starved().is_some() {
            return None;
        }
        let order = match (self.src.waiting.front(), self.dst.waiting.front()) {
            (None, None) => return None,
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(a), Some(b)) => a.key.cmp(&b.key),
        };
        match order {
            std::cmp::Ordering::Equal => Some(Pair::Both(self.src.waiting.pop_front()?, self.dst.waiting.pop_front()?)),
            std::cmp::Ordering::Less => {
                let entry = self.src.waiting.pop_front()?;
                Some(if self.dst.passed(&entry.key) { Pair::SrcOnly(entry) } else { Pair::SrcUnknown(entry) })
            }
            std::cmp::Ordering::Greater => {
                let entry = self.dst.waiting.pop_front()?;
                Some(if self.src.passed(&entry.key) { Pair::DstOnly(entry) } else { Pair::DstUnknown(entry) })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Error, ErrorKind};

    fn e(k: &str) -> Entry {
        Entry::file(Key::new(k), 1)
    }

    struct Script {
        shown: Vec<&'static str>,
        lost: Vec<MissedRange>,
        ended: bool,
    }

    /// Feeds the two scripts in batches of `batch` and collects every pair.
    fn run(src: &Script, dst: &Script, batch: usize) -> Vec<Pair> {
        let steps = |s: &Script| {
            let mut steps: VecDeque<Listed> = VecDeque::new();
            let failed =
                |l: &MissedRange| Listed::Failed { lost: l.clone(), error: Error::new(ErrorKind::Io, "list", "x") };
            // A lost range is always reported before the first entry after it.
            let mut lost: VecDeque<&MissedRange> = s.lost.iter().collect();
            for chunk in s.shown.chunks(batch) {
                while lost.front().is_some_and(|l| l.from.as_bytes() <= chunk[chunk.len() - 1].as_bytes()) {
                    steps.extend(lost.pop_front().map(failed));
                }
                steps.push_back(Listed::Batch(chunk.iter().map(|k| e(k)).collect()));
            }
            steps.extend(lost.into_iter().map(failed));
            if s.ended {
                steps.push_back(Listed::End);
            }
            steps
        };
        let (mut a, mut b, mut join, mut pairs) = (steps(src), steps(dst), Join::new(), vec![]);
        loop {
            while let Some(pair) = join.next_pair() {
                pairs.push(pair);
            }
            let Some(side) = join.starved() else { return pairs };
            let steps = if side == Side::Src { &mut a } else { &mut b };
            match steps.pop_front() {
                Some(step) => join.push(side, step).unwrap(),
                None => join.stop(side),
            }
        }
    }

    fn script(shown: &[&'static str], lost: &[(&str, &str)], ended: bool) -> Script {
        let lost = lost.iter().map(|(a, b)| MissedRange { from: Key::new(a), to: Some(Key::new(b)) }).collect();
        Script { shown: shown.to_vec(), lost, ended }
    }

    #[test]
    fn what_went_while_it_was_listed_may_be_there_under_another_name() {
        let mut join = Join::new();
        for key in ["b", "d/"] {
            join.push(Side::Src, Listed::Vanished(Key::new(key))).unwrap();
        }
        for (side, keys) in [(Side::Src, &["a", "e"][..]), (Side::Dst, &["a", "b", "b2", "c", "d/x"])] {
            join.push(side, Listed::Batch(keys.iter().map(|key| e(key)).collect())).unwrap();
            join.push(side, Listed::End).unwrap();
        }
        let pairs: Vec<Pair> = std::iter::from_fn(|| join.next_pair()).collect();
        let expected = [
            Pair::Both(e("a"), e("a")),
            Pair::DstUnknown(e("b")),
            Pair::DstOnly(e("b2")),
            Pair::DstOnly(e("c")),
            Pair::DstUnknown(e("d/x")),
            Pair::SrcOnly(e("e")),
        ];
        assert_eq!(pairs, expected);
        assert!(join.src_complete(), "nothing is wrong with the source");
    }

    #[test]
    fn a_listing_that_just_stops_deletes_nothing_after_its_last_key() {
        let pairs = run(&script(&["a", "c"], &[], false), &script(&["a", "b", "c", "d"], &[], true), 2);
        let want =
            [Pair::Both(e("a"), e("a")), Pair::DstOnly(e("b")), Pair::Both(e("c"), e("c")), Pair::DstUnknown(e("d"))];
        assert_eq!(pairs, want);
    }

    #[test]
    fn dropping_stops_at_the_first_pair_that_is_not_the_same() {
        let mut join = Join::new();
        let sized = |k: &str, size| Entry::file(Key::new(k), size);
        join.push(Side::Src, Listed::Batch(vec![e("a"), e("b"), sized("c", 2), e("d")])).unwrap();
        join.push(Side::Dst, Listed::Batch(vec![e("a"), e("b"), e("c"), e("d")])).unwrap();
        join.drop_while(|a, b| a.size == b.size);
        assert_eq!(join.next_pair(), Some(Pair::Both(sized("c", 2), e("c"))));
        join.drop_while(|_, _| true);
        assert_eq!(join.next_pair(), None);
        // Keys of one side only are never dropped.
        join.push(Side::Src, Listed::Batch(vec![e("e")])).unwrap();
        join.push(Side::Dst, Listed::Batch(vec![e("f")])).unwrap();
        join.drop_while(|_, _| true);
        assert_eq!(join.next_pair(), Some(Pair::SrcOnly(e("e"))));
    }

    #[test]
    fn doubled_keys_count_once_and_keys_out_of_order_end_the_join() {
        let mut join = Join::new();
        join.push(Side::Src, Listed::Batch(vec![e("a"), e("a"), e("b")])).unwrap();
        join.push(Side::Src, Listed::Batch(vec![e("b"), e("b"), e("c")])).unwrap();
        join.push(Side::Src, Listed::End).unwrap();
        join.push(Side::Dst, Listed::End).unwrap();
        let keys: Vec<Pair> = std::iter::from_fn(|| join.next_pair()).collect();
        assert_eq!(keys, ["a", "b", "c"].map(|k| Pair::SrcOnly(e(k))));
        for batches in [&[&["b", "a"][..]][..], &[&["b"], &["a"]]] {
            let mut join = Join::new();
            let broken = batches
                .iter()
                .find_map(|batch| join.push(Side::Dst, Listed::Batch(batch.iter().map(|k| e(k)).collect())).err());
            let want = OutOfOrder { side: Side::Dst, before: Key::new("b"), now: Key::new("a") };
            assert_eq!(broken, Some(want));
        }
    }

    #[test]
    fn a_lost_range_protects_only_itself() {
        let pairs = run(&script(&["a", "z"], &[("m/", "m0")], true), &script(&["a", "b", "m/1", "n"], &[], true), 9);
        let want = [
            Pair::Both(e("a"), e("a")),
            Pair::DstOnly(e("b")),
            Pair::DstUnknown(e("m/1")),
            Pair::DstOnly(e("n")),
            Pair::SrcOnly(e("z")),
        ];
        assert_eq!(pairs, want);
    }

    #[test]
    fn keys_out_of_order_are_refused_and_repeats_dropped() {
        let mut join = Join::new();
        join.push(Side::Src, Listed::Batch(vec![e("b"), e("b")])).unwrap();
        let broken = join.push(Side::Src, Listed::Batch(vec![e("a")])).unwrap_err();
        assert_eq!(broken.to_string(), "the listing is out of order: a came after b");
        join.push(Side::Src, Listed::End).unwrap();
        join.push(Side::Dst, Listed::End).unwrap();
        assert_eq!(join.next_pair(), Some(Pair::SrcOnly(e("b"))));
        assert_eq!(join.next_pair(), None);
    }

    /// Whatever the source holds, wherever its listing is cut and whatever range it loses: no key that it holds is
    /// ever called extra; and as a destination, no key that it holds is ever called missing. Every case of 5 keys.
    #[test]
    fn never_calls_a_held_key_absent() {
        const KEYS: [&str; 5] = ["a", "a-b", "a/b", "b", "c"]; // '-' sorts before '/'
        const BOUNDS: [&str; 6] = ["a", "a-b", "a/b", "b", "c", "d"];
        let pick = |bits: u32| (0..5).filter(|i| bits >> i & 1 == 1).map(|i| KEYS[i]).collect::<Vec<_>>();
        let mut cases = 0u64;
        for truth in 0u32..32 {
            let held = pick(truth);
            let holds = |x: &Entry| held.iter().any(|h| h.as_bytes() == x.key.as_bytes());
            for other in 0u32..32 {
                for cut in 0..=5usize {
                    for (lo, from) in BOUNDS.iter().enumerate() {
                        for (hi, to) in BOUNDS.iter().enumerate().skip(lo) {
                            let lost: Vec<(&str, &str)> = (lo < hi).then_some((*from, *to)).into_iter().collect();
                            let ended = cut == 5;
                            let mut partial = script(&[], &lost, ended);
                            partial.shown = held
                                .iter()
                                .take(cut)
                                .filter(|k| !partial.lost.iter().any(|l| l.holds(&Key::new(k))))
                                .copied()
                                .collect();
                            let whole = script(&pick(other), &[], true);
                            for batch in [1, 9] {
                                let forward = run(&partial, &whole, batch);
                                assert!(!forward.iter().any(|p| matches!(p, Pair::DstOnly(x) if holds(x))));
                                let not_src = forward.iter().filter(|p| !matches!(p, Pair::SrcOnly(_)));
                                assert_eq!(not_src.count(), whole.shown.len());
                                let mirror = run(&whole, &partial, batch);
                                assert!(!mirror.iter().any(|p| matches!(p, Pair::SrcOnly(x) if holds(x))));
                            }
                            cases += 1;
                        }
                    }
                }
            }
        }
        assert_eq!(cases, 32 * 32 * 6 * 21);
    }
}
