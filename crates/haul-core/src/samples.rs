//! Values of any kind for tests by property: what crosses a wire comes back as it was.

use crate::{
    Algo, Entry, Error, ErrorKind, Hashes, Key, Kind, Mtime, Posix, Retry, Side, Version,
    attributes::Differs,
    chmod::Chmod,
    compare::{Difference, FileType, Reason},
    event::{ErrorReport, Facts},
    job,
    keep::{IdMap, Keep},
    links::{Munge, SourceLinks},
    part::{KeyRange, Part},
    plan::{self, Action, Step, UseAs},
};
use proptest::{collection::vec, option, prelude::*, sample::select};
use std::{sync::Arc, time::Duration};

/// Names, of text and of other bytes.
pub(crate) fn key() -> impl Strategy<Value = Key> {
    let bytes = || prop_oneof![vec(any::<u8>(), 0..12), "[a-zé/\n\"]{0,8}".prop_map(String::into_bytes)];
    prop_oneof![bytes().prop_map(Key::new), bytes().prop_map(Key::symlink)]
}

/// Errors.
pub(crate) fn error() -> impl Strategy<Value = ErrorReport> {
    let kinds = select(vec![ErrorKind::NotFound, ErrorKind::Busy, ErrorKind::DirNotFound, ErrorKind::Io]);
    let retry = prop_oneof![
        Just(Retry::Never),
        Just(Retry::Backoff),
        (any::<u32>(), 0..1_000_000_000u32).prop_map(|(s, n)| Retry::After(Duration::new(s.into(), n)))
    ];
    (kinds, retry, ".{0,6}", ".{0,20}", option::of(key())).prop_map(|(kind, retry, op, message, key)| {
        let error = Error::new(kind, op, message).with_retry(retry);
        Arc::new(match key {
            Some(key) => error.with_key(&key),
            None => error,
        })
    })
}

/// Reasons.
pub(crate) fn reason() -> impl Strategy<Value = Reason> {
    select(vec![
        Reason::Missing,
        Reason::Extra,
        Reason::StoredAfterChange,
        Reason::Hash(Algo::Md5Text),
        Reason::Hash(Algo::Blake3),
        Reason::Attributes(Differs { mtime: true, acls: true, ..Differs::default() }),
    ])
}

/// A difference between two entries.
pub(crate) fn difference() -> impl Strategy<Value = Difference> {
    let what = select(vec![FileType::File, FileType::Dir, FileType::Link, FileType::Device, FileType::Special]);
    (what, any::<[bool; 10]>()).prop_map(
        |(what, [new, size, mtime, perms, executable, owner, group, atime, xattrs, acls])| Difference {
            what,
            new,
            size,
            mtime,
            perms,
            executable,
            owner,
            group,
            atime,
            xattrs,
            acls,
        },
    )
}

/// Times before and after 1970.
fn time() -> impl Strategy<Value = Mtime> {
    any::<i64>().prop_map(|nanos| Mtime(i128::from(nanos) * 3))
}

/// Facts of an entry.
pub(crate) fn facts() -> impl Strategy<Value = Facts> {
    let target = option::of(vec(any::<u8>(), 0..6).prop_map(Vec::into_boxed_slice));
    let numbers = (any::<[u32; 4]>(), any::<[(u32, u32); 2]>(), any::<[u64; 2]>());
    let posix =
        (numbers, time(), target).prop_map(|(([mode, uid, gid, nlink], [rdev, dev], [ino, size]), atime, target)| {
            Box::new(Posix { mode, uid, gid, rdev, nlink, dev, ino, atime, size, target })
        });
    (option::of(time()), option::of(posix)).prop_map(|(mtime, posix)| Facts { mtime, posix })
}

/// Sides.
pub(crate) fn side() -> impl Strategy<Value = Side> {
    select(vec![Side::Src, Side::Dst])
}

