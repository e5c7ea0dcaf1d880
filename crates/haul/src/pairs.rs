//! The ordered join of two listings under way: pulls from whichever side is behind, gives pairs, remembers errors.

use crate::{
    Cx, ListOptions,
    index::{Candidate, IndexError, IndexUse, Matcher, RemoteIndex, SettlesPair, agree, noted},
    list,
    names::unmissed,
    presence::{self, KeyState, LookupCounts},
};
use futures::{StreamExt, stream::BoxStream};
use haul_core::{
    Entry, Error, ErrorKind, Listed, Side,
    event::{Event, Sink},
    filter::Filter,
    job::Job,
    join::{Join, Pair},
    listing::MissedRange,
};
use haul_store::{Store, disk};
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
    Search(Box<Search>),
}

struct Search {
    answers: Answers,
    waiting: VecDeque<Pair>,
    src: Arc<Source>,
    /// Where answers are noted.
    note: Option<Arc<RemoteIndex>>,
    /// The index that saves requests.
    index: Option<Indexed>,
}

type Answers = BoxStream<'static, Vec<(Candidate, KeyState)>>;

/// A search that uses an index.
struct Indexed {
    how: IndexUse,
    /// Lists the source once more.
    list_src: ListSrc,
    dst: Arc<dyn Store>,
    options: presence::LookupOptions,
    /// The source of a further listing, with the parts that were lost.
    again: Option<Arc<Source>>,
}

/// Lists the source from its beginning.
pub type ListSrc = Arc<dyn Fn() -> BoxStream<'static, Listed> + Send + Sync>;

/// Two sides to join, and the method: two listings where all of the destination must be known, else a search
/// for the source's keys; by an index if there is one.
pub(crate) struct Sides<'a> {
    pub job: &'a Job,
    pub cx: &'a Cx,
    /// The destination's index, if there is one.
    pub index: Option<&'a Arc<RemoteIndex>>,
    pub src: ListSrc,
    /// How the destination is listed; `None` when it isn't looked at.
    pub dst: Option<ListOptions>,
    /// The part of the destination that is listed.
    pub about: Filter,
    /// Files that only the destination has must be known.
    pub all: bool,
    /// How the destination may be searched for the source's keys; `None` when it is listed.
    pub search: Option<presence::LookupOptions>,
    /// Which pairs the index settles.
    pub settles: SettlesPair,
}

impl Sides<'_> {
    /// Starts to look at both.
    ///
    /// Errors: the index can't be read.
    pub fn pairs(self) -> haul_core::Result<Pairs> {
        let sink = self.cx.sink.clone();
        if let Some(how) = self.use_of_index() {
            let options = presence::LookupOptions { method: None, at_once: self.job.pace.checkers };
            return Pairs::indexed(self.src, &self.cx.dst, options, sink, how);
        }
        // All of the destination is listed to see whether the index is right.
        let verifies = self.index.is_some_and(|index| index.to_verify().is_some());
        Ok(match self.search.filter(|_| !verifies) {
            None => Pairs::new((self.src)(), self.list_dst(), sink),
            Some(options) => Pairs::search((self.src)(), &self.cx.dst, options, sink, self.index.cloned()).0,
        })
    }

    /// How the index is used; `None` when it isn't.
    fn use_of_index(&self) -> Option<IndexUse> {
        let index = self.index?;
        let snapshot = index.snapshot()?;
        if self.all && !index.knows_all(&self.about) {
            return None;
        }
        let (about, for_join) = (self.about.clone(), self.dst.as_ref().is_some_and(|options| options.for_join));
        let is_about = move |dst: &Entry| if for_join { about.wants_name(dst) } else { about.wants(dst) };
        let extras = self.all.then(|| Arc::new(is_about) as _);
        Some(IndexUse { index: index.clone(), snapshot, settles: self.settles.clone(), extras })
    }

    /// The destination's listing, noted in the index as it passes.
    fn list_dst(&self) -> BoxStream<'static, Listed> {
        let Some(options) = &self.dst else { return futures::stream::iter([Listed::End]).boxed() };
        let absent = |error: &Error| error.kind() == ErrorKind::DirNotFound;
        let listing = absent_is_empty(list(&self.cx.dst, &Arc::new(self.about.clone()), options.clone()), absent);
        let filter = self.cx.filter.clone();
        let listing = listing.map(move |step| unmissed(&filter, step)).boxed();
        noted(listing, self.index, options.max_depth.is_none().then(|| self.about.clone()))
    }
}

