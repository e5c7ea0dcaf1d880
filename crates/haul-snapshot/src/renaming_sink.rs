//! A push as people see it: paths of the folder instead of content's names. Also remembers arrived content, and holds back errors
//! that are tried again.

use crate::view::KeyList;
use haul_core::{
    Error, ErrorKind, Key,
    event::{ErrorReport, Event, Sink},
};
use std::sync::{Arc, Mutex, MutexGuard};

/// True when it says: a file of the folder isn't as it was when it was looked at.
pub fn is_change(error: &Error) -> bool {
    let other = matches!(error.kind(), ErrorKind::Changed | ErrorKind::Corrupt | ErrorKind::NotFound);
    other && matches!(error.op(), "read" | "stat" | "list")
}

/// A sink that renames.
pub struct RenamingSink {
    inner: Arc<dyn Sink>,
    all: Arc<dyn KeyList>,
    /// A file that fails because the folder changed is looked at again, so it isn't reported as an error.
    again: bool,
    /// By number.
    arrived: Mutex<Vec<bool>>,
}

impl RenamingSink {
    /// Shows what happens to these keys under the names that people know.
    pub fn new(inner: Arc<dyn Sink>, all: Arc<dyn KeyList>, again: bool) -> RenamingSink {
        let arrived = Mutex::new(vec![false; all.count()]);
        RenamingSink { inner, all, again, arrived }
    }

    /// How many keys arrived, whole.
    pub fn arrived(&self) -> usize {
        self.flags().iter().filter(|arrived| **arrived).count()
    }

    fn flags(&self) -> MutexGuard<'_, Vec<bool>> {
        self.arrived.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn path(&self, key: &Key) -> Key {
        self.all.find(key).map_or_else(|| key.clone(), |number| self.all.shown(number))
    }

    /// The error with the path in place of the key.
    pub fn error(&self, error: &Error) -> ErrorReport {
        let report = error.to_report();
        Arc::new(match error.key() {
            Some(key) => report.with_key(&self.path(key)),
            None => report,
        })
    }
}

impl Sink for RenamingSink {
    fn emit(&self, event: &Event) {
        let shown = match event.clone() {
            Event::Decided { key, action, why, size, differs, facts, dry_run } => {
                Event::Decided { key: self.path(&key), action, why, size, differs, facts, dry_run }
            }
            Event::Begun { step, key, size, route } => Event::Begun { step, key: self.path(&key), size, route },
            Event::Done { step, key, size, replaced, proved } => {
                let path = match self.all.find(&key) {
                    Some(number) => {
                        self.flags()[number] = true;
                        self.all.shown(number)
                    }
                    None => key,
                };
                Event::Done { step, key: path, size, replaced, proved }
            }
            Event::Retried { step, error, wait } => Event::Retried { step, error: self.error(&error), wait },
            Event::Failed { step, error } if self.again && is_change(&error) => {
                self.inner.emit(&Event::Skipped { step });
                let key = error.key().map(|key| self.path(key));
                Event::Notice { key, message: "it changed while it was read: looking at it again".into() }
            }
            Event::Failed { step, error } => Event::Failed { step, error: self.error(&error) },
            Event::Error(error) => Event::Error(self.error(&error)),
            Event::Notice { key, message } => Event::Notice { key: key.map(|key| self.path(&key)), message },
            other => other,
        };
        self.inner.emit(&shown);
    }
}
