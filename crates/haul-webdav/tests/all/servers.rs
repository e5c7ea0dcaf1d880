//! The contract on real servers, each with what it can't do and why; and rclone at the other side.

use bytes::Bytes;
use futures::StreamExt;
use haul_core::{ErrorKind, Key, Listed};
use haul_store::{Cleanup, ListRequest, OpenRequest, Payload, Store, UnfinishedWrites};
use haul_testkit::{
    conformance::{
        self,
        Breaks::{Always, AtTimes},
        KnownBreak,
    },
    liar::Liar,
    peers,
    servers::{self, Server},
    web_servers::{Make, WebServer},
};
use std::{
    fs,
    io::Write as _,
    process::{Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};
use url::Url;

fn open(server: &WebServer, vendor: &str, path: &str) -> Arc<dyn Store> {
    open_at(&server.url(), path, &[("vendor", vendor)])
}

pub fn open_at(url: &str, path: &str, options: &[(&str, &str)]) -> Arc<dyn Store> {
    let url = ("url", url);
    let options = options.iter().chain([&url]);
    let request = OpenRequest {
        remote: "dav".into(),
        path: path.into(),
        options: options.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
        ..OpenRequest::default()
    };
    (haul_webdav::KIND.open)(request).expect("opened")
}

/// What no store of files sent whole can do.
const WHOLE: [&str; 7] = [
    "a_file_and_a_folder_of_one_name",
    "parts_arrive_in_any_order",
    "a_resumed_write_publishes_the_whole",
    "only_parts_that_are_there_are_believed",
    "a_write_that_ended_is_gone",
    "a_write_given_up_later_leaves_nothing",
    "another_writes_token_is_refused",
];

async fn keeps_the_contract(make: Make, vendor: &str, more: &[&str], except: &[KnownBreak]) {
    let Some(server) = WebServer::start(make) else { return };
    keeps_it_at(&server.url(), &|| server.log(), vendor, more, except).await;
}

async fn keeps_it_at(url: &str, log: &dyn Fn() -> String, vendor: &str, more: &[&str], except: &[KnownBreak]) {
    let number = AtomicUsize::new(0);
    let root = || async {
        let path = format!("root {}/in/here", number.fetch_add(1, Ordering::Relaxed));
        let store = open_at(url, &path, &[("vendor", vendor)]);
        store.make_dir(&Key::new(""), &Default::default()).await.unwrap_or_else(|e| panic!("{e:?}\n{}", log()));
        store
    };
    let summary = conformance::run_except(root, except).await;
    println!("{summary}");
    let skipped: Vec<&str> = summary.skipped.iter().map(|(name, _)| *name).collect();
    let known = |name: &&str| WHOLE.contains(name) || more.contains(name) || except.iter().any(|(of, ..)| of == name);
    let surprises: Vec<_> = skipped.iter().filter(|name| !known(name)).collect();
    assert!(surprises.is_empty(), "skipped too: {surprises:?}");
}

const SECONDS: &str = "it tells size and time in whole seconds alone: two files of one size within a second are one";

pub const NO_TIMES: [&str; 9] = [
    "what_was_sent_is_read_back",
    "conditions_hold",
    "times_are_kept",
    "late_facts_override",
    "metadata_is_kept",
    "hashes_are_of_the_content",
    "set_meta_changes_only_that",
    "it_hashes_what_it_holds",
    "a_leading_slash_comes_back",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_keeps_the_contract() {
    let except = [
        ("strange_names_come_back", Always, "its listings leave out the name `...`"),
        ("a_stale_version_is_refused", AtTimes, SECONDS),
        ("replacing_gives_a_new_version", AtTimes, SECONDS),
    ];
    keeps_the_contract(Make::Nginx, "other", &NO_TIMES, &except).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn apache_keeps_the_contract() {
    keeps_the_contract(Make::ApacheDav, "other", &NO_TIMES, &[]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone_keeps_the_contract() {
    let except = [
        ("times_are_kept", Always, "with a file's content it doesn't send the first second of 1970 as its time"),
        ("strange_names_come_back", Always, "it takes two ways to write one letter for one name"),
        ("writers_of_one_key_dont_mix", AtTimes, "it refuses one of two who write at once with 423, to be tried again"),
    ];
    keeps_the_contract(Make::RcloneDav, "rclone", &NO_TIMES, &except).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seaweedfs_keeps_the_contract() {
    let Some(server) = Server::shared(servers::Make::Seaweed) else { return };
    let url = server.gateways.as_ref().expect("WebDAV").webdav();
    let except = [
        ("a_stale_version_is_refused", AtTimes, SECONDS),
        ("replacing_gives_a_new_version", AtTimes, SECONDS),
        ("writers_of_one_key_dont_mix", AtTimes, "it refuses one of two who write at once with 423, to be tried again"),
    ];
    keeps_it_at(&url, &|| server.log(), "other", &NO_TIMES, &except).await;
}

/// SeaweedFS answers 423 to the second of two that make one directory at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_many_writers_makes_their_directory() {
    let Some(server) = WebServer::start(Make::Nginx) else { return };
    let store = open(&server, "other", "");
    let wrote = (0..16).map(|i| {
        let store = &store;
        async move {
            let upload = store.write(&Key::new(format!("new/{i}")), Default::default()).await?;
            let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"x"))).await?;
            Ok::<_, haul_core::Error>(upload.publish(vec![part], Default::default()).await?)
        }
    });
    for one in futures::future::join_all(wrote).await {
        one.unwrap_or_else(|e| panic!("{e:?}\n{}", server.log()));
    }
    let log = server.log();
    assert_eq!(log.lines().filter(|line| line.contains("MKCOL")).count(), 1, "{log}");
}

pub fn clean(dry_run: bool) -> Cleanup {
    Cleanup { older_than: Duration::ZERO, dry_run, below: Key::new("") }
}

async fn begin(store: &dyn Store, name: &str, bytes: &'static [u8]) -> (Box<dyn haul_store::Upload>, haul_store::Part) {
    let upload = store.write(&Key::new(name), Default::default()).await.expect("begun");
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(bytes))).await.expect("sent");
    (upload, part)
}

