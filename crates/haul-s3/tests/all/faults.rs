//! The S3 store against a server that says what each test tells it to.

use base64::{Engine as _, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use futures::StreamExt;
use haul_core::{Algo, Entry, Error, ErrorKind, Key, Listed, error::Retry, hash};
use haul_mem::MemStore;
use haul_s3::S3;
use haul_store::{
    Body, CopyBatch, CopyHow, CopyItem, LateFacts, ListRequest, Meters, Net, OpenRequest, Part, Payload, Store,
    WriteSpec,
    layers::{LayerSettings, stack},
};
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

/// Answers the requests in turn, each on a connection of its own; then refuses. Keeps the requests' heads.
struct Script {
    endpoint: String,
    heads: Arc<Mutex<Vec<String>>>,
}

/// `None` never answers.
async fn script(answers: Vec<Option<String>>) -> Script {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let heads = Arc::new(Mutex::new(Vec::new()));
    let kept = heads.clone();
    tokio::spawn(async move {
        let mut silent = Vec::new();
        for answer in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut data = Vec::new();
            let mut buffer = vec![0; 1 << 16];
            let head = loop {
                let n = socket.read(&mut buffer).await.unwrap();
                data.extend_from_slice(&buffer[..n]);
                if let Some(end) = data.windows(4).position(|w| w == b"\r\n\r\n") {
                    break end + 4;
                }
            };
            let text = String::from_utf8_lossy(&data[..head]).to_lowercase();
            let length = text.lines().find_map(|l| l.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
            while data.len() < head + length {
                match socket.read(&mut buffer).await {
                    Ok(n) if n > 0 => data.extend_from_slice(&buffer[..n]),
                    // The client may hang up.
                    _ => break,
                }
            }
            kept.lock().unwrap().push(text);
            match answer {
                Some(answer) => socket.write_all(answer.as_bytes()).await.unwrap(),
                None => silent.push(socket),
            }
        }
        std::future::pending::<()>().await;
    });
    Script { endpoint, heads }
}

fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> Option<String> {
    let headers: String = headers.iter().map(|(k, v)| format!("{k}: {v}\r\n")).collect();
    let length = body.len();
    Some(format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n{headers}\r\n{body}"))
}

fn fault(status: &str, code: &str) -> Option<String> {
    answer(status, &[], &format!("<Error><Code>{code}</Code><Message>said</Message></Error>"))
}

fn open(script: &Script, more: &[(&str, &str)]) -> (S3, Arc<Meters>) {
    open_at(script, "b", more)
}

fn open_at(script: &Script, path: &str, more: &[(&str, &str)]) -> (S3, Arc<Meters>) {
    open_with(script, path, more, Net::default())
}

/// One that waits a moment for an answer: for servers that give none.
fn impatient(script: &Script) -> S3 {
    open_with(script, "b", &[], Net { idle_timeout: Duration::from_millis(300), ..Net::default() }).0
}

fn open_with(script: &Script, path: &str, more: &[(&str, &str)], net: Net) -> (S3, Arc<Meters>) {
    let mut options: std::collections::BTreeMap<String, String> = [
        ("endpoint", script.endpoint.as_str()),
        ("access_key_id", "a"),
        ("secret_access_key", "s"),
        ("provider", "Minio"),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into();
    options.extend(more.iter().map(|(k, v)| (k.to_string(), v.to_string())));
    let meters = Arc::new(Meters::default());
    let request = OpenRequest {
        remote: "r".into(),
        path: path.into(),
        options,
        net,
        meters: meters.clone(),
        ..OpenRequest::default()
    };
    (S3::open(request).unwrap(), meters)
}

async fn put(store: &S3, spec: WriteSpec, data: &'static [u8]) -> haul_core::Result<haul_store::StoredFacts> {
    let upload = store.write(&Key::new("k"), spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(data))).await?;
    upload.publish(vec![part], LateFacts::default()).await.map_err(|u| u.error)
}

fn known(size: u64) -> WriteSpec {
    WriteSpec { size: Some(size), ..WriteSpec::default() }
}

#[tokio::test]
async fn silence_ends_in_a_timeout() {
    let script = script(vec![None]).await;
    let store = impatient(&script);
    let error = store.stat(&Key::new("k")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Timeout, Retry::Backoff));
    assert_eq!(error.to_string(), "k: stat: no answer within 300ms");
}

#[tokio::test]
async fn a_cut_body_is_an_error_not_an_end() {
    let cut = "HTTP/1.1 200 OK\r\nconnection: close\r\netag: e\r\ncontent-length: 10\r\n\r\nabc".to_owned();
    let hang = "HTTP/1.1 200 OK\r\netag: e\r\ncontent-length: 10\r\n\r\nabc".to_owned();
    for (answer, hangs) in [(cut, false), (hang, true)] {
        let script = script(vec![Some(answer)]).await;
        // The head of the answer must come in this time.
        let net = Net { idle_timeout: Duration::from_secs(2), ..Net::default() };
        let store = if hangs { open_with(&script, "b", &[], net).0 } else { open(&script, &[]).0 };
        let Body::Stream(mut body) = store.read(&Key::new("k"), None, None).await.unwrap().body else { panic!() };
        assert_eq!(&body.next().await.unwrap().unwrap()[..], b"abc");
        let error = body.next().await.unwrap().unwrap_err();
        assert_eq!((error.retry(), error.key()), (Retry::Backoff, Some(&Key::new("k"))), "{error}");
        assert!(body.next().await.is_none());
    }
}

#[tokio::test]
async fn slow_down_is_counted_and_says_when() {
    let script =
        script(vec![answer("503 Slow", &[("retry-after", "3")], "<Error><Code>SlowDown</Code></Error>")]).await;
    let (store, meters) = open(&script, &[]);
    let error = put(&store, known(1), b"1").await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Busy, Retry::After(Duration::from_secs(3))));
    assert_eq!((meters.throttles(), meters.requests()["PutObject"]), (1, 1));
}

