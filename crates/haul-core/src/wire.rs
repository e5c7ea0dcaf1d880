//! How values are written for other programs (JSON lines, say): names and targets are bytes, and come back as they were.

use crate::{
    Algo, Error, ErrorKind, Hashes, Key, Mtime, Retry, Version,
    hash::{from_hex, to_hex},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::{borrow::Cow, collections::BTreeMap};

/// Bytes as text where they are text, else as hexadecimal.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Bytes<'a> {
    Text(Cow<'a, str>),
    Hex { bytes: String },
}

impl<'a> Bytes<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Bytes::Text(text.into()),
            Err(_) => Bytes::Hex { bytes: to_hex(bytes) },
        }
    }

    fn bytes(self) -> Result<Vec<u8>, &'static str> {
        match self {
            Bytes::Text(text) => Ok(text.into_owned().into_bytes()),
            Bytes::Hex { bytes } => from_hex(&bytes).ok_or("not hexadecimal"),
        }
    }
}

/// A key: a symlink's says so, all others are their names.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Name<'a> {
    Symlink { symlink: Bytes<'a> },
    Other(Bytes<'a>),
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let name = match self.is_symlink() {
            true => Name::Symlink { symlink: Bytes::of(self.path()) },
            false => Name::Other(Bytes::of(self.as_bytes())),
        };
        name.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let key = match Name::deserialize(from)? {
            Name::Symlink { symlink } => symlink.bytes().map(Key::symlink),
            Name::Other(name) => name.bytes().map(Key::new),
        };
        key.map_err(de::Error::custom)
    }
}

/// For `#[serde(skip_serializing_if)]`: of flags, only those that are set are written.
pub fn is_false(flag: &bool) -> bool {
    !flag
}

/// Bytes that may be missing, for `#[serde(with)]`.
pub mod maybe_bytes {
    use super::{Bytes, Deserialize, Deserializer, Serialize, Serializer, de};

    /// Writes them.
    pub fn serialize<S: Serializer>(bytes: &Option<Box<[u8]>>, to: S) -> Result<S::Ok, S::Error> {
        bytes.as_deref().map(Bytes::of).serialize(to)
    }

    /// Reads them.
    ///
    /// Errors: what isn't hexadecimal where it should be.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Box<[u8]>>, D::Error> {
        let bytes = Option::<Bytes>::deserialize(from)?.map(Bytes::bytes).transpose();
        bytes.map(|bytes| bytes.map(Vec::into_boxed_slice)).map_err(de::Error::custom)
    }
}

/// Shared optional values, for `#[serde(with)]`.
pub mod shared {
    use super::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    /// Writes it.
    pub fn serialize<T: Serialize, S: Serializer>(value: &Option<Arc<T>>, to: S) -> Result<S::Ok, S::Error> {
        value.as_deref().serialize(to)
    }

    /// Reads it.
    ///
    /// Errors: the value's.
    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<T>>, D::Error> {
        Ok(Option::deserialize(from)?.map(Arc::new))
    }
}

/// Numbers that several share, for `#[serde(with)]`.
pub mod numbers {
    use super::{Deserialize, Deserializer, Serialize, Serializer};
    use std::sync::Arc;

    /// Writes them.
    pub fn serialize<S: Serializer>(numbers: &Arc<[u32]>, to: S) -> Result<S::Ok, S::Error> {
        numbers[..].serialize(to)
    }

    /// Reads them.
    ///
    /// Errors: not a list of numbers.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<[u32]>, D::Error> {
        Ok(Vec::deserialize(from)?.into())
    }
}

/// Binary bytes, for `#[serde(with)]`.
pub mod raw {
    use serde::{Deserializer, Serializer, de::Visitor};
    use std::fmt;

    /// Writes them.
    pub fn serialize<S: Serializer>(bytes: impl AsRef<[u8]>, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes.as_ref())
    }

    /// Reads them.
    ///
    /// Errors: not bytes.
    pub fn deserialize<'de, D: Deserializer<'de>, T: From<Vec<u8>>>(from: D) -> Result<T, D::Error> {
        struct Bytes;
        impl<'de> Visitor<'de> for Bytes {
            type Value = Vec<u8>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Vec<u8>, E> {
                Ok(bytes.to_vec())
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Vec<u8>, E> {
                Ok(bytes)
            }

            fn visit_seq<A: serde::de::SeqAccess<'de>>(self, mut items: A) -> Result<Vec<u8>, A::Error> {
                let mut bytes = Vec::new();
                while let Some(byte) = items.next_element()? {
                    bytes.push(byte);
                }
                Ok(bytes)
            }
        }
        from.deserialize_byte_buf(Bytes).map(T::from)
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        raw::serialize(&self.0, to)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        raw::deserialize(from).map(Version)
    }
}

