//! What a simulated Cloud Storage holds.

use super::serve::{Refusal, refuse};
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use haul_core::{Algo, Hasher};
use jiff::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Properties of an object that a client may set, and the headers that tell them.
pub const PROPERTIES: [(&str, &str); 5] = [
    ("cacheControl", "cache-control"),
    ("contentDisposition", "content-disposition"),
    ("contentEncoding", "content-encoding"),
    ("contentLanguage", "content-language"),
    ("contentType", "content-type"),
];

/// An object: one generation of it.
#[derive(Clone, Debug)]
pub struct Object {
    /// The bytes, one after another.
    pub content: Vec<Bytes>,
    /// Their number.
    pub size: u64,
    /// Base64; `None` for what was put together of parts.
    pub md5: Option<String>,
    /// Base64.
    pub crc32c: String,
    /// Its version.
    pub generation: u64,
    /// Counts changes of its metadata.
    pub metageneration: u64,
    /// When it was made.
    pub created: Timestamp,
    /// When it was changed.
    pub updated: Timestamp,
    /// [`PROPERTIES`], by their names in JSON.
    pub properties: BTreeMap<String, String>,
    /// The clients' own metadata.
    pub metadata: BTreeMap<String, String>,
    /// Its class.
    pub class: String,
}

impl Object {
    /// Of these bytes; `whole` when they came as one, whose MD5 the service then knows.
    pub fn new(content: Vec<Bytes>, whole: bool) -> Object {
        let algos: &[Algo] = if whole { &[Algo::Md5, Algo::Crc32c] } else { &[Algo::Crc32c] };
        let mut hasher = Hasher::new(algos);
        content.iter().for_each(|piece| hasher.update(piece));
        let hashes = hasher.finish();
        let text = |algo| hashes.get(algo).map(|value| B64.encode(value));
        let now = Timestamp::now();
        Object {
            size: content.iter().map(|piece| piece.len() as u64).sum(),
            md5: text(Algo::Md5),
            crc32c: text(Algo::Crc32c).unwrap_or_default(),
            content,
            generation: 0,
            metageneration: 1,
            created: now,
            updated: now,
            properties: BTreeMap::new(),
            metadata: BTreeMap::new(),
            class: "STANDARD".into(),
        }
    }

    /// Takes over what a client says of it; `patch` where what isn't named stays as it is and null removes.
    ///
    /// Errors: the refusal.
    pub fn describe(&mut self, facts: &Value, patch: bool) -> Result<(), Refusal> {
        if let Some(class) = facts["storageClass"].as_str() {
            self.class = class.to_owned();
        }
        let names = PROPERTIES.iter().map(|(name, _)| *name);
        set(&mut self.properties, facts, names, patch);
        match &facts["metadata"] {
            Value::Null if patch => {}
            Value::Object(given) => {
                set(&mut self.metadata, &facts["metadata"], given.keys().map(String::as_str), patch)
            }
            Value::Null => self.metadata.clear(),
            _ => return Err(refuse(400, "invalid", "Invalid value for: metadata")),
        }
        for (name, own) in [("md5Hash", self.md5.as_deref()), ("crc32c", Some(&*self.crc32c))] {
            if let (Some(told), Some(own), false) = (facts[name].as_str(), own, patch)
                && told != own
            {
                let message = format!("Provided {name} \"{told}\" doesn't match calculated {name} \"{own}\".");
                return Err(refuse(400, "invalid", &message));
            }
        }
        Ok(())
    }

    /// Its metadata, as the service reports them.
    pub fn facts(&self, host: &str, bucket: &str, name: &str) -> Value {
        let path = format!("storage/v1/b/{bucket}/o/{}", utf8_percent_encode(name, NON_ALPHANUMERIC));
        let generation = self.generation;
        let mut facts = json!({
            "kind": "storage#object",
            "id": format!("{bucket}/{name}/{generation}"),
            "selfLink": format!("http://{host}/{path}"),
            "mediaLink": format!("http://{host}/download/{path}?generation={generation}&alt=media"),
            "name": name,
            "bucket": bucket,
            "generation": generation.to_string(),
            "metageneration": self.metageneration.to_string(),
            "size": self.size.to_string(),
            "crc32c": self.crc32c,
            "etag": B64.encode(format!("{generation}-{}", self.metageneration)),
            "storageClass": self.class,
            "timeCreated": time(self.created),
            "updated": time(self.updated),
            "timeStorageClassUpdated": time(self.created),
        });
        if let Some(md5) = &self.md5 {
            facts["md5Hash"] = md5.as_str().into();
        }
        for (name, value) in &self.properties {
            facts[name] = value.as_str().into();
        }
        if !self.metadata.is_empty() {
            facts["metadata"] = json!(self.metadata);
        }
        facts
    }

    /// Bytes `from` up to `to`, not included.
    pub fn range(&self, from: u64, to: u64) -> Vec<Bytes> {
        let mut at = 0;
        let cut = self.content.iter().filter_map(|piece| {
            let len = piece.len() as u64;
            let (first, last) = (from.clamp(at, at + len) - at, to.clamp(at, at + len) - at);
            at += len;
            (first < last).then(|| piece.slice(first as usize..last as usize))
        });
        cut.collect()
    }
}

