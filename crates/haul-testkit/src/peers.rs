//! Programs that are not ours and that tests run haul against: where they are, and what a test says that lacks one.

use std::{
    env, fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The workspace's folder.
pub fn workspace() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Finds a program: in the folder of tools (`$HAUL_TEST_TOOLS`, then `target/tools/bin`) or in an environment of its own beside it
/// (`../NAME/bin`, for those from PyPI), then in `PATH`, then in `~/go/bin`.
pub fn find(program: &str) -> Option<PathBuf> {
    let mut folders = Vec::new();
    let given = env::var_os("HAUL_TEST_TOOLS").map(PathBuf::from);
    for tools in given.into_iter().chain([workspace().join("target/tools/bin")]) {
        let own = tools.parent().map(|beside| beside.join(program).join("bin"));
        folders.push(tools);
        folders.extend(own);
    }
    folders.extend(env::var_os("PATH").iter().flat_map(env::split_paths));
    folders.extend(env::var_os("HOME").map(|home| Path::new(&home).join("go/bin")));
    folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file())
}

/// A program that a test can't do without; `None` after saying that the test is skipped.
pub fn need(program: &str) -> Option<PathBuf> {
    let found = find(program);
    if found.is_none() {
        skip(&format!("{program} is not installed"));
    }
    found
}

/// Says that a test did nothing, and why; the test returns after this. `make test` counts these.
pub fn skip(why: &str) {
    eprintln!("skipped: {why}");
    let target = workspace().join("target");
    // The count is a courtesy: without the file the line above still says it.
    let _ = fs::create_dir_all(&target);
    if let Ok(mut file) = fs::File::options().create(true).append(true).open(target.join("skipped.txt")) {
        let _ = writeln!(file, "skipped: {why}");
    }
}

/// A program of this crate, where cargo has built it; `None` after saying that the test is skipped.
pub fn own(program: &str) -> Option<PathBuf> {
    let test = env::current_exe().ok()?;
    // Tests are in `deps` below the folder of programs.
    let found = test.ancestors().skip(1).take(2).map(|folder| folder.join(program)).find(|path| path.is_file());
    if found.is_none() {
        skip(&format!("{program} isn't built: cargo build -p haul-testkit"));
    }
    found
}

/// Makes a key for ssh, and beside it (`.pub`) its public part.
///
/// Panics if it can't be made.
pub fn ssh_key(path: &Path, passphrase: &str) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", passphrase, "-f"]).arg(path);
    let status = command.stdin(Stdio::null()).status().expect("ssh-keygen runs");
    assert!(status.success(), "ssh-keygen made no key");
}
