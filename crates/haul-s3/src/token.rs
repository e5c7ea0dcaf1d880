//! Tokens that find a multipart upload again in a later run.

use super::{address::ObjectAddress, meta, service::Service};
use haul_core::{Algo, Hasher, Result};

/// An upload in parts that was begun.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The key that it will be.
    pub place: ObjectAddress,
    /// The service's name for it.
    pub id: String,
    /// See [`begun_with`].
    pub begun: String,
}

impl Token {
    /// Bucket, upload id, what it was begun with, key. Only a key can hold a newline, so it comes last.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Token { place, id, begun } = self;
        [place.bucket.as_bytes(), b"\n", id.as_bytes(), b"\n", begun.as_bytes(), b"\n", &place.object].concat()
    }

    /// The reverse; `None` when it isn't one.
    pub fn read(bytes: &[u8]) -> Option<Token> {
        let mut fields = bytes.splitn(4, |b| *b == b'\n');
        let mut text = || fields.next().and_then(|f| String::from_utf8(f.to_vec()).ok()).filter(|t| !t.is_empty());
        let (bucket, id, begun) = (text()?, text()?, text()?);
        Some(Token { place: ObjectAddress::new(bucket, fields.next()?.to_vec()), id, begun })
    }
}

/// A digest of everything in the request that begins a multipart upload and can't be changed later: times, metadata,
/// storage class, encryption, and whether its parts come with checksums. An upload begun with other values can't
/// be used.
pub fn begun_with(
    service: &Service,
    place: &ObjectAddress,
    kept: &meta::MetaFacts<'_>,
    checksums: bool,
) -> Result<String> {
    let headers = meta::to_headers(&service.config, &place.object, kept)?;
    // For an encryption key its MD5, sent in a separate header, is enough. A lock's time may be relative to now: it
    // differs in each run.
    let mut lines: Vec<Vec<u8>> = headers
        .iter()
        .filter(|(name, _)| !name.as_str().ends_with("-customer-key") && !name.as_str().ends_with("-retain-until-date"))
        .map(|(name, value)| [name.as_str().as_bytes(), b":", value.as_bytes(), b"\n"].concat())
        .collect();
    lines.sort();
    lines.push(vec![u8::from(checksums)]);
    let mut hasher = Hasher::new(&[Algo::Xxh128]);
    lines.iter().for_each(|line| hasher.update(line));
    Ok(hasher.finish().hex(Algo::Xxh128).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back_whatever_the_key() {
        let place = ObjectAddress::new("b".into(), b"a\nb\xff".to_vec());
        let token = Token { place, id: "id".into(), begun: "d".into() };
        assert_eq!(Token::read(&token.to_bytes()), Some(token.clone()));
        assert_eq!(Token::read(&Token { id: String::new(), ..token }.to_bytes()), None);
        assert_eq!(Token::read(b"x"), None);
    }
}
