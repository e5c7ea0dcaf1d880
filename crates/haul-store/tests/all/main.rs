//! Tests from outside, in one binary: it is linked once.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod late_errors;
mod layers;
mod links;
mod unnamed_file;
