//! The hidden names that files have until they are whole, and that an old file has while it is replaced where no rename replaces. Local
//! disks and SFTP use the same ones: each knows what the other left, and no listing shows them. What comes of such a file is the store's
//! business.

use std::{
    cmp::Ordering,
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

/// How hidden names begin; then 16 hexadecimal digits (8 random, 8 computed from them), the owner if there is one, a dot, the final name
/// as far as it fits, and a suffix. The computed half makes sure that no name of a user's is taken for one.
const MARK: &[u8] = b".haul-";
const DIGITS: usize = 16;
/// A dash, 16 digits for where the owner's number counts, and 8 of that number.
const OWNER: usize = 1 + 16 + 8;
/// How names end that files have which were put aside: after a dot and 16 digits, 8 of the time and 8 computed from all before.
const OLD: &[u8] = b".old";
const STAMP: usize = 1 + 16;

/// Length limit of names on file systems that encrypt them (eCryptfs, as on Synology's shared folders). The final name in a hidden one of
/// [`new`] is only for people.
pub const SHORT_NAME_MAX: usize = 143;
/// Length limit of names on all others.
const NAME_MAX: usize = 255;

/// Why a listing can't tell of a file that was put aside, where it may change nothing.
pub const PUT_ASIDE: &str =
    "an interrupted run has put it aside: copy to this folder again, or clean it up (haul cleanup)";

/// A new hidden name for `name`, which ends in `suffix`. The owner is a process whose end makes the file useless: the place where its
/// number counts, and the number. Without one, any run may go on with the file.
pub fn new(name: &[u8], suffix: &str, owner: Option<(u64, u32)>) -> Vec<u8> {
    let mut hidden = begin();
    if let Some((place, number)) = owner {
        hidden.extend_from_slice(format!("-{place:016x}{number:08x}").as_bytes());
    }
    hidden.push(b'.');
    let room = SHORT_NAME_MAX.saturating_sub(hidden.len() + suffix.len());
    let mut cut = name.len().min(room);
    // Not through the middle of a character: some file systems take only valid text.
    while cut < name.len() && cut > 0 && name[cut] & 0xC0 == 0x80 {
        cut -= 1;
    }
    hidden.extend_from_slice(&name[..cut]);
    hidden.extend_from_slice(suffix.as_bytes());
    hidden
}

/// The mark and digits of a new name.
fn begin() -> Vec<u8> {
    static SEED: OnceLock<RandomState> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let random = SEED.get_or_init(RandomState::new).hash_one(COUNT.fetch_add(1, Relaxed)) as u32;
    [MARK, format!("{random:08x}{:08x}", check(random)).as_bytes()].concat()
}

/// True for hidden names of all kinds.
pub fn is_hidden(name: &[u8]) -> bool {
    parse(name).is_some()
}

/// The owner in a hidden name, as [`new`] has it.
pub fn owner(name: &[u8]) -> Option<(u64, u32)> {
    parse(name)?
}

/// The owner in a hidden name, if one is in it; `None` for all other names.
fn parse(name: &[u8]) -> Option<Option<(u64, u32)>> {
    let rest = name.strip_prefix(MARK)?;
    let (random, sum) = (hex(rest, 0..8)?, hex(rest, 8..DIGITS)?);
    if u64::from(check(random as u32)) != sum {
        return None;
    }
    match rest.get(DIGITS)? {
        b'.' => Some(None),
        b'-' if rest.get(DIGITS + OWNER) == Some(&b'.') => {
            Some(Some((hex(rest, DIGITS + 1..DIGITS + 17)?, hex(rest, DIGITS + 17..DIGITS + OWNER)? as u32)))
        }
        _ => None,
    }
}

fn hex(text: &[u8], range: std::ops::Range<usize>) -> Option<u64> {
    let digits = text.get(range).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn check(random: u32) -> u32 {
    random.wrapping_mul(0x9E37_79B1) ^ 0x6861_756C
}

/// A new hidden name under which the file `name` is put aside while another takes its place. It differs from each that any run has given:
/// what one removes or puts back is never what another has just put aside. `None` where it doesn't fit.
pub fn aside(name: &[u8]) -> Option<Vec<u8>> {
    // Until the year 2106 no later one is smaller.
    aside_at(name, jiff::Timestamp::now().as_second() as u32)
}

fn aside_at(name: &[u8], seconds: u32) -> Option<Vec<u8>> {
    let mut aside = [&begin()[..], b".", name, format!(".{seconds:08x}").as_bytes()].concat();
    aside.extend_from_slice(format!("{:08x}", sum(&aside)).as_bytes());
    aside.extend_from_slice(OLD);
    (aside.len() <= NAME_MAX).then_some(aside)
}

/// The name of the file that was put aside under this one, and when that was, in seconds since 1970. Until that file has its name again,
/// or another has it, this is all that there is of it.
pub fn put_aside(hidden: &[u8]) -> Option<(&[u8], u32)> {
    let stamped = hidden.strip_suffix(OLD).filter(|_| is_hidden(hidden))?;
    let (before, stamp) = stamped.split_at_checked(stamped.len().checked_sub(STAMP)?)?;
    let told = hex(stamp, 9..STAMP).filter(|_| stamp.starts_with(b"."))?;
    let name = before.get(MARK.len() + DIGITS..)?.strip_prefix(b".").filter(|name| !name.is_empty())?;
    (told == u64::from(sum(&stamped[..stamped.len() - 8]))).then_some((name, hex(stamp, 1..9)? as u32))
}

/// The order in which names of files that were put aside are looked at: of several of one file the latest is the one to put back.
pub fn latest_first(one: &[u8], other: &[u8]) -> Ordering {
    let at = |name| put_aside(name).map(|(_, at)| at);
    at(other).cmp(&at(one))
}

/// FNV-1a.
fn sum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_fit_and_are_known() {
        for name in [&b"a"[..], &[b'x'; 255], "ü".repeat(127).as_bytes(), b"\xff\xfe"] {
            for given in [None, Some((7, 8)), Some((u64::MAX, u32::MAX))] {
                let hidden = new(name, ".partial", given);
                assert!(hidden.len() <= SHORT_NAME_MAX && is_hidden(&hidden), "{}", hidden.escape_ascii());
                assert!(hidden.ends_with(b".partial") && put_aside(&hidden).is_none());
                assert_eq!(owner(&hidden), given);
                assert_ne!(hidden, new(name, ".partial", given));
            }
        }
        assert!(std::str::from_utf8(&new("ü".repeat(127).as_bytes(), ".p", Some((1, 2)))).is_ok());
    }

    #[test]
    fn a_users_name_is_not_taken_for_a_hidden_one() {
        for name in [".haul-", ".haul-0123456789abcdef.x.partial", ".haul-xyz.partial", "a.partial"] {
            assert!(!is_hidden(name.as_bytes()), "{name}");
        }
        let hidden = new(b"a", "", Some((1, 2)));
        assert!(!is_hidden(&hidden[..hidden.len() - 2]), "cut off within its owner");
    }

    #[test]
    fn what_was_put_aside_is_known_by_its_name() {
        for name in [&b"a"[..], b"a.old", b".", b"\xff\xfe", &[b'x'; 211]] {
            let hidden = aside_at(name, 0x1234_5678).unwrap();
            assert!(hidden.len() <= NAME_MAX && is_hidden(&hidden) && owner(&hidden).is_none());
            assert_eq!(put_aside(&hidden), Some((name, 0x1234_5678)));
            assert_ne!(aside(name), aside(name));
            let mut other = hidden.clone();
            other[MARK.len() + DIGITS + 1] ^= 1;
            assert_eq!(put_aside(&other), None, "the sum is of the whole name");
        }
        let mut both = [aside_at(b"a", 7).unwrap(), aside_at(b"a", 8).unwrap()];
        both.sort_by(|one, other| latest_first(one, other));
        assert_eq!(both.map(|hidden| put_aside(&hidden).unwrap().1), [8, 7]);
        assert_eq!((aside(&[b'x'; 212]), put_aside(&new(b"a", ".old", None)), put_aside(b"a.old")), (None, None, None));
        // So it is in all versions.
        let known = b".haul-000000073be526bb.f.5f5e1000";
        let known = [&known[..], format!("{:08x}", sum(known)).as_bytes(), b".old"].concat();
        assert_eq!(put_aside(&known), Some((&b"f"[..], 0x5F5E_1000)));
    }
}
