//! What only a local disk has: links, sparse files, hidden names, devices.

use bytes::Bytes;
use futures::StreamExt;
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Listed, MissedRange, Mtime, plan::Replace};
use haul_store::{Body, CopyBatch, CopyHow, CopyItem, LateFacts, Links, ListRequest, Payload, Store, Watch, WriteSpec};
use haul_testkit::{disk::open, peers};
use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, MetadataExt, PermissionsExt, symlink},
    },
    path::Path,
    sync::Arc,
};
use tempfile::{TempDir, tempdir};

pub async fn list(store: &Arc<dyn Store>, request: ListRequest) -> (Vec<Entry>, Vec<(MissedRange, Error)>, bool) {
    let (mut entries, mut failed, mut ended) = (Vec::new(), Vec::new(), false);
    let mut listing = store.list(request);
    while let Some(listed) = listing.next().await {
        assert!(!ended, "nothing comes after End");
        match listed {
            Listed::Batch(batch) => entries.extend(batch),
            Listed::Failed { lost, error } => failed.push((lost, error)),
            Listed::Vanished(_) => {}
            Listed::End => ended = true,
        }
    }
    assert!(entries.windows(2).all(|w| w[0].key < w[1].key), "in order");
    (entries, failed, ended)
}

pub async fn keys(store: &Arc<dyn Store>, request: ListRequest) -> Vec<String> {
    let (entries, failed, ended) = list(store, request).await;
    assert!(ended && failed.is_empty(), "{failed:?}");
    entries.iter().map(|e| e.key.to_string()).collect()
}

pub async fn put(store: &Arc<dyn Store>, key: &str, bytes: &[u8], spec: WriteSpec) -> haul_core::Result<()> {
    put_at(store, &Key::new(key), bytes, spec).await
}

pub async fn put_at(store: &Arc<dyn Store>, key: &Key, bytes: &[u8], spec: WriteSpec) -> haul_core::Result<()> {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..spec };
    let upload = store.write(key, spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::copy_from_slice(bytes))).await?;
    upload.publish(vec![part], LateFacts::default()).await?;
    Ok(())
}

pub fn item(from: &str, to: &str, size: u64) -> CopyItem {
    let (from, to) = (Key::new(from), Key::new(to));
    CopyItem { from, want: None, size, to, spec: WriteSpec::default(), how: CopyHow::Copy }
}

pub async fn copy(
    from: &Arc<dyn Store>,
    to: &Arc<dyn Store>,
    items: Vec<CopyItem>,
) -> Vec<haul_core::Result<haul_store::StoredFacts>> {
    let from = from.caps().domain.clone().unwrap().place;
    to.copy(CopyBatch { from, items, links: Default::default() }, Watch::default()).await
}

pub fn tree() -> TempDir {
    let temp = tempdir().unwrap();
    for file in ["a-b", "a0", "a/x", "a/y/z", "b/c/d"] {
        let path = temp.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, file).unwrap();
    }
    fs::create_dir(temp.path().join("empty")).unwrap();
    temp
}

