//! Test support: the conformance suite that every store must pass, faults to inject, trees to copy.

pub mod conformance;
pub mod faults;
pub mod tree;
