//! What listings promise.

use super::{CaseResult, entries, files, get, key, keys, list, put, put_with, skip_unless};
use futures::{StreamExt, stream};
use haul_core::{
    Entry, ErrorKind, Key, Kind,
    filter::{Filter, FilterSpec},
};
use haul_store::{ListRequest, Store, WriteSpec};
use std::sync::Arc;

pub(super) async fn an_empty_root_lists_as_end(store: Arc<dyn Store>) -> CaseResult {
    for request in [ListRequest::all(), ListRequest::dir(""), ListRequest::dir("no/such/")] {
        assert_eq!(keys(&*store, request).await, [""; 0]);
    }
    assert!(store.stat(&key("")).await.expect("the root is there").is_dir());
    Ok(())
}

pub(super) async fn keys_come_in_byte_order(store: Arc<dyn Store>) -> CaseResult {
    let mut names = vec!["B", "a-b", "a/x", "a/x-y", "a/x0/z", "a0", "\u{e9}", "\u{1F69A}", "~"];
    for name in &names {
        put(&*store, name, name.as_bytes()).await;
    }
    names.sort_unstable();
    assert_eq!(files(&*store, ListRequest::all()).await, names);
    if store.caps().dirs {
        let all = keys(&*store, ListRequest::all()).await;
        assert_eq!(all[..6], ["B", "a-b", "a/", "a/x", "a/x-y", "a/x0/"]);
    }
    Ok(())
}

/// Some services drop the slash themselves, whoever asks.
pub(super) async fn a_leading_slash_comes_back(store: Arc<dyn Store>) -> CaseResult {
    let kept = put_with(&*store, &key("/lead"), b"x", WriteSpec::default()).await;
    if let Err(error) = kept {
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error:?}");
        return Ok(());
    }
    let listed = files(&*store, ListRequest::all()).await;
    skip_unless(listed != ["lead"], "this service drops a leading slash")?;
    assert_eq!(listed, ["/lead"]);
    Ok(())
}

/// Buckets may hold `a` and `a/x`. Some services that keep keys as files refuse the second, or hide it.
pub(super) async fn a_file_and_a_folder_of_one_name(store: Arc<dyn Store>) -> CaseResult {
    skip_unless(!store.caps().dirs, "a disk has no file and folder of one name")?;
    let names = ["a", "a-b", "a/x", "a/x/y", "a0"];
    for name in names {
        let kept = put_with(&*store, &key(name), name.as_bytes(), WriteSpec::default()).await;
        skip_unless(kept.is_ok(), "this service has no file and folder of one name")?;
    }
    let listed = files(&*store, ListRequest::all()).await;
    skip_unless(listed.len() == names.len(), "this service hides what is below a file's name")?;
    assert_eq!(listed, names);
    Ok(())
}

