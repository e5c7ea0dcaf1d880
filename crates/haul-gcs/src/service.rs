//! Where keys are, and the addresses of requests.

use crate::options::Config;
use haul_core::{Key, Result};
use haul_oauth::{Api, Call, ServiceResult};
use haul_store::{
    Caps,
    bucket::{Root, ServiceWords},
};
use http::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use serde_json::json;
use std::{collections::BTreeSet, sync::Arc};

const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Text as it stands in a part of a path or in a query.
pub fn encoded(text: impl AsRef<[u8]>) -> String {
    percent_encode(text.as_ref(), KEPT).to_string()
}

/// Google Cloud Storage's names for things in messages.
pub const WORDS: ServiceWords =
    ServiceWords { service: "Google Cloud Storage", bucket: "bucket", encoding: "--gcs-encoding" };

/// An object in a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectAddress {
    pub bucket: String,
    /// Empty for the bucket itself.
    pub object: String,
}

/// Where a key is. In a root of all buckets its first part is the bucket.
///
/// Errors: `Invalid` for a name that the service can't have.
pub fn place(root: &Root, key: &Key) -> Result<ObjectAddress> {
    let (bucket, object) = root.place(key)?;
    // An encoding would replace odd characters, but not a wrong name.
    let odd = |why| Err(root.refused_as_it_is(key, why));
    let wrong = |why| Err(root.refused(key, why));
    let Ok(object) = String::from_utf8(object) else { return odd("it isn't UTF-8") };
    if object.contains(['\r', '\n']) {
        return odd("it has a line break");
    }
    if object.len() > 1024 {
        return wrong("it is longer than 1024 bytes");
    }
    if matches!(&*object, "." | "..") || object.starts_with(".well-known/acme-challenge/") {
        return wrong("it is reserved");
    }
    Ok(ObjectAddress { bucket, object })
}

/// Everything that requests need.
#[derive(Debug)]
pub struct Service {
    pub config: Config,
    pub root: Root,
    pub caps: Caps,
    pub locator: String,
    pub api: Arc<Api>,
    /// Buckets that were missing and have been made.
    pub made: tokio::sync::Mutex<BTreeSet<String>>,
}

impl Service {
    /// Where `key` is.
    ///
    /// Errors: `Invalid`, as [`place()`].
    pub fn place(&self, key: &Key) -> Result<ObjectAddress> {
        place(&self.root, key)
    }

    fn url(&self, interface: &str, path: &str, query: &[(&str, &str)]) -> String {
        let project = Some(("userProject", &*self.config.user_project)).filter(|(_, project)| !project.is_empty());
        let all = query.iter().copied().chain(project).filter(|(_, value)| !value.is_empty());
        let query: Vec<String> = all.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        let mark = if query.is_empty() { "" } else { "?" };
        format!("{}{interface}/storage/v1{path}{mark}{}", self.config.endpoint, query.join("&"))
    }

    /// A request to the service itself.
    pub fn call(&self, kind: &'static str, method: Method, path: &str, query: &[(&str, &str)]) -> Call {
        Call::new(kind, method, self.url("", path, query))
    }

    /// A request about a bucket; with `/o`, about its contents.
    pub fn of_bucket(
        &self,
        kind: &'static str,
        method: Method,
        bucket: &str,
        more: &str,
        query: &[(&str, &str)],
    ) -> Call {
        self.call(kind, method, &format!("/b/{}{more}", encoded(bucket)), query)
    }

    /// A request to an object.
    pub fn of_object(&self, kind: &'static str, method: Method, place: &ObjectAddress, query: &[(&str, &str)]) -> Call {
        self.call(kind, method, &path(place), query)
    }

    /// The path and query of a request to an object, as a request of several has them.
    pub fn target(&self, place: &ObjectAddress, query: &[(&str, &str)]) -> String {
        let url = self.url("", &path(place), query);
        let host = url.find("://").map_or(0, |at| at + 3);
        url[host..].find('/').map_or_else(String::new, |at| url[host + at..].to_owned())
    }

    /// Several requests in one.
    pub fn batch(&self) -> Call {
        Call::new("Batch", Method::POST, format!("{}/batch/storage/v1", self.config.endpoint))
    }

    /// A request that begins an upload into a bucket.
    pub fn upload(&self, kind: &'static str, place: &ObjectAddress, query: &[(&str, &str)]) -> Call {
        let path = format!("/b/{}/o", encoded(&place.bucket));
        Call::new(kind, Method::POST, self.url("/upload", &path, query))
    }

