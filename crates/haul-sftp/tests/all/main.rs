//! SFTP from outside: on real servers, and on one that answers wrongly.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod hostile;
mod replacing;
mod servers;
