//! The S3 store against a real server: MinIO, or any other that `HAUL_TEST_S3` names (`ENDPOINT ACCESS_KEY SECRET_KEY PROVIDER`).

// The peer to test against is named by a variable.

use bytes::Bytes;
use futures::StreamExt;
use haul_core::{Algo, Entry, ErrorKind, Hashes, Key, Kind, Listed, Meta, Mtime, Result, hash, plan::Replace};
use haul_s3::S3;
use haul_store::{
    Body, CopyBatch, CopyHow, CopyItem, LateFacts, ListRequest, Meters, OpenRequest, Payload, Store, StoredFacts,
    WriteSpec,
};
use haul_testkit::minio::{ACCESS_KEY, Minio, SECRET_KEY};
use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

struct Service {
    options: BTreeMap<String, String>,
}

static NEXT: AtomicUsize = AtomicUsize::new(0);

/// The server; `None` after saying that the test is skipped.
fn service() -> Option<Service> {
    let options = |endpoint: &str, access: &str, secret: &str, provider: &str| {
        [("endpoint", endpoint), ("access_key_id", access), ("secret_access_key", secret), ("provider", provider)]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into()
    };
    if let Ok(named) = std::env::var("HAUL_TEST_S3") {
        let f: Vec<&str> = named.split_whitespace().collect();
        return Some(Service { options: options(f[0], f[1], f[2], f[3]) });
    }
    let endpoint = format!("http://{}", Minio::shared()?.address);
    Some(Service { options: options(&endpoint, ACCESS_KEY, SECRET_KEY, "Minio") })
}

impl Service {
    fn open(&self, path: &str, more: &[(&str, &str)]) -> (S3, Arc<Meters>) {
        let mut options = self.options.clone();
        options.extend(more.iter().map(|(k, v)| (k.to_string(), v.to_string())));
        let meters = Arc::new(Meters::default());
        let request = OpenRequest {
            remote: "r".into(),
            path: path.into(),
            options,
            meters: meters.clone(),
            ..OpenRequest::default()
        };
        (S3::open(request).unwrap(), meters)
    }

    /// A new bucket, and a store whose root is it.
    async fn bucket(&self, more: &[(&str, &str)]) -> (S3, Arc<Meters>, String) {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("haul-{}-{number}", std::process::id());
        let (store, meters) = self.open(&name, more);
        store.make_dir(&Key::new(""), &WriteSpec::default()).await.unwrap();
        (store, meters, name)
    }
}

fn requests(meters: &Meters) -> Vec<(&'static str, u64)> {
    meters.requests().into_iter().filter(|(kind, _)| *kind != "CreateBucket").collect()
}

