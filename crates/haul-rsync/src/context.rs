//! Context of a run, from the program that starts it.

use anyhow::Result;
use haul::{Cancel, Cx, index::EarlierKnowledge, journal::Journal};
use haul_core::{Key, job::Verb};
use haul_remotes::{OpenOptions, Session};
use haul_store::{Meters, Store};
use haul_terminal::Screen;
use std::{ffi::OsStr, sync::Arc};

/// Opens the journal of a job, which may be of one file, from this key to that; `None` where none is kept.
pub type Journals<'a> = dyn Fn(Verb, &Cx, Option<(&Key, &Key)>) -> Result<Option<Journal>> + Send + Sync + 'a;

/// The surroundings of a run.
pub struct Context<'a> {
    /// Opens what is typed.
    pub session: &'a Session,
    /// The terminal.
    pub screen: Arc<Screen>,
    /// Counts requests and retries of everything that the run opens.
    pub meters: Arc<Meters>,
    /// Stops the run.
    pub cancel: Cancel,
    /// Nothing is to be changed, whatever the options say.
    pub dry_run: bool,
    /// `--interactive` was given. A run can't ask, so it refuses.
    pub interactive: bool,
    /// Bytes that transfers may hold.
    pub memory: u64,
    /// Hashes and indexes of earlier runs that jobs may use.
    pub known: EarlierKnowledge,
    /// Keeps journals.
    pub journals: &'a Journals<'a>,
}

impl Context<'_> {
    /// Opens what the user typed as a folder, bucket or remote root. That it exists isn't checked.
    pub(crate) fn open_as(&self, typed: &OsStr, options: &OpenOptions) -> Result<Arc<dyn Store>> {
        Ok(self.session.open(typed, options)?)
    }

    /// Opens what the user typed as a source: when it names one file, the store is of the folder that holds it, and the
    /// key is the file's.
    pub(crate) async fn open_source_as(
        &self,
        typed: &OsStr,
        options: &OpenOptions,
    ) -> Result<(Arc<dyn Store>, Option<Key>)> {
        Ok(self.session.open_source(typed, options).await?)
    }
}
