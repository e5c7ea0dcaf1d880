//! One job by many workers, on any number of machines: the job is a folder in a store that all of them see. Its shards are ranges
//! of keys; a worker leases one, lists and compares both sides within it, transfers and deletes there, and records the
//! result. ADR 20 has the protocol and its possible failures.
//!
//! A large file is split into ranges, which are shards as well.
//!
//! Knows stores only by their contract; never a terminal, arguments or the environment. It never reads a clock: lengths of time
//! come with [`worker::Settings`], and workers compare only what they saw themselves.

mod abandoned;
pub mod create;
pub mod cuts;
pub mod ends;
pub mod files;
pub mod job_folder;
mod lease_check;
pub mod outcome;
pub mod protocol;
pub mod report;
pub mod spec;
pub mod worker;

pub use job_folder::{Board, Folder};
pub use spec::Spec;
