//! Remotes as people are shown them: a connection string may hold secrets.

use crate::{Place, Spec, registry};
use haul_store::{OptionKind, OptionSpec};
use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _};

/// What stands where something was left out.
pub const LEFT_OUT: &str = "…";

/// True for an option whose value nobody is to see.
pub fn is_secret(option: &OptionSpec) -> bool {
    option.secret || option.kind == OptionKind::Obscured
}

/// A connection string without its options, when one of them is secret; `None` when it holds no secret. A remote's name
/// doesn't tell its type here, so an option counts as secret when it is one in any type.
pub fn left_out(text: &[u8]) -> Option<Vec<u8>> {
    let Spec { place, path } = Spec::parse(text).ok()?;
    let (name, options) = match &place {
        Place::Local => return None,
        Place::Remote { name, options } => (name.clone(), options),
        Place::Backend { kind, options } => (format!(":{kind}"), options),
    };
    let secret = |name: &str| {
        let mut all = registry::kinds().iter().flat_map(|kind| kind.options);
        all.any(|option| option.name == name && is_secret(option))
    };
    let held = options.keys().any(|name| secret(name));
    held.then(|| [name.as_bytes(), b",", LEFT_OUT.as_bytes(), b":", &path].concat())
}

/// What was typed as a remote, for a message.
pub fn shown(typed: &OsStr) -> String {
    match left_out(typed.as_bytes()) {
        Some(rest) => String::from_utf8_lossy(&rest).into_owned(),
        None => typed.to_string_lossy().into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_names_no_secret() {
        assert_eq!(shown(OsStr::new(":s3,secret_access_key=hunter2:b/x")), ":s3,…:b/x");
        assert_eq!(shown(OsStr::new("r,session-token=\"hun:ter2\":b")), "r,…:b");
        assert_eq!(shown(OsStr::new(":s3,env_auth:b/x")), ":s3,env_auth:b/x");
        assert_eq!(shown(OsStr::new("r:b/x")), "r:b/x");
    }
}
