//! Tests from outside, in one binary: it is linked once.

mod model;
mod together;