fn bytes(len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

async fn try_write(store: &S3, key: &Key, spec: WriteSpec, data: &[u8], part: usize) -> Result<StoredFacts> {
    let upload = store.write(key, spec).await?;
    let mut parts = Vec::new();
    for (index, chunk) in data.chunks(part).enumerate().collect::<Vec<_>>().into_iter().rev() {
        let payload = Payload::from(Bytes::copy_from_slice(chunk));
        parts.push(upload.part(index as u64, (index * part) as u64, payload).await?);
    }
    upload.publish(parts, LateFacts::default()).await.map_err(|u| u.error)
}

async fn put(store: &S3, key: impl AsRef<[u8]>, data: &[u8]) -> StoredFacts {
    let spec = WriteSpec { size: Some(data.len() as u64), ..WriteSpec::default() };
    try_write(store, &Key::new(key), spec, data, data.len().max(1)).await.unwrap()
}

async fn get(store: &S3, key: impl AsRef<[u8]>, range: Option<std::ops::Range<u64>>) -> Result<(Entry, Vec<u8>)> {
    let read = store.read(&Key::new(key), None, range).await?;
    let Body::Stream(mut pieces) = read.body else { panic!("S3 has no files") };
    let mut all = Vec::new();
    while let Some(piece) = pieces.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok((read.entry, all))
}

async fn list(store: &S3, request: ListRequest) -> Result<Vec<Entry>> {
    let mut steps = store.list(request);
    let mut all = Vec::new();
    while let Some(step) = steps.next().await {
        match step {
            Listed::Batch(entries) => all.extend(entries),
            Listed::Failed { error, .. } => return Err(error),
            Listed::Vanished(_) => {}
            Listed::End => return Ok(all),
        }
    }
    panic!("a listing without an end")
}

async fn keys(store: &S3, request: ListRequest) -> Vec<String> {
    list(store, request).await.unwrap().iter().map(|e| format!("{:?}", e.key)).collect()
}

#[tokio::test]
async fn a_small_upload_is_one_put_and_reads_back() {
    let Some(service) = service() else { return };
    // Its ETag is the proof where nothing is known of checksums.
    let (store, meters, _) = service.bucket(&[("provider", "Other")]).await;
    let data = b"hello".to_vec();
    let mtime = Mtime::new(1_700_000_000, 123_456_789);
    let spec = WriteSpec { size: Some(5), mtime: Some(mtime), ..WriteSpec::default() };
    let stored = try_write(&store, &Key::new("a b+c.txt"), spec, &data, 5).await.unwrap();
    assert_eq!(stored.size, 5);
    assert_eq!(stored.hashes.hex(Algo::Md5).as_deref(), Some("5d41402abc4b2a76b9719d911017c592"));
    assert_eq!(requests(&meters), [("PutObject", 1)]);

    let entry = store.stat(&Key::new("a b+c.txt")).await.unwrap();
    assert_eq!((entry.size, entry.mtime, entry.version.clone()), (5, Some(mtime), stored.version));
    assert_eq!(entry.meta.unwrap()["content-type"], "text/plain");
    let (entry, read) = get(&store, "a b+c.txt", None).await.unwrap();
    assert_eq!((entry.mtime, read), (Some(mtime), data));
    let (entry, read) = get(&store, "a b+c.txt", Some(1..3)).await.unwrap();
    assert_eq!((entry.size, &read[..]), (5, &b"el"[..]));
    let (entry, read) = get(&store, "a b+c.txt", Some(3..90)).await.unwrap();
    assert_eq!((entry.size, &read[..]), (5, &b"lo"[..]));
    let error = get(&store, "none", None).await.unwrap_err();
    assert_eq!((error.kind(), error.key()), (ErrorKind::NotFound, Some(&Key::new("none"))));
}

#[tokio::test]
async fn empty_files() {
    let Some(service) = service() else { return };
    let (store, meters, _) = service.bucket(&[]).await;
    let none = WriteSpec { size: Some(0), ..WriteSpec::default() };
    try_write(&store, &Key::new("no-part"), none.clone(), b"", 1).await.unwrap();
    let upload = store.write(&Key::new("one-part"), none).await.unwrap();
    let part = upload.part(0, 0, Payload::default()).await.unwrap();
    upload.publish(vec![part], LateFacts::default()).await.unwrap();
    assert_eq!(requests(&meters), [("PutObject", 2)]);
    for key in ["no-part", "one-part"] {
        assert_eq!(get(&store, key, None).await.unwrap().1, b"");
        assert_eq!(get(&store, key, Some(0..10)).await.unwrap().1, b"");
        assert_eq!(get(&store, key, Some(0..0)).await.unwrap().1, b"");
    }
}

#[tokio::test]
async fn the_size_that_was_announced_is_held_to() {
    let Some(service) = service() else { return };
    let (store, _, _) = service.bucket(&[]).await;
    let spec = WriteSpec { size: Some(5), ..WriteSpec::default() };
    let error = try_write(&store, &Key::new("k"), spec.clone(), b"four", 4).await.unwrap_err();
    assert_eq!(error.to_string(), "k: write: 4 bytes came where 5 were announced");
    assert_eq!(store.stat(&Key::new("k")).await.unwrap_err().kind(), ErrorKind::NotFound);
    let loose = WriteSpec { size_may_differ: true, ..spec };
    assert_eq!(try_write(&store, &Key::new("k"), loose, b"four", 4).await.unwrap().size, 4);
}

#[tokio::test]
async fn a_wrong_hash_is_refused_before_anything_shows() {
    let Some(service) = service() else { return };
    let (store, _, _) = service.bucket(&[]).await;
    let hashes = Hashes::default().with(Algo::Md5, [7; 16]);
    let spec = WriteSpec { size: Some(4), hashes, ..WriteSpec::default() };
    let error = try_write(&store, &Key::new("k"), spec, b"four", 4).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(store.stat(&Key::new("k")).await.unwrap_err().kind(), ErrorKind::NotFound);
}

const PART: usize = 5 << 20;

#[tokio::test]
async fn a_large_upload_goes_in_parts_out_of_order() {
    let Some(service) = service() else { return };
    let (store, meters, _) = service.bucket(&[("upload_cutoff", "5Mi"), ("chunk_size", "5Mi")]).await;
    let data = bytes(2 * PART + 77);
    let md5 = hash::hash_bytes(&[Algo::Md5], &data);
    let mtime = Mtime::new(-1, 500_000_000);
    let meta: Meta = [("colour".to_owned(), "grün".to_owned())].into();
    let spec = WriteSpec {
        size: Some(data.len() as u64),
        mtime: Some(mtime),
        meta: Some(Box::new(meta)),
        hashes: md5.clone(),
        ..WriteSpec::default()
    };
    let stored = try_write(&store, &Key::new("big"), spec, &data, PART).await.unwrap();
    assert_eq!(stored.size, data.len() as u64);
    assert_eq!(requests(&meters), [("CompleteMultipartUpload", 1), ("CreateMultipartUpload", 1), ("UploadPart", 3)]);
    let (entry, read) = get(&store, "big", None).await.unwrap();
    assert!(read == data);
    assert_eq!((entry.version, entry.mtime), (stored.version, Some(mtime)));
    assert_eq!(entry.hashes.get(Algo::Md5), md5.get(Algo::Md5), "kept as md5chksum");
    assert_eq!(entry.meta.unwrap()["colour"], "grün");
}

#[tokio::test]
async fn a_pipe_of_unknown_size_begins_parts_only_when_it_must() {
    let Some(service) = service() else { return };
    let (store, meters, _) = service.bucket(&[("chunk_size", "6Mi")]).await;
    try_write(&store, &Key::new("short"), WriteSpec::default(), b"abc", 3).await.unwrap();
    assert_eq!(requests(&meters), [("PutObject", 1)]);
    // The first part is held back, being small; the second shows that there are several.
    let data = bytes(PART + 5);
    let upload = store.write(&Key::new("long"), WriteSpec::default()).await.unwrap();
    let mut parts = Vec::new();
    for (index, chunk) in data.chunks(PART).enumerate() {
        let payload = Payload::from(Bytes::copy_from_slice(chunk));
        parts.push(upload.part(index as u64, 0, payload).await.unwrap());
    }
    upload.publish(parts, LateFacts::default()).await.unwrap();
    assert!(get(&store, "long", None).await.unwrap().1 == data);
    assert_eq!(meters.requests()["UploadPart"], 2);
}

#[tokio::test]
async fn the_parts_of_an_unfinished_upload_can_be_found_again() {
    let Some(service) = service() else { return };
    let (store, _, _) = service.bucket(&[("upload_cutoff", "5Mi")]).await;
    let data = bytes(PART + 9);
    let spec = WriteSpec { size: Some(data.len() as u64), ..WriteSpec::default() };
    let upload = store.write(&Key::new("k"), spec).await.unwrap();
    let token = upload.token().await.unwrap().expect("it can be found again");
    assert_eq!(store.parts(&token).await.unwrap(), []);
    for (index, chunk) in data.chunks(PART).enumerate() {
        upload.part(index as u64, 0, Payload::from(Bytes::copy_from_slice(chunk))).await.unwrap();
    }
    let found = store.parts(&token).await.unwrap();
    assert_eq!(found.iter().map(|p| (p.index, p.size)).collect::<Vec<_>>(), [(0, PART as u64), (1, 9)]);
    upload.publish(found, LateFacts::default()).await.unwrap();
    assert!(get(&store, "k", None).await.unwrap().1 == data);
    assert!(store.parts(&token).await.map_or_else(|e| e.kind() == ErrorKind::NotFound, |p| p.is_empty()));
}

#[tokio::test]
async fn an_aborted_upload_leaves_nothing() {
    let Some(service) = service() else { return };
    let (store, _, _) = service.bucket(&[("upload_cutoff", "5Mi")]).await;
    let spec = WriteSpec { size: Some(20 << 20), ..WriteSpec::default() };
    let upload = store.write(&Key::new("k"), spec).await.unwrap();
    upload.part(0, 0, Payload::from(Bytes::from(bytes(PART)))).await.unwrap();
    let token = upload.token().await.unwrap().expect("it can be found again");
    upload.abort().await.unwrap();
    assert!(store.parts(&token).await.map_or_else(|e| e.kind() == ErrorKind::NotFound, |p| p.is_empty()));
    assert_eq!(list(&store, ListRequest::all()).await.unwrap(), []);
}

#[tokio::test]
async fn an_upload_that_was_begun_with_other_settings_is_not_gone_on_with() {
    let Some(service) = service() else { return };
    let (store, meters, name) = service.bucket(&[("upload_cutoff", "5Mi")]).await;
    let spec = |mtime| WriteSpec { size: Some(20 << 20), mtime: Some(Mtime::new(mtime, 0)), ..WriteSpec::default() };
    let upload = store.write(&Key::new("k"), spec(1)).await.unwrap();
    let token = upload.token().await.unwrap().unwrap();
    drop(upload);
    assert!(store.resumable().unwrap().resume(&Key::new("k"), &token, Vec::new(), spec(1)).await.is_ok());
    let requests = meters.requests()["ListParts"];
    let (other, _) = service.open(&name, &[("storage_class", "REDUCED_REDUNDANCY")]);
    for (store, mtime) in [(&store, 2), (&other, 1)] {
        let error =
            store.resumable().unwrap().resume(&Key::new("k"), &token, Vec::new(), spec(mtime)).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Changed);
        assert_eq!(error.to_string(), "k: resume: the upload was begun with other metadata or settings");
    }
    assert_eq!(meters.requests()["ListParts"], requests);
    other.resumable().unwrap().discard(&Key::new("k"), &token).await.unwrap();
    assert!(store.parts(&token).await.map_or_else(|e| e.kind() == ErrorKind::NotFound, |p| p.is_empty()));
}

