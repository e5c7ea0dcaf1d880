//! Batches for services that take one file per request: a bounded number of requests at once, answers in order.

use crate::{CopyItem, StoredFacts, Watch};
use futures::{StreamExt, stream};
use haul_core::{Error, Key, Result, Version};

/// `count` copies of one error.
pub fn failed<T>(count: usize, error: &Error) -> Vec<Result<T>> {
    (0..count).map(|_| Err(error.to_report())).collect()
}

/// Copies each of `items`, `at_once` of them at a time, and tells `watch` what was copied. One answer for each, in their order.
pub async fn copied<F>(
    items: Vec<CopyItem>,
    watch: &Watch,
    at_once: usize,
    copy: impl Fn(CopyItem) -> F,
) -> Vec<Result<StoredFacts>>
where
    F: Future<Output = Result<StoredFacts>>,
{
    let copies = items.into_iter().enumerate().map(|(number, item)| {
        let copied = copy(item);
        async move {
            let stored = copied.await?;
            watch.copied(number, stored.size);
            Ok(stored)
        }
    });
    stream::iter(copies).buffered(at_once).collect().await
}

/// Deletes each of `keys`, `at_once` of them at a time: with a directory among them one after the other, since it comes after what
/// was in it. One answer for each, in their order.
pub async fn deleted<F>(
    keys: Vec<(Key, Option<Version>)>,
    at_once: usize,
    delete: impl Fn(Key, Option<Version>) -> F,
) -> Vec<Result<()>>
where
    F: Future<Output = Result<()>>,
{
    let at_once = if keys.iter().any(|(key, _)| key.is_dir() || key.is_root()) { 1 } else { at_once };
    let deletes = keys.into_iter().map(|(key, version)| delete(key, version));
    stream::iter(deletes).buffered(at_once).collect().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_core::{Error, ErrorKind};
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn a_directory_is_deleted_after_what_is_in_it() {
        for (names, most) in [(&["a", "b", "c", "d"][..], 3), (&["d/a", "d/b", "d/"], 1), (&["a", ""], 1)] {
            let (busy, peak) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let (busy, peak) = (&busy, &peak);
            let keys = names.iter().map(|name| (Key::new(*name), None)).collect();
            let answers = deleted(keys, 3, |key, _| async move {
                peak.fetch_max(busy.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                busy.fetch_sub(1, Ordering::Relaxed);
                Err(Error::new(ErrorKind::Io, "delete", "no").with_key(&key))
            })
            .await;
            assert_eq!(peak.load(Ordering::Relaxed), most, "{names:?}");
            let failed_keys: Vec<Key> =
                answers.into_iter().filter_map(|answer| answer.unwrap_err().key().cloned()).collect();
            assert_eq!(failed_keys, names.iter().map(|name| Key::new(*name)).collect::<Vec<_>>());
        }
    }
}
