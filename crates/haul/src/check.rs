//! `check`: compares two sides and says of each key where it stands; changes nothing.

use crate::{
    Cx, ListOptions,
    budget::questions,
    decide, hash,
    index::{RemoteIndex, Use, Uses, noted},
    list,
    pairs::{ListSrc, Pairs},
    plan::absent_is_empty,
    presence,
};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use haul_core::{
    Algo, Entry, Error, Key,
    compare::{HashAnswer, Reason},
    event::Event,
    job::{CompareBy, Job, Lookup},
    join::Pair,
};
use haul_store::{Answer, Extra};
use std::sync::Arc;

/// What `check` found of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// On both sides and the same: `=`.
    Same,
    /// On both sides and different: `*`.
    Differs,
    /// Only at the destination: `-`.
    MissingAtSrc,
    /// Only at the source: `+`.
    MissingAtDst,
    /// It could not be compared: `!`.
    Error,
}

impl Found {
    /// The sign of `--combined`, which scripts read.
    pub fn sign(self) -> char {
        match self {
            Found::Same => '=',
            Found::Differs => '*',
            Found::MissingAtSrc => '-',
            Found::MissingAtDst => '+',
            Found::Error => '!',
        }
    }
}

/// One compared key.
#[derive(Debug)]
pub struct Checked {
    /// The key.
    pub key: Key,
    /// Where it stands.
    pub found: Found,
    /// By what it was found the same or different.
    pub why: Option<Reason>,
    /// Why it could not be compared.
    pub error: Option<Arc<Error>>,
}

/// Counts of a check.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    /// Keys that are the same.
    pub matches: u64,
    /// Keys that differ, on both sides or missing on one.
    pub differences: u64,
    /// Keys missing at the source.
    pub missing_at_src: u64,
    /// Keys missing at the destination.
    pub missing_at_dst: u64,
    /// Same sizes, but no hash that both sides know.
    pub unhashed: u64,
    /// Keys and ranges that could not be compared.
    pub errors: Vec<Arc<Error>>,
}

/// What content is compared by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Hashes that both sides know, or that are made where reading is cheap.
    #[default]
    Hashes,
    /// All bytes of both sides (`--download`).
    Bytes,
    /// Hashes of what an encrypted destination is stored as: the source is read and encrypted alike (`cryptcheck`).
    Sealed,
}

/// How to compare.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckOptions {
    /// What content is compared by.
    pub content: Content,
    /// Ignore files that exist only at the destination (`--one-way`).
    pub one_way: bool,
}

/// Compares the two sides of `cx` in key order; `each` is told of every key, in order, and never of directories.
pub async fn check(job: &Job, cx: &Cx, options: CheckOptions, mut each: impl FnMut(&Checked)) -> CheckReport {
    let rules = decide::rules(job, &cx.src, &cx.dst);
    let checkers = job.pace.checkers.unwrap_or(questions(cx.src.caps()).max(questions(cx.dst.caps()))).max(1);
    let pages = job.pace.checkers.unwrap_or(0);
    let how = ListOptions { max_depth: job.listing.max_depth, checkers, pages, ..ListOptions::default() };
    let (from, filter, listed) = (cx.src.clone(), cx.filter.clone(), how.clone());
    let src: ListSrc = Arc::new(move || list(&from, &filter, listed.clone()));
    // As for a copy, a destination that isn't there lacks everything.
    let dst = absent_is_empty(list(&cx.dst, &cx.filter, how));
    let by = By {
        size_only: job.compare.by == CompareBy::SizeOnly,
        ignore_size: rules.ignore_size,
        content: options.content,
        asked: false,
    };
    let index = open_index(job, cx, options).await;
    let by_index = index.as_ref().and_then(|index| use_of_index(index, by, cx, options));
    let verifies = index.as_ref().is_some_and(|index| index.to_verify().is_some());
    let search = presence::options(job, &cx.dst).filter(|_| options.one_way && !verifies);
    let sink = cx.sink.clone();
    let pairs = match (by_index, search) {
        (Some(how), _) => {
            let at = presence::Options { method: None, at_once: job.pace.checkers };
            match Pairs::indexed(src, &cx.dst, at, sink, how) {
                Ok(pairs) => pairs,
                Err(error) => return CheckReport { errors: vec![told(cx, error)], ..CheckReport::default() },
            }
        }
        (None, Some(options)) => Pairs::search(src(), &cx.dst, options, sink, index.clone()).0,
        (None, None) => {
            let filter = job.listing.max_depth.is_none().then(|| (*cx.filter).clone());
            Pairs::new(src(), noted(dst, index.as_ref(), filter), sink)
        }
    };
    let steps = futures::stream::unfold(Some(pairs), |state| async move {
        let mut pairs = state?;
        let next = pairs.next().await;
        let mut found: Vec<Step> = pairs.errors.drain(..).map(|(_, e)| Step::Lost(e)).collect();
        match next {
            Ok(Some(pair)) => found.push(Step::Pair(Box::new(pair))),
            Ok(None) => return (!found.is_empty()).then_some((found, None)),
            Err(error) => {
                found.push(Step::Lost(told(cx, error)));
                return Some((found, None));
            }
        }
        Some((found, Some(pairs)))
    });
    let mut checked =
        steps.flat_map(futures::stream::iter).map(|step| one(cx, by, options, step)).buffered(checkers).boxed();
    let mut report = CheckReport::default();
    while let Some(outcome) = checked.next().await {
        report.count(&outcome);
        if let Outcome::Key(checked) = &outcome {
            each(checked);
        }
        if cx.cancel.is_cancelled() {
            break;
        }
    }
    drop(checked);
    if let Some(index) = index {
        index.end().await;
    }
    report
}

