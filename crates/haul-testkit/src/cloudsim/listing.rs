//! Pages of listings: which keys they have, and how they are written.

use super::{
    operation::{Op, Target},
    quirks::Quirk,
    settings::Settings,
    space::{Bucket, Facts, Space},
    xml,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD as B64};
use std::{collections::BTreeMap, fmt::Write as _};

/// From when on something written now is listed.
pub fn listed_from(settings: &Settings, now: u64) -> u64 {
    now + u64::try_from(settings.list_delay.as_millis()).unwrap_or(u64::MAX >> 1)
}

/// Which page of which listing.
#[derive(Debug, Default)]
pub struct ListingQuery<'a> {
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
pub fn page(space: &Space, wanted: &ListingQuery<'_>, mut row: impl FnMut(Row<'_>)) -> Option<Vec<u8>> {
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

/// A key between its slashes: by these a server that goes directory by directory orders.
type Elements = Vec<Vec<u8>>;

/// The same in the order of a server that goes directory by directory.
pub fn page_by_directory(space: &Space, wanted: &ListingQuery<'_>, mut row: impl FnMut(Row<'_>)) -> Option<Vec<u8>> {
    let elements = |key: &[u8]| -> Elements { key.split(|b| *b == b'/').map(<[u8]>::to_vec).collect() };
    let mut rows: BTreeMap<Elements, (Vec<u8>, Option<Facts>)> = BTreeMap::new();
    let everything =
        ListingQuery { prefix: wanted.prefix, most: usize::MAX, now: wanted.now, ..ListingQuery::default() };
    page(space, &everything, |found| {
        let Row::Key(key, facts) = found else { return };
        let rest = &key[wanted.prefix.len()..];
        let folded = rest.iter().position(|b| *b == b'/').filter(|_| wanted.delimiter == b"/");
        let name = folded.map_or(key, |at| &key[..=wanted.prefix.len() + at]);
        rows.insert(elements(name), (name.to_vec(), folded.is_none().then_some(facts)));
    });
    let after = wanted.after.map(elements);
    let later: Vec<_> =
        rows.into_iter().filter(|(place, _)| after.as_ref().is_none_or(|after| place > after)).collect();
    for (_, (name, facts)) in later.iter().take(wanted.most) {
        match facts {
            Some(facts) => row(Row::Key(name, *facts)),
            None => row(Row::Folded(name)),
        }
    }
    let last = later.get(wanted.most.checked_sub(1)?).filter(|_| later.len() > wanted.most)?;
    Some(last.1.0.clone())
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

/// The document that answers ListObjects and ListObjectsV2; `None` when the continuation token isn't ours or `max-keys` is no
/// number.
pub fn answer(op: Op, bucket: &Bucket, target: &Target, settings: &Settings, now: u64) -> Option<String> {
    let (most, quirks) = (settings.page, settings.quirks);
    let second = op == Op::ListObjectsV2;
    let encoded = target.text("encoding-type") == "url" && !quirks.has(Quirk::PlainListings);
    let token_given = target.bytes("continuation-token").filter(|_| second);
    let resumed = match token_given {
        Some(given) => Some(from_token(std::str::from_utf8(given).ok()?)?),
        None => target.bytes(if second { "start-after" } else { "marker" }).map(<[u8]>::to_vec),
    };
    let max_keys = match target.bytes("max-keys") {
        None => 1000,
        Some(_) => target.text("max-keys").parse::<usize>().ok()?,
    };
    let wanted = ListingQuery {
        prefix: target.bytes("prefix").unwrap_or_default(),
        delimiter: target.bytes("delimiter").unwrap_or_default(),
        after: resumed.as_deref().filter(|after| !after.is_empty()),
        most: max_keys.min(most),
        now,
    };
    let owner = !second || target.text("fetch-owner") == "true";
    let (mut rows, mut folded, mut count) = (String::with_capacity(wanted.most.min(1000) * 256), String::new(), 0);
    // Where the first two keys' elements end.
    let mut ends = Vec::new();
    let mut date = (u64::MAX, String::new());
    let row = |row: Row<'_>| {
        count += 1;
        match row {
            Row::Folded(name) => {
                folded.push_str("<CommonPrefixes><Prefix>");
                let from = folded.len();
                xml::key(name, encoded, &mut folded);
                if encoded && quirks.has(Quirk::EncodedDelimiter) {
                    let whole = folded[from..].replace('/', "%2F");
                    folded.replace_range(from.., &whole);
                }
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
                if ends.len() < 2 {
                    ends.push(rows.len());
                }
            }
        }
    };
    let next = match quirks.has(Quirk::ByDirectory) {
        true => page_by_directory(&bucket.space(), &wanted, row),
        false => page(&bucket.space(), &wanted, row),
    };
    let mut text = format!("{}<ListBucketResult {}><Name>", xml::HEAD, xml::SPACE);
    xml::escape(&target.bucket, &mut text);
    text.push_str("</Name>");
    element("Prefix", wanted.prefix, encoded, &mut text);
    if !wanted.delimiter.is_empty() {
        element("Delimiter", wanted.delimiter, encoded, &mut text);
    }
    if let [first, second] = ends[..]
        && quirks.has(Quirk::SwappedKeys)
    {
        let swapped = [&rows[first..second], &rows[..first]].concat();
        rows.replace_range(..second, &swapped);
    }
    let _ = write!(text, "<MaxKeys>{}</MaxKeys>", max_keys.min(most));
    if !quirks.has(Quirk::NoIsTruncated) {
        let _ = write!(text, "<IsTruncated>{}</IsTruncated>", next.is_some());
    }
    if encoded {
        text.push_str("<EncodingType>url</EncodingType>");
    }
    if second {
        if !quirks.has(Quirk::NoKeyCount) {
            let _ = write!(text, "<KeyCount>{}</KeyCount>", count + usize::from(quirks.has(Quirk::WrongKeyCount)));
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cloudsim::{
        computed_keys,
        synthetic::{Shape, SyntheticContent},
    };
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The rows of all pages, keys and common prefixes together.
    fn listed(space: &Space, prefix: &[u8], delimiter: &[u8], after: Option<&[u8]>, most: usize) -> Vec<Vec<u8>> {
        let (mut rows, mut resumed) = (Vec::new(), after.map(<[u8]>::to_vec));
        loop {
            let wanted = ListingQuery { prefix, delimiter, after: resumed.as_deref(), most, now: 0 };
            let before = rows.len();
            let next = page(space, &wanted, |row| match row {
                Row::Key(name, _) | Row::Folded(name) => rows.push(name.to_vec()),
            });
            assert!(rows.len() - before <= most);
            match next {
                None => return rows,
                Some(next) => {
                    assert_eq!((rows.len() - before, rows.last()), (most, Some(&next)), "a page with more is full");
                    resumed = Some(next);
                }
            }
        }
    }

    /// What a listing has, by its definition: every key looked at.
    fn defined(keys: &BTreeSet<Vec<u8>>, prefix: &[u8], delimiter: &[u8], after: Option<&[u8]>) -> Vec<Vec<u8>> {
        let fold = |key: &[u8]| {
            let rest = key.strip_prefix(prefix)?;
            let at = rest.windows(delimiter.len().max(1)).position(|window| window == delimiter);
            Some(at.map_or(key.to_vec(), |at| key[..prefix.len() + at + delimiter.len()].to_vec()))
        };
        let later = keys.iter().filter(|key| after.is_none_or(|after| key[..] > *after));
        let rows: BTreeSet<_> = later.filter_map(|key| fold(key)).collect();
        // A marker after a common prefix is after all keys below that prefix.
        rows.into_iter().filter(|row| after != Some(row)).collect()
    }

    fn shape() -> impl Strategy<Value = Shape> {
        prop_oneof![Just(Shape::Flat), Just(Shape::Tree), Just(Shape::Dvc)]
    }

    proptest! {
        #[test]
        fn pages_together_are_the_listing(
            (keys, shape, most) in (0u64..400, shape(), 1usize..60),
            stored in proptest::collection::vec("[a-f/]{1,4}", 0..8),
            gone in proptest::collection::vec(0u64..400, 0..80),
            (prefix, after) in (0usize..20, 0usize..20),
            delimiter in prop_oneof![Just(""), Just("/"), Just("0"), Just("e/")],
            places in (0u64..400, 0u64..400, any::<bool>()),
        ) {
            let made = SyntheticContent { keys, shape, size: 1 };
            let mut space = Space::new(Some(made));
            let mut all: BTreeSet<Vec<u8>> = (0..keys).map(|i| made.key(i).into_bytes()).collect();
            for i in gone.iter().filter(|i| **i < keys) {
                space.remove(made.key(*i).as_bytes());
                all.remove(made.key(*i).as_bytes());
            }
            for key in &stored {
                space.put(key.as_bytes(), computed_keys::stored(&computed_keys::ObjectSpec::default()));
                all.insert(key.clone().into_bytes());
            }
            // A prefix and a place taken from keys that there are, cut anywhere.
            let cut = |i: u64, len: usize| made.key(i % keys.max(1)).into_bytes().into_iter().take(len).collect::<Vec<_>>();
            let (prefix, after) = (cut(places.0, prefix), cut(places.1, after * 2));
            let after = (places.2 && !after.is_empty()).then_some(&after[..]);
            let delimiter = delimiter.as_bytes();
            prop_assert_eq!(
                listed(&space, &prefix, delimiter, after, most),
                defined(&all, &prefix, delimiter, after)
            );
        }
    }

    #[test]
    fn a_page_of_ten_million_keys_is_found_at_once() {
        // Deleted keys at the front are no burden either.
        let made = SyntheticContent { keys: 10_000_000, shape: Shape::Dvc, size: 1 };
        let mut space = Space::new(Some(made));
        (0..100_000).for_each(|i| space.remove(made.key(i).as_bytes()));
        let wanted = ListingQuery { most: 1000, ..ListingQuery::default() };
        let mut rows = Vec::new();
        page(&space, &wanted, |row| {
            if let Row::Key(name, _) = row {
                rows.push(String::from_utf8_lossy(name).into_owned());
            }
        });
        assert_eq!((rows.len(), &rows[0]), (1000, &made.key(100_000)));
        let folders = listed(&space, b"files/md5/", b"/", None, 1000);
        assert_eq!(folders.len(), 254, "those of the first keys are gone");
    }
}
