//! What the user asked for, as plain data: which files count as the same, what may be overwritten or deleted,
//! and the limits to stop at.

use crate::{Mtime, links::SourceLinks};
use std::{ops::RangeInclusive, time::Duration};

/// What a job does with the pairs it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Brings new and changed files over; deletes nothing.
    Copy,
    /// Makes the destination equal to the source, deleting what the source lacks.
    Sync,
    /// Copies, then deletes each source file that is proved to be at the destination.
    Move,
    /// Compares only.
    Check,
}

/// How to tell whether two files of one name are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compare {
    /// Size and modification time; a hash when only the times differ.
    #[default]
    SizeAndTime,
    /// Size and hash (`--checksum`).
    Checksum,
    /// Size alone (`--size-only`).
    SizeOnly,
    /// Nothing is the same: transfer everything (`--ignore-times`).
    Never,
}

/// When deletions happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeleteWhen {
    /// Before the first transfer (`--delete-before`).
    Before,
    /// As they are found (`--delete-during`).
    During,
    /// After the last transfer, if there was no error (`--delete-after`).
    #[default]
    After,
}

/// What happens when `--max-transfer` is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Cutoff {
    /// Stop at once.
    #[default]
    Hard,
    /// Finish what is running, start nothing new.
    Soft,
    /// Start only what still fits.
    Cautious,
}

/// In which order waiting transfers start (`--order-by`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// By size in bytes.
    Size,
    /// By key.
    Name,
    /// By modification time.
    Mtime,
}

/// `--order-by FIELD,DIRECTION[,PERCENT]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderBy {
    /// The field.
    pub by: Order,
    /// Largest first.
    pub descending: bool,
    /// `mixed`: this share of the transfers (percent, 0–100) takes from the small end, the rest from the other.
    pub mixed: Option<u8>,
}

/// By what a renamed file is recognised (`--track-renames-strategy`); all that are on must agree, with the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RenameBy {
    /// Same hash.
    pub hash: bool,
    /// Same modification time.
    pub mtime: bool,
    /// Same last part of the name.
    pub leaf: bool,
}

/// Which attributes of files go along between file systems, beside the modification time (`--archive` and its parts).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// The same of groups (`--chown`, `--groupmap`).
    pub groups: IdMap,
}

/// Which ids of the source become which others at the destination. The first rule that holds an id counts; an id that none
/// holds is kept or not, as the other rules say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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

    /// What an id becomes, if that is said.
    pub fn of(&self, id: u32) -> Option<u32> {
        self.0.iter().find(|(from, _)| from.contains(&id)).map(|(_, to)| *to)
    }

    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One change of permission bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chmod {
    /// Applies to directories.
    pub dirs: bool,
    /// Applies to all but directories.
    pub files: bool,
    /// Bits that are taken away, then
    pub clear: u32,
    /// bits that are set.
    pub set: u32,
    /// Execute bits (of `0o111`) that are set where the file is a directory or has one of them already (`X`).
    pub exec_if_any: u32,
    /// What one class has is given to others, or taken from them (`g=u`, `go-u`).
    pub copied: Option<Copied>,
}

/// Permissions that go by those of one class: user, group or others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// How far the three bits of that class are shifted: 6, 3 or 0.
    pub from: u32,
    /// The bits of those who get or lose them.
    pub to: u32,
    /// They lose what that class has.
    pub taken: bool,
}

impl Chmod {
    /// `bits` after this change. `executable`: of a directory, or of a file that had an execute bit before all changes.
    pub fn apply(&self, bits: u32, executable: bool) -> u32 {
        let more = if executable { self.exec_if_any } else { 0 };
        // What a class has is asked before any of it goes.
        let (given, taken) = match self.copied {
            Some(copied) => match (((bits >> copied.from) & 7) * 0o111) & copied.to {
                had if copied.taken => (0, had),
                had => (had, 0),
            },
            None => (0, 0),
        };
        (bits & !self.clear & !taken) | self.set | more | given
    }
}

/// When what was written is forced to the device (`--fsync`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fsync {
    /// When the kernel likes to.
    #[default]
    None,
    /// Each file before it gets its name.
    File,
    /// Everything, once, at the end of the job.
    End,
}

