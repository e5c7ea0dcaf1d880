//! Where things are: the root in a bucket, hosts and paths, and the strict encoding that signatures demand.

use super::options::Config;
use haul_core::{Error, ErrorKind, Key, Result};
use haul_store::bucket::{Root, ServiceWords};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// All but unreserved characters, as SigV4 encodes query values.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// Characters escaped in paths: as [`QUERY`], but `/` stays.
const PATH: &AsciiSet = &QUERY.remove(b'/');

/// A key as it stands in a path.
pub fn encode_path(bytes: &[u8]) -> String {
    percent_encode(bytes, PATH).to_string()
}

/// A query's name or value.
pub fn encode_query(bytes: &[u8]) -> String {
    percent_encode(bytes, QUERY).to_string()
}

/// S3's names for things in messages.
pub const WORDS: ServiceWords = ServiceWords { service: "S3", bucket: "bucket", encoding: "--s3-encoding" };

/// One key in one bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectAddress {
    pub bucket: String,
    pub object: Vec<u8>,
    /// One of its versions; `None` is what there is now.
    pub version: Option<String>,
}

/// Where `key` is. In a root of all buckets the key's first part is the bucket.
///
/// Errors: `Invalid`, as [`Root::place`], and for a name that isn't UTF-8. S3 defines keys as UTF-8, and servers answer others with
/// a signature that doesn't match, which would send the user looking for a wrong secret.
pub fn place(root: &Root, key: &Key) -> Result<ObjectAddress> {
    let (bucket, object) = root.place(key)?;
    match std::str::from_utf8(&object) {
        Ok(_) => Ok(ObjectAddress::new(bucket, object)),
        Err(_) => Err(root.refused_as_it_is(key, "it isn't UTF-8")),
    }
}

impl ObjectAddress {
    /// The current object of a key.
    pub fn new(bucket: String, object: Vec<u8>) -> ObjectAddress {
        ObjectAddress { bucket, object, version: None }
    }

    /// Value of `x-amz-copy-source`.
    pub fn copy_source(&self) -> String {
        format!("/{}/{}", self.bucket, encode_path(&self.object))
    }
}

/// How to reach the service.
#[derive(Clone, Debug)]
pub struct Endpoint {
    tls: bool,
    /// Host and port; `{region}` stands for the region.
    authority: String,
    /// Path before the bucket, without a `/` at its end.
    base: String,
    virtual_host: bool,
    accelerate: bool,
}

impl Endpoint {
    /// Reads the endpoint from the options.
    ///
    /// Errors: `Invalid` for an endpoint that isn't an address.
    pub fn read(config: &Config) -> Result<Endpoint> {
        let own = config.endpoint.trim();
        if config.endpoint.contains('@') {
            // The text before the @ may be a password, which is never shown.
            let message = "endpoint holds a user name or a password before @: take it out, and set access_key_id and \
                           secret_access_key";
            return Err(Error::new(ErrorKind::Invalid, "open", message));
        }
        let (tls, rest) = match own {
            "" => (true, aws_host(config)),
            url if url.starts_with("http://") => (false, url["http://".len()..].to_owned()),
            url if url.starts_with("https://") => (true, url["https://".len()..].to_owned()),
            host => (true, host.to_owned()),
        };
        let rest = rest.trim_end_matches('/');
        let (authority, base) = match rest.find('/') {
            Some(at) => (&rest[..at], &rest[at..]),
            None => (rest, ""),
        };
        let shown = authority.replace("{region}", "region");
        if shown.parse::<http::uri::Authority>().is_err() {
            let message = format!("endpoint = {own:?}: use http://HOST:PORT or https://HOST");
            return Err(Error::new(ErrorKind::Invalid, "open", message));
        }
        let virtual_host = !config.path_style.unwrap_or(!config.provider.virtual_host || is_one_word(&shown));
        Ok(Endpoint {
            tls,
            authority: authority.to_owned(),
            base: base.to_owned(),
            virtual_host: config.accelerate || virtual_host && !is_ip(&shown),
            accelerate: config.accelerate,
        })
    }