#[tokio::test]
async fn links_are_skipped_followed_or_kept() {
    let temp = tree();
    let outside = tempdir().unwrap();
    fs::write(outside.path().join("far"), "12345").unwrap();
    symlink(outside.path().join("far"), temp.path().join("file")).unwrap();
    symlink("b", temp.path().join("folder")).unwrap();
    symlink("nowhere", temp.path().join("gone")).unwrap();
    symlink("..", temp.path().join("a/loop")).unwrap();

    let skip = open(temp.path(), Links::Skip);
    let (entries, failed, ended) = list(&skip, ListRequest::all()).await;
    assert!(ended && failed.is_empty());
    let special: Vec<_> = entries.iter().filter(|e| e.kind == Kind::Special).map(|e| e.key.to_string()).collect();
    assert_eq!(special, ["a/loop", "file", "folder", "gone"]);
    assert!(skip.read(&Key::new("file"), None, None).await.is_err());

    let follow = open(temp.path(), Links::Follow);
    let (entries, failed, ended) = list(&follow, ListRequest::all()).await;
    assert!(ended);
    let found: Vec<_> = entries.iter().map(|e| e.key.to_string()).collect();
    assert!(found.contains(&"folder/c/d".to_string()) && found.contains(&"file".to_string()), "{found:?}");
    let lost: Vec<_> = failed.iter().map(|(lost, e)| (lost.from.to_string(), e.kind())).collect();
    assert_eq!(lost, [("a/loop/".to_string(), ErrorKind::Invalid), ("gone".to_string(), ErrorKind::NotFound)]);
    let read = follow.read(&Key::new("file"), None, None).await.unwrap();
    assert_eq!(read.entry.size, 5);

    let keep = open(temp.path(), Links::Keep);
    let (entries, failed, _) = list(&keep, ListRequest::all()).await;
    assert!(failed.is_empty());
    let link = entries.iter().find(|e| e.key == Key::symlink("folder")).unwrap();
    assert_eq!((link.kind, link.size), (Kind::Symlink, 1));
    let read = keep.read(&link.key, link.version.as_ref(), None).await.unwrap();
    let Body::Stream(mut body) = read.body else { panic!("a stream") };
    assert_eq!(body.next().await.unwrap().unwrap(), "b");

    let copy_to = tempdir().unwrap();
    let to = open(copy_to.path(), Links::Keep);
    let mtime = Some(Mtime(-1_000_000_001));
    let l = Key::symlink("x/l");
    put_at(&to, &l, b"../some/where", WriteSpec { mtime, ..Default::default() }).await.unwrap();
    assert_eq!(fs::read_link(copy_to.path().join("x/l")).unwrap(), Path::new("../some/where"));
    assert_eq!(to.stat(&l).await.unwrap().mtime, mtime);
    let gone = Key::symlink("gone");
    let link = CopyItem { from: gone.clone(), to: gone.clone(), ..item("gone", "gone", 7) };
    copy(&keep, &to, vec![link]).await.remove(0).unwrap();
    assert_eq!(fs::read_link(copy_to.path().join("gone")).unwrap(), Path::new("nowhere"));
    assert!(to.delete(vec![(gone, None)]).await.remove(0).is_ok());
    assert!(fs::symlink_metadata(copy_to.path().join("gone")).is_err());
}

/// What is shown behind a link has a name of its own besides: deleted by the one, it would be missing under the other.
#[tokio::test]
async fn behind_a_link_nothing_is_deleted() {
    let temp = tempdir().unwrap();
    fs::create_dir(temp.path().join("b")).unwrap();
    fs::write(temp.path().join("b/x"), "x").unwrap();
    symlink("b", temp.path().join("a")).unwrap();
    let store = open(temp.path(), Links::Follow);
    assert_eq!(keys(&store, ListRequest::all()).await, ["a/", "a/x", "b/", "b/x"]);
    let answers = store.delete(vec![(Key::new("a/x"), None), (Key::new("b/x"), None)]).await;
    assert!(answers[0].as_ref().is_err_and(|e| e.kind() == ErrorKind::Denied), "{answers:?}");
    assert!(answers[1].is_ok(), "{answers:?}");
}

