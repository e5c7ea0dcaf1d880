//! The store on `gcssim`, which has what the emulators lack: parts that go at once, batches, faults. Google's own client and rclone pass
//! on it (`peers`).

use crate::emulators::{get, keys, open_at};
use bytes::Bytes;
use futures::StreamExt;
use haul_core::{Algo, ErrorKind, Hashes, Key, Listed, Meta, Mtime, Retry, Version, hash::hash_bytes, plan::Replace};
use haul_store::{
    Cleanup, CopyBatch, CopyHow, CopyItem, LateFacts, ListRequest, Part, Payload, SentPart, Store, Upload, WriteSpec,
};
use haul_testkit::{
    conformance,
    gcssim::{Fault, GcsSim, Settings},
    tree::content,
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// rclone's encoding of names.
const ENCODING: (&str, &str) = ("encoding", "Slash,CrLf,InvalidUtf8,Dot");
/// The least that parts are.
const PART: usize = 5 << 20;

pub fn start() -> GcsSim {
    GcsSim::start(Settings { token: "known".into(), ..Settings::default() })
}

pub fn open(sim: &GcsSim, path: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let own = [("anonymous", "false"), ("access_token", "known"), ("chunk_size", "5Mi")];
    open_at(&sim.endpoint(), path, &[&own, more].concat())
}

async fn made(sim: &GcsSim) -> Arc<dyn Store> {
    let store = open(sim, "box", &[]);
    store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
    store
}

fn spec(bytes: &[u8]) -> WriteSpec {
    WriteSpec { size: Some(bytes.len() as u64), ..WriteSpec::default() }
}

fn piece(bytes: &[u8], index: usize) -> Payload {
    Payload::from(Bytes::copy_from_slice(&bytes[index * PART..bytes.len().min((index + 1) * PART)]))
}

async fn part(upload: &dyn Upload, bytes: &[u8], index: usize) -> haul_core::Result<Part> {
    upload.part(index as u64, (index * PART) as u64, piece(bytes, index)).await
}

async fn put(store: &dyn Store, name: &str, bytes: &[u8]) -> Option<Version> {
    let upload = store.write(&Key::new(name), spec(bytes)).await.expect("begun");
    let count = bytes.len().div_ceil(PART).max(1);
    let sent = (0..count).map(|index| part(&*upload, bytes, index));
    let parts = futures::future::try_join_all(sent).await.expect("sent");
    upload.publish(parts, LateFacts::default()).await.expect("published").version
}

/// Whoever lists in ranges counts on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_page_is_one_request_wherever_it_begins() {
    let sim = start();
    sim.fill("box", 5_000);
    let store = open(&sim, "box", &[]);
    let limit = store.caps().page;
    for after in [None, Some(Key::new("0001/000001234")), Some(Key::new("0001/00000123"))] {
        sim.reset_counts();
        let request = ListRequest { after: after.clone(), limit, ..ListRequest::all() };
        let listed: Vec<_> = store.list(request).collect().await;
        let [Listed::Batch(batch)] = &listed[..] else { panic!("{listed:?}") };
        assert!(Some(batch.len()) >= limit, "{after:?}: {}", batch.len());
        assert_eq!(sim.counts().values().sum::<u64>(), 1, "{after:?}: {:?}", sim.counts());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_is_kept_by_parts_and_by_sessions() {
    let ways = [("5Mi", None, "Raw"), ("256Ki", Some("parts_arrive_in_any_order"), "Raw"), ("5Mi", None, ENCODING.1)];
    for (chunk_size, more, encoding) in ways {
        let sim = start();
        let number = AtomicUsize::new(0);
        let root = || async {
            let name = format!("box-{}", number.fetch_add(1, Ordering::Relaxed));
            open(&sim, &name, &[("chunk_size", chunk_size), ("encoding", encoding)])
        };
        let line_breaks =
            ("strange_names_come_back", conformance::Breaks::Always, "Google takes no line breaks in names");
        let in_order = (
            "a_part_sent_again_replaces",
            conformance::Breaks::Always,
            "what a session has stays: only the same bytes are sent again",
        );
        let case = (
            "only_parts_that_are_there_are_believed",
            conformance::Breaks::Always,
            "a session says how much it has and nothing of what that is",
        );
        let ended = (
            "a_write_that_ended_is_gone",
            conformance::Breaks::Always,
            "the end of a file is kept until it is published: who goes on sends it again",
        );
        let except = match (more, encoding) {
            (Some(_), _) => vec![line_breaks, in_order, case, ended],
            (None, "Raw") => vec![line_breaks],
            // Then they are other characters.
            (None, _) => Vec::new(),
        };
        let summary = conformance::run_except(root, &except).await;
        println!("{chunk_size}: {summary}");
        let known = [
            "parts_arrive_in_any_order",
            "a_resumed_write_publishes_the_whole",
            "what_was_sent_is_read_back",
            "it_hashes_what_it_holds",
            "a_full_folder_is_not_deleted",
            "folders_are_made_once",
        ];
        let skipped = summary.skipped.iter().map(|(name, _)| *name);
        let surprises: Vec<_> =
            skipped.filter(|name| !known.contains(name) && except.iter().all(|(of, ..)| of != name)).collect();
        assert!(surprises.is_empty(), "{chunk_size}: skipped too: {surprises:?}");
    }
}

/// Keys, and what is lost with why.
async fn listed_lines(store: &dyn Store, request: ListRequest) -> Vec<String> {
    let (mut lines, mut listing) = (Vec::new(), store.list(request));
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(batch) => lines.extend(batch.iter().map(|entry| entry.key.to_string())),
            Listed::Failed { lost, error } => lines.push(format!("lost {:?}: {}", lost.from, error.message())),
            Listed::Vanished(_) => {}
            Listed::End => lines.push("end".into()),
        }
    }
    lines
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encoded_names_come_in_the_order_of_keys() {
    let sim = start();
    let raw = made(&sim).await;
    let store = open(&sim, "box", &[ENCODING]);
    // A line break comes before all else, its symbol after.
    let names = ["a\nb", "a-b", "a␊", "d\n/x/1", "d\n/‛", "d-", "z"];
    for name in names {
        put(&*store, name, name.as_bytes()).await;
    }
    let stored = ["a-b", "a‛␊", "a␊b", "d-", "d␊/x/1", "d␊/‛‛", "z"];
    assert_eq!(sim.names("box"), stored);
    assert_eq!(keys(&*raw, ListRequest::all()).await, stored, "without an encoding they are what they are");
    assert_eq!(keys(&*store, ListRequest::all()).await, names);
    assert_eq!(keys(&*store, ListRequest::dir("")).await, ["a\nb", "a-b", "a␊", "d\n/", "d-", "z"]);
    for (at, name) in names.iter().enumerate() {
        assert_eq!(get(&*store, name).await, name.as_bytes());
        let request = ListRequest { after: Some(Key::new(name)), ..ListRequest::all() };
        assert_eq!(keys(&*store, request).await, names[at + 1..], "after {name:?}");
        let request = ListRequest { prefix: name.as_bytes().to_vec(), ..ListRequest::all() };
        assert_eq!(keys(&*store, request).await, [*name]);
    }
    assert_eq!((store.caps().page, raw.caps().page.is_some()), (None, true), "ranges of keys are no ranges of names");
    assert!(store.stat(&Key::new("d\n/")).await.expect("there").is_dir());
    // Roots are encoded too, and buckets may be the top directories.
    assert_eq!(keys(&*open(&sim, "box/d\n", &[ENCODING]), ListRequest::all()).await, ["x/1", "‛"]);
    let account = open(&sim, "", &[ENCODING]);
    let below = ListRequest { prefix: b"box/d\n/".to_vec(), ..ListRequest::all() };
    assert_eq!(keys(&*account, below).await, ["box/d\n/x/1", "box/d\n/‛"]);
    let all: Vec<String> = ["box/".into()].into_iter().chain(names.map(|name| format!("box/{name}"))).collect();
    assert_eq!(keys(&*account, ListRequest::all()).await, all);
    let missing = ListRequest { prefix: b"d\n/none/".to_vec(), ..ListRequest::all() };
    assert_eq!(keys(&*store, missing).await, [""; 0]);
    let nowhere = listed_lines(&*open(&sim, "box/none", &[ENCODING]), ListRequest::all()).await;
    assert!(nowhere[0].contains("directory g:box/none not found") && nowhere.len() == 1, "{nowhere:?}");
    // Copies by Google, between roots.
    let below = open(&sim, "box/d\n", &[ENCODING]);
    let [ours, theirs, plain] = [&store, &below, &raw].map(|store| store.caps().domain.clone().expect("a domain"));
    assert!(ours.name == theirs.name && ours.name != plain.name);
    let item = CopyItem {
        from: Key::new("‛"),
        want: None,
        size: 5,
        to: Key::new("m\r"),
        spec: WriteSpec::default(),
        how: CopyHow::Copy,
    };
    let batch = CopyBatch { from: theirs.place, items: vec![item], links: Default::default() };
    store.copy(batch, Default::default()).await.remove(0).expect("copied");
    assert_eq!(sim.names("box"), ["a-b", "a‛␊", "a␊b", "d-", "d␊/x/1", "d␊/‛‛", "m␍", "z"]);
    let meta: Meta = [("note".to_owned(), "x".to_owned())].into();
    store.set_meta(&Key::new("m\r"), Some(Mtime(5)), Some(&meta)).await.expect("set");
    assert_eq!(raw.stat(&Key::new("m␍")).await.expect("there").mtime, Some(Mtime(5)));
    // What was begun and never finished has the name of its file.
    let bytes = content(4, 2 * PART as u64);
    let upload = store.write(&Key::new("u\n/v"), spec(&bytes)).await.expect("begun");
    part(&*upload, &bytes, 0).await.expect("sent");
    let what = Cleanup { older_than: Duration::ZERO, dry_run: false, below: Key::new("u\n") };
    let found = store.admin().expect("an admin").cleanup(what).await.expect("looked").found;
    assert_eq!(found.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>(), ["u\n/v"]);
    let all = keys(&*store, ListRequest::all()).await.iter().map(|name| (Key::new(name), None)).collect();
    assert!(store.delete(all).await.iter().all(Result::is_ok));
    assert_eq!(sim.names("box"), [""; 0]);
}

/// A name that isn't in this encoding has no key. It is reported, and the entries around it are listed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_that_no_key_leads_to_are_told_as_lost() {
    let sim = start();
    let raw = made(&sim).await;
    for name in ["a", "d/‛x", "d/‛‛x", "d/y", "e//f", "e/g", "‛d/h", "z"] {
        put(&*raw, name, b"1").await;
    }
    let store = open(&sim, "box", &[ENCODING]);
    let lost = |key: &str, name: &str| {
        format!(
            "lost {:?}: it was not written with this encoding: its name there is {name:?}, and without an encoding it can be read",
            Key::new(key)
        )
    };
    // Two are called alike: then neither is believed.
    let (quoted, empty, folder) = (lost("d/‛x", "‛x"), lost("e//", "/"), lost("‛d/", "‛d/"));
    let all = ["a", "d/y", &quoted, &empty, "e/g", "z", &folder, "end"];
    assert_eq!(listed_lines(&*store, ListRequest::all()).await, all);
    let below = ListRequest { prefix: b"e//".to_vec(), ..ListRequest::all() };
    let why = "names with an empty part can only be listed without an encoding";
    assert_eq!(listed_lines(&*store, below).await, [format!("lost {:?}: {why}", Key::new("e//"))]);
    let refused = store.write(&Key::new("e//f"), WriteSpec::default()).await.err().expect("it can't be");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_go_at_once_in_any_order_and_go_on_after_an_interruption() {
    let sim = start();
    let (store, bytes) = (made(&sim).await, content(7, 3 * PART as u64 + 1000));
    let time = Mtime(1_600_000_000_123_456_789);
    let meta: Meta = [("note", "x"), ("content-type", "text/x")].map(|(k, v)| (k.into(), v.into())).into();
    let spec = WriteSpec { mtime: Some(time), meta: Some(Box::new(meta)), ..spec(&bytes) };
    let key = Key::new("d/é f");
    let upload = store.write(&key, spec.clone()).await.expect("begun");
    let token = upload.token().await.expect("begun").expect("a token");
    let mut sent = Vec::new();
    for index in [3, 1] {
        let part = part(&*upload, &bytes, index).await.expect("sent");
        sent.push(SentPart { part, offset: (index * PART) as u64, crc64: 0 });
    }
    drop(upload);
    let other = WriteSpec { mtime: Some(Mtime(0)), ..spec.clone() };
    let error = store
        .resumable()
        .expect("it can")
        .resume(&key, &token, sent.clone(), other)
        .await
        .err()
        .expect("begun with another time");
    assert_eq!(error.kind(), ErrorKind::Changed);
    sim.reset_counts();
    let (upload, mut parts) = store.resumable().expect("it can").resume(&key, &token, sent, spec).await.expect("found");
    assert_eq!(parts.iter().map(|part| part.index).collect::<Vec<_>>(), [3, 1]);
    // Both wait until both are there.
    sim.set(|settings| settings.latency = Duration::from_secs(1));
    let (two, zero) = tokio::join!(part(&*upload, &bytes, 2), part(&*upload, &bytes, 0));
    sim.set(|settings| settings.latency = Duration::ZERO);
    parts.extend([two.expect("sent"), zero.expect("sent")]);
    assert_eq!(sim.parts_at_once(), 2);
    assert_eq!(keys(&*store, ListRequest::all()).await, [""; 0], "nothing shows");
    let stored = upload.publish(parts, LateFacts::default()).await.expect("published");
    assert_eq!(stored.hashes.agree(&hash_bytes(&[Algo::Crc32c], &bytes)), Some((Algo::Crc32c, true)));
    assert!(get(&*store, "d/é f").await == bytes);
    assert_eq!(sim.came(), 2 * PART as u64, "what was there wasn't sent again");
    let entry = store.stat(&key).await.expect("there");
    assert_eq!((entry.mtime, entry.version), (Some(time), stored.version));
    let meta = entry.meta.expect("metadata");
    assert_eq!((&*meta["note"], &*meta["content-type"]), ("x", "text/x"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_and_lost_answers_are_found_out() {
    let sim = start();
    let (store, bytes) = (made(&sim).await, content(8, PART as u64 + 1000));
    let upload = store.write(&Key::new("f"), spec(&bytes)).await.expect("begun");
    sim.spoil("parts.put", 0, Fault::Damaged);
    let error = part(&*upload, &bytes, 0).await.expect_err("damaged on its way");
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Corrupt, Retry::Backoff));
    let parts = vec![part(&*upload, &bytes, 0).await.expect("sent"), part(&*upload, &bytes, 1).await.expect("sent")];
    // Other bytes than those of which a receipt tells are never published.
    let mut wrong = parts.clone();
    wrong.swap(0, 1);
    (wrong[0].index, wrong[1].index) = (0, 1);
    sim.spoil("parts.complete", 0, Fault::Lost);
    let failed = upload.publish(parts.clone(), LateFacts::default()).await.expect_err("the answer is lost");
    assert_ne!(failed.error.retry(), Retry::Never);
    let stored = failed.upload.publish(parts, LateFacts::default()).await.expect("it was done");
    assert_eq!(stored.version, store.stat(&Key::new("f")).await.expect("there").version);
    assert!(get(&*store, "f").await == bytes);
    // What the source says that it has is compared before anything shows.
    let lies = Hashes::default().with(Algo::Crc32c, vec![1, 2, 3, 4]);
    let upload = store.write(&Key::new("g"), WriteSpec { hashes: lies, ..spec(&bytes) }).await.expect("begun");
    let parts = vec![part(&*upload, &bytes, 0).await.expect("sent"), part(&*upload, &bytes, 1).await.expect("sent")];
    let failed = upload.publish(parts, LateFacts::default()).await.expect_err("other bytes");
    assert_eq!(failed.error.kind(), ErrorKind::Corrupt);
    failed.upload.abort().await.expect("removed");
    assert_eq!(keys(&*store, ListRequest::all()).await, ["f"]);
    // An upload that is gone isn't taken for one that is done.
    let upload = store.write(&Key::new("h"), spec(&bytes)).await.expect("begun");
    let token = upload.token().await.expect("begun").expect("a token");
    let parts = vec![part(&*upload, &bytes, 0).await.expect("sent"), part(&*upload, &bytes, 1).await.expect("sent")];
    assert!(store.resumable().expect("it can").discard(&Key::new("h"), &token).await.expect("removed"));
    let failed = upload.publish(parts, LateFacts::default()).await.expect_err("gone");
    assert_eq!(failed.error.kind(), ErrorKind::NotFound);
    assert!(!store.resumable().expect("it can").discard(&Key::new("h"), &token).await.expect("gone already"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_parts_cannot_carry_goes_by_a_session() {
    let sim = start();
    let (store, bytes) = (made(&sim).await, content(9, PART as u64 + 1000));
    let meta: Meta = [("note".to_owned(), "größe".to_owned())].into();
    let capitals: Meta = [("Note".to_owned(), "x".to_owned())].into();
    for (name, spec) in [
        ("a", WriteSpec { replace: Replace::Absent, ..spec(&bytes) }),
        ("b", WriteSpec { meta: Some(Box::new(meta.clone())), ..spec(&bytes) }),
        ("c", WriteSpec { meta: Some(Box::new(capitals.clone())), ..spec(&bytes) }),
    ] {
        sim.reset_counts();
        let upload = store.write(&Key::new(name), spec.clone()).await.expect("begun");
        let sent = (0..2).map(|index| part(&*upload, &bytes, index));
        let parts = futures::future::try_join_all(sent).await.expect("sent");
        upload.publish(parts, LateFacts::default()).await.expect("published");
        let counts = sim.counts();
        assert!(counts.contains_key("session.begin") && !counts.contains_key("parts.begin"), "{name}: {counts:?}");
        let kept = store.stat(&Key::new(name)).await.expect("there").meta.expect("metadata");
        let wanted = spec.meta.iter().flat_map(|meta| meta.iter());
        assert!(wanted.into_iter().all(|(name, value)| kept.get(name) == Some(value)), "{name}: {kept:?}");
    }
    let upload =
        store.write(&Key::new("a"), WriteSpec { replace: Replace::Absent, ..spec(&bytes) }).await.expect("begun");
    let sent = (0..2).map(|index| part(&*upload, &bytes, index));
    let parts = futures::future::try_join_all(sent).await.expect("sent");
    let failed = upload.publish(parts, LateFacts::default()).await.expect_err("it is there");
    assert_eq!(failed.error.kind(), ErrorKind::Exists, "{:?}", failed.error);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_go_by_the_hundred_and_answer_for_each() {
    let sim = start();
    sim.fill("box", 250);
    let store = open(&sim, "box", &[]);
    let names = sim.names("box");
    sim.reset_counts();
    let mut doomed: Vec<(Key, Option<Version>)> = names.iter().map(|name| (Key::new(name), None)).collect();
    doomed.push((Key::new("never/was"), None));
    let (spared, version) = (Key::new(&names[7]), Version::new("1"));
    doomed[7].1 = Some(version);
    let answers = store.delete(doomed.clone()).await;
    assert_eq!(answers.len(), 251);
    for (number, answer) in answers.iter().enumerate() {
        match number {
            7 => assert_eq!(answer.as_ref().expect_err("another version").kind(), ErrorKind::Changed),
            _ => assert!(answer.is_ok(), "{answer:?}"),
        }
    }
    assert_eq!(sim.names("box"), [spared.to_string()]);
    let counts = sim.counts();
    assert_eq!((counts.get("batch"), counts.get("in a batch"), counts.get("delete")), (Some(&3), Some(&251), None));
    // What is refused as a whole is known of none.
    sim.fill("box", 3);
    sim.spoil("batch", 0, Fault::Refused(503, "backendError"));
    let answers = store.delete(sim.names("box").iter().map(|name| (Key::new(name), None)).collect()).await;
    assert!(
        answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.retry() != Retry::Never)),
        "{answers:?}"
    );
    // Deleted all the same, and told on asking again.
    sim.spoil("batch", 0, Fault::Lost);
    let doomed: Vec<_> = sim.names("box").iter().map(|name| (Key::new(name), None)).collect();
    assert!(store.delete(doomed.clone()).await.iter().all(Result::is_err));
    assert!(store.delete(doomed).await.iter().all(Result::is_ok));
    assert!(sim.names("box").is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_never_finished_is_cleaned_up() {
    let sim = start();
    let (store, bytes) = (made(&sim).await, content(10, PART as u64 + 1000));
    for name in ["d/f", "e"] {
        let upload = store.write(&Key::new(name), spec(&bytes)).await.expect("begun");
        part(&*upload, &bytes, 0).await.expect("sent");
    }
    let cleanup = async |older_than, dry_run, below: &str| {
        let what = Cleanup { older_than, dry_run, below: Key::new(below) };
        let unfinished = store.admin().expect("an admin").cleanup(what).await.expect("looked");
        assert!(unfinished.failed.is_empty(), "{:?}", unfinished.failed);
        unfinished.found.iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(cleanup(Duration::from_secs(3600), false, "").await, [""; 0], "they are new");
    assert_eq!(cleanup(Duration::ZERO, true, "").await, ["d/f", "e"]);
    assert_eq!((cleanup(Duration::ZERO, false, "d").await, sim.unfinished()), (vec!["d/f".to_owned()], 1));
    assert_eq!((cleanup(Duration::ZERO, false, "").await, sim.unfinished()), (vec!["e".to_owned()], 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directories_are_kept_where_that_is_asked_for() {
    let sim = start();
    let store = made(&sim).await;
    store.make_dir(&Key::new("a/b/"), &Default::default()).await.expect("nothing is made");
    assert_eq!(keys(&*store, ListRequest::all()).await, [""; 0]);
    let marking = open(&sim, "box", &[("directory_markers", "true")]);
    marking.make_dir(&Key::new("a/b/"), &Default::default()).await.expect("made");
    marking.make_dir(&Key::new("a/b/"), &Default::default()).await.expect("is there");
    assert_eq!(sim.names("box"), ["a/", "a/b/"]);
    // Below all buckets too, and where names are encoded.
    let account = open(&sim, "", &[("directory_markers", "true"), ENCODING]);
    account.make_dir(&Key::new("other/c\n/d/"), &Default::default()).await.expect("made");
    assert_eq!(sim.names("other"), ["c␊/", "c␊/d/"]);
    assert_eq!(keys(&*open(&sim, "other", &[ENCODING]), ListRequest::all()).await, ["c\n/", "c\n/d/"]);
    assert_eq!(keys(&*store, ListRequest::all()).await, ["a/", "a/b/"]);
    put(&*store, "a/b/f", b"x").await;
    assert_eq!(keys(&*store, ListRequest::dir("a/b/")).await, ["a/b/f"]);
    let below = open(&sim, "box/a", &[("directory_markers", "true")]);
    below.make_dir(&Key::new("c/"), &Default::default()).await.expect("made");
    assert_eq!(sim.names("box"), ["a/", "a/b/", "a/b/f", "a/c/"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn copies_take_as_many_requests_as_they_take() {
    let sim = start();
    let (store, bytes) = (made(&sim).await, content(11, 2 * PART as u64));
    put(&*store, "f", &bytes).await;
    sim.set(|settings| settings.rewrites = PART as u64 - 1);
    sim.reset_counts();
    let item = haul_store::CopyItem {
        from: Key::new("f"),
        want: None,
        size: bytes.len() as u64,
        to: Key::new("g"),
        spec: WriteSpec::default(),
        how: haul_store::CopyHow::Copy,
    };
    let from = store.caps().domain.as_ref().expect("a domain").place.clone();
    let batch = || haul_store::CopyBatch { from: from.clone(), items: vec![item.clone()], links: Default::default() };
    store.copy(batch(), Default::default()).await.remove(0).expect("copied");
    assert_eq!(sim.counts().get("rewrite"), Some(&3), "its token is the same all the time");
    assert!(get(&*store, "g").await == bytes);
    sim.set(|settings| settings.rewrites = 0);
    let error = store.copy(batch(), Default::default()).await.remove(0).unwrap_err();
    assert!(error.message().ends_with("the copy doesn't get on: Google copies no more bytes"), "{error}");
}

/// Logs and pages are often kept packed: that is how they are copied.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_stored_in_an_encoding_comes_as_it_is_stored() {
    let sim = start();
    let store = made(&sim).await;
    let meta = Meta::from([("content-encoding".into(), "gzip".into())]);
    let bytes = b"\x1f\x8b, or what somebody calls so";
    let upload =
        store.write(&Key::new("f"), WriteSpec { meta: Some(Box::new(meta)), ..spec(bytes) }).await.expect("begun");
    let sent = part(&*upload, bytes, 0).await.expect("sent");
    upload.publish(vec![sent], LateFacts::default()).await.expect("published");
    let haul_store::Body::Stream(pieces) = store.read(&Key::new("f"), None, None).await.expect("read").body else {
        panic!("a stream");
    };
    let read: Vec<Bytes> = futures::TryStreamExt::try_collect(pieces).await.expect("whole");
    assert_eq!(read.concat(), bytes);
}
