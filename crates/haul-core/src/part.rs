//! A part of a job: a range of keys, or some directories without their contents. Both sides are listed within it, so that
//! a key missing from a side is proved missing, and nothing outside is touched.

use crate::{Key, Listed};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Which keys of both sides a job is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// All of them.
    #[default]
    All,
    /// Those of a range.
    Range(KeyRange),
    /// These directories alone, in order: their times and attributes, and whether they exist.
    Dirs(Arc<[Key]>),
}

impl Part {
    /// True unless it is a part only.
    pub fn is_all(&self) -> bool {
        *self == Part::All
    }

    /// The range, if it is one.
    pub fn range(&self) -> Option<&KeyRange> {
        match self {
            Part::Range(range) => Some(range),
            Part::All | Part::Dirs(_) => None,
        }
    }
}

/// A range of keys: `after` < key ≤ `through`. Ranges that touch share a key, so they hold every key once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct KeyRange {
    /// Only keys after this one; `None` for "from the first".
    pub after: Option<Key>,
    /// Only keys up to and with this one; `None` for "to the last".
    pub through: Option<Key>,
}

impl KeyRange {
    /// True when `key` is in the range.
    pub fn holds(&self, key: &Key) -> bool {
        self.after.as_ref().is_none_or(|after| key > after) && !self.is_before(key)
    }

    /// True when the range ends before `key`.
    pub fn is_before(&self, key: &Key) -> bool {
        self.through.as_ref().is_some_and(|through| key > through)
    }

    /// True when the directory `dir` (its key), or an entry in it, may be in the range.
    pub fn meets(&self, dir: &[u8]) -> bool {
        let over = self
            .after
            .as_ref()
            .is_some_and(|after| crate::key::after_prefix(dir).is_some_and(|next| next.as_slice() <= after.as_bytes()));
        !over && self.through.as_ref().is_none_or(|through| dir <= through.as_bytes())
    }

    /// The pieces between `cuts`, which are in order: each piece but the last ends with its cut. Cuts outside of the range are
    /// ignored.
    pub fn pieces(&self, cuts: &[Key]) -> Vec<KeyRange> {
        let mut pieces = Vec::new();
        let mut after = self.after.clone();
        for cut in cuts {
            let inside = after.as_ref().is_none_or(|after| cut > after) && self.through.as_ref() > Some(cut)
                || self.through.is_none() && after.as_ref().is_none_or(|after| cut > after);
            if inside {
                pieces.push(KeyRange { after: after.replace(cut.clone()), through: Some(cut.clone()) });
            }
        }
        pieces.push(KeyRange { after, through: self.through.clone() });
        pieces
    }

    /// The part of a listing step that belongs to the range, and whether no more can follow. Since entries come in order, an entry
    /// beyond the range proves that all of the range was seen. An unreadable range proves nothing: it is reported as it comes.
    pub fn clip(&self, step: Listed) -> (Listed, bool) {
        match step {
            Listed::Batch(mut entries) => {
                let over = entries.last().is_some_and(|last| self.is_before(&last.key));
                entries.retain(|entry| self.holds(&entry.key));
                (Listed::Batch(entries), over)
            }
            Listed::Failed { lost, error } => {
                let past = self.after.as_ref().zip(lost.to.as_ref()).is_some_and(|(after, to)| to <= after);
                match past || self.is_before(&lost.from) {
                    true => (Listed::Batch(Vec::new()), false),
                    false => (Listed::Failed { lost, error }, false),
                }
            }
            // Looking twice outside of the range costs little.
            Listed::Vanished(key) => (Listed::Vanished(key), false),
            Listed::End => (Listed::End, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Entry, Error, ErrorKind, MissedRange};

    fn range(after: &str, through: &str) -> KeyRange {
        let key = |text: &str| (!text.is_empty()).then(|| Key::new(text));
        KeyRange { after: key(after), through: key(through) }
    }

    #[test]
    fn pieces_hold_every_key_once() {
        let keys: Vec<Key> = ["a", "a/", "a/m", "b", "k", "z"].map(Key::new).into();
        for whole in [range("", ""), range("a/", "k"), range("a", ""), range("", "b")] {
            for cuts in [vec![], vec!["a/"], vec!["a", "a/b", "c"], vec!["A", "a/m", "z", "zz"]] {
                let cuts: Vec<Key> = cuts.into_iter().map(Key::new).collect();
                let pieces = whole.pieces(&cuts);
                for key in &keys {
                    let holders = pieces.iter().filter(|piece| piece.holds(key)).count();
                    assert_eq!(holders, usize::from(whole.holds(key)), "{key} in {whole:?} cut at {cuts:?}");
                }
            }
        }
    }

    #[test]
    fn directories_are_opened_that_may_hold_keys_of_the_range() {
        let range = range("a/k", "c/f");
        for (dir, meets) in [("a/", true), ("a/b/", false), ("a/k/", true), ("b/", true), ("c/", true), ("c/e/", true)]
        {
            assert_eq!(range.meets(dir.as_bytes()), meets, "{dir}");
        }
        assert!(!range.meets(b"c/g/") && !range.meets(b"d/") && !range.meets(b"a-/"));
    }

    #[test]
    fn a_listing_is_clipped_and_over_once_a_key_is_beyond() {
        let range = range("b", "d");
        let batch = |keys: &[&str]| Listed::Batch(keys.iter().map(|key| Entry::file(Key::new(key), 1)).collect());
        let kept = |step| match range.clip(step) {
            (Listed::Batch(entries), over) => (entries.iter().map(|e| e.key.to_string()).collect::<String>(), over),
            (step, _) => panic!("{step:?}"),
        };
        assert_eq!(kept(batch(&["a", "b", "c"])), ("c".into(), false));
        assert_eq!(kept(batch(&["d"])), ("d".into(), false), "what follows may be a/ symlink of that name");
        assert_eq!(kept(batch(&["d", "e"])), ("d".into(), true));
        let lost = |from: &str, to: Option<&str>| Listed::Failed {
            lost: MissedRange { from: Key::new(from), to: to.map(Key::new) },
            error: Error::new(ErrorKind::Io, "list", "broken"),
        };
        assert_eq!(kept(lost("a", Some("b"))), (String::new(), false), "before the range");
        assert_eq!(kept(lost("e", None)), (String::new(), false), "behind it, and more of the range may come");
        assert!(matches!(range.clip(lost("a", Some("ba"))), (Listed::Failed { .. }, false)));
        assert!(matches!(range.clip(lost("d", None)), (Listed::Failed { .. }, false)));
    }
}
