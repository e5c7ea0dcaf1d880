//! A service that stores other bytes than it was sent, for the simulators.

use bytes::Bytes;

/// The next this many contents are stored with one byte changed.
#[derive(Debug, Default)]
pub struct Spoils(pub usize);

impl Spoils {
    /// What is stored in place of a content that is to be another; an empty one can't be.
    pub fn other(&mut self, bytes: &Bytes) -> Option<Bytes> {
        if self.0 == 0 || bytes.is_empty() {
            return None;
        }
        self.0 -= 1;
        let mut other = bytes.to_vec();
        other[0] ^= 1;
        Some(other.into())
    }

    /// What is stored of a content.
    pub fn stored(&mut self, bytes: Bytes) -> Bytes {
        self.other(&bytes).unwrap_or(bytes)
    }
}
