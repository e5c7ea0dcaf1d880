//! Box, by the binary, on the simulator; rclone at the other side.

use haul_testkit::{
    boxsim::{BoxSim, Fault, Settings},
    folder::{self, noise, write},
    interceptor::Interceptor,
    lab::{Lab, until},
};
use std::{fs, process::Stdio, time::Duration};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_000_000_000;

fn start(settings: Settings) -> (BoxSim, Lab) {
    let (sim, lab) = (BoxSim::start(settings).expect("started"), Lab::new(HAUL));
    fs::write(lab.config(), format!("{}endpoint = {}\n", sim.section("b"), sim.endpoint())).expect("config");
    (sim, lab)
}

fn files(lab: &Lab, dir: &str) {
    for n in 0..30u64 {
        let size = if n % 10 == 0 { 3 * MIB + n as usize } else { (n * n * 7) as usize };
        write(&lab.path(&format!("{dir}/{}/f {n}é", n % 3)), &noise(n, size), TIME + n * 1_000_000_000);
    }
}

fn assert_same(lab: &Lab, a: &str, b: &str) {
    let read = |name| folder::files(&folder::read(&lab.path(name)));
    folder::assert_same(&read(a), &read(b), "");
}

#[test]
fn copied_compared_synced_and_moved() {
    let (sim, lab) = start(Settings { page: 9, commits: 1, ..Settings::default() });
    files(&lab, "src");
    write(&lab.path("src/large"), &noise(7, 61 * MIB), TIME);
    assert_eq!(lab.haul(&["config", "userinfo", "b:"]).ok().out, "email: a@example.com\n name: A B\n");
    lab.haul(&["copy", "@src", "b:d"]).ok();
    let counts = sim.counts();
    // One request for each file, and no second version by setting a time.
    assert_eq!((counts["Upload"], counts["CreateFolder"], counts["UploadPart"]), (30, 4, 8), "{counts:?}");
    assert!(!counts.contains_key("UpdateFile") && !counts.contains_key("UploadVersion"), "{counts:?}");
    assert_eq!(sim.sent() / MIB as u64, 61 + 9);
    lab.haul(&["check", "@src", "b:d"]).ok();
    assert!(!sim.counts().contains_key("Download"), "hashes are listed");
    lab.haul(&["check", "--download", "@src", "b:d"]).ok();
    let again = lab.haul(&["copy", "@src", "b:d", "-v", "--metadata"]).ok();
    assert!(again.err.contains("b:d keeps no metadata of files: it isn't copied"), "{}", again.err);
    assert!(!again.err.contains("Copied"), "nothing moves again: {}", again.err);
    let sums = |ran: haul_testkit::lab::ProgramResult| ran.ok().lines().join("\n");
    assert_eq!(sums(lab.haul(&["hashsum", "sha1", "@src"])), sums(lab.haul(&["hashsum", "sha1", "b:d"])));
    if lab.has_rclone() {
        let hosts = ["api.box.com", "upload.box.com"].map(|host| (host, sim.address()));
        let Some(interceptor) = Interceptor::start(&lab, &hosts) else { return };
        let (proxy, ca) = (interceptor.url(), interceptor.ca().display().to_string());
        let fixed = ["--http-proxy", &proxy, "--ca-cert", &ca, "--retries", "1"];
        let rclone = |args: &[&str]| lab.rclone(&[args, &fixed].concat());
        rclone(&["check", "--download", "@src", "b:d"]).ok();
        assert_eq!(rclone(&["lsf", "-R", "b:"]).ok().lines(), lab.haul(&["lsf", "-R", "b:"]).ok().lines());
        rclone(&["copy", "@src", "b:r"]).ok();
        let same = lab.haul(&["sync", "@src", "b:r", "-v"]).ok();
        assert!(!same.err.contains("Copied"), "{}", same.err);
        let format = ["--files-only", "--format", "pst", "--time-format", "RFC3339"];
        let list = |dir| [&["lsf", "-R", dir][..], &format].concat();
        assert_eq!(rclone(&list("b:r")).ok().lines(), lab.haul(&list("b:d")).ok().lines());
    }
    sim.counts();
    lab.haul(&["copy", "b:d", "b:e"]).ok();
    let counts = sim.counts();
    assert!(counts["Copy"] == 31 && !counts.contains_key("Download"), "inside Box nothing passes here: {counts:?}");
    fs::remove_dir_all(lab.path("src/1")).expect("removed");
    write(&lab.path("src/0/f 0é"), b"changed", TIME + 100_000_000_000);
    lab.haul(&["sync", "@src", "b:e"]).ok();
    lab.haul(&["copy", "b:e", "@back"]).ok();
    assert_same(&lab, "src", "back");
    lab.haul(&["move", "b:e", "b:moved"]).ok();
    assert_eq!(lab.haul(&["lsf", "-R", "--files-only", "b:e"]).ok().out, "");
    let moved = lab.haul(&["moveto", "b:moved", "b:m2", "-v"]).ok();
    assert!(moved.err.contains("Renamed to"), "{}", moved.err);
    lab.haul(&["lsf", "b:moved"]).code(3);
    lab.haul(&["moveto", "b:m2", "b:moved"]).ok();
    lab.haul(&["check", "@src", "b:moved"]).ok();
    lab.haul(&["purge", "b:d"]).ok();
    assert!(!sim.shown().contains_key("d"));
    assert!(lab.haul(&["about", "b:"]).ok().out.contains("931.323 GiB"));
    lab.haul_reading(&["rcat", "b:piped"], b"from a pipe").ok();
    assert_eq!(lab.haul(&["cat", "b:piped"]).ok().out, "from a pipe");
    sim.counts();
    let long = noise(9, 70 * MIB);
    lab.haul_reading(&["rcat", "b:long"], &long).ok();
    assert_eq!((sim.counts()["UploadPart"], sim.shown()["long"].versions), (9, 1));
    write(&lab.path("long"), &long, TIME);
    lab.haul(&["check", "@long", "b:"]).ok();
}

