//! The store on a Dropbox of our own.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod dropbox;
mod rclone;
mod sdk;
