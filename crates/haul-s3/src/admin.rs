//! Links and unfinished uploads.

use super::{
    copy,
    error::Fault,
    list, meta, read,
    service::{Call, Service},
    upload,
    xml::{self, Step},
};
use haul_core::{Error, ErrorKind, Key, Mtime, Result};
use haul_store::{Cleanup, UnfinishedWrites};
use http::Method;
use std::time::Duration;

/// Longest life of a presigned link (SigV4).
const LINK_MAX: Duration = Duration::from_secs(7 * 24 * 3600);

/// Copies a file onto itself in another storage class, with all that is kept with it.
pub async fn set_tier(service: &Service, key: &Key, tier: &str) -> Result<()> {
    const OP: &str = "set the storage class";
    if key.is_dir() || key.is_root() {
        return Err(Error::new(ErrorKind::Unsupported, OP, "only files have storage classes").with_key(key));
    }
    let mut meta = read::stat(service, key).await?.meta.unwrap_or_default();
    meta.insert("tier".into(), tier.to_ascii_uppercase());
    copy::touch(service, key, None, Some(&meta), None).await.map(|_| ())
}

/// See [`haul_store::Admin::link`].
pub async fn link(service: &Service, key: &Key, life: Duration) -> Result<String> {
    if key.is_dir() || key.is_root() {
        let message = "S3 can only link to files";
        return Err(Error::new(ErrorKind::Unsupported, "link", message).with_key(key));
    }
    if life > LINK_MAX || life.is_zero() {
        let message = "a link of S3 lasts 7 days at most: use --expire 7d or less";
        return Err(Error::new(ErrorKind::Invalid, "link", message).with_key(key));
    }
    // A link can't be corrected later: the question proves keys and region, and that there is something to link to.
    read::stat(service, key).await?;
    service.presign(&service.place(key)?, life.as_secs().max(1)).await
}

/// See [`haul_store::Admin::cleanup`].
pub async fn cleanup(service: &Service, what: Cleanup) -> Result<UnfinishedWrites> {
    let Cleanup { older_than, dry_run, below } = what;
    if !below.is_root() {
        return Err(Error::new(ErrorKind::Unsupported, "clean up", "S3 is only cleaned up as a whole"));
    }
    let buckets = match &service.root.bucket {
        Some(bucket) => vec![(bucket.clone(), String::new())],
        None => {
            let all = list::buckets(service).await?;
            let name = |e: &haul_core::Entry| String::from_utf8_lossy(e.key.name()).into_owned();
            all.iter().map(|e| (name(e), format!("{}/", name(e)))).collect()
        }
    };
    let before = jiff::Timestamp::now().as_nanosecond() - older_than.as_nanos() as i128;
    let mut found = Vec::new();
    for (bucket, front) in buckets {
        for begun in unfinished(service, &bucket).await? {
            // One whose age is unknown may be under way right now.
            if begun.at.is_none_or(|at| at.0 > before) {
                continue;
            }
            let Some(key) = begun.object.strip_prefix(&service.root.prefix[..]) else { continue };
            let key = service.config.encoding.map_or_else(|| key.to_vec(), |encoding| encoding.decode_path(key));
            let key = Key::new([front.as_bytes(), &key].concat());
            if !dry_run {
                let place = super::address::ObjectAddress::new(bucket.clone(), begun.object.clone());
                upload::abort(service, &place, &begun.id).await.map_err(|f| f.at("clean up", &key))?;
            }
            found.push((key, begun.at));
        }
    }
    Ok(UnfinishedWrites { found, failed: Vec::new() })
}

/// An upload in parts that was begun.
#[derive(Debug, Default, PartialEq)]
struct UnfinishedUpload {
    object: Vec<u8>,
    id: String,
    at: Option<Mtime>,
}

