//! The ordered join of two listings under way: pulls from whichever side is behind, gives pairs, remembers errors.

use futures::{StreamExt, stream::BoxStream};
use haul_core::{
    Entry, Error, ErrorKind, Listed, Side,
    event::{Event, Sink},
    join::{Join, Pair},
};
use std::sync::Arc;
use tokio::{sync::mpsc, task::JoinHandle};

/// Batches that a side may be ahead. One batch is about a thousand entries.
const AHEAD: usize = 8;

/// Two listings being joined.
pub struct Pairs {
    join: Join,
    src: mpsc::Receiver<Listed>,
    dst: mpsc::Receiver<Listed>,
    sink: Arc<dyn Sink>,
    /// Errors of listings, to be taken by the caller.
    pub errors: Vec<(Side, Arc<Error>)>,
    readers: Vec<JoinHandle<()>>,
}

impl Pairs {
    /// Starts both listings at once.
    pub fn new(src: BoxStream<'static, Listed>, dst: BoxStream<'static, Listed>, sink: Arc<dyn Sink>) -> Self {
        let (src, a) = read_ahead(src);
        let (dst, b) = read_ahead(dst);
        Pairs { join: Join::new(), src, dst, sink, errors: Vec::new(), readers: vec![a, b] }
    }

    /// Drops pairs that are here already for as long as `same` agrees, see [`Join::drop_while`].
    pub fn drop_while(&mut self, same: impl FnMut(&Entry, &Entry) -> bool) {
        self.join.drop_while(same);
    }

    /// The next pair in key order; `None` at the end. An error means that the join can't go on: what came before
    /// holds, nothing is known of the rest.
    pub async fn next(&mut self) -> Result<Option<Pair>, Error> {
        loop {
            if let Some(pair) = self.join.next_pair() {
                return Ok(Some(pair));
            }
            let Some(side) = self.join.starved() else { return Ok(None) };
            let step = match side {
                Side::Src => self.src.recv().await,
                Side::Dst => self.dst.recv().await,
            };
            match step {
                Some(step) => self.take(side, step)?,
                None => self.join.stop(side),
            }
        }
    }

    fn take(&mut self, side: Side, step: Listed) -> Result<(), Error> {
        match &step {
            Listed::Batch(entries) => {
                let files = entries.iter().filter(|e| e.kind == haul_core::Kind::File);
                let (files, bytes) = files.fold((0, 0), |(n, b), e| (n + 1, b + e.size));
                self.sink.emit(&Event::Listed { side, files, bytes });
            }
            Listed::Failed { error, .. } if error.kind() == ErrorKind::Hidden => {}
            Listed::Failed { error, .. } => {
                let error = Arc::new(error.to_report());
                self.sink.emit(&Event::ListFailed { side, error: error.clone() });
                self.errors.push((side, error));
            }
            Listed::End => {}
        }
        self.join.push(side, step).map_err(|broken| Error::new(ErrorKind::Io, "list", broken.to_string()))
    }

    /// True when the whole source was seen.
    pub fn src_complete(&self) -> bool {
        self.join.src_complete()
    }
}

impl Drop for Pairs {
    fn drop(&mut self) {
        self.readers.iter().for_each(JoinHandle::abort);
    }
}

/// Reads a listing on a task of its own. The channel closes when the listing stops; only a `Listed::End` before
/// that says that it ended.
fn read_ahead(mut listing: BoxStream<'static, Listed>) -> (mpsc::Receiver<Listed>, JoinHandle<()>) {
    let (send, receive) = mpsc::channel(AHEAD);
    let reader = tokio::spawn(async move {
        while let Some(step) = listing.next().await {
            if send.send(step).await.is_err() {
                return;
            }
        }
    });
    (receive, reader)
}
