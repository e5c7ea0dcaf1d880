//! Where to cut a range of keys so that the pieces hold about as much as each other, without listing it: a few hundred requests
//! look at where names branch. A cut that is off costs only balance: holders split again where others wait.

use futures::{
    StreamExt,
    future::{BoxFuture, FutureExt},
};
use haul_core::{Entry, Error, ErrorKind, Key, Listed, Result, key::after_prefix, part::KeyRange};
use haul_store::{ListRequest, Store};
use std::sync::Arc;

/// Places that are looked at for each piece: with several a piece differs from the others by part of one.
const PLACES: usize = 3;
/// Rounds of looking closer.
const ROUNDS: usize = 12;
/// Looks under way at once.
const AT_ONCE: usize = 16;
/// Branches of one place that are looked for.
const BRANCHES: usize = 64;
/// The last character that a name can continue with.
const LAST: &str = "\u{10FFFF}";
/// Assumed number of files in a directory that wasn't opened.
const UNSEEN: usize = 16;

/// Cuts `range` of `store` into `pieces` pieces: in order, each cut the last key of its piece. Fewer where there is less to cut.
///
/// Errors: of the listings.
pub async fn cuts(store: &Arc<dyn Store>, range: &KeyRange, pieces: usize) -> Result<Vec<Key>> {
    if pieces < 2 {
        return Ok(Vec::new());
    }
    let mut cuts = match store.caps().page {
        Some(page) => by_names(store, range, pieces, page).await?,
        None => by_dirs(store, range, pieces).await?,
    };
    cuts.retain(|cut| range.holds(cut) && range.through.as_ref() != Some(cut));
    cuts.dedup();
    Ok(cuts)
}

/// The first entries of a listing, up to `limit`, and whether these are all.
async fn first(store: &Arc<dyn Store>, request: ListRequest, limit: usize) -> Result<(Vec<Entry>, bool)> {
    let mut listing = store.list(ListRequest { limit: Some(limit), ..request });
    let mut all = Vec::new();
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) => all.extend(entries),
            Listed::Vanished(_) => {}
            Listed::Failed { error, .. } if error.kind() == ErrorKind::DirNotFound => {}
            Listed::Failed { error, .. } => return Err(error),
            Listed::End => return Ok((all, true)),
        }
        if all.len() >= limit {
            break;
        }
    }
    Ok((all, false))
}

/// Every so manyeth of `places` in order, so that the weights between are about equal.
fn spread(places: &[(Key, usize)], pieces: usize) -> Vec<Key> {
    let total: usize = places.iter().map(|(_, weight)| weight).sum();
    let (mut sum, mut cuts) = (0, Vec::new());
    for (key, weight) in places {
        sum += weight;
        if cuts.len() + 1 < pieces && sum * pieces >= total * (cuts.len() + 1) && sum < total {
            cuts.push(key.clone());
        }
    }
    cuts
}

/// Results of all of them, in order.
async fn all_of<T>(looks: Vec<BoxFuture<'_, Result<Vec<T>>>>) -> Result<Vec<T>> {
    let mut looks = futures::stream::iter(looks).buffered(AT_ONCE);
    let mut all = Vec::new();
    while let Some(found) = looks.next().await {
        all.extend(found?);
    }
    Ok(all)
}

/// A place where names branch: all that begin so.
#[derive(Clone, Debug)]
struct Branch {
    prefix: String,
    /// Its share of the whole, in parts of some millions.
    weight: usize,
    /// Looking closer gains nothing.
    leaf: bool,
}

async fn by_names(store: &Arc<dyn Store>, range: &KeyRange, pieces: usize, page: usize) -> Result<Vec<Key>> {
    let request = ListRequest { after: range.after.clone(), ..ListRequest::all() };
    let (entries, ended) = first(store, request, page).await?;
    let inside: Vec<&Entry> = entries.iter().filter(|entry| range.holds(&entry.key)).collect();
    if ended || inside.len() < entries.len() {
        let places: Vec<_> = inside.iter().map(|entry| (entry.key.clone(), 1)).collect();
        return Ok(spread(&places, pieces));
    }
    let mut branches = vec![Branch { prefix: String::new(), weight: 1 << 40, leaf: false }];
    for _ in 0..ROUNDS {
        if branches.len() >= PLACES * pieces || branches.iter().all(|branch| branch.leaf) {
            break;
        }
        // The heaviest first: looking closer at those that are light gains little.
        let heaviest = branches.iter().filter(|branch| !branch.leaf).map(|branch| branch.weight).max().unwrap_or(0);
        let looks = branches.into_iter().map(|branch| match branch.leaf || branch.weight * 2 < heaviest {
            true => std::future::ready(Ok(vec![branch])).boxed(),
            false => closer(store, range, branch).boxed(),
        });
        branches = all_of(looks.collect()).await?;
    }
    let end = |branch: &Branch| Key::new(format!("{}{LAST}", branch.prefix));
    Ok(spread(&branches.iter().map(|branch| (end(branch), branch.weight)).collect::<Vec<_>>(), pieces))
}

