//! Names that a source has although its listing leaves them out: where listings prove nothing
//! ([`haul_store::Caps::listing_may_omit`]), a name is asked for before anything is done because it is missing.

use crate::{Cx, namesakes::lists_beside};
use haul_core::{Entry, Key, Result, names::folded};

/// True for a name that the source has and the job wants. Not one that it has in other letters, where it takes them for the same.
///
/// Errors: the source's answer says neither.
pub async fn source_has(cx: &Cx, key: &Key) -> Result<bool> {
    let (src, filter) = (&cx.src, &cx.filter);
    let is_wanted = filter.wants_name(&Entry::file(key.clone(), 0)) && filter.excluded_above(key.as_bytes()).is_none();
    if !is_wanted {
        return Ok(false);
    }
    let there = match src.stat(key).await {
        Err(error) if error.is_missing() => return Ok(false),
        there => there?,
    };
    if !filter.wants(&there) {
        return Ok(false);
    }
    // Only other letters could be the same name, and a source that finds it by letters that nobody would use takes all for the same. Beyond
    // ASCII, letters can also be written in several ways.
    if key.as_bytes().is_ascii() {
        let Some(odd) = odd_letters(key) else { return Ok(true) };
        match src.stat(&odd).await {
            Err(error) if error.is_missing() => return Ok(true),
            other => other?,
        };
    }
    let like = folded(key.as_bytes());
    let same = |entry: &Entry| {
        let facts = (entry.size, entry.mtime) == (there.size, there.mtime);
        facts && entry.key != *key && folded(entry.key.as_bytes()) == like
    };
    Ok(!lists_beside(src, key, same).await)
}

/// The key with letters in another case, chosen so that hardly anybody has such a name beside the key's own: the last letter of the name,
/// and the last one of the directories too where the name has fewer than three. `None` where there are no letters.
fn odd_letters(key: &Key) -> Option<Key> {
    let path = key.path();
    let name = path.iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
    let last = |bytes: &[u8]| bytes.iter().rposition(u8::is_ascii_alphabetic);
    let in_dirs = last(&path[..name]).filter(|_| path[name..].iter().filter(|b| b.is_ascii_alphabetic()).count() < 3);
    let mut odd = key.as_bytes().to_vec();
    for at in last(&path[name..]).map(|at| name + at).into_iter().chain(in_dirs) {
        odd[at] ^= 0x20;
    }
    (odd != key.as_bytes()).then(|| Key::new(odd))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_letters_are_those_that_nobody_uses() {
        let odd = |key: &str| odd_letters(&Key::new(key)).map(|key| key.to_string());
        assert_eq!(odd("dir/notes.txt").as_deref(), Some("dir/notes.txT"));
        assert_eq!(odd("dir/a1/").as_deref(), Some("diR/A1/"));
        assert_eq!(odd("README").as_deref(), Some("READMe"));
        assert_eq!(odd("dir/34").as_deref(), Some("diR/34"));
        assert_eq!(odd("1/b").as_deref(), Some("1/B"));
        assert_eq!(odd("12/34"), None);
    }
}
