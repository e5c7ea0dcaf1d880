//! What AWS refuses is refused, with its codes.

use super::{ask, base64, refused, with_bucket};
use haul_core::{Algo, hash::hash_bytes};
use haul_testkit::cloudsim::{Cloudsim, pattern};
use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
};

const XML: &str = "CompleteMultipartUpload";

/// Begins an upload with these headers; gives its path with the id.
fn begin(server: &Cloudsim, headers: &[(&str, &str)]) -> String {
    let began = ask(server, "POST", "/b/k?uploads", headers, b"");
    assert_eq!(began.status, 200, "{}", began.text());
    format!("/b/k?uploadId={}", began.element("UploadId"))
}

/// Sends two parts with a checksum of this algorithm, or none; gives the document that completes them, which names the
/// checksums if it is to.
fn send(server: &Cloudsim, path: &str, parts: [&[u8]; 2], algo: Option<Algo>, named: bool) -> String {
    let mut document = format!("<{XML}>");
    for (number, part) in (1..).zip(parts) {
        let sum = algo.map(|algo| (format!("x-amz-checksum-{}", algo.name()), base64(algo, part)));
        let headers: Vec<_> = sum.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        let sent = ask(server, "PUT", &format!("{path}&partNumber={number}"), &headers, part);
        assert_eq!(sent.status, 200, "{}", sent.text());
        let etag = sent.header("etag").replace('"', "&quot;");
        document += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>");
        if let (true, Some(algo), Some((_, value))) = (named, algo, &sum) {
            let name = algo.name().to_uppercase();
            document += &format!("<Checksum{name}>{value}</Checksum{name}>");
        }
        document += "</Part>";
    }
    document + &format!("</{XML}>")
}

const INVALID: (u16, &str) = (400, "InvalidRequest");

fn says(got: &(u16, String), wanted: (u16, &str), what: &str) {
    assert_eq!((got.0, &got.1[..]), wanted, "{what}");
}

#[test]
fn the_checksum_of_an_upload_is_the_one_that_was_announced() {
    let server = with_bucket(&[]);
    let (first, last) = (pattern::bytes(1, 0, 5 << 20), pattern::bytes(2, 0, 1000));
    let parts = [&first[..], &last];
    let whole = parts.concat();
    let (crc64, crc32) = (base64(Algo::Crc64Nvme, &whole), base64(Algo::Crc32, &whole));
    let full = ("x-amz-checksum-type", "FULL_OBJECT");
    for algo in [Algo::Crc64Nvme, Algo::Crc32] {
        let name = algo.name().to_uppercase();
        let path = begin(&server, &[("x-amz-checksum-algorithm", &name), full]);
        let document = send(&server, &path, parts, Some(algo), true);
        let (header, sum) = (format!("x-amz-checksum-{}", algo.name()), base64(algo, &whole));
        let other = if algo == Algo::Crc32 {
            ("x-amz-checksum-crc64nvme", &crc64[..])
        } else {
            ("x-amz-checksum-crc32", &crc32[..])
        };
        for (headers, wanted) in [
            (vec![(&header[..], "AAAAAA=="), full], (400, "BadDigest")),
            (vec![(&header[..], &sum[..]), ("x-amz-checksum-type", "COMPOSITE")], INVALID),
            (vec![other], INVALID),
            (vec![("x-amz-mp-object-size", "7")], INVALID),
        ] {
            says(
                &refused(&server, "POST", &path, &headers, document.as_bytes()),
                wanted,
                &format!("{name} {headers:?}"),
            );
        }
        let done = ask(&server, "POST", &path, &[(&header, &sum), full], document.as_bytes());
        assert_eq!(
            (done.status, done.element(&format!("Checksum{name}")), done.element("ChecksumType")),
            (200, sum.clone(), "FULL_OBJECT".into())
        );
        let head = ask(&server, "HEAD", "/b/k", &[("x-amz-checksum-mode", "ENABLED")], b"");
        assert_eq!((head.header(&header), head.header("x-amz-checksum-type")), (&sum[..], "FULL_OBJECT"));
    }
}