fn entry() -> impl Strategy<Value = Entry> {
    let kinds = select(vec![Kind::File, Kind::Symlink, Kind::Dir, Kind::Special]);
    let hashes = option::of(any::<[u8; 16]>()).prop_map(|md5| match md5 {
        Some(md5) => Hashes::default().with(Algo::Md5, md5),
        None => Hashes::default(),
    });
    let version = option::of(vec(any::<u8>(), 1..9).prop_map(Version::new));
    let meta = option::of(proptest::collection::btree_map(".{0,5}", ".{0,5}", 0..3).prop_map(Box::new));
    (key(), kinds, any::<(u64, bool, bool)>(), facts(), option::of(time()), version, hashes, meta).prop_map(
        |(key, kind, (size, sized, damaged), Facts { mtime, posix }, changed, version, hashes, meta)| Entry {
            key,
            kind,
            size,
            sized,
            mtime,
            changed,
            version,
            hashes,
            meta,
            posix,
            damaged,
        },
    )
}

fn elsewhere() -> impl Strategy<Value = plan::AlternateFile> {
    let use_as =
        prop_oneof![Just(UseAs::Instead), any::<(bool, bool)>().prop_map(|(link, copy)| UseAs::Taken { link, copy })];
    (any::<usize>(), entry(), difference(), use_as).prop_map(|(place, entry, differs, use_as)| plan::AlternateFile {
        place,
        entry,
        differs,
        use_as,
    })
}

/// Steps.
pub(crate) fn step() -> impl Strategy<Value = Step> {
    let actions = select(vec![
        Action::Copy,
        Action::Reuse,
        Action::Touch,
        Action::Link,
        Action::Rename,
        Action::MakeDir,
        Action::Delete,
        Action::Keep,
        Action::Refuse,
    ]);
    let sides = (option::of(entry()), option::of(entry()));
    let found = option::of(elsewhere().prop_map(Box::new));
    (actions, sides, reason(), option::of(key()), difference(), any::<bool>(), found, option::of(key())).prop_map(
        |(action, (src, dst), why, to, differs, look, elsewhere, link_to)| Step {
            action,
            src,
            dst,
            why,
            to,
            differs,
            look,
            elsewhere,
            link_to,
        },
    )
}

fn duration() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_nanos)
}

fn compare() -> impl Strategy<Value = job::Compare> {
    use job::{CompareBy, Times};
    let by = select(vec![CompareBy::SizeAndTime, CompareBy::Checksum, CompareBy::SizeOnly, CompareBy::Never]);
    let times = prop_oneof![
        Just(Times::Evidence),
        any::<(bool, bool)>().prop_map(|(nanoseconds, decide)| Times::Attribute { nanoseconds, decide })
    ];
    (by, any::<[bool; 3]>(), option::of(duration()), times).prop_map(
        |(by, [ignore_size, server_mtime, refresh_times], window, times)| job::Compare {
            by,
            ignore_size,
            window,
            server_mtime,
            times,
            refresh_times,
        },
    )
}

fn existing() -> impl Strategy<Value = job::Existing> {
    use job::OtherKinds;
    let append = option::of(any::<bool>().prop_map(|verify| job::Append { verify }));
    let other_kinds = select(vec![OtherKinds::Stay, OtherKinds::Replace, OtherKinds::ReplaceWhole]);
    (any::<[bool; 6]>(), append, other_kinds, option::of(time()), option::of(".{0,5}")).prop_map(
        |(
            [ignore, only, update, immutable, suffix_keep_extension, spares_backups],
            append,
            other_kinds,
            began,
            suffix,
        )| {
            job::Existing {
                ignore,
                only,
                update,
                immutable,
                append,
                other_kinds,
                began,
                backup_suffix: suffix,
                suffix_keep_extension,
                spares_backups,
            }
        },
    )
}

