//! Google's own documents (Docs, Sheets, Slides, Drawings). They have no bytes: each is shown as a file of the first of the user's formats
//! that Google makes of it, and how long that is isn't known before it is made.

use crate::{facts::File, service::Service};
use bytes::Bytes;
use haul_core::{Entry, Error, ErrorKind, Key, Result, Version};
use haul_net::{Fault, Reply, Tried};
use haul_oauth::{Call, google::is_at};
use haul_store::Direction;
use http::{Method, StatusCode};
use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};
use url::Url;

/// What a document can be shown as.
#[derive(Debug, PartialEq, Eq)]
pub struct Format {
    /// What is added to its name, behind a dot.
    pub ending: &'static str,
    mime: &'static str,
}

/// Google's list of what it exports, by endings.
const FORMATS: &[Format] = &[
    Format { ending: "csv", mime: "text/csv" },
    Format { ending: "docx", mime: "application/vnd.openxmlformats-officedocument.wordprocessingml.document" },
    Format { ending: "epub", mime: "application/epub+zip" },
    Format { ending: "html", mime: "text/html" },
    Format { ending: "jpg", mime: "image/jpeg" },
    Format { ending: "json", mime: "application/vnd.google-apps.script+json" },
    Format { ending: "md", mime: "text/markdown" },
    Format { ending: "odp", mime: "application/vnd.oasis.opendocument.presentation" },
    Format { ending: "ods", mime: "application/x-vnd.oasis.opendocument.spreadsheet" },
    Format { ending: "odt", mime: "application/vnd.oasis.opendocument.text" },
    Format { ending: "pdf", mime: "application/pdf" },
    Format { ending: "png", mime: "image/png" },
    Format { ending: "pptx", mime: "application/vnd.openxmlformats-officedocument.presentationml.presentation" },
    Format { ending: "rtf", mime: "application/rtf" },
    Format { ending: "svg", mime: "image/svg+xml" },
    Format { ending: "tsv", mime: "text/tab-separated-values" },
    Format { ending: "txt", mime: "text/plain" },
    Format { ending: "xlsx", mime: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" },
    Format { ending: "zip", mime: "application/zip" },
];

/// Bytes of exports that are kept until they are read.
const KEPT: usize = 64 << 20;
/// Redirections that are followed.
const HOPS: usize = 5;

/// Formats by their endings, with commas between.
///
/// Errors: `Invalid`, naming one that isn't known.
pub fn formats(typed: &str) -> Result<Vec<&'static Format>> {
    let endings = typed.split(',').map(|ending| ending.trim().trim_start_matches('.')).filter(|e| !e.is_empty());
    let known = |ending: &str| {
        let unknown = || {
            let all: Vec<_> = FORMATS.iter().map(|format| format.ending).collect();
            let message = format!("export_formats = {ending:?}: use some of {}", all.join(","));
            Error::new(ErrorKind::Invalid, "open", message)
        };
        by_ending(&ending.to_lowercase()).ok_or_else(unknown)
    };
    endings.map(known).collect()
}

/// The format of an ending.
pub fn by_ending(ending: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.ending == ending)
}

/// What a document is shown as; `None` where Google makes none of the formats of it.
pub fn format_of(formats: &[&'static Format], file: &File) -> Option<&'static Format> {
    formats.iter().copied().find(|format| file.export_links.contains_key(format.mime))
}

/// Exports that were made to learn how long they are.
#[derive(Debug, Default)]
pub struct Exports(Mutex<VecDeque<(Version, Bytes)>>);

impl Exports {
    /// The latest stays in any case.
    fn keep(&self, version: &Version, bytes: &Bytes) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|(of, _)| of != version);
        kept.push_back((version.clone(), bytes.clone()));
        while kept.len() > 1 && kept.iter().map(|(_, bytes)| bytes.len()).sum::<usize>() > KEPT {
            kept.pop_front();
        }
    }

    /// One that is read as a whole isn't kept any longer.
    fn get(&self, version: &Version, whole: bool) -> Option<Bytes> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.iter().position(|(of, _)| of == version)?;
        match whole {
            true => kept.remove(at).map(|(_, bytes)| bytes),
            false => kept.get(at).map(|(_, bytes)| bytes.clone()),
        }
    }
}

