//! Whether what was typed as a source names one file, or a folder.

use crate::Result;
use futures::StreamExt as _;
use haul_core::{Error, ErrorKind, Key, Kind, Listed};
use haul_store::{ListRequest, Store};

/// A path's folder and last name; `None` when it can only be a folder.
pub fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = path.iter().rposition(|b| *b == b'/').map_or(0, |at| at + 1);
    let (parent, leaf) = path.split_at(at);
    if matches!(leaf, b"" | b"." | b"..") {
        return None;
    }
    // The slash between the two belongs to neither, but the root keeps its own; and where two come together the folder's name
    // is empty, which a folder that ends in one slash alone would not say.
    let keeps = parent.len() < 2 || parent.ends_with(b"//");
    Some((if keeps { parent } else { &parent[..parent.len() - 1] }, leaf))
}

/// Asks for the file itself: for stores that have directories.
pub async fn is_file(parent: &dyn Store, key: &Key) -> Result<bool> {
    match parent.stat(key).await {
        Ok(entry) => Ok(entry.kind == Kind::File),
        // What isn't there is told by the command, in its own words, when it opens it as a folder.
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound | ErrorKind::Invalid) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// One listing tells a key from a prefix; where keys may be read but not listed, one question does.
pub async fn is_key(parent: &dyn Store, key: &Key) -> Result<bool> {
    let request =
        ListRequest { prefix: key.as_bytes().to_vec(), recursive: true, limit: Some(1), ..ListRequest::default() };
    let mut listing = parent.list(request);
    while let Some(step) = listing.next().await {
        match step {
            // The key itself sorts before all that it is a prefix of.
            Listed::Batch(entries) => match entries.first() {
                Some(entry) => return Ok(entry.key == *key && entry.kind == Kind::File),
                None => continue,
            },
            Listed::Failed { error, .. } if error.kind() == ErrorKind::Denied => return is_file(parent, key).await,
            Listed::Failed { error, .. } => return Err(error.into()),
            Listed::End => return Ok(false),
        }
    }
    Err(Error::new(ErrorKind::Io, "list", "the listing was cut off").with_key(key).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_splits_into_folder_and_name() {
        for (path, parts) in [
            ("a/b/c", Some(("a/b", "c"))),
            ("a", Some(("", "a"))),
            ("/a", Some(("/", "a"))),
            ("a//b", Some(("a//", "b"))),
            ("a///b", Some(("a///", "b"))),
            ("//b", Some(("//", "b"))),
            ("a/", None),
            ("", None),
            ("/", None),
            ("..", None),
            ("a/.", None),
        ] {
            let parts = parts.map(|(p, l)| (p.as_bytes(), l.as_bytes()));
            assert_eq!(split(path.as_bytes()), parts, "{path}");
        }
    }
}
