//! Flags about comparing, transferring and deleting; they become a [`Job`].

use super::values::{Span, bytes, duration, size, span};
use crate::{error::usage, machine};
use anyhow::Result;
use clap::ValueEnum;
use haul_core::{
    job::{
        AlternatePlaces, Attributes, Compare, CompareBy, Cutoff, DeleteWhen, Deletes, Existing, Fsync, Job, Limits,
        Links, Listing, Lookup, Mounts, OrderBy, Pace, Publish, RenameBy, Times, TransferOrder, Write,
    },
    part::Part,
    units::Size,
};

/// What counts as the same, and how it is brought over.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Copy")]
pub struct CopyFlags {
    /// Compare and check everything before the first transfer
    #[arg(long)]
    pub check_first: bool,
    /// Compare size and checksum instead of size and modification time
    #[arg(long, short = 'c')]
    pub checksum: bool,
    /// Skip files that are already in this other path (may repeat)
    #[arg(long, value_name = "PATH")]
    pub compare_dest: Vec<std::ffi::OsString>,
    /// Like --compare-dest, but copy the file from there, inside the provider (may repeat)
    #[arg(long, value_name = "PATH")]
    pub copy_dest: Vec<std::ffi::OsString>,
    /// How to stop when --max-transfer or --max-duration is reached
    #[arg(long, value_name = "MODE", ignore_case = true, default_value = "hard")]
    pub cutoff_mode: CutoffMode,
    /// Drop copied data from the page cache, so that a large copy doesn't evict other programs' data
    #[arg(long)]
    pub drop_cache: bool,
    /// Update existing files only; create no files at the destination
    #[arg(long)]
    pub existing: bool,
    /// When to flush written data to the device
    #[arg(long, value_name = "WHEN", default_value = "none")]
    pub fsync: FsyncWhen,
    /// Don't compare checksums after a transfer
    #[arg(long)]
    pub ignore_checksum: bool,
    /// Treat names that differ only by case as the same file; keeps all names in memory
    #[arg(long)]
    pub ignore_case_sync: bool,
    /// Skip all files that exist at the destination
    #[arg(long)]
    pub ignore_existing: bool,
    /// Ignore sizes, when comparing and after a transfer
    #[arg(long)]
    pub ignore_size: bool,
    /// Transfer everything, whatever the comparison says
    #[arg(long, short = 'I')]
    pub ignore_times: bool,
    /// Never overwrite an existing file that differs; report an error instead
    #[arg(long)]
    pub immutable: bool,
    /// Write to the final name instead of a hidden file that is renamed at the end
    #[arg(long)]
    pub inplace: bool,
    /// Start no new transfer after this time
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub max_duration: Option<Span>,
    /// Maximum memory for transfers [default: an eighth of the machine's or the job's, at most 1Gi]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_memory: Option<Size>,
    /// Stop after transferring this much
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_transfer: Option<Size>,
    /// Treat times this close as equal [default: the coarser precision of the two sides]
    #[arg(long, value_name = "DURATION", value_parser = span)]
    pub modify_window: Option<Span>,
    /// Size of the parts of large files [default: the store's choice]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub multi_thread_chunk_size: Option<Size>,
    /// Transfer files of at least this size in parts [default: 8Mi to a disk; to S3 above --s3-upload-cutoff, 32Mi]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub multi_thread_cutoff: Option<Size>,
    /// Concurrent parts of one file [default: found automatically]
    #[arg(long, value_name = "N")]
    pub multi_thread_streams: Option<usize>,
    /// Change names during the transfer: prefix=X, suffix=X, regex=PATTERN/NEW, lowercase, all,nfc … (may repeat; see the manual)
    #[arg(long, value_name = "HOW")]
    pub name_transform: Vec<String>,
    /// Don't check the destination: copy everything
    #[arg(long)]
    pub no_check_dest: bool,
    /// Don't list the destination: look up each source file
    #[arg(long)]
    pub no_traverse: bool,
    /// Leave the modification times of directories alone
    #[arg(long)]
    pub no_update_dir_modtime: bool,
    /// Leave the modification times of unchanged files alone
    #[arg(long)]
    pub no_update_modtime: bool,
    /// Order of the transfers: size, name or modtime, then ascending, descending or mixed: size,descending
    #[arg(long, value_name = "ORDER", value_parser = order_by)]
    pub order_by: Option<OrderBy>,
    /// Suffix of the hidden name that a file has during its transfer
    #[arg(long, value_name = "SUFFIX", default_value = ".partial")]
    pub partial_suffix: String,
    /// Where sizes are equal and no hash can be compared, set the time instead of copying again
    #[arg(long)]
    pub refresh_times: bool,
    /// Compare sizes only
    #[arg(long)]
    pub size_only: bool,
    /// Turn blocks of zeros into holes; holes of the source are always kept
    #[arg(long, short = 'S')]
    pub sparse: bool,
    /// Store the MD5 of large uploads as rclone does; each file is read once more beforehand
    #[arg(long)]
    pub store_md5: bool,
    /// Skip files that are newer at the destination
    #[arg(long, short = 'u')]
    pub update: bool,
    /// How to verify what was written; --verify=read reads it back and hashes it
    #[arg(long, value_name = "HOW")]
    pub verify: Option<Verify>,
}