#[test]
fn what_is_encrypted_goes_in_parts_too() {
    let (sim, lab) = start(Settings::default());
    let mut config = fs::read_to_string(lab.config()).expect("config");
    config += "[c]\ntype = crypt\nremote = b:secret\npassword = \n";
    fs::write(lab.config(), config).expect("config");
    lab.haul(&["config", "update", "c", "password=word"]).ok();
    write(&lab.path("src/large"), &noise(3, 55 * MIB + 77), TIME);
    write(&lab.path("src/small"), b"small", TIME);
    lab.haul(&["copy", "@src", "c:"]).ok();
    assert_eq!(sim.counts()["UploadPart"], 7);
    lab.haul(&["copy", "c:", "@back"]).ok();
    assert_same(&lab, "src", "back");
}

#[test]
fn a_killed_upload_goes_on_where_its_session_is() {
    const SIZE: u64 = 200_000_000;
    let settings = Settings { part: 1 << 20, latency: Duration::from_millis(40), ..Settings::default() };
    let (sim, lab) = start(settings);
    write(&lab.path("src/big"), &noise(1, SIZE as usize), TIME);
    let flags = ["copy", "@src", "b:x"];
    let (mut sent, mut sessions) = (0, 0);
    for goal in [SIZE / 4, SIZE / 2] {
        let mut child = lab.start(&flags);
        let far = || {
            sent += sim.sent();
            sent > goal
        };
        assert!(until(far));
        child.kill().expect("killed");
        child.wait().expect("ended");
        sessions += sim.counts().get("CreateSession").copied().unwrap_or_default();
        assert!(!sim.shown().contains_key("x/big"), "it doesn't show");
    }
    lab.haul(&flags).ok();
    sessions += sim.counts().get("CreateSession").copied().unwrap_or_default();
    sent += sim.sent();
    assert_eq!((sessions, sim.shown()["x/big"].versions, sim.sessions()), (1, 1, 0));
    println!("{sent} bytes were sent of {SIZE}, in three runs");
    // Parts in flight at a kill are sent again; on a busy machine there are more of them.
    assert!(sent <= SIZE * 110 / 100, "{sent} bytes were sent");
    lab.haul(&["check", "--download", "@src", "b:x"]).ok();
}

#[test]
fn throttled_requests_wait_as_the_service_says() {
    let (sim, lab) = start(Settings { rate: Some(40.0), ..Settings::default() });
    files(&lab, "src");
    lab.haul(&["copy", "@src", "b:x"]).ok();
    lab.haul(&["check", "@src", "b:x"]).ok();
    let requests: usize = sim.counts().values().sum();
    assert!(sim.throttled() * 4 < requests, "{} of {requests} requests were refused", sim.throttled());
    assert!(sim.shown().values().all(|shown| shown.versions <= 1));
}

#[test]
fn a_token_is_renewed_once_and_kept_by_two_at_once() {
    let (sim, lab) = start(Settings { latency: Duration::from_millis(20), ..Settings::default() });
    sim.put("d/f", b"text");
    sim.expire();
    let both = [lab.start(&["cat", "b:d/f"]), lab.start(&["cat", "b:d/f"])];
    for child in both {
        assert_eq!(lab.end(child).ok().out, "text");
    }
    assert_eq!(lab.haul(&["cat", "b:d/f"]).ok().out, "text");
    assert_eq!(sim.renewals(), 1);
    assert!(fs::read_to_string(lab.config()).expect("config").contains("refresh-1"));
}

