//! Answers of status 207: what they say of each resource. Pure. Whatever is missing from one, or says two things at once, makes it no
//! answer at all.

use haul_core::{Algo, Hashes, Mtime, hash::from_hex};
use haul_store::web;
use quick_xml::{
    NsReader,
    escape::resolve_predefined_entity,
    events::Event,
    name::{Namespace, ResolveResult},
};

/// An answer's facts about one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// Its address, as it stands there.
    pub href: String,
    /// The status of the resource as a whole, where it has one.
    pub status: Option<u16>,
    /// Properties that could be told.
    pub props: Props,
    /// The statuses of its groups of properties.
    pub groups: Vec<u16>,
}

/// The properties that haul asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Props {
    /// `resourcetype` was told …
    pub has_type: bool,
    /// … and is a collection.
    pub is_dir: bool,
    /// `getcontentlength`.
    pub size: Option<u64>,
    /// `getlastmodified`.
    pub modified: Option<Mtime>,
    /// `getetag`, without the mark of a weak one.
    pub etag: Option<String>,
    /// `oc:checksums`.
    pub hashes: Hashes,
    /// `quota-used-bytes`.
    pub used: Option<u64>,
    /// `quota-available-bytes`.
    pub free: Option<u64>,
}

const DAV: &[u8] = b"DAV:";
const OWNCLOUD: &[u8] = b"http://owncloud.org/ns";

/// The resources of an answer; `None` when it isn't a whole multistatus.
pub fn read(xml: &[u8]) -> Option<Vec<Response>> {
    let mut reader = NsReader::from_str(std::str::from_utf8(xml).ok()?);
    let mut walk = Walk::default();
    loop {
        match reader.read_resolved_event().ok()? {
            (space, Event::Start(e)) => walk.open(&full(space, e.local_name().as_ref())),
            (space, Event::Empty(e)) => {
                walk.open(&full(space, e.local_name().as_ref()));
                walk.close()?;
            }
            (_, Event::End(_)) => walk.close()?,
            (_, Event::Text(t)) => walk.text.push_str(&t),
            (_, Event::CData(t)) => walk.text.push_str(&t),
            (_, Event::GeneralRef(r)) => match r.resolve_char_ref().ok()? {
                Some(c) => walk.text.push(c),
                None => walk.text.push_str(resolve_predefined_entity(&r)?),
            },
            (_, Event::Eof) => return (walk.ended && walk.path.is_empty()).then_some(walk.responses),
            _ => {}
        }
    }
}

/// A name with a short form of its namespace; of others than ours nothing is wanted.
fn full(space: ResolveResult<'_>, local: &str) -> String {
    match space {
        ResolveResult::Bound(Namespace(name)) if name.as_ref() as &[u8] == DAV => local.to_owned(),
        ResolveResult::Bound(Namespace(name)) if name.as_ref() as &[u8] == OWNCLOUD => format!("oc:{local}"),
        _ => format!("?:{local}"),
    }
}

#[derive(Default)]
struct Walk {
    path: Vec<String>,
    text: String,
    responses: Vec<Response>,
    now: Response,
    /// Of the group of properties that is being read.
    props: Props,
    status: Option<u16>,
    ended: bool,
}

impl Walk {
    fn open(&mut self, name: &str) {
        self.text.clear();
        self.path.push(name.to_owned());
        match self.at().as_str() {
            "multistatus/response" => self.now = Response::default(),
            "multistatus/response/propstat" => (self.props, self.status) = (Props::default(), None),
            _ => {}
        }
    }

    fn at(&self) -> String {
        self.path.join("/")
    }

    /// `None` when what ends can't be right.
    fn close(&mut self) -> Option<()> {
        let (path, text) = (self.at(), std::mem::take(&mut self.text));
        self.path.pop()?;
        let text = text.trim();
        let rest = match path.strip_prefix("multistatus") {
            Some(rest) => rest.strip_prefix("/response").unwrap_or(if rest.is_empty() { "end" } else { rest }),
            None => return Some(()),
        };
        match rest {
            "end" => self.ended = true,
            "/href" if self.now.href.is_empty() => self.now.href = text.to_owned(),
            // Several in one response share its status: none of our questions is answered so.
            "/href" => return None,
            "/status" => self.now.status = Some(status(text)?),
            "/propstat/status" => self.status = Some(status(text)?),
            "/propstat" => {
                let status = self.status?;
                if status == 200 {
                    self.now.props = std::mem::take(&mut self.props).or(std::mem::take(&mut self.now.props));
                }
                self.now.groups.push(status);
            }
            "" => {
                let is_complete = self.now.status.is_some() || !self.now.groups.is_empty();
                (is_complete && !self.now.href.is_empty()).then_some(())?;
                self.responses.push(std::mem::take(&mut self.now));
            }
            _ => {
                if let Some(name) = rest.strip_prefix("/propstat/prop/") {
                    self.prop(name, text)?;
                }
            }
        }
        Some(())
    }

    fn prop(&mut self, name: &str, text: &str) -> Option<()> {
        let props = &mut self.props;
        match name {
            "resourcetype" => props.has_type = true,
            "resourcetype/collection" => props.is_dir = true,
            "getcontentlength" if !text.is_empty() => props.size = Some(text.parse().ok()?),
            "getlastmodified" => props.modified = web::date(text),
            "getetag" => props.etag = web::etag(text),
            "quota-used-bytes" => props.used = text.parse().ok(),
            // Nextcloud reports a negative number where there is no limit.
            "quota-available-bytes" => props.free = text.parse().ok(),
            "oc:checksums/oc:checksum" => checksums(text, &mut props.hashes),
            _ => {}
        }
        Some(())
    }
}

