//! Filters that cross a wire and come back.

use haul_core::filter::Filter;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A request with a filter.
#[derive(Serialize, Deserialize)]
pub struct Asked {
    #[serde(with = "haul_core::filter::portable")]
    pub filter: Option<Arc<Filter>>,
}

/// The filter after a round trip.
pub fn crossed(filter: &Filter) -> Filter {
    assert!(filter.is_portable());
    let request = Asked { filter: Some(Arc::new(filter.clone())) };
    let line = serde_json::to_string(&request).expect("portable");
    let request: Asked = serde_json::from_str(&line).expect("as it was written");
    Filter::clone(&request.filter.expect("it was sent"))
}