#[tokio::test]
async fn the_right_region_is_learnt_once() {
    let wrong = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region></Error>";
    let script = script(vec![answer("400 Bad", &[], wrong), page(&["a"], None), page(&["a"], None)]).await;
    let (store, _) = open(&script, &[]);
    assert_eq!(steps(&store).await, ["a", "end"]);
    assert_eq!(steps(&store).await, ["a", "end"]);
    let heads = script.heads.lock().unwrap();
    let regions: Vec<bool> = heads.iter().map(|h| h.contains("/eu-west-9/s3/aws4_request")).collect();
    assert_eq!(regions, [false, true, true]);
}

#[tokio::test]
async fn the_right_region_is_learnt_where_an_answer_has_no_body() {
    let wrong = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region></Error>";
    let found = || answer("200 OK", &[("etag", "\"e\"")], "");
    let question = || vec![answer("400 Bad", &[], ""), answer("400 Bad", &[], wrong), found()];
    let requests = |script: &Script| {
        let heads = script.heads.lock().unwrap();
        let line = |h: &String| (h.split(' ').next().unwrap().to_owned(), h.contains("/eu-west-9/s3/aws4_request"));
        heads.iter().map(line).collect::<Vec<_>>()
    };
    let learnt = [("head", false), ("get", false), ("head", true)].map(|(m, right)| (m.to_owned(), right));
    let script = self::script(question()).await;
    let (store, _) = open(&script, &[]);
    store.stat(&Key::new("k")).await.unwrap();
    assert_eq!(requests(&script), learnt);

    let script = self::script(question()).await;
    let (store, _) = open(&script, &[]);
    let Ok(link) = store.admin().unwrap().link(&Key::new("k"), Duration::from_secs(60)).await else { panic!() };
    assert_eq!(requests(&script), learnt);
    assert!(link.contains("%2Feu-west-9%2Fs3%2Faws4_request"), "{link}");

    // AWS names it in a header.
    let moved = answer("301 Moved", &[("x-amz-bucket-region", "eu-west-9")], "");
    let script = self::script(vec![moved, found()]).await;
    let (store, _) = open(&script, &[]);
    store.stat(&Key::new("k")).await.unwrap();
    assert_eq!(requests(&script), [("head".to_owned(), false), ("head".to_owned(), true)]);
}

#[tokio::test]
async fn wrong_keys_are_named_where_the_region_is_wrong_too() {
    let wrong = "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-9</Region></Error>";
    let no = || answer("403 Forbidden", &[], "");
    let answers = vec![no(), answer("400 Bad", &[], wrong), no(), fault("403 Forbidden", "SignatureDoesNotMatch")];
    let script = script(answers).await;
    let (store, _) = open(&script, &[]);
    let error = store.stat(&Key::new("k")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated, "{error}");
}

#[tokio::test]
async fn a_link_to_nothing_is_refused() {
    let script = script(vec![answer("404 Not Found", &[], "")]).await;
    let (store, _) = open(&script, &[]);
    let error = store.admin().unwrap().link(&Key::new("k"), Duration::from_secs(60)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_refusal_without_a_body_is_looked_into_once() {
    let no = || answer("403 Forbidden", &[], "");
    let script = script(vec![no(), fault("403 Forbidden", "AccessDenied"), no(), no()]).await;
    let (store, _) = open(&script, &[]);
    for _ in 0..3 {
        let error = store.stat(&Key::new("k")).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::Denied, "k: stat: the server answered 403"));
    }
    assert_eq!(script.heads.lock().unwrap().len(), 4);
    let script = self::script(vec![no(), fault("403 Forbidden", "InvalidAccessKeyId")]).await;
    let (store, _) = open(&script, &[]);
    assert_eq!(store.stat(&Key::new("k")).await.unwrap_err().kind(), ErrorKind::Unauthenticated);
}

