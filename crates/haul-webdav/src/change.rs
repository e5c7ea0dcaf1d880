//! Changes: directories, moves, times, deletes. A move onto a directory, or a delete of one by a file's
//! name, would remove the whole directory; the existing entry is therefore looked up first.

use crate::{
    Service,
    answer::done,
    list::{self, method},
};
use bytes::Bytes;
use haul_core::{Error, ErrorKind, Key, Mtime, Result, Retry, Version, plan::Replace};
use haul_net::{Fault, FaultResult, at};
use haul_store::{
    Direction, Payload,
    web::{Call, Facts},
};
use http::{HeaderName, Method, header};
use url::Url;

impl Service {
    /// Directories at `dir` and below it may be missing.
    pub fn forget(&self, dir: &Key) {
        let mut made = self.made.lock().unwrap_or_else(|e| e.into_inner());
        made.retain(|known| {
            !known.as_bytes().starts_with(dir.as_bytes()) && !dir.as_bytes().starts_with(known.as_bytes())
        });
    }

    fn is_made(&self, dir: &Key) -> bool {
        dir.is_root() || self.made.lock().unwrap_or_else(|e| e.into_inner()).contains(dir)
    }

    fn has(&self, dir: &Key) {
        self.made.lock().unwrap_or_else(|e| e.into_inner()).insert(dir.clone());
    }
}

/// See [`haul_store::Store::make_dir`].
pub async fn make_dir(service: &Service, key: &Key) -> Result<()> {
    if key.is_root() {
        return make_root(service).await;
    }
    // From the deepest up to one that can be made, then down again.
    let mut missing = Vec::new();
    let mut dir = key.clone();
    while !service.is_made(&dir) {
        match make_below(service, &dir).await? {
            None => break,
            Some(fault) if !matches!(fault.status, 404 | 409) => return Err(fault.at("mkdir", &dir)),
            Some(_) => {}
        }
        let above = dir.parent();
        missing.push(dir);
        if above.is_root() {
            make_root(service).await?;
        }
        dir = above;
    }
    for dir in missing.iter().rev() {
        if let Some(fault) = make_below(service, dir).await? {
            return Err(fault.at("mkdir", dir));
        }
    }
    Ok(())
}

/// Makes one directory, whose parent should be there. What the server said if it isn't there afterwards.
async fn make_below(service: &Service, dir: &Key) -> Result<Option<Box<Fault>>> {
    let _turn = service.making.at(dir).await;
    if service.is_made(dir) {
        return Ok(None);
    }
    if let Err(fault) = make_one(service, &service.web.url(dir)?).await {
        // It may have been there before, or another program has made it meanwhile.
        match list::whatever(service, dir).await {
            Ok(entry) if entry.is_dir() => {}
            Ok(_) => return Err(Error::new(ErrorKind::Exists, "mkdir", "a file is in its place").with_key(dir)),
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Some(fault)),
            Err(e) => return Err(e),
        }
    }
    service.has(dir);
    Ok(None)
}

async fn make_one(service: &Service, url: &Url) -> FaultResult<()> {
    done(service, Call::new("MKCOL", Direction::Meta, method("MKCOL"), url.clone())).await
}

/// The root, and what of its path is missing.
async fn make_root(service: &Service) -> Result<()> {
    let root = Key::new("");
    let _turn = service.making.at(&root).await;
    match list::whatever(service, &root).await {
        Ok(entry) if entry.is_dir() => return Ok(()),
        Ok(_) => return Err(Error::new(ErrorKind::Exists, "mkdir", format!("{}: this is a file", service.web.root))),
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
    }
    let mut missing = vec![service.web.root.clone()];
    while let Some(last) = missing.last().cloned() {
        match make_one(service, &last).await {
            Ok(()) => {
                missing.pop();
            }
            Err(fault) if matches!(fault.status, 404 | 409) && missing.len() < 64 && last.path() != "/" => {
                let above = last.join("..").ok().filter(|above| *above != last);
                missing.push(above.ok_or_else(|| fault.error("mkdir"))?);
            }
            Err(fault) => return Err(fault.error("mkdir")),
        }
    }
    Ok(())
}

/// So often other writers of the same name may come between before that is an error.
const MEETINGS: usize = 16;

/// Moves `from` to the name `to`. The second of what fails tells that it may have been done all the same.
pub async fn settle(service: &Service, from: &Key, to: &Key, replace: &Replace) -> Result<(), (Error, bool)> {
    let sure = |error: Error| (error, false);
    let origin = service.web.url(from).map_err(sure)?;
    if let Replace::Exactly(version) = replace {
        let there = list::whatever(service, to).await;
        let same = there.as_ref().is_ok_and(|entry| entry.version.as_ref() == Some(version));
        if !same {
            let error = match there {
                Err(e) if e.kind() != ErrorKind::NotFound => e,
                _ => Error::new(ErrorKind::Changed, "write", "changed since it was listed").with_key(to),
            };
            return Err(sure(error));
        }
        return shift(service, "MOVE", &origin, to, true).await.map_err(|f| failed(*f, to));
    }
    let exists = |message: &str| sure(Error::new(ErrorKind::Exists, "write", message).with_key(to));
    match shift(service, "MOVE", &origin, to, false).await {
        Err(fault) if fault.status == 412 => {}
        // So nginx answers where a directory is, and Apache.
        Err(fault) if matches!(fault.status, 409 | 301) => {
            return Err(match list::whatever(service, to).await {
                Ok(entry) if entry.is_dir() => exists("is a directory"),
                _ => failed(*fault, to),
            });
        }
        other => return other.map_err(|f| failed(*f, to)),
    }
    if matches!(replace, Replace::Absent) {
        return Err(exists("is there already"));
    }
    let mut meetings = 0;
    loop {
        match list::whatever(service, to).await {
            Ok(entry) if entry.is_dir() => return Err(exists("is a directory")),
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(sure(e)),
            _ => {}
        }
        match shift(service, "MOVE", &origin, to, true).await {
            // Apache deletes what is there before it moves: where another writer's move did so in the same moment, it finds nothing to
            // delete, says that, and moves nothing.
            Err(fault) if fault.status == 404 && meetings < MEETINGS && list::whatever(service, from).await.is_ok() => {
                meetings += 1;
            }
            other => return other.map_err(|f| failed(*f, to)),
        }
    }
}

