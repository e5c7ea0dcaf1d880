//! Checksums of content, as they are announced and told.

use haul_core::Algo;

/// The checksum of an upload: the one that its parts carry, and the one that is reported for the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Announced {
    /// The algorithm.
    pub algo: Algo,
    /// Of the parts' checksums, not of the content.
    pub composite: bool,
}

/// A checksum of content as it is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sum {
    /// Its algorithm.
    pub algo: Algo,
    /// In base64; with the number of parts if it is composite.
    pub value: String,
    /// Whether it is of the parts' checksums.
    pub composite: bool,
}
