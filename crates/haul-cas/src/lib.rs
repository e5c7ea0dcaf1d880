//! A content-addressed store: files and lists of them under their MD5, as a DVC cache or remote has them. It finds out which
//! content a remote has, and has the engine move the rest. Opening stores and talking to people is the command line's.

pub mod address;
mod content_view;
pub mod facts;
pub mod manifest;
pub mod parallel;
pub mod remote;
pub mod state;
pub mod subset;
pub mod transfer;
pub mod wanted;
