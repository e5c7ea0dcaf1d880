//! Buckets that are made up as they are asked for: a million keys without a disk, or keys that a real server refuses
//! (`d//x`, `a/../b`).

use crate::{
    proxy::operation,
    serve::{Body, Server},
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    HeaderMap, Method, Request, Response, StatusCode,
    body::Incoming,
    header::{CONTENT_RANGE, ETAG, HeaderValue, LAST_MODIFIED, RANGE},
};
use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What was put under a key: the bytes, and the headers `x-amz-meta-…`.
#[derive(Clone, Debug, Default)]
pub struct Put {
    /// The bytes.
    pub bytes: Bytes,
    /// The metadata headers.
    pub meta: HeaderMap,
}

/// What a server holds.
#[derive(Debug)]
pub enum Content {
    /// So many keys in one flat prefix, `file-00000000.bin` and on, of one byte each, in every bucket. They can only be
    /// listed.
    Numbered(u64),
    /// Whatever is put, by `bucket/key`. Small things in one piece only.
    Kept(Mutex<BTreeMap<String, Put>>),
}

/// A running server. It checks no signatures; everything in it was written on 2 January 2024.
#[derive(Debug)]
pub struct Synthetic {
    server: Server,
    content: Arc<Content>,
}

impl Synthetic {
    /// Starts a server of numbered keys.
    ///
    /// Errors: no thread or port to be had.
    pub fn numbered(keys: u64) -> io::Result<Synthetic> {
        Self::start(Content::Numbered(keys))
    }

    /// Starts a server that keeps what it is given, beginning with these, by `bucket/key`.
    ///
    /// Errors: no thread or port to be had.
    pub fn keeping(these: &[(&str, &[u8])]) -> io::Result<Synthetic> {
        let put = |bytes: &[u8]| Put { bytes: Bytes::copy_from_slice(bytes), meta: HeaderMap::new() };
        let kept = these.iter().map(|(key, bytes)| ((*key).to_owned(), put(bytes))).collect();
        Self::start(Content::Kept(Mutex::new(kept)))
    }

