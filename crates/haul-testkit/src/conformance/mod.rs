//! The second half of the `Store` contract: what is promised there is tried here, on every store and through every
//! layer. Cases are chosen by what the store says it can; one that doesn't apply is reported as skipped, with why.

mod change;
mod facets;
mod list;
mod read;
mod resume;
mod write;

pub use facets::same_facets;

use bytes::Bytes;
use futures::{FutureExt, StreamExt, future::BoxFuture};
use haul_core::{Entry, Error, Key, Listed, MissedRange, Mtime, Result};
use haul_store::{
    Body, LateFacts, ListRequest, Meters, Payload, Read, Store, StoredFacts, WriteSpec,
    layers::{LayerSettings, rate::Rate, stack},
};
use std::{fmt, os::unix::fs::FileExt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

/// What came of a run in which nothing failed.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Names of the cases that held.
    pub passed: Vec<&'static str>,
    /// Names of those that don't apply, and why.
    pub skipped: Vec<(&'static str, String)>,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} skipped", self.passed.len(), self.skipped.len())?;
        self.skipped.iter().try_for_each(|(name, why)| write!(f, "\n  skipped: {name}: {why}"))
    }
}

/// The names of the cases that a store may skip which can do everything else.
pub fn skipped(summary: &Summary) -> Vec<&'static str> {
    println!("{summary}");
    summary.skipped.iter().map(|(name, _)| *name).collect()
}

/// A store in all layers, with a bandwidth limit that is never reached, so that the limiting code runs.
pub fn layered(store: Arc<dyn Store>) -> Arc<dyn Store> {
    let rate = Some(Arc::new(Rate::new(Some(1 << 50), Some(1 << 50))));
    stack(store, &LayerSettings { rate, ..Default::default() }, &Arc::new(Meters::default()))
}

/// A case's answer: held, or skipped with the reason. What doesn't hold panics.
type CaseResult = std::result::Result<(), String>;

/// One promise and how it is tried.
struct Case {
    name: &'static str,
    run: fn(Arc<dyn Store>) -> BoxFuture<'static, CaseResult>,
}

macro_rules! cases {
    ($($module:ident: $($name:ident),+ $(,)?;)+) => {
        &[$($(Case { name: stringify!($name), run: |store| $module::$name(store).boxed() }),+),+]
    };
}

const CASES: &[Case] = cases! {
    list: an_empty_root_lists_as_end, keys_come_in_byte_order, a_file_and_a_folder_of_one_name, a_leading_slash_comes_back, strange_names_come_back, prefix_and_after_select,
        a_limit_stops_early, one_level_stands_for_the_rest, pages_join_without_gaps, a_missing_root_is_told,
        listings_tell_the_facts;
    read: ranges_are_exact, a_stale_version_is_refused, what_is_missing_is_not_found, stat_tells_files_and_folders;
    write: small_sizes_arrive, parts_arrive_in_any_order, a_part_sent_again_replaces, pieces_and_unknown_sizes_arrive,
        a_wrong_size_changes_nothing, nothing_shows_before_publish, abort_leaves_nothing, replacing_gives_a_new_version,
        conditions_hold, times_are_kept, late_facts_override, metadata_is_kept, hashes_are_of_the_content,
        writers_of_one_key_dont_mix;
    resume: a_resumed_write_publishes_the_whole, only_parts_that_are_there_are_believed, a_write_that_ended_is_gone,
        a_write_given_up_later_leaves_nothing, another_writes_token_is_refused, what_was_sent_is_read_back,
        several_send_parts_of_one_write;
    change: set_meta_changes_only_that, deletes_answer_for_each, a_full_folder_is_not_deleted, folders_are_made_once,
        copies_stay_inside, copies_answer_for_each, a_rename_leaves_nothing_behind,
        a_directory_is_renamed_with_all_that_is_below;
    read: it_hashes_what_it_holds;
    facets: layers_keep_its_facets, a_file_built_from_the_old_one_is_proved, many_small_files_go_together;
};

/// Tries every case, each on a fresh empty root that `make` gives (which exists, or is made by `make_dir("")`).
///
/// # Panics
/// When a promise is broken; the message names every broken one.
pub async fn run<F: Future<Output = Arc<dyn Store>>>(make: impl Fn() -> F) -> Summary {
    run_except(make, &[]).await
}

/// How surely a case is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breaks {
    /// Each time.
    Always,
    /// When requests meet in a certain way.
    AtTimes,
}

/// A case that a server is known to break: its name, how surely, and why.
pub type KnownBreak = (&'static str, Breaks, &'static str);

