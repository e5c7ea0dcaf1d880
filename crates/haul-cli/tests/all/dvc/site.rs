//! A repository in a folder of its own, and ways to run haul, dvc and git in it.

use haul_testkit::{
    lab::{Lab, ProgramResult},
    minio::{ACCESS_KEY, Minio, SECRET_KEY},
    peers,
    servers::Server,
};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

pub const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// A lab with a repository `r`, and ways to run programs in it.
pub struct Site {
    pub lab: Lab,
    dvc: Option<PathBuf>,
    pub repo: PathBuf,
}

impl Site {
    /// A repository in git whose remote `s` is the folder `rem` of the lab.
    pub fn new() -> Site {
        let lab = Lab::new(HAUL);
        let (dvc, repo) = (peers::find("dvc"), lab.path("r"));
        let site = Site { lab, dvc, repo };
        fs::create_dir_all(site.repo.join(".dvc")).unwrap();
        fs::write(site.repo.join(".dvc/.gitignore"), "/config.local\n/tmp\n/cache\n").unwrap();
        fs::write(
            site.repo.join(".dvc/config"),
            "[core]\n    remote = s\n    analytics = false\n['remote \"s\"']\n    url = ../../rem\n",
        )
        .unwrap();
        site.git(&["init", "-q", "-b", "main"]);
        site
    }

    pub fn run(&self, mut command: Command, folder: &Path) -> ProgramResult {
        command.current_dir(folder).stdin(Stdio::null());
        command.env("DVC_SITE_CACHE_DIR", self.lab.path("site")).env("DVC_NO_ANALYTICS", "1");
        for (name, value) in
            [("AUTHOR_NAME", "a"), ("AUTHOR_EMAIL", "a@b"), ("COMMITTER_NAME", "a"), ("COMMITTER_EMAIL", "a@b")]
        {
            command.env(format!("GIT_{name}"), value);
        }
        let output = command.output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().unwrap_or(-1);
        ProgramResult { code, out: text(&output.stdout), err: text(&output.stderr), line: format!("{command:?}") }
    }

    pub fn haul_in(&self, folder: &Path, args: &[&str]) -> ProgramResult {
        self.run(self.lab.haul_command(args), folder)
    }

    pub fn haul(&self, args: &[&str]) -> ProgramResult {
        self.haul_in(&self.repo, args)
    }

    /// True if dvc is there; otherwise says that the test, or the rest of it, is skipped.
    pub fn has_dvc(&self) -> bool {
        self.dvc.is_some() || peers::need("dvc").is_some()
    }

    pub fn dvc_in(&self, folder: &Path, args: &[&str]) -> ProgramResult {
        let mut command = self.lab.command(self.dvc.as_deref().expect("dvc"));
        command.args(args);
        self.run(command, folder)
    }

    pub fn dvc(&self, args: &[&str]) -> ProgramResult {
        self.dvc_in(&self.repo, args)
    }

    pub fn git(&self, args: &[&str]) -> ProgramResult {
        let mut command = self.lab.command(Path::new("git"));
        command.args(args);
        self.run(command, &self.repo).ok()
    }

    pub fn commit(&self) {
        self.git(&["add", "-A"]);
        self.git(&["commit", "-q", "-m", "x"]);
    }

    pub fn clone_to(&self, name: &str) -> PathBuf {
        let to = self.lab.path(name);
        self.git(&["clone", "-q", ".", &to.display().to_string()]);
        to
    }

    pub fn set_config(&self, text: &str) {
        fs::write(self.repo.join(".dvc/config"), text).unwrap();
    }

    pub fn write(&self, name: &str, content: &[u8]) {
        let path = self.repo.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// The tree whose hashes in both layouts DVC computed.
    pub fn tree(&self) {
        for (name, content) in [
            ("a.txt", "hello\n"),
            ("crlf.txt", "hello\r\nworld\r\n"),
            ("empty", ""),
            ("sub/bin", "x\0y"),
            ("sub/dup.txt", "hello\n"),
            ("sub/run.sh", "exec"),
            ("ünï/日本 \"q\"\\ file.txt", "u"),
        ] {
            self.write(&format!("data/{name}"), content.as_bytes());
        }
    }

    /// The repository's remote is a new bucket on MinIO; `None` when there is no MinIO.
    pub fn on_s3(&self) -> Option<(&'static Server, String)> {
        let minio = Minio::shared()?;
        let bucket = minio.bucket("dvc");
        self.remote_at(&minio.endpoint(), &format!("{bucket}/deep/er"));
        Some((minio, bucket))
    }

    /// The repository's remote, and haul's remote `m`, are an S3 server.
    pub fn remote_at(&self, endpoint: &str, path: &str) {
        self.set_config(&format!(
            "[core]\n    remote = s\n    analytics = false\n['remote \"s\"']\n    url = s3://{path}\n    endpointurl = {endpoint}\n    \
             region = us-east-1\n    access_key_id = {ACCESS_KEY}\n    secret_access_key = {SECRET_KEY}\n"
        ));
        self.lab.remote("m", endpoint);
    }
}

pub const TREE: &str = "1e22361e83161aaf6ea7cfed91cb7df2.dir";
pub const TREE_V2: &str = "f002d69cdbd0d536fcd0a4eea1cb2091.dir";
pub const UP_TO_DATE: &str = "Data and pipelines are up to date.\n";

pub fn same_files(a: &Path, b: &Path) {
    let of = |path: &Path| -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut all = Vec::new();
        let mut left = vec![path.to_path_buf()];
        while let Some(folder) = left.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let full = entry.unwrap().path();
                match full.is_dir() {
                    true => left.push(full),
                    false => {
                        let name = full.strip_prefix(path).unwrap().as_os_str().as_encoded_bytes().to_vec();
                        all.push((name, fs::read(&full).unwrap()));
                    }
                }
            }
        }
        all.sort();
        all
    };
    let (a, b) = (of(a), of(b));
    assert!(!a.is_empty());
    assert_eq!(a, b);
}

/// Names below a folder.
pub fn names(folder: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut left = vec![folder.to_path_buf()];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(dir).into_iter().flatten() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => left.push(path),
                false => drop(found.insert(path.strip_prefix(folder).unwrap().display().to_string())),
            }
        }
    }
    found
}
