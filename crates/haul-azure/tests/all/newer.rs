//! What the service has and Azurite doesn't, on Azurite with it; several deletes in one request; and Microsoft's own client at the other side.

use crate::azurite::{get, keys, open_by, open_counted, put, signature};
use bytes::Bytes;
use haul_core::{ErrorKind, Key, Version};
use haul_store::{Late, ListRequest, Payload, Store, WriteSpec};
use haul_testkit::{
    lab::Lab,
    newer_azure::NewerAzure,
    peers,
    tree::content,
    web_servers::{Make, WebServer},
};
use std::{fs, sync::Arc};

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
    assert_eq!(store.caps().page, Some(7));
    let names = fill(&*store, 60).await;
    assert_eq!((keys(&*store, ListRequest::all()).await, azure.begun()), (names.clone(), 0));
    for at in [0, 1, 33, 59] {
        let request = ListRequest { after: Some(Key::new(&names[at])), ..ListRequest::all() };
        assert_eq!(keys(&*store, request).await, names[at + 1..], "after {}", names[at]);
    }
    let pages: usize = [60, 59, 27, 1].iter().map(|count: &usize| count.div_ceil(7)).sum();
    assert_eq!(azure.begun(), pages, "each listing asks only for what it tells");
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
    upload.publish(parts, Late::default()).await.expect("published");
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
    assert!(azure.begun() > 0);
    assert!(get(&*store, "by the client").await == bytes);
    assert_eq!(
        keys(&*store, ListRequest::dir("")).await,
        ["by the client", "d0/", "d1/", "large"],
        "of {}",
        names.len()
    );
}
