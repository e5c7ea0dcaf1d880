//! Real servers' pages, and what else a server may answer.

use futures::StreamExt;
use haul_core::{ErrorKind, Key, Listed};
use haul_store::{ListRequest, OpenRequest, Store};
use haul_testkit::{
    conformance::collect,
    web_servers::{Make, WebServer},
};
use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::Arc,
    thread,
    time::{Duration, UNIX_EPOCH},
};

fn open(url: &str, more: &[(&str, &str)]) -> Arc<dyn Store> {
    let mut options: BTreeMap<String, String> = [("url".to_owned(), url.to_owned())].into();
    options.extend(more.iter().map(|(name, value)| (name.to_string(), value.to_string())));
    let request = OpenRequest { remote: "web".into(), options, ..OpenRequest::default() };
    (haul_http::KIND.open)(request).expect("opened")
}

/// What a listing tells: keys with sizes, then how it ended.
async fn listed(store: &dyn Store) -> Vec<String> {
    let mut out = Vec::new();
    let mut listing = store.list(ListRequest::all());
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(batch) => out.extend(batch.iter().map(|entry| format!("{} {}", entry.key, entry.size))),
            Listed::Failed { lost, error } => out.push(format!("lost {}: {:?}", lost.from, error.kind())),
            Listed::Vanished(_) => {}
            Listed::End => out.push("end".into()),
        }
    }
    out
}

const NAMES: [&str; 12] = [
    "100%",
    "a+b",
    "a-b",
    "a/b/c.txt",
    "a/x y",
    "a0",
    "amp&<x>'\"",
    "colon:x",
    "e\u{301}",
    "very-long-name-that-a-page-cuts-for-the-eye-but-not-in-its-link.bin",
    "what?",
    "~#1",
];

fn fill(server: &WebServer) -> Vec<String> {
    let data = server.data();
    let (mut wanted, time) =
        (vec!["a/ 0".to_owned(), "a/b/ 0".to_owned()], UNIX_EPOCH + Duration::from_secs(1_500_000_000));
    for (size, name) in NAMES.iter().enumerate() {
        let path = data.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let size = size * 1500;
        fs::write(&path, vec![b'a' + (size / 1500) as u8; size]).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        wanted.push(format!("{name} {size}"));
    }
    wanted.sort_by(|a, b| a.rsplit_once(' ').unwrap().0.cmp(b.rsplit_once(' ').unwrap().0));
    wanted.push("end".into());
    wanted
}

async fn pages_are_read(make: Make) {
    let Some(server) = WebServer::start(make) else { return };
    let wanted = fill(&server);
    let store = open(&server.url(), &[]);
    assert_eq!(listed(&*store).await, wanted, "{make:?}\n{}", server.log());
    for name in NAMES {
        let entry = store.stat(&Key::new(name)).await.unwrap_or_else(|e| panic!("{make:?} {name}: {e:?}"));
        assert_eq!(entry.mtime.map(|time| time.secs()), Some(1_500_000_000), "{make:?} {name}");
        let bytes = fs::read(server.data().join(name)).unwrap();
        let whole = store.read(&entry.key, entry.version.as_ref(), None).await.unwrap();
        assert!(collect(whole).await.unwrap() == bytes, "{make:?} {name}");
        if bytes.len() > 600 {
            let part = store.read(&entry.key, entry.version.as_ref(), Some(500..600)).await.unwrap();
            assert_eq!(part.entry.size, bytes.len() as u64);
            assert!(collect(part).await.unwrap() == bytes[500..600], "{make:?} {name}: a part");
        }
    }
    // A file that changes is another version, whichever part of it is read.
    let (key, path) = (Key::new("a0"), server.data().join("a0"));
    let old = store.stat(&key).await.unwrap().version;
    fs::write(&path, vec![b'z'; 9000]).unwrap();
    for range in [None, Some(0..10), Some(100..200)] {
        let error = store
            .read(&key, old.as_ref(), range)
            .await
            .err()
            .unwrap_or_else(|| panic!("{make:?}: another file was read"));
        assert_eq!(error.kind(), ErrorKind::Changed, "{make:?}: {error:?}");
    }
    for missing in ["none", "a", "a/none", "none/x"] {
        let error = store.stat(&Key::new(missing)).await.expect_err(missing);
        assert_eq!(error.kind(), ErrorKind::NotFound, "{make:?} {missing}: {error:?}");
    }
    assert!(store.stat(&Key::new("a/")).await.unwrap().is_dir());
    let write = store.write(&Key::new("w"), Default::default()).await.err().expect("refused");
    assert_eq!(write.to_string(), "w: write: a web server's files can only be read: use webdav, if the server has it");
    let beside = open(&format!("{}/none/", server.url()), &[]);
    assert_eq!(listed(&*beside).await, ["lost : DirNotFound"], "{make:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx() {
    pages_are_read(Make::Nginx).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_in_json() {
    pages_are_read(Make::NginxJson).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apache() {
    pages_are_read(Make::Apache).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lighttpd() {
    pages_are_read(Make::Lighttpd).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn python() {
    pages_are_read(Make::Python).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone() {
    pages_are_read(Make::RcloneHttp).await;
}

/// A server that gives each connection one answer.
fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let _ = stream.read(&mut request);
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[tokio::test]
async fn a_page_that_is_no_listing_proves_nothing() {
    for (answer, told) in [
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 52\r\nconnection: close\r\n\r\n<html><title>Log in</title><a href=login>x</a></html>",
            "Unsupported",
        ),
        ("HTTP/1.1 404 Not Found\r\ncontent-length: 4\r\nconnection: close\r\n\r\nnone", "DirNotFound"),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: 99\r\nconnection: close\r\n\r\n<title>Index of /</title>",
            "Io",
        ),
        (
            "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\n\r\n<title>Index of /</title><a href=f>",
            "Unsupported",
        ),
    ] {
        let store = open(&answering(answer), &[]);
        assert_eq!(listed(&*store).await, [format!("lost : {told}")], "{answer}");
    }
}
