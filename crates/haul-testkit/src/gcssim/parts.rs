//! Uploads in parts, by the XML interface: begun, sent in any order, listed, put together or given up.

use super::{
    State,
    serve::{Refusal, Reply, SimRequest},
    space::{Object, of_headers},
};
use base64::{Engine, engine::general_purpose::STANDARD as B64};
use bytes::Bytes;
use haul_core::{Algo, Hashes};
use quick_xml::{Reader, events::Event};
use serde_json::Value;
use std::{collections::BTreeMap, fmt::Write as _};

/// Bytes that all parts but the last have at least, …
const LEAST: u64 = 5 << 20;
/// … and numbers that parts may have.
const NUMBERS: u64 = 10_000;
const SPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

#[derive(Clone, Debug)]
struct Part {
    content: Bytes,
    /// In quotes.
    etag: String,
    time: jiff::Timestamp,
}

#[derive(Debug)]
struct Unfinished {
    bucket: String,
    name: String,
    facts: Value,
    begun: jiff::Timestamp,
    parts: BTreeMap<u64, Part>,
}

/// Those that are under way.
#[derive(Debug, Default)]
pub struct Uploads(BTreeMap<String, Unfinished>);

impl Uploads {
    /// How many there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    fn list(&self, sim_request: &SimRequest, bucket: &str) -> Reply {
        let marker = (sim_request.param("key-marker"), sim_request.param("upload-id-marker"));
        let most = sim_request.param("max-uploads").parse().unwrap_or(1000).min(1000);
        let of_it = self
            .0
            .iter()
            .filter(|(_, upload)| upload.bucket == bucket && upload.name.starts_with(sim_request.param("prefix")));
        let mut all: Vec<_> = of_it.map(|(id, upload)| (&*upload.name, &**id, upload.begun)).collect();
        all.sort();
        all.retain(|(name, id, _)| (*name, *id) > marker);
        let page = &all[..all.len().min(most)];
        let mut inner = format!("<Bucket>{bucket}</Bucket><MaxUploads>{most}</MaxUploads>");
        if let Some((name, id, _)) = page.last() {
            let name = escaped(name);
            let _ = write!(inner, "<NextKeyMarker>{name}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>");
        }
        let _ = write!(inner, "<IsTruncated>{}</IsTruncated>", page.len() < all.len());
        for (name, id, begun) in page {
            let name = escaped(name);
            let _ = write!(
                inner,
                "<Upload><Key>{name}</Key><UploadId>{id}</UploadId><Initiated>{begun}</Initiated></Upload>"
            );
        }
        xml("ListMultipartUploadsResult", &inner)
    }
}

/// A refusal as the XML interface words it.
fn refuse(status: u16, code: &str, message: &str) -> Refusal {
    let text = format!(
        "<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{message}</Message><Details>{message}</Details></Error>"
    );
    Box::new(Reply::text(status, "application/xml; charset=UTF-8", text))
}

fn xml(root: &str, inner: &str) -> Reply {
    let text = format!("<?xml version='1.0' encoding='UTF-8'?><{root} xmlns='{SPACE}'>{inner}</{root}>");
    Reply::text(200, "application/xml; charset=UTF-8", text)
}

fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

impl State {
    /// Answers a request of the XML interface.
    ///
    /// Errors: the refusal.
    pub fn xml(&mut self, kind: &'static str, sim_request: &SimRequest, hashes: Hashes) -> Result<Reply, Refusal> {
        let (bucket, name) = match &sim_request.path[..] {
            [bucket, rest @ ..] => (bucket.clone(), rest.join("/")),
            [] => (String::new(), String::new()),
        };
        let conditional = |name: &str| name.starts_with("x-goog-if-") || name.starts_with("if-");
        if sim_request.headers.keys().any(|name| conditional(name.as_str())) {
            let message = "A header you provided implies functionality that is not implemented.";
            return Err(refuse(400, "NotImplemented", message));
        }
        if kind == "parts.begin" {
            self.space
                .bucket(&bucket)
                .map_err(|_| refuse(404, "NoSuchBucket", "The specified bucket does not exist."))?;
            let id = format!("parts-{}", self.space.count());
            let inner = format!("<Bucket>{bucket}</Bucket><Key>{}</Key><UploadId>{id}</UploadId>", escaped(&name));
            let facts = of_headers(&sim_request.headers);
            self.uploads
                .0
                .insert(id, Unfinished { bucket, name, facts, begun: jiff::Timestamp::now(), parts: BTreeMap::new() });
            return Ok(xml("InitiateMultipartUploadResult", &inner));
        }
        if kind == "parts.uploads" {
            return Ok(self.uploads.list(sim_request, &bucket));
        }
        let id = sim_request.param("uploadId");
        let upload = self.uploads.0.get_mut(id).filter(|upload| (&upload.bucket, &upload.name) == (&bucket, &name));
        let Some(upload) = upload else {
            return Err(refuse(404, "NoSuchUpload", "The requested upload was not found."));
        };
        match kind {
            "parts.put" => {
                let reply = upload.put(sim_request, &hashes)?;
                self.came += sim_request.body.len() as u64;
                Ok(reply)
            }
            "parts.list" => Ok(upload.list(sim_request, id)),
            "parts.abort" => {
                self.uploads.0.remove(id);
                Ok(Reply::empty(204))
            }
            "parts.complete" => {
                let mut object = upload.complete(&sim_request.body)?;
                object.describe(&upload.facts, false)?;
                let object = self.space.put(&bucket, &name, object)?;
                self.uploads.0.remove(id);
                let etag = B64.encode(object.generation.to_string());
                let inner = format!(
                    "<Location>http://{}/{bucket}/{}</Location><Bucket>{bucket}</Bucket><Key>{}</Key><ETag>\"{etag}\"</ETag>",
                    sim_request.host(),
                    escaped(&name),
                    escaped(&name)
                );
                let reply = xml("CompleteMultipartUploadResult", &inner);
                Ok(reply
                    .with("x-goog-hash", format!("crc32c={}", object.crc32c))
                    .with("x-goog-generation", object.generation.to_string()))
            }
            _ => Err(refuse(405, "MethodNotAllowed", "The specified method is not allowed against this resource.")),
        }
    }
}

