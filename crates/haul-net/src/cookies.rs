//! Cookies of servers that know a session by them (`--use-cookies`), for as long as the run lasts.

use http::{HeaderMap, HeaderValue, Uri, header};
use std::{collections::BTreeMap, sync::Mutex};

/// Cookies that servers set. They may hold secrets.
#[derive(Default)]
pub struct Cookies(Mutex<BTreeMap<(String, String, String), Cookie>>);

/// One cookie; known by its domain, path and name.
struct Cookie {
    value: String,
    /// Hosts below its domain get it, too.
    below: bool,
    /// Only where there is TLS.
    secure: bool,
}

impl std::fmt::Debug for Cookies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Cookies")
    }
}

/// Is `host` the domain, or one below it?
fn within(host: &str, domain: &str) -> bool {
    host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
}

impl Cookies {
    /// Keeps what an answer from `uri` sets, and forgets what it takes back.
    pub fn learn(&self, uri: &Uri, headers: &HeaderMap) {
        let Some(host) = uri.host().map(str::to_ascii_lowercase) else { return };
        for line in headers.get_all(header::SET_COOKIE).iter().filter_map(|line| line.to_str().ok()) {
            let mut parts = line.split(';').map(str::trim);
            let Some((name, value)) = parts.next().and_then(|pair| pair.split_once('=')) else { continue };
            let (mut domain, mut path, mut ends) = (None, None, false);
            let mut cookie = Cookie { value: value.trim().into(), below: false, secure: false };
            for part in parts {
                let (key, value) = part.split_once('=').unwrap_or((part, ""));
                match key.trim().to_ascii_lowercase().as_str() {
                    "domain" => domain = Some(value.trim().trim_start_matches('.').to_ascii_lowercase()),
                    "path" => path = Some(value.trim().to_owned()).filter(|path| path.starts_with('/')),
                    "max-age" => ends = value.trim().parse::<i64>().is_ok_and(|seconds| seconds <= 0),
                    "secure" => cookie.secure = true,
                    _ => {}
                }
            }
            // A server speaks for its own domain, not for a country's.
            let domain = match domain.filter(|domain| !domain.is_empty()) {
                Some(domain) if domain != host && !(within(&host, &domain) && domain.contains('.')) => continue,
                Some(domain) => {
                    cookie.below = true;
                    domain
                }
                None => host.clone(),
            };
            let id = (domain, path.unwrap_or_else(|| folder(uri.path())), name.trim().to_owned());
            let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
            if ends {
                all.remove(&id);
            } else {
                all.insert(id, cookie);
            }
        }
    }

    /// Adds to a request to `uri` what it is to be told.
    pub fn tell(&self, uri: &Uri, headers: &mut HeaderMap) {
        let Some(host) = uri.host().map(str::to_ascii_lowercase) else { return };
        let tls = uri.scheme_str() == Some("https");
        let all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        let wanted = all.iter().filter(|((domain, path, _), cookie)| {
            let here = *domain == host || (cookie.below && within(&host, domain));
            here && (tls || !cookie.secure) && below(uri.path(), path)
        });
        let pairs: Vec<String> = wanted.map(|((_, _, name), cookie)| format!("{name}={}", cookie.value)).collect();
        if let Ok(mut value) = HeaderValue::from_str(&pairs.join("; "))
            && !pairs.is_empty()
        {
            value.set_sensitive(true);
            headers.append(header::COOKIE, value);
        }
    }
}

/// The directory of a path, without a slash at its end.
fn folder(path: &str) -> String {
    match path.rfind('/') {
        Some(at) if at > 0 => path[..at].to_owned(),
        _ => "/".into(),
    }
}

/// Is `path` the cookie's path, or below it?
fn below(path: &str, cookie: &str) -> bool {
    path.strip_prefix(cookie).is_some_and(|rest| rest.is_empty() || cookie.ends_with('/') || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header_for(cookies: &Cookies, uri: &str) -> String {
        let mut headers = HeaderMap::new();
        cookies.tell(&uri.parse().unwrap(), &mut headers);
        headers.get(header::COOKIE).map_or(String::new(), |value| value.to_str().unwrap().to_owned())
    }

    fn learn(cookies: &Cookies, uri: &str, lines: &[&'static str]) {
        let lines = lines.iter().map(|line| (header::SET_COOKIE, HeaderValue::from_static(line)));
        cookies.learn(&uri.parse().unwrap(), &lines.collect());
    }

    #[test]
    fn servers_hear_what_they_set_and_no_others_do() {
        let cookies = Cookies::default();
        learn(
            &cookies,
            "https://a.example.com/d/f",
            &["s=1; Path=/; HttpOnly", "t=2", "u=3; Domain=.example.com; Path=/; Secure"],
        );
        learn(
            &cookies,
            "https://a.example.com/",
            &["v=4; Domain=com", "w=5; Domain=other.com", "x=6; Max-Age=0", "nothing"],
        );
        assert_eq!(header_for(&cookies, "https://a.example.com/d/g"), "s=1; t=2; u=3");
        assert_eq!(header_for(&cookies, "https://a.example.com/de"), "s=1; u=3");
        assert_eq!(header_for(&cookies, "http://a.example.com/d"), "s=1; t=2");
        assert_eq!(header_for(&cookies, "https://b.example.com/d"), "u=3");
        assert_eq!(header_for(&cookies, "https://notexample.com/"), "");
        learn(&cookies, "https://a.example.com/", &["s=; Max-Age=0; Path=/", "t=7; Path=/d"]);
        assert_eq!(header_for(&cookies, "https://a.example.com/d/g"), "t=7; u=3");
    }
}