#[tokio::test]
async fn a_planted_link_does_not_lead_out_of_the_destination() {
    let (temp, outside) = (tempdir().unwrap(), tempdir().unwrap());
    symlink(outside.path(), temp.path().join("d")).unwrap();
    fs::write(outside.path().join("victim"), "old").unwrap();
    symlink(outside.path().join("victim"), temp.path().join("f")).unwrap();
    fs::write(temp.path().join("source"), "new").unwrap();
    for links in [Links::Skip, Links::Follow, Links::Keep] {
        let store = open(temp.path(), links);
        for key in ["d/victim", "d/sub/x"] {
            let error = put(&store, key, b"new", WriteSpec::default()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
            assert!(error.message().contains("leads out of the directory"), "{error}");
            assert!(copy(&store, &store, vec![item("source", key, 3)]).await.remove(0).is_err());
        }
        assert!(store.delete(vec![(Key::new("d/victim"), None)]).await.remove(0).is_err());
        assert!(store.make_dir(&Key::new("d/made/"), &WriteSpec::default()).await.is_err());
        let inplace = WriteSpec { inplace: true, ..Default::default() };
        assert!(put(&store, "f", b"new", inplace).await.is_err());
    }
    // The link itself is replaced, not what it points to.
    let store = open(temp.path(), Links::Skip);
    put(&store, "f", b"new", WriteSpec::default()).await.unwrap();
    assert_eq!(fs::read(temp.path().join("f")).unwrap(), b"new");
    assert_eq!(fs::read(outside.path().join("victim")).unwrap(), b"old");
    assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn a_copy_keeps_bytes_times_and_holes() {
    let (a, b) = (tempdir().unwrap(), tempdir().unwrap());
    let (from, to) = (open(a.path(), Links::Skip), open(b.path(), Links::Skip));
    let sizes = [0u64, 1, 65_536, 65_537, 3_000_000];
    for size in sizes {
        let bytes: Vec<u8> = (0..size).map(|i| (i * 31 % 251) as u8).collect();
        fs::write(a.path().join(format!("f{size}")), bytes).unwrap();
    }
    let sparse = fs::File::create(a.path().join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_at(b"in the middle", 30 << 20).unwrap();
    let mut items: Vec<_> = sizes.iter().map(|s| item(&format!("f{s}"), &format!("x/y/f{s}"), *s)).collect();
    items.push(item("sparse", "sparse", 64 << 20));
    let wanted = items.len();
    let answers = copy(&from, &to, items).await;
    assert_eq!(answers.len(), wanted);
    for answer in answers {
        answer.unwrap();
    }
    for size in sizes {
        let (f, t) = (a.path().join(format!("f{size}")), b.path().join(format!("x/y/f{size}")));
        assert_eq!(fs::read(&f).unwrap(), fs::read(&t).unwrap());
        let (f, t) = (fs::metadata(f).unwrap(), fs::metadata(t).unwrap());
        assert_eq!((f.mtime(), f.mtime_nsec()), (t.mtime(), t.mtime_nsec()));
    }
    assert_eq!(fs::read(a.path().join("sparse")).unwrap(), fs::read(b.path().join("sparse")).unwrap());
    let blocks = fs::metadata(b.path().join("sparse")).unwrap().blocks();
    assert!(blocks * 512 < 4 << 20, "{blocks} blocks: the holes were filled");
}

#[tokio::test]
async fn a_copy_answers_for_each_item() {
    let (a, b) = (tempdir().unwrap(), tempdir().unwrap());
    let (from, to) = (open(a.path(), Links::Skip), open(b.path(), Links::Skip));
    fs::write(a.path().join("f"), "new").unwrap();
    fs::write(b.path().join("there"), "old").unwrap();
    fs::create_dir(b.path().join("dir")).unwrap();
    let stale = Some(haul_core::Version::new("stale"));
    let absent = WriteSpec { replace: Replace::Absent, ..Default::default() };
    let items = vec![
        item("none", "x", 3),
        CopyItem { want: stale, ..item("f", "stale", 3) },
        CopyItem { spec: absent, ..item("f", "there", 3) },
        item("f", "dir", 3),
        item("f", "../escaped", 3),
        item("f", "ok", 3),
    ];
    let kinds: Vec<_> = copy(&from, &to, items).await.into_iter().map(|r| r.map_err(|e| e.kind()).map(drop)).collect();
    let wanted = [ErrorKind::NotFound, ErrorKind::Changed, ErrorKind::Exists, ErrorKind::Exists, ErrorKind::Invalid];
    assert_eq!(kinds[..5], wanted.map(Err));
    assert_eq!(kinds[5], Ok(()));
    let mut left: Vec<_> = fs::read_dir(b.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["dir", "ok", "there"], "no partial file stays");
    assert_eq!(fs::read(b.path().join("there")).unwrap(), b"old");
}

#[tokio::test]
async fn nothing_is_added_from_a_source_that_is_not_the_one_listed() {
    let (a, b) = (tempdir().unwrap(), tempdir().unwrap());
    let (from, to) = (open(a.path(), Links::Skip), open(b.path(), Links::Skip));
    fs::write(a.path().join("f"), "one").unwrap();
    let listed = from.stat(&Key::new("f")).await.unwrap().version;
    fs::write(a.path().join("f"), "another file").unwrap();
    fs::write(b.path().join("f"), "on").unwrap();
    let append = CopyItem { want: listed, how: CopyHow::Append { verify: false }, ..item("f", "f", 3) };
    let error = copy(&from, &to, vec![append.clone()]).await.remove(0).unwrap_err();
    assert_eq!((error.kind(), fs::read(b.path().join("f")).unwrap().as_slice()), (ErrorKind::Changed, &b"on"[..]));
    let now = from.stat(&Key::new("f")).await.unwrap().version;
    copy(&from, &to, vec![CopyItem { want: now, ..append }]).await.remove(0).unwrap();
    assert_eq!(fs::read(b.path().join("f")).unwrap(), b"onother file", "as --append has it, without a look");
}

#[tokio::test]
async fn a_move_renames_within_a_file_system() {
    let (a, b) = (tempdir().unwrap(), tempdir().unwrap());
    let (from, to) = (open(a.path(), Links::Skip), open(b.path(), Links::Skip));
    fs::write(a.path().join("f"), "new").unwrap();
    let inode = fs::metadata(a.path().join("f")).unwrap().ino();
    let moved = CopyItem { how: CopyHow::Rename, ..item("f", "d/f", 3) };
    copy(&from, &to, vec![moved]).await.remove(0).unwrap();
    assert!(!a.path().join("f").exists());
    assert_eq!(fs::metadata(b.path().join("d/f")).unwrap().ino(), inode);
}

/// A file that replaces the hidden one during a long copy is never published.
#[tokio::test]
async fn a_copy_whose_hidden_file_was_replaced_is_not_published() {
    let (from, to) = (tempdir().unwrap(), tempdir().unwrap());
    fs::write(from.path().join("big"), vec![7; 24 << 20]).unwrap();
    let (src, dst) = (open(from.path(), Links::Skip), open(to.path(), Links::Skip));
    let folder = to.path().to_owned();
    let replace = move |_: usize, _: u64| {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            fs::remove_file(&path).unwrap();
            fs::write(&path, b"something else").unwrap();
        }
    };
    let domain = src.caps().domain.clone().unwrap();
    let items = vec![item("big", "big", 24 << 20)];
    let batch = CopyBatch { from: domain.place, items, links: Default::default() };
    let error = dst.copy(batch, Watch::new(replace)).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    assert_eq!(fs::read_dir(to.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_hard_link_is_another_name_of_the_same_file() {
    let (a, b) = (tempdir().unwrap(), tempdir().unwrap());
    let (from, to) = (open(a.path(), Links::Skip), open(b.path(), Links::Skip));
    fs::write(a.path().join("f"), "new").unwrap();
    fs::write(b.path().join("old"), "old").unwrap();
    let link = |to| CopyItem { how: CopyHow::Link, ..item("f", to, 3) };
    // A second time, when the two names are one file already, nothing must be left behind either.
    for to_key in ["d/f", "old", "old"] {
        copy(&from, &to, vec![link(to_key)]).await.remove(0).unwrap();
        let inode = |path: std::path::PathBuf| fs::metadata(path).unwrap().ino();
        assert_eq!(inode(a.path().join("f")), inode(b.path().join(to_key)));
    }
    assert_eq!(fs::read_dir(b.path()).unwrap().count(), 2);
    let other = CopyItem { spec: WriteSpec { replace: Replace::Absent, ..WriteSpec::default() }, ..link("old") };
    assert_eq!(copy(&from, &to, vec![other]).await.remove(0).unwrap_err().kind(), ErrorKind::Exists);
}

#[tokio::test]
async fn a_move_across_file_systems_copies_then_deletes() {
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("skipped: no second file system at /dev/shm");
    };
    let a = tempdir().unwrap();
    if fs::metadata(a.path()).unwrap().dev() == fs::metadata(other.path()).unwrap().dev() {
        return eprintln!("skipped: /dev/shm is on the same file system");
    }
    let (from, to) = (open(a.path(), Links::Skip), open(other.path(), Links::Skip));
    fs::write(a.path().join("f"), vec![7; 300_000]).unwrap();
    let moved = CopyItem { how: CopyHow::Rename, ..item("f", "d/f", 300_000) };
    // Where bytes are counted, they must not be copied unseen.
    let spec = WriteSpec { renamed_only: true, ..moved.spec.clone() };
    let refused = copy(&from, &to, vec![CopyItem { spec, ..moved.clone() }]).await.remove(0).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert!(a.path().join("f").exists() && !other.path().join("d/f").exists());
    copy(&from, &to, vec![moved]).await.remove(0).unwrap();
    assert!(!a.path().join("f").exists());
    assert_eq!(fs::read(other.path().join("d/f")).unwrap(), vec![7; 300_000]);
}

#[tokio::test]
async fn hidden_names_are_not_listed_and_abort_removes_them() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Skip);
    let upload = store.write(&Key::new("f"), WriteSpec::default()).await.unwrap();
    upload.part(0, 0, Payload::from(Bytes::from_static(b"half"))).await.unwrap();
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1);
    assert_eq!(keys(&store, ListRequest::all()).await, [""; 0]);
    upload.abort().await.unwrap();
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_private_file_is_private_while_it_is_written() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Skip);
    for (mode, while_it_comes) in [("100600", 0o600), ("100640", 0o600), ("100644", 0o644)] {
        let meta = haul_core::Meta::from([("mode".into(), mode.into())]);
        let spec = WriteSpec { meta: Some(Box::new(meta)), ..Default::default() };
        let upload = store.write(&Key::new("f"), spec).await.unwrap();
        upload.part(0, 0, Payload::from(Bytes::from_static(b"half"))).await.unwrap();
        let hidden = fs::read_dir(temp.path()).unwrap().next().unwrap().unwrap();
        let is = hidden.metadata().unwrap().permissions().mode() & 0o777;
        // The umask may take more.
        assert_eq!(is | 0o044 & while_it_comes, while_it_comes, "{mode}");
        upload.abort().await.unwrap();
    }
}

