//! The hidden names that files have until they are whole: how they are made and known, and which of them a dead process left.

use crate::process;
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::WriteSpec;
use rustix::fs::AtFlags;
use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    os::fd::AsFd,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

/// How hidden names begin; then 16 hexadecimal digits (8 random, 8 computed from them), the owner if there is one, a dot, the
/// final name as far as it fits, and the partial suffix. The computed half makes sure that no name of a user's is taken for one,
/// since listings leave hidden names out. The owner is a dash, 16 digits for where its number counts, and 8 of that number.
const MARK: &[u8] = b".haul-";
const DIGITS: usize = 16;
const OWNER: usize = 1 + 16 + 8;
/// Length limit of file systems that encrypt names (eCryptfs, as on Synology's shared folders). Others allow 255; the final name within a
/// hidden one is only for people.
const NAME_MAX: usize = 143;
const SUFFIX_MAX: usize = 16;

/// How names end that files have which were put aside.
const OLD: &[u8] = b".old";

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
    static SEED: OnceLock<RandomState> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let random = SEED.get_or_init(RandomState::new).hash_one(COUNT.fetch_add(1, Ordering::Relaxed)) as u32;
    let mut temp = MARK.to_vec();
    temp.extend_from_slice(format!("{random:08x}{:08x}", check(random)).as_bytes());
    if let Some(place) = process::place().filter(|_| owner == Owner::Process) {
        temp.extend_from_slice(format!("-{place:016x}{:08x}", std::process::id()).as_bytes());
    }
    temp.push(b'.');
    let room = NAME_MAX.saturating_sub(temp.len() + suffix.len());
    let mut cut = name.len().min(room);
    // Not through the middle of a character: some file systems take only valid text.
    while cut < name.len() && cut > 0 && name[cut] & 0xC0 == 0x80 {
        cut -= 1;
    }
    temp.extend_from_slice(&name[..cut]);
    temp.extend_from_slice(suffix.as_bytes());
    temp
}

/// True for names made by [`temp_name`].
pub(super) fn is_temp(name: &[u8]) -> bool {
    owner(name).is_some()
}

/// The name of the file that was put aside under this one, by a run that reached this disk through an SFTP server without a rename that
/// replaces. Until that file has another, this is all that there is of it.
pub(super) fn put_aside(hidden: &[u8]) -> Option<&[u8]> {
    let name = hidden.get(MARK.len() + DIGITS + 1..)?.strip_suffix(OLD)?;
    // FNV-1a.
    let of = name.iter().fold(0x811C_9DC5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    let aside = [MARK, format!("{of:08x}{:08x}.", check(of)).as_bytes(), name, OLD].concat();
    (aside == hidden).then_some(name)
}

/// True for a hidden name whose owner has surely ended: nobody will finish it.
fn is_dead(name: &[u8]) -> bool {
    matches!(owner(name), Some(Some((at, number))) if process::has_ended(at, number))
}

/// Removes the remains of a dead process under a hidden name. A failure harms nobody.
pub(super) fn sweep(dir: impl AsFd, name: &[u8]) {
    if is_dead(name)
        && let Err(error) = rustix::fs::unlinkat(dir, name, AtFlags::empty())
    {
        tracing::debug!(%error, name = %name.escape_ascii(), "can't remove what a killed run left");
    }
}

/// The owner in a hidden name, if one is in it; `None` for all other names.
fn owner(name: &[u8]) -> Option<Option<(u64, u32)>> {
    let rest = name.strip_prefix(MARK)?;
    let digits = |range: std::ops::Range<usize>| {
        let digits = rest.get(range).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (random, sum) = (digits(0..8)?, digits(8..DIGITS)?);
    if u64::from(check(random as u32)) != sum {
        return None;
    }
    match rest.get(DIGITS)? {
        b'.' => Some(None),
        b'-' if rest.get(DIGITS + OWNER) == Some(&b'.') => {
            Some(Some((digits(DIGITS + 1..DIGITS + 17)?, digits(DIGITS + 17..DIGITS + OWNER)? as u32)))
        }
        _ => None,
    }
}

fn check(random: u32) -> u32 {
    random.wrapping_mul(0x9E37_79B1) ^ 0x6861_756C
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_fit_and_are_known() {
        for name in [&b"a"[..], &[b'x'; 255], "ü".repeat(127).as_bytes(), b"\xff\xfe"] {
            for owner in [Owner::Process, Owner::Anybody] {
                let temp = temp_name(owner, name, Suffix::OWN);
                assert!(temp.len() <= NAME_MAX && is_temp(&temp), "{}", temp.escape_ascii());
                assert!(temp.ends_with(b".partial"));
                assert_ne!(temp, temp_name(owner, name, Suffix::OWN));
                assert!(!is_dead(&temp), "this process lives");
            }
        }
        let long = temp_name(Owner::Process, "ü".repeat(127).as_bytes(), Suffix(".p"));
        assert!(std::str::from_utf8(&long).is_ok());
    }

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
    fn what_sftp_put_aside_is_known() {
        let aside = b".haul-e30c2799c19cc4a5.f.old";
        assert!(is_temp(aside) && !is_dead(aside));
        assert_eq!(put_aside(aside), Some(&b"f"[..]));
        assert_eq!(put_aside(&temp_name(Owner::Anybody, b"f", Suffix(".old"))), None);
    }

    #[test]
    fn a_users_name_is_not_taken_for_a_hidden_one() {
        for name in [".haul-", ".haul-0123456789abcdef.x.partial", ".haul-xyz.partial", "a.partial"] {
            assert!(!is_temp(name.as_bytes()), "{name}");
        }
        let temp = temp_name(Owner::Process, b"a", Suffix(""));
        assert!(!is_temp(&temp[..temp.len() - 2]), "cut off within its owner");
    }

    #[test]
    fn only_a_process_that_counted_here_and_ended_is_dead() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let random = 7;
        let name = |place: u64, pid: u32| {
            format!(".haul-{random:08x}{:08x}-{place:016x}{pid:08x}.a.partial", check(random)).into_bytes()
        };
        let here = process::place().unwrap();
        assert!(is_dead(&name(here, pid)));
        assert!(is_temp(&name(here ^ 1, pid)) && !is_dead(&name(here ^ 1, pid)), "another machine's");
        assert!(!is_dead(&name(here, 1)) && !is_dead(&name(here, 0)) && !is_dead(&name(here, u32::MAX)));
        assert!(!is_dead(&temp_name(Owner::Anybody, b"a", Suffix::OWN)));
    }
}
