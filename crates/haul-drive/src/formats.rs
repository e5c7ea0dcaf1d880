//! Export formats of Google documents.

use haul_core::{Error, ErrorKind, Result};

/// An export format of a document.
#[derive(Debug, PartialEq, Eq)]
pub struct Format {
    /// File name extension, without the dot.
    pub ending: &'static str,
    /// As Google calls it.
    pub mime: &'static str,
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
