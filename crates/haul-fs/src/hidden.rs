//! Hidden names on disks: who they belong to, which of them a dead process left, and files that were put aside under one.

use crate::{meta, process, publish::rename_new};
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::{WriteSpec, hidden};
use rustix::{fs::AtFlags, io::Errno};
use std::os::fd::AsFd;

const SUFFIX_MAX: usize = 16;

/// Who will give a hidden file its name, or remove it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// This process: once it is dead the file is useless.
    Process,
    /// Anyone who knows its name: a later run may resume it.
    Anybody,
}

/// Suffix of a hidden name. It comes from whoever asks for a write, who may be on another machine and be trusted with one folder
/// only: every function that makes a hidden name takes one of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suffix<'a>(&'a str);

impl<'a> Suffix<'a> {
    /// For names that no caller chooses.
    pub(super) const OWN: Suffix<'static> = Suffix(".partial");

    /// The one that is asked for.
    ///
    /// Errors: `Invalid` for what no name can end in.
    pub(super) fn of(op: &'static str, key: &Key, spec: &'a WriteSpec) -> Result<Self> {
        let suffix = spec.partial_suffix.as_str();
        if suffix.is_empty() || suffix.len() > SUFFIX_MAX || suffix.contains(['/', '\0']) {
            let why = format!("a partial file's suffix has 1 to {SUFFIX_MAX} bytes, no / and no zero byte");
            return Err(Error::new(ErrorKind::Invalid, op, why).with_key(key));
        }
        Ok(Suffix(suffix))
    }
}

/// A new hidden name for `name`.
pub(super) fn temp_name(owner: Owner, name: &[u8], Suffix(suffix): Suffix<'_>) -> Vec<u8> {
    let process = process::place().filter(|_| owner == Owner::Process).map(|place| (place, std::process::id()));
    hidden::new(name, suffix, process)
}

/// True for a hidden name whose owner has surely ended: nobody will finish it.
fn is_dead(name: &[u8]) -> bool {
    hidden::owner(name).is_some_and(|(at, number)| process::has_ended(at, number))
}

/// Removes the remains of a dead process under a hidden name. A failure harms nobody.
pub(super) fn sweep(dir: impl AsFd, name: &[u8]) {
    if is_dead(name)
        && let Err(error) = rustix::fs::unlinkat(dir, name, AtFlags::empty())
    {
        tracing::debug!(%error, name = %name.escape_ascii(), "can't remove what a killed run left");
    }
}

/// Gives a file its name `own` back that was put aside under the name `aside`, as a run does that reaches this disk through an SFTP
/// server without a rename that replaces. Where another has the name, what was put aside is removed.
pub(super) fn put_back(dir: &impl AsFd, aside: &[u8], own: &[u8]) -> rustix::io::Result<()> {
    match rename_new((dir, aside), (dir, own)) {
        Err(Errno::EXIST) => match rustix::fs::unlinkat(dir, aside, AtFlags::empty()) {
            Err(Errno::NOENT) => Ok(()),
            removed => removed,
        },
        // Another run was faster.
        Err(Errno::NOENT) if !is_missing(dir, own) => Ok(()),
        renamed => renamed,
    }
}

/// True unless something surely has this name.
pub(super) fn is_missing(dir: &impl AsFd, own: &[u8]) -> bool {
    meta::facts_at(dir, own, false, meta::FACTS).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suffix_that_leads_elsewhere_is_refused() {
        for (suffix, good) in [
            (".partial", true),
            ("ab..cdefghijklmn", true),
            ("", false),
            ("12345678901234567", false),
            ("/../../x", false),
            ("a/", false),
            ("a\0", false),
        ] {
            let spec = WriteSpec { partial_suffix: suffix.into(), ..WriteSpec::default() };
            let key = Key::new("d/a");
            match Suffix::of("write", &key, &spec) {
                Ok(_) => assert!(good, "{suffix:?}"),
                Err(error) => {
                    assert!(!good, "{suffix:?}");
                    let expected = "a partial file's suffix has 1 to 16 bytes, no / and no zero byte";
                    assert_eq!(
                        (error.kind(), error.message(), error.key()),
                        (ErrorKind::Invalid, expected, Some(&key))
                    );
                }
            }
        }
    }

    #[test]
    fn only_a_process_that_counted_here_and_ended_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let name = |place: u64, pid: u32| hidden::new(b"a", ".partial", Some((place, pid)));
        let here = process::place().unwrap();
        assert!(is_dead(&name(here, pid)));
        assert!(!is_dead(&name(here ^ 1, pid)), "another machine's");
        assert!(!is_dead(&name(here, 1)) && !is_dead(&name(here, 0)) && !is_dead(&name(here, u32::MAX)));
        assert!(![Owner::Anybody, Owner::Process].iter().any(|owner| is_dead(&temp_name(*owner, b"a", Suffix::OWN))));
    }
}
