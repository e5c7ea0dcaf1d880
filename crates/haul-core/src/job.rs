//! The user's request as plain data: which files count as the same, which may be overwritten or deleted, and when to
//! stop. Each group of fields answers one question; a front end fills them in, and the engine acts on them.
//!
//! A job can be serialised. Missing fields have their defaults; an unknown field is an error, since
//! ignoring it could delete files that it protects. Filter, stores and secrets aren't part of a job.

use crate::{Entry, Meta, Mtime, attributes::changed, keep::Keep, links::SourceLinks, part::Part, ranges::WINDOW};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// One job, independent of its two stores.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Job {
    /// The operation.
    pub verb: Verb,
    /// Do nothing, report what would be done (`--dry-run`).
    pub dry_run: bool,
    /// When two files of one name are the same.
    pub compare: Compare,
    /// How to treat files that the destination already has.
    pub existing: Existing,
    /// Which files are deleted, when, and how much at most.
    pub deletes: Deletes,
    /// Alternate places for the same content.
    pub elsewhere: AlternatePlaces,
    /// How the two sides are listed.
    pub listing: Listing,
    /// How to treat directories.
    pub dirs: Dirs,
    /// How to treat symlinks.
    pub links: Links,
    /// Facts that are copied besides the bytes.
    pub attributes: Attributes,
    /// How files are written.
    pub write: Write,
    /// When to stop.
    pub limits: Limits,
    /// How much happens at once, in which order, and how often it is tried.
    pub pace: Pace,
    /// Events that the sink gets beyond those about work done.
    pub tell: ExtraEvents,
}

impl Job {
    /// A job with rclone's defaults, where rclone has them.
    pub fn new(verb: Verb) -> Job {
        Job::default().with(|job| job.verb = verb)
    }

    /// This job with some fields changed.
    pub fn with(mut self, change: impl FnOnce(&mut Job)) -> Job {
        change(&mut self);
        self
    }

    /// Sources are deleted once they are proved to be at the destination.
    pub fn moves(&self) -> bool {
        self.verb == Verb::Move || self.deletes.sources
    }
}

/// Treatment of the pairs that a job finds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Copies new and changed files; deletes nothing.
    #[default]
    Copy,
    /// Makes the destination equal to the source: deletes what is missing from the source.
    Sync,
    /// Copies, then deletes each source file that is proved to be at the destination.
    Move,
    /// Compares only.
    Check,
}

/// When two files of one name are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compare {
    /// The facts that decide.
    pub by: CompareBy,
    /// Ignore sizes, also when a transferred file is verified (`--ignore-size`).
    pub ignore_size: bool,
    /// Times this close are equal (`--modify-window`); `None` means the coarser of the two stores' precisions.
    pub window: Option<Duration>,
    /// Use the store's own LastModified instead of asking for the stored mtime (`--use-server-modtime`).
    pub server_mtime: bool,
    /// Role of modification times.
    pub times: Times,
    /// Without a common hash, equal sizes count as equal content: only the time is set (`--refresh-times`).
    pub refresh_times: bool,
}

/// The facts by which two files differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompareBy {
    /// Size and modification time; a hash when only the times differ.
    #[default]
    SizeAndTime,
    /// Size and hash (`--checksum`).
    Checksum,
    /// Size alone (`--size-only`).
    SizeOnly,
    /// None: transfer everything (`--ignore-times`).
    Never,
}

/// Role of modification times in a comparison.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Times {
    /// Evidence: another time means that the content may have changed.
    #[default]
    Evidence,
    /// An attribute: a file that is the same by size or hash gets the source's time, `update` only skips newer files, and a
    /// symlink is compared by its target.
    Attribute {
        /// Compare nanoseconds; otherwise whole seconds.
        nanoseconds: bool,
        /// A file with another time differs, without asking for hashes.
        decide: bool,
    },
}

