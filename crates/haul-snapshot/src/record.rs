//! The record of a version: what makes it exist. A line of JSON, whose hash is part of its key, so that no record is ever
//! written over another and a damaged one is known. Pure.

use crate::name::{self, Version, parse_time, time_text};
use haul_cas::address::{Address, Layout, Md5, parse_md5};
use haul_core::{Mtime, hash};
use serde::{Deserialize, Serialize};

/// The format that is written, and the only one that is read.
const FORMAT: u32 = 1;

/// Totals of a version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Files.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Folders.
    pub dirs: u64,
    /// Symlinks.
    pub links: u64,
}

/// A version of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The snapshot.
    pub name: String,
    /// When it was made, to the millisecond.
    pub time: Mtime,
    /// The MD5 of the folder's list ([`crate::tree`]), which lies among the content.
    pub tree: Md5,
    /// Bytes of that list.
    pub tree_size: u64,
    /// The MD5 of the list that DVC would make of the folder's files.
    pub dir: Md5,
    /// In numbers.
    pub totals: Totals,
    /// A filter may have left out what was in the folder too.
    pub filtered: bool,
}

#[derive(Serialize, Deserialize)]
struct Line {
    haul_snapshot: u32,
    name: String,
    time: String,
    tree: String,
    tree_size: u64,
    dir: String,
    files: u64,
    bytes: u64,
    dirs: u64,
    links: u64,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    filtered: bool,
}

impl Record {
    /// The bytes of the record, and the version that they make.
    ///
    /// Errors: a time that no calendar has.
    pub fn write(&self) -> Result<(Vec<u8>, Version), String> {
        let totals = self.totals;
        let line = Line {
            haul_snapshot: FORMAT,
            name: self.name.clone(),
            time: time_text(self.time)?,
            tree: hash::to_hex(&self.tree),
            tree_size: self.tree_size,
            dir: hash::to_hex(&self.dir),
            files: totals.files,
            bytes: totals.bytes,
            dirs: totals.dirs,
            links: totals.links,
            filtered: self.filtered,
        };
        let mut bytes = serde_json::to_vec(&line).map_err(|e| e.to_string())?;
        bytes.push(b'\n');
        let version = Version::new(self.time, &bytes)?;
        Ok((bytes, version))
    }

    /// Reads the record of this version of this snapshot.
    ///
    /// Errors: the problem with it, in one line: other bytes than the key says, another format, another place.
    pub fn parse(name: &str, version: &Version, bytes: &[u8]) -> Result<Record, String> {
        if !version.is_of(bytes) {
            return Err("the record doesn't match its name: it was changed or cut off".into());
        }
        #[derive(Deserialize)]
        struct Head {
            haul_snapshot: u32,
        }
        let unreadable = |e: serde_json::Error| format!("not a record of a snapshot: {e}");
        let head: Head = serde_json::from_slice(bytes).map_err(unreadable)?;
        if head.haul_snapshot != FORMAT {
            return Err(format!(
                "its format is {}, and this haul knows {FORMAT}: use a newer haul",
                head.haul_snapshot
            ));
        }
        let line: Line = serde_json::from_slice(bytes).map_err(unreadable)?;
        let time = parse_time(&line.time).ok_or_else(|| format!("{:?} isn't a time", line.time))?;
        if line.name != name || time != version.time() {
            return Err(format!("it is the record of {}@{}, under another name", line.name, line.time));
        }
        let md5 = |text: &str| parse_md5(text).ok_or_else(|| format!("{text:?} isn't an MD5"));
        let totals = Totals { files: line.files, bytes: line.bytes, dirs: line.dirs, links: line.links };
        let (tree, dir) = (md5(&line.tree)?, md5(&line.dir)?);
        Ok(Record { name: line.name, time, tree, tree_size: line.tree_size, dir, totals, filtered: line.filtered })
    }

    /// Where the folder's list is.
    pub fn tree_address(&self) -> Address {
        Address::file(Layout::V3, self.tree)
    }

    /// Where DVC's list is.
    pub fn dir_address(&self) -> Address {
        Address { layout: Layout::V3, md5: self.dir, dir: true }
    }

    /// The key of a record of this version.
    pub fn key(&self, version: &Version) -> haul_core::Key {
        name::key(&self.name, version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let totals = Totals { files: 3, bytes: 4, dirs: 5, links: 6 };
        let time = Mtime(1_795_392_529_123_000_000);
        Record { name: "data".into(), time, tree: [1; 16], tree_size: 77, dir: [2; 16], totals, filtered: false }
    }

    #[test]
    fn a_record_reads_back() {
        let (bytes, version) = record().write().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&bytes),
            concat!(
                r#"{"haul_snapshot":1,"name":"data","time":"20261123T000849.123Z","tree":"01010101010101010101010101010101","#,
                r#""tree_size":77,"dir":"02020202020202020202020202020202","files":3,"bytes":4,"dirs":5,"links":6}"#,
                "\n"
            )
        );
        assert_eq!(Record::parse("data", &version, &bytes), Ok(record()));
        let filtered = Record { filtered: true, ..record() };
        let (longer, other) = filtered.write().unwrap();
        assert!(longer.ends_with(b",\"links\":6,\"filtered\":true}\n"));
        assert_eq!(Record::parse("data", &other, &longer), Ok(filtered));
        assert_eq!(record().key(&version).to_string(), format!("snapshots/data/20261123T000849.123Z-{}", version.id()));
    }

    #[test]
    fn any_damage_is_known() {
        let (whole, version) = record().write().unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert!(Record::parse("data", &version, &bytes).is_err(), "byte {at}");
            assert!(Record::parse("data", &version, &whole[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn a_record_under_another_name_or_of_another_format_is_refused() {
        let (bytes, version) = record().write().unwrap();
        let why = Record::parse("other", &version, &bytes).unwrap_err();
        assert_eq!(why, "it is the record of data@20261123T000849.123Z, under another name");
        let moved = Version::new(Mtime(0), &bytes).unwrap();
        assert!(Record::parse("data", &moved, &bytes).unwrap_err().contains("under another name"));
        let newer = String::from_utf8(bytes).unwrap().replace("\"haul_snapshot\":1", "\"haul_snapshot\":2");
        let version = Version::new(record().time, newer.as_bytes()).unwrap();
        let why = Record::parse("data", &version, newer.as_bytes()).unwrap_err();
        assert_eq!(why, "its format is 2, and this haul knows 1: use a newer haul");
    }
}
