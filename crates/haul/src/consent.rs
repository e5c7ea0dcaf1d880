//! A person's answers to changes (`--interactive`).

use crate::{
    cx::{Answer, Confirm, Cx},
    ledger::Ledger,
};
use haul_core::{Key, plan::Action};
use std::sync::Arc;

/// A person's answers to changes; yes to all without `--interactive`.
#[derive(Clone)]
pub(crate) struct Consent {
    confirm: Option<Arc<dyn Confirm>>,
    ledger: Arc<Ledger>,
}

impl Consent {
    /// The consent of the person in `cx`, for the job of this record.
    pub fn new(cx: &Cx, ledger: &Arc<Ledger>) -> Consent {
        Consent { confirm: cx.confirm.clone(), ledger: ledger.clone() }
    }

    /// May `what` be done to `key`?
    pub fn to(&self, what: &str, key: &Key) -> bool {
        let Some(confirm) = &self.confirm else { return true };
        if self.ledger.was_quit() {
            return false;
        }
        // A question blocks this thread; transfers continue on the runtime's other threads.
        match tokio::task::block_in_place(|| confirm.ask(what, key)) {
            Answer::Yes => true,
            Answer::No => false,
            Answer::Quit => {
                self.ledger.quit();
                false
            }
        }
    }

    /// May this be done to a file `key`? What isn't asked here is asked when it is done, or changes nothing.
    pub fn to_action(&self, action: Action, key: &Key) -> bool {
        match action {
            Action::Copy => self.to("copy", key),
            Action::Touch => self.to("update modification time", key),
            _ => true,
        }
    }
}
