//! What does the work that is decided, and the small decisions on the way to it: transfers on one side, attributes of what
//! has the same bytes on the other.

use super::{
    Executor,
    attributes::{BACKLOG, Due},
};
use crate::{
    schedule::{COMING, COMING_BEFORE_A_PAUSE, Queue},
    transfer::Order,
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

impl Executor {
    /// Starts what does the work that is decided: transfers, and setting attributes.
    pub fn start_working(self: Arc<Self>, check_first: bool) -> (Orders, Working) {
        let pauses = self.planner.can_pause();
        let (transfers, coming) = mpsc::channel(if pauses { COMING_BEFORE_A_PAUSE } else { COMING });
        let (attributes, due) = mpsc::channel(BACKLOG);
        let queue = Queue::new(coming, self.job.pace.order_by, check_first, self.mover.copy_batch());
        let queue = if pauses { queue.before_a_pause() } else { queue };
        let scheduler = tokio::spawn(self.clone().schedule(queue));
        let setter = tokio::spawn(self.set_attributes(due));
        (Orders { transfers, attributes }, Working { scheduler, setter })
    }

    /// Waits until all of it is done; every sender of orders must be gone.
    pub async fn finish_working(&self, working: Working) {
        self.ledger.joined("transfer", working.scheduler.await);
        self.ledger.joined("set attributes", working.setter.await);
        self.publish_delayed().await;
    }
}
