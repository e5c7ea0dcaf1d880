//! A move of a whole directory to where nothing is: one rename where all goes, file by file where not all does.

use haul_testkit::{
    drivesim::{DriveSim, Settings},
    folder::write,
    lab::Lab,
};
use std::{fs, os::unix::fs::symlink};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_123_456_789;

fn tree(lab: &Lab, top: &str) {
    write(&lab.path(&format!("{top}/a/f")), b"deep", TIME);
    write(&lab.path(&format!("{top}/g")), b"flat", TIME);
    fs::create_dir_all(lab.path(&format!("{top}/empty"))).unwrap();
    symlink("nowhere", lab.path(&format!("{top}/link"))).unwrap();
}

fn is_there(lab: &Lab, name: &str) -> bool {
    fs::symlink_metadata(lab.path(name)).is_ok()
}

#[test]
fn a_directory_goes_with_all_that_it_holds() {
    for command in [&["move", "--delete-empty-src-dirs"][..], &["moveto"]] {
        let lab = Lab::new(HAUL);
        tree(&lab, "s");
        let ran = lab.haul(&[command, &["@s", "@new/place", "-v"]].concat()).ok();
        assert!(ran.err.contains("Renamed to") && !ran.err.contains("not copied"), "{}", ran.err);
        assert!(!is_there(&lab, "s"));
        for name in ["new/place/a/f", "new/place/g", "new/place/empty", "new/place/link"] {
            assert!(is_there(&lab, name), "{command:?}: {name}");
        }
    }
}

#[test]
fn what_asks_for_single_files_moves_single_files() {
    for more in [&["--exclude", "g"][..], &["--max-depth", "9"], &["--combined", "-"], &["--suffix", ".old"], &["-L"]] {
        let lab = Lab::new(HAUL);
        tree(&lab, "s");
        fs::remove_file(lab.path("s/link")).unwrap();
        let ran = lab.haul(&[&["moveto", "@s", "@d", "-v"], more].concat()).ok();
        assert!(!ran.err.contains("Renamed to"), "{more:?}: {}", ran.err);
        assert!(is_there(&lab, "d/a/f") && is_there(&lab, "s/empty"), "{more:?}");
        assert_eq!(is_there(&lab, "s/g"), more[0] == "--exclude", "{more:?}");
    }
    let lab = Lab::new(HAUL);
    tree(&lab, "s");
    lab.haul(&["moveto", "@s", "@d", "-n"]).ok();
    assert!(is_there(&lab, "s/g") && !is_there(&lab, "d"));
    // Files are added to an existing directory; a symlink stays a symlink.
    write(&lab.path("d/own"), b"own", TIME);
    lab.haul(&["moveto", "@s", "@d"]).ok();
    assert!(is_there(&lab, "d/own") && is_there(&lab, "d/g") && is_there(&lab, "s/link"));
    symlink("d", lab.path("way")).unwrap();
    lab.haul(&["moveto", "@way", "@e"]).ok();
    assert!(is_there(&lab, "e/g") && is_there(&lab, "way") && is_there(&lab, "d") && !is_there(&lab, "d/g"));
}

#[test]
fn a_move_alone_leaves_its_source_directory() {
    let lab = Lab::new(HAUL);
    tree(&lab, "s");
    lab.haul(&["move", "@s", "@d"]).ok();
    assert!(is_there(&lab, "s/empty") && is_there(&lab, "d/g") && !is_there(&lab, "s/g"));
}

#[test]
fn a_directory_in_itself_is_refused_as_ever() {
    let lab = Lab::new(HAUL);
    tree(&lab, "s");
    let ran = lab.haul(&["moveto", "@s", "@s/a/new"]);
    assert!(ran.code != 0 && ran.err.contains("is inside the source"), "{}", ran.err);
    assert!(is_there(&lab, "s/a/f") && !is_there(&lab, "s/a/new"));
}

#[test]
fn a_service_is_asked_once() {
    let (lab, sim) = (Lab::new(HAUL), DriveSim::start(Settings::default()));
    let section = format!(
        "[g]\ntype = drive\nclient_id = x\nclient_secret = y\ntoken = {}\ntoken_url = {}/token\nscope = drive\n",
        sim.token(),
        sim.endpoint()
    );
    fs::write(lab.config(), section).unwrap();
    let (top, endpoint) = (sim.add_folder("root", "top"), sim.endpoint());
    for number in 0..50 {
        sim.add_file(&top, &format!("f{number}"), b"content");
    }
    let haul = |args: &[&str]| lab.haul(&[args, &["--drive-endpoint", &endpoint]].concat());
    let ran = haul(&["moveto", "g:top", "g:other/name", "-v", "--error-on-no-transfer"]).ok();
    assert!(ran.err.contains("Renamed to"), "{}", ran.err);
    assert_eq!(haul(&["lsf", "g:other/name"]).ok().lines().len(), 50);
    assert_eq!(haul(&["lsf", "g:"]).ok().lines(), ["other/"]);
    // Both by the name of the same thing, whatever the answer says.
    let again = haul(&["moveto", "g:top", "g:third"]);
    assert_eq!(again.code, 3, "{}", again.err);
}
