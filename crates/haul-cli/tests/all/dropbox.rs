//! Dropbox, by the binary, on the simulator.

use haul_testkit::{
    dropboxsim::{Dropbox, Settings},
    folder::write,
    lab::Lab,
};
use std::fs;

const FILES: u64 = 60;

/// haul finds the rate at which Dropbox accepts changes, and keeps to it: few moves and copies are throttled, and all succeed.
#[test]
fn throttled_requests_wait_as_the_service_says() {
    let service = Dropbox::start(Settings { writes: Some(10.0), ..Settings::default() }).expect("started");
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    let section =
        format!("[d]\ntype = dropbox\nclient_id = x\ntoken = {}\nendpoint = {}\n", service.token(), service.endpoint());
    fs::write(lab.config(), section).expect("written");
    for n in 0..FILES {
        let name = format!("src/{}/{n}", n % 5);
        write(&lab.path(&name), name.as_bytes(), 1_600_000_000_000_000_000);
    }
    lab.haul(&["copy", "@src", "d:a"]).ok();
    lab.haul(&["move", "d:a", "d:b"]).ok();
    lab.haul(&["copy", "d:b", "d:c"]).ok();
    let files = |top: &str| service.all().iter().filter(|(path, file)| path.starts_with(top) && file.is_some()).count();
    assert_eq!((files("/a/"), files("/b/"), files("/c/")), (0, FILES as usize, FILES as usize));
    lab.haul(&["check", "@src", "d:c"]).ok();
    let counts = service.counts();
    assert_eq!(counts["files/upload_session/finish_batch_v2"], 1, "one commit for all: {counts:?}");
    let (throttled, changes) = (service.throttled(), counts["files/move_v2"] + counts["files/copy_v2"]);
    assert!(throttled > 0 && throttled <= changes / 10, "{throttled} of {changes} throttled: {counts:?}");
}
