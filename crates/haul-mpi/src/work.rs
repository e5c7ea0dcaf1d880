//! Messages between ranks: work that is leased, findings, results. Data only; `wire` carries it, `coordinator`
//! leases it, `crew` does it.

use haul_core::{Entry, Key, Kind, Mtime, entry::Inode};
use serde::{Deserialize, Serialize};
use std::ops::AddAssign;

/// Raw bytes: a key, a path, a token.
pub type Raw = serde_bytes::ByteBuf;

/// Which command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Verb {
    /// Copies everything, whatever is there.
    Dcp,
    /// Makes the destination equal to the source.
    Sync,
    /// Compares.
    Check,
    /// Deletes.
    Delete,
}

impl Verb {
    /// The command's name as typed.
    pub fn name(self) -> &'static str {
        match self {
            Verb::Dcp => "dcp",
            Verb::Sync => "sync",
            Verb::Check => "check",
            Verb::Delete => "delete",
        }
    }
}

/// The job of all ranks; rank 0 reads it from the command line and sends it to the others.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// The command.
    pub verb: Verb,
    /// Trees, by their number.
    pub roots: Vec<Root>,
    /// Owner, permissions, ACLs, times of directories and hard links are kept.
    pub preserve: bool,
    /// Extended attributes are kept.
    pub xattrs: bool,
    /// Runs of zeros become holes.
    pub sparse: bool,
    /// Transferred data is dropped from the page cache.
    pub direct: bool,
    /// Symlinks are followed.
    pub follow: bool,
    /// Files missing from the source are deleted.
    pub delete: bool,
    /// Also if the source holds nothing at all.
    pub allow_empty_source: bool,
    /// Files of one size and time are compared byte by byte.
    pub contents: bool,
    /// Only what this list names is copied.
    pub input: Option<Raw>,
    /// The source's folder as it was typed, by which the list may name it.
    pub typed_src: Option<Raw>,
    /// Files that this folder has already become hard links to its own.
    pub link_dest: Option<Raw>,
    /// Dry run: nothing is changed.
    pub dry_run: bool,
    /// Each name is printed.
    pub verbose: bool,
    /// Only errors are printed.
    pub quiet: bool,
    /// Seconds between two lines of progress.
    pub progress: Option<u64>,
    /// An earlier run of this job was left: what it finished is not done again.
    pub resuming: bool,
    /// When that run began. What a dcp finds unchanged since then it hasn't copied yet.
    pub since: JobStart,
    /// Seconds after which a rank that says nothing is given up.
    pub patience: u64,
    /// Seconds after which a lease of which nothing moves hangs in a file system.
    pub hang: u64,
    /// Where each rank writes what it does, with `.RANK` behind it.
    pub log: Option<String>,
}

/// A tree, or one file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The source's folder; of a deletion the same as `dst`.
    pub src: Raw,
    /// The destination's folder.
    pub dst: Raw,
    /// Only this key of the source, under that key of the destination.
    pub one: Option<(Raw, Raw)>,
}

/// A file, symlink or special file of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceEntry {
    /// Its key below the root.
    pub key: Raw,
    /// Its kind.
    pub kind: Kind,
    /// Bytes.
    pub size: u64,
    /// Seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Which version of it.
    pub pin: Option<Pin>,
    /// It is on the device of its root, of which each rank knows its own number. Those of devices that are mounted below it aren't
    /// known.
    pub on_root: bool,
    /// The task for it.
    pub task: Task,
    /// How many names it has, where these are several and `pin` tells which are one file.
    pub linked: Option<u32>,
}

/// An inode, as every rank knows it: device numbers of one network file system differ from node to node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Pin {
    /// The inode's number.
    pub ino: u64,
    /// Change time, seconds and nanoseconds.
    pub ctime: (i64, u32),
}

/// The task for an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Task {
    /// It is copied.
    Copy,
    /// Its bytes are there; its attributes are set.
    Attributes,
    /// Its bytes are compared with those that are there, and it is copied where they differ.
    Compare,
}

fn pair(time: Mtime) -> (i64, u32) {
    (time.secs(), time.nanos())
}

