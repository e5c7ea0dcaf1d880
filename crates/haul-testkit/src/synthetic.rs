//! A bucket that is made up as it is asked for: a million keys without a disk, or names that a real server refuses.

use crate::{
    proxy::operation,
    serve::{Body, Server},
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode, body::Incoming, header::HeaderValue};
use std::{collections::BTreeMap, fmt::Write as _, io, sync::Arc};

/// When everything in such a bucket was written: 2024-01-02 03:04:05 UTC.
pub const WRITTEN: u64 = 1_704_164_645;

/// What a bucket holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// So many keys in one flat prefix, `file-00000000.bin` and on, of one byte each. They can only be listed.
    Numbered(u64),
    /// These keys and bytes.
    These(BTreeMap<String, Vec<u8>>),
}

/// A running server; every bucket name leads to the same bucket. It checks no signatures and takes no writes.
#[derive(Debug)]
pub struct Synthetic {
    server: Server,
}

impl Synthetic {
    /// Starts a server.
    ///
    /// Errors: no thread or port to be had.
    pub fn start(content: Content) -> io::Result<Synthetic> {
        let content = Arc::new(content);
        let server = Server::start(move |request, _| {
            let response = content.answer(&request);
            async move { Ok(response) }
        })?;
        Ok(Synthetic { server })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }
}

impl Content {
    fn answer(&self, request: &Request<Incoming>) -> Response<Body> {
        match operation(request) {
            "ListObjectsV2" => xml(self.list(request.uri().query().unwrap_or_default())),
            "GetObject" | "HeadObject" => self.read(request),
            "HeadBucket" => plain(StatusCode::OK, Bytes::new()),
            _ => plain(StatusCode::NOT_IMPLEMENTED, Bytes::new()),
        }
    }

    fn read(&self, request: &Request<Incoming>) -> Response<Body> {
        let path = request.uri().path().trim_start_matches('/');
        let key = decode(path.split_once('/').map_or("", |(_, key)| key));
        let Content::These(all) = self else { return plain(StatusCode::NOT_FOUND, Bytes::new()) };
        let Some(bytes) = all.get(&key) else { return plain(StatusCode::NOT_FOUND, Bytes::new()) };
        let mut response = plain(StatusCode::OK, Bytes::from(bytes.clone()));
        let headers = response.headers_mut();
        headers.insert("last-modified", HeaderValue::from_static("Tue, 02 Jan 2024 03:04:05 GMT"));
        headers.insert("etag", HeaderValue::from_static("\"0123456789abcdef0123456789abcdef-1\""));
        response
    }

    /// The keys from one on, and what number or name to go on from.
    fn from<'a>(&'a self, after: &str) -> Box<dyn Iterator<Item = (String, usize)> + 'a> {
        let after = after.to_owned();
        match self {
            Content::These(all) => {
                let keys = all.iter().skip_while(move |(key, _)| **key <= after);
                Box::new(keys.map(|(key, bytes)| (key.clone(), bytes.len())))
            }
            Content::Numbered(n) => {
                let digits = after.strip_prefix("file-").and_then(|rest| rest.get(..8));
                let start = digits.and_then(|d| d.parse::<u64>().ok()).map_or(0, |d| d + 1);
                Box::new((start..*n).map(|i| (format!("file-{i:08}.bin"), 1)))
            }
        }
    }

    /// A page of ListObjectsV2. The continuation token is the last key or prefix.
    fn list(&self, query: &str) -> String {
        let query: BTreeMap<String, String> =
            query.split('&').filter_map(|p| p.split_once('=')).map(|(k, v)| (k.into(), decode(v))).collect();
        let text = |name: &str| query.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (text("prefix"), text("delimiter"));
        let max = query.get("max-keys").and_then(|n| n.parse::<usize>().ok()).unwrap_or(1000).min(1000);
        let after = query.get("continuation-token").map_or_else(|| text("start-after"), String::as_str);
        let encode_names = text("encoding-type") == "url";
        let name = |key: &str| if encode_names { encode(key) } else { escape(key) };
        let (mut rows, mut last, mut count, mut more) = (String::new(), String::new(), 0, false);
        for (key, size) in self.from(after) {
            let Some(rest) = key.strip_prefix(prefix) else { continue };
            let common = rest.find(delimiter).filter(|_| !delimiter.is_empty());
            let common = common.map(|at| &key[..prefix.len() + at + delimiter.len()]);
            if common.is_some_and(|c| c == last || (c == after && after.ends_with(delimiter))) {
                continue;
            }
            if count == max {
                more = true;
                break;
            }
            count += 1;
            // Writing to a String can't fail.
            let _ = match common {
                Some(common) => write!(rows, "<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", name(common)),
                None => write!(
                    rows,
                    "<Contents><Key>{}</Key><LastModified>2024-01-02T03:04:05.000Z</LastModified>\
                     <ETag>&quot;{:032x}-1&quot;</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                    name(&key),
                    size,
                ),
            };
            last = common.map_or(key.clone(), str::to_owned);
        }
        let next = if more {
            format!("<NextContinuationToken>{}</NextContinuationToken>", escape(&last))
        } else {
            String::new()
        };
        let encoding = if encode_names { "<EncodingType>url</EncodingType>" } else { "" };
        format!(
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<ListBucketResult \
             xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name><Prefix>{}</Prefix><KeyCount>{count}</KeyCount>\
             <MaxKeys>{max}</MaxKeys>{encoding}<IsTruncated>{more}</IsTruncated>{next}{rows}</ListBucketResult>",
            name(prefix)
        )
    }
}

fn plain(status: StatusCode, bytes: Bytes) -> Response<Body> {
    let mut response = Response::new(Full::new(bytes).map_err(|e| match e {}).boxed_unsync());
    *response.status_mut() = status;
    response
}

fn xml(text: String) -> Response<Body> {
    let mut response = plain(StatusCode::OK, Bytes::from(text));
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/xml"));
    response
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn encode(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to a String can't fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn decode(text: &str) -> String {
    let (mut out, mut bytes) = (Vec::new(), text.bytes());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(if byte == b'+' { b' ' } else { byte });
            continue;
        }
        let pair = [bytes.next().unwrap_or(b'0'), bytes.next().unwrap_or(b'0')];
        out.push(u8::from_str_radix(&String::from_utf8_lossy(&pair), 16).unwrap_or(b'?'));
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_of_a_numbered_bucket_follow_each_other() {
        let content = Content::Numbered(1500);
        let page = content.list("list-type=2");
        assert_eq!(page.matches("<Key>").count(), 1000);
        assert!(page.contains("<NextContinuationToken>file-00000999.bin<"));
        let page = content.list("list-type=2&continuation-token=file-00000999.bin");
        assert_eq!(page.matches("<Key>").count(), 500);
        assert!(page.contains("<IsTruncated>false<") && page.contains("<Key>file-00001000.bin<"));
    }

    #[test]
    fn a_delimiter_folds_keys() {
        let keys = ["a", "d/x", "d/y", "e/../f"].map(|k| (k.to_owned(), vec![0]));
        let content = Content::These(BTreeMap::from(keys));
        let page = content.list("list-type=2&delimiter=%2F&encoding-type=url");
        assert_eq!(page.matches("<Key>").count(), 1);
        assert_eq!(page.matches("<CommonPrefixes>").count(), 2);
        let page = content.list("list-type=2&prefix=d%2F");
        assert_eq!(page.matches("<Key>").count(), 2);
    }
}
