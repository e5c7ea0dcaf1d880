//! Files that arrived, and wait for their names (`--delay-updates`).

use crate::{
    backup::ReplacedFile,
    transfer::{ArrivedFile, FileTransfer},
};
use haul_core::{Entry, Key, event::StepId};
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Mutex, MutexGuard},
};

/// Files that wait for their names: some 600 bytes of memory each, beside what is kept of directories anyway.
#[derive(Default)]
pub(super) struct WaitingFiles(Mutex<State>);

#[derive(Default)]
pub(super) struct State {
    /// Under way: the final key of each, and the destination's current entry.
    pub coming: HashMap<StepId, (Key, Option<Entry>)>,
    /// Arrived: the order with its final key, where the file is, and its result.
    pub here: Vec<(FileTransfer, Key, ArrivedFile)>,
    /// Directories `.~tmp~` that this run or an earlier one made.
    pub stages: BTreeSet<Key>,
}

impl WaitingFiles {
    /// The waiting orders.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Keeps an arrived file until all get their names; returns one that isn't delayed.
    pub fn keep(&self, order: &FileTransfer, arrived: ArrivedFile) -> Option<ArrivedFile> {
        let mut state = self.state();
        let Some((to, replaced)) = state.coming.remove(&order.step) else { return Some(arrived) };
        let at = order.to.clone();
        state.here.push((FileTransfer { to, replaced, kept: ReplacedFile::No, ..order.clone() }, at, arrived));
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(step: StepId, to: &str) -> FileTransfer {
        FileTransfer::new(step, Entry::file(Key::new("src"), 1), Key::new(to), None)
    }

    #[test]
    fn only_delayed_files_wait_for_their_names() {
        let delayed = WaitingFiles::default();
        assert!(delayed.keep(&order(1, "a"), ArrivedFile::default()).is_some(), "it went to its own name");
        let old = Entry::file(Key::new("d/f"), 9);
        delayed.state().coming.insert(2, (Key::new("d/f"), Some(old.clone())));
        let sent = FileTransfer { kept: ReplacedFile::Done, ..order(2, "d/.~tmp~/f") };
        assert!(delayed.keep(&sent, ArrivedFile::default()).is_none());
        {
            let state = delayed.state();
            let (order, at, _) = &state.here[0];
            assert_eq!((&order.to, at), (&Key::new("d/f"), &Key::new("d/.~tmp~/f")));
            assert_eq!(
                (order.replaced.as_ref(), order.kept),
                (Some(&old), ReplacedFile::No),
                "what its name replaces is kept then"
            );
        }
        assert!(delayed.keep(&sent, ArrivedFile::default()).is_some(), "it waits once");
    }
}
