//! Conditions of writes and deletes as query parameters, and the meaning of a failed one.

use haul_core::{Error, ErrorKind, Key, Version, plan::Replace};
use haul_oauth::ServiceError;

/// The query of a write's condition.
pub fn condition(replace: &Replace) -> String {
    match replace {
        Replace::Anything => String::new(),
        Replace::Absent => "0".into(),
        Replace::Exactly(version) => generation(Some(version)),
    }
}

/// The error of a write that was refused.
pub fn refusal(refused: ServiceError, replace: &Replace, key: &Key) -> Error {
    match (replace, refused.fault.kind) {
        (Replace::Absent, ErrorKind::Changed) => {
            Error::new(ErrorKind::Exists, "write", "is there already").with_key(key)
        }
        (Replace::Exactly(_), ErrorKind::Changed) => {
            Error::new(ErrorKind::Changed, "write", "changed since it was listed").with_key(key)
        }
        _ => refused.at("write", key),
    }
}

/// A version as a query has it.
pub fn generation(version: Option<&Version>) -> String {
    version.map(|version| String::from_utf8_lossy(&version.0).into_owned()).unwrap_or_default()
}