/// An error of no single file, as the sink was told of it: those of listings it hears of as they are read.
fn told(cx: &Cx, error: Error) -> Arc<Error> {
    let error = Arc::new(error);
    cx.sink.emit(&Event::Error(error.clone()));
    error
}

/// The destination's index, if the job has one. What reads both sides believes nothing.
async fn open_index(job: &Job, cx: &Cx, options: CheckOptions) -> Option<Arc<RemoteIndex>> {
    let settings = cx.known.index.as_ref()?;
    let unclear = job.listing.max_depth.is_some() || !cx.filter.markers().is_empty() || cx.filter.needs_mtime();
    let uses = match options {
        _ if options.content != Content::Hashes || job.listing.no_traverse || job.listing.lookup == Lookup::ListAll => {
            Uses::Nothing
        }
        CheckOptions { one_way: true, .. } => Uses::Wanted,
        _ if unclear => Uses::Nothing,
        _ => Uses::All,
    };
    RemoteIndex::open(settings, &cx.dst, &cx.sink, uses).await
}

/// How to go by the index: of sizes that are equal, and hashes that it has.
fn use_of_index(index: &Arc<RemoteIndex>, by: By, cx: &Cx, options: CheckOptions) -> Option<Use> {
    let snapshot = index.snapshot().filter(|_| options.one_way || index.knows_all(&cx.filter))?;
    let settles = move |src: &Entry, dst: &Entry| {
        (by.ignore_size || src.size == dst.size) && (by.size_only || !dst.hashes.is_empty())
    };
    let about = cx.filter.clone();
    let extras = (!options.one_way).then(|| Arc::new(move |dst: &Entry| about.wants(dst)) as _);
    Some(Use { index: index.clone(), snapshot, settles: Arc::new(settles), extras })
}

#[derive(Clone, Copy)]
struct By {
    size_only: bool,
    ignore_size: bool,
    content: Content,
    /// The destination was asked about this key just now.
    asked: bool,
}

enum Step {
    Pair(Box<Pair>),
    Lost(Arc<Error>),
}

enum Outcome {
    Key(Checked),
    Lost(Arc<Error>),
    Nothing,
}

impl CheckReport {
    fn count(&mut self, outcome: &Outcome) {
        let checked = match outcome {
            Outcome::Nothing => return,
            Outcome::Lost(error) => return self.errors.push(error.clone()),
            Outcome::Key(checked) => checked,
        };
        match checked.found {
            Found::Same => self.matches += 1,
            Found::Differs => self.differences += 1,
            Found::MissingAtSrc => {
                self.missing_at_src += 1;
                self.differences += 1;
            }
            Found::MissingAtDst => {
                self.missing_at_dst += 1;
                self.differences += 1;
            }
            Found::Error => self.errors.extend(checked.error.clone()),
        }
        if checked.found == Found::Same && checked.why.is_none() {
            self.unhashed += 1;
        }
    }
}