impl Props {
    /// With what `other` tells and this doesn't.
    fn or(self, other: Props) -> Props {
        let mut hashes = self.hashes;
        hashes.merge(&other.hashes);
        Props {
            has_type: self.has_type || other.has_type,
            is_dir: self.is_dir || other.is_dir,
            size: self.size.or(other.size),
            modified: self.modified.or(other.modified),
            etag: self.etag.or(other.etag),
            hashes,
            used: self.used.or(other.used),
            free: self.free.or(other.free),
        }
    }
}

/// `HTTP/1.1 200 OK`.
fn status(line: &str) -> Option<u16> {
    let mut words = line.split_whitespace();
    words.next()?.starts_with("HTTP/").then_some(())?;
    words.next()?.parse().ok().filter(|code| (100..600).contains(code))
}

/// `SHA1:… MD5:… ADLER32:…`.
pub fn checksums(text: &str, hashes: &mut Hashes) {
    for word in text.split_whitespace() {
        let Some((name, value)) = word.split_once(':') else { continue };
        let algo = match name.to_ascii_uppercase().as_str() {
            "SHA1" => Algo::Sha1,
            "MD5" => Algo::Md5,
            _ => continue,
        };
        if let Some(value) = from_hex(&value.to_ascii_lowercase()).filter(|value| value.len() == algo.size()) {
            hashes.set(algo, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEXTCLOUD: &str = r#"<?xml version="1.0"?><d:multistatus xmlns:d="DAV:" xmlns:s="http://sabredav.org/ns" xmlns:o="http://owncloud.org/ns">
      <d:response><d:href>/dav/a%20b/</d:href><d:propstat><d:prop><d:resourcetype><d:collection/></d:resourcetype>
        <d:getlastmodified>Tue, 02 Jan 2024 03:04:05 GMT</d:getlastmodified><d:quota-used-bytes>7</d:quota-used-bytes>
        <d:quota-available-bytes>-3</d:quota-available-bytes></d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat>
        <d:propstat><d:prop><d:getcontentlength/></d:prop><d:status>HTTP/1.1 404 Not Found</d:status></d:propstat></d:response>
      <d:response><d:href>/dav/a%20b/x&amp;y</d:href><d:propstat><d:prop><d:resourcetype/><d:getetag>W/"e&quot;"</d:getetag>
        <d:getcontentlength>12</d:getcontentlength><o:checksums><o:checksum>SHA1:da39a3ee5e6b4b0d3255bfef95601890afd80709 MD5:bad</o:checksum></o:checksums>
        <s:getcontentlength>x</s:getcontentlength></d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response></d:multistatus>"#;

    #[test]
    fn what_servers_say() {
        let found = read(NEXTCLOUD.as_bytes()).unwrap();
        assert_eq!(
            (&*found[0].href, found[0].props.is_dir, &found[0].groups[..]),
            ("/dav/a%20b/", true, &[200, 404][..])
        );
        assert_eq!((found[0].props.used, found[0].props.free), (Some(7), None));
        assert_eq!(found[0].props.modified, Some(Mtime::new(1_704_164_645, 0)));
        let file = &found[1];
        assert_eq!((&*file.href, file.props.size, file.props.is_dir), ("/dav/a%20b/x&y", Some(12), false));
        assert_eq!(file.props.etag.as_deref(), Some("\"e\"\""));
        let sha1 = "da39a3ee5e6b4b0d3255bfef95601890afd80709";
        assert_eq!(
            (file.props.hashes.hex(Algo::Sha1).as_deref(), file.props.hashes.get(Algo::Md5)),
            (Some(sha1), None)
        );
    }

    #[test]
    fn an_answer_that_lacks_something_is_none() {
        let of = |inner: &str| read(format!("<multistatus xmlns=\"DAV:\">{inner}</multistatus>").as_bytes());
        let prop = |inner: &str| of(&format!("<response><href>/f</href><propstat>{inner}</propstat></response>"));
        let ok = "<status>HTTP/1.1 200 OK</status>";
        assert_eq!(of("").unwrap(), []);
        assert!(prop(&format!("<prop><resourcetype/></prop>{ok}")).is_some());
        assert!(
            of("<response><href>/f</href><status>HTTP/1.1 423 Locked</status></response>").unwrap()[0].status
                == Some(423)
        );
        for bad in [
            "<prop><resourcetype/></prop>".to_owned(),
            "<prop/><status>fine</status>".to_owned(),
            format!("<prop><getcontentlength>many</getcontentlength></prop>{ok}"),
            format!("<prop><getcontentlength>-1</getcontentlength></prop>{ok}"),
        ] {
            assert!(prop(&bad).is_none(), "{bad}");
        }
        assert!(of("<response><href>/f</href></response>").is_none(), "no status");
        assert!(of(&format!("<response><propstat><prop/>{ok}</propstat></response>")).is_none(), "no address");
        assert!(of("<response><href>/f</href><href>/g</href><status>HTTP/1.1 200 OK</status></response>").is_none());
        for bad in [&NEXTCLOUD[..NEXTCLOUD.len() - 20], "", "<html><body>404</body></html>", "{}"] {
            assert!(read(bad.as_bytes()).is_none(), "{bad}");
        }
        let other = "<multistatus xmlns=\"other\"></multistatus>";
        assert!(read(other.as_bytes()).is_none(), "another namespace");
    }
}
