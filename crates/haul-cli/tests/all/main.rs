//! Tests from outside, in one binary: it is linked once.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod attributes;
mod bench;
mod big_listing;
mod cli;
mod clouds;
mod completion;
mod connections;
mod disks;
mod dvc;
mod faults;
mod file_systems;
mod index;
mod jobs;
mod late_errors;
mod listing;
mod lists;
mod manual;
mod max_transfer;
mod meanwhile;
mod messages;
mod one_place;
mod pack;
mod parity;
mod quirks;
mod request_counts;
mod resume;
mod rsync;
mod s3_answers;
mod s3_end_to_end;
mod servers;
mod snapshot;
mod status;