#[tokio::test]
async fn what_is_learnt_late_is_kept() {
    let Some(service) = service() else { return };
    let (store, _, _) = service.bucket(&[("upload_cutoff", "5Mi")]).await;
    for len in [10, PART + 10] {
        let data = bytes(len);
        let upload =
            store.write(&Key::new("k"), WriteSpec { size: Some(len as u64), ..WriteSpec::default() }).await.unwrap();
        let mut parts = Vec::new();
        for (index, chunk) in data.chunks(PART).enumerate() {
            parts.push(upload.part(index as u64, 0, Payload::from(Bytes::copy_from_slice(chunk))).await.unwrap());
        }
        let late = LateFacts { mtime: Some(Mtime::new(5, 6)), ..LateFacts::default() };
        let stored = upload.publish(parts, late).await.unwrap();
        let entry = store.stat(&Key::new("k")).await.unwrap();
        assert_eq!((entry.mtime, entry.version), (Some(Mtime::new(5, 6)), stored.version), "{len}");
    }
}

#[tokio::test]
async fn every_key_survives() {
    let Some(service) = service() else { return };
    let (store, _, _) = service.bucket(&[]).await;
    let mut names: Vec<&[u8]> = vec![
        b" lead",
        b"a b",
        b"a+b",
        b"a%2Bb",
        b"a?b#c&d=e",
        b"a<b>\"'",
        "é ✨".as_bytes(),
        b"new\nline",
        b"sub/dir/x",
        b"~-_.!*()",
    ];
    names.push(b"tab\tcr\r");
    for name in &names {
        put(&store, name, name).await;
    }
    let mut sorted: Vec<Key> = names.iter().map(Key::new).collect();
    sorted.sort();
    let listed = list(&store, ListRequest::all()).await.unwrap();
    let files: Vec<Key> = listed.iter().filter(|e| e.kind == Kind::File).map(|e| e.key.clone()).collect();
    assert_eq!(files, sorted);
    for name in &names {
        assert_eq!(get(&store, name, None).await.unwrap().1, *name, "{}", name.escape_ascii());
        let after = ListRequest { after: Some(Key::new(name)), ..ListRequest::all() };
        let rest = list(&store, after).await.unwrap().into_iter().filter(|e| e.kind == Kind::File);
        let expected = sorted.iter().filter(|k| **k > Key::new(name)).count();
        assert_eq!(rest.count(), expected, "after {}", name.escape_ascii());
    }
    let answers = store.delete(sorted.iter().map(|k| (k.clone(), None)).collect()).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let left = list(&store, ListRequest::all()).await.unwrap();
    assert!(left.iter().all(|e| e.kind == Kind::Dir), "{left:?}");
}

