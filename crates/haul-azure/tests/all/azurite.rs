//! The contract on Azurite, what it can't do and why; and rclone at the other side.

use bytes::Bytes;
use futures::StreamExt;
use haul_core::{Algo, ErrorKind, Key, Listed, Mtime, Version, hash::hash_bytes, plan::Replace};
use haul_store::{
    CopyBatch, CopyHow, CopyItem, LateFacts, ListRequest, Meters, OpenRequest, Part, Payload, Store, Upload, WriteSpec,
};
use haul_testkit::{
    conformance::{self, Breaks::Always},
    front::Front,
    newer_azure::signature,
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

/// rclone's encoding of names.
pub const ENCODING: (&str, &str) = ("encoding", "Slash,BackSlash,Del,Ctl,RightPeriod,InvalidUtf8");

fn open_with(server: &WebServer, path: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let endpoint = format!("{}/devstoreaccount1", server.url());
    open_by(path, &[&[("use_emulator", "true"), ("endpoint", &*endpoint)], more].concat())
}

pub fn open_by(path: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    open_counted(path, more).0
}

/// The same, and what counts its requests.
pub fn open_counted(path: &str, more: &[(&str, &str)]) -> (Arc<dyn Store>, Arc<Meters>) {
    let meters = Arc::new(Meters::default());
    let options = more.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let request = OpenRequest {
        remote: "az".into(),
        path: path.into(),
        options,
        meters: meters.clone(),
        ..OpenRequest::default()
    };
    ((haul_azure::KIND.open)(request).expect("opened"), meters)
}

fn open(server: &WebServer, path: &str) -> Arc<dyn Store> {
    open_with(server, path, &[("chunk_size", "64Ki")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn azurite_keeps_the_contract() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    keeps_the_contract(&server, "raw", "Raw").await;
    keeps_the_contract(&server, "encoded", ENCODING.1).await;
}

async fn keeps_the_contract(server: &WebServer, name: &str, encoding: &str) {
    let number = AtomicUsize::new(0);
    let root = || async {
        let name = format!("{name}-{}", number.fetch_add(1, Ordering::Relaxed));
        let store = open_with(server, &name, &[("chunk_size", "64Ki"), ("encoding", encoding)]);
        store.make_dir(&Key::new(""), &Default::default()).await.unwrap_or_else(|e| panic!("{e:?}\n{}", server.log()));
        store
    };
    let blocks = "blocks that wait can't be removed: the service does so by itself after a week";
    let strange = (
        "strange_names_come_back",
        Always,
        "Azure takes a backslash for a slash and leaves out dots at the end of a name",
    );
    let mut except = vec![
        ("metadata_is_kept", Always, "names of metadata are words without hyphens"),
        ("a_write_that_ended_is_gone", Always, blocks),
        ("a_write_given_up_later_leaves_nothing", Always, blocks),
    ];
    // With an encoding those are other characters.
    except.extend((encoding == "Raw").then_some(strange));
    let summary = conformance::run_except(root, &except).await;
    println!("{summary}");
    let known = [
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
    let mut parts = Vec::new();
    for (index, chunk) in bytes.chunks(64 << 10).enumerate().rev() {
        let payload = Payload::from(Bytes::copy_from_slice(chunk));
        parts.push(upload.part(index as u64, 0, payload).await.expect("sent"));
    }
    (upload, parts)
}

pub async fn put(store: &dyn Store, name: &str, bytes: &[u8]) -> Option<Version> {
    let (upload, parts) = send(store, name, bytes, WriteSpec::default()).await;
    upload.publish(parts, LateFacts::default()).await.expect("published").version
}

pub async fn get(store: &dyn Store, name: &str) -> Vec<u8> {
    let read = store.read(&Key::new(name), None, None).await.expect("there");
    conformance::collect(read).await.expect("bytes")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_go_over_many_pages_in_order() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let store = open_with(&server, "pages", &[("list_chunk", "7")]);
    let mut names: Vec<String> = (0..40).map(|n| format!("{}/{}-{n}", n % 3, ["a", "B", "é", "~"][n % 4])).collect();
    for name in &names {
        put(&*store, name, b"x").await;
    }
    names.sort();
    assert_eq!(keys(&*store, ListRequest::all()).await, names);
    assert_eq!(keys(&*store, ListRequest::dir("")).await, ["0/", "1/", "2/"]);
    let after = ListRequest { after: Some(Key::new(&names[20])), ..ListRequest::all() };
    assert_eq!(keys(&*store, after).await, names[21..]);
    // Containers are the top directories of an account.
    let all = open_with(&server, "", &[]);
    assert_eq!(keys(&*all, ListRequest::dir("")).await, ["pages/"]);
    assert_eq!(keys(&*all, ListRequest::all()).await.len(), 41);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_writers_and_conditions() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let store = open(&server, "box");
    let (one, two) = (content(1, 200_000), content(2, 150_000));
    // The first publish discards the other upload's blocks. That upload fails and can be repeated.
    let (first, parts_1) = send(&*store, "f", &one, WriteSpec::default()).await;
    let (second, parts_2) = send(&*store, "f", &two, WriteSpec::default()).await;
    first.publish(parts_1, LateFacts::default()).await.expect("published");
    let failed = second.publish(parts_2, LateFacts::default()).await.expect_err("its blocks are gone");
    assert_eq!(failed.error.kind(), ErrorKind::NotFound, "{:?}", failed.error);
    assert!(get(&*store, "f").await == one);
    for bytes in [&one[..], b"small"] {
        let absent = WriteSpec { replace: Replace::Absent, ..Default::default() };
        let (upload, parts) = send(&*store, "f", bytes, absent).await;
        let failed = upload.publish(parts, LateFacts::default()).await.expect_err("is there");
        assert_eq!(failed.error.kind(), ErrorKind::Exists, "{:?}", failed.error);
    }
    let version = store.stat(&Key::new("f")).await.expect("there").version;
    put(&*store, "f", b"newer").await;
    let exactly = WriteSpec { replace: Replace::Exactly(version.expect("a version")), ..Default::default() };
    let (upload, parts) = send(&*store, "f", &one, exactly).await;
    let failed = upload.publish(parts, LateFacts::default()).await.expect_err("newer");
    assert_eq!(failed.error.kind(), ErrorKind::Changed, "{:?}", failed.error);
    assert_eq!(get(&*store, "f").await, b"newer");
    // A container that isn't empty stays, also when only blocks wait in it.
    let other = open(&server, "other");
    let (waits, _) = send(&*other, "x", &one, WriteSpec::default()).await;
    for store in [&store, &other] {
        let kind = store.delete(vec![(Key::new(""), None)]).await.remove(0).expect_err("not empty").kind();
        assert_eq!(kind, ErrorKind::Exists);
    }
    drop(waits);
    let empty = open(&server, "empty");
    empty.make_dir(&Key::new(""), &Default::default()).await.expect("made");
    assert!(empty.delete(vec![(Key::new(""), None)]).await.iter().all(Result::is_ok));
    assert_eq!(keys(&*open(&server, ""), ListRequest::dir("")).await, ["box/", "other/"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone_reads_what_haul_wrote_and_the_reverse() {
    let (Some(server), Some(rclone)) = (WebServer::start(Make::Azurite), peers::need("rclone")) else { return };
    let endpoint = format!("{}/devstoreaccount1", server.url());
    let run = |args: &[&str], input: &[u8]| {
        let mut command = Command::new(&rclone);
        command.env("RCLONE_CONFIG", "/dev/null").args(["--azureblob-use-emulator", "--azureblob-endpoint", &endpoint]);
        let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("rclone");
        child.stdin.take().expect("input").write_all(input).expect("input");
        String::from_utf8(child.wait_with_output().expect("output").stdout).expect("text")
    };
    let store = open(&server, "box");
    let (large, time) = (content(3, 300_000), Mtime(1_600_000_000_123_456_789));
    let hashes = hash_bytes(&[Algo::Md5], &large);
    for (name, bytes) in [("d/x y#1.txt", &b"from haul"[..]), ("d/large", &large)] {
        let spec = WriteSpec { mtime: Some(time), hashes: hash_bytes(&[Algo::Md5], bytes), ..Default::default() };
        let (upload, parts) = send(&*store, name, bytes, spec).await;
        upload.publish(parts, LateFacts::default()).await.expect("published");
    }
    let listed =
        run(&["lsf", "-R", "--files-only", "--format", "psth", "--time-format", "RFC3339Nano", ":azureblob:box"], b"");
    let md5 = |bytes: &[u8]| hash_bytes(&[Algo::Md5], bytes).hex(Algo::Md5).expect("a hash");
    let line =
        |name: &str, bytes: &[u8]| format!("{name};{};2020-09-13T12:26:40.123456789Z;{}\n", bytes.len(), md5(bytes));
    assert_eq!(listed, line("d/large", &large) + &line("d/x y#1.txt", b"from haul"));
    assert!(run(&["cat", ":azureblob:box/d/x y#1.txt"], b"") == "from haul");
    run(&["rcat", "--azureblob-chunk-size=64Ki", ":azureblob:box/e/f?+%41&é"], &large);
    assert!(get(&*store, "e/f?+%41&é").await == large);
    let folder = tempfile::tempdir().expect("folder");
    std::fs::write(folder.path().join("g"), &large).expect("written");
    let file = std::fs::File::options().append(true).open(folder.path().join("g")).expect("opened");
    file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(time.0 as u64)).expect("a time");
    run(&["copy", folder.path().to_str().expect("text"), ":azureblob:box/e"], b"");
    let entry = store.stat(&Key::new("e/g")).await.expect("there");
    assert_eq!((entry.size, entry.mtime), (300_000, Some(time)));
    assert_eq!(entry.hashes.agree(&hashes), Some((Algo::Md5, true)));
    assert_eq!(keys(&*store, ListRequest::all()).await, ["d/large", "d/x y#1.txt", "e/f?+%41&é", "e/g"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn encoded_names_come_in_the_order_of_keys() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let more = [ENCODING, ("chunk_size", "64Ki"), ("list_chunk", "2")];
    let (raw, store) = (open(&server, "box"), open_with(&server, "box", &more));
    store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
    let names = ["a\tb", "a-b", "a.", "a\\", "d./x/1", "d./‛y", "z"];
    for name in names {
        put(&*store, name, name.as_bytes()).await;
    }
    assert_eq!(keys(&*raw, ListRequest::all()).await, ["a-b", "a␉b", "a．", "a＼", "d．/x/1", "d．/‛‛y", "z"]);
    assert_eq!(keys(&*store, ListRequest::all()).await, names);
    for (at, name) in names.iter().enumerate() {
        assert_eq!(get(&*store, name).await, name.as_bytes());
        let after = ListRequest { after: Some(Key::new(name)), ..ListRequest::all() };
        assert_eq!(keys(&*store, after).await, names[at + 1..], "after {name:?}");
    }
    let below = open_with(&server, "box/d.", &more);
    assert_eq!(keys(&*below, ListRequest::all()).await, ["x/1", "‛y"]);
    assert_eq!(keys(&*open_with(&server, "", &more), ListRequest::dir("box/d./")).await, ["box/d./x/", "box/d./‛y"]);
    let [ours, theirs, plain] = [&store, &below, &raw].map(|store| store.caps().domain.clone().expect("a domain"));
    assert!(ours.name == theirs.name && ours.name != plain.name);
    let (from, to, spec, how) = (Key::new("‛y"), Key::new("m."), WriteSpec::default(), CopyHow::Copy);
    let item = CopyItem { from, want: None, size: 0, to, spec, how };
    let batch = CopyBatch { from: theirs.place, items: vec![item], links: Default::default() };
    store.copy(batch, Default::default()).await.remove(0).expect("copied");
    put(&*store, "d./large\n", &content(7, 200_000)).await;
    assert_eq!(keys(&*raw, ListRequest::dir("d．/")).await, ["d．/large␊", "d．/x/", "d．/‛‛y"]);
    assert!(get(&*store, "d./large\n").await == content(7, 200_000));
    let all = keys(&*store, ListRequest::all()).await.iter().map(|name| (Key::new(name), None)).collect();
    assert!(store.delete(all).await.iter().all(Result::is_ok));
    assert_eq!(keys(&*raw, ListRequest::all()).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_whose_answer_was_lost_is_found_out() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let publishes: fn(&http::Method, &http::Uri) -> bool =
        |method, uri| method == http::Method::PUT && uri.query().is_none_or(|query| query.contains("comp=blocklist"));
    let front = Front::start(server.address, publishes);
    let endpoint = format!("{}/devstoreaccount1", front.endpoint());
    let options = [("use_emulator", "true"), ("endpoint", &*endpoint), ("chunk_size", "64Ki")];
    let (store, large) = (open_by("box", &options), content(5, 200_000));
    store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
    for (number, (bytes, replace)) in [
        (&large[..], Replace::Anything),
        (&large, Replace::Absent),
        (b"small", Replace::Anything),
        (b"small", Replace::Absent),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("f{number}");
        let (upload, parts) = send(&*store, &name, bytes, WriteSpec { replace, ..Default::default() }).await;
        front.lose(1);
        let failed = upload.publish(parts.clone(), LateFacts::default()).await.expect_err("lost");
        assert_ne!(failed.error.retry(), haul_core::Retry::Never, "{:?}", failed.error);
        let stored = failed.upload.publish(parts, LateFacts::default()).await.expect("it was done");
        let there = store.stat(&Key::new(&name)).await.expect("there");
        assert_eq!((stored.version, stored.size), (there.version, there.size));
        assert!(get(&*store, &name).await == bytes);
    }
    // What another has written meanwhile isn't taken for ours.
    let (upload, parts) =
        send(&*store, "g", &large, WriteSpec { replace: Replace::Absent, ..Default::default() }).await;
    front.lose(1);
    let failed = upload.publish(parts.clone(), LateFacts::default()).await.expect_err("lost");
    put(&*store, "g", b"another's").await;
    let failed = failed.upload.publish(parts, LateFacts::default()).await.expect_err("another's is there");
    assert!(matches!(failed.error.kind(), ErrorKind::Exists | ErrorKind::NotFound), "{:?}", failed.error);
    assert_eq!(get(&*store, "g").await, b"another's");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signatures_and_connection_strings_open_the_account() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let account = format!("{}/devstoreaccount1", server.url());
    let url = format!("{account}?{}", signature());
    let string = format!("BlobEndpoint={account};SharedAccessSignature={}", signature());
    for (name, options) in [("url", ("sas_url", &*url)), ("string", ("connection_string", &*string))] {
        let (store, large) = (open_by(name, &[options, ("chunk_size", "64Ki")]), content(6, 200_000));
        put(&*store, "d/large", &large).await;
        assert!(get(&*store, "d/large").await == large);
        let item = CopyItem {
            from: Key::new("d/large"),
            want: None,
            size: 200_000,
            to: Key::new("copy"),
            spec: WriteSpec::default(),
            how: CopyHow::Copy,
        };
        let from = store.caps().domain.as_ref().expect("a domain").place.clone();
        let batch = CopyBatch { from, items: vec![item], links: Default::default() };
        store.copy(batch, Default::default()).await.remove(0).expect("copied");
        assert_eq!(keys(&*store, ListRequest::all()).await, ["copy", "d/large"]);
        let all = ["copy", "d/large"].map(|key| (Key::new(key), None));
        assert!(store.delete(all.to_vec()).await.iter().all(Result::is_ok));
        assert_eq!(keys(&*store, ListRequest::all()).await, [""; 0]);
    }
    // Of one container.
    let one = format!("{account}/url?{}", signature());
    assert_eq!(keys(&*open_by("", &[("sas_url", &one)]), ListRequest::dir("")).await, ["url/"]);
    let wrong = url.replace("sig=", "sig=A");
    let error = open_by("url", &[("sas_url", &wrong)]).stat(&Key::new("x")).await.expect_err("refused");
    assert!(matches!(error.kind(), ErrorKind::Unauthenticated | ErrorKind::Denied), "{error:?}");
    assert!(!format!("{error:?}").contains("sig="), "{error:?}");
}
