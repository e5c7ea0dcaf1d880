//! Verifies that a file put into a folder is where its key says. Google accepts files into a trashed folder without any
//! error or hint: so the folder is checked after the file has arrived.

use crate::{
    facts::File,
    service::{Service, doubled},
};
use haul_core::{Error, ErrorKind, Key, Result, Retry, plan::Replace};
use haul_net::at;
use haul_oauth::plain;
use serde_json::json;

/// Folders that a file is put into, one after the other, before its write is given up.
const TRIES: u32 = 3;

/// The file that a write replaces, if there is one and it may. The file `own` itself doesn't count.
///
/// Errors: `Exists` or `Changed` when the condition doesn't hold; `Invalid` when several have the name.
pub async fn allowed(
    service: &Service,
    parent: &str,
    name: &str,
    key: &Key,
    replace: &Replace,
    own: &str,
) -> Result<Option<File>> {
    const OP: &str = "write";
    let mut named = service.look(parent, name, key).await?;
    named.files.retain(|file| file.id != own);
    named.documents.retain(|file| file.id != own);
    if named.files.len() > 1 {
        return Err(doubled(OP, key, named.files.len()));
    }
    if !named.documents.is_empty() {
        let message = "a document of Google's has this name, which no file replaces: rename or remove it";
        return Err(Error::new(ErrorKind::Exists, OP, message).with_key(key));
    }
    let there = named.files.pop();
    match (replace, &there) {
        (Replace::Absent, Some(_)) => Err(Error::new(ErrorKind::Exists, OP, "is there already").with_key(key)),
        (Replace::Exactly(version), there) if there.as_ref().and_then(File::version).as_ref() != Some(version) => {
            Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(key))
        }
        (_, None) if named.folder(key)?.is_some() => {
            Err(Error::new(ErrorKind::Exists, OP, "is a directory").with_key(key))
        }
        _ => Ok(there),
    }
}

impl Service {
    /// Whether the folder `id`, which something was put into just now, is outside the trash and still the directory `dir`. One
    /// query serves all that wait for it.
    ///
    /// Errors: Google's answer doesn't say.
    pub async fn stands(&self, dir: &Key, id: &str) -> Result<bool> {
        // A Drive's own root is in no folder, and a login limited to its own files can't see it.
        if dir.is_root() && self.root.is_base() && self.config.is_whole {
            return Ok(true);
        }
        let found = self.standing.ask(id, async || match self.by_id(id).await {
            Ok(file) => Ok(Some(file)),
            Err(refused) if refused.fault.status == 404 => Ok(None),
            Err(refused) => Err(refused.at("write", dir)),
        });
        let Some(folder) = found.await? else { return Ok(false) };
        if folder.trashed {
            return Ok(false);
        }
        let (above, name) = match dir.is_root() {
            true => (self.above(), self.root.names.last().cloned()),
            false => (self.dirs.get(&dir.parent()), Some(self.name(dir)?)),
        };
        // One that the options name is known by its id alone.
        let Some(name) = name else { return Ok(true) };
        let is_in = |above: &String| above == "root" || folder.parents.contains(above);
        if folder.name == name && above.as_ref().is_none_or(is_in) {
            return Ok(true);
        }
        // A shortcut leads to it by another name, or it was moved.
        let anew = || {
            let error = Error::new(ErrorKind::Io, "find", "the way to this folder has to be found anew");
            error.with_retry(Retry::Backoff).with_key(dir)
        };
        let above = above.ok_or_else(anew)?;
        Ok(self.folder_in(&above, &name, dir).await?.is_some_and(|now| now.id == id))
    }

    /// Forgets an outdated directory id, and all others, since any may have changed with it.
    pub fn lost(&self, dir: &Key, id: &str) {
        if self.dirs.get(dir).as_deref() == Some(id) {
            self.dirs.forget(&Key::new(""));
        }
    }
}

/// A file that has come, and where it belongs.
pub struct UploadedFile<'a> {
    pub op: &'static str,
    pub key: &'a Key,
    /// As the service has it.
    pub name: &'a str,
    pub replace: &'a Replace,
    /// The folder that it was put into.
    pub parent: String,
    /// The old file of this name, if it is the same file.
    pub before: Option<&'a File>,
    /// The content can be sent again.
    pub again: bool,
}

impl UploadedFile<'_> {
    fn failed(&self, message: &str, retry: Retry) -> Error {
        let kind = if retry == Retry::Never { ErrorKind::Changed } else { ErrorKind::Io };
        Error::new(kind, self.op, message).with_retry(retry).with_key(self.key)
    }

    /// Makes sure that the file is in its key's directory, and that this isn't in the trash. A new file in a trashed or moved
    /// folder is moved to where its key leads now.
    ///
    /// Errors: it isn't where its key says, or that can't be found out.
    pub async fn settle(mut self, service: &Service, mut file: File) -> Result<File> {
        let dir = self.key.parent();
        for _ in 0..TRIES {
            let stands = service.stands(&dir, &self.parent).await?;
            if stands && file.trashed {
                return Err(self.failed("somebody put it into the trash just now", Retry::Never));
            }
            if stands && self.is_in_place(&file) {
                return Ok(file);
            }
            service.lost(&dir, &self.parent);
            if self.before.is_some() {
                let message = "the file that it replaces was moved, or put into the trash, while it was sent";
                return Err(self.failed(message, if self.again { Retry::Backoff } else { Retry::Never }));
            }
            let next = service.made(&dir).await?;
            if !stands && next == self.parent {
                // Google may take a moment to find a new item.
                let message = "the folder is in the trash of Google Drive: take it out of there";
                return Err(self.failed(message, Retry::Backoff));
            }
            file = service.by_id(&file.id).await.map_err(|refused| refused.at(self.op, self.key))?;
            if !file.parents.contains(&next) {
                if allowed(service, &next, self.name, self.key, self.replace, "").await?.is_some() {
                    return Err(self.failed("another file got this name while it was sent", Retry::Never));
                }
                let old = file.parents.join(",");
                let query = [("addParents", &*next), ("removeParents", &*old)];
                file = plain(service.patch(&file.id, &query, &json!({})).await).map_err(at(self.op, self.key))?;
            }
            self.parent = next;
        }
        Err(self.failed("its folder is moved away again and again", Retry::Never))
    }

    fn is_in_place(&self, file: &File) -> bool {
        let has = |id: &String| file.parents.contains(id);
        match self.before {
            // It may be elsewhere, with a shortcut to it here.
            Some(before) => before.parents.iter().all(has),
            // Google names the root by its real id, and may not show folders that others own.
            None => file.parents.is_empty() || self.parent == "root" || has(&self.parent),
        }
    }
}
