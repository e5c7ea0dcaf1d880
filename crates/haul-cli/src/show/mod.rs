//! How listings look: sizes, times, media types, and the way to standard output.

pub mod csv;
pub mod go_time;
pub mod mime;
pub mod out;

use haul_core::{Entry, Mtime, units};

/// A size in a field of `width` columns, or, as people read it, of nine.
pub fn size_field(bytes: u64, human: bool, width: usize) -> String {
    match human {
        true => format!("{:>9}", units::size_short(bytes)),
        false => format!("{bytes:>width$}"),
    }
}

/// The size field of an entry: -1 if its size is unknown.
pub fn size_of(entry: &Entry, human: bool, width: usize) -> String {
    let width = if human { 9 } else { width };
    if entry.sized { size_field(entry.size, human, width) } else { format!("{:>width$}", -1) }
}

/// The time that a listing shows: the stored one, or the store's own clock's when that is all there is or was asked for; else `none`.
pub fn time_of(entry: &Entry, server: bool, none: Mtime) -> Mtime {
    let time = if server { entry.changed.or(entry.mtime) } else { entry.mtime.or(entry.changed) };
    time.unwrap_or(none)
}

/// A key without a directory's `/`.
pub fn bare(key: &[u8]) -> &[u8] {
    key.strip_suffix(b"/").unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stand_in_their_field() {
        assert_eq!(size_field(5, false, 9), "        5");
        assert_eq!(size_field(1536, true, 12), "  1.500Ki");
        assert_eq!(size_field(12_345_678_901, false, 9), "12345678901");
    }
}
