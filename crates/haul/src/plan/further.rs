//! Further names of files with several names, once it is settled what becomes of the first.

use super::{Outlet, Planner};
use crate::hard_links::{Inode, Name, inode};
use haul_core::{
    Key,
    compare::Reason,
    plan::{self, Action, Step},
};

impl Planner {
    /// Decides about a further name of the file that is, or will be, `first` at the destination: the inode `there`, where it is
    /// unchanged.
    pub async fn further_name(&self, first: Key, there: Option<Inode>, name: Name) -> Step {
        let Name { mut src, dst } = name;
        let linked = dst.as_ref().and_then(|dst| dst.posix.as_deref()).map(inode);
        let (action, why) = plan::link(&src, dst.as_ref(), there.is_some() && linked == there, &self.job);
        let found = match &dst {
            None => self.name_elsewhere(&first, &src).await,
            Some(_) => None,
        };
        // Another place that is linked to has this name of it too.
        let why = if found.is_some() && self.job.elsewhere.link { Reason::Size } else { why };
        let differs = self.attributes.difference(&self.rules(), &src, found.as_ref().or(dst.as_ref()));
        self.read_link(&mut src, action).await;
        let link_to = (action == Action::Link).then_some(first);
        Step { differs, link_to, ..Step::new(action, Some(src), dst, why) }
    }

    /// Decides about all names that waited, as if each step were done. Where a first name doesn't come, the next takes its place.
    pub async fn settle_links(&self, out: &impl Outlet) {
        while !self.ledger.decides_no_more() {
            let turn = self.links.turn();
            if turn.is_empty() {
                return;
            }
            for (first, there, name) in turn.links {
                out.take(self.further_name(first, there, name).await).await;
            }
            for Name { src, dst } in turn.first {
                self.decide(src, dst, out).await;
            }
        }
    }
}
