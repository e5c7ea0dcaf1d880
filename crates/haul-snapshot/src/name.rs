//! Names of snapshots and their versions, and the keys of their records. Pure.

use haul_core::{Key, Mtime};
use jiff::{Timestamp, civil::DateTime, tz::TimeZone};
use std::fmt;

/// Where records are, below a remote's root. DVC looks at nothing there.
pub const RECORDS: &str = "snapshots/";
/// Longest name, in bytes: with the rest of a record's key it fits any store.
const LONGEST: usize = 200;
/// Hexadecimal digits of an id.
const ID: usize = 16;
/// Fewest of them that stand for a version.
const FEWEST: usize = 4;
/// A time as records' keys have it: UTC to the millisecond, so that bytewise order is that of time.
const TIME: &str = "%Y%m%dT%H%M%S%.3fZ";

/// One version of a snapshot: when it was made, and what of its record's hash tells it from others of that moment.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    time: String,
    id: String,
}

impl Version {
    /// A version of this time and this record.
    ///
    /// Errors: a time that no calendar has.
    pub fn new(time: Mtime, record: &[u8]) -> Result<Version, String> {
        Ok(Version { time: time_text(time)?, id: id_of(record) })
    }

    /// Reads a version as it is shown.
    pub fn parse(text: &str) -> Option<Version> {
        let (time, id) = text.split_once('-')?;
        let hex = |id: &str| id.len() == ID && id.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let known = parse_time(time).and_then(|t| time_text(t).ok()).is_some_and(|text| text == time);
        (known && hex(id)).then(|| Version { time: time.into(), id: id.into() })
    }

    /// The time, to the millisecond.
    pub fn time(&self) -> Mtime {
        parse_time(&self.time).unwrap_or(Mtime(0))
    }

    /// The first half of its record's BLAKE3, 16 hexadecimal digits.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// True when this is the hash of these bytes.
    pub fn is_of(&self, record: &[u8]) -> bool {
        self.id == id_of(record)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.time, self.id)
    }
}

fn id_of(record: &[u8]) -> String {
    let hashes = haul_core::hash::hash_bytes(&[haul_core::Algo::Blake3], record);
    let mut hex = hashes.hex(haul_core::Algo::Blake3).unwrap_or_default();
    hex.truncate(ID);
    hex
}

/// A time as records have it.
///
/// Errors: one that no calendar has.
pub fn time_text(time: Mtime) -> Result<String, String> {
    // Before year 0 texts have another order; a clock that is before 1970 is wrong anyway.
    let at = Timestamp::from_nanosecond(time.0).ok().filter(|_| time.0 >= 0);
    let at = at.ok_or_else(|| format!("the time {} s since 1970 is none: set the clock", time.secs()))?;
    Ok(at.to_zoned(TimeZone::UTC).strftime(TIME).to_string())
}

/// Reads what [`time_text`] writes.
pub fn parse_time(text: &str) -> Option<Mtime> {
    let at = DateTime::strptime(TIME, text).ok()?.to_zoned(TimeZone::UTC).ok()?;
    Some(Mtime(at.timestamp().as_nanosecond()))
}

/// Can a snapshot be called so?
///
/// Errors: why not, in one line.
pub fn check(name: &str) -> Result<(), String> {
    let wrong = |why: &str| Err(format!("a snapshot can't be called {name:?}: {why}"));
    match name {
        "" => wrong("a name has at least one letter"),
        "." | ".." => wrong("that is a directory's own name"),
        _ if name.len() > LONGEST => wrong("a name has at most 200 bytes"),
        _ if name.contains(['/', '\\', '@', ':']) => wrong("a name has no / \\ @ or :"),
        _ if name.chars().any(char::is_control) => wrong("a name has no control characters"),
        _ if name.starts_with(['-', ' ']) || name.ends_with(' ') => {
            wrong("it begins with - or a space, or ends with one")
        }
        _ => Ok(()),
    }
}

/// `NAME` or `NAME@VERSION`, as typed.
///
/// Errors: a name that can't be one.
pub fn parse(typed: &str) -> Result<(String, Option<String>), String> {
    let (name, version) = match typed.split_once('@') {
        Some((name, version)) => (name, Some(version.to_string())),
        None => (typed, None),
    };
    check(name)?;
    Ok((name.into(), version))
}

/// The prefix of the keys of a snapshot's records.
pub fn prefix(name: &str) -> String {
    format!("{RECORDS}{name}/")
}

/// The key of a record.
pub fn key(name: &str, version: &Version) -> Key {
    Key::new(format!("{}{version}", prefix(name)))
}

