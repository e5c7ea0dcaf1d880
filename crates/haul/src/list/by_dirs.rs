//! Listing directory by directory, for limits that a flat listing can't apply: a greatest depth, and directories that a
//! marker file (`--exclude-if-present`) excludes.
//!
//! A directory's siblings are read ahead, a bounded number of them, so that the latency of a store is paid once a
//! level and not once a directory.

use super::ListOptions;
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, OptionFuture},
    stream::BoxStream,
};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, MissedRange, filter::Filter};
use haul_store::{ListRequest, Store, task::Task};
use std::sync::Arc;
use tokio::sync::mpsc::{Sender, channel};

/// How many directories are read ahead of the one that is being returned.
const READ_AHEAD: usize = 16;

struct Walk {
    store: Arc<dyn Store>,
    filter: Arc<Filter>,
    options: ListOptions,
    out: Sender<Listed>,
}

/// One directory, read whole. `Err`: could not be read, in part or at all; the entries seen are still good.
struct DirRead {
    entries: Vec<Entry>,
    failed: Vec<Listed>,
    vanished: Vec<Key>,
    ended: bool,
}

pub fn list(store: Arc<dyn Store>, filter: Arc<Filter>, options: ListOptions) -> BoxStream<'static, Listed> {
    if options.max_depth == Some(1) && filter.markers().is_empty() {
        return one_level(&store, filter, &options);
    }
    let (out, mut steps) = channel(8);
    let walk = Arc::new(Walk { store, filter, options, out });
    tokio::spawn(async move {
        let top = walk.read(Key::new("")).await;
        if walk.give(top, 1).await.is_some() {
            let _ = walk.out.send(Listed::End).await;
        }
    });
    futures::stream::poll_fn(move |cx| steps.poll_recv(cx)).boxed()
}

/// The top level alone: nothing must be known before an entry is returned, so nothing is gathered.
fn one_level(store: &Arc<dyn Store>, filter: Arc<Filter>, options: &ListOptions) -> BoxStream<'static, Listed> {
    let steps = super::ranges::list(store, one_dir(b"", options), options.pages, options.waiting);
    let wanted = steps.map(move |step| match step {
        Listed::Batch(mut entries) => {
            entries.retain(|e| !e.is_dir() || filter.descend(e.key.as_bytes()));
            Listed::Batch(entries)
        }
        other => other,
    });
    wanted.boxed()
}

fn one_dir(dir: &[u8], options: &ListOptions) -> ListRequest {
    let (meta, posix, sweep) = (options.meta, options.posix, options.sweep);
    let (one_device, omit_mounts) = (options.one_device, options.omit_mounts);
    ListRequest { meta, posix, sweep, one_device, omit_mounts, ..ListRequest::dir(dir) }
}

impl Walk {
    async fn read(&self, dir: Key) -> DirRead {
        let request = one_dir(dir.as_bytes(), &self.options);
        let mut steps = super::ranges::list(&self.store, request, self.options.pages, self.options.waiting);
        let mut read = DirRead { entries: Vec::new(), failed: Vec::new(), vanished: Vec::new(), ended: false };
        while let Some(step) = steps.next().await {
            match step {
                Listed::Batch(entries) => read.entries.extend(entries),
                Listed::Vanished(key) => read.vanished.push(key),
                Listed::End => read.ended = true,
                failed @ Listed::Failed { .. } => read.failed.push(failed),
            }
        }
        if !read.ended && read.failed.is_empty() {
            let error = Error::new(ErrorKind::Io, "list", "the listing broke off").with_key(&dir);
            read.failed.push(Listed::Failed { lost: MissedRange::below(&dir), error });
        }
        read
    }

    fn excluded(&self, read: &DirRead) -> bool {
        !self.filter.markers().is_empty() && read.entries.iter().any(|entry| self.filter.is_marker(entry))
    }

    /// Leaves out a directory; `None` when the listing was dropped.
    async fn hide(&self, dir: &Key) -> Option<()> {
        if !self.options.for_join {
            return Some(());
        }
        let error = Error::new(ErrorKind::Hidden, "list", "a marker file leaves the directory out").with_key(dir);
        self.out.send(Listed::Failed { lost: MissedRange::below(dir), error }).await.ok()
    }

    /// Returns a directory's entries in key order with the contents below each; `None` when the listing was dropped.
    fn give(self: &Arc<Self>, read: DirRead, depth: usize) -> BoxFuture<'_, Option<()>> {
        async move {
            if self.excluded(&read) {
                return self.hide(&Key::new("")).await;
            }
            for step in read.vanished.into_iter().map(Listed::Vanished).chain(read.failed) {
                self.out.send(step).await.ok()?;
            }
            let deeper = self.options.max_depth.is_none_or(|max| depth < max);
            let filter = &self.filter;
            // A marker excludes its directory also where what it holds isn't wanted.
            let looks = deeper || !filter.markers().is_empty();
            let entries = read.entries.into_iter().filter(|e| !e.is_dir() || filter.descend(e.key.as_bytes()));
            // Each directory's read is started up to READ_AHEAD entries before its turn.
            let mut turns = futures::stream::iter(entries)
                .map(|entry| {
                    let reading = (looks && entry.is_dir()).then(|| {
                        let (walk, dir) = (self.clone(), entry.key.clone());
                        Task::spawn(async move { walk.read(dir).await })
                    });
                    async move { (entry, OptionFuture::from(reading).await) }
                })
                .buffered(READ_AHEAD)
                .boxed();
            let mut batch = Vec::new();
            while let Some((entry, below)) = turns.next().await {
                match below {
                    None => batch.push(entry),
                    Some(below) if self.excluded(&below) => {
                        self.out.send(Listed::Batch(std::mem::take(&mut batch))).await.ok()?;
                        self.hide(&entry.key).await?;
                    }
                    Some(below) if !deeper => {
                        batch.push(entry);
                        if !below.failed.is_empty() {
                            // Whether it holds a marker isn't known.
                            self.out.send(Listed::Batch(std::mem::take(&mut batch))).await.ok()?;
                        }
                        for failed in below.failed {
                            self.out.send(failed).await.ok()?;
                        }
                    }
                    Some(below) => {
                        batch.push(entry);
                        self.out.send(Listed::Batch(std::mem::take(&mut batch))).await.ok()?;
                        self.give(below, depth + 1).await?;
                    }
                }
                if batch.len() >= 1000 {
                    self.out.send(Listed::Batch(std::mem::take(&mut batch))).await.ok()?;
                }
            }
            self.out.send(Listed::Batch(batch)).await.ok()
        }
        .boxed()
    }
}
