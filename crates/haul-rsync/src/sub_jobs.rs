//! Parts of a run: its jobs, and the state of the destination before them.

use super::filters::Scope;
use haul_core::Key;
use std::ffi::OsString;

/// Which part of its source's transfer a job is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    #[default]
    Whole,
    /// All but deletions.
    Transfers,
    /// Deletions alone.
    Deletes,
}

/// One job: from a folder to a folder, or one file.
#[derive(Clone)]
pub struct SubJob {
    /// The source's folder as typed.
    pub src: OsString,
    /// Path below the destination's root, for options with paths relative to that root.
    pub into: Vec<u8>,
    /// The destination's folder as typed.
    pub dst: OsString,
    /// The files it covers.
    pub scope: Scope,
    /// The source's folder itself is part of it.
    pub top: bool,
    /// One file: its name in the source's folder, and its name at the destination.
    pub one: Option<(Key, Key)>,
    /// Its part of the work.
    pub part: Part,
    /// It transfers one entry, and the destination is that one's name.
    pub alone: bool,
}

impl SubJob {
    /// How many directories of the transfer are above its root.
    pub fn above(&self) -> usize {
        self.scope.prefix.iter().filter(|b| **b == b'/').count()
    }
}

/// Kind of the destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dest {
    /// A directory.
    Dir,
    /// A file.
    File,
    /// Nothing yet.
    Missing,
}
