//! The decision about one key: pure, so that a dry run, `check` and the real run can't disagree.

use crate::{
    Entry, Key,
    attributes::Differs,
    compare::{Difference, FileType, Reason, Verdict},
    job::Job,
};
use serde::{Deserialize, Serialize};

/// How the bytes travel: the first route that both ends allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// Inside one copy domain: reflink, in-kernel copy, or the provider's own copy.
    Server,
    /// In parts, several at once, out of order.
    Parts {
        /// Bytes of each part but the last.
        size: u64,
    },
    /// One stream from start to end.
    Stream,
}

/// Condition on the destination when a write is published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Replace {
    /// Nothing.
    Absent,
    /// Exactly this version.
    Exactly(crate::Version),
    /// Anything.
    Anything,
}

/// Action for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Transfer the source's bytes.
    Copy,
    /// Take the file of an alternate destination (`--link-dest`, or `--copy-dest` where only exact files count).
    Reuse,
    /// Set the destination's modification time and attributes to the source's; the bytes are equal.
    Touch,
    /// Hard-link it to a file that is at the destination already.
    Link,
    /// Rename the destination's file that has another name.
    Rename,
    /// Create a directory.
    MakeDir,
    /// Delete it at the destination.
    Delete,
    /// Leave it.
    Keep,
    /// It exists and differs, and `--immutable` forbids changing it: an error.
    Refuse,
}

/// One action, the facts it rests on, and why.
///
/// To keep a directory of both sides means to set the source's time and attributes on it in the end; one that only the
/// destination has keeps its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// The action.
    pub action: Action,
    /// The source's entry, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub src: Option<Entry>,
    /// The destination's entry, if it has one; of a renamed file, the one under its old name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dst: Option<Entry>,
    /// Why.
    pub why: Reason,
    /// Its key at the destination, where that isn't the source's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Key>,
    /// Listed facts in which the two sides differ.
    #[serde(default)]
    pub differs: Difference,
    /// Kept by its listed facts, but unlisted attributes must still be compared.
    #[serde(default, skip_serializing_if = "crate::wire::is_false")]
    pub look: bool,
    /// The file of an alternate destination that may be used instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elsewhere: Option<Box<AlternateFile>>,
    /// The destination's key that a further name of a file is hard-linked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_to: Option<Key>,
}

impl Step {
    /// A step with these facts only.
    pub fn new(action: Action, src: Option<Entry>, dst: Option<Entry>, why: Reason) -> Step {
        let differs = Difference::default();
        Step { action, src, dst, why, to: None, differs, look: false, elsewhere: None, link_to: None }
    }

    /// Its key at the destination.
    pub fn key(&self) -> Option<&Key> {
        let listed = self.src.as_ref().or(self.dst.as_ref()).map(|entry| &entry.key);
        self.to.as_ref().or(listed)
    }

    /// True for a step about a directory.
    pub fn is_dir(&self) -> bool {
        self.src.as_ref().or(self.dst.as_ref()).is_some_and(Entry::is_dir)
    }
}

/// A file of an alternate destination, and its possible uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AlternateFile {
    /// Number of the alternate destination: those to compare with come first, then those to take from.
    pub place: usize,
    /// Its entry.
    pub entry: Entry,
    /// Facts in which it differs from the source.
    pub differs: Difference,
    /// How the destination may use it.
    pub use_as: UseAs,
}

/// How the destination may use the file of an alternate destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UseAs {
    /// The destination needs no file of its own.
    Instead,
    /// It can be taken from there, as a hard link or as a copy.
    Taken {
        /// A hard link.
        link: bool,
        /// A copy, where a hard link isn't possible.
        copy: bool,
    },
}

/// Decides about a file that only the source has.
pub fn missing(src: Entry, job: &Job) -> Step {
    let (action, why) = match (src.is_dir(), job.existing.only) {
        (true, false) => (Action::MakeDir, Reason::Missing),
        (_, true) => (Action::Keep, Reason::NotExisting),
        (false, false) => (Action::Copy, Reason::Missing),
    };
    Step::new(action, Some(src), None, why)
}

/// Decides about a file that both sides have, by the verdict on it. `None` for [`Verdict::Ask`]: ask first.
pub fn both(src: Entry, dst: Entry, verdict: Verdict, job: &Job) -> Option<Step> {
    let (action, why) = match verdict {
        Verdict::Ask(_) => return None,
        Verdict::Same(why) => (Action::Keep, why),
        Verdict::Touch if job.existing.immutable => (Action::Refuse, Reason::Mtime),
        Verdict::Touch => (Action::Touch, Reason::Mtime),
        Verdict::Attributes(differs) if job.existing.immutable => (Action::Refuse, Reason::Attributes(differs)),
        Verdict::Attributes(differs) => (Action::Touch, Reason::Attributes(differs)),
        Verdict::Differ(why) if job.existing.immutable => (Action::Refuse, why),
        Verdict::Differ(why) => (Action::Copy, why),
    };
    Some(Step::new(action, Some(src), Some(dst), why))
}