/// The version whose record a key is; `None` for other files there.
pub fn of_key(key: &[u8]) -> Option<(String, Version)> {
    let (name, version) = std::str::from_utf8(key).ok()?.strip_prefix(RECORDS)?.split_once('/')?;
    check(name).ok()?;
    Some((name.into(), Version::parse(version)?))
}

/// The version that is meant: the newest when none is named, else the one that begins, or whose id begins, as typed.
/// `versions` are all there are, oldest first.
///
/// Errors: there is none, or more than one, in one line.
pub fn choose<'a>(name: &str, versions: &'a [Version], typed: Option<&str>) -> Result<&'a Version, String> {
    let Some(typed) = typed else {
        return versions.last().ok_or_else(|| format!("no snapshot {name:?} (see haul snapshot list)"));
    };
    if typed.len() < FEWEST {
        return Err(format!("{name}@{typed}: give at least {FEWEST} digits of a version"));
    }
    let fits = |v: &&Version| v.id.starts_with(typed) || v.to_string().starts_with(typed);
    let mut found = versions.iter().filter(fits);
    match (found.next(), found.next()) {
        (Some(version), None) => Ok(version),
        (None, _) => Err(format!("no version {typed:?} of {name:?} (see haul snapshot list)")),
        (Some(a), Some(b)) => Err(format!("{name}@{typed} could be {a} or {b}: type more of it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: i128) -> Mtime {
        Mtime(millis * 1_000_000)
    }

    #[test]
    fn a_version_reads_back_and_stands_in_the_order_of_time() {
        let version = Version::new(Mtime(1_795_392_529_123_456_789), b"record").unwrap();
        let text = version.to_string();
        assert_eq!(text, format!("20261123T000849.123Z-{}", version.id()));
        assert_eq!(Version::parse(&text), Some(version.clone()));
        assert_eq!(version.time(), at(1_795_392_529_123));
        assert!(version.is_of(b"record") && !version.is_of(b"recorD"));
        let later = Version::new(at(1_795_392_529_124), b"record").unwrap();
        assert!(later > version && later.to_string() > text);
        assert!(Version::new(at(-1), b"").is_err() && Version::new(Mtime(i128::MAX), b"").is_err());
    }

    #[test]
    fn malformed_versions_are_refused() {
        let whole = Version::new(at(1_795_392_529_123), b"").unwrap().to_string();
        for text in ["", "x", &whole[1..], &whole[..whole.len() - 1], &whole.to_uppercase(), &format!("{whole}0")] {
            assert_eq!(Version::parse(text), None, "{text}");
        }
        assert_eq!(of_key(b"snapshots/a/b/c"), None);
        assert_eq!(of_key(format!("snapshots/../{whole}").as_bytes()), None);
        assert_eq!(of_key(format!("snapshots/a/{whole}").as_bytes()).unwrap().0, "a");
        assert_eq!(of_key(format!("other/a/{whole}").as_bytes()), None);
    }

    #[test]
    fn names_that_could_be_a_path_are_refused() {
        for name in ["", ".", "..", "a/b", "a\\b", "a@b", "a:b", "-a", " a", "a ", "a\nb", &"x".repeat(201)] {
            assert!(check(name).is_err(), "{name:?}");
        }
        for name in ["a", ".hidden", "Daten 2026", "ünï", "a..b"] {
            assert_eq!(check(name), Ok(()), "{name:?}");
        }
        assert_eq!(parse("a@12"), Ok(("a".into(), Some("12".into()))));
        assert_eq!(parse("a/b").unwrap_err(), "a snapshot can't be called \"a/b\": a name has no / \\ @ or :");
    }

    #[test]
    fn a_version_is_chosen_by_what_it_begins_with() {
        let all: Vec<Version> = (0..3).map(|n| Version::new(at(n * 86_400_000), &[n as u8]).unwrap()).collect();
        assert_eq!(choose("a", &all, None), Ok(&all[2]));
        assert_eq!(choose("a", &all, Some(&all[1].id()[..6])), Ok(&all[1]));
        assert_eq!(choose("a", &all, Some("19700102")), Ok(&all[1]));
        assert_eq!(choose("a", &all, Some(&all[0].to_string())), Ok(&all[0]));
        assert!(choose("a", &all, Some("1970")).unwrap_err().contains(" could be 19700101T000000.000Z-"));
        assert_eq!(choose("a", &all, Some("197")).unwrap_err(), "a@197: give at least 4 digits of a version");
        assert_eq!(
            choose("a", &all, Some("ffffffff")).unwrap_err(),
            "no version \"ffffffff\" of \"a\" (see haul snapshot list)"
        );
        assert_eq!(choose("a", &[], None).unwrap_err(), "no snapshot \"a\" (see haul snapshot list)");
    }
}