    /// True for `https`.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// Host and port without a bucket: names the service.
    pub fn authority(&self, region: &str) -> String {
        self.authority.replace("{region}", region)
    }

    /// Scheme, host and path (encoded) of a bucket, a key, or the service itself.
    pub fn url(&self, region: &str, bucket: Option<&str>, object: &[u8]) -> Url {
        let scheme = if self.tls { "https" } else { "http" };
        let authority = self.authority(region);
        let Some(bucket) = bucket else {
            return Url { scheme, authority, path: format!("{}/", self.base) };
        };
        let object = encode_path(object);
        if self.virtual_host && self.fits_host(bucket) {
            let authority = match self.accelerate {
                true => format!("{bucket}.s3-accelerate.amazonaws.com"),
                false => format!("{bucket}.{authority}"),
            };
            return Url { scheme, authority, path: format!("{}/{object}", self.base) };
        }
        let path = match object.is_empty() {
            // Some servers take `/bucket/` for a key with an empty name.
            true => format!("{}/{}", self.base, encode_path(bucket.as_bytes())),
            false => format!("{}/{}/{object}", self.base, encode_path(bucket.as_bytes())),
        };
        Url { scheme, authority, path }
    }

    /// Names with dots don't match a wildcard certificate; names with capitals or `_` are no host names.
    fn fits_host(&self, bucket: &str) -> bool {
        let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || (b == b'.' && !self.tls);
        bucket.bytes().all(plain)
    }
}

/// An address that is a number has no names below it, whatever the options say (as in AWS's own tools).
fn is_ip(authority: &str) -> bool {
    let host = host_of(authority);
    authority.starts_with('[') || host.parse::<std::net::IpAddr>().is_ok()
}

/// `localhost` and `minio` are names of a machine, below which there are none unless the user says so.
fn is_one_word(authority: &str) -> bool {
    !host_of(authority).contains('.')
}

fn host_of(authority: &str) -> &str {
    authority.rsplit_once(':').map_or(authority, |(host, _)| host)
}

/// An address in the pieces that signing needs.
#[derive(Debug, PartialEq, Eq)]
pub struct Url {
    pub scheme: &'static str,
    pub authority: String,
    pub path: String,
}