fn set<'a>(into: &mut BTreeMap<String, String>, facts: &Value, names: impl IntoIterator<Item = &'a str>, patch: bool) {
    if !patch {
        into.clear();
    }
    for name in names {
        match facts.get(name) {
            Some(Value::Null) => drop(into.remove(name)),
            Some(value) => drop(into.insert(name.to_owned(), value.as_str().unwrap_or_default().to_owned())),
            None => {}
        }
    }
}

/// A bucket.
#[derive(Debug)]
pub struct Bucket {
    /// When it was made.
    pub created: Timestamp,
    /// Its content.
    pub objects: BTreeMap<String, Object>,
}

/// Everything that there is.
#[derive(Debug, Default)]
pub struct Space {
    /// Buckets by name.
    pub buckets: BTreeMap<String, Bucket>,
    number: u64,
}

/// The refusal of a bucket that isn't there.
pub fn no_bucket() -> Refusal {
    refuse(404, "notFound", "The specified bucket does not exist.")
}

/// The refusal of an object that isn't there.
pub fn no_object(bucket: &str, name: &str) -> Refusal {
    refuse(404, "notFound", &format!("No such object: {bucket}/{name}"))
}

/// A condition that isn't met.
pub fn unmet() -> Refusal {
    refuse(412, "conditionNotMet", "At least one of the pre-conditions you specified did not hold.")
}

impl Space {
    /// A number that no other call gives, larger than all before.
    pub fn count(&mut self) -> u64 {
        self.number += 1;
        1_700_000_000_000_000 + self.number
    }

    /// Makes a bucket; false when there is one.
    pub fn create(&mut self, name: &str) -> bool {
        let fresh = !self.buckets.contains_key(name);
        if fresh {
            self.buckets.insert(name.to_owned(), Bucket { created: Timestamp::now(), objects: BTreeMap::new() });
        }
        fresh
    }

    /// A bucket.
    ///
    /// Errors: there is none.
    pub fn bucket(&self, name: &str) -> Result<&Bucket, Refusal> {
        self.buckets.get(name).ok_or_else(no_bucket)
    }

    /// An object, of this generation if one is named.
    ///
    /// Errors: there is none.
    pub fn object(&self, bucket: &str, name: &str, generation: &str) -> Result<&Object, Refusal> {
        let found = self.bucket(bucket)?.objects.get(name);
        let named = |object: &&Object| generation.is_empty() || object.generation.to_string() == generation;
        found.filter(named).ok_or_else(|| no_object(bucket, name))
    }

    /// What a condition on the generation says of an object; an empty one holds.
    ///
    /// Errors: it isn't met.
    pub fn meets(&self, bucket: &str, name: &str, condition: &str) -> Result<(), Refusal> {
        let now = self.bucket(bucket)?.objects.get(name).map_or(0, |object| object.generation);
        if condition.is_empty() || condition == now.to_string() { Ok(()) } else { Err(unmet()) }
    }

    /// Puts a new generation of an object; gives it.
    ///
    /// Errors: there is no such bucket.
    pub fn put(&mut self, bucket: &str, name: &str, mut object: Object) -> Result<Object, Refusal> {
        object.generation = self.count();
        let bucket = self.buckets.get_mut(bucket).ok_or_else(no_bucket)?;
        bucket.objects.insert(name.to_owned(), object.clone());
        Ok(object)
    }

    /// Removes an object; false when there is none.
    pub fn remove(&mut self, bucket: &str, name: &str) -> bool {
        self.buckets.get_mut(bucket).is_some_and(|bucket| bucket.objects.remove(name).is_some())
    }
}

/// A bucket's metadata, as the service reports them.
pub fn bucket_facts(host: &str, name: &str, bucket: &Bucket) -> Value {
    let created = time(bucket.created);
    json!({
        "kind": "storage#bucket", "id": name, "name": name, "projectNumber": "1", "metageneration": "1", "location": "US",
        "storageClass": "STANDARD", "etag": "CAE=", "timeCreated": created, "updated": created,
        "selfLink": format!("http://{host}/storage/v1/b/{name}"), "locationType": "multi-region",
    })
}

/// A time as it is told: to the millisecond.
fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// An object with facts of a client that come as headers.
pub fn of_headers(headers: &hyper::HeaderMap) -> Value {
    let text = |value: &hyper::header::HeaderValue| Value::from(String::from_utf8_lossy(value.as_bytes()).into_owned());
    let own = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix("x-goog-meta-")?;
        Some((name.to_owned(), text(value)))
    });
    let mut facts = json!({ "metadata": own.collect::<Map<_, _>>() });
    let class = [("storageClass", "x-goog-storage-class")];
    for (name, header) in PROPERTIES.iter().chain(&class) {
        if let Some(value) = headers.get(*header) {
            facts[*name] = text(value);
        }
    }
    facts
}
