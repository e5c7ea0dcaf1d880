//! From a typed name to an open store: config files, connection strings, options of stores with their sources, and one
//! [`Session`] a process, which opens all of them with the same limits.
//!
//! Nothing here knows a command line or a terminal, and nothing reads the environment: a front end says what it saw, as an
//! [`Environment`] and [`Settings`]. `examples/open.rs` lists a remote in a few lines.

pub mod config;
mod environment;
mod error;
#[cfg(feature = "ssh")]
mod far_host;
mod options;
pub mod registry;
pub mod secrets;
mod session;
mod spec;
mod unsupported;

pub use environment::Environment;
pub use error::{Error, Result};
#[cfg(feature = "http")]
pub use haul_http::address;
pub use options::StoreFlags;
pub use session::{OpenOptions, Session, Settings};
pub use spec::{Location, Spec, is_name};
pub use unsupported::{Lacking, lacking};