/// Deleting, renaming and backing up at the destination.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Sync")]
pub struct SyncFlags {
    /// Let an empty source delete everything at the destination
    #[arg(long)]
    pub allow_empty_source: bool,
    /// Move replaced and deleted files into this path, on the same remote as the destination
    #[arg(long, value_name = "PATH")]
    pub backup_dir: Option<std::ffi::OsString>,
    /// Delete after the last transfer (the default)
    #[arg(long)]
    pub delete_after: bool,
    /// Delete before the first transfer
    #[arg(long, conflicts_with_all = ["delete_after", "delete_during"])]
    pub delete_before: bool,
    /// Delete as files are found
    #[arg(long, conflicts_with = "delete_after")]
    pub delete_during: bool,
    /// Delete even after errors
    #[arg(long)]
    pub ignore_errors: bool,
    /// Stop with an error instead of deleting more files than this
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub max_delete: Option<i64>,
    /// Stop with an error instead of deleting more bytes than this
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub max_delete_size: Option<Size>,
    /// Add this to the names of replaced and deleted files, which are kept
    #[arg(long, value_name = "SUFFIX")]
    pub suffix: Option<String>,
    /// Put --suffix before the file's extension
    #[arg(long)]
    pub suffix_keep_extension: bool,
    /// Recognise renamed files at the destination and rename them there
    #[arg(long)]
    pub track_renames: bool,
    /// How --track-renames recognises a file: hash, modtime, leaf, separated by commas
    #[arg(long, value_name = "HOW", value_parser = rename_by, default_value = "hash")]
    pub track_renames_strategy: RenameBy,
}

impl SyncFlags {
    /// So many files may be deleted; `None` without a limit, and where it is negative.
    pub fn max_delete(&self) -> Option<u64> {
        self.max_delete.and_then(|count| u64::try_from(count).ok())
    }
}

/// Metadata and symlinks.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Metadata and links")]
pub struct MetaFlags {
    /// Keep metadata: permissions, owner, content type, and user metadata
    #[arg(long, short = 'M')]
    pub metadata: bool,
    /// Set this metadata on everything that is transferred, with --metadata or without, as key=value (may repeat)
    #[arg(long, value_name = "KEY=VALUE", value_parser = key_value)]
    pub metadata_set: Vec<(String, String)>,
    /// Keep set-uid, set-gid and sticky bits that come from outside this machine
    #[arg(long)]
    pub metadata_setid: bool,
    /// Copy symlinks as symlinks, to S3 as small files that end in .rclonelink
    #[arg(long, short = 'l')]
    pub links: bool,
    /// Follow symlinks and copy their targets
    #[arg(long, short = 'L', conflicts_with = "links")]
    pub copy_links: bool,
    /// Don't mention symlinks that are skipped
    #[arg(long)]
    pub skip_links: bool,
    /// Don't mention devices, pipes and sockets that are skipped
    #[arg(long)]
    pub skip_specials: bool,
    /// Use the server's upload time as modification time, which saves requests
    #[arg(long)]
    pub use_server_modtime: bool,
}

/// How many at once, and how often again.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Performance and retries")]
pub struct PaceFlags {
    /// Concurrent metadata requests [default: found automatically]
    #[arg(long, value_name = "N")]
    pub checkers: Option<usize>,
    /// Concurrent file transfers [default: found automatically]
    #[arg(long, value_name = "N")]
    pub transfers: Option<usize>,
    /// How many times to try a failing file; the rest of the run isn't repeated
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub retries: u32,
    /// Wait between attempts at a failing file
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "0s")]
    pub retries_sleep: Span,
    /// How many times to try a failing request [default: 10; 3 for a server that has never answered]
    #[arg(long, value_name = "N")]
    pub low_level_retries: Option<u32>,
}

/// `--cutoff-mode`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum CutoffMode {
    /// Start nothing that would exceed --max-transfer; at --max-duration stop what is running
    Hard,
    /// Start no file once the started ones reach it; finish them
    Soft,
    /// Start only files that still fit
    Cautious,
}

/// `--fsync`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum FsyncWhen {
    /// Left to the kernel
    None,
    /// Each file before it gets its name, then its directory
    File,
    /// Everything, once, at the end
    End,
}

/// `--verify`.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Trust the store's own checksum answer (the default)
    Store,
    /// Read back and hash
    Read,
}