/// What another machine would say of something.
pub fn carried(mode: u32) -> haul_core::attributes::FileAttributes {
    let time = Mtime(1_000_000_000_000_000_000);
    haul_core::attributes::FileAttributes {
        mode,
        uid: 0,
        gid: 0,
        rdev: (0, 0),
        mtime: time,
        atime: time,
        xattrs: Vec::new(),
    }
}

#[tokio::test]
async fn comparing_attributes_opens_no_directory() {
    let temp = tempdir().unwrap();
    fs::create_dir(temp.path().join("shut")).unwrap();
    fs::write(temp.path().join("shut/f"), "x").unwrap();
    fs::set_permissions(temp.path().join("shut"), fs::Permissions::from_mode(0o0)).unwrap();
    if fs::read_dir(temp.path().join("shut")).is_ok() {
        return as_nobody("local::comparing_attributes_opens_no_directory");
    }
    let store = open(temp.path(), Links::Keep);
    let keep = haul_core::keep::Keep { perms: true, ..Default::default() };
    let carried = carried(0o100_644);
    for (set, after) in [(false, 0o0), (true, 0o700)] {
        let item = haul_store::AttributesItem {
            from: Key::new("shut/f"),
            to: Key::new("shut/f"),
            mtime: None,
            meta: None,
            keep: Some(Arc::new(keep.clone())),
            carried: Some(Arc::new(carried.clone())),
            new: false,
        };
        let from = Arc::from(temp.path().as_os_str().as_bytes());
        let batch = haul_store::AttributesBatch { from, items: vec![item], links: Default::default(), set };
        let done = store.inodes().unwrap().attributes(batch).await.remove(0);
        assert_eq!(done.is_ok(), set, "{done:?}");
        let mode = fs::metadata(temp.path().join("shut")).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, after, "set: {set}");
    }
}

