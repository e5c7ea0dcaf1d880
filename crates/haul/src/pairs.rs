//! The ordered join of two listings under way: pulls from whichever side is behind, gives pairs, remembers errors.

use crate::presence::{self, Answer, Told};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{
    Entry, Error, ErrorKind, Listed, Side,
    event::{Event, Sink},
    join::{Join, Pair},
};
use haul_store::Store;
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::{sync::mpsc, task::JoinHandle};

/// Batches that a side may be ahead. One batch is about a thousand entries.
const AHEAD: usize = 8;

/// Both sides of each key of a job.
pub struct Pairs {
    from: From,
    sink: Arc<dyn Sink>,
    /// Errors of listings, to be taken by the caller.
    pub errors: Vec<(Side, Arc<Error>)>,
    readers: Vec<JoinHandle<()>>,
}

/// Where they come from.
enum From {
    /// Two listings being joined.
    Listings { join: Box<Join>, src: mpsc::Receiver<Listed>, dst: mpsc::Receiver<Listed> },
    /// The source's listing, and a search for its keys at the destination.
    Search { answers: BoxStream<'static, Vec<(Entry, Answer)>>, waiting: VecDeque<Pair>, src: Arc<Source> },
}

/// What became of the source's listing, beside its entries.
#[derive(Default)]
struct Source {
    errors: Mutex<Vec<Arc<Error>>>,
    lost: AtomicBool,
    ended: AtomicBool,
}

impl Pairs {
    /// Starts both listings at once.
    pub fn new(src: BoxStream<'static, Listed>, dst: BoxStream<'static, Listed>, sink: Arc<dyn Sink>) -> Self {
        let (src, a) = read_ahead(src);
        let (dst, b) = read_ahead(dst);
        let from = From::Listings { join: Box::default(), src, dst };
        Pairs { from, sink, errors: Vec::new(), readers: vec![a, b] }
    }

    /// Looks at `dst` for what `src` lists, without listing what else is there: there is never a [`Pair::DstOnly`].
    pub fn search(
        src: BoxStream<'static, Listed>,
        dst: &Arc<dyn Store>,
        options: presence::Options,
        sink: Arc<dyn Sink>,
    ) -> (Self, Arc<Told>) {
        let (mut steps, reader) = read_ahead(src);
        let source = Arc::<Source>::default();
        let (seen, tell) = (source.clone(), sink.clone());
        let wanted = futures::stream::poll_fn(move |cx| steps.poll_recv(cx)).filter_map(move |step| {
            let entries = seen.take(step, &tell);
            async move { entries }
        });
        let (answers, told) = presence::search(dst, wanted.boxed(), options);
        let from = From::Search { answers, waiting: VecDeque::new(), src: source };
        (Pairs { from, sink, errors: Vec::new(), readers: vec![reader] }, told)
    }

    /// Drops pairs that are here already for as long as `same` agrees, see [`Join::drop_while`].
    pub fn drop_while(&mut self, mut same: impl FnMut(&Entry, &Entry) -> bool) {
        match &mut self.from {
            From::Listings { join, .. } => join.drop_while(same),
            From::Search { waiting, .. } => {
                while matches!(waiting.front(), Some(Pair::Both(src, dst)) if same(src, dst)) {
                    waiting.pop_front();
                }
            }
        }
    }

    /// The next pair in key order; `None` at the end. An error means that the join can't go on: what came before
    /// holds, nothing is known of the rest.
    pub async fn next(&mut self) -> Result<Option<Pair>, Error> {
        loop {
            match &mut self.from {
                From::Listings { join, src, dst } => {
                    if let Some(pair) = join.next_pair() {
                        return Ok(Some(pair));
                    }
                    let Some(side) = join.starved() else { return Ok(None) };
                    let step = match side {
                        Side::Src => src.recv().await,
                        Side::Dst => dst.recv().await,
                    };
                    let Some(step) = step else {
                        join.stop(side);
                        continue;
                    };
                    self.errors.extend(tell(&*self.sink, side, &step).map(|error| (side, error)));
                    let pushed = join.push(side, step);
                    pushed.map_err(|broken| Error::new(ErrorKind::Io, "list", broken.to_string()))?;
                }
                From::Search { answers, waiting, src } => {
                    if let Some(pair) = waiting.pop_front() {
                        return Ok(Some(pair));
                    }
                    let batch = answers.next().await;
                    self.errors.extend(src.errors().drain(..).map(|error| (Side::Src, error)));
                    let Some(batch) = batch else { return Ok(None) };
                    let (mut files, mut bytes) = (0, 0);
                    for (entry, answer) in batch {
                        match answer {
                            Answer::There(found) => {
                                (files, bytes) = (files + 1, bytes + found.size);
                                waiting.push_back(Pair::Both(entry, found));
                            }
                            Answer::Absent => waiting.push_back(Pair::SrcOnly(entry)),
                            Answer::NotAsked => waiting.push_back(Pair::SrcUnknown(entry)),
                            // Once is enough: the job ends with it.
                            Answer::Unknown(error) if error.kind() == ErrorKind::Unauthenticated => {
                                *answers = futures::stream::empty().boxed();
                                self.sink.emit(&Event::ListFailed { side: Side::Dst, error: error.clone() });
                                self.errors.push((Side::Dst, error));
                                return Ok(None);
                            }
                            Answer::Unknown(error) => {
                                self.sink.emit(&Event::Error(error.clone()));
                                self.errors.push((Side::Dst, error));
                            }
                        }
                    }
                    self.sink.emit(&Event::Listed { side: Side::Dst, files, bytes });
                }
            }
        }
    }

    /// True when the whole source was seen.
    pub fn src_complete(&self) -> bool {
        match &self.from {
            From::Listings { join, .. } => join.src_complete(),
            From::Search { src, .. } => src.ended.load(Ordering::Acquire) && !src.lost.load(Ordering::Acquire),
        }
    }
}

impl Source {
    fn errors(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Error>>> {
        self.errors.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The entries of a step; anything else is remembered.
    fn take(&self, step: Listed, sink: &Arc<dyn Sink>) -> Option<Vec<Entry>> {
        self.errors().extend(tell(&**sink, Side::Src, &step));
        match step {
            Listed::Batch(entries) => return Some(entries),
            Listed::Failed { .. } => self.lost.store(true, Ordering::Release),
            Listed::End => self.ended.store(true, Ordering::Release),
        }
        None
    }
}

/// Tells the sink of a step, and gives its error.
fn tell(sink: &dyn Sink, side: Side, step: &Listed) -> Option<Arc<Error>> {
    match step {
        Listed::Batch(entries) => {
            let files = entries.iter().filter(|e| e.kind == haul_core::Kind::File);
            let (files, bytes) = files.fold((0, 0), |(n, b), e| (n + 1, b + e.size));
            sink.emit(&Event::Listed { side, files, bytes });
            None
        }
        Listed::Failed { error, .. } if error.kind() == ErrorKind::Hidden => None,
        Listed::Failed { error, .. } => {
            let error = Arc::new(error.to_report());
            sink.emit(&Event::ListFailed { side, error: error.clone() });
            Some(error)
        }
        Listed::End => None,
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
