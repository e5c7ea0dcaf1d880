//! Tokens renewed at a server that keeps count.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod device;
mod federation;
mod renewal;
mod service_account;