fn deletes() -> impl Strategy<Value = job::Deletes> {
    use job::{BeyondMax, DeleteWhen};
    let when = select(vec![DeleteWhen::Before, DeleteWhen::During, DeleteWhen::After]);
    let beyond_max = select(vec![BeyondMax::KeepAll, BeyondMax::KeepRest]);
    (when, any::<[bool; 8]>(), any::<[Option<u64>; 2]>(), beyond_max).prop_map(
        |(
            when,
            [
                alone,
                sources,
                excluded,
                specials,
                below_max_depth,
                ignore_errors,
                errors_spare_transfers,
                allow_empty_source,
            ],
            [max, max_size],
            beyond_max,
        )| job::Deletes {
            when,
            alone,
            sources,
            excluded,
            specials,
            below_max_depth,
            max,
            beyond_max,
            max_size,
            ignore_errors,
            errors_spare_transfers,
            allow_empty_source,
        },
    )
}

fn other_places() -> impl Strategy<Value = job::AlternatePlaces> {
    let renamed = option::of(any::<[bool; 3]>().prop_map(|[hash, mtime, leaf]| job::RenameBy { hash, mtime, leaf }));
    (renamed, any::<[bool; 3]>()).prop_map(|(renamed, [exact, link, drop_spare])| job::AlternatePlaces {
        renamed,
        exact,
        link,
        drop_spare,
    })
}

fn listing() -> impl Strategy<Value = job::Listing> {
    use job::{Lookup, Mounts};
    let range =
        (option::of(key()), option::of(key())).prop_map(|(after, through)| Part::Range(KeyRange { after, through }));
    let part = prop_oneof![Just(Part::All), range, vec(key(), 0..3).prop_map(|keys| Part::Dirs(keys.into()))];
    let lookup = select(vec![Lookup::Cheapest, Lookup::ListAll, Lookup::Never]);
    let mounts = select(vec![Mounts::Cross, Mounts::Stay, Mounts::Omit]);
    (part, lookup, any::<bool>(), any::<Option<usize>>(), mounts).prop_map(
        |(part, lookup, no_traverse, max_depth, mounts)| job::Listing { part, lookup, no_traverse, max_depth, mounts },
    )
}

fn dirs() -> impl Strategy<Value = job::Dirs> {
    let root = select(vec![job::Root::Implied, job::Root::Included, job::Root::Excluded]);
    (any::<[bool; 3]>(), root).prop_map(|([create_empty, delete_empty_sources, prune_empty], root)| job::Dirs {
        create_empty,
        delete_empty_sources,
        prune_empty,
        root,
    })
}

fn links() -> impl Strategy<Value = job::Links> {
    (any::<[bool; 6]>(), any::<Option<usize>>()).prop_map(
        |([follow_dirs, follow_files, off, on, keep_dirlinks, replace_links], safe)| job::Links {
            source: SourceLinks { follow_dirs, follow_files, munge: Munge { off, on } },
            safe,
            keep_dirlinks,
            replace_links,
        },
    )
}

fn keep() -> impl Strategy<Value = Keep> {
    let change = any::<([bool; 2], [u32; 3])>().prop_map(|([dirs, files], [clear, set, exec_if_any])| Chmod {
        dirs,
        files,
        clear,
        set,
        exec_if_any,
        copied: None,
    });
    (any::<[bool; 10]>(), vec(change, 0..3), any::<[Option<u32>; 2]>()).prop_map(|(flags, chmod, [user, group])| {
        let [perms, executability, owner, in_group, atime, xattrs, acls, devices, specials, hard_links] = flags;
        let to = |id: Option<u32>| id.map(IdMap::all).unwrap_or_default();
        Keep {
            perms,
            executability,
            owner,
            group: in_group,
            atime,
            xattrs,
            acls,
            devices,
            specials,
            hard_links,
            chmod,
            users: to(user),
            groups: to(group),
        }
    })
}