async fn unfinished(service: &Service, bucket: &str) -> Result<Vec<UnfinishedUpload>> {
    let (mut all, mut next): (Vec<UnfinishedUpload>, Option<(Vec<u8>, String)>) = (Vec::new(), None);
    loop {
        let mut call = Call::bucket("ListMultipartUploads", Method::GET, bucket)
            .query("uploads", "")
            .query("encoding-type", "url")
            .raw_query("prefix", &service.root.prefix);
        if let Some((key, id)) = &next {
            call = call.raw_query("key-marker", key).query("upload-id-marker", id);
        }
        let (_, body) = service.ask(call).await.map_err(|f| f.error("clean up"))?;
        let broken = |message: &str| Fault::broken(message).error("clean up");
        let page = parse(&body).ok_or_else(|| broken("the list of uploads can't be read"))?;
        all.extend(page.0);
        if page.1.is_none() {
            return Ok(all);
        }
        if page.1 == next {
            return Err(broken("the list of uploads does not advance"));
        }
        next = page.1;
    }
}

type Marker = (Vec<u8>, String);

fn parse(body: &[u8]) -> Option<(Vec<UnfinishedUpload>, Option<Marker>)> {
    let (mut all, mut current): (Vec<UnfinishedUpload>, Option<UnfinishedUpload>) = (Vec::new(), None);
    let (mut encoded, mut more, mut marker, mut is_list) = (false, None, Marker::default(), false);
    xml::walk(body, |step| match step {
        Step::Open("ListMultipartUploadsResult") => is_list = true,
        Step::Open("Upload") => current = Some(UnfinishedUpload::default()),
        Step::Close("Upload", _) => all.extend(current.take()),
        Step::Close("EncodingType", text) => encoded = text == "url",
        Step::Close("IsTruncated", text) => more = Some(text.trim() == "true"),
        Step::Close("NextKeyMarker", text) => marker.0 = text.as_bytes().to_vec(),
        Step::Close("NextUploadIdMarker", text) => marker.1 = text.to_owned(),
        Step::Close(name, text) => {
            if let Some(begun) = &mut current {
                match name {
                    "Key" => begun.object = text.as_bytes().to_vec(),
                    "UploadId" => begun.id = text.to_owned(),
                    "Initiated" => begun.at = meta::iso_date(text),
                    _ => {}
                }
            }
        }
        Step::Open(_) => {}
    })?;
    if encoded {
        all.iter_mut().for_each(|b| b.object = list::form_decode(&b.object));
        marker.0 = list::form_decode(&marker.0);
    }
    let complete = all.iter().all(|begun| !begun.object.is_empty() && !begun.id.is_empty());
    // Some servers send the truncated flag only with a truncated list, and with it the marker.
    let next = match (more, marker.0.is_empty()) {
        (Some(true), false) => Some(marker),
        (Some(false), _) | (None, true) => None,
        (Some(true), true) | (None, false) => return None,
    };
    (is_list && complete).then_some((all, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uploads_that_were_begun() {
        let xml = b"<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
            <NextKeyMarker>a+b</NextKeyMarker><NextUploadIdMarker>u</NextUploadIdMarker>\
            <Upload><Key>a+b</Key><UploadId>u</UploadId><Initiated>1970-01-01T00:00:01Z</Initiated>\
            <Initiator><ID>x</ID></Initiator></Upload></ListMultipartUploadsResult>";
        let (all, next) = parse(xml).unwrap();
        assert_eq!(all, [UnfinishedUpload { object: b"a b".to_vec(), id: "u".into(), at: Some(Mtime::new(1, 0)) }]);
        assert_eq!(next, Some((b"a b".to_vec(), "u".into())));
        for bad in [
            "<html></html>",
            "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated></ListMultipartUploadsResult>",
            "<ListMultipartUploadsResult><NextKeyMarker>a</NextKeyMarker></ListMultipartUploadsResult>",
            "<ListMultipartUploadsResult><Upload><Key>a</Key></Upload></ListMultipartUploadsResult>",
        ] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
        // rclone's server says no more of it than this.
        assert_eq!(parse(b"<ListMultipartUploadsResult/>"), Some((vec![], None)));
    }
}
