//! DVC repositories: their formats (pure), their cache and workspace on this machine's disk, and what content their paths stand
//! for. `haul-cas` knows where content is and brings it; opening stores and talking to people is the command line's.

pub mod add;
pub mod cache;
pub mod checkout;
pub mod config;
pub mod dvcfile;
pub mod dvcignore;
pub mod gc;
pub mod hashing;
pub mod history;
pub mod link_or_copy;
pub mod lock;
mod paths;
pub mod pipeline;
pub mod repo;
pub mod status;
pub mod wanted;
pub mod workspace;
