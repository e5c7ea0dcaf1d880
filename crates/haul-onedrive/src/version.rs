//! Versions: an item's id and its tag.

use haul_core::Version;

/// Id and tag of a version.
pub fn parts_of(version: &Version) -> Option<(&str, &str)> {
    std::str::from_utf8(&version.0).ok()?.split_once('\n')
}
