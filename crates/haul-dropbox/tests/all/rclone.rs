//! rclone on the simulator, and at the other side of the store.

use crate::dropbox::{listed, open, put};
use haul_core::{ErrorKind, Key, Mtime};
use haul_store::{ListRequest, WriteSpec};
use haul_testkit::{
    conformance::collect,
    dropboxsim::{Dropbox, Settings},
    interceptor::Interceptor,
    lab::Lab,
    peers,
};
use std::{fs, path::Path, process::Command};

pub const HOSTS: [&str; 3] = ["api.dropboxapi.com", "content.dropboxapi.com", "notify.dropboxapi.com"];

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
    let service = Dropbox::start(Settings { page: 4, ..Settings::default() }).expect("a port");
    let hosts = HOSTS.map(|host| (host, service.address()));
    let Some(interceptor) = Interceptor::start(&lab, &hosts) else { return };
    let config = lab.path("rclone.conf");
    fs::write(&config, format!("[d]\ntype = dropbox\ntoken = {}\n", service.token())).expect("written");
    let rclone = Rclone { program: &program, config: config.display().to_string(), interceptor: &interceptor };
    let source = lab.path("source");
    let names = ["a", "d/b c", "d/e/ü é", "d/e/back\\slash", "d/ends ", "d/．", "d/quote\"'#%", "empty"];
    for name in names {
        let path = source.join(name);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, if name == "empty" { "" } else { name }).expect("written");
    }
    fs::write(source.join("large"), vec![7; 9 << 20]).expect("written");
    let from = source.display().to_string();
    rclone.run(&["copy", &from, "d:up", "--dropbox-chunk-size", "4Mi"]);
    rclone.run(&["check", &from, "d:up"]);
    assert_eq!(rclone.run(&["lsf", "-R", "--files-only", "d:up"]).lines().count(), names.len() + 1);
    let back = lab.path("back");
    rclone.run(&["copy", "d:up", &back.display().to_string()]);
    rclone.run(&["check", &from, &back.display().to_string()]);
    rclone.run(&["moveto", "d:up/a", "d:up/A2"]);
    rclone.run(&["delete", "d:up/d/e"]);
    rclone.run(&["about", "d:"]);
    assert_eq!(rclone.run(&["lsf", "d:up"]), "A2\nd/\nempty\nlarge\n");
    // What rclone wrote, and the reverse.
    let store = open(&service, "up", &[]);
    let read = store.read(&Key::new("d/quote\"'#%"), None, None).await.expect("there");
    assert_eq!(collect(read).await.expect("bytes"), b"d/quote\"'#%");
    let ours = lab.path("ours");
    fs::create_dir(&ours).expect("made");
    let mtime = Mtime::new(1_600_000_000, 0);
    for name in ["one", "ends ", "back\\slash", "ü", "．．", "del\u{7f}"] {
        put(&*store, &format!("new/{name}"), name.as_bytes(), WriteSpec { mtime: Some(mtime), ..Default::default() })
            .await
            .expect("written");
        fs::write(ours.join(name), name).expect("written");
    }
    rclone.run(&["check", &ours.display().to_string(), "d:up/new"]);
    let listed = rclone.run(&["lsf", "--format", "pt", "--time-format", "RFC3339", "d:up/new/one"]);
    assert!(listed.starts_with("one;2020-09-13T12:26:40"), "{listed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone_finds_what_a_team_has_and_others_share_and_so_does_haul() {
    let Some(program) = peers::need("rclone") else { return };
    let lab = Lab::new("");
    let service = Dropbox::start(Settings { page: 2, team: true, ..Settings::default() }).expect("a port");
    let hosts = HOSTS.map(|host| (host, service.address()));
    let Some(interceptor) = Interceptor::start(&lab, &hosts) else { return };
    let config = lab.path("rclone.conf");
    fs::write(&config, format!("[d]\ntype = dropbox\ntoken = {}\n", service.token())).expect("written");
    let rclone = Rclone { program: &program, config: config.display().to_string(), interceptor: &interceptor };
    service.put("/own", b"own");
    service.put_in_team("/Plans/plan", b"the team's");
    let folders = ["Alpha", "Beta", "Gamma", "Delta", "Epsilon"];
    for name in folders {
        service.share(name, &[("d/f", name.as_bytes())]);
    }
    // A path that begins with a slash is the team's.
    assert_eq!(rclone.run(&["lsf", "d:/"]), "Plans/\n");
    assert_eq!(rclone.run(&["lsf", "-R", "d:/Plans"]), "plan\n");
    assert_eq!(rclone.run(&["lsf", "d:"]), "own\n");
    assert_eq!(rclone.run(&["lsf", "-R", "d:Plans", "--dropbox-root-namespace", "2"]), "plan\n");
    let shared = ["--dropbox-shared-folders"];
    assert_eq!(rclone.run(&[&["lsf", "d:"][..], &shared].concat()), "Alpha/\nBeta/\nDelta/\nEpsilon/\nGamma/\n");
    assert_eq!(rclone.run(&[&["lsf", "d:Beta"][..], &shared].concat()), "d/\n");
    assert_eq!(rclone.run(&["cat", "d:Beta/d/f"]), "Beta");
    assert_eq!(rclone.run(&["lsf", "d:"]), "Beta/\nown\n");
    // haul, where rclone has been and where nobody has.
    let team = open(&service, "/Plans", &[]);
    put(&*team, "ours", b"ours", WriteSpec::default()).await.expect("written");
    assert!(service.all_of_team().contains_key("/Plans/ours"), "{:?}", service.all_of_team());
    assert_eq!(rclone.run(&["cat", "d:/Plans/ours"]), "ours");
    let by_number = open(&service, "Plans", &[("root_namespace", "2")]);
    assert_eq!(listed(&*by_number, ListRequest::all()).await, ["ours", "plan", "end"]);
    let all = open(&service, "", &[("shared_folders", "true")]);
    let names = listed(&*all, ListRequest::dir("")).await;
    assert_eq!(names, ["Alpha/", "Beta/", "Delta/", "Epsilon/", "Gamma/", "end"]);
    assert_eq!(listed(&*all, ListRequest::all()).await, ["failed: Unsupported"]);
    let why = put(&*all, "x", b"x", WriteSpec::default()).await.expect_err("refused");
    let words = "with shared_folders, name one of the folders: remote:FOLDER (haul lsd remote: lists them)";
    assert_eq!(why.message(), words);
    for name in ["Beta", "Gamma"] {
        let store = open(&service, &format!("{name}/d"), &[("shared_folders", "true")]);
        let read = store.read(&Key::new("f"), None, None).await.expect("there");
        assert_eq!(collect(read).await.expect("bytes"), name.as_bytes());
        put(&*store, "new", b"new", WriteSpec::default()).await.expect("written");
        assert_eq!(listed(&*store, ListRequest::all()).await, ["f", "new", "end"]);
    }
    assert_eq!(rclone.run(&["lsf", "d:Gamma/d"]), "f\nnew\n");
    let none = open(&service, "Zeta", &[("shared_folders", "true")]);
    assert_eq!(none.stat(&Key::new("")).await.expect_err("nobody's").kind(), ErrorKind::DirNotFound);
    assert_eq!(listed(&*none, ListRequest::all()).await, ["failed: DirNotFound"]);
}
