//! What reading promises.

use super::{CaseResult, collect, get, key, put, skip_unless};
use crate::tree::content;
use haul_core::{Algo, ErrorKind, Key, Kind, Version, hash::hash_bytes};
use haul_store::Store;
use std::sync::Arc;

pub(super) async fn ranges_are_exact(store: Arc<dyn Store>) -> CaseResult {
    let bytes = content(1, 300_001);
    put(&*store, "f", &bytes).await;
    assert_eq!(get(&*store, "f").await, bytes);
    for range in [0..1, 0..300_001, 299_999..300_001, 65_535..65_537, 100_000..200_000] {
        let read = store.read(&key("f"), None, Some(range.clone())).await.expect("a range");
        assert_eq!(read.entry.size, 300_001, "the size is of the whole");
        let found = collect(read).await.expect("bytes");
        assert!(found == bytes[range.start as usize..range.end as usize], "{range:?}");
    }
    Ok(())
}

pub(super) async fn a_stale_version_is_refused(store: Arc<dyn Store>) -> CaseResult {
    put(&*store, "f", b"old").await;
    let old = store.stat(&key("f")).await.expect("there").version;
    skip_unless(old.is_some(), "it gives no versions")?;
    let read = store.read(&key("f"), old.as_ref(), None).await.expect("still there");
    assert_eq!(collect(read).await.expect("bytes"), b"old");
    put(&*store, "f", b"new").await;
    let error = store.read(&key("f"), old.as_ref(), None).await.expect_err("the version is gone");
    assert_eq!(error.kind(), ErrorKind::Changed, "{error:?}");
    let error = store.read(&key("f"), old.as_ref(), Some(0..1)).await.expect_err("the version is gone");
    assert_eq!(error.kind(), ErrorKind::Changed, "{error:?}");
    Ok(())
}

pub(super) async fn it_hashes_what_it_holds(store: Arc<dyn Store>) -> CaseResult {
    let Some(hashing) = store.hashing() else { return Err("it is read to be hashed".into()) };
    let can = hashing.algos().await.expect("what it can compute");
    let algos: Vec<Algo> = [Algo::Md5, Algo::Blake3, Algo::Sha256].into_iter().filter(|a| can.contains(a)).collect();
    skip_unless(!algos.is_empty(), "it can't hash after all")?;
    let ask = async |name: &str, version: Option<Version>| hashing.hash(&key(name), version.as_ref(), &algos).await;
    for (name, size) in [("empty", 0), ("d/small", 7), ("d/blocks", 700_001)] {
        let bytes = content(size, size);
        let version = put(&*store, name, &bytes).await.version;
        let found = ask(name, version).await;
        let unsupported = found.as_ref().is_err_and(|e| e.kind() == ErrorKind::Unsupported);
        skip_unless(!unsupported, "it is read to be hashed just now")?;
        assert_eq!(found.expect(name), hash_bytes(&algos, &bytes), "{name}");
    }
    let old = store.stat(&key("d/small")).await.expect("there").version;
    put(&*store, "d/small", b"others").await;
    let error = ask("d/small", old).await.expect_err("the version is gone");
    assert_eq!(error.kind(), ErrorKind::Changed, "{error:?}");
    let error = ask("d/none", None).await.expect_err("nothing is there");
    assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    Ok(())
}

pub(super) async fn what_is_missing_is_not_found(store: Arc<dyn Store>) -> CaseResult {
    put(&*store, "d/f", b"1").await;
    for name in ["x", "d/x", "d/f/x", "x/y/z", "d", "D/f"] {
        if name == "D/f" && store.caps().case_insensitive {
            continue;
        }
        let error = store.read(&key(name), None, None).await.err().unwrap_or_else(|| panic!("{name} was read"));
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
        assert_eq!(error.key(), Some(&key(name)), "the error names the key");
        let error = store.stat(&key(name)).await.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error:?}");
    }
    let error = store.stat(&key("x/")).await.expect_err("no such directory");
    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::DirNotFound), "{error:?}");
    Ok(())
}

pub(super) async fn stat_tells_files_and_folders(store: Arc<dyn Store>) -> CaseResult {
    put(&*store, "d/f", b"12345").await;
    let entry = store.stat(&key("d/f")).await.expect("a file");
    assert_eq!((&entry.key, entry.kind, entry.size), (&key("d/f"), Kind::File, 5));
    let root = store.stat(&Key::new("")).await.expect("the root");
    assert_eq!((root.key, root.kind), (key(""), Kind::Dir));
    let entry = store.stat(&key("d/")).await.expect("a directory");
    assert_eq!((entry.key, entry.kind), (key("d/"), Kind::Dir));
    Ok(())
}
