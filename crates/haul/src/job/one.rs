//! One file under a name of its own: `copyto`, `moveto`, and a source that is a file.

use super::{Orders, Run};
use haul_core::{
    Error, ErrorKind, Key, Result, Side,
    event::{Event, LeftOut},
};
use std::sync::Arc;

impl Run {
    /// One file under a name of its own.
    pub(super) async fn one(self: Arc<Self>, from: &Key, to: &Key) {
        let same_place = match (&self.cx.src.caps().domain, &self.cx.dst.caps().domain) {
            (Some(a), Some(b)) => a == b,
            _ => false,
        };
        if same_place && from == to {
            let message = format!("source and destination are the same file: {}", self.cx.src.locator());
            return self.error(Error::new(ErrorKind::Invalid, "start", message).with_key(from));
        }
        if let Err(error) = self.check_backup() {
            return self.error(error);
        }
        self.open_index().await;
        let (orders, working) = self.clone().start_working(false);
        if let Err(error) = self.decide_one(from, to, &orders).await {
            self.error(error);
        }
        drop(orders);
        self.finish_working(working).await;
        self.clear_stages().await;
        self.flush_moved_away(true).await;
        self.delete_spare().await;
    }

    async fn decide_one(&self, from: &Key, to: &Key, orders: &Orders) -> Result<()> {
        let src = self.cx.src.stat(from).await.map_err(|e| e.with_key(from))?;
        if self.is_unsafe_link(&src).await {
            return Ok(());
        }
        if self.policy.rsync.is_some() && self.beyond_limits(&src) {
            self.left_out(&src, LeftOut::Limit);
            return Ok(());
        }
        if !self.can_be_copied(&src) {
            self.not_kept(&src).await;
            return Ok(());
        }
        self.cx.sink.emit(&Event::Listed { side: Side::Src, files: 1, bytes: src.size });
        let there = match self.policy.no_check_dest {
            true => None,
            false => match self.cx.dst.stat(to).await {
                Ok(entry) if !entry.is_dir() => Some(entry),
                Ok(_) => None,
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound) => {
                    self.is_absent(to);
                    None
                }
                Err(error) => return Err(error.with_key(to)),
            },
        };
        if there.is_some() {
            self.report().totals.checks += 1;
        }
        if there.is_none()
            && self.policy.rsync.is_some()
            && let Some(error) = self.in_the_way(&src, to).await
        {
            return Err(error);
        }
        if let Some(step) = self.decision(src, there).await? {
            self.act_on(step, Some(to.clone()), orders).await;
        }
        Ok(())
    }
}