/// The rules of a job, as the flags say. What only a command's own flags know (`--create-empty-src-dirs`) is left at its
/// default.
pub fn job(flags: &super::Flags) -> Result<Job> {
    let (copy, sync, meta, pace) = (&flags.copy, &flags.sync, &flags.meta, &flags.pace);
    if copy.no_check_dest && (sync.backup_dir.is_some() || sync.suffix.is_some()) {
        return Err(usage(
            "--no-check-dest doesn't see what it replaces, so no backup can be kept: leave out one of them",
        ));
    }
    Ok(Job {
        dry_run: flags.config.dry_run,
        compare: Compare {
            by: compare_by(copy)?,
            ignore_size: copy.ignore_size,
            window: duration(copy.modify_window),
            server_mtime: meta.use_server_modtime,
            times: Times::Evidence,
            refresh_times: copy.refresh_times,
        },
        // A symlink that is copied as one isn't what it leads to.
        links: Links { replace_links: meta.links, ..Links::default() },
        existing: Existing {
            ignore: copy.ignore_existing,
            only: copy.existing,
            update: copy.update,
            immutable: copy.immutable,
            backup_suffix: backup_suffix(sync)?,
            suffix_keep_extension: sync.suffix_keep_extension,
            ..Existing::default()
        },
        deletes: Deletes {
            when: delete_when(sync),
            excluded: flags.filter.delete_excluded,
            max: sync.max_delete(),
            max_size: bytes(sync.max_delete_size),
            ignore_errors: sync.ignore_errors,
            allow_empty_source: sync.allow_empty_source,
            ..Deletes::default()
        },
        elsewhere: AlternatePlaces {
            renamed: sync.track_renames.then_some(sync.track_renames_strategy),
            ..AlternatePlaces::default()
        },
        listing: Listing {
            part: Part::All,
            lookup: match (copy.no_check_dest, flags.network.fast_list) {
                (true, _) => Lookup::Never,
                (false, true) => Lookup::ListAll,
                (false, false) => Lookup::Cheapest,
            },
            no_traverse: copy.no_traverse,
            max_depth: super::filter::max_depth(&flags.filter)?,
            mounts: if flags.filter.one_file_system { Mounts::Omit } else { Mounts::Cross },
        },
        attributes: Attributes {
            metadata: meta.metadata,
            metadata_set: meta.metadata_set.clone(),
            keep_setid: meta.metadata_setid,
            no_update_mtime: copy.no_update_modtime,
            no_update_dir_mtime: copy.no_update_dir_modtime,
            ..Attributes::default()
        },
        write: Write {
            publish: if copy.inplace { Publish::InPlace } else { Publish::WhenWhole },
            partial_suffix: partial_suffix(&copy.partial_suffix)?,
            sparse: copy.sparse,
            fsync: match copy.fsync {
                FsyncWhen::None => Fsync::None,
                FsyncWhen::File => Fsync::File,
                FsyncWhen::End => Fsync::End,
            },
            drop_cache: copy.drop_cache,
            // Between two hauls rsync's users have it; nobody asked for it here.
            delta: false,
            ignore_checksum: copy.ignore_checksum,
            verify_read: copy.verify == Some(Verify::Read),
            store_md5: copy.store_md5,
        },
        limits: Limits {
            transfer: bytes(copy.max_transfer),
            cutoff: match copy.cutoff_mode {
                CutoffMode::Hard => Cutoff::Hard,
                CutoffMode::Soft => Cutoff::Soft,
                CutoffMode::Cautious => Cutoff::Cautious,
            },
            // rclone's 0 means no limit.
            duration: duration(copy.max_duration).filter(|d| !d.is_zero()),
            memory: max_memory(copy),
            ..Limits::default()
        },
        pace: Pace {
            transfers: positive(pace.transfers, "--transfers")?,
            checkers: positive(pace.checkers, "--checkers")?,
            streams: copy.multi_thread_streams,
            parts_cutoff: copy.multi_thread_cutoff.map(|size| size.bytes().unwrap_or(u64::MAX)),
            part_size: bytes(copy.multi_thread_chunk_size),
            order_by: copy.order_by,
            check_first: copy.check_first,
            file_retries: pace.retries.max(1) - 1,
            retries_sleep: pace.retries_sleep.0.unwrap_or_default(),
        },
        tell: super::tell(flags),
        ..Job::default()
    })
}

/// Bytes that transfers may hold.
pub fn max_memory(copy: &CopyFlags) -> u64 {
    copy.max_memory.map_or_else(machine::memory, |size| size.bytes().unwrap_or(u64::MAX))
}