#[test]
fn a_composite_checksum_is_of_the_parts() {
    let server = with_bucket(&[]);
    let (first, last) = (pattern::bytes(1, 0, 5 << 20), pattern::bytes(2, 0, 1000));
    let parts = [&first[..], &last];
    for algo in [Algo::Sha256, Algo::Crc32] {
        let name = algo.name().to_uppercase();
        let path = begin(&server, &[("x-amz-checksum-algorithm", &name)]);
        let without = refused(&server, "PUT", &format!("{path}&partNumber=1"), &[], b"x");
        says(&without, INVALID, "a part without the announced checksum");
        let other = [("x-amz-checksum-sha1", &base64(Algo::Sha1, b"x")[..])];
        says(&refused(&server, "PUT", &format!("{path}&partNumber=1"), &other, b"x"), INVALID, "a part with another");
        let document = send(&server, &path, parts, Some(algo), false);
        says(
            &refused(&server, "POST", &path, &[], document.as_bytes()),
            INVALID,
            "completed without the parts' checksums",
        );
        let document = send(&server, &path, parts, Some(algo), true);
        let wrong = document.replace(&base64(algo, &last), &base64(algo, b"other"));
        says(&refused(&server, "POST", &path, &[], wrong.as_bytes()), (400, "InvalidPart"), "another part's checksum");
        let full = [("x-amz-checksum-type", "FULL_OBJECT")];
        says(&refused(&server, "POST", &path, &full, document.as_bytes()), INVALID, "another type");
        let done = ask(&server, "POST", &path, &[], document.as_bytes());
        let sums = parts.map(|part| hash_bytes(&[algo], part).get(algo).unwrap().to_vec()).concat();
        assert_eq!(done.element(&format!("Checksum{name}")), format!("{}-2", base64(algo, &sums)));
        assert_eq!(done.element("ChecksumType"), "COMPOSITE");
    }
}

#[test]
fn checksums_that_were_not_announced_are_refused() {
    let server = with_bucket(&[]);
    let path = begin(&server, &[]);
    let crc = base64(Algo::Crc64Nvme, b"x");
    let part = [("x-amz-checksum-crc64nvme", &crc[..])];
    says(&refused(&server, "PUT", &format!("{path}&partNumber=1"), &part, b"x"), INVALID, "a part");
    let sent = ask(&server, "PUT", &format!("{path}&partNumber=1"), &[], b"x");
    let etag = sent.header("etag").replace('"', "&quot;");
    let document = format!("<{XML}><Part><PartNumber>1</PartNumber><ETag>{etag}</ETag></Part></{XML}>");
    let full = [("x-amz-checksum-type", "FULL_OBJECT")];
    for headers in [&part[..], &full, &[part[0], full[0]]] {
        let answer = ask(&server, "POST", &path, headers, document.as_bytes());
        let message = "The upload was created using the null checksum mode. The complete request must use the same checksum mode.";
        assert_eq!(
            (answer.status, answer.element("Code"), answer.element("Message")),
            (400, "InvalidRequest".into(), message.into())
        );
    }
    assert_eq!(ask(&server, "POST", &path, &[], document.as_bytes()).status, 200);
    for wrong in [
        &[("x-amz-checksum-type", "FULL_OBJECT")][..],
        &[("x-amz-checksum-algorithm", "CRC16")],
        &[("x-amz-checksum-algorithm", "SHA256"), full[0]],
        &[("x-amz-checksum-algorithm", "CRC64NVME"), ("x-amz-checksum-type", "COMPOSITE")],
        &[("x-amz-checksum-algorithm", "CRC32"), ("x-amz-checksum-type", "WHOLE")],
    ] {
        says(&refused(&server, "POST", "/b/k?uploads", wrong, b""), INVALID, &format!("{wrong:?}"));
    }
}