/// How to treat files that the destination already has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Existing {
    /// Never touch it (`--ignore-existing`).
    pub ignore: bool,
    /// Never create new files (`--existing`).
    pub only: bool,
    /// Skip files that are newer at the destination (`--update`).
    pub update: bool,
    /// A file that exists and differs is an error (`--immutable`).
    pub immutable: bool,
    /// Transfer only files that are shorter at the destination, and only the missing end (`--append`).
    pub append: Option<Append>,
    /// Treatment of entries of another kind with the same name.
    pub other_kinds: OtherKinds,
    /// When the command began, by this machine's clock. A file that changed since then was written by this run: where two names
    /// may be the same place, it is never replaced.
    pub began: Option<Mtime>,
    /// Ending for replaced and deleted files that are kept (`--suffix`).
    pub backup_suffix: Option<String>,
    /// Put `backup_suffix` before the file's extension (`--suffix-keep-extension`).
    pub suffix_keep_extension: bool,
    /// A file that only the destination has isn't deleted if its name is that of a backup kept beside the files (`backup_suffix` without a
    /// backup directory); otherwise it is deleted, and isn't backed up again.
    pub spares_backups: bool,
}

impl Default for Existing {
    fn default() -> Self {
        Existing {
            ignore: false,
            only: false,
            update: false,
            immutable: false,
            append: None,
            other_kinds: OtherKinds::default(),
            began: None,
            backup_suffix: None,
            suffix_keep_extension: false,
            spares_backups: true,
        }
    }
}

/// How a file that grew is continued.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Append {
    /// Compare the existing bytes first; a file that differs in them is transferred whole (`--append-verify`).
    pub verify: bool,
}

/// Treatment of a file, directory or symlink of the destination where the source has an entry of another kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OtherKinds {
    /// It stays, and transferring the other is an error. Directories are made and compared at the end.
    #[default]
    Stay,
    /// It is replaced; a directory only when it is empty (or the job is a sync). Directories are made as they are found, and
    /// `ignore` and `only` hold for them too.
    Replace,
    /// It is replaced, a directory with all that it holds (`--force`).
    ReplaceWhole,
}

impl OtherKinds {
    /// True unless they stay.
    pub fn are_replaced(self) -> bool {
        self != OtherKinds::Stay
    }
}

/// Which files are deleted, when, and how much at most.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Deletes {
    /// When.
    pub when: DeleteWhen,
    /// Transfer nothing: only delete what is missing from the source. Directories keep their attributes.
    pub alone: bool,
    /// Delete each source file once it is at the destination (`--remove-source-files`), also in a sync.
    pub sources: bool,
    /// Delete excluded files at the destination too (`--delete-excluded`).
    pub excluded: bool,
    /// Delete devices, FIFOs and sockets too, even if they aren't copied.
    pub specials: bool,
    /// Delete a directory with everything in it, also below `max_depth`.
    pub below_max_depth: bool,
    /// Delete at most this many files (`--max-delete`).
    pub max: Option<u64>,
    /// Behaviour beyond the limit.
    pub beyond_max: BeyondMax,
    /// Stop with an error instead of deleting more than this many bytes (`--max-delete-size`).
    pub max_size: Option<u64>,
    /// Delete even after errors (`--ignore-errors`).
    pub ignore_errors: bool,
    /// After an error before the first transfer, delete nothing but continue with the transfers.
    pub errors_spare_transfers: bool,
    /// Let an empty source empty the destination (`--allow-empty-source`).
    pub allow_empty_source: bool,
}

/// When deletions happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeleteWhen {
    /// Before the first transfer (`--delete-before`).
    Before,
    /// As they are found (`--delete-during`).
    During,
    /// After the last transfer, if there was no error (`--delete-after`).
    #[default]
    After,
}

/// Behaviour when more would be deleted than the limit allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BeyondMax {
    /// Nothing is deleted.
    #[default]
    KeepAll,
    /// As many as allowed are deleted; the rest is kept and counted.
    KeepRest,
}

