//! rclone and Box's own SDK on the simulator, and at the other side of the store.

use crate::store::{open, put};
use haul_core::{Key, Mtime};
use haul_store::WriteSpec;
use haul_testkit::{
    boxsim::{BoxSim, Settings},
    conformance::collect,
    interceptor::Interceptor,
    lab::Lab,
    peers,
    tree::content,
};
use std::{fs, path::Path, process::Command};

struct Rclone<'a> {
    program: &'a Path,
    config: String,
    interceptor: &'a Interceptor,
}

impl Rclone<'_> {
    fn run(&self, args: &[&str]) -> String {
        let mut command = Command::new(self.program);
        command.args(["--config", &self.config, "--retries", "1"]);
        command.args(["--http-proxy", &self.interceptor.url(), "--ca-cert"]).arg(self.interceptor.ca()).args(args);
        let out = command.output().expect("rclone");
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).expect("text")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone_passes_and_reads_what_haul_wrote() {
    let Some(program) = peers::need("rclone") else { return };
    let lab = Lab::new("");
    let sim = BoxSim::start(Settings { page: 4, commits: 1, ..Settings::default() }).expect("a port");
    let hosts = ["api.box.com", "upload.box.com"].map(|host| (host, sim.address()));
    let Some(interceptor) = Interceptor::start(&lab, &hosts) else { return };
    let config = lab.path("rclone.conf");
    fs::write(&config, sim.section("b")).expect("written");
    let rclone = Rclone { program: &program, config: config.display().to_string(), interceptor: &interceptor };
    let source = lab.path("source");
    let names = ["a", "d/b c", "d/e/ü é", "d/e/back\\slash", "d/ends ", "d/．", "d/quote\"'#%", "empty"];
    for name in names {
        let path = source.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, if name == "empty" { "" } else { name }).expect("written");
    }
    fs::write(source.join("large"), content(7, 60 << 20)).expect("written");
    let from = source.display().to_string();
    rclone.run(&["copy", &from, "b:up"]);
    assert_eq!(sim.counts()["UploadPart"], 8, "60 MiB go in parts");
    // The token is good no longer; the next one is written back.
    sim.expire();
    let text = fs::read_to_string(&config).expect("read").replace("2999-", "2001-");
    fs::write(&config, text).expect("written");
    rclone.run(&["check", &from, "b:up"]);
    assert_eq!(sim.renewals(), 1);
    assert_eq!(rclone.run(&["lsf", "-R", "--files-only", "b:up"]).lines().count(), names.len() + 1);
    let format = ["--files-only", "--format", "pst", "--time-format", "RFC3339"];
    let list = |dir: &str| {
        let listed = rclone.run(&[&["lsf", "-R", dir][..], &format].concat());
        let mut lines: Vec<String> = listed.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(list("b:up"), list(&from));
    let back = lab.path("back");
    rclone.run(&["copy", "b:up", &back.display().to_string()]);
    rclone.run(&["check", &from, &back.display().to_string()]);
    rclone.run(&["copy", "b:up/d", "b:copied"]);
    rclone.run(&["check", "b:up/d", "b:copied"]);
    fs::write(source.join("a"), "another").expect("written");
    rclone.run(&["copy", &from, "b:up"]);
    assert_eq!(sim.shown()["up/a"].versions, 2);
    rclone.run(&["moveto", "b:up/a", "b:up/A2"]);
    rclone.run(&["moveto", "b:copied", "b:moved"]);
    rclone.run(&["delete", "b:up/d/e"]);
    rclone.run(&["purge", "b:moved"]);
    assert!(rclone.run(&["about", "b:"]).contains("931.323 GiB"));
    rclone.run(&["link", "b:up/A2"]);
    assert_eq!(rclone.run(&["lsf", "b:up"]), "A2\nd/\nempty\nlarge\n");
    rclone.run(&["cleanup", "b:"]);
    assert_eq!(sim.trashed(), 0);
    // What rclone wrote, and the reverse.
    let store = open(&sim, "up", &[]);
    let read = store.read(&Key::new("d/quote\"'#%"), None, None).await.expect("there");
    assert_eq!(collect(read).await.expect("bytes"), b"d/quote\"'#%");
    let ours = lab.path("ours");
    fs::create_dir(&ours).expect("made");
    let mtime = Mtime::new(1_600_000_000, 0);
    let names =
        ["one", "ends ", " begins", "back\\slash", "ü", "．．", "del\u{7f}", "tab\t", "a:b*c?", "％", "‛／", "..."];
    for name in names {
        let spec = WriteSpec { mtime: Some(mtime), ..Default::default() };
        put(&*store, &format!("new/{name}"), name.as_bytes(), spec).await.expect("written");
        fs::write(ours.join(name), name).expect("written");
    }
    let ours = ours.display().to_string();
    rclone.run(&["check", &ours, "b:up/new"]);
    rclone.run(&["copy", &ours, "b:up/other"]);
    let below = |top: &str| -> Vec<String> {
        sim.shown().into_keys().filter_map(|path| path.strip_prefix(top).map(str::to_owned)).collect()
    };
    assert_eq!(below("up/new/"), below("up/other/"));
    assert_eq!(below("up/new/").len(), names.len());
    let listed = rclone.run(&["lsf", "--format", "pt", "--time-format", "RFC3339", "b:up/new/one"]);
    assert!(listed.starts_with("one;2020-09-13T"), "{listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone_signs_as_haul_does() {
    let Some(program) = peers::need("rclone") else { return };
    let (lab, sim) = (Lab::new(""), BoxSim::start(Settings::default()).expect("a port"));
    sim.put("d/f", b"text");
    let hosts = ["api.box.com", "upload.box.com"].map(|host| (host, sim.address()));
    let Some(interceptor) = Interceptor::start(&lab, &hosts) else { return };
    let config = lab.path("rclone.conf");
    let rclone = Rclone { program: &program, config: config.display().to_string(), interceptor: &interceptor };
    for cipher in ["-v2 des3 -v2prf hmacWithSHA1", "-v2 aes-256-cbc"] {
        let Some(file) = sim.application(&lab, Some(cipher), "pass word") else { return };
        let path = lab.path("application.json");
        fs::write(&path, file).expect("written");
        let path = format!("box_config_file={}", path.display());
        sim.expire();
        rclone.run(&["config", "create", "j", "box", &path, "box_sub_type=enterprise"]);
        assert_eq!(rclone.run(&["lsf", "-R", "j:"]), "d/\nd/f\n", "{cipher}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn boxs_own_sdk_passes() {
    let Some(python) = peers::need("cloud_sdks") else { return };
    let (lab, sim) = (Lab::new(""), BoxSim::start(Settings::default()).expect("a port"));
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/sdk.py");
    let ran = lab.run(&python, &[script, &sim.endpoint(), "access-0"]).ok();
    assert_eq!(ran.out.trim(), "passed");
    let store = open(&sim, "sdk", &[]);
    let read = store.read(&Key::new("small"), None, None).await.expect("there");
    assert_eq!(collect(read).await.expect("bytes"), b"other");
}
