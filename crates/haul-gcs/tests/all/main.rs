//! The store on emulators of Google Cloud Storage.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod emulators;
mod peers;
mod simulator;
