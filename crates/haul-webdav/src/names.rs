//! Names under which files are sent, before they get their own.

use haul_core::{Error, ErrorKind, Key, Result, hash::to_hex};

const HIDDEN: (&str, &str) = (".haul-", ".partial");
/// Random bytes of a name.
const CHANCE: usize = 16;

/// True for a name under which a file is sent; no listing shows it.
pub fn is_hidden(name: &[u8]) -> bool {
    let middle = name.strip_prefix(HIDDEN.0.as_bytes()).and_then(|rest| rest.strip_suffix(HIDDEN.1.as_bytes()));
    middle.is_some_and(is_chance)
}

/// Random digits for a name: two writers never get the same.
///
/// Errors: the system supplies no random numbers.
pub fn chance(key: &Key) -> Result<String> {
    let mut chance = [0; CHANCE];
    aws_lc_rs::rand::fill(&mut chance)
        .map_err(|_| Error::new(ErrorKind::Io, "write", "the system gives no random bytes").with_key(key))?;
    Ok(to_hex(&chance))
}

/// True for digits made by [`chance`].
pub fn is_chance(digits: &[u8]) -> bool {
    digits.len() == 2 * CHANCE && digits.iter().all(u8::is_ascii_hexdigit)
}

/// A hidden name beside `key`.
///
/// Errors: as [`chance`].
pub fn hidden(key: &Key) -> Result<Key> {
    Ok(hidden_as(key, &chance(key)?))
}

/// The hidden name beside `key` with these digits.
pub fn hidden_as(key: &Key, digits: &str) -> Key {
    let name = format!("{}{digits}{}", HIDDEN.0, HIDDEN.1);
    Key::new([key.parent().as_bytes(), name.as_bytes()].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_names_are_known_again() {
        let name = hidden(&Key::new("d/e/f")).unwrap();
        assert!(name.as_bytes().starts_with(b"d/e/.haul-") && is_hidden(name.name()));
        for other in [&b".haul-x.partial"[..], b"haul-0123456789abcdef0123456789abcdef.partial", b".haul-.partial"] {
            assert!(!is_hidden(other));
        }
    }
}
