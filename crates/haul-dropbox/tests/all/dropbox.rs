//! The contract on the simulator, and what the service can do to us.

use bytes::Bytes;
use futures::{StreamExt, future::join_all};
use haul_core::{ErrorKind, Key, Listed, Mtime, Retry, plan::Replace};
use haul_store::{
    CopyBatch, CopyHow, CopyItem, LateFacts, ListRequest, OpenRequest, Part, Payload, SentPart, Store, StoredFacts,
    Upload, WriteSpec,
};
use haul_testkit::{
    conformance::{self, Breaks::Always},
    dropboxsim::{Dropbox, Fault, Settings},
    tree::content,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

pub fn open(service: &Dropbox, path: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let (endpoint, token) = (service.endpoint(), service.token());
    let token_url = format!("{endpoint}/oauth2/token");
    let base = [("endpoint", &*endpoint), ("token", &token), ("client_id", "me"), ("token_url", &token_url)];
    let options = base.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let request = OpenRequest { remote: "d".into(), path: path.into(), options, ..OpenRequest::default() };
    (haul_dropbox::KIND.open)(request).expect("opened")
}

fn start(settings: Settings) -> Dropbox {
    Dropbox::start(settings).expect("a port")
}

pub async fn put(store: &dyn Store, name: &str, bytes: &[u8], spec: WriteSpec) -> haul_core::Result<StoredFacts> {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..spec };
    let upload = store.write(&Key::new(name), spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::copy_from_slice(bytes))).await?;
    Ok(upload.publish(vec![part], LateFacts::default()).await?)
}