#[tokio::test]
async fn encoded_names_come_in_the_order_of_keys() {
    let Some(service) = service() else { return };
    let (raw, _, bucket) = service.bucket(&[]).await;
    let encoding = ("encoding", "Slash,CrLf,InvalidUtf8,Dot");
    let (store, _) = service.open(&bucket, &[encoding]);
    // A line break comes before all else, its symbol after.
    let names = [&b"a\nb"[..], b"a-b", "a␊".as_bytes(), b"d\n/x", b"d-", b"z\xff"].map(Key::new);
    for name in &names {
        put(&store, name.as_bytes(), b"text").await;
    }
    let stored = ["a-b", "a‛␊", "a␊b", "d-", "d␊/x", "z‛FF"];
    let names_of = async |store: &S3| -> Vec<String> {
        let listed = list(store, ListRequest::all()).await.unwrap();
        listed.iter().map(|entry| String::from_utf8_lossy(entry.key.as_bytes()).into_owned()).collect()
    };
    assert_eq!(names_of(&raw).await, stored, "without an encoding they are what they are");
    let listed = list(&store, ListRequest::all()).await.unwrap();
    assert!(listed.iter().map(|entry| &entry.key).eq(&names), "{listed:?}");
    assert_eq!(get(&store, b"z\xff", None).await.unwrap().1, b"text");
    assert_eq!(keys(&service.open(&format!("{bucket}/d\n"), &[encoding]).0, ListRequest::all()).await, ["x"]);
    assert_eq!((store.caps().page, raw.caps().page.is_some()), (None, true), "ranges of keys are no ranges of names");
    let [ours, plain] = [&store, &raw].map(|store| store.caps().domain.clone().unwrap());
    assert_ne!(ours.name, plain.name, "keys of one are others of the other");
    let item = CopyItem {
        from: Key::new("d\n/x"),
        want: None,
        size: 4,
        to: Key::new("m\r"),
        spec: WriteSpec::default(),
        how: CopyHow::Copy,
    };
    let batch = CopyBatch { from: ours.place, items: vec![item], links: Default::default() };
    store.copy(batch, Default::default()).await.remove(0).unwrap();
    assert_eq!(names_of(&raw).await, ["a-b", "a‛␊", "a␊b", "d-", "d␊/x", "m␍", "z‛FF"]);
    let all = list(&store, ListRequest::all()).await.unwrap().into_iter().map(|entry| (entry.key, None)).collect();
    assert!(store.delete(all).await.iter().all(Result::is_ok));
    assert!(keys(&raw, ListRequest::all()).await.is_empty());
    let request = OpenRequest {
        options: service
            .options
            .iter()
            .map(|(k, v)| (k.clone(), v.clone()))
            .chain([("versions".into(), "true".into()), (encoding.0.into(), encoding.1.into())])
            .collect(),
        path: bucket.into(),
        ..OpenRequest::default()
    };
    let why = "old versions are shown by the names that the bucket has: leave out encoding (--s3-encoding Raw)";
    assert_eq!(S3::open(request).unwrap_err().message(), why);
}

