//! The store on the simulated drive.

mod sdk;

use bytes::Bytes;
use futures::StreamExt;
use haul_core::{Algo, ErrorKind, Hashes, Key, Listed, Mtime, Retry, plan::Replace};
use haul_store::{
    CopyBatch, CopyHow, CopyItem, LateFacts, ListRequest, OpenRequest, Part, Payload, SentPart, SpaceUsage, Store,
    StoredFacts, Upload, WriteSpec,
};
use haul_testkit::{
    conformance::{self, Breaks::Always},
    onedrivesim::{FailureMode, Fault, OneDrive, Settings},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const CHUNK: usize = 320 << 10;

/// Its server makes a runtime of its own, which can't be done on a thread that has one.
fn start(settings: Settings) -> OneDrive {
    std::thread::spawn(|| OneDrive::start(settings).expect("started")).join().expect("started")
}

fn open_with(drive: &OneDrive, path: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let mut options = drive.options(&drive.endpoint());
    options.push(("chunk_size", "320Ki".into()));
    let own = options.into_iter().map(|(name, value)| (name.to_owned(), value));
    let more = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let request = OpenRequest {
        remote: "od".into(),
        path: path.into(),
        options: own.chain(more).collect(),
        ..OpenRequest::default()
    };
    (haul_onedrive::KIND.open)(request).expect("opened")
}

fn open(drive: &OneDrive, path: &str) -> Arc<dyn Store> {
    open_with(drive, path, &[])
}

/// One would do in its own drive what is meant for the other's.
#[test]
fn two_accounts_whose_drives_have_no_id_are_two_places() {
    let drive = start(Settings::default());
    let place = |remote: &str, more: &[(&str, &str)]| {
        let own = drive.options(&drive.endpoint()).into_iter();
        let more = more.iter().map(|(name, value)| (*name, (*value).to_owned()));
        let options = own.chain(more).map(|(name, value)| (name.to_owned(), value)).collect();
        let request = OpenRequest { remote: remote.into(), options, ..OpenRequest::default() };
        (haul_onedrive::KIND.open)(request).expect("opened").caps().domain.clone().expect("a place").name
    };
    let none = [("drive_id", "")];
    assert_ne!(place("work", &none), place("home", &none));
    assert_eq!(place("work", &none), place("work", &none));
    let token = |who: &str| {
        format!(
            r#"{{"access_token":"{who}","token_type":"Bearer","refresh_token":"{who}","expiry":"0001-01-01T00:00:00Z"}}"#
        )
    };
    let typed = |who: &str| place(":onedrive", &[("drive_id", ""), ("token", &token(who))]);
    assert!(typed("a") != typed("b") && typed("a") == typed("a"));
    // A drive that has an id is one, whoever names it.
    assert_eq!(place("work", &[]), place("home", &[]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract() {
    for drive_type in ["business", "personal"] {
        let drive = start(Settings { drive_type, page: 5, ..Settings::default() });
        let number = AtomicUsize::new(0);
        let root = || async {
            let store = open(&drive, &format!("box-{}", number.fetch_add(1, Ordering::Relaxed)));
            store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
            store
        };
        let summary = conformance::run_except(
            root,
            &[("a_write_that_ended_is_gone", Always, "the end of a file is kept until it may show")],
        )
        .await;
        println!("{summary}");
    }
}

async fn listed(store: &dyn Store, request: ListRequest) -> (Vec<String>, bool) {
    let (mut keys, mut listing, mut whole) = (Vec::new(), store.list(request), false);
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(batch) => keys.extend(batch.iter().map(|entry| entry.key.to_string())),
            Listed::Failed { .. } => {}
            Listed::Vanished(_) => {}
            Listed::End => whole = true,
        }
    }
    (keys, whole)
}

async fn failed(store: &dyn Store) -> usize {
    let listing = store.list(ListRequest::all());
    listing.filter(|listed| std::future::ready(matches!(listed, Listed::Failed { .. }))).count().await
}

async fn send(store: &dyn Store, name: &str, bytes: &[u8], spec: WriteSpec) -> (Box<dyn Upload>, Vec<Part>) {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..spec };
    let upload = store.write(&Key::new(name), spec).await.expect("begun");
    let parts = bytes.chunks(CHUNK).enumerate().map(|(index, chunk)| {
        let payload = Payload::from(Bytes::copy_from_slice(chunk));
        upload.part(index as u64, (index * CHUNK) as u64, payload)
    });
    let parts = futures::future::join_all(parts).await.into_iter().map(|part| part.expect("sent")).collect();
    (upload, parts)
}

fn dated() -> WriteSpec {
    WriteSpec { mtime: Some(Mtime::new(1_600_000_000, 0)), ..WriteSpec::default() }
}

async fn put(store: &dyn Store, name: &str, bytes: &[u8]) -> haul_core::Result<StoredFacts> {
    let (upload, parts) = send(store, name, bytes, dated()).await;
    Ok(upload.publish(parts, LateFacts::default()).await?)
}

fn noise(len: usize) -> Vec<u8> {
    (0..len as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_upload_is_one_version() {
    for drive_type in ["business", "personal"] {
        let drive = start(Settings { drive_type, ..Settings::default() });
        let store = open(&drive, "");
        for (name, size) in [("small", 100), ("chunk", CHUNK), ("large", 5 * CHUNK + 1), ("even", 3 * CHUNK)] {
            let bytes = noise(size);
            let stored = put(&*store, name, &bytes).await.expect("put");
            assert_eq!(stored.hashes.get(Algo::QuickXor).map(<[u8]>::len), Some(20));
            let shown = &drive.shown()[name];
            assert_eq!((shown.versions, &*shown.mtime), (1, "2020-09-13T12:26:40Z"), "{name}");
            put(&*store, name, &bytes).await.expect("put");
            assert_eq!(drive.shown()[name].versions, 2, "{name}");
        }
        assert_eq!(drive.sessions(), 0);
        drive.counts();
        put(&*store, "one", b"one").await.expect("put");
        assert_eq!(drive.counts(), [("range", 1), ("session", 1)].into());
        let (upload, parts) = send(&*store, "undated", b"x", WriteSpec::default()).await;
        upload.publish(parts, LateFacts::default()).await.expect("put");
        assert_eq!(drive.counts(), [("put", 1)].into());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_complete_listing_ends() {
    let drive = start(Settings { page: 3, ..Settings::default() });
    for n in 0..40 {
        drive.put(&format!("d{}/e/f{n}", n % 4), b"x");
    }
    let (by_delta, by_folder) = (open(&drive, ""), open_with(&drive, "", &[("delta", "false")]));
    let all = listed(&*by_delta, ListRequest::all()).await;
    assert!(all.1 && all.0.len() == 48, "{all:?}");
    assert!(drive.counts().keys().all(|kind| *kind == "delta"));
    assert_eq!(all, listed(&*by_folder, ListRequest::all()).await);
    assert!(drive.counts().keys().all(|kind| *kind == "children"));
    for kind in ["delta", "children"] {
        let store = if kind == "delta" { &by_delta } else { &by_folder };
        let pages = if kind == "delta" { 17 } else { 22 };
        for after in 0..pages {
            drive.fail(Fault { kind, after, times: 1, how: FailureMode::Status(500) });
            let (keys, _) = listed(&**store, ListRequest::all()).await;
            // A folder below the top, which has two pages, is asked for again.
            let passes = kind == "children" && after > 1;
            assert_eq!(keys.len() == 48, passes, "{kind} {after}");
            drive.fail(Fault { kind, after, times: 1, how: FailureMode::Lost });
            assert_eq!(failed(&**store).await, usize::from(!passes), "{kind} {after}");
        }
        assert_eq!(listed(&**store, ListRequest::all()).await, all);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_differ_by_case_never_replace_each_other() {
    let drive = start(Settings::default());
    let store = open(&drive, "");
    put(&*store, "d/Name", b"first").await.expect("put");
    for (name, bytes) in [("d/name", &b"second"[..]), ("D/other", b"third"), ("d/NAME", &noise(2 * CHUNK))] {
        let (upload, parts) =
            match store.write(&Key::new(name), WriteSpec { size: Some(bytes.len() as u64), ..dated() }).await {
                Ok(upload) if bytes.len() > CHUNK => {
                    let payload = Payload::from(Bytes::copy_from_slice(&bytes[..CHUNK]));
                    let error = upload.part(0, 0, payload).await.expect_err("refused");
                    assert_eq!(error.kind(), ErrorKind::Exists);
                    continue;
                }
                Ok(_) => send(&*store, name, bytes, dated()).await,
                Err(error) => panic!("{error:?}"),
            };
        let error = upload.publish(parts, LateFacts::default()).await.expect_err("refused").error;
        assert_eq!((error.kind(), error.retry()), (ErrorKind::Exists, Retry::Never), "{error:?}");
        assert!(error.message().contains("is the same name for OneDrive"), "{error:?}");
    }
    assert_eq!(store.stat(&Key::new("d/name")).await.expect_err("another").kind(), ErrorKind::NotFound);
    assert_eq!(store.stat(&Key::new("d/Name")).await.expect("there").size, 5);
    let gone = store.delete(vec![(Key::new("d/NAME"), None)]).await;
    assert!(gone[0].is_ok() && drive.shown().contains_key("d/Name"));
    assert_eq!(drive.shown().len(), 2);
}

/// The service goes on below `Foo` where `foo` is asked for, however deep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_that_differ_by_case_are_one_at_no_level() {
    for by_child in [false, true] {
        let drive = start(Settings { by_child, ..Settings::default() });
        let more = if by_child { &[("region", "cn")][..] } else { &[] };
        // How the root was typed counts for nothing.
        open_with(&drive, "Top/Box", more).make_dir(&Key::new(""), &Default::default()).await.expect("made");
        let store = open_with(&drive, "top/box", more);
        put(&*store, "Foo/sub/f1", b"first").await.expect("put");
        put(&*store, "Foo/sub/deep/f2", b"first").await.expect("put");
        // The same run, one that listed, and one that knows nothing.
        let listing = open_with(&drive, "top/box", more);
        assert_eq!(listed(&*listing, ListRequest::all()).await.0.len(), 5);
        let fresh = open_with(&drive, "top/box", more);
        for (run, store) in [&store, &listing, &fresh].into_iter().enumerate() {
            for name in ["foo/sub/f1", "foo/sub/new", "Foo/SUB/f1", "foo/sub/deep/f2", "Foo/sub/Deep/f2", "FOO/f"] {
                let error = put(&**store, name, b"second").await.expect_err("refused");
                assert_eq!((error.kind(), error.retry()), (ErrorKind::Exists, Retry::Never), "{run} {name}: {error:?}");
                assert!(error.message().contains("is the same name for OneDrive"), "{run} {name}: {error:?}");
                let absent = store.stat(&Key::new(name)).await.expect_err("another");
                assert_eq!(absent.kind(), ErrorKind::NotFound, "{run} {name}");
                assert!(store.read(&Key::new(name), None, None).await.is_err(), "{run} {name}");
                assert!(store.delete(vec![(Key::new(name), None)]).await[0].is_ok(), "{run} {name}: no such file");
            }
            for name in ["foo/", "foo/sub/", "Foo/SUB/"] {
                let error = store.make_dir(&Key::new(name), &Default::default()).await.expect_err("refused");
                assert_eq!(error.kind(), ErrorKind::Exists, "{run} {name}");
                assert!(store.delete(vec![(Key::new(name), None)]).await[0].is_ok(), "{run} {name}: no such folder");
            }
            let set = store.set_meta(&Key::new("foo/sub/f1"), Some(Mtime::new(1, 0)), None).await;
            assert_eq!(set.expect_err("another").kind(), ErrorKind::NotFound, "{run}");
            let below = listed(&**store, ListRequest { prefix: b"foo/".to_vec(), ..ListRequest::all() }).await;
            assert!(below.0.is_empty(), "{run}: {below:?}");
            let item = CopyItem {
                from: Key::new("Foo/sub/f1"),
                want: None,
                size: 5,
                to: Key::new("foo/sub/f1"),
                spec: WriteSpec::default(),
                how: CopyHow::Copy,
            };
            let from = store.caps().domain.as_ref().expect("one").place.clone();
            let batch = CopyBatch { from, items: vec![item], links: Default::default() };
            let copied = store.copy(batch, Default::default()).await;
            assert_eq!(copied[0].as_ref().expect_err("refused").kind(), ErrorKind::Exists, "{run}");
        }
        put(&*fresh, "Foo/sub/f1", b"third").await.expect("put");
        assert_eq!(drive.content("Top/Box/Foo/sub/f1").as_deref(), Some(&b"third"[..]));
        assert_eq!(drive.content("Top/Box/Foo/sub/deep/f2").as_deref(), Some(&b"first"[..]));
        assert_eq!(drive.shown().len(), 7, "{:?}", drive.shown());
    }
}

/// What is known of the folders above costs no request for each file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_are_asked_about_once() {
    let drive = start(Settings::default());
    let store = open(&drive, "top");
    for n in 0..4 {
        put(&*store, &format!("a/b/c/f{n}"), b"x").await.expect("put");
    }
    let counts = drive.counts();
    assert_eq!((counts["mkdir"], counts["session"], counts["range"]), (4, 4, 4), "{counts:?}");
    let fresh = open(&drive, "top");
    for n in 0..4 {
        fresh.stat(&Key::new(format!("a/b/c/f{n}"))).await.expect("there");
    }
    assert_eq!(drive.counts(), [("item", 3 + 4)].into());
    // A folder that somebody deleted meanwhile is made anew.
    assert!(open(&drive, "top").delete(vec![(Key::new("a/b/c/f0"), None)]).await[0].is_ok());
    for gone in ["f1", "f2", "f3", ""] {
        assert!(open(&drive, "top").delete(vec![(Key::new(format!("a/b/c/{gone}")), None)]).await[0].is_ok());
    }
    assert!(open(&drive, "top").delete(vec![(Key::new("a/b/"), None)]).await[0].is_ok());
    put(&*fresh, "a/b/c/d/f", b"x").await.expect("put");
    assert_eq!(drive.content("top/a/b/c/d/f").as_deref(), Some(&b"x"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_arrives_in_a_folder_that_goes_isnt_lost() {
    for drive_type in ["personal", "business"] {
        let drive = start(Settings { drive_type, ..Settings::default() });
        let store = open_with(&drive, "", &[("hard_delete", "true")]);
        let delete = async |name: &str| store.delete(vec![(Key::new(name), None)]).await.remove(0);
        for (kind, name) in [("children", "a"), ("delete", "b")] {
            store.make_dir(&Key::new(format!("{name}/")), &Default::default()).await.expect("made");
            drive.meanwhile(kind, &format!("{name}/new"));
            let deleted = delete(&format!("{name}/")).await;
            // OneDrive for Business deletes a folder under no condition: from its recycle bin it can be had back.
            let is_gone = drive_type == "business" && kind == "delete";
            assert_eq!(deleted.err().map(|e| e.kind()), (!is_gone).then_some(ErrorKind::Exists), "{drive_type} {kind}");
            assert_eq!(drive.content(&format!("{name}/new")).is_some(), !is_gone, "{drive_type} {kind}");
            assert_eq!(drive.recycled(), usize::from(is_gone), "{drive_type} {kind}");
        }
        // It is asked right before, and by id.
        store.make_dir(&Key::new("c/"), &Default::default()).await.expect("made");
        drive.counts();
        assert!(delete("c/").await.is_ok());
        assert_eq!(drive.counts(), [("item", 1), ("children", 1), ("delete", 1)].into(), "{drive_type}");
    }
}

/// A content that came out wrong doesn't stay with the size and the time that the next run looks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_wrongly_doesnt_stay() {
    for (drive_type, size) in [("personal", 100), ("business", 100), ("business", 3 * CHUNK + 7)] {
        let drive = start(Settings { drive_type, ..Settings::default() });
        let store = open(&drive, "");
        let bytes = noise(size);
        drive.spoil(1);
        let error = put(&*store, "d/new", &bytes).await.expect_err("other bytes");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert_eq!(drive.content("d/new"), None, "{drive_type} {size}");
        put(&*store, "d/new", &bytes).await.expect("put");
        assert_eq!(drive.content("d/new").as_deref(), Some(&bytes[..]));
        // An earlier file under the name is restored.
        let later = vec![7; size];
        drive.spoil(1);
        let (upload, parts) = send(&*store, "d/new", &later, dated()).await;
        let failed = upload.publish(parts.clone(), LateFacts::default()).await.expect_err("other bytes");
        assert_eq!(failed.error.kind(), ErrorKind::Corrupt, "{:?}", failed.error);
        assert_eq!(drive.content("d/new").as_deref(), Some(&bytes[..]), "{drive_type} {size}");
        let there = store.stat(&Key::new("d/new")).await.expect("there");
        assert_eq!(there.mtime, Some(Mtime::new(1_600_000_000 - 86_400, 0)), "{drive_type} {size}");
        // A large one must be sent anew; what is there isn't touched by who tries all the same.
        match failed.upload.publish(parts, LateFacts::default()).await {
            Ok(_) => assert_eq!(size, 100),
            Err(failed) => {
                assert!(size > CHUNK, "{:?}", failed.error);
                assert_eq!(drive.content("d/new").as_deref(), Some(&bytes[..]), "{drive_type} {size}");
            }
        }
        put(&*store, "d/new", &later).await.expect("put");
        assert_eq!(drive.content("d/new").as_deref(), Some(&later[..]), "{drive_type} {size}");
        // What others write between the two isn't taken back.
        drive.spoil(1);
        drive.meanwhile("item", "d/other");
        put(&*store, "d/other", &bytes).await.expect_err("other bytes");
        assert_eq!(drive.content("d/other").as_deref(), Some(&b"meanwhile"[..]), "{drive_type} {size}");
        // Nor is a file whose versions can't be listed: it gets another time, so that it is sent again.
        put(&*store, "d/third", &bytes).await.expect("put");
        drive.spoil(1);
        drive.fail(Fault { kind: "versions", after: 0, times: 1, how: FailureMode::Status(500) });
        let error = put(&*store, "d/third", &later).await.expect_err("other bytes");
        assert!(error.message().contains("; it could not be taken back ("), "{error:?}");
        let there = store.stat(&Key::new("d/third")).await.expect("there");
        assert_eq!(there.mtime, Some(Mtime::new(1_600_000_000 - 86_400, 0)), "{drive_type} {size}");
        let item = CopyItem {
            from: Key::new("d/new"),
            want: None,
            size: size as u64,
            to: Key::new("d/copy"),
            spec: WriteSpec::default(),
            how: CopyHow::Copy,
        };
        let from = store.caps().domain.as_ref().expect("one").place.clone();
        let batch = || CopyBatch { from: from.clone(), items: vec![item.clone()], links: Default::default() };
        drive.spoil(1);
        let copied = store.copy(batch(), Default::default()).await;
        assert_eq!(copied[0].as_ref().expect_err("other bytes").kind(), ErrorKind::Corrupt, "{size}");
        assert_eq!(drive.content("d/copy"), None, "{size}");
        assert!(store.copy(batch(), Default::default()).await[0].is_ok(), "{size}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_lost_makes_no_second_version() {
    let drive = start(Settings::default());
    let store = open(&drive, "");
    for (name, size) in [("small", 10), ("large", 3 * CHUNK + 7)] {
        let bytes = noise(size);
        let (upload, parts) = send(&*store, name, &bytes, dated()).await;
        drive.fail(Fault { kind: "range", after: 0, times: 1, how: FailureMode::Lost });
        let unpublished = upload.publish(parts.clone(), LateFacts::default()).await.expect_err("lost");
        unpublished.upload.publish(parts, LateFacts::default()).await.expect("it was done");
        assert_eq!(drive.shown()[name].versions, 1, "{name}");
    }
    // In the middle of a session: what is there isn't sent again.
    drive.received();
    drive.fail(Fault { kind: "range", after: 1, times: 1, how: FailureMode::Lost });
    let bytes = noise(4 * CHUNK);
    let upload =
        store.write(&Key::new("middle"), WriteSpec { size: Some(bytes.len() as u64), ..dated() }).await.unwrap();
    let mut parts = Vec::new();
    for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
        let part = || upload.part(index as u64, (index * CHUNK) as u64, Payload::from(Bytes::copy_from_slice(chunk)));
        parts.push(match part().await {
            Ok(part) => part,
            Err(_) => part().await.expect("again"),
        });
    }
    upload.publish(parts, LateFacts::default()).await.expect("published");
    assert_eq!((drive.received(), drive.shown()["middle"].versions), (4 * CHUNK as u64, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_goes_on_where_the_session_is() {
    let drive = start(Settings::default());
    let (store, bytes) = (open(&drive, "r"), noise(6 * CHUNK));
    let spec = || WriteSpec { size: Some(bytes.len() as u64), ..dated() };
    let key = Key::new("f");
    let upload = store.write(&key, spec()).await.expect("begun");
    let token = upload.token().await.expect("asked").expect("one");
    let mut sent = Vec::new();
    for n in 0..3 {
        let payload = Payload::from(Bytes::copy_from_slice(&bytes[n * CHUNK..(n + 1) * CHUNK]));
        let part = upload.part(n as u64, (n * CHUNK) as u64, payload).await.expect("sent");
        sent.push(SentPart { part, offset: (n * CHUNK) as u64, crc64: 0 });
    }
    drop(upload);
    assert!(!drive.shown().contains_key("r/f"));
    let other = open(&drive, "r");
    assert_eq!(
        other.resumable().unwrap().resume(&Key::new("g"), &token, vec![], spec()).await.err().map(|e| e.kind()),
        Some(ErrorKind::Invalid)
    );
    let later = WriteSpec { mtime: Some(Mtime::new(1, 0)), ..spec() };
    assert_eq!(
        other.resumable().unwrap().resume(&key, &token, vec![], later).await.err().map(|e| e.kind()),
        Some(ErrorKind::Changed)
    );
    drive.received();
    let (upload, mut parts) =
        other.resumable().unwrap().resume(&key, &token, sent.clone(), spec()).await.expect("found");
    assert_eq!(parts.len(), 3);
    for n in 3..6 {
        let payload = Payload::from(Bytes::copy_from_slice(&bytes[n * CHUNK..(n + 1) * CHUNK]));
        parts.push(upload.part(n as u64, (n * CHUNK) as u64, payload).await.expect("sent"));
        assert!(!drive.shown().contains_key("r/f"), "it doesn't show");
    }
    upload.publish(parts, LateFacts::default()).await.expect("published");
    assert_eq!(drive.received(), 3 * CHUNK as u64);
    let gone = other.resumable().unwrap().resume(&key, &token, sent, spec()).await.err().map(|e| e.kind());
    assert_eq!(gone, Some(ErrorKind::NotFound));
    assert!(!other.resumable().unwrap().discard(&key, &token).await.expect("gone"));
    let read = other.read(&key, None, None).await.expect("there");
    assert_eq!(conformance::collect(read).await.expect("bytes"), bytes);
    let given_up = store.write(&key, spec()).await.expect("begun");
    let token = given_up.token().await.expect("asked").expect("one");
    assert_eq!(drive.sessions(), 1);
    assert!(store.resumable().unwrap().discard(&key, &token).await.expect("removed"));
    assert_eq!(drive.sessions(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_service_says_is_heeded() {
    let drive = start(Settings::default());
    let store = open(&drive, "");
    put(&*store, "f", b"first").await.expect("put");
    // A token that is no longer good is renewed once, and the new one kept.
    drive.revoke();
    store.stat(&Key::new("f")).await.expect("renewed");
    store.stat(&Key::new("f")).await.expect("still good");
    assert_eq!(drive.renewals(), 1);
    for (status, kind) in [(429, ErrorKind::Busy), (503, ErrorKind::Busy), (500, ErrorKind::Io)] {
        drive.fail(Fault { kind: "item", after: 0, times: 1, how: FailureMode::Status(status) });
        let error = store.stat(&Key::new("f")).await.expect_err("told to fail");
        let retry = if status == 500 { Retry::Backoff } else { Retry::After(Duration::from_secs(1)) };
        assert_eq!((error.kind(), error.retry()), (kind, retry), "{status}");
    }
    // SharePoint writes into Office files.
    drive.set(|settings| settings.rewrites = true);
    let error = put(&*store, "x.docx", b"text").await.expect_err("rewritten");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unsupported, Retry::Never));
    assert!(error.message().contains("--ignore-size"), "{error:?}");
    let spec = WriteSpec { size_may_differ: true, ..dated() };
    let (upload, parts) = send(&*store, "y.docx", b"text", spec).await;
    upload.publish(parts, LateFacts::default()).await.expect("taken");
    let wrong = WriteSpec { hashes: Hashes::default().with(Algo::QuickXor, [1; 20]), ..dated() };
    let (upload, parts) = send(&*store, "z", b"text", wrong).await;
    assert_eq!(upload.publish(parts, LateFacts::default()).await.expect_err("other").error.kind(), ErrorKind::Corrupt);
    assert!(!drive.shown().contains_key("z"));
    let admin = store.admin().expect("it tells");
    let SpaceUsage { total, used, free } = admin.about().await.expect("told");
    assert_eq!((total, used.zip(free).map(|(used, free)| used + free)), (Some(1 << 40), Some(1 << 40)));
    let link = admin.link(&Key::new("f"), Duration::from_secs(60)).await.expect("made");
    assert!(link.starts_with("http://127.0.0.1"), "{link}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_meant_is_changed() {
    let drive = start(Settings::default());
    let store = open(&drive, "top");
    let stored = put(&*store, "d/f", b"first").await.expect("put");
    put(&*store, "d/f", b"second").await.expect("put");
    let gone = store.delete(vec![(Key::new("d/f"), stored.version.clone())]).await;
    assert_eq!(gone[0].as_ref().expect_err("changed").kind(), ErrorKind::Changed);
    let old = store.read(&Key::new("d/f"), stored.version.as_ref(), None).await;
    assert_eq!(old.expect_err("changed").kind(), ErrorKind::Changed);
    let exact = WriteSpec { replace: Replace::Exactly(stored.version.clone().expect("one")), ..dated() };
    let (upload, parts) = send(&*store, "d/f", b"third", exact).await;
    assert_eq!(
        upload.publish(parts, LateFacts::default()).await.expect_err("changed").error.kind(),
        ErrorKind::Changed
    );
    let full = store.delete(vec![(Key::new("d/"), None)]).await;
    assert_eq!(full[0].as_ref().expect_err("full").kind(), ErrorKind::Exists);
    assert!(store.delete(vec![(Key::new("d"), None)]).await[0].is_ok());
    // A copy keeps the time; a move replaces nothing.
    let item = |to: &str, how| CopyItem {
        from: Key::new("d/f"),
        want: None,
        size: 6,
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
    assert_eq!(drive.shown()["top/e/copy"].mtime, "2020-09-13T12:26:40Z");
    let refused = store
        .copy(batch(vec![item("e/copy", CopyHow::Rename), item("e/COPY", CopyHow::Copy)]), Default::default())
        .await;
    let kinds: Vec<_> = refused.iter().map(|one| one.as_ref().map_err(|e| e.kind()).err()).collect();
    assert_eq!(kinds, [Some(ErrorKind::Unsupported), Some(ErrorKind::Exists)]);
    let dir = |from: &str, to: &str| CopyItem { from: Key::new(from), ..item(to, CopyHow::RenameDir) };
    // The answer is lost; the same is asked for again.
    for moved in [item("g/moved", CopyHow::Rename), dir("g/", "h/"), dir("h/", "g/")] {
        drive.fail(Fault { kind: "patch", after: 0, times: 1, how: FailureMode::Lost });
        let first = store.copy(batch(vec![moved.clone()]), Default::default()).await;
        assert!(first[0].is_err(), "{moved:?}");
        let again = store.copy(batch(vec![moved]), Default::default()).await;
        assert!(again[0].is_ok(), "{again:?}");
    }
    assert!(drive.shown().contains_key("top/g/moved") && !drive.shown().contains_key("top/d/f"));
    drive.counts();
    let hard = open_with(&drive, "top", &[("hard_delete", "true"), ("no_versions", "true")]);
    put(&*hard, "e/copy", b"again").await.expect("put");
    assert_eq!(drive.shown()["top/e/copy"].versions, 1);
    let recycled = drive.recycled();
    assert!(hard.delete(vec![(Key::new("e/copy"), None)]).await[0].is_ok());
    assert_eq!((drive.recycled(), drive.counts()["permanentDelete"]), (recycled, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pipes_wait_until_their_size_is_known() {
    let drive = start(Settings::default());
    let store = open(&drive, "");
    let upload = store.write(&Key::new("piped"), dated()).await.expect("begun");
    assert!(upload.token().await.expect("asked").is_none());
    let bytes = noise(3 * CHUNK + 5);
    let mut parts = Vec::new();
    for (index, chunk) in bytes.chunks(CHUNK).enumerate() {
        let payload = Payload::from(Bytes::copy_from_slice(chunk));
        parts.push(upload.part(index as u64, (index * CHUNK) as u64, payload).await.expect("held"));
    }
    upload.publish(parts, LateFacts::default()).await.expect("published");
    assert_eq!(drive.shown()["piped"].versions, 1);
    let endless = store.write(&Key::new("endless"), dated()).await.expect("begun");
    let mut error = None;
    for index in 0..5u64 {
        let payload = Payload::from(Bytes::from(vec![0; 16 << 20]));
        error = error.or(endless.part(index, index << 24, payload).await.err());
    }
    assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Unsupported));
}
