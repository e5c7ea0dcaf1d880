//! Moves whose source and destination turn out to be one place, reached in two ways, lose nothing.

#![allow(clippy::disallowed_methods)] // A test makes the files that haul is to copy.

use haul_testkit::{cloudsim::Cloudsim, lab::Lab};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// A bucket `b` with `x/f0` to `x/f2`, and remotes of it: `c`, `host` by another name of the machine, `user` by another key.
fn lab() -> (Lab, Cloudsim) {
    let (lab, sim) = (Lab::new(HAUL), Cloudsim::with(&[]));
    sim.bucket("b", None);
    (0..3).for_each(|n| sim.put("b", format!("x/f{n}").as_bytes(), format!("bytes {n}"), &[]));
    lab.remote("c", &sim.endpoint());
    lab.remote("host", &sim.endpoint().replace("127.0.0.1", "localhost"));
    lab.remote("user", &sim.endpoint());
    let config = fs::read_to_string(lab.config()).unwrap();
    let (others, user) = config.split_at(config.rfind("[user]").unwrap());
    let user = user.replacen("access_key_id = ", "access_key_id = another", 1);
    assert!(user.contains("another"), "{user}");
    fs::write(lab.config(), [others, &user].concat()).unwrap();
    (lab, sim)
}

const SAME: &str = "source and destination are the same file under two names: moving it would delete it";

#[test]
fn a_service_by_two_names() {
    let (lab, sim) = lab();
    let before = sim.keys("b");
    for to in ["host", "user"] {
        for more in [&[][..], &["--ignore-times"], &["--checksum"], &["--no-traverse"]] {
            let to = format!("{to}:b/x");
            let ran = lab.haul(&[&["move", "c:b/x", &to], more].concat()).code(1);
            assert_eq!(ran.err.matches(SAME).count(), 3, "{}", ran.err);
            assert_eq!(sim.keys("b"), before, "{to} {more:?}");
        }
        lab.haul(&["moveto", "c:b/x/f1", &format!("{to}:b/x/f1")]).code(1);
        assert_eq!(sim.keys("b"), before);
        // In another folder it is another file.
        lab.haul(&["move", "c:b/x", &format!("{to}:b/y")]).ok();
        assert_eq!(sim.keys("b"), [b"y/f0", b"y/f1", b"y/f2"]);
        lab.haul(&["move", "c:b/y", "c:b/x"]).ok();
    }
}

#[test]
fn packs_moved_onto_themselves() {
    let (lab, _sim) = lab();
    lab.haul(&["copy", "c:b/x", ":pack,remote=\"c:b/packs\":"]).ok();
    for to in ["c", "host"] {
        let to = format!(":pack,remote=\"{to}:b/packs\":");
        let ran = lab.haul(&["move", ":pack,remote=\"c:b/packs\":", &to]).code(1);
        assert_eq!(ran.err.matches(SAME).count(), 3, "{}", ran.err);
        assert_eq!(lab.haul(&["lsf", &to]).ok().out, "f0\nf1\nf2\n");
    }
}
