//! Which attributes of files go along between file systems, and whose they become.

use crate::chmod::Chmod;
use serde::{Deserialize, Serialize};
use std::ops::RangeInclusive;

/// Which attributes of files go along between file systems, beside the modification time (`--archive` and its parts).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Keep {
    /// Permission bits (`--perms`), with set-uid, set-gid and sticky.
    pub perms: bool,
    /// Only whether a file may be executed (`--executability`), where `perms` is off.
    pub executability: bool,
    /// The owner (`--owner`); needs root, or a file system that allows it.
    pub owner: bool,
    /// The group (`--group`).
    pub group: bool,
    /// Access times (`--atimes`).
    pub atime: bool,
    /// Extended attributes (`--xattrs`), file capabilities among them.
    pub xattrs: bool,
    /// POSIX and NFSv4 access control lists (`--acls`); the permission bits go with them.
    pub acls: bool,
    /// Block and character devices (`--devices`); needs root.
    pub devices: bool,
    /// FIFOs and sockets (`--specials`).
    pub specials: bool,
    /// Names that are one file stay one file (`--hard-links`).
    pub hard_links: bool,
    /// Changes to the permission bits of all that is transferred (`--chmod`), in order.
    pub chmod: Vec<Chmod>,
    /// Who owns what others own at the source (`--chown`, `--usermap`).
    pub users: IdMap,
    /// Which group's files become which group's (`--chown`, `--groupmap`).
    pub groups: IdMap,
}

/// Which ids of the source become which others at the destination. The first rule that holds an id counts; an id that none
/// holds is kept or not, as the other rules say.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdMap(Vec<(RangeInclusive<u32>, u32)>);

impl IdMap {
    /// Every id becomes this one.
    pub fn all(id: u32) -> IdMap {
        IdMap(vec![(0..=u32::MAX, id)])
    }

    /// Ids in `from` become `to`, where no rule before says otherwise.
    pub fn add(&mut self, from: RangeInclusive<u32>, to: u32) {
        self.0.push((from, to));
    }

    /// The id that replaces this one, if a mapping says so.
    pub fn of(&self, id: u32) -> Option<u32> {
        self.0.iter().find(|(from, _)| from.contains(&id)).map(|(_, to)| *to)
    }

    /// True when no mapping was given.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
