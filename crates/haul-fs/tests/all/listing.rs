//! Listings of a local disk: order, what goes meanwhile, what can't be read, when an entry changed.

use super::local::{as_nobody, keys, list, put, tree};
use futures::StreamExt;
use haul_core::{
    ErrorKind, Key, Listed, MissedRange, Mtime,
    filter::{Filter, FilterSpec},
};
use haul_store::{Links, ListRequest, WriteSpec};
use haul_testkit::disk::open;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    sync::Arc,
};
use tempfile::tempdir;

#[tokio::test]
async fn a_tree_is_listed_in_key_order() {
    let temp = tree();
    let store = open(temp.path(), Links::Skip);
    let all = ["a-b", "a/", "a/x", "a/y/", "a/y/z", "a0", "b/", "b/c/", "b/c/d", "empty/"];
    assert_eq!(keys(&store, ListRequest::all()).await, all);
    assert_eq!(keys(&store, ListRequest::dir("")).await, ["a-b", "a/", "a0", "b/", "empty/"]);
    assert_eq!(keys(&store, ListRequest::dir("a/")).await, ["a/x", "a/y/"]);
    let part = ListRequest { prefix: b"a/y".to_vec(), ..ListRequest::all() };
    assert_eq!(keys(&store, part).await, ["a/y/", "a/y/z"]);
    for (at, after) in all.iter().enumerate() {
        let request = ListRequest { after: Some(Key::new(after)), ..ListRequest::all() };
        assert_eq!(keys(&store, request).await, all[at + 1..], "after {after}");
    }
    let spec = FilterSpec { rules: vec!["- /a/".into()], ..FilterSpec::default() };
    let request = ListRequest { prune_by: Some(Arc::new(Filter::new(spec).unwrap())), ..ListRequest::all() };
    assert_eq!(keys(&store, request).await, ["a-b", "a0", "b/", "b/c/", "b/c/d", "empty/"]);
    let request = ListRequest { limit: Some(3), ..ListRequest::all() };
    let (limited, failed, ended) = list(&store, request).await;
    assert!(failed.is_empty() && !ended, "there are more");
    assert_eq!(limited.iter().map(|e| e.key.to_string()).collect::<Vec<_>>(), ["a-b", "a/", "a/x"]);
    assert_eq!(keys(&store, ListRequest::dir("no/such/")).await, [""; 0]);
}

/// Entries that vanish during a listing are reported, for callers that need a complete one.
#[tokio::test]
async fn what_goes_while_it_is_listed_is_told() {
    let dir = tempdir().unwrap();
    // A batch is given out in the first directory, while those that come soon are read ahead, and the last isn't.
    let names = (0..1000).map(|n| format!("a/{n}")).chain((0..30).map(|n| format!("d{n:02}/x")));
    for name in names {
        fs::create_dir_all(dir.path().join(&name).parent().unwrap()).unwrap();
        fs::write(dir.path().join(&name), "").unwrap();
    }
    let store = open(dir.path(), Links::Skip);
    let mut listing = store.list(ListRequest::all());
    let first = listing.next().await.unwrap();
    assert!(matches!(&first, Listed::Batch(entries) if entries.len() == 1000));
    fs::rename(dir.path().join("d29"), dir.path().join("0")).unwrap();
    let (mut seen, mut vanished, mut ended) = (0, Vec::new(), false);
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) => seen += entries.len(),
            Listed::Vanished(key) => vanished.push(key.to_string()),
            Listed::Failed { error, .. } => panic!("{error}"),
            Listed::End => ended = true,
        }
    }
    // What was left of the first directory's 1001 names, and 29 directories with a file each.
    assert_eq!((seen, vanished, ended), (1 + 58, vec!["d29/".to_owned()], true));
}