/// What rsync does otherwise than rclone, beside what other fields say. With it, times are compared in whole seconds; a
/// symlink is compared by where it points; what is the same by size or hash alone gets the source's time; `--update` only
/// skips what is newer; `--max-delete` leaves what is beyond it; and what is in the way of something of another kind is
/// replaced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RsyncHabits {
    /// When the command began, by the clock of this machine.
    pub began: Option<Mtime>,
    /// Everything that is transferred gets this time instead of the source's (without `--times`).
    pub set_time: Option<Mtime>,
    /// Times must be equal to the nanosecond (`--modify-window=-1`).
    pub nanoseconds: bool,
    /// Another time is another file: no hash is asked whether the bytes are the same.
    pub time_decides: bool,
    /// Only what is shorter at the destination is transferred, and only what it lacks (`--append`).
    pub append: bool,
    /// With `append`: what is there is compared first; a file that begins otherwise is transferred whole
    /// (`--append-verify`).
    pub append_verify: bool,
    /// Each source that arrived is deleted (`--remove-source-files`), in a sync too.
    pub remove_source: bool,
    /// Times of symlinks are left alone; new ones get this time (`--omit-link-times`).
    pub omit_link_times: Option<Mtime>,
    /// Directories that hold nothing but directories count as absent from the source (`--prune-empty-dirs`).
    pub prune_empty_dirs: bool,
    /// Symlinks go along as such (`--links`).
    pub links: bool,
    /// Symlinks that lead out of what is transferred are left out (`--safe-links`); so many directories of it are above the
    /// job's root.
    pub safe_links: Option<usize>,
    /// A symlink to a directory inside the destination stays where the source has a directory (`--keep-dirlinks`).
    pub keep_dirlinks: bool,
    /// Files get their names when all have arrived (`--delay-updates`).
    pub delay_updates: bool,
    /// Nothing is transferred: what the source lacks is deleted, and directories keep their attributes.
    pub deletes_only: bool,
    /// How the source's store was opened to show its symlinks (`--copy-dirlinks`, `--copy-unsafe-links`, `--munge-links`).
    pub source_links: SourceLinks,
    /// Neither side is listed beyond its own file system (`--one-file-system`).
    pub one_device: bool,
    /// The source doesn't even show the directories where others begin (`-xx`).
    pub omit_mounts: bool,
    /// A directory in the way of a file goes with all that is in it (`--force`).
    pub force: bool,
    /// The job's root is part of the transfer.
    pub top_dir: bool,
    /// What `Cx::copy_dest` has gets a second name (`--link-dest`) instead of being copied.
    pub link: bool,
    /// What the destination has although `Cx::compare_dest` has all of it goes at the end, unless there was an error.
    pub drop_spare: bool,
}

