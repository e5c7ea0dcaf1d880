//! Large files in chunks, as Nextcloud takes them: rclone's chunks first, so that the server is known to be right, then ours.

use crate::servers::{NO_TIMES, clean, keys, open_at};
use bytes::Bytes;
use haul_core::{ErrorKind, Key, Retry};
use haul_store::{CopyBatch, CopyHow, CopyItem, LateFacts, Part, Payload, Store, UnfinishedWrites, WriteSpec};
use haul_testkit::{
    conformance::{
        self,
        Breaks::{Always, AtTimes},
    },
    nextcloud::Nextcloud,
    peers,
    tree::content,
};
use std::{
    fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

const CHUNK: u64 = 64 << 10;

fn open(server: &Nextcloud, path: &str) -> Arc<dyn Store> {
    open_at(&server.url(), path, &[("vendor", "nextcloud"), ("nextcloud_chunk_size", "64Ki")])
}

/// What rclone sends in chunks arrives, with its time: only then does what haul sends prove anything. `None` without rclone.
fn rclone_passes(server: &Nextcloud) -> Option<()> {
    let rclone = peers::need("rclone")?;
    let folder = tempfile::tempdir().expect("folder");
    let (file, bytes) = (folder.path().join("f"), content(7, 4 * CHUNK + 99));
    fs::write(&file, &bytes).expect("written");
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().append(true).open(&file).and_then(|file| file.set_modified(time)).expect("a time");
    let mut command = Command::new(rclone);
    command.env("RCLONE_CONFIG", "/dev/null").args(["copyto", "--webdav-vendor=nextcloud", "--webdav-user=anna"]);
    command.args(["--webdav-nextcloud-chunk-size=64Ki", "--webdav-url", &server.url()]).arg(&file);
    assert!(command.arg(":webdav:by/rclone").status().expect("rclone").success());
    assert_eq!(server.taken().len(), 5, "{:?}", server.taken());
    let there = server.data().join("by/rclone");
    assert!(fs::read(&there).expect("there") == bytes);
    assert_eq!(fs::metadata(&there).and_then(|meta| meta.modified()).expect("a time"), time);
    Some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nextcloud_keeps_the_contract() {
    let Some(server) = Nextcloud::start() else { return };
    if rclone_passes(&server).is_none() {
        return;
    }
    let number = AtomicUsize::new(0);
    let root = || async {
        let store = open(&server, &format!("root {}/in/here", number.fetch_add(1, Ordering::Relaxed)));
        store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
        store
    };
    let except = [
        ("times_are_kept", Always, "with a file's content rclone's server doesn't take the first second of 1970"),
        ("strange_names_come_back", Always, "rclone's server takes two ways to write one letter for one name"),
        ("hashes_are_of_the_content", Always, "rclone's server is asked for no hashes"),
        (
            "set_meta_changes_only_that",
            Always,
            "rclone's server answers 500 to a time for a directory that it remembers",
        ),
        ("writers_of_one_key_dont_mix", AtTimes, "rclone's server refuses one of two who write at once with 423"),
    ];
    let summary = conformance::run_except(root, &except).await;
    println!("{summary}");
    let known = |name: &&str| NO_TIMES.contains(name) || except.iter().any(|(of, ..)| of == name);
    let skipped = summary.skipped.iter().map(|(name, _)| *name);
    let surprises: Vec<_> = skipped.filter(|name| !known(name) && *name != "a_file_and_a_folder_of_one_name").collect();
    assert!(surprises.is_empty(), "skipped too: {surprises:?}");
}

async fn send(store: &dyn Store, name: &str, bytes: &[u8]) -> (Box<dyn haul_store::Upload>, Vec<Part>) {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..Default::default() };
    let upload = store.write(&Key::new(name), spec).await.expect("begun");
    let mut parts = Vec::new();
    for (index, chunk) in bytes.chunks(CHUNK as usize).enumerate().rev() {
        let payload = Payload::from(Bytes::copy_from_slice(chunk));
        parts.push(upload.part(index as u64, index as u64 * CHUNK, payload).await.expect("sent"));
    }
    (upload, parts)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_and_damaged_chunks_are_noticed() {
    let Some(server) = Nextcloud::start() else { return };
    if rclone_passes(&server).is_none() {
        return;
    }
    let (store, bytes) = (open(&server, ""), content(8, 3 * CHUNK + 1));
    // The chunks are put together, and a proxy says that it doesn't know.
    server.say_nothing(1);
    let (upload, parts) = send(&*store, "d/lost", &bytes).await;
    upload.publish(parts, LateFacts::default()).await.expect("found out");
    assert!(fs::read(server.data().join("d/lost")).expect("there") == bytes);
    // A chunk that arrives otherwise than it was sent isn't believed.
    server.damage(1);
    let spec = WriteSpec { size: Some(2 * CHUNK), ..Default::default() };
    let upload = store.write(&Key::new("d/bad"), spec).await.expect("begun");
    let error = upload.part(0, 0, Payload::from(Bytes::from(vec![1; CHUNK as usize]))).await.expect_err("damaged");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert_eq!(error.message(), "the server took other bytes than were sent (md5 differs)");
    // One that is damaged later shows when they are put together, where the hash of the whole is known.
    let (upload, parts) = send(&*store, "d/bad", &bytes).await;
    let dir = fs::read_dir(server.uploads()).expect("uploads").find_map(|dir| {
        let chunk = dir.ok()?.path().join("00002");
        chunk.exists().then_some(chunk)
    });
    fs::write(dir.expect("a chunk"), vec![0; CHUNK as usize]).expect("damaged");
    let hashes = haul_core::hash::hash_bytes(&[haul_core::Algo::Sha1], &bytes);
    let failed = upload.publish(parts, LateFacts { hashes, ..Default::default() }).await.expect_err("damaged");
    assert_eq!(failed.error.kind(), ErrorKind::Corrupt, "{:?}", failed.error);
    failed.upload.abort().await.expect("aborted");
    assert_eq!(keys(&*store).await, ["by/", "by/rclone", "d/", "d/lost"]);
    // A move is made, and the proxy doesn't know: it is asked for again.
    for (from, to, how) in [("d/lost", "d/found", CopyHow::Rename), ("d/", "e/", CopyHow::RenameDir)] {
        let (spec, want, size) = (WriteSpec::default(), None, bytes.len() as u64);
        let item = CopyItem { from: Key::new(from), want, size, to: Key::new(to), spec, how };
        let place = store.caps().domain.as_ref().expect("one").place.clone();
        let move_it = async || {
            let batch = CopyBatch { from: place.clone(), items: vec![item.clone()], links: Default::default() };
            store.copy(batch, Default::default()).await.remove(0)
        };
        server.say_nothing(1);
        assert_eq!(move_it().await.expect_err("lost").retry(), Retry::Backoff, "{from}");
        move_it().await.expect(from);
        assert_eq!(move_it().await.expect_err("moved").kind(), ErrorKind::NotFound, "{from}: nobody's answer was lost");
    }
    assert_eq!(keys(&*store).await, ["by/", "by/rclone", "e/", "e/found"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_never_finished_is_found() {
    let Some(server) = Nextcloud::start() else { return };
    if rclone_passes(&server).is_none() {
        return;
    }
    let (whole, below) = (open(&server, ""), open(&server, "by"));
    let (upload, _) = send(&*whole, "d/f", &content(9, 2 * CHUNK)).await;
    drop(upload);
    // Chunks don't show their file, so only a cleanup of the root looks at them.
    for (store, dry_run, count) in [(&below, false, 0), (&whole, true, 1), (&whole, false, 1), (&whole, false, 0)] {
        let Ok(UnfinishedWrites { found, failed }) = store.admin().unwrap().cleanup(clean(dry_run)).await else {
            panic!()
        };
        assert!(found.len() == count && failed.is_empty(), "{found:?} {failed:?}");
        assert!(found.iter().all(|(key, _)| key.as_bytes().starts_with(b"uploads/haul-")), "{found:?}");
    }
    assert_eq!(fs::read_dir(server.uploads()).expect("uploads").count(), 0);
}
