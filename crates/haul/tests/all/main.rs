//! Tests from outside, in one binary: it is linked once.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod index;
mod local;
mod omitted;
mod overlap_in_time;
mod part;
mod part_size;
mod plan;
mod presence;
mod progress;
mod ranges;
mod safety;
mod shared;
