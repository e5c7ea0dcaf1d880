//! Encrypted files from outside.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod contract;