/// haul and rclone on one config file, with tokens that renew once: nobody logs the other out.
#[test]
fn a_token_is_renewed_by_haul_and_rclone_at_once() {
    let (sim, lab) = start(Settings { latency: Duration::from_millis(20), ..Settings::default() });
    let Some(rclone) = haul_testkit::peers::need("rclone") else { return };
    let hosts = ["api.box.com", "upload.box.com"].map(|host| (host, sim.address()));
    let Some(interceptor) = Interceptor::start(&lab, &hosts) else { return };
    sim.put("d/f", b"text");
    for round in 0..6 {
        sim.expire();
        // rclone believes the time that is written down.
        let config = fs::read_to_string(lab.config()).expect("config");
        let expired: Vec<String> = config
            .lines()
            .map(|line| match line.split_once("\"expiry\":\"") {
                Some((before, _)) => format!("{before}\"expiry\":\"2020-01-01T00:00:00Z\"}}"),
                None => line.to_owned(),
            })
            .collect();
        fs::write(lab.config(), expired.join("\n") + "\n").expect("config");
        let mut command = lab.command(&rclone);
        command.args(["cat", "b:d/f", "--http-proxy", &interceptor.url(), "--ca-cert"]).arg(interceptor.ca());
        let theirs = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("rclone");
        let ours = [lab.start(&["cat", "b:d/f"]), lab.start(&["cat", "b:d/f"])];
        for child in ours {
            assert_eq!(lab.end(child).ok().out, "text", "{round}");
        }
        let theirs = lab.end(theirs);
        println!("round {round}: rclone {}", theirs.code);
        assert_eq!(lab.haul(&["cat", "b:d/f"]).ok().out, "text", "{round}");
    }
    assert!(sim.renewals() >= 6);
    lab.rclone(&[
        "cat",
        "b:d/f",
        "--http-proxy",
        &interceptor.url(),
        "--ca-cert",
        &interceptor.ca().display().to_string(),
    ])
    .ok();
}

#[test]
fn two_writers_of_one_file_dont_mix() {
    let (sim, lab) = start(Settings { latency: Duration::from_millis(5), ..Settings::default() });
    for (dir, seed) in [("one", 1), ("two", 2)] {
        write(&lab.path(dir).join("large"), &noise(seed, 52 * MIB), TIME);
        write(&lab.path(dir).join("small"), &noise(seed, 1000), TIME);
    }
    let both = ["@one", "@two"].map(|dir| lab.start(&["copy", dir, "b:x"]));
    for child in both {
        lab.end(child).ok();
    }
    lab.haul(&["copy", "b:x", "@back"]).ok();
    for name in ["large", "small"] {
        let back = fs::read(lab.path("back").join(name)).expect("there");
        let is = |dir: &str| fs::read(lab.path(dir).join(name)).expect("there") == back;
        assert!(is("one") || is("two"), "{name} is neither's");
    }
    assert_eq!((sim.shown().len(), sim.sessions()), (3, 0));
}

#[test]
fn what_a_listing_did_not_show_is_not_deleted() {
    let (sim, lab) = start(Settings { page: 3, ..Settings::default() });
    for n in 0..10 {
        sim.put(&format!("d/e/f{n}"), b"x");
    }
    write(&lab.path("src/e/new"), b"new", TIME);
    sim.fail("ListItems", 3, 100, Fault::Refuse(403, "access_denied_insufficient_permissions"));
    let ran = lab.haul(&["sync", "@src", "b:d"]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert_eq!(sim.trashed(), 0);
    assert!(sim.shown().contains_key("d/e/f9"));
}

/// Who disconnects ends the access itself: a copy of the token does nothing, and gets no next one.
#[test]
fn a_disconnected_token_is_dead() {
    let (sim, lab) = start(Settings::default());
    let config = fs::read_to_string(lab.config()).expect("config");
    let revoke = format!("{config}revoke_url = {}/oauth2/revoke\n", sim.endpoint());
    // Of another application's token the service says no.
    fs::write(lab.config(), revoke.replace("client_secret = secret", "client_secret = other")).expect("written");
    let ran = lab.haul(&["config", "disconnect", "b:"]);
    let said = "b: Box didn't end the access (invalid_client: The client credentials are not valid), so nothing was changed. To forget the token here alone: haul config unset b token";
    assert!(ran.code != 0 && ran.err.contains(said), "{}", ran.err);
    fs::write(lab.config(), &revoke).expect("written");
    lab.haul(&["lsf", "b:"]).ok();
    let said = lab.haul(&["config", "disconnect", "b:"]).ok().out;
    assert_eq!(said, "Box has ended the access, and the token is forgotten here.\n");
    assert!(!fs::read_to_string(lab.config()).expect("config").contains("token = {"));
    fs::write(lab.config(), &config).expect("written");
    let renewals = sim.renewals();
    let ran = lab.haul(&["lsf", "b:"]);
    assert!(ran.code != 0 && ran.out.is_empty(), "{}", ran.err);
    assert_eq!(sim.renewals(), renewals);
}
