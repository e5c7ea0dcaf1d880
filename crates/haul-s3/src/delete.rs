//! Deleting: a thousand keys a request where the provider can, else one each.

use super::{
    address::ObjectAddress,
    error::{Fault, FaultResult},
    list, read,
    service::{Call, Service, at},
    xml::{self, Step},
};
use futures::{StreamExt, stream};
use haul_core::{Error, ErrorKind, Key, Result, Version};
use http::Method;
use std::collections::{BTreeMap, HashMap};

/// Keys in one request at most; S3's limit.
pub const BATCH: usize = 1000;
/// Requests in flight for one call.
const AT_ONCE: usize = 16;

/// Deletes as [`haul_store::Store::delete`] says. Versions are not looked at: S3 deletes by key.
pub async fn delete(service: &Service, keys: Vec<(Key, Option<Version>)>) -> Vec<Result<()>> {
    let mut answers: Vec<Option<Result<()>>> = keys.iter().map(|_| None).collect();
    let mut single = Vec::new();
    let mut batches: BTreeMap<String, Vec<(usize, String)>> = BTreeMap::new();
    for (at, (key, _)) in keys.iter().enumerate() {
        match service.place(key) {
            Err(error) => answers[at] = Some(Err(error.with_key(key))),
            Ok(place) => match batchable(service, &place) {
                Some(name) => batches.entry(place.bucket).or_default().push((at, name)),
                None => single.push((at, place)),
            },
        }
    }
    let mut requests = Vec::new();
    for (bucket, names) in batches {
        for names in names.chunks(BATCH) {
            match names {
                [(at, name)] => {
                    single.push((*at, ObjectAddress::new(bucket.clone(), name.clone().into_bytes())));
                }
                _ => requests.push((bucket.clone(), names.to_vec())),
            }
        }
    }
    let batched = stream::iter(requests).map(|(bucket, names)| batch(service, bucket, names)).buffer_unordered(AT_ONCE);
    for (at, answer) in batched.collect::<Vec<_>>().await.into_iter().flatten() {
        answers[at] = Some(answer.map_err(|e| e.with_key(&keys[at].0)));
    }
    let singles = stream::iter(single)
        .map(|(at, place)| {
            let key = &keys[at].0;
            async move { (at, one(service, key, &place).await) }
        })
        .buffer_unordered(AT_ONCE);
    for (at, answer) in singles.collect::<Vec<_>>().await {
        answers[at] = Some(answer);
    }
    let unanswered = || Err(Fault::broken("the server did not answer for this key").error("delete"));
    answers.into_iter().map(|a| a.unwrap_or_else(unanswered)).collect()
}

/// The key as text when it can stand in a document: XML has no control characters and no other bytes than UTF-8.
fn batchable(service: &Service, place: &ObjectAddress) -> Option<String> {
    // A directory's marker is verified to be one first.
    if !service.config.provider.batch_delete || place.object.is_empty() || place.object.ends_with(b"/") {
        return None;
    }
    let text = std::str::from_utf8(&place.object).ok()?;
    let plain = |c: char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().all(plain).then(|| text.to_owned())
}

/// The request with object locks bypassed, where the user wants it.
pub fn bypassing<'a>(service: &Service, call: Call<'a>) -> Call<'a> {
    match service.config.bypass_governance {
        true => call.header("x-amz-bypass-governance-retention", "true"),
        false => call,
    }
}

async fn one(service: &Service, key: &Key, place: &ObjectAddress) -> Result<()> {
    if place.object.ends_with(b"/") {
        match read::head(service, key, place, None).await {
            Ok(headers) if read::size(&headers, key)? > 0 => return Err(haul_store::pages::no_marker(key)),
            Err(error) if error.is_missing() => {}
            looked => drop(looked?),
        }
    }
    if !place.object.is_empty() {
        let call = bypassing(service, Call::object("DeleteObject", Method::DELETE, place));
        return match service.ask_for_nothing(call).await {
            Err(fault) if fault.kind == ErrorKind::NotFound => Ok(()),
            other => other.map_err(at("delete", key)),
        };
    }
    // A bucket: of a root that is exactly one, or by its name in the root of all.
    let not_empty = || {
        let message = format!("bucket {} is not empty", place.bucket);
        Error::new(ErrorKind::Exists, "delete", message).with_key(key)
    };
    let empty = match is_empty(service, &place.bucket).await {
        Err(fault) if fault.kind == ErrorKind::DirNotFound => return Ok(()),
        looked => looked.map_err(at("delete", key))?,
    };
    if !empty {
        return Err(not_empty());
    }
    let call = Call::bucket("DeleteBucket", Method::DELETE, &place.bucket);
    match service.ask_for_nothing(call).await {
        Err(fault) if fault.kind == ErrorKind::DirNotFound => Ok(()),
        Err(fault) if fault.code == "BucketNotEmpty" => Err(not_empty()),
        other => other.map_err(at("delete", key)),
    }
}