impl SourceEntry {
    /// Of a listed entry. `device` is that of the root here.
    pub fn of(entry: &Entry, device: u64, task: Task) -> SourceEntry {
        let inode = entry.version.as_ref().and_then(Inode::of);
        let pin = inode.map(|inode| Pin { ino: inode.ino, ctime: pair(inode.ctime) });
        let on_root = inode.is_some_and(|inode| inode.dev == device);
        let names = entry.posix.as_ref().filter(|_| entry.kind == Kind::File).map_or(1, |posix| posix.nlink);
        SourceEntry {
            key: Raw::from(entry.key.as_bytes()),
            kind: entry.kind,
            size: entry.size,
            mtime: entry.mtime.map_or((0, 0), pair),
            pin,
            on_root,
            task,
            linked: Some(names).filter(|names| *names > 1 && on_root),
        }
    }

    /// The key.
    pub fn key(&self) -> Key {
        Key::new(&self.key)
    }

    /// The version that it must have, for a rank on which the root has this device.
    pub fn version(&self, device: u64) -> Option<haul_core::Version> {
        let Pin { ino, ctime } = self.pin.filter(|_| self.on_root)?;
        let time = |(secs, nanos)| Mtime::new(secs, nanos);
        let inode = Inode { dev: device, ino, ctime: time(ctime), mtime: time(self.mtime), size: self.size };
        Some(inode.to_version())
    }

    /// Is this still that version, on whatever device?
    pub fn is_still(&self, now: &Entry) -> bool {
        let Some(Pin { ino, ctime }) = self.pin else { return true };
        let inode = now.version.as_ref().and_then(Inode::of);
        inode.is_some_and(|now| {
            (now.ino, pair(now.ctime), pair(now.mtime), now.size) == (ino, ctime, self.mtime, self.size)
        })
    }
}

/// A large file that an earlier run left.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnfinishedFile {
    /// The name that it was to have.
    pub key: Raw,
    /// Finds what was written.
    pub token: Raw,
    /// Which version of the source it was.
    pub pin: Pin,
    /// Offset, bytes and CRC-64 of what arrived.
    pub pieces: Vec<(u64, u64, u64)>,
}

/// A directory in the coordinator's tree: root, node, key, made by this job.
pub type DirAddress = (u16, u32, Raw, bool);

/// Names in a directory of which a list says what is copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SelectedNames {
    /// The names, sorted; with a slash at the end where more is named in them.
    pub names: Vec<Raw>,
    /// Others have more of that directory.
    pub more: bool,
}

/// A unit of work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Work {
    /// Look at a directory; its first files are dealt with at once.
    Dir {
        /// Which tree.
        root: u16,
        /// The directory whose children are reported.
        node: u32,
        /// The directory, with its `/`.
        key: Raw,
        /// The destination hasn't got it.
        fresh: bool,
        /// Only what follows this key: the rest was told already.
        after: Option<Raw>,
        /// Only these, where a list says what is copied.
        only: Option<SelectedNames>,
    },
    /// Look at more names of a directory of which a list names many.
    Named {
        /// Which tree.
        root: u16,
        /// The directory, whose children are reported.
        node: u32,
        /// Its key, with its `/`.
        key: Raw,
        /// The destination hasn't got it, or somebody is about to make it.
        fresh: bool,
        /// The names.
        names: Vec<Raw>,
    },
    /// Files of one directory.
    Files {
        /// Which tree.
        root: u16,
        /// Their directory.
        node: u32,
        /// The files.
        items: Vec<SourceEntry>,
    },
    /// Further names of files that are there: the first, and the name.
    Links {
        /// Which tree.
        root: u16,
        /// The directory of each name, the first name, the name.
        names: Vec<(u32, Raw, SourceEntry)>,
    },
    /// Begin a large file under its hidden name.
    Begin {
        /// Its number.
        id: u32,
        /// Which tree.
        root: u16,
        /// The file.
        item: SourceEntry,
        /// Its rest of an earlier run.
        left: Option<UnfinishedFile>,
    },
    /// A range of a large file.
    Piece {
        /// Its number.
        id: u32,
        /// Which tree.
        root: u16,
        /// The file.
        item: SourceEntry,
        /// Where it is written; empty where it is compared.
        token: Raw,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// An earlier run wrote it; its CRC-64 then.
        crc: Option<u64>,
    },
    /// Give a large file its attributes and its name.
    Publish {
        /// Its number.
        id: u32,
        /// Which tree.
        root: u16,
        /// The file.
        item: SourceEntry,
        /// Where it was written.
        token: Raw,
    },
    /// Remove the written parts of a large file that nobody will resume.
    Discard {
        /// Its number; `None` where an earlier run left it.
        id: Option<u32>,
        /// Which tree.
        root: u16,
        /// The name that it was to have.
        key: Raw,
        /// Where it was written.
        token: Raw,
    },
    /// Give directories their attributes: all that is in them is done.
    Finish {
        /// The directories.
        dirs: Vec<DirAddress>,
    },
    /// Look at a directory that is to go; its files are deleted at once.
    Remove {
        /// Which tree.
        root: u16,
        /// The directory whose children are reported.
        node: u32,
        /// The directory.
        key: Raw,
    },
    /// Delete files, symlinks and special files.
    Delete {
        /// Which tree.
        root: u16,
        /// Their directory.
        node: u32,
        /// Their keys.
        keys: Vec<Raw>,
    },
    /// Delete directories that are empty by now.
    Rmdir {
        /// The directories.
        dirs: Vec<DirAddress>,
    },
}