/// Alternate places for the same content. The places themselves are in the job's context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlternatePlaces {
    /// Recognise renamed files at the destination (`--track-renames`).
    pub renamed: Option<RenameBy>,
    /// Consult alternate destinations also for files that the destination has, and accept only a file that agrees in all kept
    /// attributes (rsync's rule). Otherwise they are consulted for missing files, and the same content is enough (rclone's).
    pub exact: bool,
    /// Hard-link files of alternate destinations instead of copying them (`--link-dest`).
    pub link: bool,
    /// At the end delete files of the destination that a place to compare with (`--compare-dest`) has too, unless there was an
    /// error.
    pub drop_spare: bool,
}

/// How a renamed file is recognised (`--track-renames-strategy`): everything that is on must agree, and the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RenameBy {
    /// Same hash.
    pub hash: bool,
    /// Same modification time.
    pub mtime: bool,
    /// Same last part of the name.
    pub leaf: bool,
}

/// How the two sides are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listing {
    /// Keys of this job, if it is only a part of one.
    pub part: Part,
    /// How haul finds out what the destination has.
    pub lookup: Lookup,
    /// Ask for files one by one instead of listing (`--no-traverse`): at the destination for those of the source, at the source for
    /// those that the filter names.
    pub no_traverse: bool,
    /// Recurse at most this deep; 1 is the top level only (`--max-depth`).
    pub max_depth: Option<usize>,
    /// Treatment of mount points.
    pub mounts: Mounts,
}

/// How haul finds out what the destination has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lookup {
    /// In the cheapest way.
    #[default]
    Cheapest,
    /// All of it is listed (`--fast-list`).
    ListAll,
    /// Not at all: everything is copied (`--no-check-dest`).
    Never,
}

/// Treatment of mount points below the root.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mounts {
    /// They are listed like any directory.
    #[default]
    Cross,
    /// Neither side is listed beyond its own file system (`--one-file-system`).
    Stay,
    /// Mount points themselves are left out of the source, too (`-xx`).
    Omit,
}

/// How to treat directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Dirs {
    /// Create empty source directories too (`--create-empty-src-dirs`).
    pub create_empty: bool,
    /// After a move, remove source directories left empty (`--delete-empty-src-dirs`).
    pub delete_empty_sources: bool,
    /// Leave out source directories that contain nothing but directories (`--prune-empty-dirs`).
    pub prune_empty: bool,
    /// Whether the root itself is part of the job.
    pub root: Root,
}

/// Whether the root itself is part of the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Root {
    /// It gets the source's attributes if those are kept, and isn't reported.
    #[default]
    Implied,
    /// It is compared and reported like any directory.
    Included,
    /// Only its contents are part of the job.
    Excluded,
}

/// How to treat symlinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Links {
    /// How the source's store presents them.
    pub source: SourceLinks,
    /// Leave out those that point out of the transferred tree (`--safe-links`); this many directories of the tree are above the
    /// job's root.
    pub safe: Option<usize>,
    /// Keep a symlink of the destination to a directory inside it where the source has a directory (`--keep-dirlinks`).
    pub keep_dirlinks: bool,
    /// Replace a symlink of the destination by the source's directory, as soon as a file is written into that; if false, the file is
    /// written to the link's target.
    #[serde(rename = "make_way")]
    pub replace_links: bool,
}

/// Facts that are copied besides the bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Attributes {
    /// Attributes of file systems to keep.
    pub keep: Keep,
    /// Copy metadata (`--metadata`).
    pub metadata: bool,
    /// Copy only the permissions of the metadata: `keep` wants them, and one end has them as metadata only. The engine finds that out.
    #[serde(skip)]
    pub permissions_alone: bool,
    /// Metadata to set on everything that is transferred (`--metadata-set`).
    pub metadata_set: Vec<(String, String)>,
    /// Keep set-uid, set-gid and sticky bits that come from outside this machine (`--metadata-setid`).
    pub keep_setid: bool,
    /// Leave modification times of unchanged content alone (`--no-update-modtime`).
    pub no_update_mtime: bool,
    /// Leave directory modification times alone (`--no-update-dir-modtime`).
    pub no_update_dir_mtime: bool,
    /// Set this modification time on every transferred file instead of the source's.
    pub set_time: Option<Mtime>,
    /// Leave times of symlinks alone; new symlinks get this time (`--omit-link-times`).
    pub omit_link_times: Option<Mtime>,
    /// Moved files keep only the attributes of `keep` and have no other names: unless all are kept, they get new inodes instead of
    /// being renamed.
    pub only_kept: bool,
}