/// Like [`run`], but for cases that a server is known to break. They count as skipped.
///
/// # Panics
/// When another promise is broken, or one that always is is kept, doesn't apply or is none: no exception outlives its reason.
pub async fn run_except<F: Future<Output = Arc<dyn Store>>>(make: impl Fn() -> F, except: &[KnownBreak]) -> Summary {
    let (mut summary, mut broken) = (Summary::default(), Vec::new());
    let unknown = except.iter().filter(|(name, ..)| CASES.iter().all(|case| case.name != *name));
    broken.extend(unknown.map(|(name, ..)| format!("{name}: no such promise")));
    for case in CASES {
        let store = make().await;
        // Every request is bounded in time by contract; the bound here only turns a hang into a failure.
        let bounded = tokio::time::timeout(Duration::from_secs(120), attempt(case, store));
        let known = except.iter().find(|(name, ..)| *name == case.name);
        match (AssertUnwindSafe(bounded).catch_unwind().await, known) {
            (Ok(Ok(Ok(()))), None) => summary.passed.push(case.name),
            (Ok(Ok(Ok(()))), Some((_, Breaks::Always, why))) => {
                broken.push(format!("{}: kept after all, so not: {why}", case.name));
            }
            (Ok(Ok(Err(why))), None) => summary.skipped.push((case.name, why)),
            (Ok(Ok(Err(why))), Some(_)) => broken.push(format!("{}: needs no exception: {why}", case.name)),
            (Ok(Err(_)), _) => broken.push(format!("{}: no answer within 120 s", case.name)),
            (Ok(Ok(Ok(()))) | Err(_), Some((.., why))) => summary.skipped.push((case.name, (*why).to_owned())),
            (Err(panic), None) => broken.push(format!("{}: {}", case.name, panic_text(&*panic))),
        }
    }
    assert!(broken.is_empty(), "{} of {} promises are broken:\n{}", broken.len(), CASES.len(), broken.join("\n"));
    summary
}

async fn attempt(case: &Case, store: Arc<dyn Store>) -> CaseResult {
    store.make_dir(&Key::new(""), &WriteSpec::default()).await.expect("the root can be made");
    assert_eq!(store.caps().attributes.is_some(), store.inodes().is_some(), "attributes are of stores with inodes");
    (case.run)(store).await
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
    text.unwrap_or("panicked").to_owned()
}

fn skip_unless(can: bool, why: &str) -> CaseResult {
    if can { Ok(()) } else { Err(why.to_owned()) }
}

fn key(text: &str) -> Key {
    Key::new(text)
}

/// Writes a file in one part.
async fn put_with(store: &dyn Store, key: &Key, bytes: &[u8], spec: WriteSpec) -> Result<StoredFacts> {
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..spec };
    let upload = store.write(key, spec).await?;
    let part = match upload.part(0, 0, Payload::from(Bytes::copy_from_slice(bytes))).await {
        Ok(part) => part,
        Err(error) => {
            upload.abort().await?;
            return Err(error);
        }
    };
    Ok(upload.publish(vec![part], LateFacts::default()).await?)
}

async fn put(store: &dyn Store, name: &str, bytes: &[u8]) -> StoredFacts {
    put_with(store, &key(name), bytes, WriteSpec::default()).await.unwrap_or_else(|e| panic!("{name}: {e:?}"))
}

/// All bytes of a body.
pub async fn collect(read: Read) -> Result<Vec<u8>> {
    match read.body {
        Body::File(file, range) => {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            file.read_exact_at(&mut bytes, range.start).map_err(|e| Error::from_io("read", e))?;
            Ok(bytes)
        }
        Body::Stream(mut pieces) => {
            let mut bytes = Vec::new();
            while let Some(piece) = pieces.next().await {
                bytes.extend_from_slice(&piece?);
            }
            Ok(bytes)
        }
    }
}

async fn get(store: &dyn Store, name: &str) -> Vec<u8> {
    let read = store.read(&key(name), None, None).await.unwrap_or_else(|e| panic!("{name}: {e:?}"));
    collect(read).await.unwrap_or_else(|e| panic!("{name}: {e:?}"))
}

/// A listing as a whole; fails the case when keys are out of order or something comes after the end.
struct Whole {
    entries: Vec<Entry>,
    failed: Vec<(MissedRange, Error)>,
    ended: bool,
}

async fn list(store: &dyn Store, request: ListRequest) -> Whole {
    let shown = format!("{request:?}");
    let mut whole = Whole { entries: Vec::new(), failed: Vec::new(), ended: false };
    let mut listing = store.list(request);
    while let Some(listed) = listing.next().await {
        assert!(!whole.ended, "{shown}: something came after End");
        match listed {
            Listed::Batch(batch) => {
                assert!(!batch.is_empty(), "{shown}: an empty batch");
                whole.entries.extend(batch);
            }
            Listed::Failed { lost, error } => whole.failed.push((lost, error)),
            Listed::Vanished(_) => {}
            Listed::End => whole.ended = true,
        }
    }
    for pair in whole.entries.windows(2) {
        assert!(pair[0].key < pair[1].key, "{shown}: {} came before {}", pair[0].key, pair[1].key);
    }
    whole
}

/// The entries of a listing that must succeed.
async fn entries(store: &dyn Store, request: ListRequest) -> Vec<Entry> {
    let whole = list(store, request).await;
    assert!(whole.failed.is_empty(), "the listing failed: {:?}", whole.failed);
    assert!(whole.ended, "the listing didn't end");
    whole.entries
}

async fn keys(store: &dyn Store, request: ListRequest) -> Vec<String> {
    entries(store, request).await.iter().map(|entry| entry.key.to_string()).collect()
}

/// Keys of files only, so that stores with and without directories answer alike.
async fn files(store: &dyn Store, request: ListRequest) -> Vec<String> {
    let entries = entries(store, request).await;
    entries.iter().filter(|entry| !entry.is_dir()).map(|entry| entry.key.to_string()).collect()
}

/// A time as the store can keep it.
fn kept(store: &dyn Store, t: Mtime) -> Mtime {
    let step = store.caps().mtime.map_or(1, |p| p.as_nanos().max(1)) as i128;
    Mtime(t.0.div_euclid(step) * step)
}
