//! What is around a store takes no ability away. What each facet promises is tried where its verbs are.

use super::{CaseResult, get, key, put};
use crate::{faults::Faulty, tree::content};
use bytes::Bytes;
use haul_core::{
    Algo, Error, ErrorKind, Key, Mtime, Version,
    delta::{Chunking, Plan, Run},
    hash::hash_bytes,
    plan::Replace,
};
use haul_store::{
    LateFacts, Links, ListRequest, Meters, Payload, SmallFile, Store, WriteSpec,
    layers::{self, LayerSettings, rate::Rate},
};
use std::sync::Arc;

/// Whatever is around another store takes no ability away: it has the facets of what it is around, but for those named, each
/// with the reason.
///
/// # Panics
/// When one is missing, or an exception is none.
pub fn same_facets(bare: &dyn Store, around: &dyn Store, except: &[(&str, &str)]) {
    let (has, shows) = (haul_store::facets(bare), haul_store::facets(around));
    for facet in &has {
        let hidden = except.iter().find(|(name, _)| name == facet);
        assert_eq!(shows.contains(facet), hidden.is_none(), "{facet}, of {around:?}: {hidden:?}");
    }
    let unknown: Vec<_> = except.iter().filter(|(name, _)| !has.contains(name)).collect();
    assert!(unknown.is_empty(), "{bare:?} hasn't got what is to be hidden: {unknown:?}");
}

pub(super) async fn layers_keep_its_facets(store: Arc<dyn Store>) -> CaseResult {
    let settings = LayerSettings { rate: Some(Arc::new(Rate::new(None, None))), ..LayerSettings::default() };
    let layered = layers::stack(store.clone(), &settings, &Arc::<Meters>::default());
    same_facets(&*store, &*layered, &[]);
    same_facets(&*store, &layers::links::LinkFiles::new(store.clone()), &[]);
    same_facets(&*store, &*layers::with_links(layered, Links::Keep), &[]);
    same_facets(&*store, &Faulty::new(store.clone()), &[]);
    Ok(())
}

pub(super) async fn a_file_built_from_the_old_one_is_proved(store: Arc<dyn Store>) -> CaseResult {
    let Some(deltas) = store.deltas() else {
        // Who can't says so, and takes the bytes.
        let upload =
            store.write(&key("d/f"), WriteSpec { size: Some(3), ..WriteSpec::default() }).await.expect("begun");
        let refused = upload.reuse(&Version::new(b"v"), Vec::new()).await.expect_err("it can't");
        assert_eq!(refused.kind(), ErrorKind::Unsupported);
        upload.abort().await.expect("given up");
        return Ok(());
    };
    let old = content(3, 300_000);
    let mut new = old.clone();
    new.splice(100_000..100_000, content(4, 5_000));
    let cut = Chunking::of(old.len() as u64, new.len() as u64, deltas.smallest_block());
    let version = put(&*store, "d/f", &old).await.version.expect("a version");
    put(&*store, "d/new", &new).await;
    let before = deltas.recipe(&key("d/f"), Some(&version), cut).await.expect("told");
    let after = deltas.recipe(&key("d/new"), None, cut).await.expect("told");
    let plan = Plan::of(&before, &after, false, 1 << 20).expect("sound");
    assert!(plan.matched() > 150_000, "{}", plan.matched());
    let whole = hash_bytes(&[Algo::Blake3], &new);
    assert_eq!(Some(&after.whole[..]), whole.get(Algo::Blake3));
    let spec = WriteSpec { size: Some(new.len() as u64), hashes: whole, ..WriteSpec::default() };
    let write = async |spec: &WriteSpec, runs: Vec<Run>| {
        let upload = store.write(&key("d/f"), spec.clone()).await.expect("begun");
        let mut parts = upload.reuse(&version, runs).await?;
        for (index, offset, size) in &plan.literals {
            let bytes = Bytes::copy_from_slice(&new[*offset as usize..(offset + size) as usize]);
            parts.push(upload.part(*index, *offset, Payload::from(bytes)).await?);
        }
        match upload.publish(parts, LateFacts::default()).await {
            Ok(stored) => Ok(stored),
            Err(failed) => {
                failed.upload.abort().await.expect("given up");
                Err(failed.error)
            }
        }
    };
    // The same bytes from another place: nobody sees them.
    let mut lies = plan.runs.clone();
    lies.iter_mut().filter(|run| run.from > 0).for_each(|run| run.from -= 1);
    let refused = write(&spec, lies).await.expect_err("other bytes");
    assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
    assert!(get(&*store, "d/f").await == old, "what was there stays");
    let beyond = vec![Run { index: 0, offset: 0, from: u64::MAX - 5, size: 10 }];
    assert!(write(&spec, beyond).await.is_err());
    let unproved = WriteSpec { hashes: Default::default(), ..spec.clone() };
    assert_eq!(write(&unproved, plan.runs.clone()).await.expect_err("no hash").kind(), ErrorKind::Unsupported);
    write(&spec, plan.runs.clone()).await.expect("built");
    assert!(get(&*store, "d/f").await == new);
    // Its old version is another file now.
    let changed = deltas.recipe(&key("d/f"), Some(&version), cut).await.expect_err("changed");
    assert_eq!(changed.kind(), ErrorKind::Changed);
    assert_eq!(write(&spec, plan.runs.clone()).await.expect_err("changed").kind(), ErrorKind::Changed);
    assert_eq!(super::files(&*store, ListRequest::all()).await, ["d/f", "d/new"]);
    Ok(())
}

