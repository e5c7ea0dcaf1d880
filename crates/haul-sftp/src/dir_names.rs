//! The names of one directory, asked for ahead of the answers.

use crate::{
    pool::{self, Claim, Fault, Handle},
    service::{Service, at},
    wire::{Name, Reply, Request, status},
};
use haul_core::{Error, ErrorKind, Key, Result};
use std::{collections::VecDeque, sync::atomic::Ordering::Relaxed};

const OP: &str = "list";

/// Requests for names of a directory that are under way at once, at first and at most. An answer has some hundred names: without
/// asking ahead a directory of a hundred thousand costs a thousand round trips.
const AHEAD: (usize, usize) = (2, 64);

/// Bytes that the names of a directory may take, facts included: some millions of names. What lists more lists without an end.
const NAMES: usize = 512 << 20;

/// Bytes that a name takes besides its own.
const EACH: usize = 128;

/// The longest path that a directory can have: that of Linux. Longer ones have directories in directories without an end.
const PATH: usize = 4096;

/// All names of a directory but its own and the one above; hidden ones too.
///
/// Errors: `NotFound` when it isn't a directory.
pub async fn of(service: &Service, dir: &Key) -> Result<Vec<Name>> {
    let path = service.path(dir)?;
    if path.len() > PATH {
        let message = format!("its path is longer than {PATH} bytes: the server lists directories without an end");
        return Err(Error::new(ErrorKind::Invalid, OP, message).with_key(dir));
    }
    let names = service.ask("Readdir", async |channel| read(channel, &path).await).await;
    match names {
        Ok((names, dots)) if names.is_empty() && !dots => {
            // So SeaweedFS answers also where a file is, or nothing.
            let facts = service.facts(&path, true).await.map_err(at(OP, dir))?;
            if !facts.is_dir() {
                return Err(at(OP, dir)(Fault::Status(status::NO_SUCH_FILE, String::new())));
            }
            // And OpenSSH, which ends the listing where a disk doesn't let it read on.
            if lists_dots(service).await.map_err(at(OP, dir))? {
                let message = "the server could not read this directory: it lists not even the directory itself";
                return Err(Error::new(ErrorKind::Io, OP, message).with_key(dir));
            }
            // And OpenSSH of a directory that may be listed but not entered: it leaves out each name of which it can't tell more.
            match service.facts(&[&path[..], b"/."].concat(), true).await {
                Err(fault @ Fault::Lost(_)) => Err(at(OP, dir)(fault)),
                Err(fault) if fault.is(status::PERMISSION_DENIED) => Err(at(OP, dir)(fault)),
                _ => Ok(names),
            }
        }
        // So servers answer where a file is.
        Err(Fault::Status(code, _)) if code != status::NO_SUCH_FILE && code != status::PERMISSION_DENIED => {
            let fault = match service.facts(&path, true).await {
                Ok(attrs) if !attrs.is_dir() => Fault::Status(status::NO_SUCH_FILE, String::new()),
                Ok(_) => Fault::Status(code, String::new()),
                Err(fault) => fault,
            };
            Err(at(OP, dir)(fault))
        }
        Ok((names, dots)) => {
            service.lists_dots.fetch_or(dots, Relaxed);
            Ok(names)
        }
        Err(fault) => Err(at(OP, dir)(fault)),
    }
}

/// Whether the server lists a directory's own name with those in it. If no directory has told so far, the topmost one is asked, once.
async fn lists_dots(service: &Service) -> Result<bool, Fault> {
    if service.lists_dots.load(Relaxed) {
        return Ok(true);
    }
    let at_the_top = async || {
        let first = service.ask("Readdir", async |channel| {
            let handle = Handle::opened(channel, channel.ask(&Request::Opendir(b"/"))).await?;
            let first = channel.ask(&Request::Readdir(&handle.name)).await;
            pool::done(handle.close()).await?;
            Ok(first?)
        });
        match first.await {
            Ok(Reply::Names(names)) => Ok(names.iter().any(|name| name.name == b"."[..])),
            Err(fault @ Fault::Lost(_)) => Err(fault),
            // It may not be seen.
            _ => Ok(false),
        }
    };
    service.dots_at_the_top.get_or_try_init(at_the_top).await.copied()
}

/// The names, and whether the directory's own was among them.
async fn read(channel: &Claim, path: &[u8]) -> Result<(Vec<Name>, bool), Fault> {
    let handle = Handle::opened(channel, channel.ask(&Request::Opendir(path))).await?;
    let (mut all, mut in_flight, mut ahead, mut bytes) = (Vec::<Name>::new(), VecDeque::new(), AHEAD.0, 0);
    let (mut ended, mut again) = (false, false);
    loop {
        while !ended && in_flight.len() < ahead {
            in_flight.push_back(channel.ask(&Request::Readdir(&handle.name)));
        }
        let Some(next) = in_flight.pop_front() else { break };
        match next.await? {
            // A server that does two requests at once may tell of the end first, and of the last names then; one that begins anew
            // behind its end has told all.
            Reply::Names(names) if ended && (again || names.is_empty() || starts_anew(&all, &names)) => again = true,
            Reply::Names(names) => {
                bytes += names.iter().map(|name| name.name.len() + EACH).sum::<usize>();
                if names.is_empty() || bytes > NAMES || starts_anew(&all, &names) {
                    let message = "the server lists this directory without an end";
                    return Err(Error::new(ErrorKind::Invalid, OP, message).into());
                }
                all.extend(names);
                ahead = (2 * ahead).min(AHEAD.1);
            }
            Reply::Status(status::EOF, _) => ended = true,
            Reply::Status(..) if ended => {}
            other => return Err(Fault::unexpected(other)),
        }
    }
    pool::done(handle.close()).await?;
    let count = all.len();
    all.retain(|name| !matches!(&name.name[..], b"." | b".."));
    let dots = all.len() < count;
    Ok((all, dots))
}

/// A server that has come to its end and begins again.
fn starts_anew(all: &[Name], names: &[Name]) -> bool {
    all.first().zip(names.first()).is_some_and(|(first, again)| first.name == again.name)
}
