//! The simulated cloud as a client sees it, byte by byte. That haul's own store gets along with it is the conformance
//! suite's to show (haul-store/tests/all/conformance.rs).

#![allow(clippy::disallowed_methods)] // A test makes the files that clients are to copy.

mod clients;
mod strict;

use base64::{Engine as _, engine::general_purpose::STANDARD as B64};
use haul_core::{Algo, hash::hash_bytes};
use haul_testkit::cloudsim::{Cloudsim, ObjectSpec, pattern};
use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    time::Duration,
};

const MIB: usize = 1 << 20;

/// What came back.
#[derive(Debug)]
struct Answer {
    status: u16,
    headers: BTreeMap<String, String>,
    body: Vec<u8>,
    /// The body ended before its announced length.
    short: bool,
}

impl Answer {
    fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first element of this name.
    fn element(&self, name: &str) -> String {
        self.elements(name).into_iter().next().unwrap_or_default()
    }

    fn elements(&self, name: &str) -> Vec<String> {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let text = self.text();
        let found = text.split(&open).skip(1).filter_map(|rest| rest.split(&close).next());
        found.map(|text| text.replace("&quot;", "\"")).collect()
    }
}

/// One request on a connection of its own; `None` when it was closed without an answer.
fn try_ask(server: &Cloudsim, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Option<Answer> {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n");
    for (name, value) in headers {
        request += &format!("{name}: {value}\r\n");
    }
    request += &format!("content-length: {}\r\n\r\n", body.len());
    // A server that closes at once may do so before all is sent.
    let _ = socket.write_all(&[request.as_bytes(), body].concat());
    let mut all = Vec::new();
    match socket.read_to_end(&mut all) {
        Err(e) if e.kind() != ErrorKind::ConnectionReset => panic!("{e}"),
        _ => {}
    }
    let end = all.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = String::from_utf8(all[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().unwrap();
    let headers: BTreeMap<_, _> =
        lines.filter_map(|l| l.split_once(": ")).map(|(k, v)| (k.to_ascii_lowercase(), v.to_owned())).collect();
    let body = all[end + 4..].to_vec();
    let length = headers.get("content-length").and_then(|l| l.parse().ok()).unwrap_or(0);
    let short = method != "HEAD" && body.len() < length;
    Some(Answer { status, headers, body, short })
}

fn ask(server: &Cloudsim, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
    try_ask(server, method, path, headers, body).unwrap_or_else(|| panic!("{method} {path}: closed"))
}

/// The status and S3's code of an error.
fn refused(server: &Cloudsim, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> (u16, String) {
    let answer = ask(server, method, path, headers, body);
    (answer.status, answer.element("Code"))
}

fn base64(algo: Algo, bytes: &[u8]) -> String {
    B64.encode(hash_bytes(&[algo], bytes).get(algo).unwrap())
}

fn with_bucket(pairs: &[(&str, &str)]) -> Cloudsim {
    Cloudsim::with(&[&[("bucket", "b")], pairs].concat())
}

#[test]
fn buckets_are_made_told_and_deleted() {
    let server = Cloudsim::with(&[]);
    assert_eq!(refused(&server, "GET", "/b?list-type=2", &[], b""), (404, "NoSuchBucket".into()));
    assert_eq!(ask(&server, "HEAD", "/b", &[], b"").status, 404);
    assert_eq!(ask(&server, "PUT", "/b", &[], b"").status, 200);
    assert_eq!(refused(&server, "PUT", "/b/", &[], b""), (409, "BucketAlreadyOwnedByYou".into()));
    assert_eq!(ask(&server, "HEAD", "/b", &[], b"").header("x-amz-bucket-region"), "us-east-1");
    assert_eq!(ask(&server, "GET", "/", &[], b"").elements("Name"), ["b"]);
    assert!(ask(&server, "GET", "/b?location", &[], b"").text().contains("<LocationConstraint"));
    ask(&server, "PUT", "/b/k", &[], b"x");
    assert_eq!(refused(&server, "DELETE", "/b", &[], b""), (409, "BucketNotEmpty".into()));
    assert_eq!(ask(&server, "DELETE", "/b/k", &[], b"").status, 204);
    assert_eq!(ask(&server, "DELETE", "/b", &[], b"").status, 204);
    assert_eq!(refused(&server, "PUT", "/b/k", &[], b"x"), (404, "NoSuchBucket".into()));
}

#[test]
fn a_key_comes_back_with_its_facts() {
    let server = with_bucket(&[]);
    let (md5, crc) = (base64(Algo::Md5, b"0123456789"), base64(Algo::Crc64Nvme, b"0123456789"));
    let sent = [("content-md5", &md5[..]), ("x-amz-meta-mtime", "1.5"), ("content-type", "text/plain")];
    let path = "/b/d//k%20%C3%BC";
    let put = ask(&server, "PUT", path, &sent, b"0123456789");
    let etag = put.header("etag").to_owned();
    assert_eq!((put.status, &etag[..]), (200, "\"781e5e245d69b566979b86e28d23f2c7\""));
    assert_eq!(put.header("x-amz-checksum-crc64nvme"), crc);
    let checked = [("x-amz-checksum-mode", "ENABLED")];
    let (whole, head) = (ask(&server, "GET", path, &checked, b""), ask(&server, "HEAD", path, &checked, b""));
    assert_eq!((whole.status, &whole.body[..]), (200, &b"0123456789"[..]));
    for (name, value) in [
        ("etag", &etag[..]),
        ("x-amz-meta-mtime", "1.5"),
        ("content-type", "text/plain"),
        ("content-length", "10"),
        ("x-amz-checksum-crc64nvme", &crc),
    ] {
        assert_eq!((whole.header(name), head.header(name)), (value, value), "{name}");
    }
    let part = ask(&server, "GET", path, &[("range", "bytes=2-4"), checked[0]], b"");
    assert_eq!((part.status, &part.body[..], part.header("content-range")), (206, &b"234"[..], "bytes 2-4/10"));
    assert_eq!(part.header("x-amz-checksum-crc64nvme"), "", "a part has no checksum of the whole");
    assert_eq!(refused(&server, "GET", path, &[("range", "bytes=10-")], b""), (416, "InvalidRange".into()));
    assert_eq!(refused(&server, "GET", "/b/d/k", &[], b""), (404, "NoSuchKey".into()));
    assert_eq!(ask(&server, "GET", path, &[("if-none-match", &etag)], b"").status, 304);
    assert_eq!(ask(&server, "GET", path, &[("if-match", "\"other\"")], b"").status, 412);
}

#[test]
fn a_wrong_checksum_is_refused_and_an_etag_without_md5_is_no_md5() {
    let server = with_bucket(&[]);
    let wrong = base64(Algo::Crc64Nvme, b"other");
    let put = refused(&server, "PUT", "/b/k", &[("x-amz-checksum-crc64nvme", &wrong)], b"x");
    assert_eq!(put, (400, "BadDigest".into()));
    assert!(server.keys("b").is_empty());
    let etag = ask(&server, "PUT", "/b/k", &[], b"x").header("etag").to_owned();
    assert!(etag.len() == 36 && etag.ends_with("-1\""), "{etag}");
    let md5 = base64(Algo::Md5, b"other");
    assert_eq!(refused(&server, "PUT", "/b/k", &[("content-md5", &md5)], b"x"), (400, "BadDigest".into()));
    assert_eq!(refused(&server, "PUT", "/b/k", &[("content-md5", "x")], b"x"), (400, "InvalidDigest".into()));
    server.set(None, &[("trusting", "true"), ("etag", "md5")]).unwrap();
    assert_eq!(ask(&server, "PUT", "/b/k", &[("content-md5", &md5)], b"x").status, 200);
    let put = ask(&server, "PUT", "/b/k", &[], b"");
    assert_eq!(put.header("etag"), "\"d41d8cd98f00b204e9800998ecf8427e\"");
    // Other algorithms are checked, kept and told, in place of the default one.
    for algo in [Algo::Crc32, Algo::Crc32c, Algo::Sha1, Algo::Sha256] {
        let (name, sum) = (format!("x-amz-checksum-{}", algo.name()), base64(algo, b"x"));
        assert_eq!(ask(&server, "PUT", "/b/k", &[(&name, &sum)], b"x").header(&name), sum);
        let head = ask(&server, "HEAD", "/b/k", &[("x-amz-checksum-mode", "ENABLED")], b"");
        assert_eq!((head.header(&name), head.header("x-amz-checksum-crc64nvme")), (&sum[..], ""));
        assert_eq!(ask(&server, "HEAD", "/b/k", &[], b"").header(&name), "", "only who asks is told");
        let other = base64(algo, b"other");
        assert_eq!(refused(&server, "PUT", "/b/k", &[(&name, &other)], b"x"), (400, "BadDigest".into()), "{name}");
        assert_eq!(refused(&server, "PUT", "/b/k", &[(&name, "AA==")], b"x"), (400, "InvalidRequest".into()), "{name}");
    }
    let crc = base64(Algo::Crc64Nvme, b"x");
    let two = [("x-amz-checksum-crc32", &base64(Algo::Crc32, b"x")[..]), ("x-amz-checksum-crc64nvme", &crc)];
    assert_eq!(refused(&server, "PUT", "/b/k", &two, b"x"), (400, "InvalidRequest".into()));
    let announced = [("x-amz-sdk-checksum-algorithm", "CRC32")];
    assert_eq!(refused(&server, "PUT", "/b/k", &announced, b"x"), (400, "InvalidRequest".into()));
}

#[test]
fn bodies_in_signed_chunks_are_taken_apart() {
    let server = with_bucket(&[]);
    let crc = base64(Algo::Crc64Nvme, b"hello world");
    let body = format!("6\r\nhello \r\n5;chunk-signature=00\r\nworld\r\n0\r\nx-amz-checksum-crc64nvme:{crc}\r\n\r\n");
    let headers = [
        ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER"),
        ("content-encoding", "aws-chunked"),
        ("x-amz-trailer", "x-amz-checksum-crc64nvme"),
        ("x-amz-decoded-content-length", "11"),
    ];
    assert_eq!(ask(&server, "PUT", "/b/k", &headers, body.as_bytes()).status, 200);
    let held = server.get("b", b"k").unwrap();
    assert_eq!(held.bytes, b"hello world");
    assert!(!held.meta.contains_key("content-encoding"));
    let other = body.replace("world", "w0rld");
    assert_eq!(refused(&server, "PUT", "/b/k", &headers, other.as_bytes()), (400, "BadDigest".into()));
    // What follows the body is what was announced.
    let malformed = (400, "MalformedTrailerError".to_owned());
    let bare = &body[..body.find("x-amz-checksum").unwrap()];
    let two = body.replace("\r\n\r\n", "\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n");
    for wrong in [&format!("{bare}\r\n"), &two] {
        assert_eq!(refused(&server, "PUT", "/b/k", &headers, wrong.as_bytes()), malformed, "{wrong}");
    }
    let unannounced = [headers[0], headers[1], headers[3]];
    assert_eq!(refused(&server, "PUT", "/b/k", &unannounced, body.as_bytes()), malformed);
}

#[test]
fn writes_hold_their_conditions() {
    let server = with_bucket(&[]);
    let absent = [("if-none-match", "*")];
    let etag = ask(&server, "PUT", "/b/k", &absent, b"one").header("etag").to_owned();
    assert_eq!(refused(&server, "PUT", "/b/k", &absent, b"two"), (412, "PreconditionFailed".into()));
    assert_eq!(ask(&server, "PUT", "/b/k", &[("if-match", &etag)], b"two").status, 200);
    assert_eq!(refused(&server, "PUT", "/b/k", &[("if-match", &etag)], b"three"), (412, "PreconditionFailed".into()));
    assert_eq!(refused(&server, "PUT", "/b/x", &[("if-match", &etag)], b"three"), (404, "NoSuchKey".into()));
    assert_eq!(server.get("b", b"k").unwrap().bytes, b"two");
}

#[test]
fn copies_keep_or_replace_metadata() {
    let server = with_bucket(&[]);
    server.put("b", b"from 1", "abc", &[("x-amz-meta-a", "1")]);
    let source = ("x-amz-copy-source", "/b/from%201");
    let copied = ask(&server, "PUT", "/b/kept", &[source], b"");
    assert_eq!((copied.status, copied.element("ETag").len()), (200, 36));
    assert_eq!(server.get("b", b"kept").unwrap().meta["x-amz-meta-a"], "1");
    let replaced = [source, ("x-amz-metadata-directive", "REPLACE"), ("x-amz-meta-b", "2")];
    ask(&server, "PUT", "/b/new", &replaced, b"");
    let new = server.get("b", b"new").unwrap();
    assert_eq!((&new.bytes[..], new.meta.contains_key("x-amz-meta-a")), (&b"abc"[..], false));
    let stale = [source, ("x-amz-copy-source-if-match", "\"other\"")];
    assert_eq!(refused(&server, "PUT", "/b/x", &stale, b""), (412, "PreconditionFailed".into()));
    let missing = [("x-amz-copy-source", "b/nothing")];
    assert_eq!(refused(&server, "PUT", "/b/x", &missing, b""), (404, "NoSuchKey".into()));
}

#[test]
fn many_keys_are_deleted_at_once() {
    let server = with_bucket(&[]);
    for key in ["a", "b&c", "d"] {
        server.put("b", key.as_bytes(), "x", &[]);
    }
    let document = |keys: &[&str], quiet: bool| {
        let keys: String = keys.iter().map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
        format!("<Delete>{keys}<Quiet>{quiet}</Quiet></Delete>")
    };
    let delete = |body: String| {
        let md5 = base64(Algo::Md5, body.as_bytes());
        ask(&server, "POST", "/b?delete", &[("content-md5", &md5)], body.as_bytes())
    };
    let unchecked = document(&["a"], true);
    assert_eq!(refused(&server, "POST", "/b?delete", &[], unchecked.as_bytes()), (400, "InvalidRequest".into()));
    assert_eq!(delete(document(&["a", "b&amp;c", "zz"], false)).elements("Key"), ["a", "b&amp;c", "zz"]);
    assert_eq!(server.keys("b"), [b"d"]);
    assert!(delete(document(&["d"], true)).elements("Key").is_empty());
    assert!(server.keys("b").is_empty());
    assert_eq!(delete(document(&["x"; 1001], true)).element("Code"), "MalformedXML");
    for wrong in ["<a></b>", "<Delete></Delete>", "<Remove><Object><Key>d</Key></Object></Remove>"] {
        assert_eq!(delete(wrong.into()).element("Code"), "MalformedXML", "{wrong}");
    }
}

/// Begins an upload and sends parts; gives its path with the id, and the document that completes it.
fn upload(server: &Cloudsim, path: &str, parts: &[&[u8]], md5: bool) -> (String, String) {
    let began = ask(server, "POST", &format!("{path}?uploads"), &[("x-amz-meta-a", "1")], b"");
    let path = format!("{path}?uploadId={}", began.element("UploadId"));
    let mut document = String::from("<CompleteMultipartUpload>");
    for (at, part) in parts.iter().enumerate() {
        let sum = base64(Algo::Md5, part);
        let headers = if md5 { vec![("content-md5", &sum[..])] } else { Vec::new() };
        let sent = ask(server, "PUT", &format!("{path}&partNumber={}", at + 1), &headers, part);
        let etag = sent.header("etag").replace('"', "&quot;");
        document += &format!("<Part><PartNumber>{}</PartNumber><ETag>{etag}</ETag></Part>", at + 1);
    }
    (path, document + "</CompleteMultipartUpload>")
}

#[test]
fn uploads_in_parts_are_put_together() {
    let server = with_bucket(&[]);
    let (first, last) = (pattern::bytes(1, 0, 5 << 20), pattern::bytes(2, 0, 1000));
    let (path, document) = upload(&server, "/b/k", &[&first, &last], true);
    let listed = ask(&server, "GET", &path, &[], b"");
    assert_eq!(listed.elements("PartNumber"), ["1", "2"]);
    assert_eq!(listed.elements("Size"), ["5242880", "1000"]);
    let page = ask(&server, "GET", &format!("{path}&max-parts=1"), &[], b"");
    assert_eq!((&page.element("IsTruncated")[..], &page.element("NextPartNumberMarker")[..]), ("true", "1"));
    assert_eq!(ask(&server, "GET", "/b?uploads", &[], b"").elements("Key"), ["k"]);
    assert_eq!((server.report().unfinished_uploads, server.keys("b").len()), (1, 0));
    let unannounced = [("x-amz-checksum-crc64nvme", "AAAAAAAAAAA="), ("x-amz-checksum-type", "FULL_OBJECT")];
    for headers in [&unannounced[..], &unannounced[..1], &unannounced[1..]] {
        assert_eq!(refused(&server, "POST", &path, headers, document.as_bytes()), (400, "InvalidRequest".into()));
    }
    let done = ask(&server, "POST", &path, &[], document.as_bytes());
    let whole = [&first[..], &last].concat();
    let md5s = [&first[..], &last].map(|part| hash_bytes(&[Algo::Md5], part).get(Algo::Md5).unwrap().to_vec());
    let etag = format!("\"{}-2\"", hash_bytes(&[Algo::Md5], &md5s.concat()).hex(Algo::Md5).unwrap());
    assert_eq!((done.status, done.element("ETag")), (200, etag));
    assert_eq!(done.element("ChecksumCRC64NVME"), base64(Algo::Crc64Nvme, &whole));
    let held = server.get("b", b"k").unwrap();
    assert!(held.bytes == whole && held.meta["x-amz-meta-a"] == "1");
    assert_eq!(refused(&server, "POST", &path, &[], document.as_bytes()), (404, "NoSuchUpload".into()));
    assert_eq!(server.report().unfinished_uploads, 0);
}

#[test]
fn uploads_in_parts_that_make_no_sense_are_refused() {
    let server = with_bucket(&[]);
    let (path, document) = upload(&server, "/b/k", &[b"small", b"last"], false);
    let refuses = |document: &str| refused(&server, "POST", &path, &[], document.as_bytes());
    assert_eq!(refuses(&document), (400, "EntityTooSmall".into()));
    assert_eq!(refuses(&document.replace("ber>1<", "ber>0<")), (400, "InvalidPart".into()));
    for wrong in
        [document.replace("ber>1<", "ber>one<"), document.replace("ETag", "Tag"), document.replace("Complete", "End")]
    {
        assert_eq!(refuses(&wrong), (400, "MalformedXML".into()), "{wrong}");
    }
    assert_eq!(refuses(&document.replace("ber>2<", "ber>1<")), (400, "InvalidPartOrder".into()));
    assert_eq!(refuses("<CompleteMultipartUpload></CompleteMultipartUpload>"), (400, "MalformedXML".into()));
    assert_eq!(refused(&server, "PUT", &format!("{path}&partNumber=0"), &[], b"x"), (400, "InvalidArgument".into()));
    assert_eq!(ask(&server, "DELETE", &path, &[], b"").status, 204);
    assert_eq!(refused(&server, "PUT", &format!("{path}&partNumber=1"), &[], b"x"), (404, "NoSuchUpload".into()));
    assert_eq!(server.report().unfinished_uploads, 0);
}

#[test]
fn sizes_alone_still_prove_content() {
    let server = with_bucket(&[("keep", "sizes")]);
    let (first, last) = (pattern::bytes(1, 0, 6 << 20), pattern::bytes(2, 0, 1000));
    let (path, document) = upload(&server, "/b/k", &[&first, &last], false);
    ask(&server, "POST", &path, &[], document.as_bytes());
    let whole = base64(Algo::Crc64Nvme, &[&first[..], &last].concat());
    let checksum_of = |method: &str, key: &str| {
        let answer = ask(&server, method, key, &[("x-amz-checksum-mode", "ENABLED")], b"");
        (answer.header("content-length").to_owned(), answer.header("x-amz-checksum-crc64nvme").to_owned())
    };
    let size = (first.len() + 1000).to_string();
    assert_eq!(checksum_of("HEAD", "/b/k"), (size.clone(), whole.clone()));
    assert_eq!(checksum_of("GET", "/b/k"), (size.clone(), String::new()), "what is read back is something else");
    // A copy in parts is known to be whole, although no byte of it is.
    let began = ask(&server, "POST", "/b/copy?uploads", &[], b"");
    let path = format!("/b/copy?uploadId={}", began.element("UploadId"));
    let mut document = String::from("<CompleteMultipartUpload>");
    for (number, range) in [(1, "bytes=0-5242879"), (2, "bytes=5242880-6292455")] {
        let headers = [("x-amz-copy-source", "/b/k"), ("x-amz-copy-source-range", range)];
        let part = ask(&server, "PUT", &format!("{path}&partNumber={number}"), &headers, b"");
        document += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>", part.element("ETag"));
    }
    let done = ask(&server, "POST", &path, &[], (document + "</CompleteMultipartUpload>").as_bytes());
    assert_eq!(done.element("ChecksumCRC64NVME"), whole);
    assert_eq!(checksum_of("HEAD", "/b/copy"), (size, whole));
}

#[test]
fn pages_follow_each_other_in_both_versions() {
    let server = Cloudsim::with(&[("bucket", "b:keys=25,shape=flat,size=7"), ("page", "10")]);
    let (mut keys, mut path) = (Vec::new(), "/b?list-type=2&max-keys=1000".to_owned());
    for (count, more) in [("10", "true"), ("10", "true"), ("5", "false")] {
        let page = ask(&server, "GET", &path, &[], b"");
        assert_eq!((&page.element("KeyCount")[..], &page.element("IsTruncated")[..]), (count, more));
        keys.extend(page.elements("Key"));
        path = format!("/b?list-type=2&continuation-token={}", page.element("NextContinuationToken"));
    }
    let expected: Vec<_> = (0..25).map(|i| format!("file-{i:08}.bin")).collect();
    assert_eq!(keys, expected);
    let page = ask(&server, "GET", "/b?marker=file-00000003.bin&max-keys=2", &[], b"");
    assert_eq!(page.elements("Key"), expected[4..6]);
    assert_eq!(page.element("NextMarker"), expected[5]);
    let page = ask(&server, "GET", "/b?list-type=2&start-after=file-00000023.bin&encoding-type=url", &[], b"");
    assert_eq!(page.elements("Key"), expected[24..]);
    assert_eq!(refused(&server, "GET", "/b?list-type=2&continuation-token=x", &[], b"").0, 400);
    for wrong in ["x", "-1", ""] {
        let path = format!("/b?list-type=2&max-keys={wrong}");
        assert_eq!(refused(&server, "GET", &path, &[], b""), (400, "InvalidArgument".into()), "{wrong}");
    }
}

#[test]
fn folders_are_folded_and_odd_names_encoded() {
    let server = with_bucket(&[]);
    for key in ["a b", "d/1", "d/2", "d//x", "e+f", "z\n"] {
        server.put("b", key.as_bytes(), "x", &[]);
    }
    let list = |query: &str| ask(&server, "GET", &format!("/b?list-type=2&delimiter=/{query}"), &[], b"");
    let page = list("&encoding-type=url");
    assert_eq!(page.elements("Key"), ["a+b", "e%2Bf", "z%0A"]);
    assert_eq!(page.elements("Prefix"), ["", "d/"]);
    let page = list("&prefix=d/&fetch-owner=true");
    assert_eq!(page.elements("Key"), ["d/1", "d/2"]);
    assert_eq!(page.elements("Prefix"), ["d/", "d//"]);
    assert!(page.text().contains("<Owner>"));
    let page = list("&start-after=d/");
    assert_eq!((page.elements("Key").len(), page.elements("CommonPrefixes").len()), (2, 0));
}

#[test]
fn deletes_and_writes_in_a_computed_bucket_are_remembered() {
    let server = Cloudsim::with(&[("bucket", "b:keys=1000,shape=tree,size=100"), ("page", "2000")]);
    let keys = || ask(&server, "GET", "/b?list-type=2&max-keys=2000", &[], b"").elements("Key");
    let all = keys();
    assert_eq!(all.len(), 1000);
    let body = ask(&server, "GET", &format!("/b/{}", all[3]), &[], b"").body;
    assert_eq!(body, pattern::bytes(0, 300, 100));
    let deletes: String = all[..200].iter().map(|key| format!("<Object><Key>{key}</Key></Object>")).collect();
    let deletes = format!("<Delete>{deletes}</Delete>");
    let md5 = base64(Algo::Md5, deletes.as_bytes());
    ask(&server, "POST", "/b?delete", &[("content-md5", &md5)], deletes.as_bytes());
    ask(&server, "PUT", &format!("/b/{}", all[500]), &[], b"mine");
    ask(&server, "PUT", "/b/d00000/new", &[], b"new");
    ask(&server, "PUT", &format!("/b/{}", all[0]), &[], b"again");
    let mut expected = [&all[..1], &all[200..], &["d00000/new".to_owned()]].concat();
    expected.sort();
    assert_eq!(keys(), expected);
    assert_eq!(refused(&server, "GET", &format!("/b/{}", all[7]), &[], b""), (404, "NoSuchKey".into()));
    assert_eq!(ask(&server, "GET", &format!("/b/{}", all[500]), &[], b"").body, b"mine");
    ask(&server, "DELETE", &format!("/b/{}", all[500]), &[], b"");
    assert_eq!(ask(&server, "HEAD", &format!("/b/{}", all[500]), &[], b"").status, 404);
}

#[test]
fn a_key_can_be_made_without_sending_it() {
    let server = with_bucket(&[]);
    let path = "/_cloudsim/bucket/b/make?key=d/big%20one&size=3000000&seed=9&mtime=1700000000&md5=1";
    assert_eq!(ask(&server, "PUT", path, &[], b"").status, 200);
    let bytes = pattern::bytes(9, 0, 3_000_000);
    let answer = ask(&server, "GET", "/b/d/big%20one", &[("x-amz-checksum-mode", "ENABLED")], b"");
    assert!(answer.body == bytes);
    let md5 = hash_bytes(&[Algo::Md5], &bytes).hex(Algo::Md5).unwrap();
    assert_eq!(answer.header("etag"), format!("\"{md5}\""));
    assert_eq!(answer.header("x-amz-meta-md5chksum"), base64(Algo::Md5, &bytes));
    assert_eq!(answer.header("x-amz-meta-mtime"), "1700000000");
    assert_eq!(answer.header("x-amz-checksum-crc64nvme"), base64(Algo::Crc64Nvme, &bytes));
    let keys = ask(&server, "GET", "/_cloudsim/bucket/b/keys", &[], b"").text();
    assert_eq!(keys, format!("3000000 {:016x} d/big one\n", pattern::crc(9, 0, 3_000_000)));
    // Size costs no memory.
    server.make("b", b"huge", &ObjectSpec { size: 1 << 34, ..ObjectSpec::default() });
    let last = ask(&server, "GET", "/b/huge", &[("range", "bytes=-10")], b"").body;
    assert_eq!(last, pattern::bytes(0, (1 << 34) - 10, 10));
}

#[test]
fn requests_beyond_the_rate_are_rejected_and_counted() {
    let server = with_bucket(&[("write-requests-per-second", "0.001,2")]);
    let put = || ask(&server, "PUT", "/b/k", &[], b"x");
    assert_eq!([put().status, put().status, put().status], [200, 200, 503]);
    assert_eq!(put().element("Code"), "SlowDown");
    assert_eq!(ask(&server, "GET", "/b/k", &[], b"").status, 200, "reads have their own");
    server.set(Some("b"), &[("reject", "429"), ("retry-after", "1.5s")]).unwrap();
    let answer = put();
    assert_eq!((answer.status, answer.header("retry-after")), (429, "2"), "the limit goes on where it was");
    let report = server.report();
    assert_eq!((report.throttled, report.of("PutObject"), report.of("GetObject"), report.total_requests), (3, 5, 1, 6));
    server.set(Some("b"), &[("write-requests-per-second", "off")]).unwrap();
    assert_eq!(put().status, 200);
}

#[test]
fn every_fault_is_seen_by_the_client() {
    let server = with_bucket(&[]);
    server.put("b", b"k", vec![7; 3 * MIB], &[]);
    let fault = |fault: &str| server.set(None, &[("fault", fault), ("stall-for", "10ms")]).unwrap();
    fault("error500=1");
    assert_eq!(refused(&server, "PUT", "/b/new", &[], b"x"), (500, "InternalError".into()));
    fault("reset=1");
    assert!(try_ask(&server, "PUT", "/b/new", &[], b"x").is_none());
    assert!(server.get("b", b"new").is_none(), "nothing was done");
    for kind in ["cut=1", "stall=1"] {
        fault(kind);
        let answer = ask(&server, "GET", "/b/k", &[], b"");
        assert!(answer.short && !answer.body.is_empty(), "{kind}: {} bytes", answer.body.len());
        assert_eq!(ask(&server, "HEAD", "/b/k", &[], b"").status, 200, "{kind} is of bodies only");
    }
    fault("wrong-etag=1");
    let etag = ask(&server, "PUT", "/b/etag", &[], b"x").header("etag").to_owned();
    assert_ne!(etag, format!("\"{}\"", server.get("b", b"etag").unwrap().etag));
    fault("lost-answer=1");
    assert!(try_ask(&server, "PUT", "/b/lost", &[], b"lost").is_none());
    assert_eq!(server.get("b", b"lost").unwrap().bytes, b"lost", "it was done");
    fault("");
    let (path, document) = upload(&server, "/b/parts", &[b"one"], false);
    fault("complete-error=1");
    let answer = ask(&server, "POST", &path, &[], document.as_bytes());
    assert_eq!((answer.status, &answer.element("Code")[..]), (200, "InternalError"));
    fault("");
    assert_eq!(ask(&server, "POST", &path, &[], document.as_bytes()).status, 200, "the upload is still there");
    let faults = server.report().faults;
    let seen = ["error500", "reset", "cut", "stall", "wrong-etag", "complete-error", "lost-answer"];
    assert!(seen.iter().all(|name| faults.get(name) == Some(&1)), "{faults:?}");
}

#[test]
fn new_keys_are_listed_later_and_read_at_once() {
    let server = with_bucket(&[("list-delay", "1h")]);
    server.put("b", b"old", "x", &[]);
    ask(&server, "PUT", "/b/new", &[], b"x");
    ask(&server, "PUT", "/b/old", &[], b"changed");
    let page = ask(&server, "GET", "/b?list-type=2", &[], b"");
    assert_eq!((page.elements("Key"), page.elements("Size")), (vec!["old".to_owned()], vec!["7".to_owned()]));
    assert_eq!(ask(&server, "GET", "/b/new", &[], b"").body, b"x");
}

#[test]
fn settings_and_buckets_are_changed_over_http() {
    let server = with_bucket(&[]);
    let admin = |method: &str, path: &str, body: &str| {
        let answer = ask(&server, method, &format!("/_cloudsim/{path}"), &[], body.as_bytes());
        (answer.status, answer.text())
    };
    let listed = || ask(&server, "GET", "/syn?list-type=2", &[], b"");
    assert_eq!(admin("PUT", "bucket/syn", r#"{"keys":30,"shape":"dvc","size":"1k"}"#).0, 200);
    assert_eq!(listed().elements("Size"), vec!["1000"; 30]);
    assert_eq!(admin("PUT", "settings?bucket=syn", r#"{"page":7,"fault":null}"#).0, 200);
    assert_eq!(listed().elements("Key").len(), 7);
    assert_eq!(admin("PUT", "settings", r#"{"page":3}"#).0, 200);
    assert_eq!(listed().elements("Key").len(), 7, "its own stays");
    let wrong = admin("PUT", "settings", r#"{"page":5,"latency":"soon"}"#);
    assert_eq!(wrong, (400, "latency \"soon\": want a time such as 50ms, 1.5s or 2m\n".into()));
    assert_eq!(admin("PUT", "settings", r#"{"threads":3}"#), (400, "threads can't be changed later\n".into()));
    assert_eq!(admin("DELETE", "bucket/syn", "").0, 200);
    assert_eq!(ask(&server, "HEAD", "/syn", &[], b"").status, 404);
    assert_eq!(admin("GET", "nonsense", "").0, 400);
    let report = admin("GET", "report", "").1;
    assert!(report.contains(r#""requests":{"HeadBucket":1,"ListObjectsV2":3},"total_requests":4,"#), "{report}");
    assert_eq!(admin("POST", "reset", "").0, 200);
    assert!(admin("GET", "report", "").1.contains(r#""first_request_ms":null"#));
}

#[test]
fn the_report_and_the_log_tell_what_happened() {
    let server = with_bucket(&[("log", "true"), ("price", "aws"), ("latency", "20ms"), ("connection-rate", "1M")]);
    // The end of an answer is noted a moment after the client has it.
    let noted = |lines: usize| {
        while server.log().len() < lines {
            std::thread::yield_now();
        }
    };
    ask(&server, "PUT", "/b/k%20y", &[], &[1; 100_000]);
    noted(1);
    ask(&server, "GET", "/b/k%20y", &[], b"");
    noted(2);
    ask(&server, "GET", "/b?list-type=2&prefix=k", &[], b"");
    noted(3);
    let report = server.report();
    assert_eq!((report.of("PutObject"), report.of("GetObject"), report.of("ListObjectsV2")), (1, 1, 1));
    assert_eq!((report.bytes_in, report.connections, report.peak_in_flight), (100_000, 3, 1));
    assert!(report.bytes_out > 100_000 && report.bytes_out < 102_000, "{}", report.bytes_out);
    assert!(report.first_request_ms <= report.first_get_or_put_ms && report.first_request_ms < report.last_request_ms);
    let cost = 0.000_010_4 + report.bytes_out as f64 * 0.09e-9;
    assert!((report.cost_usd - cost).abs() < 1e-9, "{}", report.cost_usd);
    let log = server.log();
    let about: Vec<_> = log.iter().map(|line| (line.op, &line.key[..])).collect();
    assert_eq!(about, [("PutObject", "k y"), ("GetObject", "k y"), ("ListObjectsV2", "k")]);
    assert_eq!((log[0].bytes, log[0].status, log[1].bytes, log[1].connection), (100_000, 200, 100_000, 2));
    // What is slowed down is never faster than that: 20 ms, and 100 ms for 100 kB at 1 MB/s, less a timer's rounding.
    assert!(log[0].took_ms > 110.0 && log[1].took_ms > 110.0 && log[2].took_ms > 15.0, "{log:?}");
    let lines = ask(&server, "GET", "/_cloudsim/log", &[], b"").text();
    assert_eq!(lines.lines().count(), 3);
    assert!(lines.contains(r#""op":"PutObject","bucket":"b","key":"k y","status":200,"bytes":100000,"#), "{lines}");
}

#[test]
fn one_connection_too_many_is_closed() {
    let server = with_bucket(&[("max-connections", "1")]);
    let mut first = TcpStream::connect(server.address()).unwrap();
    let mut answer = [0; 12];
    first.write_all(b"HEAD /b HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    first.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 200");
    assert!(try_ask(&server, "HEAD", "/b", &[], b"").is_none());
    assert_eq!(ask(&server, "GET", "/_cloudsim/report", &[], b"").status, 200, "the admin path stays open");
    drop(first);
    while try_ask(&server, "HEAD", "/b", &[], b"").is_none() {
        std::thread::yield_now();
    }
}

#[test]
fn the_server_stops_while_an_answer_is_delayed() {
    let server = with_bucket(&[("latency", "1h")]);
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(b"GET /b/k HTTP/1.1\r\nhost: x\r\n\r\n").unwrap();
    let address = server.address();
    server.stop();
    assert!(matches!(socket.read(&mut [0]), Ok(0) | Err(_)));
    assert!(TcpStream::connect(address).is_err());
}