/// A document as a file, and its bytes: those that a question for its size has left, or new ones.
///
/// Errors: `Changed` where somebody edits it just now; `Unsupported` for what isn't shown as a file.
pub async fn content(
    service: &Service,
    file: &File,
    key: &Key,
    op: &'static str,
    whole: bool,
) -> Result<(Entry, Bytes)> {
    let unshown = || Error::new(ErrorKind::Unsupported, op, "Google makes no file of this document").with_key(key);
    let listed = file.entry(key.clone()).ok_or_else(unshown)?;
    let (format, version) = (file.format.ok_or_else(unshown)?, listed.version.clone().ok_or_else(unshown)?);
    let bytes = match service.exports.get(&version, whole) {
        Some(bytes) => bytes,
        None => {
            let bytes = export(service, file, format, key, op).await?;
            // What was made of it may be what it is by now.
            let now = service.by_id(&file.id).await.map_err(|refused| refused.at(op, key))?;
            if now.modified_time != file.modified_time {
                return Err(Error::new(ErrorKind::Changed, op, "it is being edited").with_key(key));
            }
            if !whole {
                service.exports.keep(&version, &bytes);
            }
            bytes
        }
    };
    Ok((Entry { size: bytes.len() as u64, sized: true, ..listed }, bytes))
}

async fn export(service: &Service, file: &File, format: &Format, key: &Key, op: &'static str) -> Result<Bytes> {
    let path = format!("/files/{}/export", file.id);
    let call = service.call("Export", Method::GET, &path, &[("mimeType", format.mime)]).going(Direction::Down);
    match service.api.send(&call).await {
        Ok(reply) => all(reply).await.map_err(|fault| fault.at(op, key)),
        // More than 10 MB come by the document's own link only.
        Err(refused) if refused.code == "exportSizeLimitExceeded" => by_link(service, file, format, key, op).await,
        Err(refused) => Err(refused.at(op, key)),
    }
}

/// All bytes of an answer whose end can be told from a connection that broke.
async fn all(reply: Reply) -> Tried<Bytes> {
    if reply.header("content-length").is_none() && reply.header("transfer-encoding").is_none() {
        return Err(Fault::broken("nobody can tell whether all of the export came"));
    }
    reply.bytes().await
}

async fn by_link(service: &Service, file: &File, format: &Format, key: &Key, op: &'static str) -> Result<Bytes> {
    const ELSEWHERE: &[StatusCode] = &[StatusCode::FOUND, StatusCode::SEE_OTHER, StatusCode::TEMPORARY_REDIRECT];
    let mut link = file.export_links.get(format.mime).cloned().unwrap_or_default();
    for _ in 0..HOPS {
        let call = Call::new("Export", Method::GET, &link).going(Direction::Down).accepts(ELSEWHERE);
        // Our token is for Google alone; where it leads us on, the address is good by itself.
        let call = if is_googles(service, &link) { call } else { call.anonymous() };
        let reply = service.api.send(&call).await.map_err(|refused| refused.at(op, key))?;
        if reply.status.is_success() {
            return all(reply).await.map_err(|fault| fault.at(op, key));
        }
        let from = Url::parse(&link).ok();
        let next = from.zip(reply.header("location")).and_then(|(from, next)| from.join(next).ok());
        link = next
            .map(String::from)
            .ok_or_else(|| Fault::broken("Google leads on, and doesn't say where to").at(op, key))?;
    }
    Err(Fault::broken("Google leads on again and again").at(op, key))
}

fn is_googles(service: &Service, link: &str) -> bool {
    is_at(link, "https://docs.google.com") || is_at(link, &service.config.endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_format_that_there_is() {
        let of = |typed: &str| formats(typed).map(|all| all.iter().map(|f| f.ending).collect::<Vec<_>>());
        assert_eq!(of("docx, .XLSX,").unwrap(), ["docx", "xlsx"]);
        assert!(of("").unwrap().is_empty());
        let error = of("docx,doc").unwrap_err();
        assert!(error.message().starts_with("export_formats = \"doc\": use some of csv,docx,"), "{error}");
        let links = ["application/pdf", "text/plain"].map(|mime| (mime.to_owned(), String::new()));
        let file = File { export_links: links.into(), ..File::default() };
        assert_eq!(format_of(&formats("docx,txt,pdf").unwrap(), &file).unwrap().ending, "txt");
        assert!(format_of(&formats("docx").unwrap(), &file).is_none());
    }

    #[test]
    fn exports_are_kept_up_to_a_bound() {
        let exports = Exports::default();
        let version = |n: u8| Version::new([n]);
        for n in 0..5 {
            exports.keep(&version(n), &Bytes::from(vec![n; KEPT / 3]));
        }
        assert!(exports.get(&version(0), false).is_none());
        assert_eq!(exports.get(&version(4), false).unwrap()[0], 4);
        assert!(exports.get(&version(4), true).is_some() && exports.get(&version(4), true).is_none());
        exports.keep(&version(9), &Bytes::from(vec![9; KEPT + 1]));
        assert!(exports.get(&version(9), false).is_some() && exports.get(&version(3), false).is_none());
    }
}
