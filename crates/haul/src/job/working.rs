//! What does the work that is decided, and the small decisions on the way to it: transfers on one side, attributes of what
//! has the same bytes on the other.

use super::Run;
use crate::{
    attributes::{self, Due},
    schedule::{COMING, Queue},
    transfer::Order,
};
use haul_core::{
    Entry, Error, ErrorKind, Key, Kind,
    attributes::{Unkept, What, Why},
    compare::{FileType, Reason},
    event::{Event, LeftOut},
    plan::Action,
};
use std::sync::Arc;
use tokio::{sync::mpsc, task::JoinHandle};

/// Where decided work goes; its receivers are in [`Working`].
#[derive(Clone)]
pub(crate) struct Orders {
    /// Files to be brought over.
    pub transfers: mpsc::Sender<Order>,
    /// Files whose attributes are to be looked at.
    pub attributes: mpsc::Sender<Due>,
}

/// What does the work; ends when all senders of its [`Orders`] are gone.
pub(crate) struct Working {
    scheduler: JoinHandle<()>,
    setter: JoinHandle<()>,
}

impl Run {
    /// Starts what does the work that is decided: transfers, and setting attributes.
    pub fn start_working(self: Arc<Self>, check_first: bool) -> (Orders, Working) {
        let (transfers, coming) = mpsc::channel(COMING);
        let (attributes, due) = mpsc::channel(attributes::BACKLOG);
        let queue = Queue::new(coming, self.policy.order_by, check_first, self.mover.copy_batch());
        let scheduler = tokio::spawn(self.clone().schedule(queue));
        let setter = tokio::spawn(self.set_attributes(due));
        (Orders { transfers, attributes }, Working { scheduler, setter })
    }

    /// Waits until all of it is done; every sender of orders must be gone.
    pub async fn finish_working(&self, working: Working) {
        self.joined("transfer", working.scheduler.await);
        self.joined("set attributes", working.setter.await);
        self.publish_delayed().await;
    }

    /// Tells the further names of a file what becomes of the first.
    pub(super) fn note_first_name(&self, action: Action, src: &Entry, dst: Option<&Entry>, why: Reason) {
        match action {
            Action::Keep if !why.is_left_alone() => self.links.there(src, dst),
            Action::Touch => self.links.there(src, dst),
            Action::Copy if self.policy.dry_run => self.links.there(src, None),
            _ => {}
        }
    }

    /// `--immutable` forbids it.
    pub fn refuse(&self, key: &Key) {
        let message = "it exists and differs, and --immutable forbids to change it";
        self.error(Error::new(ErrorKind::Exists, "copy", message).with_key(key));
    }

    /// False for what is no file and isn't kept.
    pub(super) fn can_be_copied(&self, src: &Entry) -> bool {
        let kept = |what| what == What::Special || self.attributes.rights.devices;
        src.kind != Kind::Special || self.attributes.special(src).is_some_and(kept)
    }

    /// Tells of something of the source that the job leaves out.
    pub(super) fn left_out(&self, src: &Entry, why: LeftOut) {
        let (key, what, size) = (src.key.clone(), FileType::of(src), src.size);
        self.cx.sink.emit(&Event::LeftOut { key, what, size, why });
    }

    /// Says or counts what can't be copied.
    pub(super) async fn not_kept(&self, src: &Entry) {
        if let Some(what) = self.attributes.special(src) {
            let mut unkept = Unkept::default();
            unkept.add(what, Why::Denied);
            self.count_unkept(unkept);
        } else if self.policy.rsync.is_none() {
            self.notice(Some(&src.key), "not copied: a symlink or special file (see --links and --copy-links)");
        }
        if self.policy.rsync.is_some() {
            self.left_out(src, LeftOut::Kind(self.left_alone(src).await));
        }
    }
}
