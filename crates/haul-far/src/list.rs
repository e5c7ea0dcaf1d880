//! Listings: the far end's batches as they come. One that breaks off says from where on nothing is known. What is in directories that
//! nobody wants is left out here: the far end doesn't know which those are.

use crate::{
    Far,
    message::{Answer, Request},
    wire::{Exchange, Incoming, unexpected},
};
use futures::stream::{self, BoxStream, StreamExt as _};
use haul_core::{Entry, Error, Key, Listed, Result, filter::Filter, listing::MissedRange};
use haul_store::ListRequest;
use std::sync::Arc;

/// Where a listing is.
enum State {
    Begin(Arc<Far>, Box<ListRequest>),
    Going(Exchange),
    /// Everything was listed.
    Over,
}

struct Listing {
    state: State,
    prune_by: Option<Arc<Filter>>,
    /// The last directory that nobody wants.
    unwanted: Option<Key>,
    /// From here on nothing is known yet.
    next: Key,
    prefix: Key,
}

/// The keys that `request` asks for.
pub fn list(far: Arc<Far>, request: ListRequest) -> BoxStream<'static, Listed> {
    let prefix = Key::new(&request.prefix);
    let next = request.after.as_ref().map(|after| after.with_suffix([0])).filter(|after| *after > prefix);
    let next = next.unwrap_or_else(|| prefix.clone());
    let prune_by = request.prune_by.clone();
    let state = State::Begin(far, Box::new(request));
    let listing = Listing { state, prune_by, unwanted: None, next, prefix };
    stream::unfold(listing, async |mut listing| listing.step().await.map(|listed| (listed, listing))).boxed()
}

impl Listing {
    async fn step(&mut self) -> Option<Listed> {
        if let State::Begin(far, request) = &self.state {
            match begin(far, request).await {
                Ok(exchange) => self.state = State::Going(exchange),
                Err(error) => return Some(self.lose(error)),
            }
        }
        loop {
            let State::Going(exchange) = &mut self.state else { return None };
            match exchange.next().await {
                Ok(Incoming::Answer(Answer::Batch(mut entries))) => {
                    let Some(last) = entries.last() else { continue };
                    // Entries out of order, or that weren't requested, prove nothing.
                    let keys = entries.iter().map(|entry| &entry.key);
                    let starts = keys.clone().all(|key| key.as_bytes().starts_with(self.prefix.as_bytes()));
                    if !starts || !keys.is_sorted() || entries.first().is_some_and(|first| first.key < self.next) {
                        return Some(self.lose(unexpected()));
                    }
                    self.next = last.key.with_suffix([0]);
                    entries.retain(|entry| wants(&mut self.unwanted, self.prune_by.as_deref(), &entry.key));
                    return Some(Listed::Batch(entries.into_iter().map(near).collect()));
                }
                Ok(Incoming::Answer(Answer::Lost(lost, error))) => {
                    if !is_unwanted(self.prune_by.as_deref(), &lost) {
                        return Some(Listed::Failed { lost, error });
                    }
                }
                Ok(Incoming::Answer(Answer::Vanished(key))) => {
                    let filter = self.prune_by.as_ref();
                    if filter.and_then(|filter| filter.excluded_above(key.as_bytes())).is_none() {
                        return Some(Listed::Vanished(key));
                    }
                }
                Ok(Incoming::Answer(Answer::End)) => {
                    self.state = State::Over;
                    return Some(Listed::End);
                }
                Ok(Incoming::Answer(Answer::Cut)) => {
                    self.state = State::Over;
                    return None;
                }
                Ok(_) => return Some(self.lose(unexpected())),
                Err(error) => return Some(self.lose(error)),
            }
        }
    }

    /// The rest is not known.
    fn lose(&mut self, error: Error) -> Listed {
        self.state = State::Over;
        Listed::Failed { lost: MissedRange { from: self.next.clone(), to: self.prefix.after_prefix() }, error }
    }
}

/// True for a lost range within an excluded directory, to its end, which need not have been listed: the range may begin there and extend
/// beyond it.
fn is_unwanted(filter: Option<&Filter>, lost: &MissedRange) -> bool {
    let dir = filter.and_then(|filter| filter.excluded_above(lost.from.as_bytes()));
    let end = dir.and_then(|dir| Key::new(dir).after_prefix());
    end.zip(lost.to.as_ref()).is_some_and(|(end, to)| *to <= end)
}

/// False for a directory that nobody wants, and for what comes behind it and is in it.
fn wants(unwanted: &mut Option<Key>, filter: Option<&Filter>, key: &Key) -> bool {
    if unwanted.as_ref().is_some_and(|dir| key.as_bytes().starts_with(dir.as_bytes())) {
        return false;
    }
    let wanted = !key.is_dir() || filter.is_none_or(|filter| filter.descend(key.as_bytes()));
    if !wanted {
        *unwanted = Some(key.clone());
    }
    wanted
}

/// An entry without what means nothing on this machine.
pub fn near(entry: Entry) -> Entry {
    Entry { changed: None, ..entry }
}

async fn begin(far: &Far, request: &ListRequest) -> Result<Exchange> {
    far.begin("LIST", &Request::List(request.clone())).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::filter::FilterSpec;

    #[test]
    fn a_lost_range_is_left_out_only_where_all_of_it_is() {
        let rules = vec!["- /a/.cache/**".to_owned()];
        let filter = Filter::new(FilterSpec { rules, ..FilterSpec::default() }).unwrap();
        let lost = |from: &str, to: Option<&str>| MissedRange { from: Key::new(from), to: to.map(Key::new) };
        for (lost, left_out) in [
            (MissedRange::below(&Key::new("a/.cache/")), true),
            (lost("a/.cache/x", Some("a/.cache/y")), true),
            // The names of a directory that could not be asked, of which the first is left out.
            (lost("a/.cache/", Some("a0")), false),
            (lost("a/.cache/", None), false),
            (MissedRange::below(&Key::new("a/")), false),
        ] {
            assert_eq!(is_unwanted(Some(&filter), &lost), left_out, "{lost:?}");
            assert!(!is_unwanted(None, &lost));
        }
    }
}