    fn start(content: Content) -> io::Result<Synthetic> {
        let content = Arc::new(content);
        let shared = content.clone();
        let server = Server::start(move |request, _| {
            let content = shared.clone();
            async move { content.answer(request).await }
        })?;
        Ok(Synthetic { server, content })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// What is kept, by `bucket/key`.
    pub fn kept(&self) -> BTreeMap<String, Put> {
        match &*self.content {
            Content::Kept(all) => lock(all).clone(),
            Content::Numbered(_) => BTreeMap::new(),
        }
    }
}

fn lock(all: &Mutex<BTreeMap<String, Put>>) -> MutexGuard<'_, BTreeMap<String, Put>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ETag of some bytes: one that promises nothing, as of a multipart upload.
fn etag(bytes: &[u8]) -> String {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    format!("\"{:032x}-1\"", hasher.finish())
}

impl Content {
    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let name = operation(&request);
        let (head, body) = request.into_parts();
        let path = decode(head.uri.path().trim_start_matches('/'));
        let (bucket, _) = path.split_once('/').unwrap_or((&path, ""));
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        Ok(match (name, self) {
            ("ListObjectsV2", _) => xml(self.list(bucket, head.uri.query().unwrap_or_default())),
            ("HeadBucket", _) => plain(StatusCode::OK, Bytes::new()),
            ("GetObject" | "HeadObject", Content::Kept(all)) => read(lock(all).get(&path), &head.headers, &head.method),
            ("PutObject", Content::Kept(all)) => {
                let tag = etag(&body);
                lock(all).insert(path, Put { bytes: body, meta: metadata(&head.headers) });
                tagged(plain(StatusCode::OK, Bytes::new()), &tag)
            }
            ("CopyObject", Content::Kept(all)) => {
                let source = head.headers.get("x-amz-copy-source").and_then(|v| v.to_str().ok()).unwrap_or_default();
                copy(&mut lock(all), &decode(source.trim_start_matches('/')), path, &head.headers)
            }
            ("DeleteObject", Content::Kept(all)) => {
                lock(all).remove(&path);
                plain(StatusCode::NO_CONTENT, Bytes::new())
            }
            ("DeleteObjects", Content::Kept(all)) => {
                let text = String::from_utf8_lossy(&body).into_owned();
                for key in text.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()) {
                    lock(all).remove(&format!("{bucket}/{}", unescape(key)));
                }
                xml("<DeleteResult></DeleteResult>".into())
            }
            _ => plain(StatusCode::NOT_IMPLEMENTED, Bytes::new()),
        })
    }

    /// The keys from one on, and what number or name to go on from.
    fn from(&self, bucket: &str, after: &str) -> Box<dyn Iterator<Item = (String, usize, String)>> {
        match self {
            Content::Kept(all) => {
                let all = lock(all);
                let keys =
                    all.iter().filter_map(|(path, put)| Some((path.strip_prefix(bucket)?.strip_prefix('/')?, put)));
                let keys = keys.filter(|(key, _)| *key > after);
                let rows: Vec<_> = keys.map(|(key, put)| (key.to_owned(), put.bytes.len(), etag(&put.bytes))).collect();
                Box::new(rows.into_iter())
            }
            Content::Numbered(n) => {
                let digits = after.strip_prefix("file-").and_then(|rest| rest.get(..8));
                let start = digits.and_then(|d| d.parse::<u64>().ok()).map_or(0, |d| d + 1);
                let tag = etag(b"x");
                Box::new((start..*n).map(move |i| (format!("file-{i:08}.bin"), 1, tag.clone())))
            }
        }
    }

    /// A page of ListObjectsV2. The continuation token is the last key or prefix.
    fn list(&self, bucket: &str, query: &str) -> String {
        let query: BTreeMap<String, String> = query
            .split('&')
            .filter_map(|p| p.split_once('='))
            .map(|(k, v)| (k.into(), decode(&v.replace('+', " "))))
            .collect();
        let text = |name: &str| query.get(name).map_or("", String::as_str);
        let (prefix, delimiter) = (text("prefix"), text("delimiter"));
        let max = query.get("max-keys").and_then(|n| n.parse::<usize>().ok()).unwrap_or(1000).min(1000);
        let after = query.get("continuation-token").map_or_else(|| text("start-after"), String::as_str);
        let encode_names = text("encoding-type") == "url";
        let name = |key: &str| if encode_names { encode(key) } else { escape(key) };
        let (mut rows, mut last, mut count, mut more) = (String::new(), String::new(), 0, false);
        for (key, size, tag) in self.from(bucket, after) {
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
                     <ETag>{tag}</ETag><Size>{size}</Size><StorageClass>STANDARD</StorageClass></Contents>",
                    name(&key)
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

fn metadata(headers: &HeaderMap) -> HeaderMap {
    headers.iter().filter(|(k, _)| k.as_str().starts_with("x-amz-meta-")).map(|(k, v)| (k.clone(), v.clone())).collect()
}

fn copy(all: &mut BTreeMap<String, Put>, from: &str, to: String, headers: &HeaderMap) -> Response<Body> {
    let Some(source) = all.get(from).cloned() else { return plain(StatusCode::NOT_FOUND, Bytes::new()) };
    let replace = headers.get("x-amz-metadata-directive").is_some_and(|v| v == "REPLACE");
    let meta = if replace { metadata(headers) } else { source.meta };
    let tag = etag(&source.bytes);
    all.insert(to, Put { bytes: source.bytes, meta });
    xml(format!(
        "<CopyObjectResult><ETag>{tag}</ETag><LastModified>2024-01-02T03:04:05.000Z</LastModified></CopyObjectResult>"
    ))
}

/// GET or HEAD, of a `bytes=a-b` or `bytes=a-` range if asked for.
fn read(put: Option<&Put>, headers: &HeaderMap, method: &Method) -> Response<Body> {
    let Some(put) = put else { return plain(StatusCode::NOT_FOUND, Bytes::new()) };
    let size = put.bytes.len();
    let range = headers.get(RANGE).and_then(|v| v.to_str().ok()).and_then(|v| v.strip_prefix("bytes="));
    let range = range.and_then(|r| r.split_once('-'));
    let mut response = match range {
        None => plain(StatusCode::OK, put.bytes.clone()),
        Some((from, to)) => {
            let from = from.parse().unwrap_or(0).min(size);
            let end = to.parse::<usize>().map_or(size, |to| to + 1).clamp(from, size);
            let mut response = plain(StatusCode::PARTIAL_CONTENT, put.bytes.slice(from..end));
            let range = format!("bytes {from}-{}/{size}", end.saturating_sub(1));
            response.headers_mut().extend(HeaderValue::try_from(range).map(|v| (CONTENT_RANGE, v)));
            response
        }
    };
    if method == Method::HEAD {
        let length = HeaderValue::from(size);
        response = plain(StatusCode::OK, Bytes::new());
        response.headers_mut().insert("content-length", length);
    }
    response.headers_mut().extend(put.meta.iter().map(|(k, v)| (k.clone(), v.clone())));
    response.headers_mut().insert(LAST_MODIFIED, HeaderValue::from_static("Tue, 02 Jan 2024 03:04:05 GMT"));
    tagged(response, &etag(&put.bytes))
}

fn tagged(mut response: Response<Body>, tag: &str) -> Response<Body> {
    response.headers_mut().extend(HeaderValue::try_from(tag).map(|v| (ETAG, v)));
    response
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

fn unescape(text: &str) -> String {
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&apos;", "'");
    text.replace("&#10;", "\n").replace("&#13;", "\r").replace("&amp;", "&")
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
            out.push(byte);
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
        let page = content.list("b", "list-type=2");
        assert_eq!(page.matches("<Key>").count(), 1000);
        assert!(page.contains("<NextContinuationToken>file-00000999.bin<"));
        let page = content.list("b", "list-type=2&continuation-token=file-00000999.bin");
        assert_eq!(page.matches("<Key>").count(), 500);
        assert!(page.contains("<IsTruncated>false<") && page.contains("<Key>file-00001000.bin<"));
    }

    #[test]
    fn a_delimiter_folds_keys() {
        let keys = ["b/a", "b/d/x", "b/d/y", "b/e/../f", "c/z"].map(|k| (k.to_owned(), Put::default()));
        let content = Content::Kept(Mutex::new(BTreeMap::from(keys)));
        let page = content.list("b", "list-type=2&delimiter=%2F&encoding-type=url");
        assert_eq!(page.matches("<Key>").count(), 1);
        assert_eq!(page.matches("<CommonPrefixes>").count(), 2);
        let page = content.list("b", "list-type=2&prefix=d%2F");
        assert_eq!(page.matches("<Key>").count(), 2);
    }
}
