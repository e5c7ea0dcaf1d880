//! Azure Blob from outside, on Azurite; and rclone at the other side.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod azurite;
mod beyond_azurite;
