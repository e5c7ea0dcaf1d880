//! Remotes: from what a user types to an open store.

#[path = "../../../haul-remotes/src/options.rs"]
mod options;
#[path = "../../../haul-remotes/src/spec.rs"]
mod spec;

pub use options::{Resolved, Resolver};
pub use spec::{Place, Spec, is_name};
