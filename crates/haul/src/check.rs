//! `check`: the state of each key, decided in the stages of a job (list, join, compare) but by content alone, and reported in the
//! order of keys; changes nothing.

use crate::{
    Cx, ListOptions,
    budget::questions,
    decide,
    destination_index::{self, Index},
    hash,
    index::IndexScope,
    list,
    pairs::{ListSrc, Pairs, Sides},
    presence,
};
use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, LocalBoxFuture},
};
use haul_core::{
    Algo, Entry, Error, Key, Result,
    compare::{HashAnswer, Need, Reason, Rules, Verdict, compare},
    event::Event,
    job::{CompareBy, Job, Mounts},
    join::Pair,
    plan::{self, Action, Step},
};
use haul_store::{EncryptedFile, offered};
use std::sync::Arc;

/// Result of `check` for one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckResult {
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

impl CheckResult {
    /// The state of a key, by the step that it would need; `None` for directories and renamed files. As in rclone, a file that needs
    /// only its time set is the same.
    pub fn of(action: Action, why: Reason) -> Option<CheckResult> {
        Some(match (action, why) {
            (Action::MakeDir | Action::Rename, _) => return None,
            (_, Reason::Extra) | (Action::Delete, _) => CheckResult::MissingAtSrc,
            (Action::Copy | Action::Reuse, Reason::Missing | Reason::NotSeen) => CheckResult::MissingAtDst,
            (Action::Copy | Action::Reuse | Action::Refuse, _) => CheckResult::Differs,
            (Action::Keep, Reason::NotExisting) => CheckResult::MissingAtDst,
            (Action::Keep | Action::Touch | Action::Link, _) => CheckResult::Same,
        })
    }

    /// The sign of `--combined`, which scripts read.
    pub fn sign(self) -> char {
        match self {
            CheckResult::Same => '=',
            CheckResult::Differs => '*',
            CheckResult::MissingAtSrc => '-',
            CheckResult::MissingAtDst => '+',
            CheckResult::Error => '!',
        }
    }
}

/// One compared key.
#[derive(Debug)]
pub struct Checked {
    /// The key.
    pub key: Key,
    /// Where it stands.
    pub found: CheckResult,
    /// The step that a copy by content would take, and why.
    pub step: Option<Step>,
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

/// How content is compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Hashes that both sides know, or that are made where reading is cheap.
    #[default]
    Hashes,
    /// All bytes of both sides (`--download`).
    Bytes,
    /// Hashes of an encrypted destination's stored bytes: the source is read and encrypted alike (`cryptcheck`).
    Sealed,
}

/// How to compare.
#[derive(Clone, Copy, Debug, Default)]
pub struct CheckOptions {
    /// How content is compared.
    pub content: Content,
    /// Ignore files that exist only at the destination (`--one-way`).
    pub one_way: bool,
}

/// Compares the two sides of `cx` in key order; `each` gets every key except directories, in order.
pub fn check<'a>(
    job: &'a Job,
    cx: &'a Cx,
    options: CheckOptions,
    each: &'a mut dyn FnMut(&Checked),
) -> LocalBoxFuture<'a, CheckReport> {
    Box::pin(async move {
        let mut job = job.clone();
        if job.compare.by != CompareBy::SizeOnly {
            job.compare.by = CompareBy::Checksum;
        }
        let index = Index::default();
        index.open(cx, uses_of_index(&job, cx, options)).await;
        let checkers = job.pace.checkers.unwrap_or(questions(&*cx.src).max(questions(&*cx.dst))).max(1);
        let rules = decide::rules(&job, &cx.src, &cx.dst).for_content();
        let mut report = CheckReport::default();
        let pairs = match sides(&job, cx, &index, rules, checkers, options.one_way).pairs() {
            Ok(pairs) => pairs,
            Err(error) => {
                report.errors.push(report_error(cx, error));
                return report;
            }
        };
        let comparison = Comparison { job: &job, cx, rules, options };
        let mut checked = outcomes(pairs, cx).map(|outcome| comparison.outcome(outcome)).buffered(checkers).boxed();
        while let Some(outcome) = checked.next().await {
            match outcome {
                Some(CheckOutcome::Checked(checked)) => {
                    report.count(&checked, job.compare.by);
                    each(&checked);
                }
                Some(CheckOutcome::Lost(error)) => report.errors.push(error),
                None => {}
            }
            if cx.cancel.is_cancelled() {
                break;
            }
        }
        drop(checked);
        index.end().await;
        report
    })
}

