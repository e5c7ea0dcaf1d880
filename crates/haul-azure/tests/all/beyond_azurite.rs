//! What the service has and Azurite doesn't, on Azurite with it; several deletes in one request; and Microsoft's own client at the other side.

use crate::azurite::{ENCODING, get, keys, open_by, open_counted, put};
use bytes::Bytes;
use futures::future::BoxFuture;
use haul_core::{Algo, Error, ErrorKind, Key, Mtime, Version, hash::hash_bytes};
use haul_store::{
    CopyBatch, CopyHow, CopyItem, LateFacts, LeftCopy, ListRequest, LogCopy, Part, Payload, Store, Watch, WriteSpec,
};
use haul_testkit::{
    azuresim::{self, AzureSim},
    lab::Lab,
    newer_azure::{NewerAzure, signature},
    peers,
    tree::content,
    web_servers::{Make, WebServer},
};
use std::{
    fs,
    sync::{Arc, Mutex},
    time::Duration,
};

fn open(azure: &NewerAzure, path: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let url = format!("{}?{}", azure.account(), signature());
    open_by(path, &[&[("sas_url", &*url), ("chunk_size", "64Ki")], more].concat())
}

async fn fill(store: &dyn Store, count: usize) -> Vec<String> {
    store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
    let names: Vec<String> = (0..count).map(|number| format!("d{}/f{number:03}", number / 10)).collect();
    let mut sorted = names.clone();
    for some in names.chunks(8) {
        futures::future::join_all(some.iter().map(|name| put(store, name, b"x"))).await;
    }
    sorted.sort();
    sorted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listings_begin_at_a_name() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let azure = NewerAzure::start(server.address);
    let store = open(&azure, "box", &[("list_chunk", "7")]);
    // The key after which a page begins, and the directory, may be in it.
    assert_eq!(store.caps().page, Some(5));
    let names = fill(&*store, 60).await;
    assert_eq!((keys(&*store, ListRequest::all()).await, azure.begun()), (names.clone(), 0));
    for at in [0, 1, 33, 59] {
        let request = ListRequest { after: Some(Key::new(&names[at])), ..ListRequest::all() };
        assert_eq!(keys(&*store, request).await, names[at + 1..], "after {}", names[at]);
    }
    let pages: usize = [60, 59, 27, 1].iter().map(|count: &usize| count.div_ceil(7)).sum();
    assert_eq!(azure.begun(), pages, "each listing asks only for what it tells");
    let request = ListRequest { after: Some(Key::new(&names[20])), limit: Some(5), ..ListRequest::all() };
    let listed: Vec<_> = futures::StreamExt::collect(store.list(request)).await;
    assert!(matches!(&listed[..], [haul_core::Listed::Batch(batch)] if batch.len() >= 5), "{listed:?}");
    assert_eq!(azure.begun(), pages + 1, "a page is one request");
    let request = ListRequest { after: Some(Key::new("d3/f034")), ..ListRequest::dir("d3/") };
    assert_eq!(keys(&*store, request).await, ["d3/f035", "d3/f036", "d3/f037", "d3/f038", "d3/f039"]);
    let request = ListRequest { after: Some(Key::new("d3/")), ..ListRequest::dir("") };
    assert_eq!(keys(&*store, request).await, ["d4/", "d5/"]);
    let request = ListRequest { after: Some(Key::new("a")), prefix: b"d5/".to_vec(), ..ListRequest::all() };
    assert_eq!(keys(&*store, request).await.len(), 10);
    let below = open(&azure, "box/d2", &[("list_chunk", "3")]);
    let request = ListRequest { after: Some(Key::new("f024")), ..ListRequest::all() };
    assert_eq!(keys(&*below, request).await, ["f025", "f026", "f027", "f028", "f029"]);
    // A service that doesn't know them lists all, and what was to be left out is.
    let url = format!("{}/devstoreaccount1?{}", server.url(), signature());
    let older = open_by("box", &[("sas_url", &*url), ("list_chunk", "7")]);
    let request = ListRequest { after: Some(Key::new(&names[33])), limit: Some(3), ..ListRequest::all() };
    let mut listed = 0;
    let mut listing = older.list(request);
    while let Some(haul_core::Listed::Batch(batch)) = futures::StreamExt::next(&mut listing).await {
        assert!(batch.iter().all(|entry| entry.key > Key::new(&names[33])));
        listed += batch.len();
    }
    assert!(listed >= 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocks_carry_a_crc64_where_the_service_looks_at_it() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let azure = NewerAzure::start(server.address);
    let (store, bytes) = (open(&azure, "box", &[]), content(3, 300_000));
    store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
    put(&*store, "f", &bytes).await;
    assert_eq!(azure.checked(), 5, "each block once");
    assert!(get(&*store, "f").await == bytes);
    // Azurite says nothing of it: what is sent has an MD5, which it looks at.
    let url = format!("{}/devstoreaccount1?{}", server.url(), signature());
    let older = open_by("box", &[("sas_url", &*url), ("chunk_size", "64Ki")]);
    let spec = WriteSpec { size: Some(300_000), ..WriteSpec::default() };
    let upload = older.write(&Key::new("g"), spec).await.expect("begun");
    let mut parts = Vec::new();
    for (index, chunk) in bytes.chunks(64 << 10).enumerate() {
        let payload = Payload::from(Bytes::copy_from_slice(chunk));
        parts.push(upload.part(index as u64, 0, payload).await.expect("sent"));
    }
    upload.publish(parts, LateFacts::default()).await.expect("published");
    assert!(get(&*older, "g").await == bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletes_go_together_and_answer_for_each() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let account = format!("{}/devstoreaccount1", server.url());
    let url = format!("{account}?{}", signature());
    let by_key = open_counted("keyed", &[("use_emulator", "true"), ("endpoint", &*account)]);
    let by_signature = open_counted("signed", &[("sas_url", &*url)]);
    for ((store, meters), count) in [(by_key, 260), (by_signature, 5)] {
        let names = fill(&*store, count).await;
        let mut doomed: Vec<(Key, Option<Version>)> = names.iter().map(|name| (Key::new(name), None)).collect();
        doomed[3].1 = Some(Version::new("0x1"));
        doomed.push((Key::new("never/was é"), None));
        let answers = store.delete(doomed).await;
        for (number, answer) in answers.iter().enumerate() {
            match number {
                3 => assert_eq!(answer.as_ref().expect_err("another version").kind(), ErrorKind::Changed),
                _ => assert!(answer.is_ok(), "{answer:?}"),
            }
        }
        assert_eq!(keys(&*store, ListRequest::all()).await, [&*names[3]]);
        assert_eq!(meters.requests()["Batch"], answers.len().div_ceil(256) as u64);
    }
    let none = open_by("none", &[("sas_url", &*url)]);
    let gone = none.delete(vec![(Key::new("a"), None), (Key::new("b"), None)]).await;
    assert!(gone.iter().all(Result::is_ok), "{gone:?}");
}

/// A job's memory of a copy.
#[derive(Debug, Default)]
struct Memory(Mutex<Option<LeftCopy>>);

impl LogCopy for Memory {
    fn left(&self) -> Option<LeftCopy> {
        self.0.lock().expect("unbroken").clone()
    }

    fn begun(&self, token: Vec<u8>, part_size: u64) -> BoxFuture<'_, ()> {
        *self.0.lock().expect("unbroken") = Some(LeftCopy { token, part_size, parts: Vec::new() });
        Box::pin(async {})
    }

    fn copied(&self, part: Part) {
        self.0.lock().expect("unbroken").as_mut().expect("begun").parts.push(part);
    }

    fn ended(&self) {
        *self.0.lock().expect("unbroken") = None;
    }

    fn untold(&self, _: &Error) -> bool {
        true
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_blobs_are_copied_in_parts_that_a_later_run_goes_on_with() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let azure = NewerAzure::start(server.address);
    let account = azure.account();
    let (bytes, time) = (content(5, 300_000), Mtime(1_600_000_000_123_456_789));
    let keyed = [("use_emulator", "true"), ("endpoint", &*account), ("chunk_size", "64Ki"), ("copy_cutoff", "64Ki")];
    let source = open_by("from", &keyed);
    source.make_dir(&Key::new(""), &Default::default()).await.expect("made");
    let upload = source.write(&Key::new("d/é 1"), WriteSpec { mtime: Some(time), ..Default::default() }).await;
    let upload = upload.expect("begun");
    let mut parts = Vec::new();
    for (index, chunk) in bytes.chunks(64 << 10).enumerate() {
        let payload = Payload::from(Bytes::copy_from_slice(chunk));
        parts.push(upload.part(index as u64, 0, payload).await.expect("sent"));
    }
    let late = LateFacts { hashes: hash_bytes(&[Algo::Md5], &bytes), ..LateFacts::default() };
    upload.publish(parts, late).await.expect("published");
    let facts = source.stat(&Key::new("d/é 1")).await.expect("there");
    let url = format!("{account}?{}", signature());
    let signed = [("sas_url", &*url), ("chunk_size", "64Ki"), ("copy_cutoff", "64Ki")];
    // By the account's key each source is signed for itself, which Azurite looks at; a signature is used as it is.
    for (number, options) in [&keyed[..], &signed[..]].into_iter().enumerate() {
        let store = open_by(&format!("to{number}"), options);
        store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
        let memory = Arc::new(Memory::default());
        let item = |want: Option<Version>, to: &str, how| CopyItem {
            from: Key::new("d/é 1"),
            want,
            size: 300_000,
            to: Key::new(to),
            spec: WriteSpec::default(),
            how,
        };
        let copy = async |item| {
            let from = source.caps().domain.as_ref().expect("a domain").place.clone();
            let batch = CopyBatch { from, items: vec![item], links: Default::default() };
            store.copy(batch, Watch::default().with_logs(vec![Some(memory.clone())])).await.remove(0)
        };
        let before = azure.copied();
        let stored = copy(item(facts.version.clone(), "x", CopyHow::Copy)).await.expect("copied");
        assert_eq!((azure.copied() - before, stored.size), (5, 300_000));
        assert!(get(&*store, "x").await == bytes);
        let copied = store.stat(&Key::new("x")).await.expect("there");
        assert_eq!((copied.mtime, &copied.hashes), (Some(time), &facts.hashes));
        // What an earlier run had copied isn't copied again. Parts go at once: the one that fails may be answered before the others.
        let mut left = 0;
        while left == 0 {
            azure.spare(2);
            copy(item(facts.version.clone(), "y", CopyHow::Copy)).await.expect_err("told to fail");
            assert!(store.stat(&Key::new("y")).await.is_err(), "nobody sees a part of it");
            left = memory.left().expect("left").parts.len();
        }
        assert!(left < 5, "{left}");
        let before = azure.copied();
        copy(item(facts.version.clone(), "y", CopyHow::Copy)).await.expect("gone on with");
        assert_eq!((azure.copied() - before, memory.left().is_none()), (5 - left, true));
        assert!(get(&*store, "y").await == bytes);
        let changed = copy(item(Some(Version::new("0x1")), "z", CopyHow::Copy)).await.expect_err("another version");
        assert_eq!(changed.kind(), ErrorKind::Changed, "{changed:?}");
    }
    // Azurite itself copies no parts: then it is one request.
    let itself = format!("{}/devstoreaccount1", server.url());
    let plain = open_by("from", &[("use_emulator", "true"), ("endpoint", &*itself), ("copy_cutoff", "64Ki")]);
    let from = plain.caps().domain.as_ref().expect("a domain").place.clone();
    let (from_key, to) = (Key::new("d/é 1"), Key::new("whole"));
    let (spec, how) = (WriteSpec::default(), CopyHow::Copy);
    let item = CopyItem { from: from_key, want: facts.version, size: 300_000, to, spec, how };
    let batch = CopyBatch { from, items: vec![item], links: Default::default() };
    plain.copy(batch, Watch::default()).await.remove(0).expect("copied");
    assert!(get(&*plain, "whole").await == bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accounts_with_directories_are_listed_directory_by_directory() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let azure = NewerAzure::hierarchical(server.address);
    let store = open(&azure, "box", &[("list_chunk", "3")]);
    store.make_dir(&Key::new(""), &Default::default()).await.expect("made");
    // A directory comes before what a name that goes on otherwise comes before: `a` before `a-b` before `a/x`.
    let names = ["a-b", "a.txt", "a/b-c", "a/b/c", "a/b/d", "a/z", "é/ü", "z"];
    for name in names {
        put(&*store, name, b"x").await;
    }
    let all = ["a-b", "a.txt", "a/", "a/b-c", "a/b/", "a/b/c", "a/b/d", "a/z", "z", "é/", "é/ü"];
    assert_eq!(keys(&*store, ListRequest::all()).await, all);
    assert_eq!(keys(&*store, ListRequest::dir("")).await, ["a-b", "a.txt", "a/", "z", "é/"]);
    for at in 0..all.len() {
        let request = ListRequest { after: Some(Key::new(all[at])), ..ListRequest::all() };
        assert_eq!(keys(&*store, request).await, all[at + 1..], "after {}", all[at]);
    }
    assert_eq!(azure.begun(), 0, "what comes after a name is another matter there");
    let account = open(&azure, "", &[("list_chunk", "3")]);
    let listed = keys(&*account, ListRequest { prefix: b"box/".to_vec(), ..ListRequest::all() }).await;
    assert_eq!(listed, all.map(|name| format!("box/{name}")));
    let encoded = open(&azure, "box", &[("list_chunk", "3"), ENCODING]);
    assert_eq!(keys(&*encoded, ListRequest::all()).await, all);
    put(&*encoded, "a./x", b"x").await;
    assert_eq!(
        keys(&*encoded, ListRequest { prefix: b"a.".to_vec(), ..ListRequest::all() }).await,
        ["a./", "a./x", "a.txt"]
    );
    assert!(encoded.delete(["a./x", "a./"].map(|key| (Key::new(key), None)).into()).await.iter().all(Result::is_ok));
    assert_eq!(keys(&*encoded, ListRequest::all()).await, all);
    let below = open(&azure, "box/a/b", &[]);
    assert_eq!(keys(&*below, ListRequest::all()).await, ["c", "d"]);
    // A directory is deleted when nothing is in it, and is there until then.
    let delete = async |keys: &[&str]| store.delete(keys.iter().map(|key| (Key::new(key), None)).collect()).await;
    let full = delete(&["a/"]).await.remove(0).expect_err("full");
    assert_eq!((full.kind(), full.message()), (ErrorKind::Exists, "the directory is not empty (DirectoryIsNotEmpty)"));
    assert!(delete(&["a/b/c", "a/b/d"]).await.iter().all(Result::is_ok));
    assert!(store.stat(&Key::new("a/b/")).await.expect("empty").is_dir());
    assert_eq!(store.stat(&Key::new("a/b")).await.expect_err("a directory").kind(), ErrorKind::NotFound);
    assert!(below.stat(&Key::new("")).await.expect("empty").is_dir());
    assert_eq!(keys(&*below, ListRequest::all()).await, [""; 0]);
    assert!(below.delete(vec![(Key::new(""), None)]).await.iter().all(Result::is_ok));
    assert!(store.stat(&Key::new("a/b/")).await.is_err() && below.stat(&Key::new("")).await.is_err());
    assert!(delete(&["a/b-c", "a/z", "a/"]).await.iter().all(Result::is_ok));
    // An empty one is made, with those above it, and kept; one that is there stays, and no file becomes one.
    for _ in 0..2 {
        store.make_dir(&Key::new("new/deep/"), &Default::default()).await.expect("made");
        open(&azure, "box/new/own", &[]).make_dir(&Key::new(""), &Default::default()).await.expect("made");
    }
    assert_eq!(
        keys(&*store, ListRequest { prefix: b"new".to_vec(), ..ListRequest::all() }).await,
        ["new/", "new/deep/", "new/own/"]
    );
    let file = store.make_dir(&Key::new("a.txt/"), &Default::default()).await.expect_err("a file");
    assert_eq!((file.kind(), get(&*store, "a.txt").await), (ErrorKind::Exists, b"x".to_vec()));
    assert!(delete(&["new/own/", "new/deep/", "new/"]).await.iter().all(Result::is_ok));
    assert_eq!(keys(&*store, ListRequest::all()).await, ["a-b", "a.txt", "z", "é/", "é/ü"]);
    let Some(python) = peers::need("cloud_sdks") else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/hierarchical.py");
    let ran = Lab::new("").run(&python, &[script, &azure.account(), &signature()]).ok();
    assert_eq!(ran.out.trim(), "passed");
    assert_eq!(keys(&*store, ListRequest::all()).await, ["a-b", "a.txt", "py/", "py/empty/", "z", "é/", "é/ü"]);
}

/// The simulator that listings are measured on answers Microsoft's own client and rclone as they want it; and what haul reads in ranges is
/// what they read page after page.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_list_what_the_benchmark_lists() {
    const NAMES: u64 = 12_345;
    let (sim, lab) = (AzureSim::start(Duration::ZERO, NAMES), Lab::new(""));
    let account = sim.account();
    if let Some(python) = peers::need("cloud_sdks") {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/lists.py");
        let ran = lab.run(&python, &[script, &account, azuresim::KEY, &NAMES.to_string()]).ok();
        assert_eq!(ran.out.trim(), "passed");
    }
    let expected: Vec<String> = (0..NAMES).map(|number| format!("{:04}/{number:09}", number / 1000)).collect();
    if let Some(rclone) = peers::need("rclone") {
        let own = ["--config", "/dev/null", "--azureblob-account", azuresim::ACCOUNT, "--azureblob-key", azuresim::KEY];
        let list =
            |more: &[&str]| lab.run(&rclone, &[&own[..], &["--azureblob-endpoint", &account], more].concat()).ok().out;
        sim.pages();
        assert_eq!(
            list(&["lsf", "-R", "--files-only", "--fast-list", ":azureblob:box"]).lines().collect::<Vec<_>>(),
            expected
        );
        assert_eq!(sim.pages(), NAMES.div_ceil(5000));
        assert_eq!(list(&["lsf", ":azureblob:box"]).lines().count(), 13);
        assert!(list(&["size", ":azureblob:box/0003"]).starts_with("Total objects: 1k (1000)\n"));
    }
    let store = open_by("box", &[("account", azuresim::ACCOUNT), ("key", azuresim::KEY), ("endpoint", &*account)]);
    assert_eq!(keys(&*store, ListRequest::all()).await, expected);
    for at in [0, 999, 1000, 7777] {
        let request = ListRequest { after: Some(Key::new(&expected[at])), ..ListRequest::all() };
        assert_eq!(keys(&*store, request).await, expected[at + 1..]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn microsofts_own_client_passes() {
    let (Some(server), Some(python)) = (WebServer::start(Make::Azurite), peers::need("cloud_sdks")) else { return };
    let (azure, lab) = (NewerAzure::start(server.address), Lab::new(""));
    let (store, bytes) = (open(&azure, "box", &[]), content(4, 300_000));
    let names = fill(&*store, 20).await;
    put(&*store, "large", &bytes).await;
    let before = azure.checked();
    fs::write(lab.path("large"), &bytes).expect("written");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/sdk.py");
    let large = lab.path("large");
    let ran = lab.run(&python, &[script, &azure.account(), &signature(), large.to_str().expect("text")]).ok();
    assert_eq!(ran.out.trim(), "passed");
    assert_eq!(azure.checked() - before, 2, "its CRC-64 is ours");
    assert!(azure.begun() > 0 && azure.copied() == 3);
    assert!(get(&*store, "by the client").await == bytes);
    assert_eq!(
        keys(&*store, ListRequest::dir("")).await,
        ["by the client", "d0/", "d1/", "large"],
        "of {}",
        names.len()
    );
}