/// A server that restarts is waited for; a host that never answered isn't.
#[tokio::test]
async fn what_has_answered_once_keeps_its_patience() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let script = Script { endpoint, heads: Arc::default() };
    let serve = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        let _ = socket.read(&mut vec![0; 1 << 16]).await.unwrap();
        socket.write_all(answer("404 Not Found", &[], "").unwrap().as_bytes()).await.unwrap();
    });
    let (store, _) = open(&script, &[]);
    assert_eq!(store.stat(&Key::new("k")).await.unwrap_err().kind(), ErrorKind::NotFound);
    serve.await.unwrap();
    let error = store.stat(&Key::new("k")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Io, Retry::Backoff), "{error}");
    let (stranger, _) = open(&script, &[]);
    let error = stranger.stat(&Key::new("k")).await.unwrap_err();
    assert_eq!((error.kind(), error.retry()), (ErrorKind::Unreachable, Retry::Backoff), "{error}");
}

#[tokio::test]
async fn what_the_server_stored_must_be_what_was_sent() {
    let crc = [("etag", "e"), ("x-amz-checksum-crc64nvme", "AAAAAAAAAAA=")];
    for headers in [&[("etag", "\"00000000000000000000000000000000\"")][..], &crc] {
        let script = script(vec![answer("200 OK", headers, "")]).await;
        let (store, _) = open(&script, &[]);
        let hashes = hash::hash_bytes(&[Algo::Md5], b"1");
        let error = put(&store, WriteSpec { hashes, ..known(1) }, b"1").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[tokio::test]
async fn uploads_carry_a_checksum_outside_the_signature() {
    let receipt = [("etag", "e"), ("x-amz-checksum-crc64nvme", "rosUhgp5mIg=")];
    let script = script(vec![answer("200 OK", &receipt, "")]).await;
    let (store, _) = open(&script, &[]);
    put(&store, known(9), b"123456789").await.unwrap();
    let heads = script.heads.lock().unwrap();
    assert!(heads[0].contains("x-amz-checksum-crc64nvme: rosuhgp5mig="), "{}", heads[0]);
    assert!(heads[0].contains("x-amz-content-sha256: unsigned-payload"), "{}", heads[0]);
}

/// What stands in for a store: a page where one logs in, a proxy that means well.
const PAGE: &str = "<html><body>Log in</body></html>";

#[tokio::test]
async fn a_write_without_a_receipt_is_not_done() {
    for provider in ["Minio", "AWS", "Other"] {
        let page = answer("200 OK", &[("content-type", "text/html")], PAGE);
        let script = script(vec![page]).await;
        let (store, _) = open(&script, &[("provider", provider), ("force_path_style", "true")]);
        let error = put(&store, known(1), b"1").await.unwrap_err().to_string();
        let why = "k: write: the server gave no receipt (an ETag) for what was sent: is the endpoint an S3 server?";
        assert_eq!(error, why, "{provider}");
    }
}

#[tokio::test]
async fn a_crc_that_no_answer_confirms_proves_nothing() {
    let taken = answer("200 OK", &[("etag", "\"an-etag\"")], "");
    let head = |crc: &str| {
        Some(format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\netag: \"an-etag\"\r\n{crc}\r\n"))
    };
    for (crc, result) in [
        ("x-amz-checksum-crc64nvme: rosUhgp5mIg=\r\n", Ok(())),
        ("", Err("k: write: the server does not confirm the checksum of what was sent: set provider = Other")),
        (
            "x-amz-checksum-crc64nvme: AAAAAAAAAAA=\r\n",
            Err("k: write: the server stored something else than the 9 bytes sent: its crc64nvme differs"),
        ),
    ] {
        let script = script(vec![taken.clone(), head(crc)]).await;
        let (store, _) = open(&script, &[]);
        let put = put(&store, known(9), b"123456789").await.map(drop).map_err(|e| e.to_string());
        assert_eq!(put, result.map_err(str::to_owned), "{crc}");
    }
}

#[tokio::test]
async fn an_etag_that_is_the_md5_confirms_what_a_server_without_crcs_holds() {
    let md5 = hash::hash_bytes(&[Algo::Md5], b"1").hex(Algo::Md5).unwrap();
    let script = script(vec![answer("200 OK", &[("etag", &md5)], "")]).await;
    let (store, meters) = open(&script, &[]);
    put(&store, known(1), b"1").await.unwrap();
    assert_eq!(meters.requests().len(), 1);
    let script = self::script(vec![answer("200 OK", &[("etag", "00000000000000000000000000000000")], "")]).await;
    let error = put(&open(&script, &[]).0, known(1), b"1").await.unwrap_err();
    let why = "the server stored something else than the 1 bytes sent: its md5 differs";
    assert_eq!((error.kind(), error.message()), (ErrorKind::Corrupt, why));
}

#[tokio::test]
async fn a_web_page_is_no_answer() {
    let page = || answer("200 OK", &[("content-type", "text/html")], PAGE);
    let script = script(vec![page(), page(), page(), page(), page(), page()]).await;
    let (store, _) = open(&script, &[]);
    let key = Key::new("k");
    let not_s3 = "the answer is not one of S3: is the endpoint an S3 server?";
    assert_eq!(store.delete(vec![(key.clone(), None)]).await.remove(0).unwrap_err().message(), not_s3);
    let many = store.delete(vec![(key.clone(), None), (Key::new("l"), None)]).await;
    assert!(many.iter().all(|one| one.as_ref().is_err_and(|e| e.message() == "the server's answer can't be read")));
    let no_version = "the answer names no version (an ETag): is the endpoint an S3 server?";
    assert_eq!(store.read(&key, None, None).await.map(drop).unwrap_err().message(), no_version);
    assert_eq!(steps(&store).await, ["lost from : the listing can't be read"]);
    assert_eq!(store.make_dir(&Key::new(""), &WriteSpec::default()).await.unwrap_err().message(), not_s3);
    let copy = copy_one(&store).await.unwrap_err();
    assert_eq!(copy.message(), "the server's answer is cut, or is not one of S3");
}

/// A page of something else than S3 proves nothing to be missing, so nothing to be deleted.
#[tokio::test]
async fn a_page_that_was_not_found_is_no_answer() {
    let page = || answer("404 Not Found", &[("content-type", "text/html")], PAGE);
    let script =
        script(vec![page(), page(), page(), fault("404 Not Found", "NoSuchKey"), answer("404 Not Found", &[], "")])
            .await;
    let (store, _) = open(&script, &[]);
    let key = Key::new("k");
    let why = "the server answered 404, but not as S3 does: is the endpoint an S3 server?";
    assert_eq!(store.delete(vec![(key.clone(), None)]).await.remove(0).unwrap_err().message(), why);
    assert_eq!(store.read(&key, None, None).await.map(drop).unwrap_err().message(), why);
    assert_eq!(steps(&store).await, [format!("lost from : {why}")]);
    for told in ["NoSuchKey", "an empty body"] {
        assert!(store.delete(vec![(key.clone(), None)]).await.remove(0).is_ok(), "{told}");
    }
}

/// Nothing may be the answer to another question.
#[tokio::test]
async fn an_empty_listing_is_of_the_folder_that_was_asked_for() {
    let page = |of: &str| {
        let text =
            format!("<ListBucketResult><Prefix>{of}</Prefix><IsTruncated>false</IsTruncated></ListBucketResult>");
        answer("200 OK", &[], &text)
    };
    let script = script(vec![page("other/"), page(""), page("")]).await;
    let (store, _) = open(&script, &[]);
    assert_eq!(steps(&store).await, ["lost from : the listing is of another directory than was asked for"]);
    assert_eq!(steps(&store).await, ["end"]);
}

async fn copy_one(store: &S3) -> haul_core::Result<haul_store::StoredFacts> {
    let from = store.caps().domain.as_ref().unwrap().place.clone();
    let (from_key, to) = (Key::new("a"), Key::new("b"));
    let item = CopyItem { from: from_key, to, size: 1, want: None, spec: WriteSpec::default(), how: CopyHow::Copy };
    store.copy(CopyBatch { from, items: vec![item], links: Default::default() }, Default::default()).await.remove(0)
}

#[tokio::test]
async fn a_copy_whose_answer_names_no_version_is_done_and_its_version_asked_for() {
    let head = Some("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\netag: \"e\"\r\n\r\n".to_owned());
    let done = "<CopyObjectResult><LastModified>2026-01-01T00:00:00Z</LastModified></CopyObjectResult>";
    let script = script(vec![answer("200 OK", &[], done), head]).await;
    let (store, meters) = open(&script, &[]);
    assert_eq!(copy_one(&store).await.unwrap().version.unwrap().0[..], *b"e");
    assert_eq!((meters.requests()["CopyObject"], meters.requests()["HeadObject"]), (1, 1));
}

#[tokio::test]
async fn a_server_that_does_not_know_the_question_for_checksums_is_asked_once() {
    let head = |status: &str| {
        Some(format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: 1\r\netag: \"e\"\r\n\r\n"))
    };
    let read = answer("200 OK", &[("etag", "\"e\"")], "x");
    let script = script(vec![head("501 Not Implemented"), head("200 OK"), head("200 OK"), read]).await;
    let (store, _) = open(&script, &[]);
    let key = Key::new("k");
    store.stat(&key).await.unwrap();
    store.stat(&key).await.unwrap();
    store.read(&key, None, None).await.unwrap();
    let checksum_modes: Vec<bool> =
        script.heads.lock().unwrap().iter().map(|h| h.contains("x-amz-checksum-mode")).collect();
    assert_eq!(checksum_modes, [true, false, false, false]);
}

