//! What is around a store takes no ability away. What each facet promises is tried where its verbs are.

use super::Outcome;
use crate::faults::Faulty;
use haul_store::{
    Links, Meters, Store,
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