/// Keys, and how the listing ended.
pub async fn listed(store: &dyn Store, request: ListRequest) -> Vec<String> {
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_contract() {
    let service = start(Settings { page: 3, ..Settings::default() });
    let number = AtomicUsize::new(0);
    let root = || async { open(&service, &format!("root-{}", number.fetch_add(1, Ordering::Relaxed)), &[]) };
    let except = [
        (
            "only_parts_that_are_there_are_believed",
            Always,
            "the service doesn't tell what a session has: the hash of the whole proves it as it is published",
        ),
        (
            "a_write_that_ended_is_gone",
            Always,
            "the end of a file is kept until it is published, and sent anew by whoever goes on",
        ),
        ("copies_answer_for_each", Always, "a copy onto what is there isn't made by the service"),
    ];
    let summary = conformance::run_except(root, &except).await;
    println!("{summary}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listing_is_whole_or_has_no_end() {
    let service = start(Settings { page: 2, ..Settings::default() });
    for name in ["/Box/B/x", "/Box/b-c", "/Box/B/Sub Dir/y", "/Box/a", "/Box/B0", "/other"] {
        service.put(name, name.as_bytes());
    }
    let store = open(&service, "box", &[]);
    let whole = ["B/", "B/Sub Dir/", "B/Sub Dir/y", "B/x", "B0", "a", "b-c", "end"];
    assert_eq!(listed(&*store, ListRequest::all()).await, whole);
    service.fail("files/list_folder/continue", 2, Fault::Refuse("reset"));
    assert_eq!(listed(&*store, ListRequest::all()).await, whole, "it begins anew");
    service.fail("files/list_folder/continue", 1, Fault::Status(503));
    assert_eq!(listed(&*store, ListRequest::all()).await, whole, "a page is asked for again");
    service.fail("files/list_folder/continue", 4, Fault::Refuse("reset"));
    assert_eq!(listed(&*store, ListRequest::all()).await, ["failed: Io"]);
    service.fail("files/list_folder/continue", 1, Fault::Refuse("other"));
    assert_eq!(listed(&*store, ListRequest::all()).await, ["failed: Io"]);
    service.fail("files/list_folder/continue", 1, Fault::Refuse("path/not_found"));
    let level = listed(&*store, ListRequest::dir("")).await;
    assert!(!level.contains(&"end".to_owned()), "{level:?}");
    assert_eq!(listed(&*store, ListRequest::dir("")).await, ["B/", "B0", "a", "b-c", "end"]);
    assert_eq!(listed(&*open(&service, "none", &[]), ListRequest::all()).await, ["failed: DirNotFound"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn small_files_are_published_together() {
    let service = start(Settings { latency: Duration::from_millis(5), ..Settings::default() });
    let store = open(&service, "box", &[]);
    service.fail("files/upload_session/finish_batch_v2", 2, Fault::Crowded);
    let names: Vec<String> = (0..60).map(|number| format!("d{}/f{number}", number % 3)).collect();
    let mtime = Some(Mtime::new(1_600_000_000, 5));
    let puts = names.iter().map(|name| put(&*store, name, name.as_bytes(), WriteSpec { mtime, ..Default::default() }));
    let stored: Vec<_> = join_all(puts).await;
    assert!(stored.iter().all(Result::is_ok), "{stored:?}");
    let counts = service.counts();
    // One that comes late, on a slow machine, has no company.
    assert!(counts.get("files/upload_session/start").is_none_or(|alone| *alone < 15), "{counts:?}");
    assert!(counts["files/upload_session/append_batch"] < 15, "{counts:?}");
    assert!(counts["files/upload_session/finish_batch_v2"] < 15, "{counts:?}");
    // They go in a header.
    let sent = service.requests_of("files/upload_session/append_batch");
    assert!(sent.iter().all(|argument| argument.to_string().len() < 8 << 10));
    let requests = service.requests_of("files/upload_session/finish_batch_v2");
    assert_eq!(requests[0]["entries"][0]["commit"]["client_modified"], "2020-09-13T12:26:40Z");
    assert_eq!(listed(&*store, ListRequest::all()).await.len(), 60 + 3 + 1);
    let keys = names
        .iter()
        .zip(&stored)
        .map(|(name, stored)| (Key::new(name), stored.as_ref().ok().and_then(|stored| stored.version.clone())));
    let answers = store.delete(keys.collect()).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(service.counts()["files/delete_batch"], 1);
    assert_eq!(listed(&*store, ListRequest::all()).await, ["d0/", "d1/", "d2/", "end"]);
}

/// Sixty small files at once.
async fn put_sixty(store: &dyn Store) -> Vec<haul_core::Result<StoredFacts>> {
    let names: Vec<String> = (0..60).map(|number| format!("{number}")).collect();
    join_all(names.iter().map(|name| put(store, name, name.as_bytes(), WriteSpec::default()))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_takes_no_contents_together_gets_each_by_itself() {
    for (refuses, status) in [("start_batch", 404), ("append_batch", 431)] {
        let service = start(Settings::default());
        let store = open(&service, "box", &[]);
        let refuses = format!("files/upload_session/{refuses}");
        service.fail(&refuses, 100, Fault::Status(status));
        for _ in 0..2 {
            let stored = put_sixty(&*store).await;
            assert!(stored.iter().all(Result::is_ok), "{stored:?}");
        }
        let counts = service.counts();
        assert_eq!(counts["files/upload_session/start"], 120, "{counts:?}");
        assert!(counts[&refuses] < 5, "it isn't asked for again and again: {counts:?}");
        assert_eq!(service.all().len(), 1 + 60);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contents_that_went_together_and_got_lost_are_sent_again() {
    for fault in [Fault::Lose, Fault::Status(503), Fault::Throttle("too_many_requests", 7)] {
        let service = start(Settings::default());
        let store = open(&service, "box", &[]);
        service.fail("files/upload_session/append_batch", 1, fault);
        let specs = (0..120).map(|number| {
            let key = Key::new(format!("{number}"));
            let store = &store;
            async move { store.write(&key, WriteSpec { size: Some(3), ..Default::default() }).await.expect("begun") }
        });
        let publish = |upload: Box<dyn Upload>| async move {
            let part = upload.part(0, 0, Payload::from(Bytes::from("abc"))).await.expect("kept");
            upload.publish(vec![part], LateFacts::default()).await
        };
        let first = join_all(join_all(specs).await.into_iter().map(publish)).await;
        let failed: Vec<_> = first.into_iter().filter_map(Result::err).collect();
        assert!(failed.len() > 1, "one request was for several");
        assert!(failed.iter().all(|failed| failed.error.retry() != Retry::Never), "{failed:?}");
        assert!(failed.len() < 120, "not for all");
        assert_eq!(service.all().len(), 1 + 120 - failed.len());
        let again = join_all(failed.into_iter().map(|failed| publish(failed.upload))).await;
        assert!(again.iter().all(Result::is_ok));
        assert!(service.all().iter().all(|(path, bytes)| path == "/box" || bytes.as_deref() == Some(b"abc")));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_that_a_listing_has_not_shown_are_not_asked_about() {
    let service = start(Settings::default());
    service.put("/box/Old/f", b"text");
    let count = |name: &str| service.counts().get(name).copied().unwrap_or_default();
    let listing = open(&service, "box", &[]);
    assert_eq!(listed(&*listing, ListRequest::all()).await, ["Old/", "Old/f", "end"]);
    for name in ["a/b/f", "c/f", "Old/g"] {
        put(&*listing, name, b"text", WriteSpec::default()).await.expect("written");
    }
    assert_eq!(count("files/get_metadata"), 0);
    // What it has shown by a name of other case is.
    let error = put(&*listing, "old/h", b"text", WriteSpec::default()).await.expect_err("another's folder");
    assert_eq!((error.kind(), count("files/get_metadata")), (ErrorKind::Exists, 1));
    // In a folder that was just made is nothing either.
    let made = open(&service, "new", &[]);
    made.make_dir(&Key::new(""), &WriteSpec::default()).await.expect("made");
    put(&*made, "a/f", b"text", WriteSpec::default()).await.expect("written");
    assert_eq!(count("files/get_metadata"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_found_out() {
    let service = start(Settings::default());
    let store = open(&service, "box", &[]);
    service.fail("files/upload_session/finish_batch_v2", 1, Fault::Lose);
    let spec = WriteSpec { size: Some(3), replace: Replace::Absent, ..Default::default() };
    let upload = store.write(&Key::new("f"), spec).await.expect("begun");
    let part = upload.part(0, 0, Payload::from(Bytes::from("abc"))).await.expect("sent");
    let failed = upload.publish(vec![part.clone()], LateFacts::default()).await.expect_err("lost");
    assert_eq!(failed.error.retry(), Retry::Backoff);
    let stored = failed.upload.publish(vec![part], LateFacts::default()).await.expect("it was done");
    assert_eq!(stored.size, 3);
    let spec = WriteSpec { replace: Replace::Absent, ..Default::default() };
    let error = put(&*store, "f", b"abc", spec).await.expect_err("another's");
    assert_eq!(error.kind(), ErrorKind::Exists);
    // So is a move's, which is asked for again.
    for (from, to, how) in
        [("f", "d/g", CopyHow::Rename), ("d/", "e/", CopyHow::RenameDir), ("e/g", "f", CopyHow::Rename)]
    {
        let (spec, want) = (WriteSpec::default(), None);
        let item = CopyItem { from: Key::new(from), want, size: 3, to: Key::new(to), spec, how };
        let place = store.caps().domain.as_ref().expect("one").place.clone();
        let move_it = async || {
            let batch = CopyBatch { from: place.clone(), items: vec![item.clone()], links: Default::default() };
            store.copy(batch, Default::default()).await.remove(0)
        };
        service.fail("files/move_v2", 1, Fault::Lose);
        assert_eq!(move_it().await.expect_err("lost").retry(), Retry::Backoff, "{from}");
        move_it().await.expect(from);
        assert_eq!(move_it().await.expect_err("moved").kind(), ErrorKind::NotFound, "{from}: nobody's answer was lost");
    }
    assert_eq!(service.all()["/box/f"].as_deref(), Some(&b"abc"[..]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_fold_together_are_an_error_of_the_second() {
    let service = start(Settings::default());
    let store = open(&service, "box", &[]);
    let old = put(&*store, "Dir/name", b"first", WriteSpec::default()).await.expect("written").version;
    for second in ["Dir/NAME", "dir/other"] {
        let error = put(&*store, second, b"second", WriteSpec::default()).await.expect_err("folds");
        assert_eq!(error.kind(), ErrorKind::Exists, "{second}");
    }
    // Another run that knows nothing, and one that listed: neither replaces what is there, however often it tries.
    let (fresh, listing) = (open(&service, "box", &[]), open(&service, "box", &[]));
    assert_eq!(listed(&*listing, ListRequest::all()).await, ["Dir/", "Dir/name", "end"]);
    for (run, store) in [&fresh, &listing].into_iter().enumerate() {
        for second in ["Dir/NAME", "dir/other", "Dir/NAME", "dir/name"] {
            let error = put(&**store, second, b"second", WriteSpec::default()).await.expect_err("folds");
            assert_eq!((error.kind(), error.retry()), (ErrorKind::Exists, Retry::Never), "{run} {second}: {error:?}");
            assert!(
                error.message().contains("is there, which is the same name for Dropbox"),
                "{run} {second}: {error:?}"
            );
            assert_eq!(store.stat(&Key::new(second)).await.expect_err("another").kind(), ErrorKind::NotFound);
            assert_eq!(
                store.read(&Key::new(second), None, None).await.expect_err("another").kind(),
                ErrorKind::NotFound
            );
            let deleted = store.delete(vec![(Key::new(second), None)]).await;
            assert!(deleted[0].is_ok(), "{run} {second}: no such file");
        }
        assert_eq!(service.all()["/box/Dir/name"].as_deref(), Some(&b"first"[..]), "{run}");
    }
    // The right name is still free to be written.
    let new = put(&*fresh, "Dir/name", b"third", WriteSpec::default()).await.expect("written").version;
    assert_eq!(service.all()["/box/Dir/name"].as_deref(), Some(&b"third"[..]));
    let answers = store.delete(vec![(Key::new("Dir/name"), old)]).await;
    assert!(answers[0].as_ref().is_err_and(|e| e.kind() == ErrorKind::Changed), "{answers:?}");
    let answers = fresh.delete(vec![(Key::new("Dir/name"), new)]).await;
    assert!(answers[0].is_ok() && !service.all().contains_key("/box/Dir/name"), "{answers:?}");
    // Who wrote it knows that the name is free now.
    put(&*fresh, "Dir/NAME", b"second", WriteSpec::default()).await.expect("written");
}

/// Dropbox goes on below `Foo` where `foo` is asked for, however deep.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_that_differ_by_case_are_one_at_no_level() {
    let service = start(Settings::default());
    // How the root was typed counts for nothing.
    service.put("/Top/Box/z", b"z");
    let store = open(&service, "top/box", &[]);
    for name in ["Foo/sub/f1", "Foo/sub/deep/f2"] {
        put(&*store, name, b"first", WriteSpec::default()).await.expect("written");
    }
    let (fresh, listing) = (open(&service, "top/box", &[]), open(&service, "top/box", &[]));
    assert_eq!(listed(&*listing, ListRequest::all()).await.len(), 3 + 3 + 1);
    for (run, store) in [&store, &fresh, &listing].into_iter().enumerate() {
        for name in ["foo/sub/f1", "foo/sub/new", "Foo/SUB/f1", "foo/sub/deep/f2", "Foo/sub/Deep/f2", "FOO/f"] {
            for replace in [Replace::Anything, Replace::Absent] {
                let spec = WriteSpec { replace, ..Default::default() };
                let error = put(&**store, name, b"second", spec).await.expect_err("refused");
                assert_eq!((error.kind(), error.retry()), (ErrorKind::Exists, Retry::Never), "{run} {name}: {error:?}");
            }
            let absent = store.stat(&Key::new(name)).await.expect_err("another");
            assert_eq!(absent.kind(), ErrorKind::NotFound, "{run} {name}");
            assert!(store.read(&Key::new(name), None, None).await.is_err(), "{run} {name}");
        }
        for name in ["foo/", "foo/sub/", "Foo/SUB/", "foo/new/"] {
            let error = store.make_dir(&Key::new(name), &Default::default()).await.expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Exists, "{run} {name}");
            assert!(store.delete(vec![(Key::new(name), None)]).await[0].is_ok(), "{run} {name}: no such folder");
        }
        let below = listed(&**store, ListRequest { prefix: b"foo/".to_vec(), ..ListRequest::all() }).await;
        assert_eq!(below, ["end"], "{run}");
        let item = CopyItem {
            from: Key::new("z"),
            want: None,
            size: 1,
            to: Key::new("foo/sub/z"),
            spec: WriteSpec::default(),
            how: CopyHow::Rename,
        };
        let from = store.caps().domain.as_ref().expect("one").place.clone();
        let batch = CopyBatch { from, items: vec![item], links: Default::default() };
        let moved = store.copy(batch, Default::default()).await;
        assert_eq!(moved[0].as_ref().expect_err("refused").kind(), ErrorKind::Exists, "{run}");
    }
    put(&*fresh, "Foo/sub/f1", b"third", WriteSpec::default()).await.expect("written");
    let all = service.all();
    assert_eq!(all["/Top/Box/Foo/sub/f1"].as_deref(), Some(&b"third"[..]));
    assert_eq!(all["/Top/Box/Foo/sub/deep/f2"].as_deref(), Some(&b"first"[..]));
    assert_eq!(all.len(), 2 + 3 + 3, "{all:?}");
}

/// A folder is asked about once, and no file that was listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_are_asked_about_once() {
    let service = start(Settings::default());
    let store = open(&service, "box", &[]);
    let names: Vec<String> = (0..20).map(|number| format!("a/b/f{number}")).collect();
    let write_all = async |store: &dyn Store, bytes: &'static [u8]| {
        let puts = names.iter().map(|name| put(store, name, bytes, WriteSpec::default()));
        assert!(join_all(puts).await.iter().all(Result::is_ok));
    };
    write_all(&*store, b"first").await;
    let count = |name: &str| service.counts().get(name).copied().unwrap_or_default();
    assert_eq!((count("files/get_metadata"), count("files/create_folder_v2")), (1, 0), "what is below it isn't there");
    let listing = open(&service, "box", &[]);
    assert_eq!(listed(&*listing, ListRequest::all()).await.len(), 20 + 2 + 1);
    write_all(&*listing, b"second").await;
    assert_eq!(count("files/get_metadata"), 1);
    // Without knowledge, the exact name of each existing file is looked up.
    let fresh = open(&service, "box", &[]);
    write_all(&*fresh, b"third").await;
    assert_eq!(count("files/get_metadata"), 1 + 2 + 20);
    assert!(names.iter().all(|name| service.all()[&format!("/box/{name}")].as_deref() == Some(&b"third"[..])));
}

/// A content that came out wrong doesn't stay with the size and the time that the next run looks for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_stored_wrongly_doesnt_stay() {
    let service = start(Settings::default());
    let store = open(&service, "box", &[]);
    put(&*store, "old", b"first", WriteSpec::default()).await.expect("written");
    for name in ["new", "old"] {
        service.spoil(1);
        let error = put(&*store, name, b"other", WriteSpec::default()).await.expect_err("other bytes");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{name}: {error:?}");
        assert!(!service.all().contains_key(&format!("/box/{name}")), "{name}: its versions stay in the history");
        put(&*store, name, b"other", WriteSpec::default()).await.expect("written");
    }
    let item = CopyItem {
        from: Key::new("new"),
        want: None,
        size: 5,
        to: Key::new("copy"),
        spec: WriteSpec::default(),
        how: CopyHow::Copy,
    };
    let from = store.caps().domain.as_ref().expect("one").place.clone();
    let batch = || CopyBatch { from: from.clone(), items: vec![item.clone()], links: Default::default() };
    service.spoil(1);
    let copied = store.copy(batch(), Default::default()).await;
    assert_eq!(copied[0].as_ref().expect_err("other bytes").kind(), ErrorKind::Corrupt);
    assert!(!service.all().contains_key("/box/copy"));
    assert!(store.copy(batch(), Default::default()).await[0].is_ok());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_is_renewed_once_and_throttling_is_told() {
    let service = start(Settings::default());
    let more = [("root_namespace", "77"), ("impersonate", "dbmid:1")];
    let store = open(&service, "box", &more);
    put(&*store, "f", b"abc", WriteSpec::default()).await.expect("written");
    assert!(service.headers().iter().any(|line| line == "dropbox-api-select-user: dbmid:1"));
    let root = r#"dropbox-api-path-root: {".tag":"namespace_id","namespace_id":"77"}"#;
    assert!(service.headers().iter().any(|line| line == root), "{:?}", service.headers());
    service.expire();
    assert_eq!(store.stat(&Key::new("f")).await.expect("with a new token").size, 3);
    assert_eq!(service.counts()["oauth2/token"], 1);
    service.fail("files/get_metadata", 1, Fault::Throttle("too_many_requests", 7));
    let error = store.stat(&Key::new("f")).await.expect_err("throttled");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::After(Duration::from_secs(7))));
    service.fail("files/upload_session/finish_batch_v2", 1, Fault::Refuse("path/insufficient_space"));
    let error = put(&*store, "g", b"abc", WriteSpec::default()).await.expect_err("full");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    let error = put(&*store, "Desktop.ini", b"abc", WriteSpec::default()).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Invalid);
}

/// Sends the parts of a file of 9 MiB but for those left out; gives back the write and its parts.
async fn nine(store: &dyn Store, without: Option<u64>) -> (Vec<u8>, Box<dyn Upload>, Vec<Part>) {
    let bytes = content(5, 9 << 20);
    let upload = store.write(&Key::new("large"), nine_spec()).await.expect("begun");
    let mut parts = Vec::new();
    for (index, chunk) in (0..).zip(bytes.chunks(4 << 20)).filter(|(index, _)| Some(*index) != without) {
        let payload = Payload::from(Bytes::copy_from_slice(chunk));
        parts.push(upload.part(index, index << 22, payload).await.expect("sent"));
    }
    (bytes, upload, parts)
}

fn nine_spec() -> WriteSpec {
    WriteSpec { size: Some(9 << 20), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_that_the_service_has_not_is_noticed_at_the_commit() {
    let service = start(Settings::default());
    let store = open(&service, "box", &[]);
    let (bytes, upload, parts) = nine(&*store, Some(1)).await;
    let token = upload.token().await.expect("a session").expect("a token");
    drop(upload);
    let sent = |part: &Part| SentPart { part: part.clone(), offset: part.index << 22, crc64: 0 };
    // A receipt that somebody made up: as many bytes, never sent.
    let mut all = vec![sent(&parts[0]), sent(&parts[0]), sent(&parts[1])];
    (all[1].part.index, all[1].offset) = (1, 4 << 20);
    let (upload, mut believed) =
        store.resumable().unwrap().resume(&Key::new("large"), &token, all, nine_spec()).await.expect("there");
    assert_eq!(believed.len(), 2, "the end is sent anew");
    let end = Payload::from(Bytes::copy_from_slice(&bytes[8 << 20..]));
    believed.push(upload.part(2, 8 << 20, end).await.expect("kept"));
    let failed = upload.publish(believed, LateFacts::default()).await.expect_err("a part is missing");
    assert_eq!(failed.error.kind(), ErrorKind::Corrupt);
    assert!(!service.all().contains_key("/box/large"));
    // It is closed now: nobody goes on with it.
    let gone = store
        .resumable()
        .unwrap()
        .resume(&Key::new("large"), &token, Vec::new(), nine_spec())
        .await
        .err()
        .expect("ended");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let (bytes, upload, parts) = nine(&*store, None).await;
    upload.publish(parts, LateFacts::default()).await.expect("whole");
    assert_eq!(service.all()["/box/large"].as_deref(), Some(&bytes[..]));
}

/// Parts as encryption makes them, which keep to no block.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_share_blocks_are_put_together() {
    const MIB: u64 = 1 << 20;
    let service = start(Settings::default());
    let store = open(&service, "box", &[]);
    let cuts = [0, 5 * MIB + 7, 6 * MIB, 6 * MIB + 1, 13 * MIB + 1, 14 * MIB, 15 * MIB - 3];
    let bytes = content(6, cuts[6]);
    let parts: Vec<(u64, u64, &[u8])> =
        (0..).zip(cuts.windows(2)).map(|(n, cut)| (n, cut[0], &bytes[cut[0] as usize..cut[1] as usize])).collect();
    let payload = |bytes: &[u8]| Payload::new(bytes.chunks(100_000).map(Bytes::copy_from_slice).collect());
    for (name, size, reversed) in [("a", Some(cuts[6]), true), ("b", None, false), ("c", Some(cuts[6]), false)] {
        let upload = store.write(&Key::new(name), WriteSpec { size, ..Default::default() }).await.expect("begun");
        let (mut sent, mut order) = (Vec::new(), parts.clone());
        if reversed {
            order.reverse();
        }
        let before = service.sent();
        if name != "c" {
            service.fail("files/upload_session/append_v2", 1, Fault::Status(500));
            service.fail("files/upload_session/append_v2", 1, Fault::Lose);
        }
        for (index, offset, bytes) in order {
            // Whoever sends tries again.
            let part = loop {
                match upload.part(index, offset, payload(bytes)).await {
                    Ok(part) => break part,
                    Err(error) => assert_eq!(error.retry(), Retry::Backoff, "{error:?}"),
                }
            };
            sent.push(part);
        }
        assert!(service.sent() - before >= 4 * MIB, "{name}: whole blocks go at once");
        let token = upload.token().await.expect("a session").expect("a token");
        let mut upload = Some(upload);
        let stored = loop {
            match upload.take().expect("it came back").publish(sent.clone(), LateFacts::default()).await {
                Ok(stored) => break stored,
                Err(failed) => upload = Some(failed.upload),
            }
        };
        assert_eq!(stored.size, cuts[6]);
        let path = format!("/box/{name}");
        assert!(service.all()[&*path].as_deref() == Some(&bytes[..]), "{name}");
        if name == "c" {
            assert_eq!(service.sent() - before, cuts[6], "nothing is sent twice");
        }
        // It has ended.
        let again =
            sent.iter().map(|part| SentPart { part: part.clone(), offset: cuts[part.index as usize], crc64: 0 });
        let spec = WriteSpec { size, ..Default::default() };
        let gone = store
            .resumable()
            .unwrap()
            .resume(&Key::new(name), &token, again.collect(), spec)
            .await
            .err()
            .expect("given up");
        assert_eq!(gone.kind(), ErrorKind::NotFound);
    }
}

/// The same after a kill: what was sent of such parts isn't sent again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_share_blocks_are_gone_on_with() {
    const MIB: u64 = 1 << 20;
    let service = start(Settings::default());
    let store = open(&service, "box", &[]);
    let cuts = [0, 5 * MIB + 7, 6 * MIB, 6 * MIB + 1, 13 * MIB + 1, 14 * MIB, 15 * MIB - 3];
    let bytes = content(6, cuts[6]);
    let (key, spec) = (Key::new("a"), WriteSpec { size: Some(cuts[6]), ..Default::default() });
    let part = |n: usize| {
        (n as u64, cuts[n], Payload::from(Bytes::copy_from_slice(&bytes[cuts[n] as usize..cuts[n + 1] as usize])))
    };
    let upload = store.write(&key, spec.clone()).await.expect("begun");
    let token = upload.token().await.expect("a session").expect("a token");
    let mut sent = Vec::new();
    for n in [4, 0, 1, 2, 3] {
        let (index, offset, payload) = part(n);
        sent.push(SentPart { part: upload.part(index, offset, payload).await.expect("sent"), offset, crc64: 0 });
    }
    drop(upload);
    let (upload, mut there) =
        store.resumable().expect("it resumes").resume(&key, &token, sent, spec).await.expect("there");
    there.sort_by_key(|part| part.index);
    // The block at 12 MiB, of which the last three have bytes, was never whole.
    assert_eq!(there.iter().map(|part| part.index).collect::<Vec<_>>(), [0, 1, 2]);
    for n in [5, 3, 4] {
        let (index, offset, payload) = part(n);
        there.push(upload.part(index, offset, payload).await.expect("sent"));
    }
    upload.publish(there, LateFacts::default()).await.expect("published");
    assert!(service.all()["/box/a"].as_deref() == Some(&bytes[..]));
    assert_eq!(service.sent(), cuts[6], "nothing is sent twice");
}
