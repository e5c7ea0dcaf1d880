//! Requests of a dry run that show what would be done: attributes that no listing has, directories that would be empty.

use super::Planner;
use crate::{attributes::ask_ends, looks::Due};
use futures::StreamExt;
use haul_core::{Key, Listed, Result};
use haul_store::{Attributed, ListRequest};

impl Planner {
    /// In which attributes files with equal bytes differ; one answer for each.
    pub async fn compare_attributes(&self, files: &[Due]) -> Vec<Result<Attributed>> {
        let items = files.iter().map(|due| self.attributes.item(&due.src, &due.to, None)).collect();
        ask_ends(&self.cx, items, self.job.links.source, false).await
    }

    /// True for a directory of the destination in which nothing stays by the job's rules.
    pub async fn may_go_whole(&self, dir: &Key) -> bool {
        let mut listing = self.cx.dst.list(ListRequest::dir(dir.as_bytes()));
        while let Some(step) = listing.next().await {
            if let Listed::Batch(entries) = step
                && !entries.iter().all(|entry| self.cx.filter.may_delete(&entry.key, true))
            {
                return false;
            }
        }
        true
    }
}