#[tokio::test]
async fn a_replaced_file_keeps_its_mode_and_set_id_bits_are_dropped() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Skip);
    let mode = |name: &str| fs::metadata(temp.path().join(name)).unwrap().permissions().mode() & 0o7777;
    fs::write(temp.path().join("f"), "old").unwrap();
    fs::set_permissions(temp.path().join("f"), fs::Permissions::from_mode(0o640)).unwrap();
    put(&store, "f", b"new", WriteSpec::default()).await.unwrap();
    assert_eq!(mode("f"), 0o640);
    let meta = haul_core::Meta::from([("mode".into(), "104755".into()), ("colour".into(), "blue".into())]);
    let spec = |keep_setid| WriteSpec { meta: Some(Box::new(meta.clone())), keep_setid, ..Default::default() };
    put(&store, "g", b"1", spec(false)).await.unwrap();
    put(&store, "h", b"1", spec(true)).await.unwrap();
    assert_eq!((mode("g"), mode("h")), (0o755, 0o4755));
    let found = store.stat(&Key::new("g")).await.unwrap().meta.unwrap();
    assert_eq!(found["mode"], "100755");
    match found.get("colour") {
        Some(colour) => assert_eq!(colour, "blue"),
        None => eprintln!("skipped: this file system has no user attributes"),
    }
}