#[tokio::test]
async fn a_range_counts_by_what_the_answer_says_it_is() {
    let part = |status: &str, range: &str| answer(status, &[("etag", "e"), ("content-range", range)], "xyz");
    let ignored = answer("200 OK", &[("etag", "e")], "xyz");
    let another = "the server sent another range than we asked for";
    for (answer, result) in [
        (part("206 Partial", "bytes 5-7/10"), Ok(10)),
        (part("200 OK", "bytes 5-7/10"), Ok(10)),
        (part("200 OK", "bytes 0-2/10"), Err(another)),
        (part("206 Partial", "bytes 0-2/10"), Err(another)),
        (ignored.clone(), Err("the server ignored the range")),
    ] {
        let script = script(vec![answer]).await;
        let read = open(&script, &[]).0.read(&Key::new("k"), None, Some(5..8)).await;
        assert_eq!(read.map(|read| read.entry.size).map_err(|e| e.message().to_owned()), result.map_err(str::to_owned));
    }
    let script = script(vec![part("206 Partial", "bytes 0-2/3"), ignored]).await;
    let (store, _) = open(&script, &[]);
    let error = store.read(&Key::new("k"), None, None).await.map(drop).unwrap_err();
    assert_eq!(error.message(), "the server answered 206 to a read");
    assert_eq!(store.read(&Key::new("k"), None, Some(0..3)).await.unwrap().entry.size, 3);
}

