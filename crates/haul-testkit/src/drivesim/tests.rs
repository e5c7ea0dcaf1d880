//! rclone, whose host is fixed, on the simulator: what passes there is what haul may count on.

use super::{DriveSim, Fault, ROOT, Settings, auth::REFRESH};
use crate::{
    interceptor::Interceptor,
    lab::{Lab, ProgramResult},
    tree::content,
};
use serde_json::json;
use std::fs;

/// rclone through the interceptor, on a remote `g:` of this simulator.
fn rclone<'a>(lab: &'a Lab, sim: &DriveSim, more: &str) -> Option<impl Fn(&[&str]) -> ProgramResult + use<'a>> {
    if !lab.has_rclone() {
        return None;
    }
    let interceptor = Interceptor::start(lab, &[("www.googleapis.com", sim.address())])?;
    // It has expired: rclone renews it first.
    let token = json!({ "access_token": "old", "refresh_token": REFRESH, "expiry": "2020-01-01T00:00:00Z" });
    let section = format!(
        "[g]\ntype = drive\nclient_id = x\nclient_secret = y\ntoken = {token}\ntoken_url = {}/token\nscope = drive\n{more}\n",
        sim.endpoint()
    );
    fs::write(lab.config(), section).expect("written");
    let run = move |args: &[&str]| {
        let (proxy, ca) = (interceptor.url(), interceptor.ca().display().to_string());
        let fixed = ["--http-proxy", &proxy, "--ca-cert", &ca, "--drive-pacer-min-sleep", "1ms", "--retries", "1"];
        lab.rclone(&[args, &fixed].concat())
    };
    Some(run)
}

#[test]
fn rclone_finds_a_drive() {
    let (lab, sim) = (Lab::new(""), DriveSim::start(Settings::default()));
    let Some(rclone) = rclone(&lab, &sim, "") else { return };
    let at = lab.path("up");
    fs::create_dir_all(at.join("d/e")).expect("folders");
    let large = content(1, 20_000_000);
    for (name, bytes) in [("d/e/it's \\ö?.txt", &b"small"[..]), ("d/large", &large), ("empty", b"")] {
        fs::write(at.join(name), bytes).expect("written");
    }
    let (up, down) = (at.display().to_string(), lab.path("down").display().to_string());
    rclone(&["copy", &up, "g:box"]).ok();
    rclone(&["check", &up, "g:box"]).ok();
    assert_eq!(
        rclone(&["lsf", "-R", "g:"]).ok().lines(),
        ["box/", "box/d/", "box/d/e/", "box/d/e/it's \\ö?.txt", "box/d/large", "box/empty"]
    );
    assert_eq!(rclone(&["lsf", "-R", "--fast-list", "g:box"]).ok().lines().len(), 5);
    rclone(&["copy", "g:box", &down]).ok();
    assert!(fs::read(lab.path("down/d/large")).expect("there") == large);
    rclone(&["moveto", "g:box/d/large", "g:box/moved"]).ok();
    rclone(&["copyto", "g:box/moved", "g:box/d/copied"]).ok();
    rclone(&["deletefile", "g:box/moved"]).ok();
    assert_eq!(sim.held().1, 1, "in the trash");
    rclone(&["purge", "g:box/d/e"]).ok();
    assert_eq!(rclone(&["lsf", "-R", "g:box"]).ok().lines(), ["d/", "d/copied", "empty"]);
    assert!(rclone(&["about", "g:"]).ok().out.contains("15 GiB"));
    // Refusals are tried again; documents and shortcuts show.
    sim.spoil("list", 0, Fault::Refused(403, "userRateLimitExceeded"));
    let folder = sim.add_folder(ROOT, "other");
    let file = sim.add_file(&folder, "f", b"text");
    sim.add_document(ROOT, "doc");
    sim.add_shortcut(ROOT, "short", &file);
    sim.add_shortcut(ROOT, "there", &folder);
    assert_eq!(
        rclone(&["lsf", "-R", "g:", "--exclude", "box/**"]).ok().lines(),
        ["doc.docx", "other/", "other/f", "short", "there/", "there/f"]
    );
    assert_eq!(rclone(&["cat", "g:short"]).ok().out, "text");
    let counts = sim.counts();
    assert!(counts["token"] >= 1 && counts["upload.begin"] >= 1 && counts["copy"] == 1, "{counts:?}");
}

#[test]
fn rclone_finds_a_shared_drive_by_a_service_account() {
    let (lab, sim) = (Lab::new(""), DriveSim::start(Settings::default()));
    let drive = sim.add_drive("Lab");
    sim.add_file(&drive, "f", b"shared");
    let key = lab.path("key.json");
    fs::write(&key, sim.service_account()).expect("written");
    let more = format!("team_drive = {drive}\nservice_account_file = {}", key.display());
    let Some(rclone) = rclone(&lab, &sim, &more) else { return };
    assert_eq!(rclone(&["lsf", "g:"]).ok().lines(), ["f"]);
    rclone(&["copyto", &key.display().to_string(), "g:d/key"]).ok();
    assert_eq!(rclone(&["lsf", "-R", "g:"]).ok().lines(), ["d/", "d/key", "f"]);
}
