//! Keys whose content is computed: of any size, with no storage, made without sending a byte.

use super::{
    etag::Tag,
    pattern,
    report::now_ms,
    space::{Piece, Stored},
};
use base64::{Engine as _, engine::general_purpose::STANDARD as B64};
use hyper::header::{HeaderName, HeaderValue};

/// What to make.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectSpec {
    /// Bytes.
    pub size: u64,
    /// The pattern's seed; the content is the pattern's beginning.
    pub seed: u64,
    /// `x-amz-meta-mtime`: seconds since 1970, with a fraction or not.
    pub mtime: Option<String>,
    /// With the true MD5 as ETag and as `x-amz-meta-md5chksum`, which must look at every byte (about 1.5 s a GB).
    pub md5: bool,
}

/// A key's content, to be put into a bucket.
pub fn stored(wanted: &ObjectSpec) -> Stored {
    let ObjectSpec { size, seed, .. } = *wanted;
    let crc = pattern::crc(seed, 0, size);
    let md5 = wanted.md5.then(|| pattern::md5(seed, 0, size));
    let pairs = [("x-amz-meta-mtime", wanted.mtime.clone()), ("x-amz-meta-md5chksum", md5.map(|md5| B64.encode(md5)))];
    let meta = pairs
        .into_iter()
        .filter_map(|(name, value)| Some((HeaderName::from_static(name), HeaderValue::try_from(value?).ok()?)));
    Stored {
        size,
        crc: Some(crc),
        tag: md5.map_or_else(|| Tag::cheap(crc, size, 1), Tag::md5),
        modified: now_ms(),
        listed: 0,
        meta: meta.collect(),
        sum: None,
        pieces: vec![Piece::Pattern { seed, start: 0, len: size }],
    }
}
