//! A source's listing beside an index of the destination: splits its keys into known ones and those to ask the store for.

use super::{doubts::Doubts, index_file::Snapshot, record::Fact, remote::RemoteIndex, section::Merge};
use crate::presence::HasKey;
use haul_core::{Entry, Key, MissedRange};
use std::{collections::VecDeque, io, sync::Arc};

/// Candidates that are given at once, about.
const BATCH: usize = 2_000;

/// A key that a job is about.
#[derive(Debug)]
pub enum Candidate {
    /// The source has it; whether the destination has isn't known.
    Ask(Entry),
    /// The source has it, and the index believably has another.
    Claimed(Entry, Box<Entry>),
    /// The source has it, and the index believably has the same.
    Same(Entry, Box<Entry>),
    /// It was taken for the same, and isn't any more.
    Again(Entry, Box<Entry>),
    /// It is provably missing from the source, and the index has it, believably or not.
    Extra(Box<Entry>, bool),
}

impl HasKey for Candidate {
    fn key(&self) -> &Key {
        match self {
            Candidate::Extra(entry, _) => &entry.key,
            Candidate::Ask(src) | Candidate::Claimed(src, _) | Candidate::Same(src, _) | Candidate::Again(src, _) => {
                &src.key
            }
        }
    }

    fn is_asked(&self) -> bool {
        match self {
            Candidate::Ask(src) => src.is_asked(),
            Candidate::Same(..) => false,
            Candidate::Claimed(..) | Candidate::Again(..) | Candidate::Extra(..) => true,
        }
    }
}

/// Says of a pair whether its facts are all that must be known of it.
pub type SettlesPair = Arc<dyn Fn(&Entry, &Entry) -> bool + Send + Sync>;
/// Says whether the job is about a key that is missing from its source.
pub type IsAbout = Arc<dyn Fn(&Entry) -> bool + Send + Sync>;

/// How a job uses an index.
#[derive(Clone)]
pub struct IndexUse {
    /// By this one.
    pub index: Arc<RemoteIndex>,
    /// As it was.
    pub snapshot: Arc<Snapshot>,
    /// Which pairs it settles.
    pub settles: SettlesPair,
    /// Which of the keys that are missing from the source are wanted; `None` for none.
    pub extras: Option<IsAbout>,
}

/// The two beside each other.
pub struct Matcher {
    how: IndexUse,
    merge: Merge,
    doubts: Doubts,
    /// Only what was believed before, and isn't now.
    again: Option<Doubts>,
    /// Ranges that the source's listing lost.
    pub lost: Vec<MissedRange>,
    /// Entries of the source's listing that are to be compared.
    pub queue: VecDeque<Entry>,
    /// The source listed all.
    pub ended: bool,
    /// The index can't be read.
    broken: bool,
}

impl Matcher {
    /// From the beginning. With doubts given, only keys that were trusted under them and aren't now.
    ///
    /// Errors: the index can't be read.
    pub fn new(how: IndexUse, again: Option<Doubts>) -> io::Result<Matcher> {
        let (merge, doubts) = (how.snapshot.read()?, how.index.doubts());
        let (lost, queue) = Default::default();
        Ok(Matcher { how, merge, doubts, again, lost, queue, ended: false, broken: false })
    }

    /// Takes candidates off the queue, in key order, a bounded number; blocks on a disk. None when more of the source's listing is
    /// needed, or at the end.
    pub fn take(&mut self) -> Vec<Candidate> {
        let mut out = Vec::new();
        while out.len() < BATCH {
            let Some(src) = self.queue.pop_front() else { break };
            if src.is_dir() {
                if self.again.is_none() {
                    out.push(Candidate::Ask(src));
                }
                continue;
            }
            match self.fact(Some(&src.key), &mut out) {
                Ok(Some(fact)) => out.extend(self.candidate(src, fact)),
                Ok(None) if self.again.is_some() => {}
                Ok(None) => out.push(Candidate::Ask(src)),
                // Enough came between; this one is next.
                Err(EnoughCandidates) => {
                    self.queue.push_front(src);
                    break;
                }
            }
        }
        if self.ended && self.queue.is_empty() && out.len() < BATCH {
            let _ = self.fact(None, &mut out);
        }
        out
    }

    fn candidate(&self, src: Entry, fact: Fact) -> Option<Candidate> {
        let young = self.how.index.is_young(&fact);
        let (key, index) = (src.key.as_bytes(), Box::new(fact.entry));
        if let Some(before) = &self.again {
            let was = young && !before.holds(key) && self.doubts.holds(key) && (self.how.settles)(&src, &index);
            return was.then_some(Candidate::Again(src, index));
        }
        Some(if !young || self.doubts.holds(key) {
            Candidate::Ask(src)
        } else if (self.how.settles)(&src, &index) {
            Candidate::Same(src, index)
        } else {
            Candidate::Claimed(src, index)
        })
    }

    /// The index's fact about a key, after everything before it that is missing from the source; with `None`, all the rest.
    fn fact(&mut self, key: Option<&Key>, out: &mut Vec<Candidate>) -> Result<Option<Fact>, EnoughCandidates> {
        if self.broken {
            return Ok(None);
        }
        let found = self.read(key, out);
        found.unwrap_or_else(|error| {
            self.broken = true;
            self.how.index.give_up(&error);
            Ok(None)
        })
    }

    fn read(
        &mut self,
        key: Option<&Key>,
        out: &mut Vec<Candidate>,
    ) -> io::Result<Result<Option<Fact>, EnoughCandidates>> {
        match (&self.how.extras, key) {
            (Some(is_about), _) if self.again.is_none() => {
                let before = |here: &[u8]| key.is_none_or(|key| here < key.stored());
                while let Some((here, body)) = self.merge.here().filter(|(here, _)| before(here)) {
                    if out.len() >= BATCH {
                        return Ok(Err(EnoughCandidates));
                    }
                    if let Some(fact) = self.how.snapshot.fact(here, body)
                        && !self.lost.iter().any(|lost| lost.holds(&fact.entry.key))
                        && is_about(&fact.entry)
                    {
                        let believed = self.how.index.is_young(&fact) && !self.doubts.holds(here);
                        out.push(Candidate::Extra(Box::new(fact.entry), believed));
                    }
                    self.merge.next()?;
                }
            }
            (_, Some(key)) => self.merge.seek(key.stored())?,
            (_, None) => return Ok(Ok(None)),
        }
        let Some(key) = key else { return Ok(Ok(None)) };
        let here = self.merge.here().filter(|(here, _)| *here == key.stored());
        let fact = here.and_then(|(here, body)| self.how.snapshot.fact(here, body));
        if here.is_some() {
            self.merge.next()?;
        }
        Ok(Ok(fact))
    }
}

/// There are enough candidates for now.
struct EnoughCandidates;