impl Work {
    /// Tree and first name, by which people know it.
    pub fn name(&self) -> (u16, Raw) {
        match self {
            Work::Dir { root, key, .. } | Work::Remove { root, key, .. } | Work::Discard { root, key, .. } => {
                (*root, key.clone())
            }
            Work::Begin { root, item, .. } | Work::Piece { root, item, .. } | Work::Publish { root, item, .. } => {
                (*root, item.key.clone())
            }
            Work::Named { root, names, .. } => (*root, names.first().cloned().unwrap_or_default()),
            Work::Files { root, items, .. } => (*root, items.first().map(|item| item.key.clone()).unwrap_or_default()),
            Work::Links { root, names } => {
                (*root, names.first().map(|(_, _, item)| item.key.clone()).unwrap_or_default())
            }
            Work::Delete { root, keys, .. } => (*root, keys.first().cloned().unwrap_or_default()),
            Work::Finish { dirs } | Work::Rmdir { dirs } => {
                dirs.first().map(|(root, _, key, _)| (*root, key.clone())).unwrap_or_default()
            }
        }
    }
}

/// Findings in a directory since its lease last reported.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirFindings {
    /// Directories, and whether they are new to the destination.
    pub dirs: Vec<(Raw, bool)>,
    /// Files for one lease.
    pub files: Vec<SourceEntry>,
    /// Files that who looked deals with before the lease ends. If he is lost, they are files for another lease.
    pub own: Vec<SourceEntry>,
    /// Files with several names.
    pub linked: Vec<SourceEntry>,
    /// Files that go in pieces.
    pub large: Vec<SourceEntry>,
    /// Entries that only the destination has: directories end in `/`.
    pub extra: Vec<Raw>,
    /// All up to this key is reported by now: the next holder looks at what follows it. `None` if it must look at all of it.
    pub last: Option<Raw>,
    /// A name vanished while it was listed, and may be there under another that was passed by already: nothing is proved to be
    /// missing in this directory.
    pub unsure: bool,
    /// Files and bytes that are to be dealt with.
    pub files_seen: u64,
    /// Their bytes.
    pub bytes_seen: u64,
    /// Counts.
    pub totals: Totals,
    /// Problems.
    pub problems: Vec<Problem>,
    /// Lines for `--verbose`, and for the findings of a check.
    pub lines: Vec<String>,
}

/// An error, as every rank prints it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// In one line, with the path.
    pub line: String,
    /// No room is left: nothing more can be written.
    pub full: bool,
    /// The source was missing when its turn came.
    pub vanished: bool,
}

impl From<String> for Problem {
    fn from(line: String) -> Problem {
        Problem { line, full: false, vanished: false }
    }
}