#[tokio::test]
async fn listings_of_directories_pages_and_limits() {
    let Some(service) = service() else { return };
    let (store, meters, name) = service.bucket(&[("list_chunk", "3")]).await;
    for key in ["a-b", "a/x", "a/y/z", "b/1", "b/2", "c"] {
        put(&store, key, b"1").await;
    }
    let all = ["a-b", "a/x", "a/y/z", "b/1", "b/2", "c"];
    assert_eq!(keys(&store, ListRequest::all()).await, all);
    assert_eq!(meters.requests()["ListObjectsV2"], 2);
    assert_eq!(keys(&store, ListRequest::dir("a/")).await, ["a/x", "a/y/"]);
    let top = keys(&store, ListRequest::dir("")).await;
    assert_eq!(top, ["a-b", "a/", "b/", "c"]);
    let after = ListRequest { after: Some(Key::new("a/")), ..ListRequest::dir("") };
    assert_eq!(keys(&store, after).await, ["b/", "c"]);
    let prefix = ListRequest { prefix: b"b".to_vec(), ..ListRequest::all() };
    assert_eq!(keys(&store, prefix).await, ["b/1", "b/2"]);
    let limited = ListRequest { limit: Some(2), ..ListRequest::all() };
    let lists = |meters: &Meters| meters.requests()["ListObjectsV2"];
    let before = lists(&meters);
    let steps: Vec<Listed> = store.list(limited).collect().await;
    assert!(
        matches!(&steps[..], [Listed::Batch(entries)] if (2..5).contains(&entries.len())),
        "no end, as there are more: {steps:?}"
    );
    assert_eq!(lists(&meters), before + 1);

    let (inner, _) = service.open(&format!("{name}/a"), &[]);
    assert_eq!(keys(&inner, ListRequest::all()).await, ["x", "y/z"]);
    assert_eq!(get(&inner, "x", None).await.unwrap().1, b"1");
    let (v1, _) = service.open(&name, &[("list_version", "1"), ("list_chunk", "2")]);
    assert_eq!(keys(&v1, ListRequest::all()).await, keys(&store, ListRequest::all()).await);
    assert_eq!(keys(&v1, ListRequest::dir("")).await, top);
}