/// Decides about a further name of a file whose first name exists at the destination: link it, unless it is linked already
/// (`linked`) or the existing file must stay.
pub fn link(src: &Entry, dst: Option<&Entry>, linked: bool, job: &Job) -> (Action, Reason) {
    let newer = |dst: &Entry| src.mtime.zip(dst.mtime).is_some_and(|(a, b)| b > a);
    match dst {
        _ if linked => (Action::Keep, Reason::Linked),
        None if job.existing.only => (Action::Keep, Reason::NotExisting),
        Some(_) if job.existing.ignore => (Action::Keep, Reason::Existing),
        Some(dst) if job.existing.update && newer(dst) => (Action::Keep, Reason::Newer),
        Some(_) if job.existing.immutable => (Action::Refuse, Reason::Linked),
        _ => (Action::Link, Reason::Linked),
    }
}

/// Decides about a file that is kept by its listed facts because of `same` ([`Step::look`]), once its differing attributes
/// are known.
pub fn looked(same: Reason, found: Differs) -> (Action, Reason) {
    match found.any() {
        true => (Action::Touch, Reason::Attributes(found)),
        false => (Action::Keep, same),
    }
}

/// Decides about a file that only the destination has. Call it only for keys that are proved to be missing from the source.
pub fn extra(dst: Entry, delete: bool) -> Step {
    let action = if delete { Action::Delete } else { Action::Keep };
    let differs = Difference { what: FileType::of(&dst), ..Difference::default() };
    Step { differs, ..Step::new(action, None, Some(dst), Reason::Extra) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, compare::Need};

    #[test]
    fn each_verdict_has_one_action() {
        let f = || Entry::file(Key::new("k"), 1);
        let p = Job::default();
        let action = |v, p: &Job| both(f(), f(), v, p).map(|s| s.action);
        assert_eq!(action(Verdict::Differ(Reason::Size), &p), Some(Action::Copy));
        assert_eq!(action(Verdict::Same(Reason::Mtime), &p), Some(Action::Keep));
        assert_eq!(action(Verdict::Touch, &p), Some(Action::Touch));
        assert_eq!(action(Verdict::Ask(Need::Hash), &p), None);
        let p = p.with(|job| job.existing.immutable = true);
        assert_eq!(action(Verdict::Differ(Reason::Size), &p), Some(Action::Refuse));
        assert_eq!(action(Verdict::Touch, &p), Some(Action::Refuse));
        assert_eq!(missing(f(), &p).action, Action::Copy);
        let p = p.with(|job| job.existing.only = true);
        assert_eq!(missing(f(), &p).action, Action::Keep);
        assert_eq!(missing(Entry::dir(Key::new("d")), &Job::default()).action, Action::MakeDir);
        let same = Verdict::Attributes(crate::attributes::Differs { mode: true, ..Default::default() });
        assert_eq!(action(same, &p), Some(Action::Refuse));
        assert_eq!(action(same, &Job::default()), Some(Action::Touch));
        assert_eq!(extra(f(), true).action, Action::Delete);
        assert_eq!(extra(f(), false).action, Action::Keep);
    }

    #[test]
    fn what_was_looked_at_is_kept_or_gets_attributes() {
        assert_eq!(looked(Reason::Mtime, Differs::default()), (Action::Keep, Reason::Mtime));
        let found = Differs { xattrs: true, ..Differs::default() };
        assert_eq!(looked(Reason::Mtime, found), (Action::Touch, Reason::Attributes(found)));
    }

    #[test]
    fn a_further_name_is_linked_unless_what_is_there_must_stay() {
        let (at, default) =
            (|secs| Entry { mtime: Some(crate::Mtime(secs)), ..Entry::file(Key::new("k"), 1) }, Job::default());
        let say = |dst: Option<&Entry>, linked, job: &Job| link(&at(5), dst, linked, job);
        assert_eq!(say(None, false, &default), (Action::Link, Reason::Linked));
        assert_eq!(say(Some(&at(5)), true, &default), (Action::Keep, Reason::Linked));
        assert_eq!(say(Some(&at(9)), false, &default), (Action::Link, Reason::Linked));
        let job = Job::default().with(|job| job.existing.update = true);
        assert_eq!(say(Some(&at(9)), false, &job), (Action::Keep, Reason::Newer));
        assert_eq!(say(Some(&at(1)), false, &job), (Action::Link, Reason::Linked));
        let job = Job::default().with(|job| job.existing.ignore = true);
        assert_eq!(say(Some(&at(5)), false, &job), (Action::Keep, Reason::Existing));
        let job = Job::default().with(|job| {
            job.existing.only = true;
            job.existing.immutable = true;
        });
        assert_eq!(say(None, false, &job), (Action::Keep, Reason::NotExisting));
        assert_eq!(say(Some(&at(5)), false, &job), (Action::Refuse, Reason::Linked));
    }

    proptest::proptest! {
        #[test]
        fn every_step_comes_back_from_its_text(step in crate::samples::step()) {
            let text = serde_json::to_string(&step).unwrap();
            proptest::prop_assert!(!text.contains('\n'), "one line: {}", text);
            proptest::prop_assert_eq!(serde_json::from_str::<Step>(&text).unwrap(), step);
        }
    }
}