#[test]
fn limits_of_names_metadata_and_copies() {
    let server = with_bucket(&[("strict-names", "true")]);
    let key = |len: usize| format!("/b/{}", "k".repeat(len));
    assert_eq!(ask(&server, "PUT", &key(1024), &[], b"x").status, 200);
    says(&refused(&server, "PUT", &key(1025), &[], b"x"), (400, "KeyTooLongError"), "a key");
    let meta = "m".repeat(2047);
    assert_eq!(ask(&server, "PUT", "/b/m", &[("x-amz-meta-a", &meta)], b"x").status, 200);
    let more = [("x-amz-meta-a", &meta[..]), ("x-amz-meta-b", "")];
    says(&refused(&server, "PUT", "/b/m", &more, b"x"), (400, "MetadataTooLarge"), "metadata");
    for name in ["/ab", "/Abc", "/a..b", "/192.168.0.1"] {
        says(&refused(&server, "PUT", name, &[], b""), (400, "InvalidBucketName"), name);
    }
    let itself = [("x-amz-copy-source", "/b/m")];
    says(&refused(&server, "PUT", "/b/m", &itself, b""), INVALID, "onto itself");
    let path = begin(&server, &[]);
    let beyond = [("x-amz-copy-source", "/b/m"), ("x-amz-copy-source-range", "bytes=0-1")];
    says(&refused(&server, "PUT", &format!("{path}&partNumber=1"), &beyond, b""), (400, "InvalidArgument"), "a range");
    let tagged = [("if-none-match", "\"x\"")];
    says(&refused(&server, "PUT", "/b/m", &tagged, b"x"), (501, "NotImplemented"), "only * is known");
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.write_all(b"PUT /b/m HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n").unwrap();
    let mut status = [0; 12];
    socket.read_exact(&mut status).unwrap();
    assert_eq!(&status, b"HTTP/1.1 411", "a body without a length");
}

#[test]
fn signatures_that_say_too_little_or_come_too_late_are_refused() {
    let server = with_bucket(&[]);
    let claim = |key: &str, day: &str, names: &str| {
        format!(
            "AWS4-HMAC-SHA256 Credential={key}/{day}/us-east-1/s3/aws4_request, SignedHeaders={names}, Signature=00"
        )
    };
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let now = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let all = "host;x-amz-content-sha256;x-amz-date";
    for (authorization, date, wanted) in [
        (claim("nobody", &now[..8], all), &now[..], (403, "InvalidAccessKeyId")),
        (claim("haul-test", "20200101", all), "20200101T000000Z", (403, "RequestTimeTooSkewed")),
        (claim("haul-test", &now[..8], "host;x-amz-date"), &now, (403, "AccessDenied")),
        (claim("haul-test", &now[..8], all), &now, (403, "SignatureDoesNotMatch")),
        (claim("haul-test", "20200101", all), &now, (400, "AuthorizationHeaderMalformed")),
        ("AWS haul-test:abc".into(), &now, INVALID),
    ] {
        let headers = [("authorization", &authorization[..]), ("x-amz-date", date), ("x-amz-content-sha256", empty)];
        says(&refused(&server, "GET", "/b?list-type=2", &headers, b""), wanted, &authorization);
        assert_eq!(ask(&server, "HEAD", "/b", &headers, b"").body, b"", "HEAD says nothing");
    }
    server.set(None, &[("trusting", "true")]).unwrap();
    let headers = [("authorization", &claim("nobody", "20200101", all)[..])];
    assert_eq!(ask(&server, "GET", "/b?list-type=2", &headers, b"").status, 200);
}

