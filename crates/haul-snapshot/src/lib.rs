//! Versions of folders on any store, for people without git or DVC: content lies under its MD5 where DVC would put it, a list
//! of the folder keeps what content doesn't (modes, times, links, empty folders), and a record makes a version of it. The
//! engine moves the bytes; opening stores and talking to people is the command line's.

pub mod check;
pub mod diff;
pub mod gc;
pub mod list;
mod marks;
pub mod name;
pub mod pull;
pub mod push;
pub mod record;
mod renaming_sink;
pub mod retention;
pub mod scan;
mod small_files;
pub mod tree;
pub mod versions;
mod view;
