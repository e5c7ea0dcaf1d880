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

/// Writes a key into a document: percent-encoded but for slashes, or as text.
pub fn key(key: &[u8], encoded: bool, out: &mut String) {
    if !encoded {
        return escape(&String::from_utf8_lossy(key), out);
    }
    for byte in key {
        if byte.is_ascii_alphanumeric() || b"-_.~/".contains(byte) {
            out.push(char::from(*byte));
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
    let (mut keys, mut quiet) = (Vec::new(), false);
    walk(xml, |name, text| match name {
        "Key" => keys.push(text.to_owned()),
        "Quiet" => quiet = text.trim() == "true",
        _ => {}
    })?;
    Some((keys, quiet))
}

/// The parts that a request that completes an upload names: numbers and ETags without quotes.
pub fn parts(xml: &[u8]) -> Option<Vec<(u32, String)>> {
    let (mut parts, mut number, mut tag) = (Vec::new(), 0, String::new());
    walk(xml, |name, text| match name {
        "PartNumber" => number = text.trim().parse().unwrap_or(0),
        "ETag" => tag = text.trim().trim_matches('"').to_owned(),
        "Part" => parts.push((std::mem::take(&mut number), std::mem::take(&mut tag))),
        _ => {}
    })?;
    Some(parts)
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
        assert_eq!(parts(xml), Some(vec![(1, "x-1".into()), (2, "y".into())]));
        assert_eq!(parts(b"<a><b></a>"), None);
    }

    #[test]
    fn keys_and_times_are_written() {
        let mut out = String::new();
        key("a b/ü&\n".as_bytes(), true, &mut out);
        assert_eq!(out, "a%20b/%C3%BC%26%0A");
        out.clear();
        key("a b/ü&\n".as_bytes(), false, &mut out);
        assert_eq!(out, "a b/ü&amp;&#10;");
        assert_eq!(iso(1_704_164_645_120), "2024-01-02T03:04:05.120Z");
        assert_eq!(http_date(1_704_164_645_120), "Tue, 02 Jan 2024 03:04:05 GMT");
    }
}
