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

/// What comes out at the other end.
pub fn crossed(filter: &Filter) -> Filter {
    assert!(filter.is_portable());
    let asked = Asked { filter: Some(Arc::new(filter.clone())) };
    let line = serde_json::to_string(&asked).expect("portable");
    let asked: Asked = serde_json::from_str(&line).expect("as it was written");
    Filter::clone(&asked.filter.expect("it was sent"))
}
