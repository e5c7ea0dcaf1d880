//! Which proxies there are, and which of them stands before a host.

use haul_core::{Error, ErrorKind, Result};
use http::Uri;
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use std::{net::IpAddr, sync::Arc};

/// Which proxy stands before which host. By default none does.
#[derive(Clone, Debug, Default)]
pub struct Proxies(Option<Arc<Rules>>);

#[derive(Debug)]
struct Rules {
    matcher: Matcher,
    /// Why a variable can't be used; told by who needs the network.
    wrong: Option<Error>,
    /// This machine itself is spoken to without one.
    spare_self: bool,
}

impl Proxies {
    /// One proxy before every host, as the user says (`--http-proxy`).
    ///
    /// Errors: `Invalid` when it isn't the address of a proxy of a kind that haul knows.
    pub fn always(address: &str) -> Result<Proxies> {
        checked("--http-proxy", address)?;
        Ok(Proxies(Some(Arc::new(Rules {
            matcher: Matcher::builder().all(address).build(),
            wrong: None,
            spare_self: false,
        }))))
    }

    /// Those that the variables of an environment name, looked up by `variable`: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and
    /// `NO_PROXY`, or the same in small letters. As in Go, this machine's own addresses need no proxy. One that can't be used is
    /// told by [`Proxies::check`].
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Proxies {
        let find = |name: &'static str| {
            let small = name.to_lowercase();
            let found = variable(name).map(|v| (name.to_owned(), v)).or_else(|| variable(&small).map(|v| (small, v)));
            found.filter(|(_, value)| !value.is_empty())
        };
        let mut wrong = None;
        let mut proxy = |name| {
            let Some((name, value)) = find(name) else { return String::new() };
            wrong = wrong.take().or(checked(&name, &value).err());
            value
        };
        // A web server's scripts get a client's header `Proxy` under this name.
        let http = if variable("REQUEST_METHOD").is_some() { String::new() } else { proxy("HTTP_PROXY") };
        let (https, all) = (proxy("HTTPS_PROXY"), proxy("ALL_PROXY"));
        if http.is_empty() && https.is_empty() && all.is_empty() {
            return Proxies::default();
        }
        let no = find("NO_PROXY").map(|(_, value)| value).unwrap_or_default();
        let matcher = Matcher::builder().all(all).http(http).https(https).no(no).build();
        Proxies(Some(Arc::new(Rules { matcher, wrong, spare_self: true })))
    }

    /// True unless no proxy is known at all.
    pub fn any(&self) -> bool {
        self.0.is_some()
    }

    /// Errors: `Invalid` when a variable names what isn't a proxy.
    pub fn check(&self) -> Result<()> {
        match self.0.as_ref().and_then(|rules| rules.wrong.as_ref()) {
            Some(wrong) => Err(wrong.to_report()),
            None => Ok(()),
        }
    }

    /// The proxy before this address, if one is.
    pub(crate) fn before(&self, uri: &Uri) -> Option<Intercept> {
        let rules = self.0.as_ref()?;
        if rules.spare_self && uri.host().is_some_and(is_self) {
            return None;
        }
        rules.matcher.intercept(uri)
    }
}

fn checked(name: &str, address: &str) -> Result<()> {
    let bad = |why: &str| {
        Err(Error::new(
            ErrorKind::Invalid,
            "open",
            format!("{name} {why}: write http://HOST:PORT, https:// or socks5://"),
        ))
    };
    let any = Uri::from_static("http://example.invalid/");
    match Matcher::builder().all(address).build().intercept(&any) {
        None => bad("names no proxy that haul knows"),
        Some(proxy) if matches!(proxy.uri().scheme_str(), Some("socks4" | "socks4a")) => bad("names a SOCKS 4 proxy"),
        Some(_) => Ok(()),
    }
}

/// `localhost`, or a loopback address.
fn is_self(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &'static [(&'static str, &'static str)]) -> Proxies {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        Proxies::from_variables(find)
    }

    fn before(proxies: &Proxies, uri: &'static str) -> Option<String> {
        proxies.before(&Uri::from_static(uri)).map(|proxy| proxy.uri().to_string())
    }

    #[test]
    fn the_environment_names_a_proxy_for_each_scheme_and_none_for_this_machine() {
        let proxies =
            of(&[("https_proxy", "http://s:1"), ("ALL_PROXY", "socks5://a:2"), ("NO_PROXY", "x.org,10.0.0.0/8")]);
        for (uri, proxy) in [
            ("https://b.org/", Some("http://s:1/")),
            ("http://b.org/", Some("socks5://a:2/")),
            ("https://c.x.org/", None),
            ("http://10.1.2.3/", None),
            ("https://localhost:9/", None),
            ("http://127.0.0.2/", None),
            ("http://[::1]:80/", None),
        ] {
            assert_eq!(before(&proxies, uri).as_deref(), proxy, "{uri}");
        }
        assert!(before(&of(&[("HTTP_PROXY", "p:1"), ("REQUEST_METHOD", "GET")]), "http://b.org/").is_none());
        let message = "http_proxy names no proxy that haul knows: write http://HOST:PORT, https:// or socks5://";
        assert_eq!(of(&[("http_proxy", "ftp://x")]).check().unwrap_err().message(), message);
    }

    #[test]
    fn a_proxy_that_is_typed_stands_before_all() {
        let proxies = Proxies::always("p:3128").unwrap();
        assert_eq!(before(&proxies, "http://127.0.0.1:9/").as_deref(), Some("http://p:3128/"));
        for (typed, message) in [
            ("ftp://p", "--http-proxy names no proxy that haul knows: write http://HOST:PORT, https:// or socks5://"),
            ("socks4://p", "--http-proxy names a SOCKS 4 proxy: write http://HOST:PORT, https:// or socks5://"),
        ] {
            assert_eq!(Proxies::always(typed).unwrap_err().message(), message);
        }
    }
}
