//! The drive store on a simulator of the service.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod placement;
mod sdk;
mod simulator;
