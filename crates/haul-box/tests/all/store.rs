//! The contract on the simulator, and what the service can do to us.

use bytes::Bytes;
use futures::{StreamExt, future::join_all};
use haul_core::{Algo, ErrorKind, Hashes, Key, Listed, Mtime, Retry, plan::Replace};
use haul_store::{
    CopyBatch, CopyHow, CopyItem, LateFacts, ListRequest, OpenRequest, Part, Payload, SentPart, SpaceUsage, Store,
    StoredFacts, Upload, WriteSpec,
};
use haul_testkit::{
    boxsim::{BoxSim, Fault, Settings},
    conformance::{self, Breaks::Always},
    lab::Lab,
    tree::content,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const MIB: u64 = 1 << 20;

pub fn open(sim: &BoxSim, path: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    try_open(sim, path, more).expect("opened")
}

fn try_open(sim: &BoxSim, path: &str, more: &[(&str, &str)]) -> haul_core::Result<Arc<dyn Store>> {
    let (endpoint, token) = (sim.endpoint(), sim.token());
    let token_url = format!("{endpoint}/oauth2/token");
    let base = [
        ("endpoint", &*endpoint),
        ("token", &token),
        ("client_id", "app"),
        ("client_secret", "secret"),
        ("token_url", &token_url),
    ];
    let options = base.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let request = OpenRequest { remote: "b".into(), path: path.into(), options, ..OpenRequest::default() };
    (haul_box::KIND.open)(request)
}

fn start(settings: Settings) -> BoxSim {
    BoxSim::start(settings).expect("a port")
}

fn dated() -> WriteSpec {
    WriteSpec { mtime: Some(Mtime::new(1_600_000_000, 0)), ..WriteSpec::default() }
}

pub async fn put(store: &dyn Store, name: &str, bytes: &[u8], spec: WriteSpec) -> haul_core::Result<StoredFacts> {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..spec };
    let upload = store.write(&Key::new(name), spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::copy_from_slice(bytes))).await?;
    Ok(upload.publish(vec![part], LateFacts::default()).await?)
}

/// Keys, and how the listing ended.
async fn listed(store: &dyn Store, request: ListRequest) -> Vec<String> {
    let (mut out, mut listing) = (Vec::new(), store.list(request));
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(batch) => out.extend(batch.iter().map(|entry| entry.key.to_string())),
            Listed::Failed { error, .. } => out.push(format!("failed: {:?}", error.kind())),
            Listed::Vanished(_) => {}
            Listed::End => out.push("end".into()),
        }
    }
    out
}

async fn all(store: &dyn Store, name: &str) -> Vec<u8> {
    conformance::collect(store.read(&Key::new(name), None, None).await.expect("there")).await.expect("bytes")
}

fn payload(bytes: &[u8], part: u64, index: u64) -> Payload {
    let (from, to) = (index * part, ((index + 1) * part).min(bytes.len() as u64));
    Payload::from(Bytes::copy_from_slice(&bytes[from as usize..to as usize]))
}

