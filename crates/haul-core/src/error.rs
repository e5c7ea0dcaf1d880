//! One error type for the whole program: what kind, can trying again help, doing what, to which key.
//!
//! The command line alone turns it into words for a person, a hint, and an exit code.

use crate::Key;
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, time::Duration};

/// Kind of an error, as far as a decision can depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such file or key.
    NotFound,
    /// No such directory, bucket or remote root.
    DirNotFound,
    /// The content is no longer the requested version.
    Changed,
    /// Something is there that must not be replaced.
    Exists,
    /// The store knows us and says no.
    Denied,
    /// The store does not know us: credentials are missing or wrong.
    Unauthenticated,
    /// The store asks us to slow down.
    Busy,
    /// No answer within the time allowed.
    Timeout,
    /// Nothing has ever answered at the store's address, nothing can be called so, or what answers there isn't such a store or can't be
    /// trusted.
    Unreachable,
    /// No space, quota or inode left.
    NoSpace,
    /// Stored or received bytes differ from those sent or promised.
    Corrupt,
    /// The store can't do this.
    Unsupported,
    /// A request, name or value that can't be right.
    Invalid,
    /// It is there, but the filter keeps it from sight.
    Hidden,
    /// The user stopped it.
    Cancelled,
    /// A limit that the user set was reached (`--max-transfer`, `--max-delete`, …), or one of the service's at which the user wants to stop.
    Limit,
    /// Any other input, output or network error.
    Io,
}

impl ErrorKind {
    /// Nothing is there: neither a file nor a directory.
    pub fn is_missing(self) -> bool {
        matches!(self, ErrorKind::NotFound | ErrorKind::DirNotFound)
    }
}

/// How the message of a [`ErrorKind::DirNotFound`] ends where folders are only beginnings of keys: such a one can't be made, and is
/// there as soon as something is in it.
pub const NO_KEYS: &str = "no key begins with it";

/// Whether the same request may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Retry {
    /// The answer won't change.
    Never,
    /// After a back-off.
    Backoff,
    /// Not before this long (`Retry-After`).
    After(Duration),
}

/// The longest wait that a server is believed: what asks for more is asked again by then, so that no answer stops a run for good.
const LONGEST: Duration = Duration::from_hours(1);

impl Retry {
    /// Not before the time that a server asks for.
    #[must_use]
    pub fn after(wait: Duration) -> Retry {
        Retry::After(wait.min(LONGEST))
    }
}

/// Kind, operation, key, and whether a retry can help. One pointer wide.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    retry: Retry,
    op: Cow<'static, str>,
    key: Option<Key>,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

/// A result with haul's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` while doing `op` (a verb such as `read`, `list`); `message` says what happened in one
    /// line without the key. Busy and timeout start as [`Retry::Backoff`], all others as [`Retry::Never`].
    pub fn new(kind: ErrorKind, op: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        let retry = match kind {
            ErrorKind::Busy | ErrorKind::Timeout => Retry::Backoff,
            _ => Retry::Never,
        };
        Error(Box::new(Inner { kind, retry, op: op.into(), key: None, message: message.into(), source: None }))
    }

    /// From an operating system's error, with the kind that it means.
    pub fn from_io(op: &'static str, error: std::io::Error) -> Self {
        use std::io::ErrorKind as K;
        let kind = match error.kind() {
            K::NotFound => ErrorKind::NotFound,
            K::PermissionDenied | K::ReadOnlyFilesystem => ErrorKind::Denied,
            K::AlreadyExists => ErrorKind::Exists,
            K::StorageFull | K::QuotaExceeded | K::FileTooLarge => ErrorKind::NoSpace,
            K::InvalidFilename => ErrorKind::Invalid,
            K::Unsupported => ErrorKind::Unsupported,
            K::TimedOut => ErrorKind::Timeout,
            _ => ErrorKind::Io,
        };
        let mut this = Error::new(kind, op, error.to_string());
        this.0.source = Some(Box::new(error));
        this
    }

    /// With the key it happened to.
    pub fn with_key(mut self, key: &Key) -> Self {
        self.0.key = Some(key.clone());
        self
    }

    /// With another say on retrying.
    pub fn with_retry(mut self, retry: Retry) -> Self {
        self.0.retry = retry;
        self
    }

    /// With the error beneath.
    pub fn with_source(mut self, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Nothing is there: neither a file nor a directory.
    pub fn is_missing(&self) -> bool {
        self.kind().is_missing()
    }

    /// Whether the same request may be sent again.
    pub fn retry(&self) -> Retry {
        self.0.retry
    }

    /// The verb of the failed operation.
    pub fn op(&self) -> &str {
        &self.0.op
    }

    /// The key it happened to, if it happened to one.
    pub fn key(&self) -> Option<&Key> {
        self.0.key.as_ref()
    }

    /// The error in one line, without key and operation.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// A copy without the source, for reports that outlive the error.
    pub fn to_report(&self) -> Error {
        Error(Box::new(Inner {
            kind: self.0.kind,
            retry: self.0.retry,
            op: self.0.op.clone(),
            key: self.0.key.clone(),
            message: self.0.message.clone(),
            source: None,
        }))
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.0.kind)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.key {
            Some(key) if !key.is_root() => write!(f, "{key}: {}: {}", self.0.op, self.0.message),
            _ => write!(f, "{}: {}", self.0.op, self.0.message),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_ref().map(|s| s.as_ref() as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_as_one_line() {
        let error = Error::new(ErrorKind::NotFound, "read", "no such key").with_key(&Key::new("a/b"));
        assert_eq!(error.to_string(), "a/b: read: no such key");
        assert_eq!(error.to_report().to_string(), error.to_string());
    }

    #[test]
    fn a_full_disk_is_known_as_one() {
        let error = Error::from_io("write", std::io::Error::from_raw_os_error(28));
        assert_eq!(error.kind(), ErrorKind::NoSpace);
    }
}
