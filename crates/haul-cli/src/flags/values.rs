//! Values of flags that aren't plain numbers or text, read by the same rules as everywhere in haul.

use crate::environment::home;
use haul_core::units::{self, Size};
use std::{path::PathBuf, time::Duration};

/// A duration that may be `off`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span(pub Option<Duration>);

/// Reads a size: `10M`, `off`.
pub fn size(text: &str) -> Result<Size, String> {
    units::parse_size(text)
}

/// Reads a duration: `1h30m`, `10` (seconds), `off`.
pub fn span(text: &str) -> Result<Span, String> {
    units::parse_duration(text).map(Span)
}

/// The bytes of a size flag; `None` when it is unset or `off`.
pub fn bytes(size: Option<Size>) -> Option<u64> {
    size.and_then(Size::bytes)
}

/// The duration of a flag; `None` when it is unset or `off`.
pub fn duration(span: Option<Span>) -> Option<Duration> {
    span.and_then(|s| s.0)
}

/// A file name with `~/` for the home folder, which a shell leaves alone in `--flag=~/x`.
pub fn path(text: &str) -> Result<PathBuf, String> {
    match (text.strip_prefix("~/"), home()) {
        (Some(rest), Some(home)) => Ok(home.join(rest)),
        _ => Ok(PathBuf::from(text)),
    }
}