fn compare_by(copy: &CopyFlags) -> Result<CompareBy> {
    if copy.checksum && copy.size_only {
        return Err(usage("--checksum and --size-only can't be used together: choose one"));
    }
    Ok(match copy {
        CopyFlags { ignore_times: true, .. } => CompareBy::Never,
        CopyFlags { size_only: true, .. } => CompareBy::SizeOnly,
        CopyFlags { checksum: true, .. } => CompareBy::Checksum,
        _ => CompareBy::SizeAndTime,
    })
}

fn delete_when(sync: &SyncFlags) -> DeleteWhen {
    match sync {
        SyncFlags { delete_before: true, .. } => DeleteWhen::Before,
        SyncFlags { delete_during: true, .. } => DeleteWhen::During,
        _ => DeleteWhen::After,
    }
}

fn positive(n: Option<usize>, flag: &str) -> Result<Option<usize>> {
    if n == Some(0) {
        return Err(usage(format!("{flag} must be at least 1")));
    }
    Ok(n)
}

fn partial_suffix(suffix: &str) -> Result<String> {
    if suffix.is_empty() || suffix.len() > 16 || suffix.contains('/') {
        return Err(usage(format!("--partial-suffix {suffix:?} must have 1 to 16 bytes and no /")));
    }
    Ok(suffix.into())
}

fn backup_suffix(sync: &SyncFlags) -> Result<Option<String>> {
    match &sync.suffix {
        Some(suffix) if suffix.contains('/') => Err(usage(format!("--suffix {suffix:?} must not hold a /"))),
        Some(suffix) if suffix.is_empty() => Ok(None),
        other => Ok(other.clone()),
    }
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err(format!("{text:?} isn't key=value")),
    }
}

fn rename_by(text: &str) -> Result<RenameBy, String> {
    let mut by = RenameBy { hash: false, mtime: false, leaf: false };
    for word in text.split(',').map(str::trim).filter(|w| !w.is_empty()) {
        match word {
            "hash" => by.hash = true,
            "modtime" => by.mtime = true,
            "leaf" => by.leaf = true,
            other => return Err(format!("unknown strategy {other:?}: choose from hash, modtime, leaf")),
        }
    }
    if by == (RenameBy { hash: false, mtime: false, leaf: false }) {
        return Err(
            "no strategy, and files of one size aren't the same for that: choose from hash, modtime, leaf".into()
        );
    }
    Ok(by)
}

/// Share of the transfers that take from the small end under `mixed` when no number is given, in percent: rclone's.
const MIXED_DEFAULT: u8 = 50;

fn order_by(text: &str) -> Result<OrderBy, String> {
    let mut parts = text.split(',').map(str::trim);
    let by = match parts.next().unwrap_or_default() {
        "size" => TransferOrder::Size,
        "name" => TransferOrder::Name,
        "modtime" => TransferOrder::Mtime,
        other => return Err(format!("unknown field {other:?}: choose from size, name, modtime")),
    };
    let (descending, mixed) = match parts.next() {
        None | Some("asc" | "ascending") => (false, None),
        Some("desc" | "descending") => (true, None),
        Some("mixed") => (false, Some(mixed_percent(parts.next())?)),
        Some(other) => {
            return Err(format!("unknown direction {other:?}: choose from ascending, descending, mixed"));
        }
    };
    match parts.next() {
        Some(rest) => Err(format!("{rest:?} is too much: write FIELD,DIRECTION, or FIELD,mixed,PERCENT")),
        None => Ok(OrderBy { by, descending, mixed }),
    }
}

fn mixed_percent(text: Option<&str>) -> Result<u8, String> {
    let Some(text) = text else { return Ok(MIXED_DEFAULT) };
    match text.parse() {
        Ok(percent @ 0..=100) => Ok(percent),
        _ => Err(format!("{text:?} isn't a share from 0 to 100 percent")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_read() {
        let of = |by, descending, mixed| Ok(OrderBy { by, descending, mixed });
        assert_eq!(order_by("size"), of(TransferOrder::Size, false, None));
        assert_eq!(order_by("size,descending"), of(TransferOrder::Size, true, None));
        assert_eq!(order_by("name,asc"), of(TransferOrder::Name, false, None));
        assert_eq!(order_by("modtime,mixed"), of(TransferOrder::Mtime, false, Some(50)));
        assert_eq!(order_by("size,mixed,75"), of(TransferOrder::Size, false, Some(75)));
        for bad in ["", "hash", "size,up", "size,mixed,101", "size,asc,1", "size,mixed,1,2"] {
            assert!(order_by(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn rename_strategies_are_read() {
        assert_eq!(rename_by("modtime,leaf"), Ok(RenameBy { hash: false, mtime: true, leaf: true }));
        assert!(rename_by("").is_err() && rename_by(" , ").is_err());
        assert_eq!(rename_by("size").unwrap_err(), r#"unknown strategy "size": choose from hash, modtime, leaf"#);
    }
}
