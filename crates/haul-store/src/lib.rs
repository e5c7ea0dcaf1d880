//! Stores: the contract, the layers around it, and the stores themselves.
//!
//! Each store is a folder with the same file names (`list.rs`, `read.rs`, `upload.rs`, `error.rs`, …), so that
//! knowing one is knowing all. No store imports another.

pub mod blocks;
mod buffers;
pub mod disk;
pub mod fs;
pub mod gate;
pub mod hashing;
pub mod lanes;
pub mod late;
pub mod layers;
pub mod mem;
pub mod meters;
pub mod nameless;
pub mod pack;
mod payload;
mod processors;
pub mod registry;
mod relay;
pub mod s3;
pub mod still;
mod store;
pub mod task;

pub use buffers::Buffers;
pub use gate::Gate;
pub use lanes::{Ahead, Direction, Lanes, Roads};
pub use meters::Meters;
pub use payload::{Meter, Pace, Payload};
pub use registry::{LinkRules, Links, Net, OpenRequest, OptionKind, OptionSpec, StoreKind};
pub use relay::Relay;
pub use store::*;
