//! What others do to source, destination and half-written files while haul is at work: nothing is lost by it.

#![allow(clippy::disallowed_methods)] // A test makes the files that haul is to copy.

use haul_testkit::{
    cloudsim::{Cloudsim, Wanted},
    lab::{Lab, until},
};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: u64 = 1 << 20;

/// A cloud of this many bytes a second in all, and a lab with a remote of it.
fn cloud(rate: &str) -> (Lab, Cloudsim) {
    let sim = Cloudsim::with(&[("rate-in", rate), ("rate-out", rate)]);
    sim.bucket("b", None);
    let lab = Lab::new(HAUL);
    lab.remote("c", &sim.endpoint());
    (lab, sim)
}

fn made(size: u64, seed: u64) -> Wanted {
    Wanted { size, seed, mtime: Some("1600000000".into()), md5: false }
}

#[test]
fn what_was_stored_over_a_moved_key_since_it_was_copied_stays() {
    let (lab, sim) = cloud("20M");
    sim.make("b", b"x/a", &made(1000, 1));
    sim.make("b", b"x/big", &made(30 * MIB, 2));
    let child = lab.start(&["move", "c:b/x", "@dst"]);
    assert!(until(|| lab.path("dst/a").exists()));
    sim.make("b", b"x/a", &made(1000, 3));
    let newer = sim.get("b", b"x/a").unwrap().bytes;
    let ran = lab.end(child).code(1);
    assert!(ran.err.contains("ERROR : x/a: ") || ran.err.contains("ERROR : a: "), "{}", ran.err);
    assert!(ran.err.contains("changed since it was copied: it stays"), "{}", ran.err);
    assert_eq!(sim.keys("b"), [b"x/a"]);
    assert!(sim.get("b", b"x/a").unwrap().bytes == newer);
    lab.haul(&["move", "c:b/x", "@dst", "--ignore-times"]).ok();
    assert!(fs::read(lab.path("dst/a")).unwrap() == newer);
    assert!(sim.keys("b").is_empty());
    // The question is one for all of them.
    (0..300).for_each(|n| sim.make("b", format!("y/{n}").as_bytes(), &made(10, n)));
    sim.reset();
    lab.haul(&["move", "c:b/y", "@dst"]).ok();
    let report = sim.report();
    assert!(report.of("ListObjectsV2") + report.of("HeadObject") <= 4, "{:?}", report.requests);
}
