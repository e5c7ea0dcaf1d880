//! What writing promises.

use super::{CaseResult, files, get, kept, key, put, put_with, skip_unless};
use crate::tree::content;
use bytes::Bytes;
use futures::future::join_all;
use haul_core::{ErrorKind, Meta, Mtime, Version, hash::hash_bytes, plan::Replace};
use haul_store::{LateFacts, ListRequest, Payload, Store, WriteSpec};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

pub(super) async fn small_sizes_arrive(store: Arc<dyn Store>) -> CaseResult {
    for size in [0, 1, 2, 4095, 4096, 65_537] {
        let (name, bytes) = (format!("s/{size}"), content(size, size));
        let stored = put(&*store, &name, &bytes).await;
        assert_eq!(stored.size, size);
        assert!(get(&*store, &name).await == bytes, "{size} bytes");
        assert_eq!(store.stat(&key(&name)).await.expect("there").size, size);
    }
    // No part at all is an empty file.
    let upload = store.write(&key("none"), WriteSpec { size: Some(0), ..Default::default() }).await.expect("begun");
    upload.publish(Vec::new(), LateFacts::default()).await.expect("published");
    assert_eq!(get(&*store, "none").await, b"");
    Ok(())
}

pub(super) async fn parts_arrive_in_any_order(store: Arc<dyn Store>) -> CaseResult {
    let limits = store.caps().parts.filter(|limits| limits.count > 1).ok_or("it takes one stream only")?;
    skip_unless(!limits.waits, "parts wait for those before them")?;
    let part = limits.min.max(64 << 10);
    let bytes = content(3, part * 3 + 17);
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..Default::default() };
    let upload = store.write(&key("d/big"), spec).await.expect("begun");
    let send = |index: u64| {
        let (from, to) = (index * part, ((index + 1) * part).min(bytes.len() as u64));
        let payload = Payload::from(Bytes::copy_from_slice(&bytes[from as usize..to as usize]));
        upload.part(index, from, payload)
    };
    let last = send(3).await.expect("the last one first");
    let mut parts =
        join_all([send(2), send(0), send(1)]).await.into_iter().collect::<Result<Vec<_>, _>>().expect("sent");
    parts.push(last);
    parts.sort_by_key(|part| part.index);
    assert_eq!(parts.iter().map(|p| (p.index, p.size)).collect::<Vec<_>>(), [(0, part), (1, part), (2, part), (3, 17)]);
    let stored = upload.publish(parts, LateFacts::default()).await.expect("published");
    assert_eq!(stored.size, bytes.len() as u64);
    assert!(get(&*store, "d/big").await == bytes, "other bytes came back");
    Ok(())
}

pub(super) async fn a_part_sent_again_replaces(store: Arc<dyn Store>) -> CaseResult {
    skip_unless(store.caps().parts.is_some(), "it takes one stream only")?;
    let upload = store.write(&key("f"), WriteSpec { size: Some(4), ..Default::default() }).await.expect("begun");
    upload.part(0, 0, Payload::from(Bytes::from_static(b"wrong"))).await.expect("sent");
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"good"))).await.expect("sent again");
    upload.publish(vec![part], LateFacts::default()).await.expect("published");
    assert_eq!(get(&*store, "f").await, b"good");
    Ok(())
}

pub(super) async fn pieces_and_unknown_sizes_arrive(store: Arc<dyn Store>) -> CaseResult {
    let pieces = ["", "one ", "two ", "", "three"].map(|text| Bytes::from_static(text.as_bytes()));
    for (name, size) in [("known", Some(13)), ("unknown", None)] {
        let upload = store.write(&key(name), WriteSpec { size, ..Default::default() }).await.expect("begun");
        let part = upload.part(0, 0, Payload::new(pieces.to_vec())).await.expect("sent");
        assert_eq!(part.size, 13);
        assert_eq!(upload.publish(vec![part], LateFacts::default()).await.expect("published").size, 13);
        assert_eq!(get(&*store, name).await, b"one two three");
    }
    let caps = store.caps();
    let Some(limits) = caps.parts.filter(|limits| limits.count > 1 && !limits.sized) else { return Ok(()) };
    // The second part begins while the first is under way, and is the last; a condition goes other ways in some services.
    let part = limits.min.max(256 << 10);
    let bytes = content(5, part + 1);
    let replace = if caps.conditional { Replace::Absent } else { Replace::Anything };
    let upload = store.write(&key("together"), WriteSpec { replace, ..Default::default() }).await.expect("begun");
    let send = |index: u64| {
        let (from, to) = (index * part, ((index + 1) * part).min(bytes.len() as u64));
        upload.part(index, from, Payload::from(Bytes::copy_from_slice(&bytes[from as usize..to as usize])))
    };
    let sent = tokio::time::timeout(Duration::from_secs(60), join_all([send(0), send(1)])).await;
    let parts = sent.expect("no part waits for ever").into_iter().collect::<Result<Vec<_>, _>>().expect("sent");
    upload.publish(parts, LateFacts::default()).await.expect("published");
    assert!(get(&*store, "together").await == bytes, "other bytes came back");
    Ok(())
}

