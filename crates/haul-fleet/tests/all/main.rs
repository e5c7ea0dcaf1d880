//! Tests from outside, in one binary: it is linked once.

mod large_files;
mod model;
mod records;
mod workers;
mod world;
