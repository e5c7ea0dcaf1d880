//! Tests from outside, in one binary: it is linked once.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod attacks;
mod bundles;
mod conformance;
mod hidden;
mod listing;
mod local;
mod partial;