pub(super) async fn many_small_files_go_together(store: Arc<dyn Store>) -> CaseResult {
    // Who hasn't got the facet promises nothing.
    let Some(bundles) = store.bundles() else { return Ok(()) };
    put(&*store, "there", b"old").await;
    let small = |name: &str, bytes: &[u8]| {
        let (size, mtime) = (Some(bytes.len() as u64), Some(Mtime(1_234_567_890_000_000_000)));
        let bytes = Bytes::copy_from_slice(bytes);
        SmallFile { key: key(name), spec: WriteSpec { size, mtime, ..WriteSpec::default() }, bytes }
    };
    let mut files: Vec<SmallFile> = (0..40).map(|n| small(&format!("d{}/{n}", n % 3), &content(n, n * 100))).collect();
    let names: Vec<Key> = files.iter().map(|file| file.key.clone()).collect();
    let mut short = small("short", b"bytes");
    short.spec.size = Some(6);
    let mut absent = small("there", b"new");
    absent.spec.replace = Replace::Absent;
    files.extend([short, absent, small("d1/3/below", b"a file is in the way"), small("last", b"last")]);
    let answers = bundles.put(files).await;
    assert_eq!(answers.len(), 44, "one for each");
    for (n, answer) in answers[..40].iter().enumerate() {
        assert_eq!(answer.as_ref().expect("stored").size, n as u64 * 100);
    }
    let kinds: Vec<_> = answers[40..].iter().map(|answer| answer.as_ref().map(|_| ()).map_err(Error::kind)).collect();
    assert_eq!(kinds[..2], [Err(ErrorKind::Corrupt), Err(ErrorKind::Exists)]);
    assert!(kinds[2].is_err() || store.stat(&key("d1/3/below")).await.is_ok(), "{:?}", answers[42]);
    assert_eq!(kinds[3], Ok(()));
    assert_eq!(get(&*store, "there").await, b"old");
    assert_eq!(store.stat(&key("short")).await.expect_err("it is not there").kind(), ErrorKind::NotFound);
    let entry = store.stat(&names[7]).await.expect("there");
    assert!(store.caps().mtime.is_none() || entry.mtime == Some(Mtime(1_234_567_890_000_000_000)), "{entry:?}");

    let mut wanted: Vec<_> = names.iter().map(|key| (key.clone(), None)).collect();
    wanted.extend([(key("missing"), None), (key("there"), Some(Version::new(b"another"))), (key("last"), None)]);
    let files = bundles.fetch(wanted).await;
    assert_eq!(files.len(), 43, "one for each");
    for (n, file) in files[..40].iter().enumerate() {
        let (entry, bytes) = file.as_ref().expect("read");
        assert_eq!((&entry.key, entry.size), (&names[n], n as u64 * 100));
        assert_eq!(*bytes, content(n as u64, n as u64 * 100));
    }
    let kinds: Vec<_> = files[40..].iter().map(|file| file.as_ref().map(|_| ()).map_err(Error::kind)).collect();
    assert_eq!(kinds, [Err(ErrorKind::NotFound), Err(ErrorKind::Changed), Ok(())]);
    // No more than fit are read into memory; the others are read alone.
    let large = content(9, SmallFile::FETCHED / 2 + 1);
    for name in ["l1", "l2"] {
        put(&*store, name, &large).await;
    }
    let files = bundles.fetch(vec![(key("l1"), None), (key("l2"), None)]).await;
    assert_eq!(files[0].as_ref().expect("read").1, large);
    assert_eq!(files[1].as_ref().expect_err("too much").kind(), ErrorKind::Unsupported);
    Ok(())
}
