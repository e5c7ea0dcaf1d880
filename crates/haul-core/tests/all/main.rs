//! Tests from outside, in one binary: it is linked once.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod circles;
mod concurrency;
mod crossed;
mod filter_table;
mod layering;
mod rsync_filter;
