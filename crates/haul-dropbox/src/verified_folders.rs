//! Folders that exist under exactly their name. Dropbox ignores case, and reports of a path only how its last name is
//! written: so each folder is looked up once, before anything is put below it or it is believed to exist. A path that a recent
//! recursive listing didn't show needn't be looked up.

use crate::{
    read,
    service::{Facts, Service},
};
use haul_core::{Error, ErrorKind, Key, Result};
use tokio::time::Instant;

/// State kept for an existing folder …
const THERE: &str = "there";
/// … and of one that wasn't: it comes with what is put into it.
const MISSING: &str = "missing";

/// State of a folder's path.
#[derive(Debug, PartialEq, Eq)]
pub enum PathState {
    /// The folder and those above it, by these very names.
    There,
    /// Nothing.
    Missing,
    /// Something else, which is the same to the service: why nothing can be put there.
    Taken(String),
}

/// Why a name can't be written.
pub fn folds(there: &str) -> String {
    format!("{there:?} is there, which is the same name for Dropbox: rename one of them")
}

fn last(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

impl Service {
    /// State of this folder's path; a missing one is looked up again if `anew`.
    ///
    /// Errors: the service's.
    pub async fn standing(&self, dir: &Key, anew: bool) -> Result<PathState> {
        let names = dir.as_bytes();
        // From the top: each answer gives the case of the last name only.
        for end in names.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1) {
            let folder = Key::new(&names[..end]);
            let place = self.folders.place(&folder).await;
            match place.id().as_deref() {
                Some(THERE) => continue,
                Some(_) if !anew => return Ok(PathState::Missing),
                _ => {}
            }
            let path = self.path(&folder)?;
            if !anew && self.seen().is_missing(&path, Instant::now()) {
                place.keep(MISSING.into());
                return Ok(PathState::Missing);
            }
            let facts = match read::facts(self, &folder, &path).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    place.keep(MISSING.into());
                    return Ok(PathState::Missing);
                }
                facts => facts?,
            };
            if !facts.is_folder() {
                return Ok(PathState::Taken(format!("a file is in the place of the folder {:?}", last(&path))));
            }
            if facts.name != last(&path) {
                return Ok(PathState::Taken(folds(&facts.name)));
            }
            place.keep(THERE.into());
        }
        Ok(PathState::There)
    }

    /// Allows a new entry of this name.
    ///
    /// Errors: `Exists` when a folder above has a name in other case.
    pub async fn has_room(&self, op: &'static str, key: &Key) -> Result<()> {
        match self.standing(&key.parent(), false).await? {
            PathState::Taken(why) => Err(Error::new(ErrorKind::Exists, op, why).with_key(key)),
            PathState::There | PathState::Missing => Ok(()),
        }
    }

    /// Why the entry found at a key's path is another one; `None` when it has exactly this name.
    ///
    /// Errors: the service's.
    pub async fn differs(&self, key: &Key, path: &str, found: &Facts) -> Result<Option<String>> {
        if found.name != last(path) {
            return Ok(Some(folds(&found.name)));
        }
        Ok(match self.standing(&key.parent(), true).await? {
            PathState::There => None,
            PathState::Missing => Some("it is there no more".into()),
            PathState::Taken(why) => Some(why),
        })
    }

    /// A folder by this very name is known to be there.
    pub fn knows_folder(&self, key: &Key) -> bool {
        self.folders.get(key).as_deref() == Some(THERE)
    }

    /// A folder by this very name is there.
    pub fn note_folder(&self, key: &Key) {
        self.folders.put(key, THERE);
    }
}
