//! Index pages. Pure: bytes in, names out.

use haul_core::Mtime;
use haul_store::{tree::is_odd, web};
use serde::Deserialize;
use std::collections::BTreeMap;
use url::Url;

/// Titles of index pages, in lower case: Apache, nginx and lighttpd; Python, rclone and Jetty; Node's servers.
const TITLES: [&str; 6] =
    ["index of", "directory listing", "listing of", "listing for", "folder listing", "directory: "];

/// A name on a page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// It ends in `/`.
    pub is_dir: bool,
    /// Bytes, where the page says exactly how many.
    pub size: Option<u64>,
    /// When it was changed, where the page says it to the second.
    pub modified: Option<Mtime>,
}

/// The children that the page at `at` shows, by name; `None` when it isn't an index page, or not a whole one.
pub fn read(at: &Url, content_type: &str, page: &[u8]) -> Option<BTreeMap<Vec<u8>, Link>> {
    if content_type.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json") {
        return json(page);
    }
    html(at, &String::from_utf8_lossy(page))
}

/// An entry as nginx or Caddy writes it.
#[derive(Deserialize)]
struct Item {
    name: String,
    #[serde(rename = "type")]
    kind: Option<String>,
    is_dir: Option<bool>,
    size: Option<u64>,
    mtime: Option<String>,
    mod_time: Option<String>,
}

fn json(page: &[u8]) -> Option<BTreeMap<Vec<u8>, Link>> {
    let items: Option<Vec<Item>> = serde_json::from_slice(page).ok()?;
    let mut links = BTreeMap::new();
    // Caddy says `null` of an empty directory.
    for item in items.unwrap_or_default() {
        let is_dir = match (item.is_dir, item.kind.as_deref()) {
            (Some(is_dir), _) => is_dir,
            (None, Some("directory")) => true,
            (None, Some("file")) => false,
            (None, Some(_)) => continue,
            (None, None) => return None,
        };
        let name = item.name.strip_suffix('/').unwrap_or(&item.name).as_bytes().to_vec();
        if is_odd(&name) || name.contains(&b'/') {
            return None;
        }
        let stamp = |text: &str| text.parse::<jiff::Timestamp>().ok().map(|t| Mtime::new(t.as_second(), 0));
        let modified = item.mod_time.as_deref().and_then(stamp).or_else(|| item.mtime.as_deref().and_then(web::date));
        let size = item.size.filter(|_| !is_dir);
        links.insert(name, Link { is_dir, size, modified });
    }
    Some(links)
}

fn html(at: &Url, page: &str) -> Option<BTreeMap<Vec<u8>, Link>> {
    let lower = page.to_ascii_lowercase();
    // A page that was cut ends before that.
    lower.contains("</html").then_some(())?;
    let heading = |tag: &str| {
        let from = lower.find(&format!("<{tag}"))?;
        let end = lower[from..].find(&format!("</{tag}"))?;
        Some(lower[from..from + end].to_owned())
    };
    let is_named = ["title", "h1", "h2"].iter().filter_map(|tag| heading(tag));
    let is_index = is_named.into_iter().any(|text| TITLES.iter().any(|title| text.contains(title)));
    (is_index || names_its_folder(at, page)).then_some(())?;
    let base = Url::options().base_url(Some(at));
    let mut links: BTreeMap<Vec<u8>, Link> = BTreeMap::new();
    let mut rest = page;
    while let Some((href, after)) = next_link(rest)? {
        rest = after;
        let Some((name, is_dir)) = base.parse(&href).ok().and_then(|to| child(at, &to, &href)) else { continue };
        // Only nginx shows exact bytes after the date; others round, and nginx does too if configured to.
        let size = if is_dir { None } else { nginx_size(rest) };
        links.entry(name).or_insert(Link { is_dir, size, modified: None });
    }
    Some(links)
}

