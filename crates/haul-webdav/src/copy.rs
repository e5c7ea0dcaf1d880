//! Copies inside a server, and moves.

use crate::{
    Service,
    change::{make_dir, remove, settle, shift},
    list, names, upload,
};
use haul_core::{Entry, Error, ErrorKind, Key, Result, plan::Replace};
use haul_net::{Fault, at};
use haul_store::{CopyHow, CopyItem, StoredFacts, web};
use url::Url;

/// See [`haul_store::Store::copy`].
pub async fn copy(service: &Service, from: &[u8], item: &CopyItem) -> Result<StoredFacts> {
    match copy_item(service, from, item).await {
        Ok(stored) => {
            service.moves.forget(item);
            Ok(stored)
        }
        Err(error) if error.is_missing() => {
            service.moves.done(item, list::stat(service, &item.to), |_, _| true).await.ok_or(error)
        }
        failed => failed,
    }
}

async fn copy_item(service: &Service, from: &[u8], item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    if item.how.needs_inodes() && item.how != CopyHow::RenameDir {
        let message = "a server has no hard links, devices or attributes";
        return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
    }
    let root = std::str::from_utf8(from).ok().and_then(|from| Url::parse(from).ok());
    let root = root.filter(|root| web::same_host(root, &service.web.root));
    let root = root
        .ok_or_else(|| Error::new(ErrorKind::Unsupported, OP, "the source is on another server").with_key(&item.to))?;
    let source = web::below(&root, &service.web.named(&item.from)?)?;
    let there = list::at_url(service, &source, &item.from).await?;
    if item.how == CopyHow::RenameDir {
        return rename_dir(service, &source, &there, item).await;
    }
    if there.is_dir() {
        return Err(Error::new(ErrorKind::NotFound, OP, "this is a directory").with_key(&item.from));
    }
    if item.want.is_some() && item.want != there.version {
        return Err(Error::new(ErrorKind::Changed, OP, "changed since it was listed").with_key(&item.from));
    }
    make_dir(service, &item.to.parent()).await?;
    let hidden = names::hidden(&item.to)?;
    let how = if item.how == CopyHow::Rename { "MOVE" } else { "COPY" };
    let mtime = item.spec.mtime.or(there.mtime).filter(|_| service.vendor.oc_mtime);
    if how == "MOVE" {
        // There is one file all the while: it never has a hidden name.
        let own = service.web.url(&item.to)?;
        if own == source {
            return Ok(StoredFacts { size: there.size, ..StoredFacts::default() });
        }
        let note = |fault| noted(service, item, &there, fault);
        let moved = shift(service, how, &source, &item.to, false).await.map_err(note);
        match moved {
            Err(fault) if fault.status == 412 && matches!(item.spec.replace, Replace::Anything) => {
                match list::whatever(service, &item.to).await {
                    Ok(entry) if entry.is_dir() => {
                        return Err(Error::new(ErrorKind::Exists, OP, "is a directory").with_key(&item.to));
                    }
                    Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
                    _ => shift(service, how, &source, &item.to, true).await.map_err(note).map_err(at(OP, &item.to))?,
                }
            }
            Err(fault) if fault.status == 412 => {
                return Err(Error::new(ErrorKind::Unsupported, OP, "something is there").with_key(&item.to));
            }
            other => other.map_err(at(OP, &item.to))?,
        }
        return Ok(StoredFacts { size: there.size, ..StoredFacts::default() });
    }
    let copied = async {
        shift(service, how, &source, &hidden, false).await.map_err(at(OP, &item.to))?;
        let copy = list::stat(service, &hidden).await?;
        upload::proved(&copy, there.size, &there.hashes)
            .map_err(|why| Error::new(ErrorKind::Corrupt, OP, why).with_key(&item.to))?;
        upload::date(service, &hidden, &copy, mtime).await?;
        settle(service, &hidden, &item.to, &item.spec.replace).await.map_err(|(error, _)| error)
    };
    if let Err(error) = copied.await {
        // Any remains are hidden, and `cleanup` finds them.
        let _ = remove(service, &hidden).await;
        return Err(error);
    }
    Ok(StoredFacts { size: there.size, hashes: there.hashes, ..StoredFacts::default() })
}

/// The fault of a move; noted where the move may have been made all the same.
fn noted(service: &Service, item: &CopyItem, source: &Entry, fault: Box<Fault>) -> Box<Fault> {
    if fault.is_ambiguous() {
        service.moves.note(item, source.clone());
    }
    fault
}

/// See [`CopyHow::RenameDir`].
async fn rename_dir(service: &Service, source: &Url, there: &Entry, item: &CopyItem) -> Result<StoredFacts> {
    const OP: &str = "copy";
    if !there.is_dir() {
        let message = "what is to be renamed is no directory";
        return Err(Error::new(ErrorKind::Unsupported, OP, message).with_key(&item.to));
    }
    // Some servers ask for no condition where a file is at the directory's name.
    match list::whatever(service, &Key::new(item.to.path())).await {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
        Ok(_) => return Err(Error::new(ErrorKind::Exists, OP, "something is there already").with_key(&item.to)),
    }
    make_dir(service, &item.to.parent()).await?;
    match shift(service, "MOVE", source, &item.to, false).await.map_err(|fault| noted(service, item, there, fault)) {
        Err(fault) if fault.status == 412 => {
            Err(Error::new(ErrorKind::Exists, OP, "something is there already").with_key(&item.to))
        }
        other => {
            service.forget(&item.from);
            other.map_err(at(OP, &item.to)).map(|()| StoredFacts::default())
        }
    }
}
