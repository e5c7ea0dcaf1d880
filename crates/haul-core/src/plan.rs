//! What to do about one key: pure, so that a dry run, `check` and the real run can't disagree.

use crate::{
    Entry,
    compare::{Reason, Verdict},
    policy::Policy,
};

/// How the bytes go: the first that both ends allow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

/// What may be at the destination when a write is published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Nothing.
    Absent,
    /// Exactly this version.
    Exactly(crate::Version),
    /// Anything.
    Anything,
}

/// What to do about one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Bring the source's bytes over.
    Copy,
    /// Take what another place at the destination's side has (`--link-dest`, and rsync's `--copy-dest`).
    Reuse,
    /// Set the destination's modification time and attributes to the source's; the bytes are equal.
    Touch,
    /// Make it another name of a file that is at the destination already.
    Link,
    /// Create a directory.
    MakeDir,
    /// Delete it at the destination.
    Delete,
    /// Leave it.
    Keep,
    /// It exists, differs, and `--immutable` forbids to change it: an error.
    Refuse,
}

/// One thing to do, what it rests on, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to do.
    pub action: Action,
    /// The source's entry, if it has one.
    pub src: Option<Entry>,
    /// The destination's entry, if it has one.
    pub dst: Option<Entry>,
    /// Why.
    pub why: Reason,
}

/// What a file that only the source has calls for.
pub fn missing(src: Entry, policy: &Policy) -> Step {
    let (action, why) = match (src.is_dir(), policy.existing_only) {
        (true, false) => (Action::MakeDir, Reason::Missing),
        (_, true) => (Action::Keep, Reason::NotExisting),
        (false, false) => (Action::Copy, Reason::Missing),
    };
    Step { action, src: Some(src), dst: None, why }
}

/// What a verdict on a file that both have calls for. [`Verdict::Ask`] has no answer here: ask first.
pub fn both(src: Entry, dst: Entry, verdict: Verdict, policy: &Policy) -> Option<Step> {
    let (action, why) = match verdict {
        Verdict::Ask(_) => return None,
        Verdict::Same(why) => (Action::Keep, why),
        Verdict::Touch if policy.immutable => (Action::Refuse, Reason::Mtime),
        Verdict::Touch => (Action::Touch, Reason::Mtime),
        Verdict::Attributes(differs) if policy.immutable => (Action::Refuse, Reason::Attributes(differs)),
        Verdict::Attributes(differs) => (Action::Touch, Reason::Attributes(differs)),
        Verdict::Differ(why) if policy.immutable => (Action::Refuse, why),
        Verdict::Differ(why) => (Action::Copy, why),
    };
    Some(Step { action, src: Some(src), dst: Some(dst), why })
}

/// What a further name of a file calls for, when the first name is at the destination: to be linked to it, unless it is
/// (`linked`) or what is there must stay.
pub fn link(src: &Entry, dst: Option<&Entry>, linked: bool, policy: &Policy) -> (Action, Reason) {
    let newer = |dst: &Entry| src.mtime.zip(dst.mtime).is_some_and(|(a, b)| b > a);
    match dst {
        _ if linked => (Action::Keep, Reason::Linked),
        None if policy.existing_only => (Action::Keep, Reason::NotExisting),
        Some(_) if policy.ignore_existing => (Action::Keep, Reason::Existing),
        Some(dst) if policy.update && newer(dst) => (Action::Keep, Reason::Newer),
        Some(_) if policy.immutable => (Action::Refuse, Reason::Linked),
        _ => (Action::Link, Reason::Linked),
    }
}

/// What a file that only the destination has calls for. Only ever called for a key whose absence at the source is
/// proved.
pub fn extra(dst: Entry, delete: bool) -> Step {
    let action = if delete { Action::Delete } else { Action::Keep };
    Step { action, src: None, dst: Some(dst), why: Reason::Extra }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Key, compare::Need};

    #[test]
    fn each_verdict_has_one_action() {
        let f = || Entry::file(Key::new("k"), 1);
        let p = Policy::default();
        let action = |v, p: &Policy| both(f(), f(), v, p).map(|s| s.action);
        assert_eq!(action(Verdict::Differ(Reason::Size), &p), Some(Action::Copy));
        assert_eq!(action(Verdict::Same(Reason::Mtime), &p), Some(Action::Keep));
        assert_eq!(action(Verdict::Touch, &p), Some(Action::Touch));
        assert_eq!(action(Verdict::Ask(Need::Hash), &p), None);
        let p = Policy { immutable: true, ..p };
        assert_eq!(action(Verdict::Differ(Reason::Size), &p), Some(Action::Refuse));
        assert_eq!(action(Verdict::Touch, &p), Some(Action::Refuse));
        assert_eq!(missing(f(), &p).action, Action::Copy);
        let p = Policy { existing_only: true, ..p };
        assert_eq!(missing(f(), &p).action, Action::Keep);
        assert_eq!(missing(Entry::dir(Key::new("d")), &Policy::default()).action, Action::MakeDir);
        let same = Verdict::Attributes(crate::attributes::Differs { mode: true, ..Default::default() });
        assert_eq!(action(same, &p), Some(Action::Refuse));
        assert_eq!(action(same, &Policy::default()), Some(Action::Touch));
        assert_eq!(extra(f(), true).action, Action::Delete);
        assert_eq!(extra(f(), false).action, Action::Keep);
    }

    #[test]
    fn a_further_name_is_linked_unless_what_is_there_must_stay() {
        let (at, default) =
            (|secs| Entry { mtime: Some(crate::Mtime(secs)), ..Entry::file(Key::new("k"), 1) }, Policy::default());
        let say = |dst: Option<&Entry>, linked, policy: &Policy| link(&at(5), dst, linked, policy);
        assert_eq!(say(None, false, &default), (Action::Link, Reason::Linked));
        assert_eq!(say(Some(&at(5)), true, &default), (Action::Keep, Reason::Linked));
        assert_eq!(say(Some(&at(9)), false, &default), (Action::Link, Reason::Linked));
        let policy = Policy { update: true, ..Policy::default() };
        assert_eq!(say(Some(&at(9)), false, &policy), (Action::Keep, Reason::Newer));
        assert_eq!(say(Some(&at(1)), false, &policy), (Action::Link, Reason::Linked));
        let policy = Policy { ignore_existing: true, ..Policy::default() };
        assert_eq!(say(Some(&at(5)), false, &policy), (Action::Keep, Reason::Existing));
        let policy = Policy { existing_only: true, immutable: true, ..Policy::default() };
        assert_eq!(say(None, false, &policy), (Action::Keep, Reason::NotExisting));
        assert_eq!(say(Some(&at(5)), false, &policy), (Action::Refuse, Reason::Linked));
    }
}
