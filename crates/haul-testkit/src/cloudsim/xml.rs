//! The documents of S3: reading requests, and the pieces that answers are written from.

use jiff::Timestamp;
use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};
use std::fmt::Write as _;

/// Begins every document.
pub const HEAD: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
/// S3's namespace.
pub const SPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

/// Walks over the ends of all elements of a document: their names and the text since the last beginning or end.
/// `None` when it isn't XML.
pub fn walk(xml: &[u8], mut closed: impl FnMut(&str, &str)) -> Option<()> {
    let mut reader = Reader::from_str(std::str::from_utf8(xml).ok()?);
    let mut text = String::new();
    loop {
        match reader.read_event().ok()? {
            Event::Start(_) => text.clear(),
            Event::End(end) => {
                let name = end.name();
                let name: &str = name.as_ref();
                closed(name.rsplit_once(':').map_or(name, |(_, local)| local), &text);
                text.clear();
            }
            Event::Text(more) => text.push_str(&more),
            Event::CData(more) => text.push_str(&more),
            Event::GeneralRef(r) => match r.resolve_char_ref().ok()? {
                Some(c) => text.push(c),
                None => text.push_str(resolve_predefined_entity(&r)?),
            },
            Event::Eof => return Some(()),
            _ => {}
        }
    }
}

/// Writes text into a document. Control characters become references, as S3 writes them (XML 1.0 has none for most
/// of them: clients ask for `encoding-type=url`).
pub fn escape(text: &str, out: &mut String) {
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            c if c.is_control() => {
                // Writing to a String can't fail.
                let _ = write!(out, "&#{};", u32::from(c));
            }
            c => out.push(c),
        }
    }
}

/// Writes a key into a document: as AWS encodes it (a space is `+`), or as text.
pub fn key(key: &[u8], encoded: bool, out: &mut String) {
    if !encoded {
        return escape(&String::from_utf8_lossy(key), out);
    }
    for byte in key {
        if byte.is_ascii_alphanumeric() || b"-_.*/".contains(byte) {
            out.push(char::from(*byte));
        } else if *byte == b' ' {
            out.push('+');
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// A time as documents have it.
pub fn iso(ms: u64) -> String {
    let time = Timestamp::from_millisecond(ms as i64).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}

/// A time as headers have it.
pub fn http_date(ms: u64) -> String {
    let time = Timestamp::from_millisecond(ms as i64).unwrap_or_default();
    time.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string()
}

/// The keys of a request that deletes many, and whether it wants to hear of failures only.
pub fn deleted(xml: &[u8]) -> Option<(Vec<String>, bool)> {
    let (mut keys, mut quiet, mut root) = (Vec::new(), false, String::new());
    walk(xml, |name, text| {
        match name {
            "Key" => keys.push(text.to_owned()),
            "Quiet" => quiet = text.trim() == "true",
            _ => {}
        }
        name.clone_into(&mut root);
    })?;
    (root == "Delete" && !keys.is_empty()).then_some((keys, quiet))
}

/// The region that a request which makes a bucket names; `Some(None)` if it names none, `None` when it can't be read.
pub fn location(xml: &[u8]) -> Option<Option<String>> {
    let (mut place, mut root) = (None, String::new());
    walk(xml, |name, text| {
        if name == "LocationConstraint" {
            place = Some(text.trim().to_owned()).filter(|place| !place.is_empty());
        }
        name.clone_into(&mut root);
    })?;
    (root == "CreateBucketConfiguration").then_some(place)
}

/// A part as a request that completes an upload names it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// Its number.
    pub number: u32,
    /// Its ETag without quotes.
    pub tag: String,
    /// Its checksums: the elements' names and values.
    pub sums: Vec<(String, String)>,
}

/// The parts that a request that completes an upload names. `None` when it isn't such a document: each part has a number and
/// an ETag, and there are 10,000 at most.
pub fn parts(xml: &[u8]) -> Option<Vec<Named>> {
    let (mut parts, mut part, mut root, mut wrong) = (Vec::new(), Named::default(), String::new(), false);
    walk(xml, |name, text| {
        match name {
            "PartNumber" => {
                part.number = text.trim().parse().ok().unwrap_or_else(|| {
                    wrong = true;
                    0
                })
            }
            "ETag" => part.tag = text.trim().trim_matches('"').to_owned(),
            sum if sum.starts_with("Checksum") => part.sums.push((sum.to_owned(), text.trim().to_owned())),
            "Part" => {
                wrong |= part.tag.is_empty();
                parts.push(std::mem::take(&mut part));
            }
            _ => {}
        }
        name.clone_into(&mut root);
    })?;
    (!wrong && root == "CompleteMultipartUpload" && parts.len() <= 10_000).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read() {
        let xml = b"<Delete xmlns=\"x\"><Object><Key> a&amp;&#10;b</Key></Object><Object><Key>c</Key></Object>\
            <Quiet>true</Quiet></Delete>";
        assert_eq!(deleted(xml), Some((vec![" a&\nb".into(), "c".into()], true)));
        let xml = b"<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&quot;x-1&quot;</ETag></Part>\
            <Part><ETag>y</ETag><PartNumber>2</PartNumber></Part></CompleteMultipartUpload>";
        let named = parts(xml).unwrap();
        assert_eq!(named.iter().map(|part| (part.number, &part.tag[..])).collect::<Vec<_>>(), [(1, "x-1"), (2, "y")]);
        assert_eq!(parts(b"<a><b></a>"), None);
    }

    #[test]
    fn keys_and_times_are_written() {
        let mut out = String::new();
        key("a b/ü&\n".as_bytes(), true, &mut out);
        assert_eq!(out, "a+b/%C3%BC%26%0A");
        out.clear();
        key("a b/ü&\n".as_bytes(), false, &mut out);
        assert_eq!(out, "a b/ü&amp;&#10;");
        assert_eq!(iso(1_704_164_645_120), "2024-01-02T03:04:05.120Z");
        assert_eq!(http_date(1_704_164_645_120), "Tue, 02 Jan 2024 03:04:05 GMT");
    }
}
