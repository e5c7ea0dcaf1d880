//! Facts of a key in an index, as bytes. Pure. A record says that a key existed, with its facts, and when that was found out; or that
//! nothing is known of it any more.

use super::hashes::{number, of_number};
use haul_core::{Entry, Hashes, Key, Mtime, Version};

/// The first byte of the record of an existing key.
const THERE: u8 = 0x80;
const CHANGED: u8 = 1;
const MTIME: u8 = 2;
const VERSION: u8 = 4;

/// The record of a key of which nothing is known any more.
pub const FORGOTTEN: &[u8] = &[0];
/// The record of a key that isn't there, as the store said: nothing is known of it either, but nothing is missing from the index.
pub const GONE: &[u8] = &[1];

/// Known facts of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct Fact {
    /// How it was.
    pub entry: Entry,
    /// When that was found out, in minutes since 1970.
    pub minute: u32,
}

/// The record of an entry. Of one whose content is damaged nothing is kept: it isn't what it seems to be.
pub fn write(entry: &Entry, minute: u32) -> Box<[u8]> {
    if entry.damaged {
        return FORGOTTEN.into();
    }
    let mut out = vec![THERE];
    put(&mut out, minute.into());
    put(&mut out, entry.size);
    if let Some(changed) = entry.changed {
        out[0] |= CHANGED;
        put_time(&mut out, changed);
    }
    if let Some(mtime) = entry.mtime {
        out[0] |= MTIME;
        put_time(&mut out, mtime);
    }
    if let Some(version) = &entry.version {
        out[0] |= VERSION;
        put(&mut out, version.0.len() as u64);
        out.extend_from_slice(&version.0);
    }
    for (algo, value) in entry.hashes.iter() {
        out.push(number(algo) as u8);
        out.extend_from_slice(value);
    }
    out.into()
}

/// True for the record of an existing key.
pub fn is_there(record: &[u8]) -> bool {
    record.first().is_some_and(|flags| flags & THERE != 0)
}

/// When the key was seen to exist; `None` for a forgotten one.
pub fn minute(record: &[u8]) -> Option<u32> {
    let (flags, mut rest) = record.split_first()?;
    if flags & THERE == 0 { None } else { u32::try_from(take(&mut rest)?).ok() }
}

/// The fact in the record of `key`; `None` when it is forgotten or malformed.
pub fn read(key: &[u8], record: &[u8]) -> Option<Fact> {
    let (flags, mut rest) = record.split_first()?;
    if flags & THERE == 0 {
        return None;
    }
    let rest = &mut rest;
    let minute = u32::try_from(take(rest)?).ok()?;
    let mut entry = Entry::file(Key::new(key), take(rest)?);
    if flags & CHANGED != 0 {
        entry.changed = Some(take_time(rest)?);
    }
    if flags & MTIME != 0 {
        entry.mtime = Some(take_time(rest)?);
    }
    if flags & VERSION != 0 {
        let length = take(rest)?;
        entry.version = Some(Version::new(take_bytes(rest, length)?));
    }
    let mut hashes = Hashes::default();
    while let Some((number, after)) = rest.split_first() {
        *rest = after;
        let algo = of_number(u64::from(*number))?;
        hashes.set(algo, take_bytes(rest, algo.size() as u64)?);
    }
    entry.hashes = hashes;
    Some(Fact { entry, minute })
}

/// Appends a number, seven bits a byte, the lowest first.
pub fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Takes a number off the front.
pub fn take(rest: &mut &[u8]) -> Option<u64> {
    let mut number = 0u64;
    for (n, byte) in rest.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * n);
        if byte & 0x80 == 0 {
            *rest = &rest[n + 1..];
            return Some(number);
        }
    }
    None
}

/// Takes this many bytes off the front.
pub fn take_bytes<'a>(rest: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (bytes, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = after;
    Some(bytes)
}

/// Times are kept to the nanosecond, whole: 1677 to 2262 in ten bytes at most, others not at all.
fn put_time(out: &mut Vec<u8>, time: Mtime) {
    let nanos = i64::try_from(time.0).unwrap_or(i64::MIN);
    put(out, ((nanos << 1) ^ (nanos >> 63)).cast_unsigned());
}

fn take_time(rest: &mut &[u8]) -> Option<Mtime> {
    let zigzag = take(rest)?;
    let nanos = (zigzag >> 1).cast_signed() ^ -(zigzag & 1).cast_signed();
    Some(Mtime(nanos.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::Algo;

    #[test]
    fn a_record_says_what_was_written() {
        let plain = Entry::file(Key::new("a"), 0);
        let full = Entry {
            changed: Some(Mtime(1_600_000_000_000_000_001)),
            mtime: Some(Mtime(-7)),
            version: Some(Version::new("etag")),
            hashes: Hashes::default().with(Algo::Md5, [7; 16]).with(Algo::Crc64Nvme, [8; 8]),
            ..Entry::file(Key::new("b/c"), u64::MAX)
        };
        for entry in [plain, full] {
            let record = write(&entry, 27_000_000);
            let fact = read(entry.key.as_bytes(), &record).unwrap();
            assert_eq!((fact.minute, minute(&record)), (27_000_000, Some(27_000_000)));
            assert_eq!(fact.entry, entry);
            for cut in 1..record.len() {
                // Hashes come last: what is cut between two of them still makes sense.
                let cut = read(entry.key.as_bytes(), &record[..cut]);
                assert!(cut.is_none_or(|fact| fact.entry.size == entry.size));
            }
        }
        for none in [FORGOTTEN, GONE] {
            assert!(read(b"a", none).is_none() && !is_there(none) && minute(none).is_none());
        }
    }
}