/// Work done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Directories that were looked at.
    pub dirs: u64,
    /// Files that were copied, or compared.
    pub files: u64,
    /// Symlinks that were.
    pub links: u64,
    /// Names of hard links.
    pub names: u64,
    /// Files that became hard links to those of `--link-dest`.
    pub linked: u64,
    /// Bytes of files that were copied, or compared.
    pub bytes: u64,
    /// Files that were the same already.
    pub same: u64,
    /// Files that differ, in a check.
    pub differ: u64,
    /// Names that only the source has, in a check.
    pub only_src: u64,
    /// Names that only the destination has, in a check.
    pub only_dst: u64,
    /// Files and directories that were deleted.
    pub deleted: u64,
    /// Files of which some attribute could not be kept.
    #[serde(rename = "unkept")]
    pub unpreserved: u64,
}

impl AddAssign for Totals {
    fn add_assign(&mut self, more: Totals) {
        self.dirs += more.dirs;
        self.files += more.files;
        self.links += more.links;
        self.names += more.names;
        self.linked += more.linked;
        self.bytes += more.bytes;
        self.same += more.same;
        self.differ += more.differ;
        self.only_src += more.only_src;
        self.only_dst += more.only_dst;
        self.deleted += more.deleted;
        self.unpreserved += more.unpreserved;
    }
}

/// How a large file was begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LargeFileStart {
    /// All bytes are to be written.
    Anew(Raw),
    /// The earlier run's file exists.
    Found(Raw),
    /// The file system shared all bytes at once.
    Whole(Raw),
    /// It has its name: it is a hard link to a file of `--link-dest`.
    Linked,
    /// It wasn't, as a directory is in its place that is to go.
    Blocked,
}

/// Result of a lease.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LeaseResult {
    /// Work done.
    pub totals: Totals,
    /// Problems.
    pub problems: Vec<Problem>,
    /// Which items of the lease failed, by number.
    pub failed: Vec<u32>,
    /// Those in whose place a directory is that is deleted with all else that goes.
    pub blocked: Vec<SourceEntry>,
    /// Of [`Work::Begin`].
    pub began: Option<LargeFileStart>,
    /// CRC-64 of a piece.
    pub crc: Option<u64>,
    /// The directory got its attributes too.
    pub finished: bool,
    /// It wasn't done: the rank was stopped, or had been given up.
    pub undone: bool,
    /// Lines for `--verbose`, and for the findings of a check.
    pub lines: Vec<String>,
}

/// From a rank to the coordinator.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RankMessage {
    /// More was found in a directory that is still looked at.
    Found(u64, DirFindings),
    /// So many more bytes of a piece are written, and their CRC-64; the lease is of the rest from now on.
    Part(u64, u64, u64),
    /// A lease ended.
    Done(u64, LeaseResult),
    /// The rank lives.
    Beat {
        /// Which sign of life.
        number: u64,
        /// Bytes moved so far.
        moved: u64,
        /// It was told to stop.
        stop: bool,
        /// Leases that hang in a file system since the last beat, and whether a thread has begun them.
        hung: Vec<(u64, bool)>,
    },
    /// It takes part with this many threads and sees these mounts, or why it can't.
    Ready(Result<(usize, Mounts), String>),
    /// It has nothing to do any more.
    Bye,
}

/// Tells the folder of each destination from others, on every node alike: number of its inode, and when that was made. `None` where it
/// isn't there.
pub type TargetIdentities = Vec<Option<(u64, String)>>;

/// When a job began: change time of something that it made then in each destination, by the clock of that file system.
pub type JobStart = Vec<Option<(i64, u32)>>;

/// Where file systems are mounted below each folder of a job, by paths in that folder.
pub type Mounts = Vec<Vec<Raw>>;

/// Facts that a rank must see to work on the same files as the others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameFilesProof {
    /// A file at the destination, and its content.
    pub nonce: Option<(Raw, String)>,
    /// Number of each source's inode, and when that was made.
    pub sources: Vec<(u64, String)>,
    /// Identity of each destination's folder.
    pub targets: TargetIdentities,
    /// Identity of the folder of `--link-dest`.
    pub link_dest: Option<(u64, String)>,
    /// Mounts below all of these.
    pub mounts: Mounts,
}

/// From the coordinator to a rank.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum CoordinatorMessage {
    /// The job, and what must be seen.
    Start(Box<Job>, SameFilesProof),
    /// Further mounts that are required, since some rank has them.
    Mounts(Mounts),
    /// Work.
    Lease(u64, Work),
    /// A beat came.
    Heard(u64),
    /// All is done; the exit code.
    End(u8),
}