fn one<'a>(cx: &'a Cx, by: By, options: CheckOptions, step: Step) -> BoxFuture<'a, Outcome> {
    let checked = |key: Key, found| Outcome::Key(Checked { key, found, why: None, error: None });
    async move {
        let pair = match step {
            Step::Lost(error) => return Outcome::Lost(error),
            Step::Pair(pair) => *pair,
        };
        match pair {
            Pair::Both(src, dst) if src.has_bytes() && dst.has_bytes() => both(cx, by, src, dst).await,
            Pair::SrcOnly(src) if src.has_bytes() => checked(src.key, Found::MissingAtDst),
            Pair::DstOnly(dst) if dst.has_bytes() && !options.one_way => checked(dst.key, Found::MissingAtSrc),
            // The other side's listing failed there, which is an error of its own already.
            _ => Outcome::Nothing,
        }
    }
    .boxed()
}

async fn both(cx: &Cx, by: By, src: Entry, dst: Entry) -> Outcome {
    let key = src.key.clone();
    let say = |found, why| Outcome::Key(Checked { key: key.clone(), found, why, error: None });
    if !by.ignore_size && src.size != dst.size {
        return say(Found::Differs, Some(Reason::Size));
    }
    if by.size_only {
        return say(Found::Same, Some(Reason::Size));
    }
    let answer = match by.content {
        Content::Bytes => by_content(cx, &src, &dst).await,
        Content::Sealed => by_sealing(cx, &src, &dst).await,
        Content::Hashes => hash::compare(cx.known.hashes.as_deref(), (&cx.src, &src), (&cx.dst, &dst)).await,
    };
    match answer {
        Ok(HashAnswer::Known(algo, true)) => say(Found::Same, Some(Reason::Hash(algo))),
        Ok(HashAnswer::Known(..)) if cx.known.index.is_some() && !by.asked => {
            // It may be the index that is wrong.
            match cx.dst.stat(&key).await {
                Ok(fresh) => Box::pin(both(cx, By { asked: true, ..by }, src, fresh)).await,
                Err(error) => {
                    let error = Some(Arc::new(error.with_key(&key)));
                    Outcome::Key(Checked { key, found: Found::Error, why: None, error })
                }
            }
        }
        Ok(HashAnswer::Known(algo, false)) => say(Found::Differs, Some(Reason::Hash(algo))),
        Ok(_) => say(Found::Same, None),
        Err(error) => {
            let error = Some(Arc::new(if error.key().is_some() { error } else { error.with_key(&key) }));
            Outcome::Key(Checked { key, found: Found::Error, why: None, error })
        }
    }
}

async fn by_sealing(cx: &Cx, src: &Entry, dst: &Entry) -> haul_core::Result<HashAnswer> {
    let asked = Extra::Sealed { key: dst.key.clone(), version: dst.version.clone() };
    let Answer::Sealed { hashes, like } = cx.dst.extra(asked).await? else { return Ok(HashAnswer::NoneInCommon) };
    let Some((algo, _)) = hashes.iter().next() else { return Ok(HashAnswer::NoneInCommon) };
    let computed = hash::read_and_hash_sealed(&cx.src, src, like, &[algo]).await?;
    Ok(computed.agree(&hashes).map_or(HashAnswer::NoneInCommon, |(algo, same)| HashAnswer::Known(algo, same)))
}

async fn by_content(cx: &Cx, src: &Entry, dst: &Entry) -> haul_core::Result<HashAnswer> {
    let algo = [Algo::Blake3];
    let (a, b) =
        futures::try_join!(hash::read_and_hash(&cx.src, src, &algo), hash::read_and_hash(&cx.dst, dst, &algo))?;
    Ok(a.agree(&b).map_or(HashAnswer::NoneInCommon, |(algo, same)| HashAnswer::Known(algo, same)))
}