pub(super) async fn a_wrong_size_changes_nothing(store: Arc<dyn Store>) -> CaseResult {
    put(&*store, "f", b"old").await;
    for size in [2, 4] {
        let upload = store.write(&key("f"), WriteSpec { size: Some(size), ..Default::default() }).await.expect("begun");
        let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"new"))).await.expect("sent");
        let error = upload.publish(vec![part], LateFacts::default()).await.expect_err("3 bytes arrived").error;
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error:?}");
        assert_eq!(get(&*store, "f").await, b"old");
    }
    let spec = WriteSpec { size: Some(9), size_may_differ: true, ..Default::default() };
    let upload = store.write(&key("f"), spec).await.expect("begun");
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"new"))).await.expect("sent");
    assert_eq!(upload.publish(vec![part], LateFacts::default()).await.expect("allowed").size, 3);
    assert_eq!(get(&*store, "f").await, b"new");
    assert_eq!(files(&*store, ListRequest::all()).await, ["f"], "nothing else stays");
    Ok(())
}

pub(super) async fn nothing_shows_before_publish(store: Arc<dyn Store>) -> CaseResult {
    let upload = store.write(&key("d/f"), WriteSpec { size: Some(3), ..Default::default() }).await.expect("begun");
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"new"))).await.expect("sent");
    assert_eq!(store.stat(&key("d/f")).await.expect_err("hidden").kind(), ErrorKind::NotFound);
    assert!(store.read(&key("d/f"), None, None).await.is_err());
    assert_eq!(files(&*store, ListRequest::all()).await, [""; 0]);
    upload.publish(vec![part], LateFacts::default()).await.expect("published");
    assert_eq!(files(&*store, ListRequest::all()).await, ["d/f"]);
    Ok(())
}

pub(super) async fn abort_leaves_nothing(store: Arc<dyn Store>) -> CaseResult {
    put(&*store, "f", b"old").await;
    for name in ["f", "g"] {
        let upload = store.write(&key(name), WriteSpec::default()).await.expect("begun");
        upload.part(0, 0, Payload::from(Bytes::from_static(b"new"))).await.expect("sent");
        upload.abort().await.expect("aborted");
    }
    assert_eq!(files(&*store, ListRequest::all()).await, ["f"]);
    assert_eq!(get(&*store, "f").await, b"old");
    Ok(())
}

pub(super) async fn replacing_gives_a_new_version(store: Arc<dyn Store>) -> CaseResult {
    put(&*store, "f", b"old!").await;
    let old = store.stat(&key("f")).await.expect("there").version;
    let stored = put(&*store, "f", b"new!").await;
    let new = store.stat(&key("f")).await.expect("there").version;
    assert_eq!(get(&*store, "f").await, b"new!");
    assert_ne!(old, new);
    if let Some(version) = stored.version {
        assert_eq!(Some(version), new, "what publish says is what is there");
    }
    Ok(())
}

pub(super) async fn conditions_hold(store: Arc<dyn Store>) -> CaseResult {
    skip_unless(store.caps().conditional, "it knows no conditions")?;
    let with = |replace| WriteSpec { replace, ..Default::default() };
    put_with(&*store, &key("f"), b"1", with(Replace::Absent)).await.expect("nothing was there");
    let error = put_with(&*store, &key("f"), b"2", with(Replace::Absent)).await.expect_err("it is there");
    assert_eq!(error.kind(), ErrorKind::Exists, "{error:?}");
    assert_eq!(get(&*store, "f").await, b"1");
    let version = store.stat(&key("f")).await.expect("there").version.expect("a version");
    put_with(&*store, &key("f"), b"3", with(Replace::Exactly(version.clone()))).await.expect("still that version");
    let error = put_with(&*store, &key("f"), b"4", with(Replace::Exactly(version.clone()))).await.expect_err("gone");
    assert_eq!(error.kind(), ErrorKind::Changed, "{error:?}");
    assert_eq!(get(&*store, "f").await, b"3");
    let error = put_with(&*store, &key("g"), b"5", with(Replace::Exactly(version))).await.expect_err("never was");
    assert_eq!(error.kind(), ErrorKind::Changed, "{error:?}");
    assert_eq!(files(&*store, ListRequest::all()).await, ["f"]);
    Ok(())
}