/// True for a page whose title is the path of its directory: rclone's and Caddy's.
fn names_its_folder(at: &Url, page: &str) -> bool {
    let title = page.split_once("<title>").and_then(|(_, rest)| rest.split_once("</title>"));
    let Some(title) = title.map(|(title, _)| unescaped(title.trim())).filter(|title| title.contains('/')) else {
        return false;
    };
    let path = web::decoded(at.path());
    let path = path.strip_suffix(b"/").unwrap_or(&path);
    let title = title.as_bytes().strip_suffix(b"/").unwrap_or(title.as_bytes());
    path.strip_suffix(title)
        .is_some_and(|before| title.is_empty() == path.is_empty() || before.ends_with(b"/") || title.starts_with(b"/"))
}

/// The name of what a link leads to, if it is directly in the directory at `at`.
fn child(at: &Url, to: &Url, href: &str) -> Option<(Vec<u8>, bool)> {
    // Apache's links that sort a page have nothing but a query; a `?` in a name is written `%3F`.
    if href.is_empty() || to.query().is_some() || to.fragment().is_some() || !web::same_host(at, to) {
        return None;
    }
    let rest = below(at, to)?;
    let (name, is_dir) = rest.strip_suffix('/').map_or((rest, false), |name| (name, true));
    if name.contains('/') {
        return None;
    }
    let name = web::decoded(name);
    (!is_odd(&name) && !name.contains(&b'/')).then_some((name, is_dir))
}

/// The rest of a path after that of the directory at `at`. Servers differ in which characters they escape.
fn below<'to>(at: &Url, to: &'to Url) -> Option<&'to str> {
    let dir = at.path().strip_suffix('/').unwrap_or(at.path());
    dir.split('/').try_fold(to.path(), |rest, part| {
        let (first, rest) = rest.split_once('/')?;
        (web::decoded(first) == web::decoded(part)).then_some(rest)
    })
}

/// The value of the next `href` of an `<a>`, and what comes after its tag. `Some(None)` when there are no more, `None` when the page
/// can't be read: a link that is missed would be a file that is missing.
fn next_link(page: &str) -> Option<Option<(String, &str)>> {
    let bytes = page.as_bytes();
    let mut at = 0;
    while let Some(open) = page[at..].find('<').map(|open| at + open) {
        let rest = &page[open..];
        if rest.starts_with("<!--") {
            at = open + rest.find("-->")? + 3;
            continue;
        }
        if !bytes.get(open + 1).is_some_and(|b| b.is_ascii_alphabetic() || matches!(b, b'/' | b'!' | b'?')) {
            // Text.
            at = open + 1;
            continue;
        }
        let end = tag_end(bytes, open)?;
        let tag = &page[open + 1..end];
        at = end + 1;
        let name =
            tag.split(|c: char| c.is_ascii_whitespace() || c == '/').next().unwrap_or_default().to_ascii_lowercase();
        match name.as_str() {
            // The contents of these elements aren't tags.
            "script" | "style" => {
                let close = format!("</{name}");
                at += page[at..].to_ascii_lowercase().find(&close)?;
            }
            "a" => {
                if let Some(href) = attribute(&tag[1..], "href") {
                    return Some(Some((unescaped(href.trim()), &page[at..])));
                }
            }
            _ => {}
        }
    }
    Some(None)
}

/// Where a tag ends: at the `>` that stands in no quotes.
fn tag_end(bytes: &[u8], open: usize) -> Option<usize> {
    let mut quote = None;
    for (at, byte) in bytes.iter().enumerate().skip(open + 1) {
        match (quote, *byte) {
            (None, b'>') => return Some(at),
            (None, q @ (b'"' | b'\'')) => quote = Some(q),
            (Some(q), b) if b == q => quote = None,
            _ => {}
        }
    }
    None
}

