//! Stores: the contract, the layers around it, and the stores themselves.
//!
//! Each store is a folder with the same file names (`list.rs`, `read.rs`, `upload.rs`, `error.rs`, …), so that
//! knowing one is knowing all. No store imports another.

pub mod blocks;
pub mod body;
pub mod disk;
mod facets;
pub mod fs;
pub mod hashing;
pub mod ids;
pub mod in_order;
pub mod kind;
pub mod late;
pub mod layers;
pub mod mem;
pub mod nameless;
pub mod pack;
mod payload;
mod relay;
pub mod s3;
pub mod statx;
pub mod still;
mod store;
pub mod task;
pub mod tree;
pub mod web;
pub mod xml;

pub use facets::*;
pub use haul_net::{
    Ahead, Buffers, ClientCert, Direction, Gate, Header, Headers, Lanes, Meters, Net, Proxies, Roads, gate, lanes,
    meters, patience,
};
pub use kind::{LinkRules, Links, Locked, OpenRequest, OptionKind, OptionSpec, Section, Shared, StoreKind};
pub use payload::{Made, Meter, Pace, Payload};
pub use relay::Relay;
pub use store::*;
