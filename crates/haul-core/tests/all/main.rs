//! Tests from outside, in one binary: it is linked once.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod concurrency;
mod filter_table;
mod filter_wire;
mod import_cycles;
mod layering;
mod rsync_filter;
