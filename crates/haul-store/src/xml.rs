//! Reading answers: one walk over the elements, which the callers turn into their own shapes.

use quick_xml::{Reader, escape::resolve_predefined_entity, events::Event};

/// A step of the walk.
pub enum Step<'a> {
    /// An element begins.
    Open(&'a str),
    /// An element ends; with the text since the last beginning or end.
    Close(&'a str, &'a str),
}

/// Walks over all elements of `xml`; namespaces are ignored. `None` when it isn't XML.
pub fn walk(xml: &[u8], mut step: impl FnMut(Step<'_>)) -> Option<()> {
    let xml = std::str::from_utf8(xml).ok()?;
    let mut reader = Reader::from_str(xml);
    let (mut text, mut depth) = (String::new(), 0usize);
    loop {
        match reader.read_event().ok()? {
            Event::Start(e) => {
                depth += 1;
                text.clear();
                step(Step::Open(local(e.name().as_ref())));
            }
            Event::End(e) => {
                depth = depth.checked_sub(1)?;
                step(Step::Close(local(e.name().as_ref()), &text));
                text.clear();
            }
            Event::Empty(e) => {
                let name = e.name();
                step(Step::Open(local(name.as_ref())));
                step(Step::Close(local(name.as_ref()), ""));
                text.clear();
            }
            Event::Text(t) => text.push_str(&t),
            Event::CData(t) => text.push_str(&t),
            Event::GeneralRef(r) => match r.resolve_char_ref().ok()? {
                Some(c) => text.push(c),
                None => text.push_str(resolve_predefined_entity(&r)?),
            },
            Event::Eof => return (depth == 0).then_some(()),
            _ => {}
        }
    }
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// The text of the first element of this name, anywhere.
pub fn text_of(xml: &[u8], name: &str) -> Option<String> {
    let mut found = None;
    walk(xml, |step| {
        if let Step::Close(n, text) = step
            && n == name
            && found.is_none()
        {
            found = Some(text.to_owned());
        }
    })?;
    found
}

/// Text as it stands in an element; line ends are kept by writing them as references.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\r' => out.push_str("&#13;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_and_namespaces() {
        let xml =
            br#"<?xml version="1.0"?><a xmlns:x="u"><x:ETag>&quot;ab&#34;&#x0A;</x:ETag><Key> a&amp;b </Key><E/></a>"#;
        assert_eq!(text_of(xml, "ETag").as_deref(), Some("\"ab\"\n"));
        assert_eq!(text_of(xml, "Key").as_deref(), Some(" a&b "));
        assert_eq!(text_of(xml, "E").as_deref(), Some(""));
        assert_eq!(text_of(xml, "Missing"), None);
    }

    #[test]
    fn what_is_cut_or_no_xml_is_refused() {
        for bad in [&b"<a><b>"[..], b"<a></b>", b"\xff", b"<a>&nosuch;</a>"] {
            assert!(walk(bad, |_| ()).is_none(), "{}", bad.escape_ascii());
        }
    }

    #[test]
    fn escaped_text_reads_back() {
        let text = "a<b>&\"c\"\r\n";
        assert_eq!(text_of(format!("<K>{}</K>", escape(text)).as_bytes(), "K").as_deref(), Some(text));
    }
}
