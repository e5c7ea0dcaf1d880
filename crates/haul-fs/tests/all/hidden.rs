//! Hidden names: what stands under them is for nobody else, leads nowhere else, and isn't removed while it is all that there is.

use super::local::{carried, copy, item, put_at};
use bytes::Bytes;
use futures::StreamExt as _;
use haul_core::{Error, ErrorKind, Key, Listed};
use haul_store::{Cleanup, CopyHow, CopyItem, LateFacts, Links, ListRequest, Payload, WriteSpec};
use haul_testkit::disk::open;
use std::{
    fs,
    os::unix::{
        ffi::OsStrExt,
        fs::{PermissionsExt, symlink},
    },
    path::Path,
    sync::Arc,
    time::Duration,
};
use tempfile::tempdir;

#[tokio::test]
async fn what_replaces_a_file_that_others_may_not_read_is_closed_while_it_comes() {
    let (source, temp) = (tempdir().unwrap(), tempdir().unwrap());
    let store = open(temp.path(), Links::Skip);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let hidden = || {
        let mut paths = fs::read_dir(temp.path()).unwrap().map(|entry| entry.unwrap().path());
        paths.find(|path| path.file_name().unwrap().as_bytes().starts_with(b".haul-")).unwrap()
    };
    for (name, closed) in [("f", Some(0o600)), ("g", Some(0o640)), ("h", Some(0o644)), ("new", None)] {
        let path = temp.path().join(name);
        if let Some(bits) = closed {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
        }
        let spec = WriteSpec { size: Some(3), ..WriteSpec::default() };
        let upload = store.write(&Key::new(name), spec).await.unwrap();
        let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"new"))).await.unwrap();
        let open = 0o666 & !haul_fs::umask();
        let while_it_comes = if closed.is_some_and(|bits| bits != 0o644) { 0o600 } else { open };
        assert_eq!(mode(&hidden()), while_it_comes, "{name}");
        upload.publish(vec![part], LateFacts::default()).await.unwrap();
        assert_eq!(mode(&path), closed.unwrap_or(open), "{name}");
        assert_eq!(fs::read(&path).unwrap(), b"new");
    }
    // A copy on the disk, of a size that gets a name at once.
    let large = vec![7; 9 << 20];
    fs::write(source.path().join("f"), &large).unwrap();
    let from = open(source.path(), Links::Skip);
    copy(&from, &store, vec![item("f", "f", large.len() as u64)]).await.remove(0).unwrap();
    assert_eq!(mode(&temp.path().join("f")), 0o600);
    assert!(fs::read(temp.path().join("f")).unwrap() == large);
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 4, "and nothing hidden");
}

/// Whoever asks for a write may be on another machine, and allowed to use one folder only.
#[tokio::test]
async fn a_suffix_never_leads_out_of_the_folder() {
    let (outside, source) = (tempdir().unwrap(), tempdir().unwrap());
    let root = outside.path().join("root");
    fs::create_dir(&root).unwrap();
    fs::write(source.path().join("f"), "content").unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, source.path().join("p"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    symlink("x", source.path().join("l")).unwrap();
    fs::write(outside.path().join("precious"), "precious").unwrap();
    let (from, store) = (open(source.path(), Links::Keep), open(&root, Links::Keep));
    let expected = "a partial file's suffix has 1 to 16 bytes, no / and no zero byte";
    for suffix in ["/../../precious", "/../../pwned", "/x", "", "a\0b", "seventeen bytes !"] {
        let spec = || WriteSpec { partial_suffix: suffix.into(), ..WriteSpec::default() };
        let refused = |error: Error| assert_eq!((error.kind(), error.message()), (ErrorKind::Invalid, expected));
        for resumable in [false, true] {
            refused(store.write(&Key::new("f"), WriteSpec { resumable, ..spec() }).await.err().unwrap());
        }
        refused(put_at(&store, &Key::symlink("l"), b"x", spec()).await.unwrap_err());
        let carried = carried(0o10_600);
        let here = |how| CopyItem { how, spec: spec(), ..item("f", "f", 7) };
        let keep = Some(Arc::new(haul_core::keep::Keep { owner: true, ..Default::default() }));
        let link = CopyItem { from: Key::symlink("l"), to: Key::symlink("l"), ..here(CopyHow::Copy) };
        let special = CopyItem { from: Key::new("p"), to: Key::new("p"), ..here(CopyHow::Special) };
        let items = vec![
            here(CopyHow::Link),
            CopyItem { spec: WriteSpec { keep, ..spec() }, ..link.clone() },
            link,
            CopyItem { spec: WriteSpec { carried: Some(Arc::new(carried)), ..spec() }, ..special.clone() },
            special,
        ];
        for answer in copy(&from, &store, items).await {
            refused(answer.unwrap_err());
        }
        // What never gets a hidden name asks for no suffix.
        if let Err(error) = copy(&from, &store, vec![here(CopyHow::Copy)]).await.remove(0) {
            refused(error);
        }
        let _ = fs::remove_file(root.join("f"));
        assert_eq!(fs::read_dir(&root).unwrap().count(), 0, "{suffix:?}");
        assert_eq!(fs::read(outside.path().join("precious")).unwrap(), b"precious");
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 2, "{suffix:?}");
    }
}

#[tokio::test]
async fn a_cleanup_removes_no_files_last_copy() {
    let temp = tempdir().unwrap();
    let store = open(temp.path(), Links::Skip);
    // As it is put aside through an SFTP server that can't replace.
    let aside = temp.path().join(".haul-e30c2799c19cc4a5.f.old");
    let cleanup = Cleanup { older_than: Duration::ZERO, dry_run: false, below: Key::new("") };
    fs::write(&aside, "all that there is of f").unwrap();
    assert!(store.admin().unwrap().cleanup(cleanup.clone()).await.unwrap().found.is_empty());
    assert!(aside.exists());
    // Nor does a listing say that there is no such file, whether it may put things right or not.
    let list = async |sweep| {
        let listing = store.list(ListRequest { sweep, ..ListRequest::all() });
        let told = listing.map(|listed| match listed {
            Listed::Batch(entries) => entries.iter().map(|entry| entry.key.to_string()).collect::<Vec<_>>().join(" "),
            Listed::Failed { lost, error } => {
                assert!(error.kind() == ErrorKind::Changed && lost.holds(error.key().unwrap()));
                format!("not {}", error.key().unwrap())
            }
            Listed::Vanished(key) => format!("vanished {key}"),
            Listed::End => "end".to_owned(),
        });
        told.collect::<Vec<_>>().await
    };
    for sweep in [false, true] {
        assert_eq!(list(sweep).await, ["not f", "end"]);
        assert!(aside.exists());
    }
    fs::write(temp.path().join("f"), "newer").unwrap();
    assert_eq!(list(true).await, ["f", "end"]);
    assert!(aside.exists());
    assert_eq!(store.admin().unwrap().cleanup(cleanup).await.unwrap().found.len(), 1);
    assert!(!aside.exists());
}