/// A PUT of `/b/k` in chunks that are signed one by one, with a checksum after them: its headers, and its body.
fn signed_in_chunks(chunks: &[&[u8]]) -> (Vec<(&'static str, String)>, Vec<u8>) {
    use aws_lc_rs::{digest, hmac};
    let hex = haul_core::hash::to_hex;
    let sha256 = |bytes: &[u8]| hex(digest::digest(&digest::SHA256, bytes).as_ref());
    let whole = chunks.concat();
    let crc = base64(Algo::Crc64Nvme, &whole);
    let date = jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ").to_string();
    let scope = format!("{}/us-east-1/s3/aws4_request", &date[..8]);
    let sign = |kind: &str, text: &str| {
        let text = format!("{kind}\n{date}\n{scope}\n{text}");
        let steps = [&date[..8], "us-east-1", "s3", "aws4_request", &text];
        hex(&steps.iter().fold(b"AWS4haul-test-secret".to_vec(), |key, step| {
            hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), step.as_bytes()).as_ref().to_vec()
        }))
    };
    let hash = "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER";
    let mut headers = vec![
        ("x-amz-content-sha256", hash.to_owned()),
        ("x-amz-date", date.clone()),
        ("x-amz-decoded-content-length", whole.len().to_string()),
        ("x-amz-trailer", "x-amz-checksum-crc64nvme".to_owned()),
    ];
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
    let names = "host;x-amz-content-sha256;x-amz-date;x-amz-decoded-content-length;x-amz-trailer";
    let request = format!("PUT\n/b/k\n\nhost:x\n{lines}\n{names}\n{hash}");
    let seed = sign("AWS4-HMAC-SHA256", &sha256(request.as_bytes()));
    headers.push((
        "authorization",
        format!("AWS4-HMAC-SHA256 Credential=haul-test/{scope}, SignedHeaders={names}, Signature={seed}"),
    ));
    let (mut before, mut body) = (seed, Vec::new());
    for chunk in chunks.iter().chain([&&b""[..]]) {
        before = sign("AWS4-HMAC-SHA256-PAYLOAD", &format!("{before}\n{}\n{}", sha256(b""), sha256(chunk)));
        body.extend_from_slice(format!("{:x};chunk-signature={before}\r\n", chunk.len()).as_bytes());
        body.extend_from_slice(chunk);
        // What follows the empty chunk are the trailers.
        body.extend_from_slice(if chunk.is_empty() { b"" } else { b"\r\n" });
    }
    let trailer = format!("x-amz-checksum-crc64nvme:{crc}\n");
    let last = sign("AWS4-HMAC-SHA256-TRAILER", &format!("{before}\n{}", sha256(trailer.as_bytes())));
    let end = format!("x-amz-checksum-crc64nvme:{crc}\r\nx-amz-trailer-signature:{last}\r\n\r\n");
    body.extend_from_slice(end.as_bytes());
    (headers, body)
}

#[test]
fn chunks_are_the_ones_that_were_signed() {
    let server = with_bucket(&[]);
    let (first, last) = (pattern::bytes(1, 0, 64 << 10), pattern::bytes(2, 0, 1000));
    let (headers, body) = signed_in_chunks(&[&first, &last]);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &value[..])).collect();
    let put = |body: &[u8]| refused(&server, "PUT", "/b/k", &headers, body);
    let wrong = (403, "SignatureDoesNotMatch");
    let text = |body: &[u8]| body.windows(17).rposition(|w| w == b";chunk-signature=").expect("a chunk");
    let changed = |at: usize| {
        let mut body = body.clone();
        body[at] ^= 1;
        body
    };
    says(&put(&changed(1000)), wrong, "a chunk's byte");
    says(&put(&changed(body.len() - 1200)), wrong, "the last chunk's byte");
    // Of the empty chunk that ends the body.
    let signature = text(&body) + 17;
    let other = if body[signature] == b'0' { b'1' } else { b'0' };
    let with = |at: usize, byte: u8| {
        let mut body = body.clone();
        body[at] = byte;
        body
    };
    says(&put(&with(signature, other)), wrong, "the last signature");
    let digit = body.len() - 5;
    let other = if body[digit] == b'0' { b'1' } else { b'0' };
    says(&put(&with(digit, other)), wrong, "the signature of what follows");
    assert!(server.get("b", b"k").is_none(), "nothing of it is kept");
    assert_eq!(ask(&server, "PUT", "/b/k", &headers, &body).status, 200);
    assert!(server.get("b", b"k").unwrap().bytes == [&first[..], &last].concat());
    let (headers, body) = signed_in_chunks(&[&last, &first]);
    let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, &value[..])).collect();
    says(&refused(&server, "PUT", "/b/k", &headers, &body), (400, "InvalidChunkSizeError"), "a small chunk first");
}

#[test]
fn a_bucket_is_where_it_was_made() {
    let server = Cloudsim::with(&[]);
    let body = |place: &str| {
        format!(
            "<CreateBucketConfiguration><LocationConstraint>{place}</LocationConstraint></CreateBucketConfiguration>"
        )
    };
    says(
        &refused(&server, "PUT", "/b", &[], body("us-east-1").as_bytes()),
        (400, "InvalidLocationConstraint"),
        "the oldest",
    );
    assert_eq!(ask(&server, "PUT", "/b", &[], body("eu-west-1").as_bytes()).status, 200);
    assert!(ask(&server, "GET", "/b?location", &[], b"").text().contains(">eu-west-1<"));
    assert_eq!(ask(&server, "HEAD", "/b", &[], b"").header("x-amz-bucket-region"), "eu-west-1");
    let server = Cloudsim::with(&[("region", "eu-west-1")]);
    says(&refused(&server, "PUT", "/b", &[], b""), (400, "IllegalLocationConstraintException"), "unnamed");
    says(
        &refused(&server, "PUT", "/b", &[], body("eu-west-2").as_bytes()),
        (400, "IllegalLocationConstraintException"),
        "another",
    );
    let server = Cloudsim::with(&[("provider", "Cloudflare")]);
    says(
        &refused(&server, "PUT", "/b", &[], body("eu-west-1").as_bytes()),
        (400, "InvalidLocationConstraint"),
        "none here",
    );
}

