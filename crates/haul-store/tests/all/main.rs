//! Tests from outside, in one binary: it is linked once.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod attacks;
mod conformance;
mod layers;
mod links;
mod local;
mod pack;
mod s3;
mod s3_faults;
