//! What changing, deleting and copying promise.

use super::{CaseResult, files, get, kept, key, keys, put, put_with, skip_unless};
use crate::tree::content;
use haul_core::{ErrorKind, Key, Meta, Mtime, Version};
use haul_store::{CopyBatch, CopyHow, CopyItem, ListRequest, Store, Watch, WriteSpec};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

pub(super) async fn set_meta_changes_only_that(store: Arc<dyn Store>) -> CaseResult {
    skip_unless(store.caps().set_mtime, "it can't set times")?;
    put_with(&*store, &key("d/f"), b"12345", WriteSpec { mtime: Some(Mtime(0)), ..Default::default() })
        .await
        .expect("written");
    let mtime = Mtime::new(-5, 250_000_000);
    store.set_meta(&key("d/f"), Some(mtime), None).await.expect("set");
    let entry = store.stat(&key("d/f")).await.expect("there");
    assert_eq!((entry.mtime, entry.size), (Some(kept(&*store, mtime)), 5));
    assert_eq!(get(&*store, "d/f").await, b"12345");
    if store.caps().meta {
        let meta = Meta::from([("colour".to_string(), "red".to_string())]);
        store.set_meta(&key("d/f"), None, Some(&meta)).await.expect("set");
        let entry = store.stat(&key("d/f")).await.expect("there");
        assert_eq!(entry.mtime, Some(kept(&*store, mtime)), "the time stays");
    }
    if store.caps().dirs && store.caps().set_dir_mtime {
        store.set_meta(&key("d/"), Some(mtime), None).await.expect("set on a directory");
        assert_eq!(store.stat(&key("d/")).await.expect("there").mtime, Some(kept(&*store, mtime)));
    }
    let error = store.set_meta(&key("none"), Some(mtime), None).await.expect_err("nothing there");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    Ok(())
}

pub(super) async fn deletes_answer_for_each(store: Arc<dyn Store>) -> CaseResult {
    for name in ["a", "d/b", "d/c"] {
        put(&*store, name, b"1").await;
    }
    let names = ["none", "a", "d/none", "d/b", "x/y/z"];
    let answers = store.delete(names.iter().map(|name| (key(name), None)).collect()).await;
    assert_eq!(answers.len(), names.len());
    for (name, answer) in names.iter().zip(answers) {
        answer.unwrap_or_else(|e| panic!("{name}: {e:?}"));
    }
    assert_eq!(files(&*store, ListRequest::all()).await, ["d/c"]);
    assert!(store.delete(Vec::new()).await.is_empty());
    // More than fit into one request.
    let many: Vec<_> = (0..2500).map(|n| (Key::new(format!("no/{n}")), None)).collect();
    let answers = store.delete(many).await;
    assert!(answers.len() == 2500 && answers.iter().all(Result::is_ok));
    assert_eq!(files(&*store, ListRequest::all()).await, ["d/c"]);
    Ok(())
}

pub(super) async fn a_full_folder_is_not_deleted(store: Arc<dyn Store>) -> CaseResult {
    skip_unless(store.caps().dirs, "it has no directories")?;
    put(&*store, "d/e/f", b"1").await;
    let answers = store.delete(vec![(key("d/e/"), None), (key("d/"), None), (key(""), None)]).await;
    for answer in answers {
        assert_eq!(answer.expect_err("not empty").kind(), ErrorKind::Exists);
    }
    assert_eq!(get(&*store, "d/e/f").await, b"1");
    let answers = store.delete(vec![(key("d/e/f"), None), (key("d/e/"), None), (key("d/"), None)]).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(keys(&*store, ListRequest::all()).await, [""; 0]);
    // What was deleted can be made again under the same name.
    put(&*store, "d/e/f", b"2").await;
    assert_eq!(get(&*store, "d/e/f").await, b"2");
    Ok(())
}

pub(super) async fn folders_are_made_once(store: Arc<dyn Store>) -> CaseResult {
    let mtime = Mtime::new(1_600_000_000, 0);
    for _ in 0..2 {
        let spec = WriteSpec { mtime: Some(mtime), ..Default::default() };
        store.make_dir(&key("d/e/"), &spec).await.expect("made, or there already");
    }
    skip_unless(store.caps().keeps_empty_dirs, "it keeps no empty directories")?;
    let all = keys(&*store, ListRequest::all()).await;
    assert!(all.contains(&"d/e/".to_string()), "{all:?}");
    assert!(store.stat(&key("d/e/")).await.expect("there").is_dir());
    put(&*store, "d/e/f", b"1").await;
    if store.caps().dirs {
        put(&*store, "file", b"1").await;
        let error = store.make_dir(&key("file/"), &WriteSpec::default()).await.expect_err("a file is there");
        assert_eq!(error.kind(), ErrorKind::Exists, "{error:?}");
    }
    Ok(())
}

fn item(from: &str, to: &str, size: u64) -> CopyItem {
    CopyItem { from: key(from), want: None, size, to: key(to), spec: WriteSpec::default(), how: CopyHow::Copy }
}

async fn copy(
    store: &dyn Store,
    items: Vec<CopyItem>,
    watch: Watch,
) -> Result<Vec<haul_core::Result<haul_store::StoredFacts>>, String> {
    let Some(domain) = store.caps().domain.clone() else { return Err("it has no copy domain".into()) };
    let count = items.len();
    let answers = store.copy(CopyBatch { from: domain.place, items, links: Default::default() }, watch).await;
    assert_eq!(answers.len(), count, "one answer for each");
    let unsupported = |answer: &haul_core::Result<_>| matches!(answer, Err(e) if e.kind() == ErrorKind::Unsupported);
    skip_unless(!answers.iter().all(unsupported), "it doesn't copy by itself")?;
    Ok(answers)
}

