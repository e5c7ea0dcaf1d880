//! Tests from outside, in one binary.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod contract;
mod far_end;
mod hostile;
mod stage;
mod tcp;