pub(super) async fn strange_names_come_back(store: Arc<dyn Store>) -> CaseResult {
    let must = [
        "with space",
        " lead",
        "trail ",
        "100%",
        "%2F",
        "a+b",
        "what?",
        "#1",
        "new\nline",
        "tab\t",
        "\u{1F69A}",
        "&amp;<x>",
        "quote\"'",
        "back\\slash",
        "star*[x]",
        "e\u{301}",
        "\u{e9}",
        "...",
        "a..b",
        "~",
        "-dash",
        "d/ x/ y",
        "colon:x",
    ];
    // Not every store can hold these: it refuses them, or gives them back as they were.
    let may: [&[u8]; 5] = [b"d//x", b"e/./x", b"raw\xff\xfe", b"bell\x07", b"e/../y"];
    let mut wanted: Vec<Vec<u8>> = Vec::new();
    for name in must {
        put(&*store, name, name.as_bytes()).await;
        wanted.push(name.into());
    }
    for name in may {
        match put_with(&*store, &Key::new(name), name, WriteSpec::default()).await {
            Ok(_) => wanted.push(name.into()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{}: {error:?}", name.escape_ascii()),
        }
    }
    wanted.sort();
    let listed = entries(&*store, ListRequest::all()).await;
    let listed: Vec<_> = listed.iter().filter(|e| !e.is_dir()).map(|e| e.key.as_bytes().to_vec()).collect();
    assert_eq!(listed, wanted);
    for name in &wanted {
        let key = Key::new(name);
        let read = store.read(&key, None, None).await.unwrap_or_else(|e| panic!("{e:?}"));
        assert_eq!(super::collect(read).await.expect("bytes"), *name, "another file was read for {key:?}");
        store.stat(&key).await.unwrap_or_else(|e| panic!("{e:?}"));
    }
    let keys = wanted.iter().map(|name| (Key::new(name), None)).collect();
    for answer in store.delete(keys).await {
        answer.unwrap_or_else(|e| panic!("{e:?}"));
    }
    assert_eq!(files(&*store, ListRequest::all()).await, [""; 0]);
    Ok(())
}

const NAMES: [&str; 9] = ["a-b", "a/x", "a/y/1", "a/y/2", "a0", "b/c/d", "b/c/e", "ba", "z"];

async fn fill(store: &dyn Store) {
    for name in NAMES {
        put(store, name, name.as_bytes()).await;
    }
}

pub(super) async fn prefix_and_after_select(store: Arc<dyn Store>) -> CaseResult {
    fill(&*store).await;
    for prefix in ["", "a", "a/", "a/y", "a/y/", "b", "b/c/e", "c", "b/c/d/", "q/r/", "z"] {
        for after in ["", "a", "a/", "a/x", "a/y/1", "a/y/9", "a/z", "b", "z", "zz"] {
            let request = ListRequest {
                prefix: prefix.into(),
                after: (!after.is_empty()).then(|| key(after)),
                ..ListRequest::all()
            };
            let wanted: Vec<_> = NAMES.into_iter().filter(|n| n.starts_with(prefix) && *n > after).collect();
            assert_eq!(files(&*store, request).await, wanted, "prefix {prefix:?} after {after:?}");
        }
    }
    // Listing on after each key of a listing gives the rest of it, folders too.
    let all = keys(&*store, ListRequest::all()).await;
    for (at, last) in all.iter().enumerate() {
        let request = ListRequest { after: Some(key(last)), ..ListRequest::all() };
        assert_eq!(keys(&*store, request).await, all[at + 1..], "after {last:?}");
    }
    let rules = ["- /a/", "- /b/c/"].map(String::from).into();
    let filter = Filter::new(FilterSpec { rules, ..FilterSpec::default() }).expect("rules");
    let request = ListRequest { prune_by: Some(Arc::new(filter)), ..ListRequest::all() };
    let pruned = files(&*store, request).await;
    // A store that lists flat may ignore it, so only what is wanted is sure.
    assert!(["a-b", "a0", "ba", "z"].iter().all(|n| pruned.contains(&n.to_string())), "{pruned:?}");
    if store.caps().dirs {
        assert_eq!(pruned, ["a-b", "a0", "ba", "z"]);
    }
    Ok(())
}

pub(super) async fn a_limit_stops_early(store: Arc<dyn Store>) -> CaseResult {
    fill(&*store).await;
    let all = keys(&*store, ListRequest::all()).await;
    let limited = list(&*store, ListRequest { limit: Some(3), ..ListRequest::all() }).await;
    let some: Vec<String> = limited.entries.iter().map(|entry| entry.key.to_string()).collect();
    assert!(some.len() >= 3 && some.len() < all.len(), "{some:?}");
    assert_eq!(some, all[..some.len()]);
    assert!(!limited.ended, "there are more");
    let whole = list(&*store, ListRequest { limit: Some(all.len() + 1), ..ListRequest::all() }).await;
    assert!(whole.ended && whole.entries.len() == all.len(), "there are no more");
    Ok(())
}

pub(super) async fn one_level_stands_for_the_rest(store: Arc<dyn Store>) -> CaseResult {
    fill(&*store).await;
    let kinds = |entries: &[Entry]| -> Vec<(String, Kind)> {
        entries.iter().map(|entry| (entry.key.to_string(), entry.kind)).collect()
    };
    let wanted = |names: &[&str]| -> Vec<(String, Kind)> {
        let kind = |name: &str| if name.ends_with('/') { Kind::Dir } else { Kind::File };
        names.iter().map(|name| (name.to_string(), kind(name))).collect()
    };
    let root = entries(&*store, ListRequest::dir("")).await;
    assert_eq!(kinds(&root), wanted(&["a-b", "a/", "a0", "b/", "ba", "z"]));
    let dir = entries(&*store, ListRequest::dir("a/")).await;
    assert_eq!(kinds(&dir), wanted(&["a/x", "a/y/"]));
    let partial = entries(&*store, ListRequest::dir("b")).await;
    assert_eq!(kinds(&partial), wanted(&["b/", "ba"]));
    let after = ListRequest { after: Some(key("a/")), ..ListRequest::dir("") };
    assert_eq!(kinds(&entries(&*store, after).await), wanted(&["a0", "b/", "ba", "z"]));
    Ok(())
}

pub(super) async fn pages_join_without_gaps(store: Arc<dyn Store>) -> CaseResult {
    // More than two pages of a store that lists a thousand at a time.
    let wanted: Vec<String> = (0..2100).map(|n| format!("p/{n:05}")).collect();
    stream::iter(&wanted).for_each_concurrent(16, |name| async { drop(put(&*store, name, b"").await) }).await;
    assert_eq!(files(&*store, ListRequest::all()).await, wanted);
    let request = ListRequest { after: Some(key("p/00999")), ..ListRequest::dir("p/") };
    assert_eq!(files(&*store, request).await, wanted[1000..]);
    Ok(())
}

pub(super) async fn a_missing_root_is_told(store: Arc<dyn Store>) -> CaseResult {
    let deleted = store.delete(vec![(key(""), None)]).await.remove(0);
    let gone = matches!(store.stat(&key("")).await, Err(error) if error.kind() == ErrorKind::DirNotFound);
    skip_unless(deleted.is_ok() && gone, "the root can't be taken away")?;
    let whole = list(&*store, ListRequest::all()).await;
    assert!(whole.entries.is_empty() && !whole.ended, "a missing root proves nothing");
    assert_eq!(whole.failed.iter().map(|(_, e)| e.kind()).collect::<Vec<_>>(), [ErrorKind::DirNotFound]);
    assert!(whole.failed[0].0.holds(&key("a")) && whole.failed[0].0.holds(&key("\u{1F69A}")));
    store.make_dir(&key(""), &WriteSpec::default()).await.expect("the root can be made again");
    put(&*store, "a", b"1").await;
    assert_eq!(get(&*store, "a").await, b"1");
    Ok(())
}

pub(super) async fn listings_tell_the_facts(store: Arc<dyn Store>) -> CaseResult {
    put(&*store, "d/f", b"12345").await;
    let listed = entries(&*store, ListRequest { meta: true, ..ListRequest::all() }).await;
    let listed = listed.into_iter().find(|entry| entry.key == key("d/f")).expect("listed");
    let by_stat = store.stat(&key("d/f")).await.expect("there");
    assert_eq!((listed.kind, listed.size, &listed.version), (Kind::File, 5, &by_stat.version));
    assert!(listed.version.is_some(), "a version pins what was listed");
    if store.caps().mtime_listed && store.caps().mtime.is_some() {
        assert_eq!(listed.mtime, by_stat.mtime);
    }
    assert!(listed.changed.is_some() || store.caps().changed == haul_store::ChangedMeaning::Unknown);
    for algo in &store.caps().hashes_listed {
        let right = haul_core::hash::hash_bytes(&[*algo], b"12345");
        if let Some(value) = listed.hashes.get(*algo) {
            assert_eq!(Some(value), right.get(*algo), "{algo}");
        }
    }
    Ok(())
}
