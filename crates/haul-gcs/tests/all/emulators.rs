//! The contract on two emulators of Google Cloud Storage, what they can't do and why; and rclone at the other side.

use bytes::Bytes;
use futures::StreamExt;
use haul_core::{Algo, Key, Listed, Mtime, hash::hash_bytes};
use haul_store::{LateFacts, ListRequest, OpenRequest, Part, Payload, SentPart, Store, Upload, WriteSpec};
use haul_testkit::{
    conformance::{self, Breaks, Breaks::Always},
    front::Front,
    peers,
    tree::content,
    web_servers::{Make, WebServer},
};
use std::{
    io::Write as _,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

const PIECE: usize = 256 << 10;

pub fn open_at(endpoint: &str, path: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let base = [("endpoint", endpoint), ("anonymous", "true"), ("chunk_size", "256Ki"), ("project_number", "1")];
    let options = base.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let request = OpenRequest { remote: "g".into(), path: path.into(), options, ..OpenRequest::default() };
    (haul_gcs::KIND.open)(request).expect("opened")
}

fn open(server: &WebServer, path: &str) -> Arc<dyn Store> {
    open_at(&server.url(), path, &[])
}

async fn keeps_the_contract(make: Make, except: &[(&'static str, Breaks, &'static str)]) {
    let Some(server) = WebServer::start(make) else { return };
    let number = AtomicUsize::new(0);
    let root = || async {
        let store = open(&server, &format!("box-{}", number.fetch_add(1, Ordering::Relaxed)));
        store.make_dir(&Key::new(""), &Default::default()).await.unwrap_or_else(|e| panic!("{e:?}\n{}", server.log()));
        store
    };
    let summary = conformance::run_except(root, except).await;
    println!("{summary}");
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
    assert!(surprises.is_empty(), "skipped too: {surprises:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fake_gcs_server_keeps_the_contract() {
    let state = "it takes the question how far an upload is for its end";
    let except = [
        ("strange_names_come_back", Always, "Google takes no line breaks in names"),
        ("a_part_sent_again_replaces", Always, "what a session has stays: only the same bytes are sent again"),
        ("a_write_given_up_later_leaves_nothing", Always, state),
        ("a_write_that_ended_is_gone", Always, state),
        ("only_parts_that_are_there_are_believed", Always, state),
        ("what_was_sent_is_read_back", Always, state),
    ];
    keeps_the_contract(Make::FakeGcs, &except).await;
}

pub async fn keys(store: &dyn Store, request: ListRequest) -> Vec<String> {
    let (mut keys, mut listing) = (Vec::new(), store.list(request));
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(batch) => keys.extend(batch.iter().map(|entry| entry.key.to_string())),
            Listed::Failed { error, .. } => panic!("{error:?}"),
            Listed::Vanished(_) => {}
            Listed::End => return keys,
        }
    }
    panic!("cut")
}

async fn send(store: &dyn Store, name: &str, bytes: &[u8], spec: WriteSpec) -> (Box<dyn Upload>, Vec<Part>) {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..spec };
    let upload = store.write(&Key::new(name), spec).await.expect("begun");
    let chunks = bytes.chunks(PIECE).enumerate();
    let sent = chunks.map(|(index, chunk)| {
        upload.part(index as u64, (index * PIECE) as u64, Payload::from(Bytes::copy_from_slice(chunk)))
    });
    let parts = futures::future::try_join_all(sent).await.expect("sent");
    (upload, parts)
}

