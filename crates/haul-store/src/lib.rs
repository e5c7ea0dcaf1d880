//! Stores: the contract, the layers around it, and what stores share.
//!
//! Each store is a crate with the same file names (`list.rs`, `read.rs`, `upload.rs`, `error.rs`, …), so that
//! knowing one is knowing all. No store imports another.

pub mod batch;
mod bearer;
pub mod blocks;
pub mod body;
pub mod bucket;
pub mod disk;
pub mod each;
pub mod earlier;
mod facets;
pub mod hashing;
#[cfg(test)]
mod held;
pub mod ids;
pub mod in_order;
pub mod kind;
pub mod late;
pub mod layers;
pub mod nameless;
pub mod pages;
mod payload;
pub mod pieces;
mod relay;
pub mod statx;
pub mod still;
mod store;
pub mod task;
pub mod tree;
mod turns;
pub mod web;
pub mod xml;

pub use facets::*;
pub use haul_net::{
    Buffers, ClientCert, Direction, EndpointLanes, Gate, Header, Headers, Lanes, Meters, Net, Proxies, ReadAheadPermit,
    gate, lanes, meters, patience,
};
pub use kind::{
    Consent, LinkRules, Links, Locked, OpenRequest, OptionKind, OptionSpec, Section, SharedObjects, StoreKind, joined,
};
pub use payload::{GeneratedBytes, Meter, Pace, Payload};
pub use relay::Relay;
pub use store::*;
pub use turns::KeyLocks;
