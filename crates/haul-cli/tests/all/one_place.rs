//! Moves whose source and destination turn out to be one place, reached in two ways, lose nothing.

use haul_testkit::{cloudsim::Cloudsim, lab::Lab};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// A bucket `b` with `x/f0` to `x/f2`, and remotes of it: `c`, `host` by another name of the machine, `user` without a key.
fn lab() -> (Lab, Cloudsim) {
    let (lab, sim) = (Lab::new(HAUL), Cloudsim::with(&[]));
    sim.bucket("b", None);
    (0..3).for_each(|n| sim.put("b", format!("x/f{n}").as_bytes(), format!("bytes {n}"), &[]));
    lab.remote("c", &sim.endpoint());
    lab.remote("host", &sim.endpoint().replace("127.0.0.1", "localhost"));
    lab.remote("user", &sim.endpoint());
    let config = fs::read_to_string(lab.config()).unwrap();
    let (others, user) = config.split_at(config.rfind("[user]").unwrap());
    let user: String = user.lines().filter(|line| !line.contains("_key")).map(|line| format!("{line}\n")).collect();
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
        let bytes = || before.iter().map(|key| sim.get("b", key).unwrap().bytes).collect::<Vec<_>>();
        let held = bytes();
        for more in
            [&["--no-check-dest"][..], &["--no-check-dest", "--no-traverse"], &["--no-check-dest", "--ignore-times"]]
        {
            let ran = lab.haul(&[&["move", "c:b/x", &format!("{to}:b/x")], more].concat()).code(1);
            assert_eq!(ran.err.matches(SAME).count(), 3, "{}", ran.err);
            assert_eq!((sim.keys("b"), bytes()), (before.clone(), held.clone()), "{to} {more:?}");
        }
        for more in [&[][..], &["--no-check-dest"]] {
            let ran = lab.haul(&[&["moveto", "c:b/x/f1", &format!("{to}:b/x/f1")], more].concat()).code(1);
            assert_eq!(ran.err.matches(SAME).count(), 1, "{}", ran.err);
            lab.haul(&[&["move", "c:b/x/f1", &format!("{to}:b/x")], more].concat()).code(1);
            lab.haul(&[&["move", "c:b", &format!("{to}:b")], more].concat()).code(1);
            assert_eq!(sim.keys("b"), before);
        }
        // In another folder it is another file.
        lab.haul(&["move", "c:b/x", &format!("{to}:b/y")]).ok();
        assert_eq!(sim.keys("b"), [b"y/f0", b"y/f1", b"y/f2"]);
        lab.haul(&["move", "c:b/y", "c:b/x"]).ok();
    }
}

/// Of two places that have the same name at two services, one question tells that they are two.
#[test]
fn two_services_with_one_bucket_name() {
    let (lab, sim) = lab();
    let other = Cloudsim::with(&[]);
    other.bucket("b", None);
    lab.remote("other", &other.endpoint());
    other.put("b", b"x/f1", "another f1", &[]);
    lab.haul(&["move", "c:b/x", "other:b/x", "--no-check-dest", "--checkers=1"]).ok();
    assert!(sim.keys("b").is_empty());
    assert_eq!(other.keys("b"), [b"x/f0", b"x/f1", b"x/f2"]);
    assert_eq!(other.get("b", b"x/f1").unwrap().bytes, b"bytes 1");
    assert_eq!(other.report().of("HeadObject"), 1, "{:?}", other.report().requests);
}

#[test]
fn packs_moved_onto_themselves() {
    let (lab, _sim) = lab();
    let [own, other] = ["c", "host"].map(|remote| format!(":pack,remote=\"{remote}:b/packs\":"));
    lab.haul(&["copy", "c:b/x", &own]).ok();
    let ran = lab.haul(&["move", &own, &own]).ok();
    assert!(ran.err.contains("Nothing to do: source and destination are the same"), "{}", ran.err);
    for more in [&[][..], &["--no-check-dest"], &["--no-traverse"]] {
        let ran = lab.haul(&[&["move", &own, &other], more].concat()).code(1);
        assert_eq!(ran.err.matches(SAME).count(), 3, "{}", ran.err);
        assert_eq!(lab.haul(&["lsf", &other]).ok().out, "f0\nf1\nf2\n");
    }
}
