//! The store on a Box of our own.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod peers;
mod store;