/// Permitted uses of the index. Reading both sides relies on no earlier knowledge.
fn uses_of_index(job: &Job, cx: &Cx, options: CheckOptions) -> IndexScope {
    match options.content {
        Content::Hashes => destination_index::uses(job, &cx.filter, !options.one_way),
        Content::Bytes | Content::Sealed => IndexScope::Nothing,
    }
}

/// How both sides are walked: files only, within the filter's limits on either side.
fn sides<'a>(job: &'a Job, cx: &'a Cx, index: &'a Index, rules: Rules, checkers: usize, one_way: bool) -> Sides<'a> {
    let pages = job.pace.checkers.unwrap_or(0);
    let (max_depth, mounts) = (job.listing.max_depth, job.listing.mounts);
    let (one_device, omit_mounts) = (mounts != Mounts::Cross, mounts == Mounts::Omit);
    let how = ListOptions { max_depth, checkers, pages, one_device, omit_mounts, ..ListOptions::default() };
    let (from, filter, listed) = (cx.src.clone(), cx.filter.clone(), how.clone());
    let src: ListSrc = Arc::new(move || list(&from, &filter, listed.clone()));
    // Of equal sizes, the index has the hashes that are compared.
    let settles = move |src: &Entry, dst: &Entry| match compare(src, dst, &rules, true, HashAnswer::NotAsked) {
        Verdict::Same(_) => true,
        Verdict::Ask(Need::Hash) => !dst.hashes.is_empty(),
        _ => false,
    };
    let search = presence::options(job, &cx.dst).filter(|_| one_way);
    let (about, settles) = ((*cx.filter).clone(), Arc::new(settles));
    Sides { job, cx, index: index.get(), src, dst: Some(how), about, all: !one_way, search, settles }
}

/// An error that belongs to no single file, as the sink got it: errors of listings it gets as they are read.
fn report_error(cx: &Cx, error: Error) -> Arc<Error> {
    let error = Arc::new(error);
    cx.sink.emit(&Event::Error(error.clone()));
    error
}

/// Result of the walk over both sides.
enum CheckedPair {
    Pair(Box<Pair>),
    Lost(Arc<Error>),
}

/// Outcome of the check of one key.
enum CheckOutcome {
    Checked(Box<Checked>),
    Lost(Arc<Error>),
}

/// The pairs of both sides, and the keys that could not be listed, in order.
fn outcomes(pairs: Pairs, cx: &Cx) -> impl futures::Stream<Item = CheckedPair> {
    let walk = futures::stream::unfold(Some(pairs), move |state| async move {
        let mut pairs = state?;
        let next = pairs.next().await;
        let mut found: Vec<CheckedPair> = pairs.errors.drain(..).map(|(_, e)| CheckedPair::Lost(e)).collect();
        match next {
            Ok(Some(pair)) => found.push(CheckedPair::Pair(Box::new(pair))),
            Ok(None) => return (!found.is_empty()).then_some((found, None)),
            Err(error) => {
                found.push(CheckedPair::Lost(report_error(cx, error)));
                return Some((found, None));
            }
        }
        Some((found, Some(pairs)))
    });
    walk.flat_map(futures::stream::iter)
}

impl Checked {
    fn of(step: Step) -> Option<Checked> {
        let found = CheckResult::of(step.action, step.why)?;
        Some(Checked { key: step.key()?.clone(), found, step: Some(step), error: None })
    }

    fn failed(key: &Key, error: Error) -> Checked {
        let error = if error.key().is_some() { error } else { error.with_key(key) };
        Checked { key: key.clone(), found: CheckResult::Error, step: None, error: Some(Arc::new(error)) }
    }
}

