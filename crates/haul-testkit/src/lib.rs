//! Test support: servers, faults, trees.

pub mod s3_server;