/// A destination that doesn't exist holds nothing: that is proof, not a failure. So does a source that may be empty. `absent` knows the
/// error that says so.
pub(crate) fn absent_is_empty(
    listing: BoxStream<'static, Listed>,
    absent: fn(&Error) -> bool,
) -> BoxStream<'static, Listed> {
    listing
        .scan(false, move |over, step| {
            let step = match step {
                Listed::Failed { lost, error } if absent(&error) && lost.from.is_root() => Listed::End,
                other => other,
            };
            // A listing of a range has an end mark besides.
            let was_over = std::mem::replace(over, matches!(step, Listed::End));
            std::future::ready((!was_over).then_some(step))
        })
        .boxed()
}

/// State of the source's listing, beside its entries.
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

    /// Looks at `dst` for what `src` lists, without listing what else is there: there is never a [`Pair::DstOnly`]. Answers are noted
    /// in an index, if there is one.
    pub fn search(
        src: BoxStream<'static, Listed>,
        dst: &Arc<dyn Store>,
        options: presence::LookupOptions,
        sink: Arc<dyn Sink>,
        note: Option<Arc<RemoteIndex>>,
    ) -> (Self, Arc<LookupCounts>) {
        let (mut steps, reader) = read_ahead(src);
        let source = Arc::<Source>::default();
        let (seen, tell) = (source.clone(), sink.clone());
        let wanted = futures::stream::poll_fn(move |cx| steps.poll_recv(cx)).filter_map(move |step| {
            let entries = seen.take(step, Some(&tell)).ok();
            async move { Some(entries?.into_iter().map(Candidate::Ask).collect()) }
        });
        let (answers, counts) = presence::search(dst, wanted.boxed(), options);
        let search = Search { answers, waiting: VecDeque::new(), src: source, note, index: None };
        (Pairs { from: From::Search(Box::new(search)), sink, errors: Vec::new(), readers: vec![reader] }, counts)
    }

    /// As [`Pairs::search`], of what an index doesn't settle. Gives a [`Pair::DstOnly`] for what the index has, the source lacks, and
    /// the store says is there. Where it turns out that the index was wrong, what was given of that by it is looked at again, and
    /// given again if it is otherwise.
    pub fn indexed(
        list_src: ListSrc,
        dst: &Arc<dyn Store>,
        options: presence::LookupOptions,
        sink: Arc<dyn Sink>,
        how: IndexUse,
    ) -> haul_core::Result<Self> {
        let (steps, reader) = read_ahead(list_src());
        let src = Arc::<Source>::default();
        let matcher = Matcher::new(how.clone(), None).map_err(|e| Error::from_io("read the index", e))?;
        let wanted = matched(steps, src.clone(), Some(sink.clone()), matcher);
        let (answers, _) = presence::search(dst, wanted, options);
        let note = Some(how.index.clone());
        let index = Some(Indexed { how, list_src, dst: dst.clone(), options, again: None });
        let search = Search { answers, waiting: VecDeque::new(), src, note, index };
        Ok(Pairs { from: From::Search(Box::new(search)), sink, errors: Vec::new(), readers: vec![reader] })
    }

    /// Drops pairs that are here already for as long as `same` agrees, see [`Join::drop_while`].
    pub fn drop_while(&mut self, mut same: impl FnMut(&Entry, &Entry) -> bool) {
        match &mut self.from {
            From::Listings { join, .. } => join.drop_while(same),
            From::Search(search) => {
                while matches!(search.waiting.front(), Some(Pair::Both(src, dst)) if same(src, dst)) {
                    search.waiting.pop_front();
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
                From::Search(search) => {
                    if let Some(pair) = search.waiting.pop_front() {
                        return Ok(Some(pair));
                    }
                    let batch = search.answers.next().await;
                    self.errors.extend(search.take_errors());
                    let Some(batch) = batch else {
                        match search.begin_again()? {
                            Some(reader) => self.readers.push(reader),
                            None => return Ok(None),
                        }
                        continue;
                    };
                    if let Some(error) = search.take(batch, &*self.sink, &mut self.errors) {
                        self.sink.emit(&Event::ListFailed { side: Side::Dst, error: error.clone() });
                        self.errors.push((Side::Dst, error));
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// True when the whole source was seen.
    pub fn src_complete(&self) -> bool {
        match &self.from {
            From::Listings { join, .. } => join.src_complete(),
            From::Search(search) => {
                search.src.ended.load(Ordering::Acquire) && !search.src.lost.load(Ordering::Acquire)
            }
        }
    }
}

impl Search {
    fn take_errors(&mut self) -> Vec<(Side, Arc<Error>)> {
        let again = self.index.as_ref().and_then(|index| index.again.as_ref());
        let sources = std::iter::once(&self.src).chain(again);
        sources.flat_map(|source| std::mem::take(&mut *source.errors())).map(|error| (Side::Src, error)).collect()
    }

    /// Makes pairs of answers. Gives the error after which nothing more need be asked.
    fn take(
        &mut self,
        batch: Vec<(Candidate, KeyState)>,
        sink: &dyn Sink,
        errors: &mut Vec<(Side, Arc<Error>)>,
    ) -> Option<Arc<Error>> {
        let (mut files, mut bytes) = (0, 0_u64);
        let note = self.note.as_deref();
        for (candidate, answer) in batch {
            match answer {
                // Once is enough: the job ends with it.
                KeyState::Unknown(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Unreachable | ErrorKind::Unauthenticated | ErrorKind::Corrupt
                    ) =>
                {
                    self.answers = futures::stream::empty().boxed();
                    return Some(error);
                }
                KeyState::Unknown(error) => {
                    sink.emit(&Event::Error(error.clone()));
                    errors.push((Side::Dst, error));
                }
                answer => {
                    if let KeyState::There(found) = &answer {
                        (files, bytes) = (files + 1, bytes.saturating_add(found.size));
                    }
                    self.waiting.extend(pair(candidate, answer, note));
                }
            }
        }
        sink.emit(&Event::Listed { side: Side::Dst, files, bytes });
        None
    }

    /// Looks again at what an index that turned out to be wrong had settled; gives the source's reader. `None` when there is nothing.
    fn begin_again(&mut self) -> Result<Option<JoinHandle<()>>, Error> {
        let Some(index) = &mut self.index else { return Ok(None) };
        let Some(before) = index.how.index.more_doubts() else { return Ok(None) };
        let matcher = Matcher::new(index.how.clone(), Some(before)).map_err(|e| Error::from_io("read the index", e))?;
        let (steps, reader) = read_ahead((index.list_src)());
        let src = Arc::<Source>::default();
        // It was counted when it was listed first.
        let wanted = matched(steps, src.clone(), None, matcher);
        index.again = Some(src);
        self.answers = presence::search(&index.dst, wanted, index.options).0;
        Ok(Some(reader))
    }
}

/// The pair that comes of an answer that was had; what it says is noted in the index.
fn pair(candidate: Candidate, answer: KeyState, index: Option<&RemoteIndex>) -> Option<Pair> {
    let claim = match &candidate {
        Candidate::Claimed(_, claim) | Candidate::Again(_, claim) | Candidate::Extra(claim, true) => Some(&**claim),
        _ => None,
    };
    let wrong = match (&answer, claim) {
        (KeyState::There(found), Some(claim)) if !agree(claim, found) => Some(IndexError::Changed),
        (KeyState::Absent, Some(_)) => Some(IndexError::Gone),
        _ => None,
    };
    if let Some(index) = index {
        if let (Some(wrong), Some(claim)) = (wrong, claim) {
            index.contradicted(&claim.key, wrong);
        }
        match (&answer, &candidate) {
            (KeyState::There(found), _) => index.note_present(found),
            // Also of what the index isn't believed about, or wasn't asked: it may have it all the same.
            (KeyState::Absent, candidate) => index.note_missing(presence::HasKey::key(candidate)),
            _ => {}
        }
    }
    match (candidate, answer) {
        (Candidate::Same(src, dst), _) => Some(Pair::Both(src, *dst)),
        // It is as it was taken to be.
        (Candidate::Again(..), _) if wrong.is_none() => None,
        (Candidate::Ask(src) | Candidate::Claimed(src, _) | Candidate::Again(src, _), answer) => Some(match answer {
            KeyState::There(found) => Pair::Both(src, found),
            KeyState::Absent => Pair::SrcOnly(src),
            KeyState::NotAsked | KeyState::Unknown(_) => Pair::SrcUnknown(src),
        }),
        (Candidate::Extra(..), KeyState::There(found)) => Some(Pair::DstOnly(found)),
        (Candidate::Extra(..), _) => None,
    }
}

/// Splits the source's listing, as it comes, into keys to look up at the destination and keys already known.
fn matched(
    steps: mpsc::Receiver<Listed>,
    seen: Arc<Source>,
    tell: Option<Arc<dyn Sink>>,
    matcher: Matcher,
) -> BoxStream<'static, Vec<Candidate>> {
    let state = (steps, seen, tell, matcher);
    futures::stream::unfold(state, |(mut steps, seen, tell, mut matcher)| async move {
        loop {
            if matcher.queue.is_empty() && !matcher.ended {
                let step = steps.recv().await?;
                match seen.take(step, tell.as_ref()) {
                    Ok(entries) => matcher.queue.extend(entries),
                    Err(Some(lost)) => matcher.lost.push(lost),
                    Err(None) => matcher.ended = true,
                }
            }
            let work = move || {
                let batch = matcher.take();
                Ok((matcher, batch))
            };
            // It fails only when the disk's threads have ended, with the process.
            let (after, batch) = disk::run(work).await.ok()?;
            matcher = after;
            if !batch.is_empty() {
                return Some((batch, (steps, seen, tell, matcher)));
            }
            if matcher.ended && matcher.queue.is_empty() {
                return None;
            }
        }
    })
    .boxed()
}

impl Source {
    fn errors(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Error>>> {
        self.errors.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The entries of a step; else the range that was lost, or `None` at the end. What it says is remembered.
    fn take(&self, step: Listed, sink: Option<&Arc<dyn Sink>>) -> Result<Vec<Entry>, Option<MissedRange>> {
        let error = match (&step, sink) {
            (_, Some(sink)) => tell(&**sink, Side::Src, &step),
            (Listed::Failed { error, .. }, None) if error.kind() != ErrorKind::Hidden => {
                Some(Arc::new(error.to_report()))
            }
            (_, None) => None,
        };
        self.errors().extend(error);
        match step {
            Listed::Batch(entries) => Ok(entries),
            Listed::Failed { lost, .. } => {
                self.lost.store(true, Ordering::Release);
                Err(Some(lost))
            }
            // Not an error; whether it exists under another name is unknown.
            Listed::Vanished(key) => Err(Some(MissedRange::only(&key))),
            Listed::End => {
                self.ended.store(true, Ordering::Release);
                Err(None)
            }
        }
    }
}

/// Tells the sink of a step, and gives its error.
fn tell(sink: &dyn Sink, side: Side, step: &Listed) -> Option<Arc<Error>> {
    match step {
        Listed::Batch(entries) => {
            let files = entries.iter().filter(|e| e.has_bytes());
            let (files, bytes) = files.fold((0, 0_u64), |(n, b), e| (n + 1, b.saturating_add(e.size)));
            sink.emit(&Event::Listed { side, files, bytes });
            None
        }
        Listed::Failed { error, .. } if error.kind() == ErrorKind::Hidden => None,
        Listed::Failed { error, .. } => {
            let error = Arc::new(error.to_report());
            sink.emit(&Event::ListFailed { side, error: error.clone() });
            Some(error)
        }
        Listed::Vanished(_) | Listed::End => None,
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