/// The value of an attribute, with or without quotes.
fn attribute<'a>(mut tag: &'a str, wanted: &str) -> Option<&'a str> {
    loop {
        tag = tag.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '/');
        if tag.is_empty() {
            return None;
        }
        let end = tag.find(|c: char| c == '=' || c.is_ascii_whitespace()).unwrap_or(tag.len());
        let name = &tag[..end];
        tag = tag[end..].trim_start();
        let Some(value) = tag.strip_prefix('=') else {
            if end == 0 {
                return None;
            }
            continue;
        };
        let value = value.trim_start();
        let (value, rest) = match value.chars().next() {
            Some(quote @ ('"' | '\'')) => value[1..].split_once(quote)?,
            _ => value.split_at(value.find(|c: char| c.is_ascii_whitespace()).unwrap_or(value.len())),
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        tag = rest;
    }
}

/// HTML's references as what they stand for: those that servers write into addresses.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let Some(end) = rest.find(';').filter(|end| *end <= 10) else {
            out.push('&');
            rest = &rest[1..];
            continue;
        };
        let number = |text: &str, radix| u32::from_str_radix(text, radix).ok().and_then(char::from_u32);
        let name = &rest[1..end];
        let known = match name {
            "amp" => Some('&'),
            "lt" => Some('<'),
            "gt" => Some('>'),
            "quot" => Some('"'),
            "apos" => Some('\''),
            _ => match name.strip_prefix('#') {
                Some(n) if n.starts_with(['x', 'X']) => number(&n[1..], 16),
                Some(n) => number(n, 10),
                None => None,
            },
        };
        match known {
            Some(c) => out.push(c),
            None => out.push_str(&rest[..=end]),
        }
        rest = &rest[end + 1..];
    }
    out.push_str(rest);
    out
}