/// What is known of parts beyond what the provider takes stays here: an upload that announced no checksum is completed without.
#[tokio::test]
async fn only_announced_checksums_are_sent() {
    for (provider, sends) in [("Other", false), ("Minio", true)] {
        let hashes = hash::hash_bytes(&[Algo::Crc64Nvme, Algo::Md5], b"x");
        let etag = hashes.hex(Algo::Md5).unwrap();
        let begun = answer("200 OK", &[], "<R><UploadId>u</UploadId></R>");
        let part = answer("200 OK", &[("etag", &etag)], "");
        let whole =
            format!("<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>", whole_etag());
        let script = script(vec![begun, part.clone(), part, answer("200 OK", &[], &whole)]).await;
        let (store, _) = open(&script, &[("upload_cutoff", "0"), ("provider", provider)]);
        let upload = store.write(&Key::new("k"), known(2)).await.unwrap();
        let mut parts = Vec::new();
        for index in 0..2 {
            let payload = Payload::from(Bytes::from_static(b"x")).with_hashes(hashes.clone());
            parts.push(upload.part(index, index, payload).await.unwrap());
        }
        let stored = upload.publish(parts, LateFacts::default()).await.map_err(|u| u.error).unwrap();
        assert!(stored.hashes.get(Algo::Crc64Nvme).is_some(), "{provider}: the ETag proves all parts");
        let heads = script.heads.lock().unwrap();
        for head in heads.iter() {
            let crc = head.contains("x-amz-checksum-crc64nvme:") || head.contains("x-amz-checksum-algorithm:");
            assert_eq!(crc, sends, "{provider}: {head}");
        }
    }
}

const CONTENT: &[u8] = b"passes through";

/// Another store, which has them.
async fn kept() -> (Arc<dyn Store>, Entry) {
    let from: Arc<dyn Store> = Arc::new(MemStore::new());
    let upload = from.write(&Key::new("f"), WriteSpec::default()).await.unwrap();
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(CONTENT))).await.unwrap();
    upload.publish(vec![part], LateFacts::default()).await.map_err(|u| u.error).unwrap();
    let entry = from.stat(&Key::new("f")).await.unwrap();
    (from, entry)
}

/// A part whose bytes are another store's, sent with the answers of `script`: what it came to, and how often what was sent how.
async fn pass_on(
    provider: &str,
    answers: Vec<Option<String>>,
    range: std::ops::Range<u64>,
) -> (Result<Part, Error>, Script) {
    let script = script(answers).await;
    let (store, meters) = open(&script, &[("upload_cutoff", "0"), ("provider", provider)]);
    let store = stack(Arc::new(store), &LayerSettings { tries: 2, ..LayerSettings::default() }, &meters);
    let (from, entry) = kept().await;
    let upload = store.write(&Key::new("k"), known(100)).await.unwrap();
    let payload = Payload::of_store(from, entry, range, vec![Algo::Crc64Nvme]);
    let sent = upload.part(0, 0, payload.clone()).await;
    if sent.is_ok() {
        let passed = payload.relay().unwrap().hashes().unwrap();
        assert!(passed.agree(&hash::hash_bytes(&[Algo::Crc64Nvme], CONTENT)) == Some((Algo::Crc64Nvme, true)));
    }
    (sent, script)
}