impl Unfinished {
    fn put(&mut self, sim_request: &SimRequest, hashes: &Hashes) -> Result<Reply, Refusal> {
        let number = sim_request.param("partNumber").parse().ok().filter(|number| (1..=NUMBERS).contains(number));
        let number = number.ok_or_else(|| refuse(400, "InvalidArgument", "Invalid argument: partNumber"))?;
        let own = |algo| B64.encode(hashes.get(algo).unwrap_or_default());
        let hashes_sent = sim_request.headers.get_all("x-goog-hash").iter().filter_map(|value| value.to_str().ok());
        let mut hashes_sent: Vec<(&str, &str)> =
            hashes_sent.flat_map(|line| line.split(',')).filter_map(|h| h.trim().split_once('=')).collect();
        hashes_sent.extend(sim_request.header("content-md5").map(|md5| ("md5", md5)));
        for (algo, value) in hashes_sent {
            let (own, code) = match algo {
                "md5" => (own(Algo::Md5), "BadDigest"),
                "crc32c" => (own(Algo::Crc32c), "CrcMismatch"),
                _ => return Err(refuse(400, "InvalidDigest", "The hash you specified is not valid.")),
            };
            if value != own {
                let message = format!("The {algo} you specified ({value}) did not match what we computed ({own}).");
                return Err(refuse(400, code, &message));
            }
        }
        let etag = format!("\"{}\"", hashes.hex(Algo::Md5).unwrap_or_default());
        let part = Part { content: sim_request.body.clone(), etag: etag.clone(), time: jiff::Timestamp::now() };
        self.parts.insert(number, part);
        let reply = Reply::empty(200).with("etag", etag);
        Ok(reply
            .with("x-goog-hash", format!("crc32c={}", own(Algo::Crc32c)))
            .with("x-goog-hash", format!("md5={}", own(Algo::Md5))))
    }

    fn list(&self, sim_request: &SimRequest, id: &str) -> Reply {
        let number = |name: &str, usual: u64| sim_request.param(name).parse().unwrap_or(usual);
        let (marker, most) = (number("part-number-marker", 0), number("max-parts", 1000).min(1000));
        let after: Vec<_> = self.parts.range(marker + 1..).collect();
        let page = &after[..after.len().min(most as usize)];
        let mut inner = format!(
            "<Bucket>{}</Bucket><Key>{}</Key><UploadId>{id}</UploadId><StorageClass>STANDARD</StorageClass><PartNumberMarker>{marker}</PartNumberMarker>",
            self.bucket,
            escaped(&self.name)
        );
        if let Some((last, _)) = page.last() {
            let _ = write!(inner, "<NextPartNumberMarker>{last}</NextPartNumberMarker>");
        }
        let _ = write!(inner, "<MaxParts>{most}</MaxParts><IsTruncated>{}</IsTruncated>", page.len() < after.len());
        for (number, part) in page {
            let _ = write!(
                inner,
                "<Part><PartNumber>{number}</PartNumber><LastModified>{}</LastModified><ETag>{}</ETag><Size>{}</Size></Part>",
                part.time,
                escaped(&part.etag),
                part.content.len()
            );
        }
        xml("ListPartsResult", &inner)
    }

    /// The object that the parts of a list make.
    fn complete(&self, list: &[u8]) -> Result<Object, Refusal> {
        let list = parse(list).filter(|list| !list.is_empty());
        let list =
            list.ok_or_else(|| refuse(400, "MalformedCompleteMultipartUpload", "The list of parts can't be read."))?;
        if list.windows(2).any(|two| two[0].0 >= two[1].0) {
            return Err(refuse(400, "InvalidPartOrder", "The list of parts was not in ascending order."));
        }
        let mut content = Vec::with_capacity(list.len());
        for (at, (number, etag)) in list.iter().enumerate() {
            let part = self.parts.get(number).filter(|part| part.etag.trim_matches('"') == etag.trim_matches('"'));
            let part = part
                .ok_or_else(|| refuse(400, "InvalidPart", "One or more of the specified parts could not be found."))?;
            if at + 1 < list.len() && (part.content.len() as u64) < LEAST {
                let message = "Your proposed upload is smaller than the minimum object size specified.";
                return Err(refuse(400, "EntityTooSmall", message));
            }
            content.push(part.content.clone());
        }
        Ok(Object::new(content, false))
    }
}

/// Number and ETag of each part.
fn parse(list: &[u8]) -> Option<Vec<(u64, String)>> {
    let mut reader = Reader::from_str(std::str::from_utf8(list).ok()?);
    let (mut text, mut number, mut etag, mut found) = (String::new(), None, None, Vec::new());
    loop {
        match reader.read_event().ok()? {
            Event::Start(_) => text.clear(),
            Event::Text(more) => text.push_str(&more),
            Event::GeneralRef(entity) => text.push_str(quick_xml::escape::resolve_predefined_entity(&entity)?),
            Event::End(end) => match end.name().as_ref() {
                "PartNumber" => number = text.trim().parse().ok(),
                "ETag" => etag = Some(text.trim().to_owned()),
                "Part" => found.push((number.take()?, etag.take()?)),
                _ => {}
            },
            Event::Eof => return Some(found),
            _ => {}
        }
    }
}