fn aws_host(config: &Config) -> String {
    let host = config.provider.host;
    if config.provider.name != "AWS" {
        return host.to_owned();
    }
    let host = if config.dual_stack { "s3.dualstack.{region}.amazonaws.com" } else { host };
    if config.region.starts_with("cn-") { format!("{host}.cn") } else { host.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::encoding::Encoding;

    fn endpoint(options: &[(&str, &str)]) -> Endpoint {
        let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Endpoint::read(&Config::read(&crate::tests::request("", options)).unwrap()).unwrap()
    }

    #[test]
    fn every_byte_survives_in_a_path() {
        for (raw, encoded) in [
            (&b"a b"[..], "a%20b"),
            (b"a+b", "a%2Bb"),
            (b"d//x", "d//x"),
            (b"a/../b", "a/../b"),
            (b"q?#%\n", "q%3F%23%25%0A"),
            (b"\xff\xfe", "%FF%FE"),
            ("é~_-.".as_bytes(), "%C3%A9~_-."),
            (b"/lead", "/lead"),
        ] {
            assert_eq!(encode_path(raw), encoded);
        }
        assert_eq!(encode_query(b"a/b=c&d"), "a%2Fb%3Dc%26d");
    }

    #[test]
    fn a_uri_keeps_the_path_as_it_is() {
        let e = endpoint(&[("endpoint", "http://127.0.0.1:9000")]);
        for key in [&b"d//x"[..], b"a/../b", b"/lead", b"./x", b"x/.", b"a%2fb"] {
            let url = e.url("r", Some("b"), key);
            let uri: http::Uri = format!("{}://{}{}", url.scheme, url.authority, url.path).parse().unwrap();
            assert_eq!(uri.path(), url.path, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn names_are_text() {
        let place = |root: &Root, key: &[u8]| place(root, &Key::new(key));
        let plain = Root::parse(&WORDS, b"b/x").unwrap();
        assert_eq!(place(&plain, b"k").unwrap(), ObjectAddress::new("b".into(), b"x/k".to_vec()));
        let wanted = "it isn't UTF-8; rename it, or replace characters as rclone does (--s3-encoding)";
        assert_eq!(place(&plain, b"\xff").unwrap_err().message(), format!("S3 can't hold this name: {wanted}"));

        let encoding = Encoding::chosen("Slash,InvalidUtf8,Dot").unwrap();
        let root = Root::parse(&WORDS, b"/b/\xff").unwrap().encoded(encoding).unwrap();
        let object = |key: &[u8]| place(&root, key).map(|place| String::from_utf8(place.object).unwrap());
        for (key, name) in
            [(&b"a\xffb/\x01 "[..], "‛FF/a‛FFb/\u{1} "), ("\u{2400}/．".as_bytes(), "‛FF/␀/．"), (b"d/", "‛FF/d/")]
        {
            assert_eq!(object(key).unwrap(), name);
        }
        assert_eq!(object(b"a//b").unwrap_err().message(), "S3 can't hold this name: a part of it is empty; rename it");
    }

    #[test]
    fn hosts_by_provider_and_style() {
        let url = |options: &[(&str, &str)], bucket| {
            let u = endpoint(options).url("eu-west-1", bucket, b"k");
            format!("{}://{}{}", u.scheme, u.authority, u.path)
        };
        let aws = ("provider", "AWS");
        assert_eq!(url(&[aws], Some("b")), "https://b.s3.eu-west-1.amazonaws.com/k");
        assert_eq!(url(&[aws], Some("b.c")), "https://s3.eu-west-1.amazonaws.com/b.c/k");
        assert_eq!(url(&[aws], None), "https://s3.eu-west-1.amazonaws.com/");
        assert_eq!(url(&[aws, ("force_path_style", "true")], Some("b")), "https://s3.eu-west-1.amazonaws.com/b/k");
        assert_eq!(
            url(&[aws, ("use_accelerate_endpoint", "true")], Some("b")),
            "https://b.s3-accelerate.amazonaws.com/k"
        );
        assert_eq!(
            url(&[aws, ("use_dual_stack", "true")], Some("b")),
            "https://b.s3.dualstack.eu-west-1.amazonaws.com/k"
        );
        assert_eq!(url(&[("endpoint", "http://h:1/base/")], Some("b")), "http://h:1/base/b/k");
        assert_eq!(url(&[("endpoint", "h"), ("force_path_style", "false")], Some("b")), "https://b.h/k");
    }

    #[test]
    fn numbers_and_names_of_machines_have_no_names_below_them() {
        let url = |endpoint: &str, style: &[(&str, &str)]| {
            let options = [&[("provider", "AWS"), ("endpoint", endpoint)], style].concat();
            self::endpoint(&options).url("r", Some("b"), b"k").authority
        };
        let names = [("force_path_style", "false")];
        for number in ["127.0.0.1:9000", "10.0.0.1", "[::1]:9000", "[fe80::1]"] {
            assert_eq!(url(&format!("http://{number}"), &[]), number);
            assert_eq!(url(&format!("http://{number}"), &names), number);
        }
        assert_eq!(url("http://localhost:9000", &[]), "localhost:9000");
        assert_eq!(url("http://localhost:9000", &names), "b.localhost:9000");
        assert_eq!(url("https://s3.example.com", &[]), "b.s3.example.com");
    }

    #[test]
    fn a_password_in_an_endpoint_is_refused_and_not_shown() {
        for endpoint in
            ["http://user:SECRET@127.0.0.1:9000", "user:SECRET@h", "http://user:SECRET @h", "http://a/SECRET@b"]
        {
            let options = [("endpoint".to_owned(), endpoint.to_owned())].into();
            let config = Config::read(&crate::tests::request("", options)).unwrap();
            assert_eq!(
                Endpoint::read(&config).unwrap_err().to_string(),
                "open: endpoint holds a user name or a password before @: take it out, and set access_key_id and \
                 secret_access_key"
            );
        }
    }
}