/// Whether nothing is in a bucket, no old version either. Not every server looks: SeaweedFS deletes a bucket with all that is in it.
async fn is_empty(service: &Service, bucket: &str) -> FaultResult<bool> {
    let call = Call::bucket("ListObjectVersions", Method::GET, bucket).query("versions", "").query("max-keys", "1");
    match service.ask(call).await {
        Ok((_, body)) => {
            if let Some(empty) = holds_no_version(&body) {
                return Ok(empty);
            }
        }
        Err(fault) if fault.kind == ErrorKind::DirNotFound => return Err(fault),
        // It knows no versions, or doesn't show them to everybody.
        Err(_) => {}
    }
    let page = list::page(service, Call::page(&service.config, bucket, b"", 1), b"", None).await?;
    Ok(page.entries.is_empty() && page.next.is_none())
}

/// `None` when this isn't a listing of versions, or doesn't say that it is whole.
fn holds_no_version(body: &[u8]) -> Option<bool> {
    let (mut is_listing, mut empty, mut whole) = (false, true, false);
    xml::walk(body, |step| match step {
        Step::Open("ListVersionsResult") => is_listing = true,
        Step::Open("Version" | "DeleteMarker") => empty = false,
        Step::Close("IsTruncated", text) => whole = text.trim() == "false",
        _ => {}
    })?;
    (is_listing && (whole || !empty)).then_some(empty)
}

async fn batch(service: &Service, bucket: String, names: Vec<(usize, String)>) -> Vec<(usize, Result<()>)> {
    let call = Call::bucket("DeleteObjects", Method::POST, &bucket).query("delete", "").document(document(&names));
    let call = bypassing(service, call);
    let body = match service.ask(call).await {
        Ok((_, body)) => body,
        Err(fault) => {
            let error = fault.error("delete");
            return names.into_iter().map(|(at, _)| (at, Err(error.to_report()))).collect();
        }
    };
    let Some(mut answers) = parse(&body, &bucket) else {
        let cut = || Fault::broken("the server's answer can't be read").error("delete");
        return names.into_iter().map(|(at, _)| (at, Err(cut()))).collect();
    };
    let mut answer = |name: &str| {
        let missing = || Err(Fault::broken("the server did not answer for this key"));
        answers.remove(name).unwrap_or_else(missing).map_err(|fault| fault.error("delete"))
    };
    names.iter().map(|(at, name)| (*at, answer(name))).collect()
}

fn document(names: &[(usize, String)]) -> String {
    let mut xml = String::from("<Delete xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for (_, name) in names {
        xml.push_str("<Object><Key>");
        xml.push_str(&xml::escape(name));
        xml.push_str("</Key></Object>");
    }
    xml.push_str("</Delete>");
    xml
}

type DeleteResults = HashMap<String, std::result::Result<(), Box<Fault>>>;

/// Answers by key. What wasn't there counts as deleted.
fn parse(body: &[u8], bucket: &str) -> Option<DeleteResults> {
    let mut answers = DeleteResults::new();
    let mut is_answer = false;
    let (mut key, mut code, mut message) = (String::new(), String::new(), String::new());
    xml::walk(body, |step| match step {
        Step::Open("DeleteResult") => is_answer = true,
        Step::Open("Deleted" | "Error") => (key, code, message) = Default::default(),
        Step::Close("Key", text) => key = text.to_owned(),
        Step::Close("Code", text) => code = text.to_owned(),
        Step::Close("Message", text) => message = text.to_owned(),
        Step::Close("Deleted", _) => {
            answers.insert(std::mem::take(&mut key), Ok(()));
        }
        Step::Close("Error", _) => {
            let answer = match code.as_str() {
                "NoSuchKey" => Ok(()),
                code => Err(Fault::coded(200, code, &message, Some(bucket))),
            };
            answers.insert(std::mem::take(&mut key), answer);
        }
        _ => {}
    })?;
    is_answer.then_some(answers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_gets_its_own_answer() {
        let xml = b"<DeleteResult><Deleted><Key>a &amp; b</Key></Deleted>\
            <Error><Key>c</Key><Code>AccessDenied</Code><Message>Access Denied</Message></Error>\
            <Error><Key>d</Key><Code>NoSuchKey</Code></Error>\
            <Error><Key>e</Key><Code>SlowDown</Code></Error></DeleteResult>";
        let answers = parse(xml, "b").unwrap();
        assert!(answers["a & b"].is_ok() && answers["d"].is_ok());
        assert_eq!(answers["c"].as_ref().unwrap_err().kind, ErrorKind::Denied);
        assert_eq!(answers["e"].as_ref().unwrap_err().retry, haul_core::Retry::Backoff);
    }

    #[test]
    fn a_bucket_is_empty_where_a_whole_listing_says_so() {
        let listing = |truncated: &str, inner: &str| {
            let text =
                format!("<ListVersionsResult><IsTruncated>{truncated}</IsTruncated>{inner}</ListVersionsResult>");
            holds_no_version(text.as_bytes())
        };
        assert_eq!(listing("false", ""), Some(true));
        assert_eq!(listing("true", ""), None);
        for full in ["<Version><Key>a</Key></Version>", "<DeleteMarker><Key>a</Key></DeleteMarker>"] {
            assert_eq!([listing("false", full), listing("true", full)], [Some(false); 2]);
        }
        assert_eq!(holds_no_version(b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>"), None);
        assert_eq!(holds_no_version(b"<html>"), None);
    }

    #[test]
    fn keys_are_escaped() {
        let xml = document(&[(0, "a<&>\"b".into()), (1, "c".into())]);
        assert!(xml.contains("<Key>a&lt;&amp;&gt;&quot;b</Key>") && xml.contains("<Key>c</Key>"));
    }
}