#[tokio::test]
async fn directories_and_roots_are_looked_up() {
    let Some(service) = service() else { return };
    let (store, _, name) = service.bucket(&[]).await;
    put(&store, "d/x", b"1").await;
    assert!(store.stat(&Key::new("")).await.unwrap().is_dir());
    assert!(store.stat(&Key::new("d/")).await.unwrap().is_dir());
    assert_eq!(store.stat(&Key::new("e/")).await.unwrap_err().kind(), ErrorKind::NotFound);
    let root = Key::new("");
    assert!(service.open(&format!("{name}/d"), &[]).0.stat(&root).await.is_ok());
    let missing = service.open(&format!("{name}/e"), &[]).0.stat(&root).await.unwrap_err();
    assert_eq!(missing.to_string(), format!("stat: directory r:{name}/e not found: no key begins with it"));
    let missing = service.open("no-such-bucket", &[]).0.stat(&root).await.unwrap_err();
    assert_eq!((missing.kind(), missing.message()), (ErrorKind::DirNotFound, "bucket no-such-bucket does not exist"));
    let by_list = service.open(&name, &[("no_head_object", "true")]).0;
    assert_eq!(by_list.stat(&Key::new("d/x")).await.unwrap().size, 1);
    assert_eq!(by_list.stat(&Key::new("d/")).await.unwrap().kind, Kind::Dir);
}

#[tokio::test]
async fn all_buckets_as_one_store() {
    let Some(service) = service() else { return };
    let (one, _, name) = service.bucket(&[]).await;
    put(&one, "d/x", b"12").await;
    let (all, _) = service.open("", &[]);
    assert!(keys(&all, ListRequest::dir("")).await.contains(&format!("{name}/")));
    let prefix = |p: String| ListRequest { prefix: p.into(), ..ListRequest::all() };
    assert_eq!(keys(&all, prefix(format!("{name}/"))).await, [format!("{name}/d/x")]);
    assert!(keys(&all, ListRequest::all()).await.contains(&format!("{name}/d/x")));
    let key = format!("{name}/d/x");
    assert_eq!(all.stat(&Key::new(&key)).await.unwrap().size, 2);
    assert_eq!(get(&all, &key, None).await.unwrap().1, b"12");
    put(&all, format!("{name}/y"), b"3").await;
    assert_eq!(get(&one, "y", None).await.unwrap().1, b"3");
}

#[tokio::test]
async fn deletes_go_in_batches_and_buckets_only_when_empty() {
    let Some(service) = service() else { return };
    let (store, meters, _) = service.bucket(&[]).await;
    let names: Vec<String> = (0..12).map(|i| format!("k{i}")).collect();
    for name in &names {
        put(&store, name, b"1").await;
    }
    let error = store.delete(vec![(Key::new(""), None)]).await.remove(0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists, "{error}");
    let mut doomed: Vec<_> = names.iter().map(|n| (Key::new(n), None)).collect();
    doomed.push((Key::new("never-there"), None));
    assert!(store.delete(doomed).await.iter().all(Result::is_ok));
    assert_eq!(meters.requests()["DeleteObjects"], 1);
    assert!(store.delete(vec![(Key::new("never-there"), None)]).await[0].is_ok());
    assert!(store.delete(vec![(Key::new(""), None)]).await[0].is_ok());
    assert_eq!(store.stat(&Key::new("")).await.unwrap_err().kind(), ErrorKind::DirNotFound);
}

