//! What is around a store takes no ability away. What each facet promises is tried where its verbs are.

use super::{Outcome, get, key, put};
use crate::{faults::Faulty, tree::content};
use bytes::Bytes;
use haul_core::{
    Algo, ErrorKind, Version,
    delta::{Cut, Plan, Run},
    hash::hash_bytes,
};
use haul_store::{
    Late, Links, ListRequest, Meters, Payload, Store, WriteSpec,
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

pub(super) async fn layers_keep_its_facets(store: Arc<dyn Store>) -> Outcome {
    let settings = LayerSettings { rate: Some(Arc::new(Rate::new(None, None))), ..LayerSettings::default() };
    let layered = layers::stack(store.clone(), &settings, &Arc::<Meters>::default());
    same_facets(&*store, &*layered, &[]);
    same_facets(&*store, &layers::links::LinkFiles::new(store.clone()), &[]);
    same_facets(&*store, &*layers::with_links(layered, Links::Keep), &[]);
    same_facets(&*store, &Faulty::new(store.clone()), &[]);
    Ok(())
}

pub(super) async fn a_file_built_from_the_old_one_is_proved(store: Arc<dyn Store>) -> Outcome {
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
    let cut = Cut::of(old.len() as u64, new.len() as u64);
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
        match upload.publish(parts, Late::default()).await {
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