#[tokio::test]
async fn big_and_deep_trees_are_listed_whole() {
    let temp = tempdir().unwrap();
    let mut want = Vec::new();
    for dir in 0..60 {
        want.push(format!("d{dir}/"));
        for sub in 0..40 {
            want.push(format!("d{dir}/s{sub}/"));
            want.push(format!("d{dir}/s{sub}/f"));
            fs::create_dir_all(temp.path().join(format!("d{dir}/s{sub}"))).unwrap();
            fs::write(temp.path().join(format!("d{dir}/s{sub}/f")), "").unwrap();
        }
    }
    // More than one window of names, and more than is kept when read ahead.
    want.push("flat/".into());
    fs::create_dir(temp.path().join("flat")).unwrap();
    for file in 0..5000 {
        want.push(format!("flat/{file}"));
        fs::write(temp.path().join(format!("flat/{file}")), "").unwrap();
    }
    want.sort();
    let store = open(temp.path(), Links::Skip);
    assert_eq!(keys(&store, ListRequest::all()).await, want);
    let after = ListRequest { after: Some(Key::new("flat/4998")), ..ListRequest::all() };
    assert_eq!(
        keys(&store, after).await,
        ["flat/4999", "flat/5", "flat/50"]
            .iter()
            .map(|s| s.to_string())
            .chain(want.iter().filter(|k| k.as_str() > "flat/50").cloned())
            .collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn a_missing_root_proves_nothing() {
    let temp = tempdir().unwrap();
    let store = open(&temp.path().join("none"), Links::Skip);
    let (entries, failed, ended) = list(&store, ListRequest::all()).await;
    assert!(entries.is_empty() && !ended);
    assert_eq!(failed[0].1.kind(), ErrorKind::DirNotFound);
    assert!(failed[0].1.to_string().ends_with("/none: no such file or directory"), "{}", failed[0].1);
    assert_eq!(failed[0].0, MissedRange::from(Key::new("")));
    assert_eq!(store.stat(&Key::new("")).await.unwrap_err().kind(), ErrorKind::DirNotFound);
    put(&store, "a/b", b"1", WriteSpec::default()).await.unwrap();
    assert_eq!(keys(&store, ListRequest::all()).await, ["a/", "a/b"]);
}

/// Callers that rely on the time of a change need the time at which the file came under its name.
#[tokio::test]
async fn what_is_behind_a_link_has_changed_when_the_link_did() {
    let temp = tempdir().unwrap();
    fs::create_dir_all(temp.path().join("releases/1")).unwrap();
    fs::write(temp.path().join("releases/1/x"), "x").unwrap();
    let changed = |path: &str| {
        let facts = fs::symlink_metadata(temp.path().join(path)).unwrap();
        let nanos = i128::from(facts.ctime()) * 1_000_000_000 + i128::from(facts.ctime_nsec());
        Some(Mtime(nanos))
    };
    // The clock of a file system ticks slowly.
    while symlink("releases/1", temp.path().join("current")).is_ok() && changed("current") <= changed("releases/1/x") {
        fs::remove_file(temp.path().join("current")).unwrap();
    }
    symlink("x", temp.path().join("releases/1/y")).unwrap();
    let (link, root) = (changed("current"), Key::new(""));
    let store = open(&temp.path().join("current/"), Links::Follow);
    assert!(store.stat(&root).await.unwrap().changed >= link);
    assert_eq!(
        open(&temp.path().join("releases"), Links::Skip).stat(&root).await.unwrap().changed,
        changed("releases")
    );
    let (entries, ..) = list(&store, ListRequest::all()).await;
    let found: Vec<_> = entries.iter().map(|e| (e.key.to_string(), e.changed)).collect();
    let y = changed("releases/1/y");
    assert_eq!(found, [("x".to_string(), changed("releases/1/x")), ("y".to_string(), y)]);
    assert_eq!(store.stat(&Key::new("y")).await.unwrap().changed, y);
}

/// A name that changes while the kernel gives a large directory in pieces is missed by neither its old name nor its new one.
#[tokio::test]
async fn what_is_renamed_in_a_large_directory_is_not_missed() {
    let temp = tempdir().unwrap();
    let count = 20_000;
    for n in 0..count {
        fs::write(temp.path().join(format!("m{n:05}-a-name-of-some-length")), "").unwrap();
    }
    let store = open(temp.path(), Links::Skip);
    for (from, to) in [("m", "z"), ("z", "a"), ("a", "m")] {
        let dir = temp.path().to_owned();
        let renaming = std::thread::spawn(move || {
            for n in 0..count {
                let name = |first: &str| dir.join(format!("{first}{n:05}-a-name-of-some-length"));
                fs::rename(name(from), name(to)).unwrap();
            }
        });
        loop {
            let was_renaming = !renaming.is_finished();
            let mut found = std::collections::HashSet::new();
            let mut listing = store.list(ListRequest::all());
            while let Some(step) = listing.next().await {
                match step {
                    Listed::Batch(entries) => found.extend(entries.iter().map(|e| e.key.to_string()[1..6].to_owned())),
                    Listed::Vanished(key) => drop(found.insert(key.to_string()[1..6].to_owned())),
                    Listed::Failed { error, .. } => panic!("{error}"),
                    Listed::End => {}
                }
            }
            assert_eq!(found.len(), count);
            if !was_renaming {
                break;
            }
        }
        renaming.join().unwrap();
    }
}

#[tokio::test]
async fn an_unreadable_directory_is_lost_and_the_rest_is_listed() {
    let temp = tree();
    fs::create_dir_all(temp.path().join("a/shut/in")).unwrap();
    fs::set_permissions(temp.path().join("a/shut"), fs::Permissions::from_mode(0o0)).unwrap();
    if fs::read_dir(temp.path().join("a/shut")).is_ok() {
        return as_nobody("listing::an_unreadable_directory_is_lost_and_the_rest_is_listed");
    }
    let store = open(temp.path(), Links::Skip);
    let (entries, failed, ended) = list(&store, ListRequest::all()).await;
    assert!(ended, "the rest is proved");
    assert_eq!(failed.len(), 1);
    assert_eq!(
        (failed[0].0.clone(), failed[0].1.kind()),
        (MissedRange::inside(&Key::new("a/shut/")), ErrorKind::Denied)
    );
    let listed = |key: &str| entries.iter().any(|e| e.key == Key::new(key));
    assert!(listed("b/c/d") && listed("a/shut/"), "that it is there is known");
    fs::set_permissions(temp.path().join("a/shut"), fs::Permissions::from_mode(0o700)).unwrap();
}