pub(super) async fn times_are_kept(store: Arc<dyn Store>) -> CaseResult {
    skip_unless(store.caps().mtime.is_some(), "it keeps no times")?;
    for (number, (secs, nanos)) in
        [(1_700_000_000, 123_456_789), (0, 0), (0, 1), (-1, 999_999_999), (-86_400 * 365, 5), (4_102_444_800, 0)]
            .into_iter()
            .enumerate()
    {
        let (name, mtime) = (format!("t{number}"), Mtime::new(secs, nanos));
        let spec = WriteSpec { mtime: Some(mtime), ..Default::default() };
        put_with(&*store, &key(&name), b"1", spec).await.expect("written");
        let found = store.stat(&key(&name)).await.expect("there").mtime;
        assert_eq!(found, Some(kept(&*store, mtime)), "{secs} s {nanos} ns");
        let read = store.read(&key(&name), None, None).await.expect("there");
        assert_eq!(read.entry.mtime, found, "a read tells it too");
    }
    Ok(())
}

pub(super) async fn late_facts_override(store: Arc<dyn Store>) -> CaseResult {
    skip_unless(store.caps().mtime.is_some(), "it keeps no times")?;
    let (early, late) = (Mtime::new(1_000_000_000, 0), Mtime::new(1_500_000_000, 0));
    let spec = WriteSpec { size: Some(1), mtime: Some(early), ..Default::default() };
    let upload = store.write(&key("f"), spec).await.expect("begun");
    let part = upload.part(0, 0, Payload::from(Bytes::from_static(b"1"))).await.expect("sent");
    upload.publish(vec![part], LateFacts { mtime: Some(late), ..LateFacts::default() }).await.expect("published");
    let found = store.stat(&key("f")).await.expect("there").mtime.expect("a time");
    // A store that sends its facts before the bytes can't change them any more, which only large files notice.
    assert_eq!(found, kept(&*store, late));
    Ok(())
}

pub(super) async fn metadata_is_kept(store: Arc<dyn Store>) -> CaseResult {
    skip_unless(store.caps().meta, "it keeps no metadata")?;
    let meta: Meta = BTreeMap::from([("colour".into(), "blue".into()), ("owner-note".into(), "a b=c".into())]);
    let spec = WriteSpec { meta: Some(Box::new(meta.clone())), ..Default::default() };
    put_with(&*store, &key("f"), b"1", spec).await.expect("written");
    let found = store.stat(&key("f")).await.expect("there").meta.unwrap_or_default();
    // A disk may sit on a file system without attributes; then it keeps none at all.
    let none = meta.keys().all(|name| !found.contains_key(name));
    skip_unless(!(none && store.caps().files), "this file system keeps no attributes")?;
    for (name, value) in &meta {
        assert_eq!(found.get(name), Some(value), "{name}");
    }
    Ok(())
}

pub(super) async fn hashes_are_of_the_content(store: Arc<dyn Store>) -> CaseResult {
    let algos = store.caps().hashes_stored.clone();
    skip_unless(!algos.is_empty(), "it keeps no hashes")?;
    let bytes = content(5, 70_000);
    let right = hash_bytes(&haul_core::Algo::ALL, &bytes);
    let spec = WriteSpec { hashes: hash_bytes(&algos, &bytes), ..Default::default() };
    let stored = put_with(&*store, &key("f"), &bytes, spec).await.expect("written");
    let entry = store.stat(&key("f")).await.expect("there");
    for (algo, value) in stored.hashes.iter().chain(entry.hashes.iter()) {
        assert_eq!(Some(value), right.get(algo), "{algo}");
    }
    assert!(algos.iter().any(|algo| entry.hashes.get(*algo).is_some()), "stat gives none of {algos:?}");
    Ok(())
}

pub(super) async fn writers_of_one_key_dont_mix(store: Arc<dyn Store>) -> CaseResult {
    let all: Vec<Vec<u8>> = (0..8).map(|seed| content(seed, 20_000 + seed)).collect();
    let writes = all.iter().map(|bytes| async { drop(put(&*store, "d/e/f", bytes).await) });
    join_all(writes).await;
    let found = get(&*store, "d/e/f").await;
    assert!(all.contains(&found), "a mix of several writes is visible");
    assert_eq!(files(&*store, ListRequest::all()).await, ["d/e/f"]);
    let none = Version::new("never was");
    assert!(store.read(&key("d/e/f"), Some(&none), None).await.is_err(), "a made-up version is refused");
    Ok(())
}
