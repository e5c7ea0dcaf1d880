//! Why a typed name doesn't become an open store, or a configuration can't be read or changed. Each message is one line
//! that names the thing; a front end adds nothing but its exit code.

/// What went wrong.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// What was typed can't be meant: quotes that don't end, a name that no remote can have.
    #[error("{0}")]
    Typed(String),
    /// The configuration, or a value of it, can't be used.
    #[error("{0}")]
    Config(String),
    /// The system refused to do something.
    #[error("{what}")]
    System {
        /// What it was.
        what: String,
        /// Its reason.
        source: std::io::Error,
    },
    /// The error beneath belongs to this.
    #[error("{what}")]
    Within {
        /// A remote, an option, a file.
        what: String,
        /// The error beneath.
        source: Box<Error>,
    },
    /// A store's error.
    #[error(transparent)]
    Store(#[from] haul_core::Error),
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

    /// The same error, as one of a remote, an option or a file.
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
    }

    #[test]
    fn a_stores_error_reads_as_its_own() {
        let error = Error::from(haul_core::Error::new(ErrorKind::Denied, "open", "no"));
        assert_eq!(error.to_string(), "open: no");
        assert!(error.source().is_none());
    }
}