    /// Does what writes into a bucket, which is created if it is missing.
    pub async fn in_bucket<T, F: Future<Output = ServiceResult<T>>>(
        &self,
        bucket: &str,
        send: impl Fn() -> F,
    ) -> ServiceResult<T> {
        match send().await {
            Err(refused) if refused.fault.status == 404 && !self.config.no_check_bucket => {
                let mut made = self.made.lock().await;
                if !made.contains(bucket) {
                    match self.create(bucket).await {
                        Ok(()) => {}
                        // Without permission to create it, report the original refusal.
                        Err(_) => return Err(refused),
                    }
                    made.insert(bucket.to_owned());
                }
                drop(made);
                send().await
            }
            other => other,
        }
    }

    /// Creates a bucket; already being ours is success.
    pub async fn create(&self, bucket: &str) -> ServiceResult<()> {
        let mut question = json!({ "name": bucket });
        for (name, value) in [("location", &self.config.location), ("storageClass", &self.config.storage_class)] {
            if !value.is_empty() {
                question[name] = value.as_str().into();
            }
        }
        let call = self.call("InsertBucket", Method::POST, "/b", &[("project", &self.config.project)]).json(&question);
        match self.api.ask(&call).await {
            // Somebody's: if it isn't ours, the next request says so.
            Err(refused) if refused.fault.status == 409 => Ok(()),
            other => other.map(|_| ()),
        }
    }
}

/// The path of an object's address.
pub fn path(place: &ObjectAddress) -> String {
    format!("/b/{}/o/{}", encoded(&place.bucket), encoded(&place.object))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{ErrorKind, encoding::Encoding};

    #[test]
    fn names_that_cannot_be_are_refused() {
        let root = Root::parse(&WORDS, b"/box/d").unwrap();
        assert_eq!(
            place(&root, &Key::new("a b")).unwrap(),
            ObjectAddress { bucket: "box".into(), object: "d/a b".into() }
        );
        for bad in [&b"a\nb"[..], b"a\xff", &[b'x'; 1030]] {
            assert_eq!(place(&root, &Key::new(bad)).unwrap_err().kind(), ErrorKind::Invalid);
        }
        let all = Root::parse(&WORDS, b"").unwrap();
        assert_eq!(
            place(&all, &Key::new("box/x")).unwrap(),
            ObjectAddress { bucket: "box".into(), object: "x".into() }
        );
        assert_eq!(place(&all, &Key::new("box/..")).unwrap_err().kind(), ErrorKind::Invalid);
        let message = place(&root, &Key::new(b"a\xff")).unwrap_err().message().to_owned();
        let wanted = "it isn't UTF-8; rename it, or replace characters as rclone does (--gcs-encoding)";
        assert_eq!(message, format!("Google Cloud Storage can't hold this name: {wanted}"));
    }

    #[test]
    fn names_are_encoded_below_the_bucket() {
        let encoding = Encoding::chosen("Slash,CrLf,InvalidUtf8,Dot").unwrap();
        let root = Root::parse(&WORDS, b"/box/d\n").unwrap().encoded(encoding).unwrap();
        let object = |key: &[u8]| place(&root, &Key::new(key)).map(|place| place.object);
        assert_eq!(object(b"a\nb\xff/").unwrap(), "d␊/a␊b‛FF/");
        assert_eq!(object("‛".as_bytes()).unwrap(), "d␊/‛‛");
        assert_eq!(object(b"").unwrap(), "d␊/");
        for (bad, why) in [
            (&b"a//b"[..], "a part of it is empty"),
            (b"x/./y", "with this encoding it would come back as another"),
            (&[b'\n'; 400], "it is longer than 1024 bytes"),
        ] {
            let message = object(bad).unwrap_err().message().to_owned();
            assert_eq!(message, format!("Google Cloud Storage can't hold this name: {why}; rename it"));
        }
        let all = Root::parse(&WORDS, b"").unwrap().encoded(encoding).unwrap();
        assert_eq!(
            place(&all, &Key::new("box/a\nb")).unwrap(),
            ObjectAddress { bucket: "box".into(), object: "a␊b".into() }
        );
        assert_eq!(Root::parse(&WORDS, b"box/a//b").unwrap().encoded(encoding).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