#[tokio::test]
async fn devices_and_fifos_are_special_and_not_opened() {
    let temp = tempdir().unwrap();
    let listener = std::os::unix::net::UnixListener::bind(temp.path().join("socket")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, temp.path().join("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0)
        .unwrap();
    let store = open(temp.path(), Links::Skip);
    let (entries, ..) = list(&store, ListRequest::all()).await;
    assert!(entries.len() == 2 && entries.iter().all(|e| e.kind == Kind::Special));
    let error = store.read(&Key::new("fifo"), None, None).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    drop(listener);
}

#[tokio::test]
async fn a_file_in_place_of_a_directory_is_named() {
    let temp = tempdir().unwrap();
    fs::write(temp.path().join("f"), "").unwrap();
    let store = open(temp.path(), Links::Skip);
    let error = put(&store, "f/x", b"1", WriteSpec::default()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
    assert_eq!(error.to_string(), "f/x: write: a file is where a directory is needed: remove or rename it");
}

/// What was listed is copied by the shortest way: into the open, over what is there, only where nothing is, and not when it
/// changed since.
#[tokio::test]
async fn listed_small_files_arrive_whole_under_every_condition() {
    let (source, target) = (tempdir().unwrap(), tempdir().unwrap());
    let (from, to) = (open(source.path(), Links::Skip), open(target.path(), Links::Skip));
    for name in ["a", "b", "c", "d", "empty"] {
        fs::write(source.path().join(name), if name == "empty" { String::new() } else { name.repeat(5000) }).unwrap();
    }
    let (entries, ..) = list(&from, ListRequest::all()).await;
    for name in ["b", "c"] {
        fs::write(target.path().join(name), "old").unwrap();
    }
    fs::set_permissions(target.path().join("b"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::write(source.path().join("d"), "another").unwrap();
    let listed = |entry: &Entry| CopyItem {
        want: entry.version.clone(),
        spec: WriteSpec {
            replace: if entry.key == Key::new("c") { Replace::Absent } else { Replace::Anything },
            ..WriteSpec::default()
        },
        ..item(&entry.key.to_string(), &entry.key.to_string(), entry.size)
    };
    let answers = copy(&from, &to, entries.iter().map(listed).collect()).await;
    let kinds: Vec<_> = answers.iter().map(|answer| answer.as_ref().err().map(Error::kind)).collect();
    assert_eq!(kinds, [None, None, Some(ErrorKind::Exists), Some(ErrorKind::Changed), None], "{answers:?}");
    let names = |dir: &TempDir| {
        let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&target), ["a", "b", "c", "empty"], "and nothing hidden");
    for (name, content) in
        [("a", "a".repeat(5000)), ("b", "b".repeat(5000)), ("c", "old".into()), ("empty", String::new())]
    {
        assert_eq!(fs::read_to_string(target.path().join(name)).unwrap(), content, "{name}");
    }
    assert_eq!(fs::metadata(target.path().join("b")).unwrap().mode() & 0o777, 0o640, "as what it replaced had it");
}

/// Mounts a small file system in memory, or says why it can't.
fn small_disk(size: &str) -> Option<(TempDir, Unmount)> {
    let temp = tempdir().unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
        .arg(temp.path())
        .stderr(std::process::Stdio::null())
        .status();
    if !mounted.is_ok_and(|status| status.success()) {
        eprintln!("skipped: no right to mount a small file system");
        return None;
    }
    let unmount = Unmount(temp.path().into());
    Some((temp, unmount))
}

struct Unmount(std::path::PathBuf);

impl Drop for Unmount {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[tokio::test]
async fn a_full_disk_is_told_and_leaves_no_part() {
    let Some((disk, _unmount)) = small_disk("1m") else { return };
    let source = tempdir().unwrap();
    let (from, to) = (open(source.path(), Links::Skip), open(disk.path(), Links::Skip));
    fs::write(disk.path().join("old"), "old").unwrap();
    fs::write(source.path().join("big"), vec![1; 3 << 20]).unwrap();
    fs::write(source.path().join("ok"), vec![1; 1000]).unwrap();

    // Known size: told before any byte is sent.
    let spec = WriteSpec { size: Some(3 << 20), ..Default::default() };
    let error = to.write(&Key::new("old"), spec).await.err().expect("no space");
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    // Unknown size: told by the part that doesn't fit.
    let upload = to.write(&Key::new("old"), WriteSpec::default()).await.unwrap();
    let error = upload.part(0, 0, Payload::from(Bytes::from(vec![1; 3 << 20]))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
    upload.abort().await.unwrap();
    let answers = copy(&from, &to, vec![item("big", "old", 3 << 20), item("ok", "ok", 1000)]).await;
    assert_eq!(answers[0].as_ref().unwrap_err().kind(), ErrorKind::NoSpace);
    // Later files would fail too, or take the space that more important ones need.
    assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::Cancelled);
    assert_eq!(fs::read(disk.path().join("old")).unwrap(), b"old");
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 1, "no partial file stays");
}

/// Runs one test again in a process that isn't root's, which may read everything.
pub fn as_nobody(test: &str) {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65_534;
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test])
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    match child {
        Ok(output) => {
            let stdout = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success() && stdout.contains("1 passed"), "{stdout}");
        }
        Err(error) => {
            peers::skip(&format!("root may read every directory, and can't start a process of nobody's: {error}"))
        }
    }
}

#[tokio::test]
async fn names_that_are_no_text_are_copied() {
    use std::ffi::OsStr;
    let (a, b) = (tempdir().unwrap(), tempdir().unwrap());
    let name = OsStr::from_bytes(b"raw\xff\xfe");
    fs::write(a.path().join(name), "1").unwrap();
    let (from, to) = (open(a.path(), Links::Skip), open(b.path(), Links::Skip));
    let (entries, ..) = list(&from, ListRequest::all()).await;
    let key = entries[0].key.clone();
    assert_eq!(key.as_bytes(), name.as_bytes());
    let item = CopyItem { from: key.clone(), to: key, ..item("", "", 1) };
    copy(&from, &to, vec![item]).await.remove(0).unwrap();
    assert_eq!(fs::read(b.path().join(name)).unwrap(), b"1");
}

#[tokio::test]
async fn writing_in_place_keeps_the_inode_and_cuts_the_rest() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Skip);
    fs::write(temp.path().join("f"), "something long").unwrap();
    let inode = fs::metadata(temp.path().join("f")).unwrap().ino();
    put(&store, "f", b"short", WriteSpec { inplace: true, ..Default::default() }).await.unwrap();
    assert_eq!(fs::read(temp.path().join("f")).unwrap(), b"short");
    assert_eq!(fs::metadata(temp.path().join("f")).unwrap().ino(), inode);
    let absent = WriteSpec { inplace: true, replace: Replace::Absent, ..Default::default() };
    assert_eq!(put(&store, "f", b"x", absent).await.unwrap_err().kind(), ErrorKind::Exists);
}

#[tokio::test]
async fn set_meta_keeps_set_id_bits_but_adds_none() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Skip);
    let meta = haul_core::Meta::from([("mode".into(), "104755".into())]);
    for (name, mode, wanted) in [("plain", 0o600, 0o755), ("setuid", 0o4700, 0o4755)] {
        let path = temp.path().join(name);
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        store.set_meta(&Key::new(name), None, Some(&meta)).await.unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, wanted, "{name}");
    }
}