impl CheckReport {
    fn count(&mut self, checked: &Checked, by: CompareBy) {
        match checked.found {
            CheckResult::Same => self.matches += 1,
            CheckResult::Differs => self.differences += 1,
            CheckResult::MissingAtSrc => {
                self.missing_at_src += 1;
                self.differences += 1;
            }
            CheckResult::MissingAtDst => {
                self.missing_at_dst += 1;
                self.differences += 1;
            }
            CheckResult::Error => self.errors.extend(checked.error.clone()),
        }
        let by_size = checked.step.as_ref().is_some_and(|step| step.why == Reason::Size);
        if checked.found == CheckResult::Same && by_size && by == CompareBy::Checksum {
            self.unhashed += 1;
        }
    }
}

/// Compares pairs by their content.
struct Comparison<'a> {
    job: &'a Job,
    cx: &'a Cx,
    rules: Rules,
    options: CheckOptions,
}

impl Comparison<'_> {
    /// `None` for keys that aren't reported: directories, and where the other side's listing failed, which is an error of its own.
    fn outcome(&self, walked: CheckedPair) -> BoxFuture<'_, Option<CheckOutcome>> {
        async move {
            let checked = match walked {
                CheckedPair::Lost(error) => return Some(CheckOutcome::Lost(error)),
                CheckedPair::Pair(pair) => self.checked(*pair).await,
            };
            checked.map(|checked| CheckOutcome::Checked(Box::new(checked)))
        }
        .boxed()
    }

    async fn checked(&self, pair: Pair) -> Option<Checked> {
        let step = match pair {
            Pair::Both(src, dst) if src.has_bytes() && dst.has_bytes() => {
                let key = src.key.clone();
                match self.both(src, dst).await {
                    Ok(step) => step?,
                    Err(error) => return Some(Checked::failed(&key, error)),
                }
            }
            // The other has something of that name which isn't looked at: a symlink, or a device.
            Pair::SrcOnly(src) | Pair::Both(src, _) if src.has_bytes() => plan::missing(src, self.job),
            Pair::DstOnly(dst) | Pair::Both(_, dst) if dst.has_bytes() && !self.options.one_way => {
                plan::extra(dst, false)
            }
            _ => return None,
        };
        Checked::of(step)
    }

    async fn both(&self, src: Entry, mut dst: Entry) -> Result<Option<Step>> {
        let mut verdict = self.verdict(&src, &dst).await?;
        if matches!(verdict, Verdict::Differ(Reason::Hash(_))) && self.cx.known.index.is_some() {
            // It may be the index that is wrong.
            dst = self.cx.dst.stat(&src.key).await?;
            verdict = self.verdict(&src, &dst).await?;
        }
        Ok(plan::both(src, dst, verdict, self.job))
    }

    async fn verdict(&self, src: &Entry, dst: &Entry) -> Result<Verdict> {
        match compare(src, dst, &self.rules, true, HashAnswer::NotAsked) {
            Verdict::Ask(Need::Hash) => {}
            verdict => return Ok(verdict),
        }
        let cx = self.cx;
        let answer = match self.options.content {
            Content::Bytes => by_content(cx, src, dst).await?,
            Content::Sealed => by_sealing(cx, src, dst).await?,
            Content::Hashes => hash::compare(cx.known.hashes.as_deref(), (&cx.src, src), (&cx.dst, dst)).await?,
        };
        Ok(compare(src, dst, &self.rules, true, answer))
    }
}

async fn by_sealing(cx: &Cx, src: &Entry, dst: &Entry) -> Result<HashAnswer> {
    let encrypted = offered(cx.dst.encrypted(), "check")?;
    let EncryptedFile { hashes, like } = encrypted.sealed(&dst.key, dst.version.as_ref()).await?;
    let Some((algo, _)) = hashes.iter().next() else { return Ok(HashAnswer::NoneInCommon) };
    let computed = hash::read_and_hash_sealed(&cx.src, src, like, &[algo]).await?;
    Ok(computed.agree(&hashes).map_or(HashAnswer::NoneInCommon, |(algo, same)| HashAnswer::Known(algo, same)))
}

async fn by_content(cx: &Cx, src: &Entry, dst: &Entry) -> Result<HashAnswer> {
    let algo = [Algo::Blake3];
    let (a, b) =
        futures::try_join!(hash::read_and_hash(&cx.src, src, &algo), hash::read_and_hash(&cx.dst, dst, &algo))?;
    Ok(a.agree(&b).map_or(HashAnswer::NoneInCommon, |(algo, same)| HashAnswer::Known(algo, same)))
}
