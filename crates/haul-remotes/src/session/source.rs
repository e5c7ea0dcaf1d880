//! Whether what was typed as a source names one file, or a folder.

use crate::Result;
use futures::StreamExt as _;
use haul_core::{Error, ErrorKind, Key, Listed};
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

/// The key of the file or symlink that is called so, as far as there is one.
pub async fn file(parent: &dyn Store, name: &[u8]) -> Result<Option<Key>> {
    for key in keys_of(parent, name) {
        match parent.stat(&key).await {
            Ok(entry) if entry.has_bytes() => return Ok(Some(key)),
            Ok(_) => {}
            // The command reports a missing path, in its own words, when it opens it as a folder.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound | ErrorKind::Invalid) => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(None)
}

/// The keys that what is called so may have: where symlinks are kept, one goes by the name that it is stored under.
fn keys_of(parent: &dyn Store, name: &[u8]) -> impl Iterator<Item = Key> {
    let link = Some(Key::of_stored(name)).filter(|key| key.is_symlink() && parent.caps().symlinks);
    std::iter::once(Key::new(name)).chain(link)
}

/// The key of a name, by one listing, which tells a key from a prefix; if keys may be read but not listed, by requests for them.
pub async fn key(parent: &dyn Store, name: &[u8]) -> Result<Option<Key>> {
    let request = ListRequest { prefix: name.to_vec(), recursive: true, limit: Some(1), ..ListRequest::default() };
    let mut listing = parent.list(request);
    while let Some(step) = listing.next().await {
        match step {
            // The key itself sorts before all that it is a prefix of.
            Listed::Batch(entries) => match entries.into_iter().next() {
                Some(entry) => return Ok(Some(entry.key).filter(|key| key.stored() == name && !key.is_dir())),
                None => continue,
            },
            Listed::Failed { error, .. } if error.kind() == ErrorKind::Denied => return file(parent, name).await,
            Listed::Failed { error, .. } => return Err(error.into()),
            Listed::Vanished(_) => {}
            Listed::End => return Ok(None),
        }
    }
    Err(Error::new(ErrorKind::Io, "list", "the listing was cut off").with_key(&Key::new(name)).into())
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
