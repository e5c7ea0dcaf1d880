//! ETags.

use super::pattern;

/// An ETag: 32 digits of hexadecimal and, but for a plain MD5, `-N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    digest: [u8; 16],
    /// 0 when the digest is the content's MD5.
    parts: u32,
}

impl Tag {
    /// The content's MD5.
    pub fn md5(digest: [u8; 16]) -> Tag {
        Tag { digest, parts: 0 }
    }

    /// Of an upload in parts: the MD5 of the parts' MD5s.
    pub fn of_parts(digest: [u8; 16], parts: u32) -> Tag {
        Tag { digest, parts }
    }

    /// One that costs nothing, is the same for the same content, and doesn't look like an MD5.
    pub fn cheap(crc: u64, size: u64, parts: u32) -> Tag {
        let mut digest = [0; 16];
        digest[..8].copy_from_slice(&crc.to_be_bytes());
        digest[8..].copy_from_slice(&pattern::mix(crc ^ size.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes());
        Tag { digest, parts: parts.max(1) }
    }

    /// The MD5, if it is one.
    pub fn plain(&self) -> Option<[u8; 16]> {
        (self.parts == 0).then_some(self.digest)
    }

    /// As text, without quotes.
    pub fn text(&self) -> String {
        let digest = haul_core::hash::to_hex(&self.digest);
        if self.parts == 0 { digest } else { format!("{digest}-{}", self.parts) }
    }
}