/// Hashes by algorithm, in hexadecimal.
impl Serialize for Hashes {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter().map(|(algo, value)| (algo, to_hex(value))))
    }
}

impl<'de> Deserialize<'de> for Hashes {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut hashes = Hashes::default();
        for (algo, value) in BTreeMap::<Algo, String>::deserialize(from)? {
            let value = from_hex(&value).filter(|value| value.len() == algo.size());
            hashes.set(algo, value.ok_or_else(|| de::Error::custom("not the hash of such an algorithm"))?);
        }
        Ok(hashes)
    }
}

/// Seconds since the epoch with nine decimals, as text: a JSON number loses digits in most readers.
impl Serialize for Mtime {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let (sign, nanos) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        to.collect_str(&format_args!("{sign}{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000))
    }
}

impl<'de> Deserialize<'de> for Mtime {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let digits = text.split_once('.').filter(|(_, nanos)| nanos.len() == 9).map(|(s, n)| [s, n].concat());
        let nanos = digits.and_then(|digits| digits.parse().ok()).map(Mtime);
        nanos.ok_or_else(|| de::Error::custom("not seconds with nine decimals"))
    }
}

impl Serialize for Algo {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for Algo {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        // It has a name, though users can't ask for it.
        if name == Algo::Md5Text.name() {
            return Ok(Algo::Md5Text);
        }
        name.parse().map_err(|_| de::Error::custom("not a hash algorithm"))
    }
}

/// An error without the one beneath it.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Error")]
struct Report<'a> {
    kind: ErrorKind,
    retry: Retry,
    operation: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<Key>,
    message: Cow<'a, str>,
}

impl Serialize for Error {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let report = Report {
            kind: self.kind(),
            retry: self.retry(),
            operation: self.op().into(),
            key: self.key().cloned(),
            message: self.message().into(),
        };
        report.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Error {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let Report { kind, retry, operation, key, message } = Report::deserialize(from)?;
        let error = Error::new(kind, operation.into_owned(), message).with_retry(retry);
        Ok(match key {
            Some(key) => error.with_key(&key),
            None => error,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{from_value, json, to_value};

    #[test]
    fn keys_are_names_and_come_back_byte_for_byte() {
        for (key, text) in [
            (Key::new("d/é \"x\"\n"), json!("d/é \"x\"\n")),
            (Key::new("d/"), json!("d/")),
            (Key::new(""), json!("")),
            (Key::new(b"a\xff"), json!({"bytes": "61ff"})),
            (Key::symlink("d/k"), json!({"symlink": "d/k"})),
            (Key::symlink(b"\xff"), json!({"symlink": {"bytes": "ff"}})),
        ] {
            assert_eq!(to_value(&key).unwrap(), text);
            assert_eq!(from_value::<Key>(text).unwrap(), key);
        }
        assert!(from_value::<Key>(json!({"bytes": "6"})).is_err() && from_value::<Key>(json!(7)).is_err());
    }

    #[test]
    fn times_keep_all_digits() {
        for (time, text) in [
            (Mtime(1_600_000_000_123_456_789), "1600000000.123456789"),
            (Mtime(0), "0.000000000"),
            (Mtime(-1), "-0.000000001"),
            (Mtime(-2_500_000_000), "-2.500000000"),
        ] {
            assert_eq!(to_value(time).unwrap(), json!(text));
            assert_eq!(from_value::<Mtime>(json!(text)).unwrap(), time);
        }
        for wrong in ["", "1", "1.5", "1.1234567890", "a.123456789", "1.-12345678"] {
            assert!(from_value::<Mtime>(json!(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_error_says_what_to_whom() {
        let error = Error::new(ErrorKind::NotFound, "read", "no such key").with_key(&Key::new("a"));
        let text =
            json!({"kind": "not_found", "retry": "never", "operation": "read", "key": "a", "message": "no such key"});
        assert_eq!(to_value(&error).unwrap(), text);
        assert_eq!(to_value(from_value::<Error>(text.clone()).unwrap()).unwrap(), text);
    }

    #[test]
    fn every_algorithm_comes_back() {
        for algo in Algo::ALL.into_iter().chain([Algo::Md5Text]) {
            assert_eq!(from_value::<Algo>(to_value(algo).unwrap()).unwrap(), algo);
        }
    }
}