pub async fn get(store: &dyn Store, name: &str) -> Vec<u8> {
    let read = store.read(&Key::new(name), None, None).await.expect("there");
    conformance::collect(read).await.expect("bytes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone_reads_what_haul_wrote_and_the_reverse() {
    let (Some(server), Some(rclone)) = (WebServer::start(Make::FakeGcs), peers::need("rclone")) else { return };
    let endpoint = format!("{}/storage/v1/", server.url());
    let run = |args: &[&str], input: &[u8]| {
        let mut command = Command::new(&rclone);
        command.env("RCLONE_CONFIG", "/dev/null").args(["--gcs-anonymous", "--gcs-endpoint", &endpoint]);
        let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("rclone");
        child.stdin.take().expect("input").write_all(input).expect("input");
        String::from_utf8(child.wait_with_output().expect("output").stdout).expect("text")
    };
    let store = open(&server, "box");
    let (large, time) = (content(3, 900_000), Mtime(1_600_000_000_123_456_789));
    let hashes = hash_bytes(&[Algo::Md5], &large);
    for (name, bytes) in [("d/x y#1.txt", &b"from haul"[..]), ("d/large", &large)] {
        let spec = WriteSpec { mtime: Some(time), hashes: hash_bytes(&[Algo::Md5], bytes), ..Default::default() };
        let (upload, parts) = send(&*store, name, bytes, spec).await;
        upload.publish(parts, LateFacts::default()).await.expect("published");
    }
    let listed =
        run(&["lsf", "-R", "--files-only", "--format", "psth", "--time-format", "RFC3339Nano", ":gcs:box"], b"");
    let md5 = |bytes: &[u8]| hash_bytes(&[Algo::Md5], bytes).hex(Algo::Md5).expect("a hash");
    let line =
        |name: &str, bytes: &[u8]| format!("{name};{};2020-09-13T12:26:40.123456789Z;{}\n", bytes.len(), md5(bytes));
    assert_eq!(listed, line("d/large", &large) + &line("d/x y#1.txt", b"from haul"));
    assert!(run(&["cat", ":gcs:box/d/x y#1.txt"], b"") == "from haul");
    run(&["rcat", ":gcs:box/e/f?+%41&é"], &large);
    assert!(get(&*store, "e/f?+%41&é").await == large);
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("g"), &large).expect("written");
    let file = std::fs::File::options().append(true).open(folder.path().join("g")).expect("opened");
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(time.0 as u64)).expect("a time");
    run(&["copy", folder.path().to_str().expect("text"), ":gcs:box/e"], b"");
    let entry = store.stat(&Key::new("e/g")).await.expect("there");
    assert_eq!((entry.size, entry.mtime), (900_000, Some(time)));
    assert_eq!(entry.hashes.agree(&hashes), Some((Algo::Md5, true)));
    assert_eq!(keys(&*store, ListRequest::all()).await, ["d/large", "d/x y#1.txt", "e/f?+%41&é", "e/g"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_begin_after_any_key() {
    let Some(server) = WebServer::start(Make::FakeGcs) else { return };
    let store = open(&server, "box");
    for number in 0..25 {
        let (upload, parts) = send(&*store, &format!("d{}/f{number:02}", number % 2), b"x", WriteSpec::default()).await;
        upload.publish(parts, LateFacts::default()).await.expect("published");
    }
    let all = keys(&*store, ListRequest::all()).await;
    assert_eq!(all.len(), 25);
    for from in [0, 7, 12, 13, 24] {
        let request = ListRequest { after: Some(Key::new(&all[from])), ..ListRequest::all() };
        assert_eq!(keys(&*store, request).await, all[from + 1..]);
    }
    let request = ListRequest { after: Some(Key::new("d0/f06")), prefix: b"d0/".to_vec(), ..ListRequest::all() };
    assert_eq!(keys(&*store, request).await.first().map(String::as_str), Some("d0/f08"));
    assert_eq!(keys(&*open(&server, ""), ListRequest::dir("")).await, ["box/"]);
}

/// fake-gcs-server knows no state of a session; the other emulator does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_goes_on_where_the_service_is() {
    let Some(server) = WebServer::start(Make::GcsEmulator) else { return };
    let front = Front::start(server.address, |method, uri| {
        method == http::Method::PUT && uri.query().is_some_and(|query| query.contains("upload_id"))
    });
    let store = open_at(&front.endpoint(), "box", &[]);
    store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
    let bytes = content(4, 3 * PIECE as u64 + 1000);
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..Default::default() };
    let upload = store.write(&Key::new("f"), spec.clone()).await.expect("begun");
    let token = upload.token().await.expect("a session").expect("a token");
    let part = |index: usize| {
        let chunk = &bytes[index * PIECE..bytes.len().min((index + 1) * PIECE)];
        (index as u64, (index * PIECE) as u64, Payload::from(Bytes::copy_from_slice(chunk)))
    };
    let mut sent = Vec::new();
    for index in 0..2 {
        let (index, offset, payload) = part(index);
        let part = upload.part(index, offset, payload).await.expect("sent");
        sent.push(SentPart { part, offset, crc64: 0 });
    }
    drop(upload);
    let (upload, parts) = store.resumable().unwrap().resume(&Key::new("f"), &token, sent, spec).await.expect("found");
    assert_eq!(parts.len(), 2);
    let (index, offset, payload) = part(2);
    // Its answer is lost: it isn't sent again.
    front.lose(1);
    assert!(upload.part(index, offset, payload.clone()).await.is_err());
    let third = upload.part(index, offset, payload).await.expect("it was there");
    let (index, offset, payload) = part(3);
    let last = upload.part(index, offset, payload).await.expect("kept");
    assert_eq!(keys(&*store, ListRequest::all()).await, [""; 0], "nothing shows");
    let parts = [parts, vec![third, last]].concat();
    let stored = upload.publish(parts, LateFacts::default()).await.expect("published");
    // Its answers to reads name no version, which are not believed.
    assert_eq!(stored.hashes.agree(&hash_bytes(&[Algo::Md5], &bytes)), Some((Algo::Md5, true)));
    assert_eq!(store.stat(&Key::new("f")).await.expect("there").size, bytes.len() as u64);
    let another = store.write(&Key::new("g"), WriteSpec::default()).await.expect("begun");
    let token = another.token().await.expect("a session").expect("a token");
    let error = store.resumable().unwrap().discard(&Key::new("f"), &token).await.expect_err("another's");
    assert_eq!(error.kind(), haul_core::ErrorKind::Invalid);
}