impl Attributes {
    /// True where metadata, or part of it, is copied.
    pub fn takes_metadata(&self) -> bool {
        self.metadata || self.permissions_alone
    }

    /// The part of a file's or directory's metadata that is copied; `None` where that is empty.
    pub fn of_metadata(&self, meta: Option<&Meta>, is_dir: bool) -> Option<Meta> {
        let meta = meta.filter(|_| self.takes_metadata())?;
        if self.metadata {
            return Some(meta.clone());
        }
        let mode = u32::from_str_radix(meta.get("mode")?, 8).ok()?;
        let mode = changed(&self.keep.chmod, mode, is_dir);
        Some(Meta::from_iter([("mode".to_string(), format!("{mode:o}"))]))
    }
}

/// How files are written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Write {
    /// When a file gets its name.
    pub publish: Publish,
    /// Suffix of the hidden name that a file has during its transfer (`--partial-suffix`).
    pub partial_suffix: String,
    /// Zeros become holes (`--sparse`); holes of the source stay holes in any case.
    pub sparse: bool,
    /// When written data is forced to the device.
    pub fsync: Fsync,
    /// Drop the transferred data from the page cache (`--drop-cache`).
    pub drop_cache: bool,
    /// Delta transfer: build a file from the existing one, and send only the missing bytes, where both stores can.
    pub delta: bool,
    /// Don't check hashes after a transfer (`--ignore-checksum`).
    pub ignore_checksum: bool,
    /// Read back and hash the written file (`--verify=read`).
    pub verify_read: bool,
    /// Read a file once more before it is sent in parts, so that its MD5 is stored with it (`--store-md5`).
    pub store_md5: bool,
}

impl Default for Write {
    fn default() -> Self {
        Write {
            publish: Publish::default(),
            partial_suffix: ".partial".into(),
            sparse: false,
            fsync: Fsync::default(),
            drop_cache: false,
            delta: false,
            ignore_checksum: false,
            verify_read: false,
            store_md5: false,
        }
    }
}

/// When a file gets its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Publish {
    /// When it is complete.
    #[default]
    WhenWhole,
    /// At once: it is written to its final name directly (`--inplace`).
    InPlace,
    /// When all have arrived (`--delay-updates`).
    AtEnd,
}

/// When written data is forced to the device (`--fsync`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fsync {
    /// When the kernel decides to.
    #[default]
    None,
    /// Each file before it gets its name.
    File,
    /// Everything, once, at the end of the job.
    End,
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Stop after this many bytes (`--max-transfer`).
    pub transfer: Option<u64>,
    /// How to stop then.
    pub cutoff: Cutoff,
    /// Start no transfer after this time (`--max-duration`).
    pub duration: Option<Duration>,
    /// Bytes that may be held in memory for transfers (`--max-memory`).
    pub memory: u64,
    /// Entries of each listing that may wait in memory for those before them, some 330 bytes each.
    pub listed: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { transfer: None, cutoff: Cutoff::default(), duration: None, memory: 512 << 20, listed: WINDOW }
    }
}

/// Behaviour when a limit is reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cutoff {
    /// Stop at once.
    #[default]
    Hard,
    /// Finish running transfers, start no new ones.
    Soft,
    /// Start only what still fits.
    Cautious,
}

