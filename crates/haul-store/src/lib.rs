//! Stores: the contract, the layers around it, and what stores share.
//!
//! Each store is a crate with the same file names (`list.rs`, `read.rs`, `upload.rs`, `error.rs`, …), so that
//! knowing one is knowing all. No store imports another.

pub mod batch;
pub mod blocks;
pub mod body;
pub mod bucket;
pub mod disk;
mod facets;
pub mod hashing;
pub mod ids;
pub mod in_order;
mod key_locks;
pub mod kind;
pub mod late_errors;
pub mod layers;
pub mod moves;
pub mod one_by_one;
#[cfg(test)]
mod one_file_store;
pub mod pages;
mod payload;
pub mod pieces;
pub mod recent_change;
mod relay;
pub mod statx;
mod store;
pub mod task;
mod token_command;
pub mod tree;
pub mod unnamed_file;
pub mod web;
pub mod wrong_content;
pub mod xml;

pub use facets::*;
pub use haul_net::{
    Buffers, ClientCert, Direction, EndpointLanes, Gate, Header, Headers, Lanes, Meters, Net, Proxies, ReadAheadPermit,
    gate, lanes, meters, patience,
};
pub use key_locks::KeyLocks;
pub use kind::{
    Consent, LinkRules, Links, Locked, OpenRequest, OptionKind, OptionSpec, Section, SharedObjects, StoreKind, joined,
};
pub use payload::{GeneratedBytes, Meter, Pace, Payload};
pub use relay::Relay;
pub use store::*;
