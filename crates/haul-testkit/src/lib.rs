//! Test support: the conformance suite that every store must pass, servers, faults, trees.

// What the bans keep out of the product is this crate's trade: it makes files, reads the environment, starts servers.
#![allow(clippy::disallowed_methods)]

pub mod amount;
pub mod attributes;
pub mod azuresim;
pub mod boxsim;
pub mod chance;
pub mod cloudsim;
pub mod conformance;
pub mod disk;
pub mod drivesim;
pub mod dropboxsim;
pub mod faults;
pub mod folder;
pub mod front;
pub mod fuse;
pub mod gcssim;
pub mod interceptor;
pub mod lab;
pub mod liar;
pub mod link;
pub mod minio;
pub mod newer_azure;
pub mod nextcloud;
pub mod onedrivesim;
pub mod peers;
pub mod ports;
pub mod proftpd;
pub mod proxy;
pub mod relay;
pub mod seaweed;
pub mod serve;
pub mod servers;
mod spoils;
pub mod sshd;
pub mod tls;
pub mod tree;
pub mod web_servers;
