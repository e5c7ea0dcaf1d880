//! Tests from outside, in one binary: it is linked once.

#![allow(clippy::disallowed_methods)] // Tests make and read their own files.

mod attributes;
mod azure;
mod bench;
mod between_clouds;
mod big_listing;
mod boxes;
mod cli;
mod clouds;
mod completion;
mod connections;
#[cfg(feature = "http")]
mod copyurl;
mod crypt;
mod disks;
mod docs;
mod drive;
mod dropbox;
mod dvc;
mod encoding;
mod events;
mod far;
mod faults;
mod file_systems;
mod filters;
mod fleet;
mod fleet_files;
mod hostile_clouds;
mod index;
mod jobs;
mod late_errors;
mod listing;
mod lists;
mod logins;
mod logs;
mod max_transfer;
mod meanwhile;
mod meeting;
mod messages;
#[cfg(feature = "ncdu")]
mod ncdu;
mod object_lock;
mod old_kernel;
mod one_place;
mod onedrive;
mod pack;
mod parity;
mod proxies;
mod quirks;
mod request_counts;
mod resume;
mod rsync;
mod s3_answers;
mod s3_end_to_end;
mod sbatch;
mod seaweed;
mod servers;
mod settier;
mod sftp;
mod sftp_hashes;
mod silent;
mod snapshot;
mod status;
mod versions;
mod webdav;
