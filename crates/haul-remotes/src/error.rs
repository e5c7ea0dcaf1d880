//! Why a typed name doesn't become an open store, or a configuration can't be read or changed. Each message is one line
//! that names the thing; a front end adds nothing but its exit code.

use std::fmt;

/// An error of this crate.
#[derive(Debug)]
pub enum Error {
    /// The typed text has no meaning: quotes that don't end, a name that no remote can have.
    Typed(String),
    /// The configuration, or a value of it, can't be used.
    Config(String),
    /// The system refused to do something.
    System {
        /// The remote, option or file.
        what: String,
        /// Its reason.
        source: std::io::Error,
    },
    /// The error beneath belongs to this.
    Within {
        /// A remote, an option, a file.
        what: String,
        /// The error beneath.
        source: Box<Error>,
    },
    /// A store's error, which reads as itself.
    Store(haul_core::Error),
}

/// A result with this crate's error.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A configuration, or a value of it, that can't be used.
    pub fn config(why: impl Into<String>) -> Error {
        Error::Config(why.into())
    }

    /// The system refused to do `what`.
    pub fn system(what: impl Into<String>, source: std::io::Error) -> Error {
        Error::System { what: what.into(), source }
    }

    /// This error, as one of a remote, an option or a file.
    pub fn within(self, what: impl Into<String>) -> Error {
        Error::Within { what: what.into(), source: Box::new(self) }
    }

    /// The error beneath all [`Error::Within`].
    pub fn cause(&self) -> &Error {
        match self {
            Error::Within { source, .. } => source.cause(),
            cause => cause,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Typed(why) | Error::Config(why) => f.write_str(why),
            Error::System { what, .. } | Error::Within { what, .. } => f.write_str(what),
            Error::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    /// The error beneath, of its own type: not the box that thiserror would give, which no caller can tell from others.
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Typed(_) | Error::Config(_) => None,
            Error::System { source, .. } => Some(source),
            Error::Within { source, .. } => Some(&**source),
            Error::Store(error) => error.source(),
        }
    }
}

impl From<haul_core::Error> for Error {
    fn from(error: haul_core::Error) -> Error {
        Error::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::ErrorKind;
    use std::error::Error as _;

    #[test]
    fn the_cause_is_found_beneath_what_it_belongs_to() {
        let error = Error::config("it is empty").within("option x").within("remote \"r\"");
        assert!(matches!(error.cause(), Error::Config(why) if why == "it is empty"));
        let mut line = error.to_string();
        let mut beneath = error.source();
        while let Some(cause) = beneath {
            line = format!("{line}: {cause}");
            beneath = cause.source();
        }
        assert_eq!(line, "remote \"r\": option x: it is empty");
        let beneath = error.source().and_then(|e| e.downcast_ref::<Error>());
        assert!(matches!(beneath, Some(Error::Within { what, .. }) if what == "option x"));
    }

    #[test]
    fn a_stores_error_reads_as_its_own() {
        let error = Error::from(haul_core::Error::new(ErrorKind::Denied, "open", "no"));
        assert_eq!(error.to_string(), "open: no");
        assert!(error.source().is_none());
    }
}