/// How much happens at once, in which order, and how often it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Pace {
    /// Files transferred at once (`--transfers`); `None` lets haul choose.
    pub transfers: Option<usize>,
    /// Metadata requests at once (`--checkers`); `None` lets haul choose.
    pub checkers: Option<usize>,
    /// Parts of one file in flight (`--multi-thread-streams`); `None` lets haul choose, 0 and 1 mean one stream.
    pub streams: Option<usize>,
    /// Send files of at least this many bytes in parts (`--multi-thread-cutoff`); `None` lets the destination choose.
    pub parts_cutoff: Option<u64>,
    /// Bytes of a part (`--multi-thread-chunk-size`); `None` lets the store choose.
    pub part_size: Option<u64>,
    /// Order of the transfers.
    pub order_by: Option<OrderBy>,
    /// List and compare everything before the first transfer (`--check-first`).
    pub check_first: bool,
    /// How often a file that fails is tried again from its start (`--retries` − 1).
    pub file_retries: u32,
    /// How long to wait before such a retry (`--retries-sleep`).
    pub retries_sleep: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Pace {
            transfers: None,
            checkers: None,
            streams: None,
            parts_cutoff: None,
            part_size: None,
            order_by: None,
            check_first: false,
            file_retries: 2,
            retries_sleep: Duration::ZERO,
        }
    }
}

/// In which order waiting transfers start (`--order-by`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferOrder {
    /// By size in bytes.
    Size,
    /// By key.
    Name,
    /// By modification time.
    Mtime,
}

/// `--order-by FIELD,DIRECTION[,PERCENT]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OrderBy {
    /// The field.
    pub by: TransferOrder,
    /// Largest first.
    pub descending: bool,
    /// `mixed`: this share of the transfers (percent, 0–100) takes from the small end, the rest from the other.
    pub mixed: Option<u8>,
}

/// Which symlinks of a local source are read, so that events say where they point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkTargets {
    /// None.
    #[default]
    None,
    /// Those that are created or changed.
    OfChanges,
    /// All.
    OfAll,
}

/// Events that the sink gets beyond those about work done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ExtraEvents {
    /// Nothing of symlinks that are neither followed nor kept (`--skip-links`).
    pub no_links: bool,
    /// Nothing of devices, FIFOs and sockets that aren't kept (`--skip-specials`).
    pub no_specials: bool,
    /// Files that only the destination has and that aren't deleted, as far as it is listed.
    pub extra: bool,
    /// Directories, entries left out of the source and why, and which file system attributes differ.
    pub details: bool,
    /// Where symlinks point.
    pub targets: LinkTargets,
}

impl ExtraEvents {
    /// True when listings need facts of inodes for the events that the sink gets.
    pub fn needs_posix(&self) -> bool {
        self.details || self.no_links != self.no_specials
    }

    /// True when an event reports that this entry is left out because of its kind.
    pub fn of_left_out(&self, entry: &Entry) -> bool {
        match entry.posix.as_deref().map(|posix| posix.is_symlink()) {
            Some(true) => !self.no_links,
            Some(false) => !self.no_specials,
            // Only asked for where it makes a difference.
            None => !(self.no_links && self.no_specials),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{from_str, from_value, json};

    proptest! {
        #[test]
        fn every_job_comes_back_from_its_text(job in crate::samples::any_job()) {
            let text = serde_json::to_string(&job).unwrap();
            prop_assert_eq!(from_str::<Job>(&text).unwrap(), job);
        }
    }

    #[test]
    fn what_is_not_written_has_its_default() {
        assert_eq!(from_str::<Job>("{}").unwrap(), Job::default());
        let short = json!({"verb": "sync", "deletes": {"max": 3}, "pace": {"order_by": {"by": "size", "descending": true, "mixed": null}}});
        let job = Job::new(Verb::Sync).with(|job| {
            job.deletes.max = Some(3);
            job.pace.order_by = Some(OrderBy { by: TransferOrder::Size, descending: true, mixed: None });
        });
        assert_eq!(from_value::<Job>(short).unwrap(), job);
    }

    #[test]
    fn what_nobody_knows_is_an_error() {
        for unknown in [json!({"delete": false}), json!({"deletes": {"never": true}}), json!({"verb": "purge"})] {
            assert!(from_value::<Job>(unknown.clone()).is_err(), "{unknown}");
        }
    }
}