pub(super) async fn copies_stay_inside(store: Arc<dyn Store>) -> CaseResult {
    let mtime = Mtime::new(1_234_567_890, 123_456_789);
    let sizes = [0, 1, 70_000, 3_000_000];
    for size in sizes {
        let spec = WriteSpec { mtime: Some(mtime), ..Default::default() };
        put_with(&*store, &key(&format!("from/{size}")), &content(size, size), spec).await.expect("written");
    }
    let items = sizes.iter().map(|size| item(&format!("from/{size}"), &format!("to/x/{size}"), *size)).collect();
    let copied = Arc::new(AtomicU64::new(0));
    let count = copied.clone();
    let watch = Watch::new(move |_, bytes| {
        count.fetch_add(bytes, Ordering::Relaxed);
    });
    for (size, answer) in sizes.iter().zip(copy(&*store, items, watch).await?) {
        assert_eq!(answer.unwrap_or_else(|e| panic!("{size} bytes: {e:?}")).size, *size);
        assert!(get(&*store, &format!("to/x/{size}")).await == content(*size, *size), "{size} bytes");
        if store.caps().mtime.is_some() {
            let found = store.stat(&key(&format!("to/x/{size}"))).await.expect("there").mtime;
            assert_eq!(found, Some(kept(&*store, mtime)), "the source's time is kept");
        }
        assert!(get(&*store, &format!("from/{size}")).await == content(*size, *size), "the source stays");
    }
    assert_eq!(copied.load(Ordering::Relaxed), sizes.iter().sum::<u64>());
    Ok(())
}

pub(super) async fn copies_answer_for_each(store: Arc<dyn Store>) -> CaseResult {
    put(&*store, "f", b"new").await;
    put(&*store, "g", b"old").await;
    let stale = Some(Version::new("never was"));
    let items =
        vec![item("none", "x", 3), CopyItem { want: stale, ..item("f", "y", 3) }, item("f", "z", 3), item("f", "g", 3)];
    let answers = copy(&*store, items, Watch::default()).await?;
    let kinds: Vec<_> = answers.into_iter().map(|answer| answer.map(|s| s.size).map_err(|e| e.kind())).collect();
    assert_eq!(kinds, [Err(ErrorKind::NotFound), Err(ErrorKind::Changed), Ok(3), Ok(3)]);
    assert_eq!(files(&*store, ListRequest::all()).await, ["f", "g", "z"]);
    assert_eq!(get(&*store, "g").await, b"new");
    Ok(())
}

pub(super) async fn a_rename_leaves_nothing_behind(store: Arc<dyn Store>) -> CaseResult {
    put(&*store, "d/f", b"12345").await;
    let moved = CopyItem { how: CopyHow::Rename, ..item("d/f", "e/g", 5) };
    let answers = copy(&*store, vec![moved], Watch::default()).await;
    if !store.caps().renames {
        assert!(answers.is_err(), "it says that it doesn't rename, and answers {answers:?}");
        assert_eq!(files(&*store, ListRequest::all()).await, ["d/f"]);
        return Ok(());
    }
    let renamed = answers?.into_iter().next().expect("an answer");
    renamed.expect("renamed");
    assert_eq!(get(&*store, "e/g").await, b"12345");
    assert_eq!(files(&*store, ListRequest::all()).await, ["e/g"]);
    Ok(())
}

pub(super) async fn a_directory_is_renamed_with_all_that_is_below(store: Arc<dyn Store>) -> CaseResult {
    if !store.caps().renames_dirs {
        // Nobody asks those for it.
        return Ok(());
    }
    put(&*store, "d/a/f", b"deep").await;
    put(&*store, "d/g", b"flat").await;
    let rename = |from: &str, to: &str| CopyItem { how: CopyHow::RenameDir, ..item(from, to, 0) };
    copy(&*store, vec![rename("d/", "e/new/")], Watch::default()).await?.remove(0).expect("renamed");
    assert_eq!(files(&*store, ListRequest::all()).await, ["e/new/a/f", "e/new/g"]);
    assert_eq!(get(&*store, "e/new/a/f").await, b"deep");
    // What is at a name stays, be it a directory or a file.
    put(&*store, "d/x", b"other").await;
    put(&*store, "file", b"file").await;
    let tries = vec![rename("d/", "e/new/"), rename("none/", "free/")];
    let kinds: Vec<_> = copy(&*store, tries, Watch::default())
        .await?
        .into_iter()
        .map(|answer| answer.expect_err("refused").kind())
        .collect();
    assert_eq!(kinds, [ErrorKind::Exists, ErrorKind::NotFound]);
    match copy(&*store, vec![rename("d/", "file/")], Watch::default()).await?.remove(0) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Exists),
        // It has both, a file and a directory of one name.
        Ok(_) => drop(copy(&*store, vec![rename("file/", "d/")], Watch::default()).await?.remove(0).expect("renamed")),
    }
    assert_eq!(files(&*store, ListRequest::all()).await, ["d/x", "e/new/a/f", "e/new/g", "file"]);
    // The old name is free again.
    copy(&*store, vec![rename("e/new/", "d2/")], Watch::default()).await?.remove(0).expect("renamed");
    put(&*store, "e/new/y", b"again").await;
    assert_eq!(files(&*store, ListRequest::all()).await, ["d/x", "d2/a/f", "d2/g", "e/new/y", "file"]);
    Ok(())
}
