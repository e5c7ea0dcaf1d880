//! Symlinks in stores that have none: files that end in `.rclonelink` below, symlinks above, in one order.

use bytes::Bytes;
use futures::StreamExt;
use haul_core::{Entry, Error, ErrorKind, Key, Kind, Listed, MissedRange, Result};
use haul_mem::MemStore;
use haul_store::{
    CopyBatch, CopyHow, CopyItem, LateFacts, Links, ListRequest, Payload, Store, Watch, WriteSpec, layers::with_links,
};
use haul_testkit::conformance::{self, collect};
use std::sync::Arc;

/// A store without symlinks, and the same with them.
fn stores() -> (Arc<dyn Store>, Arc<dyn Store>) {
    let below: Arc<dyn Store> = Arc::new(MemStore::new());
    (below.clone(), with_links(below, Links::Keep))
}

async fn put(store: &Arc<dyn Store>, key: &Key, text: &str) -> Result<()> {
    let spec = WriteSpec { size: Some(text.len() as u64), ..WriteSpec::default() };
    let upload = store.write(key, spec).await?;
    let part = upload.part(0, 0, Payload::from(Bytes::copy_from_slice(text.as_bytes()))).await?;
    upload.publish(vec![part], LateFacts::default()).await?;
    Ok(())
}

async fn get(store: &Arc<dyn Store>, key: &Key) -> Vec<u8> {
    collect(store.read(key, None, None).await.unwrap()).await.unwrap()
}

async fn list(store: &Arc<dyn Store>, request: ListRequest) -> (Vec<Entry>, Vec<(MissedRange, Error)>, bool) {
    let (mut entries, mut failed, mut ended) = (Vec::new(), Vec::new(), false);
    let mut listing = store.list(request);
    while let Some(listed) = listing.next().await {
        match listed {
            Listed::Batch(batch) => entries.extend(batch),
            Listed::Failed { lost, error } => failed.push((lost, error)),
            Listed::Vanished(_) => {}
            Listed::End => ended = true,
        }
    }
    (entries, failed, ended)
}