fn attributes() -> impl Strategy<Value = job::Attributes> {
    (keep(), any::<[bool; 5]>(), vec((".{0,4}", ".{0,4}"), 0..3), option::of(time()), option::of(time())).prop_map(
        |(
            keep,
            [metadata, keep_setid, no_update_mtime, no_update_dir_mtime, only_kept],
            metadata_set,
            set_time,
            omit_link_times,
        )| job::Attributes {
            keep,
            metadata,
            permissions_alone: false,
            metadata_set,
            keep_setid,
            no_update_mtime,
            no_update_dir_mtime,
            set_time,
            omit_link_times,
            only_kept,
        },
    )
}

fn write() -> impl Strategy<Value = job::Write> {
    use job::{Fsync, Publish};
    let publish = select(vec![Publish::WhenWhole, Publish::InPlace, Publish::AtEnd]);
    let fsync = select(vec![Fsync::None, Fsync::File, Fsync::End]);
    (publish, ".{0,8}", any::<[bool; 6]>(), fsync).prop_map(
        |(publish, partial_suffix, [sparse, drop_cache, delta, ignore_checksum, verify_read, store_md5], fsync)| {
            job::Write {
                publish,
                partial_suffix,
                sparse,
                fsync,
                drop_cache,
                delta,
                ignore_checksum,
                verify_read,
                store_md5,
            }
        },
    )
}

fn limits() -> impl Strategy<Value = job::Limits> {
    let cutoff = select(vec![job::Cutoff::Hard, job::Cutoff::Soft, job::Cutoff::Cautious]);
    (any::<Option<u64>>(), cutoff, option::of(duration()), any::<u64>(), any::<usize>()).prop_map(
        |(transfer, cutoff, duration, memory, listed)| job::Limits { transfer, cutoff, duration, memory, listed },
    )
}

fn pace() -> impl Strategy<Value = job::Pace> {
    let by = select(vec![job::TransferOrder::Size, job::TransferOrder::Name, job::TransferOrder::Mtime]);
    let order_by = option::of((by, any::<(bool, Option<u8>)>()));
    let order_by =
        order_by.prop_map(|order| order.map(|(by, (descending, mixed))| job::OrderBy { by, descending, mixed }));
    (any::<[Option<usize>; 3]>(), any::<[Option<u64>; 2]>(), order_by, any::<(bool, u32)>(), duration()).prop_map(
        |([transfers, checkers, streams], [parts_cutoff, part_size], order_by, (check_first, file_retries), wait)| {
            job::Pace {
                transfers,
                checkers,
                streams,
                parts_cutoff,
                part_size,
                order_by,
                check_first,
                file_retries,
                retries_sleep: wait,
            }
        },
    )
}

fn tell() -> impl Strategy<Value = job::ExtraEvents> {
    let targets = select(vec![job::LinkTargets::None, job::LinkTargets::OfChanges, job::LinkTargets::OfAll]);
    (any::<[bool; 4]>(), targets).prop_map(|([no_links, no_specials, extra, details], targets)| job::ExtraEvents {
        no_links,
        no_specials,
        extra,
        details,
        targets,
    })
}

/// Jobs with any value in each field.
pub(crate) fn any_job() -> impl Strategy<Value = job::Job> {
    use job::Verb;
    let verb = select(vec![Verb::Copy, Verb::Sync, Verb::Move, Verb::Check]);
    let first = (verb, any::<bool>(), compare(), existing(), deletes(), other_places(), listing());
    let second = (dirs(), links(), attributes(), write(), limits(), pace(), tell());
    (first, second).prop_map(
        |(
            (verb, dry_run, compare, existing, deletes, elsewhere, listing),
            (dirs, links, attributes, write, limits, pace, tell),
        )| job::Job {
            verb,
            dry_run,
            compare,
            existing,
            deletes,
            elsewhere,
            listing,
            dirs,
            links,
            attributes,
            write,
            limits,
            pace,
            tell,
        },
    )
}