fn sized(bytes: &[u8]) -> WriteSpec {
    WriteSpec { size: Some(bytes.len() as u64), ..dated() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract() {
    let sim = start(Settings { page: 3, ..Settings::default() });
    let number = AtomicUsize::new(0);
    let root = || async { open(&sim, &format!("root-{}", number.fetch_add(1, Ordering::Relaxed)), &[]) };
    let except = [("copies_answer_for_each", Always, "a copy onto what is there isn't made by the service")];
    let summary = conformance::run_except(root, &except).await;
    println!("{summary}");
    assert!(summary.passed.contains(&"only_parts_that_are_there_are_believed"), "{summary}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_is_whole_or_has_no_end() {
    let sim = start(Settings { page: 2, ..Settings::default() });
    for name in ["Top/B/x", "Top/b-c", "Top/B/Sub Dir/y", "Top/a", "Top/B0", "other"] {
        sim.put(name, name.as_bytes());
    }
    sim.bookmark("a bookmark");
    let store = open(&sim, "top", &[]);
    let whole = ["B/", "B/Sub Dir/", "B/Sub Dir/y", "B/x", "B0", "a", "b-c", "end"];
    assert_eq!(listed(&*store, ListRequest::all()).await, whole);
    assert_eq!(sim.counts()["ListItems"], 4, "ids of folders are known from their listings");
    for after in 0..4 {
        for fault in [Fault::Refuse(500, "internal_server_error"), Fault::Refuse(404, "not_found"), Fault::Lose] {
            sim.fail("ListItems", after, 1, fault);
            let entries = listed(&*store, ListRequest::all()).await;
            if after > 1 && !matches!(fault, Fault::Refuse(404, _)) {
                assert_eq!(entries, whole, "below the top what passes is asked for again: {after} {fault:?}");
                continue;
            }
            assert!(entries.iter().any(|line| line.starts_with("failed")), "{after} {fault:?}: {entries:?}");
            assert!(after > 1 || !entries.contains(&"end".to_owned()), "{after} {fault:?}: {entries:?}");
            assert_eq!(listed(&*store, ListRequest::all()).await, whole);
        }
    }
    assert_eq!(listed(&*open(&sim, "none", &[]), ListRequest::all()).await, ["failed: DirNotFound"]);
    assert_eq!(listed(&*open(&sim, "", &[]), ListRequest::dir("")).await, ["Top/", "other", "end"]);
    let mine = open(&sim, "", &[("owned_by", "a@example.com")]);
    assert_eq!(listed(&*mine, ListRequest::dir("")).await, ["Top/", "other", "end"]);
    let others = open(&sim, "", &[("owned_by", "b@example.com")]);
    assert_eq!(listed(&*others, ListRequest::dir("")).await, ["end"]);
    // A folder is a root by its id, too.
    let id = 101.to_string();
    let by_id = open(&sim, "B", &[("root_folder_id", &id)]);
    assert_eq!(listed(&*by_id, ListRequest::all()).await, ["Sub Dir/", "Sub Dir/y", "x", "end"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_file_is_one_request_and_a_version_replaces_it() {
    let sim = start(Settings::default());
    let store = open(&sim, "", &[]);
    let names: Vec<String> = (0..20).map(|number| format!("d/f{number}")).collect();
    let stored = join_all(names.iter().map(|name| put(&*store, name, name.as_bytes(), dated()))).await;
    assert!(stored.iter().all(|one| one.as_ref().is_ok_and(|one| one.hashes.get(Algo::Sha1).is_some())), "{stored:?}");
    assert_eq!(sim.counts(), [("CreateFolder", 1), ("Upload", 20)].into());
    let shown = &sim.shown()["d/f7"];
    assert_eq!((shown.versions, &*shown.mtime), (1, "2020-09-13T04:26:40-08:00"));
    put(&*store, "d/f7", b"other", dated()).await.expect("another version");
    assert_eq!(sim.counts(), [("Preflight", 1), ("GetFile", 1), ("UploadVersion", 1)].into());
    // Nobody has told of the name: the refusal says what it is.
    put(&*open(&sim, "", &[]), "d/f7", b"third", dated()).await.expect("a third");
    assert_eq!((sim.shown()["d/f7"].versions, sim.trashed()), (3, 0));
    assert_eq!(all(&*store, "d/f7").await, b"third");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_differ_by_case_never_replace_each_other() {
    let sim = start(Settings::default());
    let store = open(&sim, "", &[]);
    put(&*store, "d/Name", b"first", dated()).await.expect("put");
    for name in ["d/name", "D/other", "d/NAME"] {
        let error = put(&*store, name, b"second", dated()).await.expect_err("refused");
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Exists, Retry::Never), "{error:?}");
        assert!(error.message().contains("is the same name for Box"), "{error:?}");
    }
    let large = vec![1; 51 << 20];
    let upload = store.write(&Key::new("d/nAME"), sized(&large)).await.expect("begun");
    assert_eq!(upload.part_size().await.expect_err("refused").kind(), ErrorKind::Exists);
    assert_eq!(store.stat(&Key::new("d/name")).await.expect_err("another").kind(), ErrorKind::NotFound);
    assert!(store.delete(vec![(Key::new("d/NAME"), None)]).await[0].is_ok());
    assert_eq!((sim.shown().len(), sim.shown()["d/Name"].versions, sim.sessions()), (2, 1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_service_says_how_long_parts_are() {
    for part in [5 * MIB, 8 * MIB, 32 * MIB] {
        let sim = start(Settings { part, commits: 1, ..Settings::default() });
        let store = open(&sim, "", &[("upload_cutoff", "20M")]);
        let mut bytes = content(part, 41 * MIB + 3);
        for versions in [1, 2] {
            bytes[versions] ^= 1;
            let upload = store.write(&Key::new("d/large"), sized(&bytes)).await.expect("begun");
            assert_eq!(upload.part_size().await.expect("asked"), Some(part));
            let parts = (0..bytes.len() as u64).step_by(part as usize).enumerate();
            let sends = parts.map(|(index, at)| upload.part(index as u64, at, payload(&bytes, part, index as u64)));
            // The last one first: they go in any order.
            let sends: Vec<_> = sends.collect();
            let sent: Vec<Part> = join_all(sends.into_iter().rev()).await.into_iter().map(Result::unwrap).collect();
            assert!(sim.shown().get("d/large").is_none_or(|shown| shown.versions < versions), "it doesn't show");
            let stored = upload.publish(sent, LateFacts::default()).await.expect("published");
            assert_eq!(stored.size, bytes.len() as u64);
            let shown = &sim.shown()["d/large"];
            assert_eq!((shown.versions, &*shown.mtime), (versions, "2020-09-13T04:26:40-08:00"));
        }
        assert!(all(&*store, "d/large").await == bytes);
        let counts = sim.counts();
        let parts = bytes.len().div_ceil(part as usize);
        assert_eq!((counts["UploadPart"], counts["CreateSession"], counts["Commit"]), (2 * parts, 2, 4), "{counts:?}");
        assert_eq!((sim.sessions(), sim.sent()), (0, 2 * bytes.len() as u64));
        let small = store.write(&Key::new("small"), WriteSpec { size: Some(5), ..dated() }).await.expect("begun");
        assert_eq!(small.part_size().await.expect("asked"), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_of_other_sizes_are_cut_anew() {
    for (part, own) in [(8 * MIB, 3 * MIB), (8 * MIB, 12 * MIB), (5 * MIB, 7 * MIB + 11), (8 * MIB, 16 * MIB)] {
        let sim = start(Settings { part, ..Settings::default() });
        let store = open(&sim, "", &[("upload_cutoff", "20M")]);
        let bytes = content(own, 31 * MIB + 9);
        let key = Key::new("f");
        let upload = store.write(&key, sized(&bytes)).await.expect("begun");
        let token = upload.token().await.expect("asked").expect("one");
        let count = (bytes.len() as u64).div_ceil(own);
        let send = async |upload: &dyn Upload, index: u64| {
            upload.part(index, index * own, payload(&bytes, own, index)).await.expect("sent")
        };
        let half = count / 2;
        let mut sent = Vec::new();
        for index in 0..half {
            sent.push(send(&*upload, index).await);
        }
        drop(upload);
        let before = sim.sent();
        let sent_parts = sent.iter().map(|part| SentPart { part: part.clone(), offset: part.index * own, crc64: 0 });
        let (upload, mut parts) =
            store.resumable().unwrap().resume(&key, &token, sent_parts.collect(), sized(&bytes)).await.expect("there");
        for index in (0..count).filter(|index| parts.iter().all(|part| part.index != *index)).collect::<Vec<_>>() {
            parts.push(send(&*upload, index).await);
        }
        upload.publish(parts, LateFacts::default()).await.expect("published");
        assert!(all(&*store, "f").await == bytes, "{part} {own}");
        assert_eq!(before + sim.sent(), bytes.len() as u64, "nothing went twice");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_goes_on_without_the_bytes_that_are_there() {
    let part = 5 * MIB;
    let sim = start(Settings { part, page: 2, ..Settings::default() });
    let (store, bytes, key) = (open(&sim, "r", &[("upload_cutoff", "20M")]), content(3, 31 * MIB), Key::new("f"));
    let upload = store.write(&key, sized(&bytes)).await.expect("begun");
    let token = upload.token().await.expect("asked").expect("one");
    // Part 2 is lost on its way.
    sim.fail("UploadPart", 2, 1, Fault::Refuse(500, "internal_server_error"));
    let mut sent = Vec::new();
    for index in 0..5 {
        let sends = upload.part(index, index * part, payload(&bytes, part, index));
        match sends.await {
            Ok(part) => sent.push(part),
            Err(error) => {
                assert_eq!((index, error.retry()), (2, Retry::Backoff));
                // Its bytes are known to the hash all the same, if its turn came.
                let again = upload.part(index, index * part, payload(&bytes, part, index)).await;
                sent.push(again.expect("sent"));
            }
        }
    }
    drop(upload);
    // Of an earlier run's five parts the journal knows four.
    let without = 1;
    let sent_parts = sent.iter().filter(|part| part.index != without);
    let sent_parts: Vec<_> =
        sent_parts.map(|p| SentPart { part: p.clone(), offset: p.index * part, crc64: 0 }).collect();
    let other = open(&sim, "r", &[("upload_cutoff", "20M")]);
    let wrong = other
        .resumable()
        .unwrap()
        .resume(&Key::new("g"), &token, Vec::new(), sized(&bytes))
        .await
        .err()
        .map(|e| e.kind());
    assert_eq!(wrong, Some(ErrorKind::Invalid));
    let later = WriteSpec { size: Some(7), ..dated() };
    let wrong = other.resumable().unwrap().resume(&key, &token, Vec::new(), later).await.err().map(|e| e.kind());
    assert_eq!(wrong, Some(ErrorKind::Changed));
    sim.sent();
    let (upload, mut parts) =
        other.resumable().unwrap().resume(&key, &token, sent_parts, sized(&bytes)).await.expect("there");
    assert_eq!(parts.iter().map(|part| part.index).collect::<Vec<_>>(), [0, 2, 3, 4]);
    for index in [1, 5, 6] {
        parts.push(upload.part(index, index * part, payload(&bytes, part, index)).await.expect("sent"));
    }
    upload.publish(parts, LateFacts::default()).await.expect("published");
    assert_eq!(sim.sent(), 6 * MIB, "the service had the one that the journal didn't know");
    assert!(all(&*other, "f").await == bytes);
    assert!(!other.resumable().unwrap().discard(&key, &token).await.expect("gone"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_receipt_that_is_not_true_is_noticed_at_the_commit() {
    let part = 8 * MIB;
    let sim = start(Settings::default());
    let (store, bytes, key) = (open(&sim, "", &[("upload_cutoff", "20M")]), content(4, 20 * MIB), Key::new("f"));
    let other = content(5, 20 * MIB);
    let upload = store.write(&key, sized(&bytes)).await.expect("begun");
    let token = upload.token().await.expect("asked").expect("one");
    // The part that was sent belongs to another content.
    let sent = upload.part(0, 0, payload(&other, part, 0)).await.expect("sent");
    drop(upload);
    let sent_parts = vec![SentPart { part: sent, offset: 0, crc64: 0 }];
    let hashes = haul_core::hash::hash_bytes(&[Algo::Sha1], &bytes);
    let spec = WriteSpec { hashes, ..sized(&bytes) };
    let (upload, mut parts) = store.resumable().unwrap().resume(&key, &token, sent_parts, spec).await.expect("there");
    for index in [1, 2] {
        parts.push(upload.part(index, index * part, payload(&bytes, part, index)).await.expect("sent"));
    }
    let failed = upload.publish(parts, LateFacts::default()).await.expect_err("other bytes");
    assert_eq!(failed.error.kind(), ErrorKind::Corrupt);
    failed.upload.abort().await.expect("aborted");
    assert!(sim.shown().is_empty() && sim.sessions() == 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_lost_makes_no_second_version() {
    let sim = start(Settings::default());
    let store = open(&sim, "", &[("upload_cutoff", "20M")]);
    for (name, size, kind) in [("small", 10, "Upload"), ("large", 21 * MIB, "Commit")] {
        let bytes = content(size, size);
        let upload = store.write(&Key::new(name), sized(&bytes)).await.expect("begun");
        let mut parts = Vec::new();
        for index in 0..size.div_ceil(8 * MIB) {
            if kind == "Commit" && index == 1 {
                // Its answer is lost: it is there when it comes again.
                sim.fail("UploadPart", 0, 1, Fault::Lose);
                let error = upload.part(1, 8 * MIB, payload(&bytes, 8 * MIB, 1)).await.expect_err("lost");
                assert_eq!(error.retry(), Retry::Backoff);
            }
            let sent = upload.part(index, index * 8 * MIB, payload(&bytes, 8 * MIB, index)).await;
            parts.push(sent.expect("sent"));
        }
        sim.fail(kind, 0, 1, Fault::Lose);
        let failed = upload.publish(parts.clone(), LateFacts::default()).await.expect_err("lost");
        failed.upload.publish(parts, LateFacts::default()).await.expect("it was done");
        assert_eq!(sim.shown()[name].versions, 1, "{name}");
    }
    // The same bytes again are no other version; the time is another.
    let bytes = content(21 * MIB, 21 * MIB);
    let later = WriteSpec { mtime: Some(Mtime::new(1_700_000_000, 0)), ..sized(&bytes) };
    let upload = store.write(&Key::new("large"), later).await.expect("begun");
    let mut parts = Vec::new();
    for index in 0..3 {
        parts.push(upload.part(index, index * 8 * MIB, payload(&bytes, 8 * MIB, index)).await.expect("sent"));
    }
    upload.publish(parts, LateFacts::default()).await.expect("it has them");
    let shown = &sim.shown()["large"];
    assert_eq!((shown.versions, &*shown.mtime, sim.sessions()), (1, "2023-11-14T14:13:20-08:00", 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_meant_is_changed() {
    let sim = start(Settings::default());
    let store = open(&sim, "top", &[]);
    let stored = put(&*store, "d/f", b"first", dated()).await.expect("put");
    put(&*store, "d/f", b"second", dated()).await.expect("put");
    let gone = store.delete(vec![(Key::new("d/f"), stored.version.clone())]).await;
    assert_eq!(gone[0].as_ref().expect_err("changed").kind(), ErrorKind::Changed);
    let exact = WriteSpec { replace: Replace::Exactly(stored.version.clone().expect("one")), ..dated() };
    assert_eq!(put(&*store, "d/f", b"third", exact).await.expect_err("changed").kind(), ErrorKind::Changed);
    // A session looks at the tag as it is committed.
    let now = store.stat(&Key::new("d/f")).await.expect("there").version.expect("one");
    let bytes = content(1, 51 * MIB);
    let exact = WriteSpec { replace: Replace::Exactly(now), ..sized(&bytes) };
    let upload = store.write(&Key::new("d/f"), exact).await.expect("begun");
    let mut parts = Vec::new();
    for index in 0..7 {
        parts.push(upload.part(index, index * 8 * MIB, payload(&bytes, 8 * MIB, index)).await.expect("sent"));
    }
    put(&*store, "d/f", b"meanwhile", dated()).await.expect("put");
    let failed = upload.publish(parts, LateFacts::default()).await.expect_err("changed");
    assert_eq!(failed.error.kind(), ErrorKind::Changed);
    failed.upload.abort().await.expect("aborted");
    assert_eq!(all(&*store, "d/f").await, b"meanwhile");
    // A copy keeps the time; a move replaces nothing.
    let item = |to: &str, how| CopyItem {
        from: Key::new("d/f"),
        want: None,
        size: 9,
        to: Key::new(to),
        spec: WriteSpec::default(),
        how,
    };
    let batch = |items| CopyBatch {
        from: store.caps().domain.as_ref().expect("one").place.clone(),
        items,
        links: Default::default(),
    };
    let done = store.copy(batch(vec![item("e/copy", CopyHow::Copy)]), Default::default()).await;
    assert!(done[0].is_ok(), "{done:?}");
    assert_eq!(sim.shown()["top/e/copy"].mtime, "2020-09-13T04:26:40-08:00");
    let refused = store
        .copy(batch(vec![item("e/copy", CopyHow::Rename), item("e/COPY", CopyHow::Copy)]), Default::default())
        .await;
    let kinds: Vec<_> = refused.iter().map(|one| one.as_ref().map_err(|e| e.kind()).err()).collect();
    assert_eq!(kinds, [Some(ErrorKind::Unsupported), Some(ErrorKind::Exists)]);
    let dir = |from: &str, to: &str| CopyItem { from: Key::new(from), ..item(to, CopyHow::RenameDir) };
    // The answer is lost; the same is asked for again.
    for moved in [item("g/moved", CopyHow::Rename), dir("g/", "h/"), dir("h/", "g/")] {
        ["UpdateFile", "UpdateFolder"].iter().for_each(|kind| sim.fail(kind, 0, 1, Fault::Lose));
        let first = store.copy(batch(vec![moved.clone()]), Default::default()).await;
        assert!(first[0].is_err(), "{moved:?}");
        let again = store.copy(batch(vec![moved]), Default::default()).await;
        assert!(again[0].is_ok(), "{again:?}");
    }
    assert!(sim.shown().contains_key("top/g/moved") && !sim.shown().contains_key("top/d/f"));
    // Into the trash, or for good.
    assert!(store.delete(vec![(Key::new("g/moved"), None)]).await[0].is_ok());
    assert_eq!(sim.trashed(), 1);
    let hard = open(&sim, "top", &[("hard_delete", "true")]);
    assert!(hard.delete(vec![(Key::new("e/copy"), None), (Key::new("e/"), None)]).await.iter().all(Result::is_ok));
    assert_eq!((sim.trashed(), sim.counts()["DeleteForGood"]), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_service_says_is_heeded() {
    let sim = start(Settings::default());
    let store = open(&sim, "", &[("impersonate", "4242")]);
    put(&*store, "f", b"first", dated()).await.expect("put");
    assert!(sim.users().iter().all(|user| user == "4242") && !sim.users().is_empty());
    sim.expire();
    store.stat(&Key::new("f")).await.expect("renewed");
    store.stat(&Key::new("f")).await.expect("still good");
    assert_eq!(sim.renewals(), 1);
    for (status, code, kind) in [
        (429, "rate_limit_exceeded", ErrorKind::Busy),
        (503, "unavailable", ErrorKind::Busy),
        (500, "internal_server_error", ErrorKind::Io),
        (403, "operation_blocked_temporary", ErrorKind::Busy),
    ] {
        sim.fail("Preflight", 0, 1, Fault::Refuse(status, code));
        let error = store.stat(&Key::new("f")).await.expect_err("told to fail");
        let waits = matches!(status, 429 | 503);
        let retry = if waits { Retry::After(Duration::from_secs(1)) } else { Retry::Backoff };
        assert_eq!((error.kind(), error.retry()), (kind, retry), "{status}");
    }
    sim.fail("Content", 0, 1, Fault::Refuse(202, "not_ready"));
    let error = store.read(&Key::new("f"), None, None).await.expect_err("told to wait");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::After(Duration::from_secs(1))));
    // Who may not write may look.
    sim.fail("Preflight", 0, 1, Fault::Refuse(403, "access_denied_insufficient_permissions"));
    assert_eq!(store.stat(&Key::new("f")).await.expect("listed").size, 5);
    sim.fail("Upload", 0, 1, Fault::Refuse(403, "storage_limit_exceeded"));
    assert_eq!(put(&*store, "g", b"x", dated()).await.expect_err("full").kind(), ErrorKind::NoSpace);
    let wrong = WriteSpec { hashes: Hashes::default().with(Algo::Sha1, [1; 20]), ..dated() };
    assert_eq!(put(&*store, "z", b"text", wrong).await.expect_err("other").kind(), ErrorKind::Corrupt);
    assert!(!sim.shown().contains_key("z"));
    let admin = store.admin().expect("it tells");
    let SpaceUsage { total, used, free } = admin.about().await.expect("told");
    assert_eq!((total, used, free), (Some(1_000_000_000_000), Some(5), Some(999_999_999_995)));
    let link = admin.link(&Key::new("f"), Duration::from_secs(60)).await.expect("made");
    assert!(link.starts_with("https://app.box.com/s/"), "{link}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipes_wait_until_their_size_is_known() {
    let sim = start(Settings::default());
    let store = open(&sim, "", &[]);
    for size in [7 * MIB + 5, 57 * MIB] {
        let upload = store.write(&Key::new("piped"), dated()).await.expect("begun");
        assert!(upload.token().await.expect("asked").is_none());
        let bytes = content(size, size);
        let mut parts = Vec::new();
        for index in 0..size.div_ceil(3 * MIB) {
            let part = upload.part(index, index * 3 * MIB, payload(&bytes, 3 * MIB, index)).await;
            parts.push(part.expect("held"));
        }
        upload.publish(parts, LateFacts::default()).await.expect("published");
        assert!(all(&*store, "piped").await == bytes);
    }
    let endless = store.write(&Key::new("endless"), dated()).await.expect("begun");
    let mut error = None;
    for index in 0..5u64 {
        let payload = Payload::from(Bytes::from(vec![0; 16 << 20]));
        error = error.or(endless.part(index, index << 24, payload).await.err());
    }
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Unsupported));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_signs_anew() {
    let (sim, lab) = (start(Settings::default()), Lab::new(""));
    sim.put("f", b"text");
    for cipher in [None, Some("-v2 des3 -v2prf hmacWithSHA1"), Some("-v2 aes-256-cbc")] {
        let Some(file) = sim.application(&lab, cipher, "pass word") else { return };
        for kind in ["user", "enterprise"] {
            sim.expire();
            let before = sim.renewals();
            let app = [("token", ""), ("config_credentials", &*file), ("box_sub_type", kind)];
            let store = open(&sim, "", &app);
            assert_eq!(store.stat(&Key::new("f")).await.expect("let in").size, 4);
            sim.expire();
            assert_eq!(all(&*store, "f").await, b"text");
            assert_eq!(sim.renewals() - before, 2, "{cipher:?} {kind}");
        }
        let path = lab.path("app.json");
        std::fs::write(&path, &file).expect("written");
        let path = path.display().to_string();
        let by_file = open(&sim, "", &[("token", ""), ("box_config_file", &path), ("box_sub_type", "enterprise")]);
        assert_eq!(all(&*by_file, "f").await, b"text");
    }
    let token = sim.token();
    let access = token.split('"').find(|word| word.starts_with("access-")).expect("one");
    assert_eq!(all(&*open(&sim, "", &[("token", ""), ("access_token", access)]), "f").await, b"text");
    sim.expire();
    // An application without a key, for the enterprise.
    let client = [("token", ""), ("client_credentials", "true"), ("client_id", "app"), ("client_secret", "secret")];
    let missing = try_open(&sim, "", &client).expect_err("refused");
    assert_eq!(missing.message(), "client_credentials: box_subject_id must be set, too");
    let before = sim.renewals();
    let by_client = open(&sim, "", &[&client[..], &[("box_subject_id", "4711")]].concat());
    assert_eq!(all(&*by_client, "f").await, b"text");
    assert_eq!(sim.renewals() - before, 1);
    sim.expire();
    assert_eq!(all(&*by_client, "f").await, b"text");
    sim.expire();
    let error = open(&sim, "", &[("token", ""), ("access_token", access)]).stat(&Key::new("f")).await;
    assert_eq!(error.expect_err("expired").message(), "Box gave no token: the access_token has expired or isn't good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pieces_that_are_read_at_once_share_an_address() {
    let sim = start(Settings { latency: Duration::from_millis(5), ..Settings::default() });
    let (store, bytes, key) = (open(&sim, "", &[]), content(2, MIB), Key::new("f"));
    let version = put(&*store, "f", &bytes, dated()).await.expect("put").version;
    sim.counts();
    let read = async |from: u64| {
        let read = store.read(&key, version.as_ref(), Some(from..from + 1000)).await?;
        Ok::<_, haul_core::Error>(conformance::collect(read).await? == bytes[from as usize..from as usize + 1000])
    };
    let pieces = join_all((0..20).map(|n| read(n * 50_000))).await;
    assert!(pieces.iter().all(|piece| matches!(piece, Ok(true))), "{pieces:?}");
    assert_eq!(sim.counts(), [("Content", 1), ("GetFile", 1), ("Download", 20)].into());
    // An address that is good no longer is asked for anew, once.
    sim.fail("Download", 0, 1, Fault::Refuse(403, "expired"));
    assert!(matches!(read(7).await, Ok(true)));
    assert_eq!(sim.counts(), [("Content", 1), ("GetFile", 1), ("Download", 2)].into());
    put(&*open(&sim, "", &[]), "f", b"other", dated()).await.expect("put");
    put(&*store, "f", b"another", dated()).await.expect("put");
    assert_eq!(read(0).await.expect_err("gone").kind(), ErrorKind::Changed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remembered_folders_may_be_outdated() {
    let sim = start(Settings::default());
    let (store, other) = (open(&sim, "", &[]), open(&sim, "", &[]));
    put(&*store, "d/e/f", b"first", dated()).await.expect("put");
    let gone = vec![(Key::new("d/e/f"), None), (Key::new("d/e/"), None), (Key::new("d/"), None)];
    assert!(other.delete(gone).await.iter().all(Result::is_ok));
    // The first one learns of it, the second one makes the folders anew.
    let error = put(&*store, "d/e/g", b"second", dated()).await.expect_err("no such folder");
    assert_eq!((error.kind(), error.op()), (ErrorKind::NotFound, "write"), "{error:?}");
    assert_eq!(store.stat(&Key::new("d/e/f")).await.expect_err("gone").kind(), ErrorKind::NotFound);
    put(&*store, "d/e/g", b"second", dated()).await.expect("put");
    assert_eq!(sim.shown()["d/e/g"].size, Some(6));
    let whole = listed(&*store, ListRequest::all()).await;
    assert_eq!(whole, ["d/", "d/e/", "d/e/g", "end"]);
    // Another folder of the same name.
    other.stat(&Key::new("d/e/g")).await.expect("there");
    let gone = vec![(Key::new("d/e/g"), None), (Key::new("d/e/"), None), (Key::new("d/"), None)];
    assert!(store.delete(gone).await.iter().all(Result::is_ok));
    sim.put("d/e/h", b"third");
    assert_eq!(other.stat(&Key::new("d/e/h")).await.expect("there").size, 5);
    assert_eq!(all(&*other, "d/e/h").await, b"third");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_for_a_new_file_does_not_replace_one_that_came_between() {
    let sim = start(Settings::default());
    let (store, bytes, key) = (open(&sim, "", &[("upload_cutoff", "20M")]), content(9, 21 * MIB), Key::new("f"));
    let upload = store.write(&key, sized(&bytes)).await.expect("begun");
    let token = upload.token().await.expect("asked").expect("one");
    let mut parts = Vec::new();
    for index in 0..3 {
        parts.push(upload.part(index, index * 8 * MIB, payload(&bytes, 8 * MIB, index)).await.expect("sent"));
    }
    put(&*store, "f", b"between", dated()).await.expect("put");
    let failed = upload.publish(parts, LateFacts::default()).await.expect_err("taken");
    assert_eq!((failed.error.kind(), failed.error.retry()), (ErrorKind::NotFound, Retry::Never));
    let wrong = store
        .resumable()
        .unwrap()
        .resume(&key, &token, Vec::new(), sized(&bytes))
        .await
        .err()
        .map(|error| error.kind());
    assert_eq!(wrong, Some(ErrorKind::Changed), "it is begun anew");
    failed.upload.abort().await.expect("aborted");
    assert_eq!((all(&*store, "f").await, sim.sessions()), (b"between".to_vec(), 0));
}

#[test]
fn options_that_cannot_be_are_told() {
    let sim = start(Settings::default());
    for (name, value, why) in [
        ("upload_cutoff", "1Mi", "upload_cutoff = \"1Mi\": use a size from 20M to 50Mi"),
        ("list_chunk", "1001", "list_chunk = \"1001\": use a number from 1 to 1000"),
        ("commit_retries", "0", "commit_retries = \"0\": use a number from 1 to 100000"),
        ("root_folder_id", "../x", "root_folder_id = \"../x\": an id is a number, the last of a folder's address"),
        ("endpoint", "box.com", "endpoint = \"box.com\": write https://HOST"),
        ("token", "", "nobody has logged in to Box: haul config reconnect b:"),
        ("config_credentials", "{}", "box_config_file isn't the JSON that Box gives out for an application with a key"),
    ] {
        let error = try_open(&sim, "", &[(name, value)]).expect_err("refused");
        assert_eq!(error.message(), why);
    }
    let name = "x".repeat(256);
    let error = try_open(&sim, &name, &[]).expect_err("refused");
    assert_eq!(
        (error.kind(), error.message()),
        (ErrorKind::Invalid, "Box can't hold a name of more than 255 characters: rename it")
    );
    for (cutoff, size) in [("30Mi", 30 << 20), ("1Gi", 50 << 20), ("", 50 << 20)] {
        let store = open(&sim, "", &[("upload_cutoff", cutoff)]);
        assert_eq!(store.caps().parts.map(|parts| parts.single), Some(size), "{cutoff}");
    }
}

/// A content that came out wrong doesn't stay with the size and the time that the next run looks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_wrongly_doesnt_stay() {
    for size in [100, 20 * MIB + 1] {
        let sim = start(Settings::default());
        let store = open(&sim, "", &[("upload_cutoff", "20M")]);
        let write = async |bytes: &[u8], name: &str| {
            let upload = store.write(&Key::new(name), sized(bytes)).await?;
            let part = upload.part(0, 0, Payload::from(Bytes::copy_from_slice(bytes))).await?;
            upload.publish(vec![part], LateFacts::default()).await.map_err(haul_core::Error::from)
        };
        let (first, second) = (content(1, size), content(2, size));
        let shifted = Some(Mtime::new(1_600_000_000 - 86_400, 0));
        sim.spoil(1);
        let error = write(&first, "d/f").await.expect_err("other bytes");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        // A session has ended; what is in one form can be sent once more.
        assert_eq!(error.retry() == Retry::Backoff, size == 100, "{error:?}");
        assert_eq!(sim.content("d/f"), None, "{size}");
        write(&first, "d/f").await.expect("written");
        // An earlier file under the name is restored.
        sim.spoil(1);
        let error = write(&second, "d/f").await.expect_err("other bytes");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert!(sim.content("d/f").as_deref() == Some(&first[..]), "{size}");
        assert_eq!(store.stat(&Key::new("d/f")).await.expect("there").mtime, shifted, "{size}");
        write(&second, "d/f").await.expect("written");
        assert!(sim.content("d/f").as_deref() == Some(&second[..]), "{size}");
        // What can't be restored has another time.
        sim.spoil(1);
        sim.fail("ListVersions", 0, 1, Fault::Refuse(500, "internal_server_error"));
        let error = write(&first, "d/f").await.expect_err("other bytes");
        assert!(error.message().contains("; it could not be taken back ("), "{error:?}");
        assert_eq!(store.stat(&Key::new("d/f")).await.expect("there").mtime, shifted, "{size}");
        let item = CopyItem {
            from: Key::new("d/f"),
            want: None,
            size,
            to: Key::new("d/copy"),
            spec: WriteSpec::default(),
            how: CopyHow::Copy,
        };
        let from = store.caps().domain.as_ref().expect("one").place.clone();
        let batch = || CopyBatch { from: from.clone(), items: vec![item.clone()], links: Default::default() };
        sim.spoil(1);
        let copied = store.copy(batch(), Default::default()).await;
        assert_eq!(copied[0].as_ref().expect_err("other bytes").kind(), ErrorKind::Corrupt, "{size}");
        assert_eq!(sim.content("d/copy"), None, "{size}");
        assert!(store.copy(batch(), Default::default()).await[0].is_ok(), "{size}");
    }
}
