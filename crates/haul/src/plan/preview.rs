//! Requests of a dry run that show what would be done: attributes that no listing has, directories that would be empty.

use crate::{
    Cx,
    attribute_reads::DueLook,
    attributes::{Attributes, ask_ends},
};
use futures::StreamExt;
use haul_core::{Key, Listed, Result, job::Job};
use haul_store::{AttributesResult, ListRequest};
use std::sync::Arc;

/// Looks ahead; it only reads.
pub(crate) struct Ahead {
    job: Arc<Job>,
    cx: Cx,
    attributes: Arc<Attributes>,
}

impl Ahead {
    /// Between the ends of `cx`.
    pub fn new((job, cx): (&Arc<Job>, &Cx), attributes: &Arc<Attributes>) -> Ahead {
        Ahead { job: job.clone(), cx: cx.clone(), attributes: attributes.clone() }
    }

    /// In which attributes files with equal bytes differ; one answer for each.
    pub async fn compare_attributes(&self, files: &[DueLook]) -> Vec<Result<AttributesResult>> {
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
