//! Pages of listings: which keys they have, and how they are written.

use super::{
    operation::{Op, Target},
    space::{Bucket, Facts, Space},
    xml,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use std::fmt::Write as _;

/// Which page of which listing.
#[derive(Debug, Default)]
pub struct Wanted<'a> {
    /// Only keys that begin with this.
    pub prefix: &'a [u8],
    /// Keys that have this after the prefix are folded into what is up to it; empty for none.
    pub delimiter: &'a [u8],
    /// Only keys after this one. If it is what keys would be folded into, those aren't listed either.
    pub after: Option<&'a [u8]>,
    /// Keys and folded ones together, at most.
    pub most: usize,
    /// Milliseconds since 1970: keys that appear later are left out.
    pub now: u64,
}

/// A line of a page.
#[derive(Debug)]
pub enum Row<'a> {
    /// A key.
    Key(&'a [u8], Facts),
    /// A common prefix.
    Folded(&'a [u8]),
}

/// Gives the rows of a page in order; the answer is the last one's key if there are more.
pub fn page(space: &Space, wanted: &Wanted<'_>, mut row: impl FnMut(Row<'_>)) -> Option<Vec<u8>> {
    let folds = |key: &[u8]| -> Option<usize> {
        let (rest, delimiter) = (key.get(wanted.prefix.len()..)?, wanted.delimiter);
        if delimiter.is_empty() {
            return None;
        }
        let at = match delimiter {
            [byte] => rest.iter().position(|b| b == byte),
            _ => rest.windows(delimiter.len()).position(|window| window == delimiter),
        }?;
        Some(wanted.prefix.len() + at + delimiter.len())
    };
    let mut place = wanted.prefix.to_vec();
    if let Some(after) = wanted.after
        && after >= wanted.prefix
    {
        let folded = after.starts_with(wanted.prefix) && folds(after) == Some(after.len());
        place = if folded { beyond(after)? } else { [after, b"\0"].concat() };
    }
    if wanted.most == 0 {
        return None;
    }
    let (mut keys, mut count, mut last) = (space.from(&place), 0, Vec::new());
    loop {
        enum Seen {
            Done(bool),
            Took(Option<Vec<u8>>),
        }
        let seen = keys.next(wanted.now, |key, facts| {
            if !key.starts_with(wanted.prefix) {
                return Seen::Done(false);
            }
            if count == wanted.most {
                return Seen::Done(true);
            }
            let end = folds(key);
            let name = &key[..end.unwrap_or(key.len())];
            row(if end.is_some() { Row::Folded(name) } else { Row::Key(name, facts) });
            if count + 1 == wanted.most {
                last = name.to_vec();
            }
            Seen::Took(end.map(|_| name.to_vec()))
        });
        match seen {
            None | Some(Seen::Done(false)) => return None,
            Some(Seen::Done(true)) => return Some(last),
            Some(Seen::Took(folded)) => {
                count += 1;
                // Past all keys below it, however many there are.
                let next = folded.map(|name| beyond(&name));
                match next {
                    None => {}
                    Some(Some(place)) => keys = space.from(&place),
                    Some(None) => return None,
                }
            }
        }
    }
}

/// The first key after all that begin with this one; `None` when there is none.
fn beyond(prefix: &[u8]) -> Option<Vec<u8>> {
    let at = prefix.iter().rposition(|b| *b < 0xff)?;
    let mut next = prefix[..=at].to_vec();
    next[at] += 1;
    Some(next)
}

/// A token: opaque to clients, the last row's key to us.
fn token(key: &[u8]) -> String {
    format!("t{}", B64.encode(key))
}

fn from_token(token: &str) -> Option<Vec<u8>> {
    B64.decode(token.strip_prefix('t')?).ok()
}

/// The document that answers ListObjects and ListObjectsV2; `None` when the continuation token isn't ours.
pub fn answer(op: Op, bucket: &Bucket, target: &Target, most: usize, now: u64) -> Option<String> {
    let second = op == Op::ListObjectsV2;
    let encoded = target.text("encoding-type") == "url";
    let token_given = target.bytes("continuation-token").filter(|_| second);
    let resumed = match token_given {
        Some(given) => Some(from_token(std::str::from_utf8(given).ok()?)?),
        None => target.bytes(if second { "start-after" } else { "marker" }).map(<[u8]>::to_vec),
    };
    let asked = target.text("max-keys").parse::<usize>().unwrap_or(1000);
    let wanted = Wanted {
        prefix: target.bytes("prefix").unwrap_or_default(),
        delimiter: target.bytes("delimiter").unwrap_or_default(),
        after: resumed.as_deref().filter(|after| !after.is_empty()),
        most: asked.min(most),
        now,
    };
    let owner = !second || target.text("fetch-owner") == "true";
    let (mut rows, mut folded, mut count) = (String::with_capacity(wanted.most.min(1000) * 256), String::new(), 0);
    let mut date = (u64::MAX, String::new());
    let next = page(&bucket.space(), &wanted, |row| {
        count += 1;
        match row {
            Row::Folded(name) => {
                folded.push_str("<CommonPrefixes><Prefix>");
                xml::key(name, encoded, &mut folded);
                folded.push_str("</Prefix></CommonPrefixes>");
            }
            Row::Key(name, facts) => {
                if date.0 != facts.modified {
                    date = (facts.modified, xml::iso(facts.modified));
                }
                rows.push_str("<Contents><Key>");
                xml::key(name, encoded, &mut rows);
                // Writing to a String can't fail.
                let _ = write!(
                    rows,
                    "</Key><LastModified>{}</LastModified><ETag>&quot;{}&quot;</ETag><Size>{}</Size>{}\
                     <StorageClass>STANDARD</StorageClass></Contents>",
                    date.1,
                    facts.tag.text(),
                    facts.size,
                    if owner { OWNER } else { "" },
                );
            }
        }
    });
    let mut text = format!("{}<ListBucketResult {}><Name>", xml::HEAD, xml::SPACE);
    xml::escape(&target.bucket, &mut text);
    text.push_str("</Name>");
    element("Prefix", wanted.prefix, encoded, &mut text);
    if !wanted.delimiter.is_empty() {
        element("Delimiter", wanted.delimiter, encoded, &mut text);
    }
    let _ = write!(text, "<MaxKeys>{}</MaxKeys><IsTruncated>{}</IsTruncated>", asked.min(most), next.is_some());
    if encoded {
        text.push_str("<EncodingType>url</EncodingType>");
    }
    if second {
        let _ = write!(text, "<KeyCount>{count}</KeyCount>");
        if let Some(given) = token_given {
            element("ContinuationToken", given, false, &mut text);
        } else if let Some(after) = &resumed {
            element("StartAfter", after, encoded, &mut text);
        }
        if let Some(next) = &next {
            element("NextContinuationToken", token(next).as_bytes(), false, &mut text);
        }
    } else {
        element("Marker", resumed.as_deref().unwrap_or_default(), encoded, &mut text);
        if let Some(next) = &next {
            element("NextMarker", next, encoded, &mut text);
        }
    }
    text.push_str(&rows);
    text.push_str(&folded);
    text.push_str("</ListBucketResult>");
    Some(text)
}

const OWNER: &str = "<Owner><ID>cloudsim</ID><DisplayName>cloudsim</DisplayName></Owner>";

fn element(name: &str, value: &[u8], encoded: bool, out: &mut String) {
    // Writing to a String can't fail.
    let _ = write!(out, "<{name}>");
    xml::key(value, encoded, out);
    let _ = write!(out, "</{name}>");
}