/// The bytes behind a link on nginx's page, `NAME</a>   02-Jan-2024 03:04    12345`, where they are exact.
fn nginx_size(after: &str) -> Option<u64> {
    let line = after.split_once("</a>")?.1.lines().next()?;
    let mut words = line.split_whitespace();
    let (date, time, size) = (words.next()?, words.next()?, words.next()?);
    let is_date = date.len() == 11 && date.as_bytes()[2] == b'-' && date.as_bytes()[6] == b'-';
    (is_date && time.len() == 5 && words.next().is_none()).then(|| size.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(page: &str) -> Option<Vec<String>> {
        let at = Url::parse("http://h:8/pub/a%20b/").unwrap();
        let links = read(&at, "text/html; charset=utf-8", page.as_bytes())?;
        let shown = |(name, link): (&Vec<u8>, &Link)| {
            format!("{}{}", String::from_utf8_lossy(name), if link.is_dir { "/" } else { "" })
        };
        Some(links.iter().map(shown).collect())
    }

    #[test]
    fn pages_of_several_servers() {
        for (page, wanted) in [
            // Apache
            (
                "<html><head><title>Index of /pub/a b</title></head><body><h1>Index of /pub/a b</h1><table>\
                 <tr><th><a href=\"?C=N;O=D\">Name</a></th></tr><tr><td><a href=\"/pub/\">Parent Directory</a></td></tr>\
                 <tr><td><a href=\"x%26y.txt\">x&amp;y.txt</a></td><td>1.2K</td></tr><tr><td><A HREF='d/'>d/</A></td></tr></table></body></html>",
                &["d/", "x&y.txt"][..],
            ),
            // Python
            (
                "<!DOCTYPE HTML>\n<html><head><title>Directory listing for /pub/</title></head><body><ul>\n\
                 <li><a href=\"e%CC%81\">e</a></li>\n<li><a href=\"what%3F\">what?</a></li></ul></body></html>",
                &["e\u{301}", "what?"],
            ),
            // rclone
            (
                "<html><head><title>Directory listing of /</title></head><a href=\"./one&#43;two\">x</a><a href=\"./dir/\"></a></html>",
                &["dir/", "one+two"],
            ),
            // Tomcat: whole paths, in which letters stand as they are that others encode, and the reverse.
            ("<title>Directory Listing For [/pub/a b/]</title><a href=\"/%70ub/a%20b/x(1)\">x</a></html>", &["x(1)"]),
            ("<title>Index of /</title></html>", &[]),
            (
                "<title>/pub/a b/</title><style>a > b { content: \"'\" }</style><script>if (a<b) { x = '<a href=\"no\">'; y = \"it's\" }</script>\
                 <p>1 < 2, isn't it</p><a\n  href=\"./f\">f</a></html>",
                &["f"],
            ),
        ] {
            assert_eq!(names(page).unwrap(), wanted);
        }
    }

    #[test]
    fn what_leads_elsewhere_is_left_out() {
        let links = [
            "..",
            "../",
            "../up",
            "/pub/",
            "/pub/a%20b/",
            ".",
            "./",
            "http://other/pub/a%20b/f",
            "https://h:8/pub/a%20b/f",
            "?C=M",
            "f?x",
            "f#y",
            "#top",
            "d/e",
            "%2e%2e",
            "%2e%2e/",
            "a%2Fb",
            "mailto:x@y",
            "javascript:x()",
            "",
            "//h:8",
        ];
        let anchors: String = links.iter().map(|link| format!("<a href=\"{link}\">x</a>")).collect();
        assert_eq!(names(&format!("<title>Index of x</title>{anchors}</html>")).unwrap(), [""; 0]);
        let inside = "<title>Index of x</title><a href=\"/pub/a%20b/f\">x</a><a href=http://h:8/pub/a%20b/g>x</a>\
                      <!-- <a href=\"no\"> --><a title='a>b' href=h>x</a></html>";
        assert_eq!(names(inside).unwrap(), ["f", "g", "h"]);
    }

    #[test]
    fn other_pages_are_no_listings() {
        assert!(names("<html><title>Log in</title><a href=\"login\">x</a></html>").is_none());
        assert!(names("<title>Index of x</title><a href=\"f\">").is_none(), "cut");
        assert!(names("<title>Index of x</title><a href=\"f></html>").is_none(), "no end of a tag");
        for title in ["/", "", "b", "/pub/a", "/home/"] {
            assert!(names(&format!("<title>{title}</title><a href=f>f</a></html>")).is_none(), "{title}");
        }
        assert!(read(&Url::parse("http://h/").unwrap(), "application/json", b"{\"error\":1}").is_none());
        assert!(read(&Url::parse("http://h/").unwrap(), "application/json", b"[{\"id\":1}]").is_none());
    }

    #[test]
    fn exact_sizes_are_taken() {
        let at = Url::parse("http://h/").unwrap();
        let page = "<html><title>Index of /</title><h1>Index of /</h1><pre><a href=\"../\">../</a>\n\
                    <a href=\"f\">f</a>    02-Jan-2024 03:04      12345\n<a href=\"g\">g</a>   02-Jan-2024 03:04     12K\n</pre></html>";
        let links = read(&at, "text/html", page.as_bytes()).unwrap();
        assert_eq!((links[&b"f"[..]].size, links[&b"g"[..]].size), (Some(12345), None));
        for page in [
            r#"[{"name":"d","type":"directory","mtime":"Tue, 02 Jan 2024 03:04:05 GMT"},
                {"name":"f","type":"file","mtime":"Tue, 02 Jan 2024 03:04:05 GMT","size":5}]"#,
            r#"[{"name":"d/","size":4096,"url":"./d/","mod_time":"2024-01-02T03:04:05.6Z","is_dir":true},
                {"name":"f","size":5,"url":"./f","mod_time":"2024-01-02T03:04:05.678Z","is_dir":false}]"#,
        ] {
            let links = read(&at, "application/json", page.as_bytes()).unwrap();
            assert!(links[&b"d"[..]].is_dir);
            let modified = Some(Mtime::new(1_704_164_645, 0));
            assert_eq!(links[&b"f"[..]], Link { is_dir: false, size: Some(5), modified });
        }
    }
}
