//! The pure half of haul: facts (keys, entries, hashes), rules (filters, comparison) and decisions (join, plan).
//!
//! Nothing here reads a clock, touches a file, opens a socket or starts a thread, so every rule that decides
//! about a user's data can be tested exhaustively in milliseconds.

pub mod attributes;
pub mod chmod;
pub mod compare;
pub mod concurrency;
pub mod delta;
mod dos2unix;
pub mod encoding;
pub mod entry;
pub mod error;
pub mod event;
pub mod filter;
pub mod hash;
pub mod job;
pub mod join;
pub mod keep;
pub mod key;
pub mod links;
pub mod listing;
mod md5;
pub mod name_list;
pub mod names;
pub mod part;
pub mod plan;
pub mod presence;
pub mod quickxor;
pub mod ranges;
pub mod refine;
#[cfg(test)]
mod samples;
pub mod sources;
pub mod text;
pub mod units;
pub mod wire;

pub use entry::{Entry, Inode, Meta, Mtime, Posix, Version};
pub use error::{Error, ErrorKind, Result, Retry};
pub use hash::{Algo, Hasher, Hashes};
pub use key::{Key, Kind};
pub use listing::{Listed, MissedRange, Side};