pub async fn keys(store: &dyn Store) -> Vec<String> {
    let (mut keys, mut listing) = (Vec::new(), store.list(ListRequest::all()));
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone_reads_what_haul_wrote_and_the_reverse() {
    for make in [Make::Nginx, Make::ApacheDav] {
        let (Some(server), Some(rclone)) = (WebServer::start(make), peers::need("rclone")) else { return };
        let run = |args: &[&str], input: &[u8]| {
            let mut command = Command::new(&rclone);
            command.env("RCLONE_CONFIG", "/dev/null").args(["--webdav-url", &server.url(), "--webdav-vendor", "other"]);
            let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("rclone");
            child.stdin.take().expect("input").write_all(input).expect("input");
            String::from_utf8(child.wait_with_output().expect("output").stdout).expect("text")
        };
        let store = open(&server, "other", "");
        let (upload, part) = begin(&*store, "d/x y#1.txt", b"from haul").await;
        upload.publish(vec![part], Default::default()).await.expect("published");
        assert_eq!(run(&["lsf", "-R", ":webdav:"], b""), "d/\nd/x y#1.txt\n");
        assert_eq!(run(&["cat", ":webdav:d/x y#1.txt"], b""), "from haul");
        run(&["rcat", ":webdav:e/f?+%41"], b"from rclone");
        let read = store.read(&Key::new("e/f?+%41"), None, None).await.expect("read");
        assert_eq!(conformance::collect(read).await.expect("bytes"), b"from rclone");
        assert_eq!(keys(&*store).await, ["d/", "d/x y#1.txt", "e/", "e/f?+%41"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_writes_just_before_a_deletion_keeps_his_file() {
    let Some(server) = WebServer::start(Make::ApacheDav) else { return };
    let url = Url::parse(&server.url()).expect("an address");
    let liar = Liar::start(url.socket_addrs(|| None).expect("an address")[0]);
    let store = open_at(&format!("{}{}", liar.endpoint(), url.path()), "", &[("vendor", "other")]);
    let there = server.data().join("f");
    // Apache's ETags are weak for a second.
    let old = SystemTime::now() - Duration::from_secs(9);
    let write = |content: &str| {
        fs::write(&there, content).expect("written");
        fs::File::options().append(true).open(&there).and_then(|file| file.set_modified(old)).expect("a time");
    };
    write("seen");
    let seen = store.stat(&Key::new("f")).await.expect("there").version;
    let (requests, by) = (AtomicUsize::new(0), there.clone());
    liar.tell(move |_, answer| {
        if requests.fetch_add(1, Ordering::Relaxed) == 0 {
            fs::write(&by, "by another").expect("written");
        }
        answer
    });
    let refused = store.delete(vec![(Key::new("f"), seen)]).await.remove(0).expect_err("changed");
    assert_eq!(refused.kind(), ErrorKind::Changed);
    assert_eq!(fs::read(&there).expect("kept"), b"by another");
    // A server that compares with other ETags than it names.
    write("seen again");
    liar.tell(|_, answer| {
        let text = String::from_utf8_lossy(answer.body())
            .replace("getetag>&quot;", "getetag>&quot;x")
            .replace("getetag>\"", "getetag>\"x");
        answer.map(|_| Bytes::from(text))
    });
    let seen = store.stat(&Key::new("f")).await.expect("there").version;
    assert!(seen.as_ref().is_some_and(|seen| seen.0.windows(2).any(|two| two == b"\"x")), "{seen:?}");
    store.delete(vec![(Key::new("f"), seen)]).await.remove(0).expect("deleted");
    assert!(!there.exists());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_is_never_taken_for_a_file_and_remains_are_found() {
    for (make, vendor) in [(Make::Nginx, "other"), (Make::ApacheDav, "other"), (Make::RcloneDav, "rclone")] {
        let Some(server) = WebServer::start(make) else { return };
        let store = open(&server, vendor, "");
        let (upload, part) = begin(&*store, "d/e/f", b"dear").await;
        upload.publish(vec![part], Default::default()).await.expect("published");
        // By the name of a file nothing of a directory is deleted, nor replaced.
        assert!(store.delete(vec![(Key::new("d"), None), (Key::new("d/e"), None)]).await.iter().all(Result::is_ok));
        let (upload, part) = begin(&*store, "d/e", b"file").await;
        let failed = upload.publish(vec![part], Default::default()).await.expect_err("a directory is there");
        assert_eq!(failed.error.kind(), haul_core::ErrorKind::Exists, "{make:?}: {:?}", failed.error);
        let whole = store.read(&Key::new("d/e/f"), None, None).await.expect("still there");
        assert_eq!(conformance::collect(whole).await.expect("bytes"), b"dear");
        // An abandoned upload stays hidden until cleanup.
        drop(failed);
        assert_eq!(keys(&*store).await, ["d/", "d/e/", "d/e/f"], "{make:?}");
        // nginx lists no name that begins with a dot: there they stay.
        let remains = usize::from(make != Make::Nginx);
        for (dry_run, left) in [(true, remains), (false, remains), (false, 0)] {
            let Ok(UnfinishedWrites { found, failed }) = store.admin().unwrap().cleanup(clean(dry_run)).await else {
                panic!("{make:?}")
            };
            assert!(found.len() == left && failed.is_empty(), "{make:?}: {found:?} {failed:?}");
        }
    }
}
