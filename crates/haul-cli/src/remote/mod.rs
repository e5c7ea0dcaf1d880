//! Remotes: from what a user types to an open store.

mod options;
mod spec;

pub use options::{Resolved, Resolver};
pub use spec::{Place, Spec, is_name};
