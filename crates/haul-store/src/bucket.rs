//! Where keys are in a store of buckets: a bucket and a prefix in it, or all buckets, and what a key is called there.

use haul_core::{
    Error, ErrorKind, Key, Result,
    encoding::{Encoding, name_of},
};

/// A store's root: a bucket and a prefix (empty or ending in `/`), or all buckets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// `None` for all buckets.
    pub bucket: Option<String>,
    /// Before every name in the bucket, encoded as they are.
    pub prefix: Vec<u8>,
    /// How keys below it are names, and `prefix` is one; none where they are names as they are.
    encoding: Option<Encoding>,
    words: &'static ServiceWords,
}

/// Names of the service and its containers in messages.
#[derive(Debug, PartialEq, Eq)]
pub struct ServiceWords {
    /// `S3`
    pub service: &'static str,
    /// `bucket`, `container`
    pub bucket: &'static str,
    /// The flag that says how names are encoded: `--s3-encoding`.
    pub encoding: &'static str,
}

impl Root {
    /// From the path after the colon: `bucket`, `bucket/dir`, with or without slashes around.
    ///
    /// Errors: `Invalid` when the bucket's name isn't text.
    pub fn parse(words: &'static ServiceWords, path: &[u8]) -> Result<Root> {
        let start = path.iter().position(|b| *b != b'/').unwrap_or(path.len());
        let all = Root { bucket: None, prefix: Vec::new(), encoding: None, words };
        if start == path.len() {
            return Ok(all);
        }
        let (bucket, rest) = split(&path[start..]);
        let mut prefix = rest.to_vec();
        if !prefix.is_empty() && !prefix.ends_with(b"/") {
            prefix.push(b'/');
        }
        Ok(Root { bucket: Some(all.bucket_name(bucket)?), prefix, ..all })
    }

    /// This root with its name encoded, for services where names are.
    ///
    /// Errors: `Invalid` when the root's own name can't be encoded.
    pub fn encoded(self, encoding: Option<Encoding>) -> Result<Root> {
        let prefix = name_of(encoding, &self.prefix).map_err(|why| {
            let name = String::from_utf8_lossy(&self.prefix);
            Error::new(ErrorKind::Invalid, "open", format!("{} can't hold {name}: {why}", self.words.service))
        })?;
        Ok(Root { prefix, encoding, ..self })
    }

    /// That of another store of this service, from its [bytes](Root::to_bytes).
    ///
    /// Errors: as those of [`Root::parse`] and [`Root::encoded`].
    pub fn like(&self, other: &[u8]) -> Result<Root> {
        Root::parse(self.words, other)?.encoded(self.encoding)
    }

    /// As bytes that [`Root::parse`] reads: `bucket/prefix/`, or nothing.
    pub fn to_bytes(&self) -> Vec<u8> {
        match &self.bucket {
            Some(bucket) => [bucket.as_bytes(), b"/", &self.prefix].concat(),
            None => Vec::new(),
        }
    }

    /// Splits a key into bucket and object name (prefix included). In a root of all buckets the key's first part is the bucket.
    ///
    /// Errors: `Invalid` when the key names no bucket, or the name can't be encoded.
    pub fn place(&self, key: &Key) -> Result<(String, Vec<u8>)> {
        let (bucket, below) = match &self.bucket {
            Some(bucket) => (bucket.clone(), key.as_bytes()),
            None => {
                let (bucket, below) = split(key.as_bytes());
                (self.bucket_name(bucket).map_err(|error| error.with_key(key))?, below)
            }
        };
        let below = name_of(self.encoding, below).map_err(|why| self.refused(key, why))?;
        Ok((bucket, [&self.prefix[..], &below].concat()))
    }

    /// The error of a name that the service can't have.
    pub fn refused(&self, key: &Key, why: &str) -> Error {
        let message = format!("{} can't hold this name: {why}; rename it", self.words.service);
        Error::new(ErrorKind::Invalid, "name", message).with_key(key)
    }

    /// Like the refusal of a name, for one that an encoding would have changed into a valid name.
    pub fn refused_as_it_is(&self, key: &Key, why: &str) -> Error {
        match self.encoding {
            Some(_) => self.refused(key, why),
            None => {
                let ServiceWords { service, encoding, .. } = self.words;
                let message = format!(
                    "{service} can't hold this name: {why}; rename it, or replace characters as rclone does ({encoding})"
                );
                Error::new(ErrorKind::Invalid, "name", message).with_key(key)
            }
        }
    }

    fn bucket_name(&self, bytes: &[u8]) -> Result<String> {
        let name = std::str::from_utf8(bytes).ok().filter(|n| !n.is_empty() && !n.chars().any(char::is_control));
        name.map(str::to_owned).ok_or_else(|| {
            let (name, bucket) = (bytes.escape_ascii().to_string(), self.words.bucket);
            let message = format!("{name:?} is not a {bucket}'s name: give remote:{bucket}/path");
            Error::new(ErrorKind::Invalid, "open", message)
        })
    }
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().position(|b| *b == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (path, b""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: ServiceWords = ServiceWords { service: "Here", bucket: "bucket", encoding: "--here-encoding" };

    fn root(path: &[u8]) -> Root {
        Root::parse(&WORDS, path).unwrap()
    }

    #[test]
    fn roots_are_read() {
        for (path, bucket, prefix) in [
            (&b""[..], None, &b""[..]),
            (b"//", None, b""),
            (b"/b/", Some("b"), b""),
            (b"b/x", Some("b"), b"x/"),
            (b"b/x/\xff/", Some("b"), b"x/\xff/"),
        ] {
            let root = root(path);
            assert_eq!((root.bucket.as_deref(), &root.prefix[..]), (bucket, prefix), "{path:?}");
            assert_eq!(Root::parse(&WORDS, &root.to_bytes()).unwrap(), root);
        }
        for path in [&b"\xff/x"[..], b"b\n/x"] {
            assert_eq!(Root::parse(&WORDS, path).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn keys_have_a_bucket_and_a_name() {
        let place = |path: &[u8], key: &[u8]| root(path).place(&Key::new(key)).unwrap();
        assert_eq!(place(b"b/x", b"k/l"), ("b".into(), b"x/k/l".to_vec()));
        assert_eq!(place(b"", b"b/k"), ("b".into(), b"k".to_vec()));
        assert_eq!(place(b"", b"b"), ("b".into(), Vec::new()));
        let error = root(b"").place(&Key::new("")).unwrap_err();
        assert_eq!(
            (error.kind(), error.message()),
            (ErrorKind::Invalid, "\"\" is not a bucket's name: give remote:bucket/path")
        );
    }

    #[test]
    fn names_are_encoded_and_the_others_are_told() {
        let encoding = Encoding::chosen("Slash,InvalidUtf8").unwrap();
        let encoded = root(b"b/\xff").encoded(encoding).unwrap();
        assert_eq!(encoded.prefix, "‛FF/".as_bytes());
        assert_eq!(encoded.place(&Key::new(b"\xfe")).unwrap().1, "‛FF/‛FE".as_bytes());
        let key = Key::new("k");
        let message = |root: &Root| root.refused_as_it_is(&key, "why").message().to_owned();
        assert_eq!(message(&encoded), "Here can't hold this name: why; rename it");
        let way = ", or replace characters as rclone does (--here-encoding)";
        assert_eq!(message(&root(b"b")), format!("Here can't hold this name: why; rename it{way}"));
    }
}
