//! MD5s of files that were hashed before, as this crate asks for them. How they are kept is haul's.

use crate::{
    address::{Layout, Md5},
    facts::Facts,
};
use haul::index::FileHashes;
use haul_core::{Inode, Mtime};
use std::{sync::Arc, time::SystemTime};

/// The known hashes.
#[derive(Debug, Default)]
pub struct State(Arc<FileHashes>);

impl State {
    /// Of these.
    pub fn new(hashes: Arc<FileHashes>) -> State {
        State(hashes)
    }

    /// The MD5 of a file with these facts.
    pub fn get(&self, facts: &Facts, layout: Layout) -> Option<Md5> {
        self.0.get(&inode(facts), layout.algo())?.try_into().ok()
    }

    /// Remembers what was hashed, see [`FileHashes::put`].
    pub fn put(&self, facts: &Facts, layout: Layout, md5: Md5, looked: SystemTime) {
        self.0.put(&inode(facts), layout.algo(), &md5, looked);
    }

    /// Keeps what is new for the next run, see [`FileHashes::save`].
    pub fn save(&self) {
        self.0.save();
    }
}

fn inode(facts: &Facts) -> Inode {
    let Facts { dev, ino, size, .. } = *facts;
    Inode { dev, ino, size, mtime: Mtime(facts.mtime.into()), ctime: Mtime(facts.ctime.into()) }
}