/// The rules of one job.
#[derive(Clone, Debug)]
pub struct Policy {
    /// How to compare.
    pub compare: Compare,
    /// Sizes don't count in a comparison, nor when what arrived is checked (`--ignore-size`).
    pub ignore_size: bool,
    /// Never touch what exists (`--ignore-existing`).
    pub ignore_existing: bool,
    /// Never create what doesn't exist (`--existing`).
    pub existing_only: bool,
    /// Skip what is newer at the destination (`--update`).
    pub update: bool,
    /// A file that exists and differs is an error (`--immutable`).
    pub immutable: bool,
    /// Times this close are equal (`--modify-window`); `None` means the coarser of the two stores' precisions.
    pub modify_window: Option<Duration>,
    /// Don't check hashes after a transfer (`--ignore-checksum`).
    pub ignore_checksum: bool,
    /// Leave modification times of unchanged content alone (`--no-update-modtime`).
    pub no_update_mtime: bool,
    /// Leave directory modification times alone (`--no-update-dir-modtime`).
    pub no_update_dir_mtime: bool,
    /// Use the store's own LastModified instead of asking for the stored mtime (`--use-server-modtime`).
    pub use_server_mtime: bool,
    /// Don't list the destination: look up each source file (`--no-traverse`).
    pub no_traverse: bool,
    /// List all of the destination, whatever would be cheaper (`--fast-list`).
    pub list_all: bool,
    /// Report files that only the destination has where they aren't deleted, as far as it is listed.
    pub tell_extra: bool,
    /// Don't look at the destination at all: copy everything (`--no-check-dest`).
    pub no_check_dest: bool,
    /// List and compare everything before the first transfer (`--check-first`).
    pub check_first: bool,
    /// Create empty source directories too (`--create-empty-src-dirs`).
    pub create_empty_dirs: bool,
    /// After a move, remove source directories left empty (`--delete-empty-src-dirs`).
    pub delete_empty_src_dirs: bool,
    /// When to delete.
    pub delete_when: DeleteWhen,
    /// Delete excluded files at the destination too (`--delete-excluded`).
    pub delete_excluded: bool,
    /// Stop with an error instead of deleting more than this many files (`--max-delete`).
    pub max_delete: Option<u64>,
    /// Stop with an error instead of deleting more than this many bytes (`--max-delete-size`).
    pub max_delete_size: Option<u64>,
    /// Delete even after errors (`--ignore-errors`).
    pub ignore_errors: bool,
    /// Let an empty source empty the destination (`--allow-empty-source`).
    pub allow_empty_source: bool,
    /// Copy metadata (`--metadata`).
    pub metadata: bool,
    /// Keep set-uid, set-gid and sticky bits that come from outside this machine (`--metadata-setid`).
    pub keep_setid: bool,
    /// Metadata to set on everything that is transferred (`--metadata-set`).
    pub metadata_set: Vec<(String, String)>,
    /// What of a file system's attributes goes along.
    pub keep: Keep,
    /// Zeros become holes (`--sparse`); holes of the source stay holes in any case.
    pub sparse: bool,
    /// When what was written is forced to the device.
    pub fsync: Fsync,
    /// What passed is taken out of the page cache again (`--drop-cache`).
    pub drop_cache: bool,
    /// Write to the final name directly (`--inplace`).
    pub inplace: bool,
    /// Suffix of the hidden name that a file has during its transfer (`--partial-suffix`).
    pub partial_suffix: String,
    /// Ending for replaced and deleted files that are kept (`--suffix`).
    pub backup_suffix: Option<String>,
    /// Put `--suffix` before the file's extension (`--suffix-keep-extension`).
    pub suffix_keep_extension: bool,
    /// Recognise renamed files at the destination (`--track-renames`).
    pub track_renames: Option<RenameBy>,
    /// Order of the transfers.
    pub order_by: Option<OrderBy>,
    /// Stop after this many bytes (`--max-transfer`).
    pub max_transfer: Option<u64>,
    /// How to stop then.
    pub cutoff: Cutoff,
    /// Start no transfer after this time (`--max-duration`).
    pub max_duration: Option<Duration>,
    /// Do nothing, say what would be done (`--dry-run`).
    pub dry_run: bool,
    /// How often a file that fails is tried again from its start (`--retries` − 1).
    pub file_retries: u32,
    /// How long to wait before such a retry (`--retries-sleep`).
    pub retries_sleep: Duration,
    /// Files transferred at once (`--transfers`); `None` lets haul choose.
    pub transfers: Option<usize>,
    /// Metadata requests at once (`--checkers`); `None` lets haul choose.
    pub checkers: Option<usize>,
    /// Parts of one file in flight (`--multi-thread-streams`); `None` lets haul choose, 0 and 1 mean one stream.
    pub streams: Option<usize>,
    /// Files of at least this many bytes go in parts (`--multi-thread-cutoff`); `None` lets the destination choose.
    pub parts_cutoff: Option<u64>,
    /// Bytes of a part (`--multi-thread-chunk-size`); `None` lets the store choose.
    pub part_size: Option<u64>,
    /// Bytes that may be held in memory for transfers (`--max-memory`).
    pub max_memory: u64,
    /// Read back and hash what was written (`--verify=read`).
    pub verify_read: bool,
    /// Read a file once more before it goes in parts, so that its MD5 is kept with it (`--store-md5`).
    pub store_md5: bool,
    /// Recurse at most this deep; 1 is the top level only (`--max-depth`).
    pub max_depth: Option<usize>,
    /// rsync's habits; `None` means rclone's.
    pub rsync: Option<RsyncHabits>,
}

impl Policy {
    /// Sources are deleted once they are proved to be at the destination.
    pub fn moves(&self, mode: Mode) -> bool {
        mode == Mode::Move || self.rsync.as_ref().is_some_and(|habits| habits.remove_source)
    }
}

impl Default for Policy {
    /// rclone's defaults, where rclone has them.
    fn default() -> Self {
        Policy {
            compare: Compare::default(),
            ignore_size: false,
            ignore_existing: false,
            existing_only: false,
            update: false,
            immutable: false,
            modify_window: None,
            ignore_checksum: false,
            no_update_mtime: false,
            no_update_dir_mtime: false,
            use_server_mtime: false,
            no_traverse: false,
            list_all: false,
            tell_extra: false,
            no_check_dest: false,
            check_first: false,
            create_empty_dirs: false,
            delete_empty_src_dirs: false,
            delete_when: DeleteWhen::default(),
            delete_excluded: false,
            max_delete: None,
            max_delete_size: None,
            ignore_errors: false,
            allow_empty_source: false,
            metadata: false,
            keep_setid: false,
            metadata_set: Vec::new(),
            keep: Keep::default(),
            sparse: false,
            fsync: Fsync::default(),
            drop_cache: false,
            inplace: false,
            partial_suffix: ".partial".into(),
            backup_suffix: None,
            suffix_keep_extension: false,
            track_renames: None,
            order_by: None,
            max_transfer: None,
            cutoff: Cutoff::default(),
            max_duration: None,
            dry_run: false,
            file_retries: 2,
            retries_sleep: Duration::ZERO,
            transfers: None,
            checkers: None,
            streams: None,
            parts_cutoff: None,
            part_size: None,
            max_memory: 512 << 20,
            verify_read: false,
            store_md5: false,
            max_depth: None,
            rsync: None,
        }
    }
}