fn failed(fault: Fault, key: &Key) -> (Error, bool) {
    let ambiguous = fault.is_ambiguous();
    (fault.at("write", key), ambiguous)
}

/// `MOVE` or `COPY` to the name `to`.
pub async fn shift(service: &Service, how: &'static str, from: &Url, to: &Key, over: bool) -> FaultResult<()> {
    let url = service.web.url(to).map_err(|e| Fault::new(e.kind(), e.retry(), e.message()))?;
    let direction = if how == "COPY" { Direction::Copy } else { Direction::Meta };
    let call = Call::new(how, direction, method(how), from.clone())
        .header(HeaderName::from_static("destination"), url.as_str())
        .header(HeaderName::from_static("overwrite"), if over { "T" } else { "F" })
        .header(HeaderName::from_static("depth"), "infinity");
    done(service, call).await
}

/// See [`haul_store::Store::set_meta`].
pub async fn set_mtime(service: &Service, key: &Key, mtime: Option<Mtime>) -> Result<()> {
    let Some(mtime) = mtime else { return Ok(()) };
    let refused = if key.is_dir() && !service.vendor.dir_mtime {
        Some("this server sets the times of directories itself")
    } else if !service.vendor.prop_mtime {
        Some("this server takes a file's time with its content only, or never")
    } else {
        None
    };
    if let Some(message) = refused {
        return Err(Error::new(ErrorKind::Unsupported, "set_meta", message).with_key(key));
    }
    let question = format!(
        "<?xml version=\"1.0\"?><d:propertyupdate xmlns:d=\"DAV:\"><d:set><d:prop><d:lastmodified>{}</d:lastmodified></d:prop>\
         </d:set></d:propertyupdate>",
        mtime.secs()
    );
    let mut call = Call::new("PROPPATCH", Direction::Meta, method("PROPPATCH"), service.web.url(key)?)
        .header(header::CONTENT_TYPE, "application/xml; charset=utf-8");
    call.body = Payload::from(Bytes::from(question));
    done(service, call).await.map_err(at("set_meta", key))
}

/// Deletes what is there; what isn't there is as good.
pub async fn remove(service: &Service, key: &Key) -> Result<()> {
    remove_if(service, key, None).await?.map_err(at("delete", key))
}

/// Deletes what is there, of this ETag where one is given.
async fn remove_if(service: &Service, key: &Key, etag: Option<&str>) -> Result<FaultResult<()>> {
    let mut call = Call::new("DELETE", Direction::Meta, Method::DELETE, service.web.url(key)?);
    if let Some(etag) = etag {
        call = call.header(header::IF_MATCH, etag);
    }
    Ok(match done(service, call).await {
        Err(fault) if fault.status == 404 => Ok(()),
        other => other,
    })
}

/// See [`haul_store::Store::delete`].
pub async fn delete(service: &Service, key: &Key, version: Option<&Version>) -> Result<()> {
    const OP: &str = "delete";
    if key.is_dir() || key.is_root() {
        let found = match list::collection(service, key).await {
            Err(e) if e.kind() == ErrorKind::NotFound && !key.is_root() => return absent(service, key).await,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        if !found.is_empty() {
            return Err(Error::new(ErrorKind::Exists, OP, "the directory isn't empty").with_key(key));
        }
        service.forget(key);
        return remove(service, key).await;
    }
    if !is_file_of(service, key, version).await? {
        return Ok(());
    }
    // Who writes between the question and the request keeps his file, where the server heeds conditions.
    let etag = version.and_then(Facts::etag_of);
    match remove_if(service, key, etag.as_deref()).await? {
        // Some servers name other ETags in listings than they compare with, or weak ones, which never match.
        Err(fault) if fault.status == 412 && etag.is_some() => match is_file_of(service, key, version).await? {
            true => remove(service, key).await,
            false => Ok(()),
        },
        answer => answer.map_err(at(OP, key)),
    }
}

/// Is a file at `key`?
///
/// Errors: it is of another version than the given one.
async fn is_file_of(service: &Service, key: &Key, version: Option<&Version>) -> Result<bool> {
    let there = match list::whatever(service, key).await {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        other => other?,
    };
    // No file is called as a directory is.
    if !there.is_dir() && version.is_some() && version != there.version.as_ref() {
        return Err(Error::new(ErrorKind::Changed, "delete", "changed since it was listed").with_key(key));
    }
    Ok(!there.is_dir())
}

/// Nothing is there, or a file.
async fn absent(service: &Service, key: &Key) -> Result<()> {
    match list::whatever(service, key).await {
        Ok(entry) if entry.is_dir() => {
            Err(Error::new(ErrorKind::Io, "delete", "the server says that it is there and that it isn't")
                .with_retry(Retry::Backoff)
                .with_key(key))
        }
        Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}