/// What is hashed only as it passes is proved by what the answer says of it; where that is nothing, or the server doesn't take it
/// so, it is sent from memory, and so are all parts after it.
#[tokio::test]
async fn a_part_that_passes_through_is_proved_by_the_answer() {
    let hashes = hash::hash_bytes(&[Algo::Crc64Nvme, Algo::Md5], CONTENT);
    let md5 = hashes.hex(Algo::Md5).unwrap();
    let crc = B64.encode(hashes.get(Algo::Crc64Nvme).unwrap());
    let begun = answer("200 OK", &[], "<R><UploadId>u</UploadId></R>");
    let kms = ("x-amz-server-side-encryption", "aws:kms");
    let by_crc = answer("200 OK", &[("etag", "e"), kms, ("x-amz-checksum-crc64nvme", &crc)], "");
    let by_md5 = answer("200 OK", &[("etag", &md5)], "");
    let nothing = answer("200 OK", &[("etag", &md5), kms], "");
    let other = answer("200 OK", &[("etag", &"0".repeat(32))], "");
    let late = fault("503 Busy", "SlowDown");
    let unknown = fault("501 No", "NotImplemented");
    for (provider, answers, trailers) in [
        ("Minio", vec![by_crc.clone()], vec![true]),
        ("Minio", vec![late, by_crc.clone()], vec![true, true]),
        ("Minio", vec![unknown, by_crc.clone()], vec![true, false]),
        ("Minio", vec![nothing.clone(), by_crc], vec![true, false]),
        ("Other", vec![by_md5.clone()], vec![false]),
        ("Other", vec![other, by_md5.clone()], vec![false, false]),
        ("Other", vec![nothing, by_md5], vec![false, false]),
    ] {
        let (sent, script) = pass_on(provider, [vec![begun.clone()], answers].concat(), 0..CONTENT.len() as u64).await;
        assert_eq!(sent.expect(provider).size, CONTENT.len() as u64, "{trailers:?}");
        let heads = script.heads.lock().unwrap();
        let parts = &heads[1..];
        let trailer = |head: &String| head.contains("x-amz-trailer: x-amz-checksum-crc64nvme");
        assert_eq!(parts.iter().map(trailer).collect::<Vec<_>>(), trailers, "{provider}");
        for head in parts {
            assert_eq!(trailer(head), head.contains("streaming-unsigned-payload-trailer"), "{head}");
            assert_eq!(trailer(head), head.contains("content-encoding: aws-chunked"), "{head}");
        }
        if trailers.len() > 1 && !trailers[1] {
            let guard = if provider == "Minio" { "x-amz-checksum-crc64nvme: " } else { "content-md5: " };
            assert!(parts[1].contains(guard), "sent from memory it has its checksum: {}", parts[1]);
        }
    }
}

/// A part that a server which takes others so refuses once goes from memory alone; it says nothing of those after it.
#[tokio::test]
async fn one_bad_answer_does_not_bring_all_parts_into_memory() {
    let crc = |bytes| B64.encode(hash::hash_bytes(&[Algo::Crc64Nvme], bytes).get(Algo::Crc64Nvme).unwrap());
    let part = |bytes| answer("200 OK", &[("etag", "e"), ("x-amz-checksum-crc64nvme", &crc(bytes))], "");
    let begun = answer("200 OK", &[], "<R><UploadId>u</UploadId></R>");
    let script = script(vec![begun, part(CONTENT), part(b"other"), part(CONTENT), part(CONTENT)]).await;
    let (store, _) = open(&script, &[("upload_cutoff", "0")]);
    let upload = store.write(&Key::new("k"), known(3 * CONTENT.len() as u64)).await.unwrap();
    let (from, entry) = kept().await;
    for index in 0..3 {
        let payload = Payload::of_store(from.clone(), entry.clone(), 0..entry.size, vec![Algo::Crc64Nvme]);
        upload.part(index, index * entry.size, payload).await.unwrap();
    }
    let heads = script.heads.lock().unwrap();
    let trailers: Vec<bool> = heads[1..].iter().map(|head| head.contains("x-amz-trailer")).collect();
    assert_eq!(trailers, [true, true, false, true]);
}

/// Where the other store can't give the bytes, that is the error, and the one that takes them isn't asked again.
#[tokio::test]
async fn what_the_source_cannot_give_is_its_error() {
    let begun = answer("200 OK", &[], "<R><UploadId>u</UploadId></R>");
    let (sent, script) = pass_on("Other", vec![begun], 0..100).await;
    let error = sent.unwrap_err();
    assert_eq!(error.to_string(), "read: it ended after 14 of 100 bytes");
    assert!(script.heads.lock().unwrap().len() <= 2);
}