async fn keys(store: &Arc<dyn Store>, request: ListRequest) -> Vec<Key> {
    list(store, request).await.0.into_iter().map(|entry| entry.key).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_layer_keeps_the_contract() {
    let summary = conformance::run(|| async { stores().1 }).await;
    let skipped: Vec<_> = summary.skipped.iter().map(|(name, _)| *name).collect();
    assert_eq!(skipped, ["a_full_folder_is_not_deleted", "folders_are_made_once", "it_hashes_what_it_holds"]);
}

#[test]
fn it_is_only_around_stores_without_symlinks_that_are_to_keep_them() {
    let (below, above) = stores();
    for links in [Links::Skip, Links::Follow] {
        assert!(Arc::ptr_eq(&with_links(below.clone(), links), &below));
    }
    assert!(Arc::ptr_eq(&with_links(above.clone(), Links::Keep), &above) && above.caps().symlinks);
}

#[tokio::test]
async fn a_symlink_is_stored_as_rclone_stores_it() {
    let (below, above) = stores();
    let (link, file) = (Key::symlink("d/k"), Key::new("d/k.rclonelink"));
    put(&above, &link, "../target").await.unwrap();
    put(&above, &Key::new("d/k"), "a file of its name").await.unwrap();
    assert_eq!(keys(&below, ListRequest::all()).await, [Key::new("d/k"), file.clone()]);
    assert_eq!(get(&below, &file).await, b"../target");
    let entry = above.stat(&link).await.unwrap();
    assert_eq!((&entry.key, entry.kind, entry.size), (&link, Kind::Symlink, 9));
    assert_eq!(above.read(&link, entry.version.as_ref(), None).await.unwrap().entry.kind, Kind::Symlink);
    assert_eq!(get(&above, &link).await, b"../target");
    let answers = above.delete(vec![(link.clone(), None), (Key::new("d/k"), None)]).await;
    assert!(answers.iter().all(Result::is_ok) && keys(&below, ListRequest::all()).await.is_empty());
    assert_eq!(above.stat(&link).await.unwrap_err().kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_plain_file_named_as_a_link_file_is_refused_and_not_listed() {
    let (below, above) = stores();
    let (link, file) = (Key::symlink("k"), Key::new("k.rclonelink"));
    put(&above, &link, "target").await.unwrap();
    put(&above, &Key::new("n"), "n").await.unwrap();
    let error = put(&above, &file, "no target").await.unwrap_err();
    let expected =
        "a file whose name ends in .rclonelink would become a symbolic link here: rename it, or leave out -l";
    assert_eq!((error.kind(), error.message(), error.key()), (ErrorKind::Unsupported, expected, Some(&file)));
    assert_eq!(above.stat(&file).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(above.read(&file, None, None).await.unwrap_err().kind(), ErrorKind::NotFound);
    // Deleting what isn't there leaves the symlink.
    let answers = above.delete(vec![(file.clone(), None), (Key::new("n"), None)]).await;
    assert!(answers.iter().all(Result::is_ok));
    assert_eq!(keys(&below, ListRequest::all()).await, std::slice::from_ref(&file));
    let copy = |from: &Key, to: &Key| CopyItem {
        from: from.clone(),
        want: None,
        size: 6,
        to: to.clone(),
        spec: WriteSpec::default(),
        how: CopyHow::Copy,
    };
    let items = vec![copy(&link, &Key::symlink("l")), copy(&link, &file), copy(&link, &Key::new("f"))];
    let from = below.caps().domain.clone().unwrap().place;
    let answers = above.copy(CopyBatch { from, items, links: Default::default() }, Watch::default()).await;
    let answers: Vec<_> = answers.into_iter().map(|answer| answer.map_err(|error| error.kind()).map(|_| ())).collect();
    assert_eq!(answers, [Ok(()), Err(ErrorKind::Unsupported), Ok(())]);
    let there = [Key::new("f"), link, Key::symlink("l")];
    assert_eq!(keys(&above, ListRequest::all()).await, there);
}

#[tokio::test]
async fn listings_keep_their_order_and_begin_anywhere() {
    let (below, above) = stores();
    let names = [
        "a",
        "a-b",
        "a.rclonelink",
        "a.rclonelink.",
        "a.rclonelink.rclonelink",
        "a.rclonelink/.rclonelink",
        "a/b",
        "b.rclonelink",
    ];
    for name in names {
        put(&below, &Key::new(name), "text").await.unwrap();
    }
    let all = names.map(Key::of_stored);
    assert!(all.is_sorted() && all.iter().filter(|key| key.is_symlink()).count() == 3);
    assert_eq!(keys(&above, ListRequest::all()).await, all);
    let mut places = all.to_vec();
    places.extend(names.map(Key::new));
    places.extend(all.iter().map(|key| key.with_suffix([0])));
    places.extend(["", "a.", "a.rclonelin", "c"].map(Key::new));
    for after in places {
        let wanted: Vec<_> = all.iter().filter(|key| **key > after).cloned().collect();
        let request = ListRequest { after: Some(after.clone()), ..ListRequest::all() };
        assert_eq!(keys(&above, request).await, wanted, "after {after:?}");
        let wanted: Vec<_> = all.iter().filter(|key| key.as_bytes().starts_with(after.as_bytes())).cloned().collect();
        let request = ListRequest { prefix: after.as_bytes().to_vec(), ..ListRequest::all() };
        assert_eq!(keys(&above, request).await, wanted, "below {after:?}");
    }
    // Page after page.
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let request = ListRequest { after: after.clone(), limit: Some(1), ..ListRequest::all() };
        let (page, failed, ended) = list(&above, request).await;
        assert!(failed.is_empty());
        found.extend(page.into_iter().map(|entry| entry.key));
        after = found.last().cloned();
        if ended {
            break;
        }
    }
    assert_eq!(found, all);
}

#[tokio::test]
async fn a_name_that_is_a_symlinks_key_is_told_and_the_rest_is_listed() {
    let (below, above) = stores();
    let odd = Key::symlink("b");
    for key in [&Key::new("a"), &odd, &Key::new("c")] {
        put(&below, key, "text").await.unwrap();
    }
    let (entries, failed, ended) = list(&above, ListRequest::all()).await;
    assert!(ended && entries.iter().map(|entry| entry.key.to_string()).eq(["a", "c"]));
    assert!(failed.len() == 1 && failed[0].0.holds(&odd) && !failed[0].0.holds(&Key::new("c")));
    assert_eq!(failed[0].1.kind(), ErrorKind::Invalid);
}
