//! S3's operations, and which one a request is.

use hyper::{HeaderMap, Method, Uri};
use percent_encoding::percent_decode;

macro_rules! operations {
    ($($name:ident),+ $(,)?) => {
        /// An operation of S3; its name is S3's.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Op { $($name),+ }

        impl Op {
            /// All, in the order of their numbers.
            pub const ALL: &[Op] = &[$(Op::$name),+];

            /// S3's name of it.
            pub fn name(self) -> &'static str {
                match self { $(Op::$name => stringify!($name)),+ }
            }
        }
    };
}

operations!(
    ListBuckets,
    HeadBucket,
    CreateBucket,
    DeleteBucket,
    GetBucketLocation,
    ListObjectsV2,
    ListObjects,
    ListObjectVersions,
    ListMultipartUploads,
    HeadObject,
    GetObject,
    PutObject,
    CopyObject,
    DeleteObject,
    DeleteObjects,
    CreateMultipartUpload,
    UploadPart,
    UploadPartCopy,
    ListParts,
    CompleteMultipartUpload,
    AbortMultipartUpload,
    Other,
);

impl Op {
    /// The operation of a request in path style.
    pub fn of(method: &Method, uri: &Uri, headers: &HeaderMap) -> Op {
        let query = uri.query().unwrap_or_default();
        let has = |name: &str| query.split('&').any(|pair| pair.split('=').next() == Some(name));
        let path = uri.path().trim_start_matches('/');
        let in_bucket = path.split_once('/').is_some_and(|(_, key)| !key.is_empty());
        let copies = headers.contains_key("x-amz-copy-source");
        match (method, in_bucket) {
            (&Method::GET, false) if path.is_empty() => Op::ListBuckets,
            (&Method::GET, false) if has("list-type") => Op::ListObjectsV2,
            (&Method::GET, false) if has("location") => Op::GetBucketLocation,
            (&Method::GET, false) if has("versions") => Op::ListObjectVersions,
            (&Method::GET, false) if has("uploads") => Op::ListMultipartUploads,
            _ if ASPECTS.iter().any(|name| has(name)) => Op::Other,
            (&Method::GET, false) => Op::ListObjects,
            (&Method::HEAD, false) => Op::HeadBucket,
            (&Method::PUT, false) => Op::CreateBucket,
            (&Method::DELETE, false) => Op::DeleteBucket,
            (&Method::POST, false) if has("delete") => Op::DeleteObjects,
            (&Method::GET, true) if has("uploadId") => Op::ListParts,
            (&Method::GET, true) => Op::GetObject,
            (&Method::HEAD, true) => Op::HeadObject,
            (&Method::PUT, true) if has("uploadId") && copies => Op::UploadPartCopy,
            (&Method::PUT, true) if has("uploadId") => Op::UploadPart,
            (&Method::PUT, true) if copies => Op::CopyObject,
            (&Method::PUT, true) => Op::PutObject,
            (&Method::POST, true) if has("uploads") => Op::CreateMultipartUpload,
            (&Method::POST, true) if has("uploadId") => Op::CompleteMultipartUpload,
            (&Method::DELETE, true) if has("uploadId") => Op::AbortMultipartUpload,
            (&Method::DELETE, true) => Op::DeleteObject,
            _ => Op::Other,
        }
    }

    /// True if it changes nothing.
    pub fn reads(self) -> bool {
        use Op::*;
        matches!(
            self,
            ListBuckets
                | HeadBucket
                | GetBucketLocation
                | ListObjectsV2
                | ListObjects
                | ListObjectVersions
                | ListMultipartUploads
                | HeadObject
                | GetObject
                | ListParts
        )
    }
}

/// Subresources that have operations of their own, none of which is about content.
const ASPECTS: [&str; 12] = [
    "acl",
    "attributes",
    "cors",
    "encryption",
    "legal-hold",
    "lifecycle",
    "object-lock",
    "job",
    "retention",
    "tagging",
    "versioning",
    "website",
];

/// What a request is about: percent-decoded, the key as raw bytes.
#[derive(Debug)]
pub struct Target {
    /// The bucket; empty for the service itself.
    pub bucket: String,
    /// The key; empty for the bucket itself.
    pub key: Vec<u8>,
    /// The query's parameters, decoded.
    pub query: Vec<(String, Vec<u8>)>,
}

impl Target {
    /// Of a request in path style.
    pub fn of(uri: &Uri) -> Target {
        let path = uri.path().strip_prefix('/').unwrap_or_default();
        let (bucket, key) = path.split_once('/').unwrap_or((path, ""));
        let pairs = uri.query().unwrap_or_default().split('&').filter(|pair| !pair.is_empty());
        let query = pairs.map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (String::from_utf8_lossy(&decoded(name, true)).into_owned(), decoded(value, true))
        });
        let bucket = String::from_utf8_lossy(&decoded(bucket, false)).into_owned();
        Target { bucket, key: decoded(key, false), query: query.collect() }
    }

    /// A parameter's bytes; `None` if it isn't there.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.query.iter().find(|(n, _)| n == name).map(|(_, value)| &value[..])
    }

    /// A parameter's text; empty if it isn't there, or no text.
    pub fn text(&self, name: &str) -> &str {
        self.bytes(name).and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default()
    }
}

/// Percent-decoded; in a query a `+` is a space.
pub fn decoded(text: &str, plus: bool) -> Vec<u8> {
    if plus && text.contains('+') {
        return percent_decode(text.replace('+', " ").as_bytes()).collect();
    }
    percent_decode(text.as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(method: &str, target: &str, copies: bool) -> &'static str {
        let mut headers = HeaderMap::new();
        if copies {
            headers.insert("x-amz-copy-source", "/b/k".parse().unwrap());
        }
        Op::of(&method.parse().unwrap(), &target.parse().unwrap(), &headers).name()
    }

    #[test]
    fn operations_by_method_and_query() {
        for (method, target, name) in [
            ("GET", "/", "ListBuckets"),
            ("GET", "/b?list-type=2&prefix=uploads", "ListObjectsV2"),
            ("GET", "/b/?list-type=2", "ListObjectsV2"),
            ("GET", "/b?uploads", "ListMultipartUploads"),
            ("POST", "/b?delete", "DeleteObjects"),
            ("PUT", "/b/k", "PutObject"),
            ("PUT", "/b/k?partNumber=1&uploadId=x", "UploadPart"),
            ("POST", "/b/k?uploads=", "CreateMultipartUpload"),
            ("POST", "/b/k?uploadId=x", "CompleteMultipartUpload"),
            ("DELETE", "/b/k?uploadId=x", "AbortMultipartUpload"),
            ("DELETE", "/b/k", "DeleteObject"),
            ("HEAD", "/b/k", "HeadObject"),
            ("GET", "/b/d//k", "GetObject"),
            ("PUT", "/b/k?tagging", "Other"),
        ] {
            assert_eq!(named(method, target, false), name, "{method} {target}");
        }
        assert_eq!(named("PUT", "/b/k", true), "CopyObject");
        assert_eq!(named("PUT", "/b/k?partNumber=1&uploadId=x", true), "UploadPartCopy");
    }

    #[test]
    fn targets_are_decoded() {
        let target = Target::of(&"/b/d//x%20+%25?prefix=a+b%2B&delete".parse().unwrap());
        assert_eq!((&target.bucket[..], &target.key[..]), ("b", &b"d//x +%"[..]));
        assert_eq!((target.text("prefix"), target.bytes("delete"), target.bytes("x")), ("a b+", Some(&b""[..]), None));
    }
}
