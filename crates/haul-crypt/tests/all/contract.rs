//! The contract, on several stores below and in each mode of names; and what only an encrypted store can get wrong.

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use haul_core::{ErrorKind, Key, Listed, Result};
use haul_mem::MemStore;
use haul_store::{Body, Caps, ListRequest, OpenRequest, Payload, Store, WriteSpec};
use haul_testkit::{
    conformance::{self, Breaks::Always, KnownBreak, Summary},
    faults::{Fault, Faulty, Op},
};
use std::{
    os::unix::ffi::OsStrExt as _,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

fn on(inner: Arc<dyn Store>, path: &str, options: &[(&str, &str)]) -> Arc<dyn Store> {
    let options = [("password", "one"), ("password2", "two")].iter().chain(options);
    let request = OpenRequest {
        remote: "secret".into(),
        path: path.into(),
        options: options.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        wrapped: [("remote".to_owned(), inner)].into(),
        ..OpenRequest::default()
    };
    (haul_crypt::KIND.open)(request).expect("opened")
}

fn disk(path: &std::path::Path) -> Arc<dyn Store> {
    let request = OpenRequest { path: path.as_os_str().as_bytes().to_vec(), ..OpenRequest::default() };
    (haul_fs::KIND.open)(request).expect("opened")
}

/// Promises that don't apply to encrypted files.
const HASHLESS: [&str; 2] = ["hashes_are_of_the_content", "it_hashes_what_it_holds"];

fn assert_skipped(summary: &Summary, known: &[&str]) {
    println!("{summary}");
    let skipped: Vec<&str> = summary.skipped.iter().map(|(name, _)| *name).collect();
    let surprises: Vec<_> = skipped.iter().filter(|name| !known.contains(name) && !HASHLESS.contains(name)).collect();
    assert!(surprises.is_empty(), "skipped too: {surprises:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_memory() {
    let flat = ["a_full_folder_is_not_deleted", "folders_are_made_once"];
    let summary = conformance::run(|| async { on(Arc::new(MemStore::new()), "", &[]) }).await;
    assert_skipped(&summary, &flat);
    // Where all parts but the last must have one size, the header moves along.
    let equal = |caps: &mut Caps| caps.parts.iter_mut().for_each(|limits| limits.equal = true);
    let summary = conformance::run(|| async { on(Arc::new(MemStore::new().with_caps(equal)), "", &[]) }).await;
    let waits = [
        "parts_arrive_in_any_order",
        "a_resumed_write_publishes_the_whole",
        "what_was_sent_is_read_back",
        "a_missing_root_is_told",
    ];
    assert_skipped(&summary, &[&flat[..], &waits].concat());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_disk() {
    let temp = tempfile::tempdir().unwrap();
    let number = AtomicUsize::new(0);
    let apart: &[KnownBreak] = &[("folders_are_made_once", Always, "files and directories of one name have two below")];
    for (path, options, except) in [
        ("", &[][..], &[][..]),
        ("a/b", &[("filename_encryption", "obfuscate")], &[]),
        ("a", &[("filename_encoding", "base64"), ("directory_name_encryption", "false")], apart),
        ("a", &[("filename_encryption", "off"), ("no_data_encryption", "true")], apart),
    ] {
        let root =
            || async { on(disk(&temp.path().join(number.fetch_add(1, Ordering::Relaxed).to_string())), path, options) };
        let summary = conformance::run_except(root, except).await;
        assert_skipped(&summary, &["a_file_and_a_folder_of_one_name", "folders_are_made_once"]);
    }
}

async fn put(store: &dyn Store, key: &str, pieces: &[&[u8]]) {
    let key = Key::new(key);
    let size = pieces.iter().map(|piece| piece.len() as u64).sum();
    let upload = store.write(&key, WriteSpec { size: Some(size), ..Default::default() }).await.unwrap();
    let (mut parts, mut offset) = (Vec::new(), 0);
    for (index, piece) in pieces.iter().enumerate() {
        let payload = Payload::from(Bytes::copy_from_slice(piece));
        parts.push(upload.part(index as u64, offset, payload).await.unwrap());
        offset += piece.len() as u64;
    }
    upload.publish(parts, Default::default()).await.unwrap();
}

async fn get(store: &dyn Store, key: &str) -> Result<Vec<u8>> {
    let Body::Stream(stream) = store.read(&Key::new(key), None, None).await?.body else { panic!("a stream") };
    Ok(stream.try_collect::<Vec<Bytes>>().await?.concat())
}

async fn listed(store: &dyn Store) -> Vec<String> {
    let tell = |listed| match listed {
        Listed::Batch(entries) => entries.iter().map(|e| format!("{} {}", e.key, e.size)).collect::<Vec<_>>(),
        Listed::Failed { lost, error } => vec![format!("lost {}: {:?}", lost.from, error.kind())],
        Listed::Vanished(key) => vec![format!("vanished: {key}")],
        Listed::End => vec!["end".to_owned()],
    };
    store.list(ListRequest::all()).map(tell).concat().await
}

#[tokio::test]
async fn what_vanishes_below_vanishes_by_its_own_name() {
    let inner: Arc<dyn Store> = Arc::new(MemStore::new());
    let store = on(inner.clone(), "", &[("filename_encryption", "off")]);
    for key in ["a", "b", "c"] {
        put(&*store, key, &[b"text"]).await;
    }
    let faulty = Faulty::new(inner).on(Op::List, 1, Fault::Vanish(Key::new("b.bin")));
    let store = on(Arc::new(faulty), "", &[("filename_encryption", "off")]);
    assert_eq!(listed(&*store).await, ["a 4", "vanished: b", "c 4", "end"]);
}

/// A store that wants parts of one size gets them, and the whole is what one part would have made.
#[tokio::test]
async fn equal_parts_are_equal() {
    let inner = Arc::new(MemStore::new().with_caps(|caps| {
        let limits = caps.parts.as_mut().unwrap();
        (limits.equal, limits.min) = (true, 1);
    }));
    let store = on(inner.clone(), "", &[]);
    let bytes: Vec<u8> = (0..700_001u32).map(|n| (n % 251) as u8).collect();
    for part in [65_536, 131_072] {
        for size in [0, 1, 15, 16, 17, 65_536, 65_537, 65_551, 65_552, 65_553, 262_144, 262_145, 700_001] {
            let pieces: Vec<&[u8]> = bytes[..size].chunks(part).collect();
            put(&*store, "f", &pieces).await;
            assert!(get(&*store, "f").await.unwrap() == bytes[..size], "{size} bytes in parts of {part}");
            // The size is unknown, so the last part isn't known as such.
            let upload = store.write(&Key::new("f"), WriteSpec::default()).await.unwrap();
            let mut parts = Vec::new();
            for (index, piece) in pieces.iter().enumerate() {
                let payload = Payload::from(Bytes::copy_from_slice(piece));
                parts.push(upload.part(index as u64, (index * part) as u64, payload).await.unwrap());
            }
            upload.publish(parts, Default::default()).await.unwrap();
            assert!(get(&*store, "f").await.unwrap() == bytes[..size], "{size} bytes in parts of {part}, a pipe");
        }
    }
}

/// With a wrong password nothing seems to be missing: a sync would delete it elsewhere.
#[tokio::test]
async fn a_wrong_password_is_no_empty_directory() {
    let inner = Arc::new(MemStore::new());
    let right = on(inner.clone(), "", &[]);
    for name in ["a", "b", "c", "d/e", "d/f"] {
        put(&*right, name, &[b"x"]).await;
    }
    let wrong = on(inner.clone(), "", &[("password", "another")]);
    assert_eq!(listed(&*wrong).await, ["lost : Corrupt"]);
    assert_eq!(listed(&*right).await, ["a 1", "b 1", "c 1", "d/e 1", "d/f 1", "end"]);
    // Nor where nothing but plain names of directories is known yet.
    let plain_dirs = [("directory_name_encryption", "false")];
    let right = on(inner.clone(), "q", &plain_dirs);
    put(&*right, "d/e", &[b"x"]).await;
    let wrong = on(inner.clone(), "q", &[plain_dirs[0], ("password", "another")]);
    assert_eq!(listed(&*wrong).await, ["lost d/: Corrupt", "end"]);
    put(&*inner, "q/d/copy", &[b"renamed"]).await;
    put(&*inner, "q/d/another", &[b"renamed"]).await;
    assert_eq!(listed(&*wrong).await, ["lost d/: Corrupt", "end"]);
    put(&*right, "a", &[b"x"]).await;
    assert_eq!(listed(&*right).await, ["a 1", "lost d/: Invalid", "end"]);
    // Names alone may be right.
    let plain = [("filename_encryption", "off")];
    put(&*on(inner.clone(), "p", &plain), "x", &[b"y"]).await;
    let wrong = on(inner.clone(), "p", &[plain[0], ("password", "another")]);
    assert_eq!(listed(&*wrong).await, ["x 1", "end"]);
    assert_eq!(get(&*wrong, "x").await.unwrap_err().kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_foreign_name_keeps_its_directory_from_being_known_as_a_whole() {
    let inner = Arc::new(MemStore::new());
    let store = on(inner.clone(), "", &[]);
    put(&*store, "a", &[b"x"]).await;
    put(&*inner, "readme.txt", &[b"not encrypted"]).await;
    put(&*inner, ".DS_Store", &[b"litter"]).await;
    assert_eq!(listed(&*store).await, ["lost : Invalid", "a 1", "end"]);
    // What is in a directory that has been renamed is as unknown.
    put(&*store, "d/b", &[b"x"]).await;
    let hidden = match inner.list(ListRequest::all()).next().await {
        Some(Listed::Batch(entries)) => entries.into_iter().find(|entry| entry.key.as_bytes().contains(&b'/')),
        other => panic!("{other:?}"),
    };
    let hidden = hidden.expect("the directory's").key.parent();
    put(&*inner, &format!("{hidden}copy (1)"), &[b"renamed"]).await;
    assert_eq!(listed(&*store).await, ["lost : Invalid", "a 1", "lost d/: Invalid", "d/b 1", "end"]);
    let lax = on(inner.clone(), "", &[("strict_names", "false")]);
    assert_eq!(listed(&*lax).await, ["a 1", "d/b 1", "end"]);
    let strict = on(inner.clone(), "", &[("strict_names", "true")]);
    assert_eq!(listed(&*strict).await, ["lost : Invalid"]);
    // Also where nothing else could tell whether the password is right.
    let plain_dirs = [("directory_name_encryption", "false")];
    put(&*inner, "r/README.md", &[b"not encrypted"]).await;
    put(&*on(inner.clone(), "r", &plain_dirs), "d/e", &[b"x"]).await;
    assert_eq!(listed(&*on(inner.clone(), "r", &plain_dirs)).await, ["lost : Invalid", "d/e 1", "end"]);
}

/// What was cut off at the edge of a block would decrypt without an error.
#[tokio::test]
async fn what_was_cut_off_is_noticed() {
    let inner = Arc::new(MemStore::new());
    let store = on(inner.clone(), "", &[]);
    let bytes = vec![5; 200_000];
    put(&*store, "f", &[&bytes]).await;
    let hidden = match inner.list(ListRequest::all()).next().await {
        Some(Listed::Batch(entries)) => entries[0].key.clone(),
        other => panic!("{other:?}"),
    };
    let sealed = get(&*inner, &hidden.to_string()).await.unwrap();
    for (len, listed_as) in [(32, "f 0"), (32 + 65_552, "f 65536")] {
        put(&*inner, &hidden.to_string(), &[&sealed[..len]]).await;
        assert_eq!(listed(&*store).await, [listed_as, "end"], "its size tells");
    }
    for len in [0, 31, 40, 32 + 65_552 + 7] {
        put(&*inner, &hidden.to_string(), &[&sealed[..len]]).await;
        assert_eq!(listed(&*store).await, [&format!("f {len}"), "end"], "it is there, {len}");
        assert!(store.stat(&Key::new("f")).await.unwrap().damaged, "{len}");
        assert_eq!(get(&*store, "f").await.unwrap_err().kind(), ErrorKind::Corrupt, "{len}");
    }
    let mut changed = sealed.clone();
    changed[100_000] ^= 1;
    put(&*inner, &hidden.to_string(), &[&changed]).await;
    assert_eq!(get(&*store, "f").await.unwrap_err().kind(), ErrorKind::Corrupt);
}