/// What a file held when it was read is what its hash says: what it holds by the time it is sent must be that.
#[tokio::test]
async fn a_file_that_changes_before_it_is_sent_is_not_sent_as_something_else() {
    let (mut file, was, is) = (tempfile::tempfile().unwrap(), vec![1; 600_000], vec![2; 600_000]);
    std::io::Write::write_all(&mut file, &was).unwrap();
    let file = Arc::new(file);
    let script = script(vec![fault("400 Bad", "BadDigest")]).await;
    let (store, _) = open(&script, &[]);
    let upload = store.write(&Key::new("k"), known(600_000)).await.unwrap();
    let payload = Payload::of_file(file.clone(), 0..600_000, Default::default());
    let part = upload.part(0, 0, payload).await.unwrap();
    std::os::unix::fs::FileExt::write_all_at(&*file, &is, 0).unwrap();
    let error = upload.publish(vec![part], LateFacts::default()).await.map_err(|u| u.error).unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Changed, "it changed while it was sent"));
    let crc = B64.encode(hash::hash_bytes(&[Algo::Crc64Nvme], &was).get(Algo::Crc64Nvme).unwrap());
    let heads = script.heads.lock().unwrap();
    assert!(heads[0].contains(&format!("x-amz-checksum-crc64nvme: {}", crc.to_lowercase())), "{}", heads[0]);
}

/// Sent again with the hash that it had, it would be refused as often as it is tried.
#[tokio::test]
async fn a_part_of_a_file_that_changed_is_not_sent_again() {
    let (mut file, was, is) = (tempfile::tempfile().unwrap(), vec![1; 600_000], vec![2; 600_000]);
    std::io::Write::write_all(&mut file, &is).unwrap();
    let begun = answer("200 OK", &[], "<R><UploadId>u</UploadId></R>");
    let script = script(vec![begun, fault("400 Bad", "BadDigest")]).await;
    let (store, meters) = open(&script, &[("upload_cutoff", "0")]);
    let store = stack(Arc::new(store), &LayerSettings::default(), &meters);
    let upload = store.write(&Key::new("k"), known(1_200_000)).await.unwrap();
    let payload = Payload::of_file(Arc::new(file), 0..600_000, Default::default());
    let payload = payload.with_hashes(hash::hash_bytes(&[Algo::Crc64Nvme], &was));
    let error = upload.part(0, 0, payload).await.unwrap_err();
    assert_eq!((error.kind(), error.message()), (ErrorKind::Changed, "it changed while it was sent"));
    assert_eq!(script.heads.lock().unwrap().len(), 2);
}

/// The parts are what they are: what refuses their checksum will do so again.
#[tokio::test]
async fn a_completion_whose_checksum_is_refused_is_not_sent_again() {
    let (result, script) = two_parts(fault("400 Bad", "XAmzContentChecksumMismatch"), vec![]).await;
    assert_eq!(result, Err("k: write: said (XAmzContentChecksumMismatch)".to_owned()));
    assert_eq!(script.heads.lock().unwrap().len(), 4);
}

#[tokio::test]
async fn a_page_that_holds_everything_may_be_in_any_order() {
    let bad = script(vec![page(&["b", "a"], Some("t"))]).await;
    let (store, _) = open(&bad, &[]);
    let lost = "lost from : the server's listing goes backwards: it can't be trusted to be whole";
    assert_eq!(steps(&store).await, [lost]);
    let good = script(vec![page(&["b", "a"], None), page(&["a", "a"], None)]).await;
    let (store, _) = open(&good, &[]);
    assert_eq!(steps(&store).await, ["a b", "end"]);
    assert_eq!(steps(&store).await, [lost]);
}

#[tokio::test]
async fn a_directory_bucket_lists_in_no_order() {
    let script = script(vec![page(&["c", "a"], Some("t")), page(&["b"], None)]).await;
    let (store, _) = open_at(&script, "b--use1-az4--x-s3", &[]);
    assert_eq!(steps(&store).await, ["a b c", "end"]);
}

#[tokio::test]
async fn a_prefix_with_nothing_below_it_is_not_there() {
    let script = script(vec![page(&[], None), page(&[], None)]).await;
    let (store, _) = open_at(&script, "b/d", &[]);
    assert_eq!(steps(&store).await, ["lost from : directory r:b/d not found: no key begins with it"]);
    assert_eq!(
        store.stat(&Key::new("")).await.unwrap_err().message(),
        "directory r:b/d not found: no key begins with it"
    );
}