/// The branches of a place, by leaps from each to the next.
async fn closer(store: &Arc<dyn Store>, range: &KeyRange, of: Branch) -> Result<Vec<Branch>> {
    let mut prefixes: Vec<String> = Vec::new();
    let mut after = range.after.clone();
    let mut shared: Option<String> = None;
    while let Some(found) = next(store, range, &of.prefix, after.take()).await? {
        let Some(letter) = found[of.prefix.len()..].chars().next() else {
            after = Some(Key::new(found));
            continue;
        };
        let prefix = format!("{}{letter}", of.prefix);
        after = Some(Key::new(format!("{prefix}{LAST}")).max(range.after.clone().unwrap_or_else(|| Key::new(""))));
        prefixes.push(prefix);
        shared.get_or_insert(found);
        if prefixes.len() == BRANCHES {
            break;
        }
    }
    if let ([only], Some(first)) = (&prefixes[..], shared) {
        return Ok(vec![Branch { prefix: together(store, range, only, &first).await?, ..of }]);
    }
    let leaf = prefixes.is_empty();
    if leaf {
        return Ok(vec![Branch { leaf, ..of }]);
    }
    let weight = (of.weight / prefixes.len()).max(1);
    Ok(prefixes.into_iter().map(|prefix| Branch { prefix, weight, leaf: false }).collect())
}

/// The next name after `after` that begins with `prefix`, if it is in the range.
async fn next(store: &Arc<dyn Store>, range: &KeyRange, prefix: &str, after: Option<Key>) -> Result<Option<String>> {
    let request = ListRequest { prefix: prefix.into(), after, ..ListRequest::all() };
    let (entries, _) = first(store, request, 1).await?;
    let found = entries.first().filter(|entry| range.holds(&entry.key));
    Ok(found.and_then(|entry| std::str::from_utf8(entry.key.as_bytes()).ok().map(str::to_owned)))
}

/// The longest beginning of `first` that all names share which begin with `prefix`, found by halving; at least `prefix`.
async fn together(store: &Arc<dyn Store>, range: &KeyRange, prefix: &str, name: &str) -> Result<String> {
    let ends: Vec<usize> =
        name.char_indices().map(|(at, letter)| at + letter.len_utf8()).filter(|end| *end >= prefix.len()).collect();
    let (mut low, mut high) = (0, ends.len().saturating_sub(1));
    while low < high {
        let middle = (low + high).div_ceil(2);
        let longer = &name[..ends[middle]];
        let beyond = next(store, range, prefix, Some(Key::new(format!("{longer}{LAST}")))).await?;
        if beyond.is_some() { high = middle - 1 } else { low = middle }
    }
    Ok(ends.get(low).map_or_else(|| prefix.to_owned(), |end| name[..*end].to_owned()))
}

/// A file, or a directory that may be opened.
#[derive(Clone, Debug)]
struct CutPoint {
    key: Key,
    opened: bool,
}

async fn by_dirs(store: &Arc<dyn Store>, range: &KeyRange, pieces: usize) -> Result<Vec<Key>> {
    let mut places = inside(store, range, Key::new("")).await?;
    for _ in 0..ROUNDS {
        let closed = |place: &CutPoint| place.key.is_dir() && !place.opened;
        if places.len() >= PLACES * UNSEEN * pieces || !places.iter().any(closed) {
            break;
        }
        let looks = places.into_iter().map(|place| match closed(&place) {
            true => opened(store, range, place).boxed(),
            false => std::future::ready(Ok(vec![place])).boxed(),
        });
        places = all_of(looks.collect()).await?;
    }
    let weighed = places.iter().filter_map(|place| match (place.key.is_dir(), place.opened) {
        (false, _) => Some((place.key.clone(), 1)),
        (true, false) => Some((Key::new(after_prefix(place.key.as_bytes())?), UNSEEN)),
        (true, true) => None,
    });
    Ok(spread(&weighed.collect::<Vec<_>>(), pieces))
}

/// A directory's contents.
async fn opened(store: &Arc<dyn Store>, range: &KeyRange, place: CutPoint) -> Result<Vec<CutPoint>> {
    let within = inside(store, range, place.key.clone()).await?;
    Ok(std::iter::once(CutPoint { opened: true, ..place }).chain(within).collect())
}

/// The part of the range inside a directory, in order.
async fn inside(store: &Arc<dyn Store>, range: &KeyRange, dir: Key) -> Result<Vec<CutPoint>> {
    let mut listing = store.list(ListRequest::dir(dir.as_bytes()));
    let mut all = Vec::new();
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) => {
                let wanted = |entry: &Entry| {
                    if entry.is_dir() { range.meets(entry.key.as_bytes()) } else { range.holds(&entry.key) }
                };
                let places = entries.into_iter().filter(wanted).map(|entry| CutPoint { key: entry.key, opened: false });
                all.extend(places);
            }
            Listed::Vanished(_) => {}
            // The worker that has the shard reports it.
            Listed::Failed { error, .. } if !dir.is_root() || error.kind() == ErrorKind::Hidden => {
                tracing::debug!("{dir}: {error}");
            }
            Listed::Failed { error, .. } => return Err(error),
            Listed::End => return Ok(all),
        }
    }
    Err(Error::new(ErrorKind::Io, "list", "the listing broke off").with_key(&dir))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_spread_by_weight() {
        let places = |weights: &[usize]| -> Vec<(Key, usize)> {
            weights.iter().enumerate().map(|(at, weight)| (Key::new(format!("{at}")), *weight)).collect()
        };
        let cut = |weights: &[usize], pieces| {
            spread(&places(weights), pieces).iter().map(Key::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(cut(&[1; 9], 3), "2 5");
        assert_eq!(cut(&[1, 1, 6, 1, 1], 2), "2");
        assert_eq!(cut(&[5, 1], 2), "0");
        assert_eq!((cut(&[1], 4), cut(&[], 4), cut(&[1, 1], 4)), (String::new(), String::new(), "0".into()));
    }
}
