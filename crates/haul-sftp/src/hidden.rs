//! The hidden names that files have until they are whole: those of haul's files on a local disk, so that a haul there knows them too.

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

const MARK: &[u8] = b".haul-";
const DIGITS: usize = 16;
/// A dash and the writer's identity, as on local disks.
const OWNER: usize = 25;
/// Name limit of file systems that encrypt names (eCryptfs, as on Synology's shared folders). The final name in a new hidden one is for
/// people.
pub const SHORT_NAME_MAX: usize = 143;
/// Name limit of all others.
const NAME_MAX: usize = 255;

/// A new hidden name for `name`: 16 hexadecimal digits, of which eight follow from the others, so that no name of a user's is taken for
/// one; the final name as far as it fits; and the suffix.
pub fn new(name: &[u8], suffix: &str) -> Vec<u8> {
    static SEED: OnceLock<RandomState> = OnceLock::new();
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let random = SEED.get_or_init(RandomState::new).hash_one(COUNT.fetch_add(1, Ordering::Relaxed)) as u32;
    let mut hidden = [MARK, format!("{random:08x}{:08x}.", check(random)).as_bytes()].concat();
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

/// How names end that files have which were put aside.
const OLD: &[u8] = b".old";

/// The hidden name under which a file of this name is put aside: always the same, so that it is found again. `None` where it doesn't
/// fit.
pub fn aside(name: &[u8]) -> Option<Vec<u8>> {
    let digits = of(name);
    let aside = [MARK, format!("{digits:08x}{:08x}.", check(digits)).as_bytes(), name, OLD].concat();
    (aside.len() <= NAME_MAX).then_some(aside)
}

/// The name of the file that was put aside under this one.
pub fn put_aside(hidden: &[u8]) -> Option<&[u8]> {
    let name = hidden.get(MARK.len() + DIGITS + 1..)?.strip_suffix(OLD)?;
    (aside(name)? == hidden).then_some(name)
}

/// Digits that follow from a name (FNV-1a).
fn of(name: &[u8]) -> u32 {
    name.iter().fold(0x811C_9DC5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// True for hidden names, including those of local disks.
pub fn is_hidden(name: &[u8]) -> bool {
    let Some(rest) = name.strip_prefix(MARK) else { return false };
    let digits = |range: std::ops::Range<usize>| {
        let digits = rest.get(range).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
        u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
    };
    let (Some(random), Some(sum)) = (digits(0..8), digits(8..DIGITS)) else { return false };
    let ends = match rest.get(DIGITS) {
        Some(b'.') => true,
        Some(b'-') => rest.get(DIGITS + OWNER) == Some(&b'.'),
        _ => false,
    };
    ends && check(random) == sum
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
            let hidden = new(name, ".partial");
            assert!(hidden.len() <= SHORT_NAME_MAX && is_hidden(&hidden) && hidden.ends_with(b".partial"));
            assert_ne!(hidden, new(name, ".partial"));
        }
        for name in [&b"a"[..], b"a.old", b"\xff\xfe", &[b'x'; 228]] {
            let aside = aside(name).unwrap();
            assert!(aside.len() <= NAME_MAX && is_hidden(&aside));
            assert_eq!(put_aside(&aside), Some(name));
        }
        // So it was in all versions, and local disks know it by that.
        assert_eq!(aside(b"f").unwrap(), b".haul-e30c2799c19cc4a5.f.old");
        assert_eq!((aside(&[b'x'; 229]), put_aside(&new(b"a", ".old")), put_aside(b"a.old")), (None, None, None));
        for name in [".haul-", ".haul-0123456789abcdef.x.partial", "a.partial"] {
            assert!(!is_hidden(name.as_bytes()), "{name}");
        }
    }
}