/// Two parts of the smallest size, by whose MD5 the server's receipts are made.
async fn two_parts(complete: Option<String>, then: Vec<Option<String>>) -> (Result<(), String>, Script) {
    let md5 = hash::hash_bytes(&[Algo::Md5], b"x").hex(Algo::Md5).unwrap();
    let etag = format!("\"{md5}\"");
    let part = answer("200 OK", &[("etag", &etag)], "");
    let begun = answer("200 OK", &[], "<R><UploadId>u</UploadId></R>");
    let script = script([vec![begun, part.clone(), part, complete], then].concat()).await;
    let (store, _) = open(&script, &[("upload_cutoff", "0"), ("provider", "Minio")]);
    let upload = store.write(&Key::new("k"), known(2)).await.unwrap();
    let mut parts = Vec::new();
    for index in 0..2 {
        parts.push(upload.part(index, index, Payload::from(Bytes::from_static(b"x"))).await.unwrap());
    }
    let result = upload.publish(parts, LateFacts::default()).await.map(drop).map_err(|u| u.error.to_string());
    (result, script)
}

fn whole_etag() -> String {
    let md5 = hash::hash_bytes(&[Algo::Md5], b"x");
    let both = [md5.get(Algo::Md5).unwrap(), md5.get(Algo::Md5).unwrap()].concat();
    format!("\"{}-2\"", hash::hash_bytes(&[Algo::Md5], &both).hex(Algo::Md5).unwrap())
}

#[tokio::test]
async fn a_lost_answer_to_complete_is_looked_up() {
    let etag = whole_etag();
    // A HEAD's answer has no body, but tells its length.
    let there = Some(format!("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\netag: {etag}\r\n\r\n"));
    for lost in [fault("500 Oops", "InternalError"), fault("200 OK", "InternalError"), fault("404 No", "NoSuchUpload")]
    {
        assert_eq!(two_parts(lost.clone(), vec![there.clone()]).await.0, Ok(()));
        let error = two_parts(lost, vec![answer("404 No", &[], "")]).await.0.unwrap_err();
        assert!(error.starts_with("k: write: said"), "{error}");
    }
}

#[tokio::test]
async fn parts_put_together_wrongly_are_found_out() {
    let good = format!("<CompleteMultipartUploadResult><ETag>{}</ETag></CompleteMultipartUploadResult>", whole_etag());
    let bad = good.replace("<ETag>\"", "<ETag>\"0");
    assert_eq!(two_parts(answer("200 OK", &[], &good), vec![]).await.0, Ok(()));
    let error = two_parts(answer("200 OK", &[], &bad), vec![]).await.0.unwrap_err();
    assert!(error.starts_with("k: write: the server put the parts together wrongly: ETag \"0"), "{error}");
}

fn page(keys: &[&str], token: Option<&str>) -> Option<String> {
    let keys: String = keys.iter().map(|k| format!("<Contents><Key>{k}</Key><Size>1</Size></Contents>")).collect();
    let next = token.map_or("<IsTruncated>false</IsTruncated>".to_owned(), |t| {
        format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{t}</NextContinuationToken>")
    });
    answer("200 OK", &[], &format!("<ListBucketResult>{next}{keys}</ListBucketResult>"))
}

async fn steps(store: &S3) -> Vec<String> {
    let show = |step| match step {
        Listed::Batch(entries) => entries.iter().map(|e| e.key.display().into_owned()).collect::<Vec<_>>().join(" "),
        Listed::Failed { lost, error } => format!("lost from {:?}: {}", lost.from, error.message()),
        Listed::Vanished(key) => format!("vanished: {key}"),
        Listed::End => "end".to_owned(),
    };
    store.list(ListRequest::all()).map(show).collect().await
}

#[tokio::test]
async fn a_listing_that_breaks_never_ends() {
    let script = script(vec![page(&["a", "b"], Some("t")), fault("500 Oops", "InternalError")]).await;
    let (store, _) = open(&script, &[]);
    assert_eq!(steps(&store).await, ["a b", "lost from b\\x00: said (InternalError)"]);
}

#[tokio::test]
async fn a_listing_that_loses_its_place_is_found_out() {
    let script = script(vec![page(&["a", "b"], Some("t")), page(&["a", "b"], Some("u"))]).await;
    let (store, _) = open(&script, &[]);
    let lost = "lost from b\\x00: the server's listing goes backwards: it can't be trusted to be whole";
    assert_eq!(steps(&store).await, ["a b", lost]);
}

#[tokio::test]
async fn a_cut_page_is_lost_and_not_short() {
    let script = script(vec![answer("200 OK", &[], "<ListBucketResult><Contents><Key>a</Key></Contents>")]).await;
    let (store, _) = open(&script, &[]);
    assert_eq!(steps(&store).await, ["lost from : the listing can't be read"]);
}
