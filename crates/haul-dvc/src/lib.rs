//! DVC repositories: their formats (pure), their cache and workspace on this machine's disk, and which content goes to or
//! comes from a remote. Moving it is the engine's, opening stores and talking to people the command line's.

pub mod add;
pub mod address;
pub mod bring;
pub mod cache;
pub mod checkout;
pub mod config;
pub mod dvcfile;
pub mod facts;
pub mod gc;
pub mod give;
pub mod hashing;
pub mod history;
pub mod ignored;
pub mod lock;
pub mod manifest;
mod named;
pub mod pipeline;
pub mod remote;
pub mod repo;
mod spread;
pub mod state;
pub mod status;
pub mod subset;
pub mod wanted;
pub mod workspace;
