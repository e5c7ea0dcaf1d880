//! Test support: the conformance suite that every store must pass, servers, faults, trees.

pub mod conformance;
pub mod faults;
pub mod s3_server;
pub mod tree;