#[tokio::test]
async fn copies_inside_the_service() {
    let Some(service) = service() else { return };
    let (store, _, name) = service.bucket(&[("copy_cutoff", "5Mi"), ("upload_cutoff", "5Mi")]).await;
    let (target, meters) = service.open(&format!("{name}/copies"), &[("copy_cutoff", "5Mi")]);
    assert_eq!(store.caps().domain.as_ref().unwrap().name, target.caps().domain.as_ref().unwrap().name);
    let large = bytes(2 * PART + 3);
    let mtime = Mtime::new(1_000, 1);
    for (key, data) in [("a b%é", &b"small"[..]), ("large.txt", &large)] {
        let spec = WriteSpec { size: Some(data.len() as u64), mtime: Some(mtime), ..WriteSpec::default() };
        try_write(&store, &Key::new(key), spec, data, PART).await.unwrap();
    }
    let item = |from: &str, to: &str, size: u64| CopyItem {
        from: Key::new(from),
        want: None,
        size,
        to: Key::new(to),
        spec: WriteSpec::default(),
        how: CopyHow::Copy,
    };
    let mut renamed = item("a b%é", "renamed", 5);
    renamed.spec.mtime = Some(Mtime::new(7, 0));
    let stale =
        CopyItem { want: Some(haul_core::Version::new("0123")), ..item("large.txt", "stale", large.len() as u64) };
    let batch = CopyBatch {
        from: store.caps().domain.as_ref().unwrap().place.clone(),
        items: vec![
            item("a b%é", "plain", 5),
            renamed,
            item("large.txt", "large", large.len() as u64),
            item("missing", "x", 1),
            stale,
        ],
        links: Default::default(),
    };
    let answers = target.copy(batch, Default::default()).await;
    assert!(answers[..3].iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(answers[3].as_ref().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(answers[4].as_ref().unwrap_err().kind(), ErrorKind::Changed);
    let (entry, data) = get(&target, "plain", None).await.unwrap();
    assert_eq!((entry.mtime, &data[..]), (Some(mtime), &b"small"[..]));
    let (entry, data) = get(&target, "renamed", None).await.unwrap();
    assert_eq!((entry.mtime, &data[..]), (Some(Mtime::new(7, 0)), &b"small"[..]));
    let (entry, data) = get(&target, "large", None).await.unwrap();
    assert!(data == large);
    assert_eq!((entry.mtime, &entry.version), (Some(mtime), &answers[2].as_ref().unwrap().version));
    assert_eq!(entry.meta.unwrap()["content-type"], "text/plain");
    assert_eq!(meters.requests()["UploadPartCopy"], 3);
}

#[tokio::test]
async fn times_and_metadata_change_without_the_rest() {
    let Some(service) = service() else { return };
    let (store, _, _) = service.bucket(&[]).await;
    let meta: Meta = [("colour".to_owned(), "red".to_owned()), ("content-type".to_owned(), "x/y".to_owned())].into();
    let spec = WriteSpec { size: Some(1), meta: Some(Box::new(meta.clone())), ..WriteSpec::default() };
    let key = Key::new("k");
    try_write(&store, &key, spec, b"1", 1).await.unwrap();
    store.set_meta(&key, Some(Mtime::new(9, 8)), None).await.unwrap();
    let entry = store.stat(&key).await.unwrap();
    assert_eq!(entry.mtime, Some(Mtime::new(9, 8)));
    assert!(meta.iter().all(|(k, v)| entry.meta.as_ref().unwrap().get(k) == Some(v)), "{:?}", entry.meta);
    let blue: Meta = [("colour".to_owned(), "blue".to_owned())].into();
    store.set_meta(&key, None, Some(&blue)).await.unwrap();
    let entry = store.stat(&key).await.unwrap();
    assert_eq!((entry.mtime, entry.meta.unwrap()["colour"].as_str()), (Some(Mtime::new(9, 8)), "blue"));
}

#[tokio::test]
async fn conditions_hold() {
    let Some(service) = service() else { return };
    let (store, _, _) = service.bucket(&[]).await;
    let key = Key::new("k");
    let spec = |replace| WriteSpec { size: Some(1), replace, ..WriteSpec::default() };
    let first = try_write(&store, &key, spec(Replace::Absent), b"1", 1).await.unwrap().version.unwrap();
    let error = try_write(&store, &key, spec(Replace::Absent), b"2", 1).await.unwrap_err();
    assert_eq!(error.to_string(), "k: write: something is there already");
    assert_eq!(error.kind(), ErrorKind::Exists);
    let second =
        try_write(&store, &key, spec(Replace::Exactly(first.clone())), b"2", 1).await.unwrap().version.unwrap();
    let error = try_write(&store, &key, spec(Replace::Exactly(first.clone())), b"3", 1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
    assert!(store.read(&key, Some(&second), None).await.is_ok());
    let error = store.read(&key, Some(&first), None).await.err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Changed, "{error}");
}

#[tokio::test]
async fn a_missing_bucket_is_made_by_the_first_write_only() {
    let Some(service) = service() else { return };
    let name = format!("haul-{}-fresh", std::process::id());
    let (store, meters) = service.open(&name, &[]);
    put(&store, "a", b"1").await;
    put(&store, "b", b"1").await;
    assert_eq!(meters.requests().into_iter().collect::<Vec<_>>(), [("CreateBucket", 1), ("PutObject", 3)]);
    let (strict, _) = service.open("haul-never-made", &[("no_check_bucket", "true")]);
    let spec = WriteSpec { size: Some(1), ..WriteSpec::default() };
    let error = try_write(&strict, &Key::new("a"), spec, b"1", 1).await.unwrap_err();
    assert_eq!(error.to_string(), "a: write: bucket haul-never-made does not exist");
}

#[tokio::test]
async fn directory_markers_on_request() {
    let Some(service) = service() else { return };
    let (plain, meters, name) = service.bucket(&[]).await;
    plain.make_dir(&Key::new("d/e/"), &WriteSpec::default()).await.unwrap();
    assert_eq!(requests(&meters), []);
    let (marking, _) = service.open(&name, &[("directory_markers", "true")]);
    assert!(marking.caps().keeps_empty_dirs);
    marking.make_dir(&Key::new("d/e/"), &WriteSpec::default()).await.unwrap();
    let listed = list(&plain, ListRequest::all()).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|e| (format!("{:?}", e.key), e.kind)).collect();
    assert_eq!(listed, [("d/".to_owned(), Kind::Dir), ("d/e/".to_owned(), Kind::Dir)]);
    let answers = plain.delete(vec![(Key::new("d/e/"), None), (Key::new("d/"), None)]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(list(&plain, ListRequest::all()).await.unwrap(), []);
}

#[tokio::test]
async fn links_work_without_credentials() {
    let Some(service) = service() else { return };
    let (store, _, name) = service.bucket(&[]).await;
    put(&store, "a b+c/é", b"linked").await;
    let admin = store.admin().unwrap();
    let link = admin.link(&Key::new("a b+c/é"), Duration::from_secs(60)).await.unwrap();
    assert!(link.starts_with(&format!("{}/{name}/a%20b%2Bc/%C3%A9?X-Amz-", service.options["endpoint"])), "{link}");
    let address = link.strip_prefix("http://").unwrap();
    let (host, path) = address.split_once('/').unwrap();
    let mut socket = tokio::net::TcpStream::connect(host).await.unwrap();
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let request = format!("GET /{path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("linked"), "{answer}");
    let error = admin.link(&Key::new("k"), Duration::from_secs(8 * 86400)).await.unwrap_err();
    assert_eq!(error.to_string(), "k: link: a link of S3 lasts 7 days at most: use --expire 7d or less");
    let error = admin.about().await.unwrap_err();
    assert_eq!(error.to_string(), "about: S3 has no quota to report: add sizes up with `haul size`");
}

#[tokio::test]
async fn wrong_credentials_are_named() {
    let Some(service) = service() else { return };
    let (_, _, name) = service.bucket(&[]).await;
    let (store, _) = service.open(&name, &[("secret_access_key", "wrong")]);
    let error = list(&store, ListRequest::all()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
    assert!(!error.to_string().contains("wrong"));
    let (nobody, _) = service.open(&name, &[("endpoint", "http://127.0.0.1:1")]);
    let error = nobody.stat(&Key::new("")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, haul_core::error::Retry::Backoff));
    let message = "stat: nothing listens at 127.0.0.1:1: check the endpoint's host and port with haul config";
    assert_eq!(error.to_string(), message);
}

#[tokio::test]
async fn thousands_of_keys_are_listed_and_deleted_in_few_requests() {
    let Some(service) = service() else { return };
    let (store, meters, _) = service.bucket(&[]).await;
    let count = 5000_u64;
    let names: Vec<Key> = (0..count).map(|i| Key::new(format!("k{i:05}"))).collect();
    futures::stream::iter(&names)
        .for_each_concurrent(16, |name| async { drop(put(&store, name.as_bytes(), b"1").await) })
        .await;
    let listed = list(&store, ListRequest::all()).await.unwrap();
    assert!(listed.iter().map(|e| &e.key).eq(&names));
    // MinIO says of a full last page that there is more.
    let lists = meters.requests()["ListObjectsV2"];
    assert!((0..2).contains(&(lists - count.div_ceil(1000))), "{lists} requests");
    let answers = store.delete(names.iter().map(|k| (k.clone(), None)).collect()).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(meters.requests()["DeleteObjects"], count.div_ceil(1000));
    assert_eq!(list(&store, ListRequest::all()).await.unwrap(), []);
}