#[test]
fn each_quirk_is_seen_by_the_client() {
    let server = with_bucket(&[]);
    for key in ["a", "b", "c/d"] {
        server.put("b", key.as_bytes(), "x", &[]);
    }
    let quirk = |name: &str| server.set(None, &[("quirk", name)]).unwrap();
    let refuses = |method: &str, path: &str, headers: &[(&str, &str)]| {
        says(&refused(&server, method, path, headers, b""), (501, "NotImplemented"), path);
    };
    quirk("refuses-checksums");
    refuses("PUT", "/b/k", &[("x-amz-checksum-crc32", "AAAAAA==")]);
    refuses("POST", "/b/k?uploads", &[("x-amz-checksum-algorithm", "CRC32")]);
    quirk("ignores-checksums");
    let put = ask(&server, "PUT", "/b/k", &[("x-amz-checksum-crc32", "////////")], b"x");
    assert_eq!((put.status, put.header("x-amz-checksum-crc32"), put.header("x-amz-checksum-crc64nvme")), (200, "", ""));
    let mode = [("x-amz-checksum-mode", "ENABLED")];
    assert_eq!(ask(&server, "GET", "/b/k", &mode, b"").header("x-amz-checksum-crc64nvme"), "");
    quirk("refuses-checksum-mode");
    refuses("GET", "/b/k", &mode);
    assert_eq!(ask(&server, "HEAD", "/b/k", &mode, b"").status, 501);
    quirk("copy-without-etag,put-without-etag");
    let source = ("x-amz-copy-source", "/b/a");
    let copy = ask(&server, "PUT", "/b/k", &[source], b"");
    assert_eq!((copy.status, copy.element("ETag")), (200, String::new()));
    assert_eq!(ask(&server, "PUT", "/b/k", &[], b"x").header("etag"), "");
    quirk("no-part-copy,no-batch-delete,no-conditions");
    refuses("PUT", "/b/k?partNumber=1&uploadId=x", &[source]);
    refuses("POST", "/b?delete", &[]);
    refuses("PUT", "/b/k", &[("if-none-match", "*")]);
    quirk("empty-part-copy");
    let path = begin(&server, &[]);
    let part = ask(&server, "PUT", &format!("{path}&partNumber=1"), &[source], b"");
    assert_eq!((part.status, part.text()), (200, String::new()));
    assert_eq!(ask(&server, "GET", &path, &[], b"").elements("Size"), ["0"]);
    ask(&server, "DELETE", "/b/k", &[], b"");
    let list = |name: &str| {
        quirk(name);
        ask(&server, "GET", "/b?list-type=2&delimiter=/&encoding-type=url", &[], b"")
    };
    assert_eq!(list("encoded-delimiter").elements("Prefix"), ["", "c%2F"]);
    assert_eq!(list("swapped-keys").elements("Key"), ["b", "a"]);
    assert!(list("plain-listings").elements("EncodingType").is_empty());
    let page = list("no-is-truncated,no-key-count");
    assert!(page.elements("IsTruncated").is_empty() && page.elements("KeyCount").is_empty());
    assert_eq!(list("wrong-key-count").element("KeyCount"), "4");
}

#[test]
fn equal_parts_are_asked_for() {
    let server = with_bucket(&[("provider", "Cloudflare")]);
    let (small, large) = (pattern::bytes(1, 0, 5 << 20), pattern::bytes(2, 0, 6 << 20));
    for (parts, wanted) in [([&small[..], &large[..]], 400), ([&large, &small], 200), ([&small, &small], 200)] {
        let path = begin(&server, &[]);
        let document = send(&server, &path, parts, None, false);
        let done = ask(&server, "POST", &path, &[], document.as_bytes());
        assert_eq!(done.status, wanted, "{}", done.text());
    }
}
