//! What goes wrong on the way: every file is right in the end, or reported and the exit code isn't 0; never is half a
//! file visible, nothing is deleted by mistake, and nothing leaves the destination.

use haul_testkit::{
    amount,
    cloudsim::Cloudsim,
    folder::{self, Tree, assert_same, files, link, noise, write},
    fuse::{FsBehaviour, MountedFs},
    lab::{Lab, ProgramResult, until},
    minio::Minio,
    peers,
    proxy::{Fault, Proxy, RuleScope},
};
use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Child, Command},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;
/// Parts as small as S3 allows, so that a file of some megabytes has several; little patience, so that a hang is short.
const QUICK: [&str; 7] = [
    "--s3-upload-cutoff=6Mi",
    "--s3-chunk-size=5Mi",
    "--multi-thread-cutoff=6Mi",
    "--multi-thread-chunk-size=5Mi",
    "--multi-thread-streams=4",
    "--timeout=2s",
    "--contimeout=5s",
];

struct Broken {
    lab: Lab,
    proxy: Proxy,
    /// The bucket through the proxy, and directly.
    there: String,
    direct: String,
}

impl Broken {
    /// A remote behind a proxy without rules yet, a bucket, and a folder with small files and one for parts.
    fn new(hint: &str) -> Option<Broken> {
        let minio = Minio::shared()?;
        let (lab, proxy) = (Lab::new(HAUL), Proxy::start(minio.address).unwrap());
        lab.remote("p", &proxy.endpoint());
        lab.remote("m", &minio.endpoint());
        for n in 0..20 {
            write(&lab.path(&format!("src/{}/{n}", n % 3)), &noise(n, 1_000 * n as usize), TIME + n);
        }
        write(&lab.path("src/parts.bin"), &noise(77, 16 * MIB + 5), TIME);
        let bucket = minio.bucket(hint);
        Some(Broken { lab, proxy, there: format!("p:{bucket}"), direct: format!("m:{bucket}") })
    }

    fn src(&self) -> Tree {
        files(&folder::read(&self.lab.path("src")))
    }

    fn run(&self, args: &[&str]) -> ProgramResult {
        self.lab.haul(&[args, &QUICK].concat())
    }

    /// What is in the bucket now, fetched around the proxy.
    fn stored(&self, at: &str) -> Tree {
        let fetched = self.lab.path("fetched");
        // It isn't there at the first call.
        let _ = fs::remove_dir_all(&fetched);
        self.lab.haul(&["copy", at, "@fetched"]).ok();
        files(&folder::read(&fetched))
    }
}

#[test]
fn uploads_come_right_after_any_fault() {
    if Minio::shared().is_none() {
        return;
    }
    let passing = [Fault::Internal, Fault::SlowDown(1), Fault::Reset, Fault::LostAnswer];
    let mut cases: Vec<(&'static str, Fault)> = Vec::new();
    for operation in ["PutObject", "UploadPart", "CreateMultipartUpload", "CompleteMultipartUpload"] {
        cases.extend(passing.map(|fault| (operation, fault)));
    }
    cases.extend([("PutObject", Fault::WrongEtag), ("UploadPart", Fault::WrongEtag)]);
    cases.extend([("PutObject", Fault::Hang), ("UploadPart", Fault::Hang)]);
    cases.push(("CompleteMultipartUpload", Fault::ErrorIn200));
    cases.extend([("ListObjectsV2", Fault::Internal), ("ListObjectsV2", Fault::Reset)]);
    cases.extend([("ListObjectsV2", Fault::CutBody(100)), ("ListObjectsV2", Fault::StallBody(100))]);
    amount::each(cases, |(operation, fault)| {
        let Some(b) = Broken::new("up") else { return };
        b.proxy.rule(operation, RuleScope::Nth(vec![1]), fault);
        let ran = b.run(&["copy", "@src", &b.there]).ok();
        assert_eq!(b.proxy.faults(), 1, "{operation} {fault:?} did not happen: {:?}\n{}", b.proxy.counts(), ran.err);
        let what = format!("{operation} {fault:?}");
        assert_same(&b.src(), &b.stored(&b.direct), &what);
    });
}

#[test]
fn downloads_come_right_after_any_fault() {
    let faults = [
        Fault::Internal,
        Fault::SlowDown(1),
        Fault::Reset,
        Fault::Hang,
        Fault::CutBody(0),
        Fault::CutBody(10),
        Fault::CutBody(3_000_000),
        Fault::StallBody(1_000),
    ];
    amount::each(faults, |fault| {
        let Some(b) = Broken::new("down") else { return };
        b.lab.haul(&["copy", "@src", &b.direct]).ok();
        b.proxy.rule("GetObject", RuleScope::Every(5), fault);
        b.run(&["copy", &b.there, "@back"]).ok();
        assert!(b.proxy.faults() >= 4, "{fault:?} did not happen: {:?}", b.proxy.counts());
        let back = folder::read(&b.lab.path("back"));
        assert_same(&b.src(), &files(&back), &format!("{fault:?}"));
    });
}

#[test]
fn copies_and_deletes_inside_the_server_come_right() {
    let Some(b) = Broken::new("inside") else { return };
    b.lab.haul(&["copy", "@src", &format!("{}/a", b.direct)]).ok();
    let src = b.src();
    let faults = [Fault::Internal, Fault::SlowDown(1), Fault::Reset, Fault::LostAnswer, Fault::ErrorIn200];
    for fault in faults {
        b.proxy.reset();
        b.proxy.rule("CopyObject", RuleScope::Every(6), fault);
        b.run(&["copy", &format!("{}/a", b.there), &format!("{}/b", b.there)]).ok();
        assert!(b.proxy.faults() > 0, "CopyObject {fault:?} did not happen: {:?}", b.proxy.counts());
        assert_same(&src, &b.stored(&format!("{}/b", b.direct)), &format!("CopyObject {fault:?}"));
        if fault == Fault::ErrorIn200 {
            continue;
        }
        b.proxy.reset();
        b.proxy.rule("DeleteObjects", RuleScope::Nth(vec![1]), fault);
        b.run(&["delete", &format!("{}/b", b.there)]).ok();
        assert_eq!(b.proxy.faults(), 1, "DeleteObjects {fault:?} did not happen: {:?}", b.proxy.counts());
        assert_eq!(b.lab.haul(&["lsf", "-R", &format!("{}/b", b.direct)]).out, "", "DeleteObjects {fault:?}");
    }
}

#[test]
fn a_sync_through_a_bad_network_comes_right() {
    let Some(b) = Broken::new("rate") else { return };
    for n in 0..200 {
        write(&b.lab.path(&format!("src/many/{n:03}")), &noise(n, n as usize), TIME + n);
    }
    b.proxy.rule("*", RuleScope::Rate(42, 60), Fault::Reset);
    b.proxy.rule("*", RuleScope::Rate(43, 60), Fault::Internal);
    b.proxy.rule("GetObject", RuleScope::Rate(44, 60), Fault::CutBody(5));
    b.run(&["sync", "@src", &b.there]).ok();
    b.run(&["sync", &b.there, "@back"]).ok();
    assert!(b.proxy.faults() > 20, "{}", b.proxy.faults());
    assert_same(&b.src(), &files(&folder::read(&b.lab.path("back"))), "up and down through faults");
}

#[test]
fn what_stays_broken_is_reported_and_the_rest_arrives() {
    let Some(b) = Broken::new("stays") else { return };
    b.proxy.rule("CompleteMultipartUpload", RuleScope::Always, Fault::Internal);
    // Nothing hangs, so nothing need be given up early: of two tries a busy machine would miss both.
    let few = ["--low-level-retries=2", "--retries=1"];
    let run = |args: &[&str]| b.lab.haul(&[args, &few, &QUICK[..5]].concat());
    let ran = run(&["copy", "@src", &b.there]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("parts.bin"), "{}", ran.err);
    let mut want = b.src();
    want.remove(Path::new("parts.bin"));
    assert_same(&want, &b.stored(&b.direct), "all but the one");

    // A store that answers with the checksum of something else is not believed.
    b.proxy.reset();
    b.proxy.rule("PutObject", RuleScope::Always, Fault::WrongEtag);
    write(&b.lab.path("one/x"), b"some bytes", TIME);
    // A store whose ETag is all that it says of the content.
    let ran = run(&["copy", "@one", &b.there, "--s3-provider=Other"]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("x: "), "{}", ran.err);
}

#[test]
fn a_source_whose_listing_breaks_deletes_nothing() {
    let Some(b) = Broken::new("listing") else { return };
    b.lab.haul(&["copy", "@src", &b.direct]).ok();
    b.lab.haul(&["copy", "@src", "@back"]).ok();
    write(&b.lab.path("back/extra"), b"extra", TIME);
    write(&b.lab.path("back/zz/extra"), b"extra", TIME);
    for fault in [Fault::Internal, Fault::CutBody(500), Fault::Reset] {
        b.proxy.reset();
        b.proxy.rule("ListObjectsV2", RuleScope::Always, fault);
        let ran = b.run(&["sync", &b.there, "@back", "--low-level-retries=2", "--retries=1"]);
        assert_ne!(ran.code, 0, "{fault:?}: {}", ran.err);
        let back = folder::read(&b.lab.path("back"));
        assert!(back.contains_key(Path::new("extra")) && back.contains_key(Path::new("zz/extra")), "{fault:?}");
        assert_eq!(files(&back).len(), b.src().len() + 2, "{fault:?}");
    }
}

/// Sends a signal by name, and waits for the end.
fn signal(lab: &Lab, child: Child, name: &str) -> ProgramResult {
    let sent = Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).status();
    assert!(sent.unwrap().success());
    lab.end(child)
}

/// The files in a folder that a person sees: not those whose name says that they are on the way.
fn visible(root: &Path) -> BTreeSet<String> {
    let names = folder::read(root).into_keys().map(|path| path.display().to_string());
    names.filter(|name| !name.ends_with(".partial")).collect()
}

#[test]
fn an_upload_that_is_killed_shows_nothing_and_the_next_run_completes_it() {
    let Some(b) = Broken::new("killed") else { return };
    for name in ["KILL", "INT", "TERM"] {
        b.proxy.reset();
        b.proxy.rule("UploadPart", RuleScope::Nth(vec![3, 4, 5, 6, 7, 8]), Fault::Hang);
        let there = format!("{}/{name}", b.there);
        let args = ["copyto", "@src/parts.bin", &there, "--s3-upload-cutoff=6Mi", "--s3-chunk-size=5Mi"];
        let child = b.lab.start(&args);
        assert!(until(|| b.proxy.counts().get("UploadPart").is_some_and(|n| *n >= 3)), "{:?}", b.proxy.counts());
        let ran = signal(&b.lab, child, name);
        assert_eq!(ran.code, if name == "KILL" { 137 } else { 130 }, "SIG{name}: {}", ran.err);
        let listed = b.lab.haul(&["lsf", &b.direct]).ok();
        assert!(!listed.lines().contains(&name), "SIG{name} left {}", listed.out);
        b.proxy.reset();
        b.run(&args[..3]).ok();
        b.lab.haul(&["copyto", &format!("{}/{name}", b.direct), &format!("@got{name}")]).ok();
        assert_eq!(fs::read(b.lab.path(&format!("got{name}"))).unwrap(), noise(77, 16 * MIB + 5), "SIG{name}");
    }
}

#[test]
fn a_download_that_is_killed_shows_nothing_and_the_next_run_completes_it() {
    let Some(b) = Broken::new("killget") else { return };
    b.lab.haul(&["copyto", "@src/parts.bin", &format!("{}/parts.bin", b.direct)]).ok();
    for name in ["KILL", "INT", "TERM"] {
        b.proxy.reset();
        b.proxy.rule("GetObject", RuleScope::Always, Fault::StallBody(2 * MIB as u64));
        let to = format!("dst{name}");
        let child = b.lab.start(&["copy", &b.there, &format!("@{to}")]);
        assert!(until(|| !folder_names(&b.lab.path(&to)).is_empty()), "nothing arrives");
        let ran = signal(&b.lab, child, name);
        assert_eq!(ran.code, if name == "KILL" { 137 } else { 130 }, "SIG{name}: {}", ran.err);
        assert!(visible(&b.lab.path(&to)).is_empty(), "{:?}", visible(&b.lab.path(&to)));
        b.proxy.reset();
        b.run(&["copy", &b.there, &format!("@{to}")]).ok();
        if name != "KILL" {
            // The transfer of the large file was resumed.
            assert_eq!(folder_names(&b.lab.path(&to)), ["parts.bin"], "SIG{name}");
        }
        assert_eq!(visible(&b.lab.path(&to)), BTreeSet::from(["parts.bin".to_owned()]));
        assert_eq!(fs::read(b.lab.path(&to).join("parts.bin")).unwrap(), noise(77, 16 * MIB + 5), "SIG{name}");
    }
}

/// The names in a folder, without reading what is in the files.
fn folder_names(dir: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_local_copy_that_is_killed_shows_nothing_and_the_next_run_completes_it() {
    let lab = Lab::new(HAUL);
    let bytes = noise(8, 24 * MIB);
    write(&lab.path("src/big"), &bytes, TIME);
    for name in ["KILL", "INT", "TERM"] {
        let to = format!("dst{name}");
        let child = lab.start(&["copy", "@src", &format!("@{to}"), "--bwlimit=4M"]);
        assert!(until(|| !folder_names(&lab.path(&to)).is_empty()), "nothing arrives");
        let ran = signal(&lab, child, name);
        assert_eq!(ran.code, if name == "KILL" { 137 } else { 130 }, "SIG{name}: {}", ran.err);
        assert!(visible(&lab.path(&to)).is_empty(), "{:?}", visible(&lab.path(&to)));
        lab.haul(&["copy", "@src", &format!("@{to}")]).ok();
        assert_eq!(fs::read(lab.path(&to).join("big")).unwrap(), bytes, "SIG{name}");
    }
}

/// A small file system of its own; unmounted when dropped.
struct Small<'a>(&'a Path);

impl Small<'_> {
    fn mount(at: &Path) -> Option<Small<'_>> {
        fs::create_dir(at).unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=3m", "haul-test"]).arg(at).output();
        mounted.is_ok_and(|out| out.status.success()).then_some(Small(at))
    }
}

impl Drop for Small<'_> {
    fn drop(&mut self) {
        // If it stays mounted, the folder can't be removed, which is all.
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_reported_and_leaves_whole_files_only() {
    let lab = Lab::new(HAUL);
    let at = lab.path("small");
    let Some(_small) = Small::mount(&at) else { return peers::skip("a small file system can't be mounted here") };
    write(&lab.path("src/a"), &noise(1, MIB), TIME);
    write(&lab.path("src/b"), &noise(2, 8 * MIB), TIME);
    let ran = lab.haul(&["copy", "@src", "@small/dst", "--retries=1"]).code(1);
    let line = ran.err.lines().find(|line| line.contains("no space left at ")).unwrap_or_else(|| panic!("{}", ran.err));
    assert!(line.contains("(it began with b: No space left on device"), "{line}");
    let kept = folder::read(&at.join("dst"));
    assert!(kept.keys().all(|path| path == Path::new("a")), "{:?}", kept.keys());
    if let Some(node) = kept.get(Path::new("a")) {
        assert_eq!(Some(node), folder::read(&lab.path("src")).get(Path::new("a")));
    }
}

/// What is replaced has its name until the new file takes it, with a backup too: whether a copy fails, is killed, or is one of many.
#[test]
fn a_copy_that_fails_leaves_the_old_file_under_its_name() {
    for (ignored, command) in [true, false].into_iter().flat_map(|ignored| {
        let ways = [&["sync", "--backup-dir", "@bak"][..], &["copy", "--suffix", ".old"], &["rsync", "-ab"]];
        ways.into_iter().map(move |way| (ignored, way))
    }) {
        let lab = Lab::new(HAUL);
        for n in 0..20 {
            write(&lab.path(&format!("s/{n}")), &noise(n, 20_000), TIME + 9_000_000_000);
            write(&lab.path(&format!("d/{n}")), b"old", TIME);
        }
        write(&lab.path("s/large"), &noise(1, 3 * MIB), TIME + 9_000_000_000);
        write(&lab.path("d/large"), b"old", TIME);
        let old = folder::read(&lab.path("d"));
        let haul = lab.haul_command(&[command, &["@s/", "@d"]].concat());
        // No file may be longer than 8 KiB: a longer one is an error, or ends the program.
        let trap = if ignored { "trap '' XFSZ; " } else { "" };
        let mut limited = Command::new("sh");
        limited.arg("-c").arg(format!("{trap}ulimit -c 0; ulimit -f 16; exec \"$0\" \"$@\""));
        limited.arg(haul.get_program()).args(haul.get_args());
        limited.envs(haul.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let ended = limited.output().unwrap();
        assert!(!ended.status.success(), "{command:?}");
        for (name, entry) in files(&old) {
            assert_eq!(
                files(&folder::read(&lab.path("d"))).get(&name),
                Some(&entry),
                "{command:?} {ignored}: {name:?}"
            );
        }
        if ignored {
            assert!(
                !lab.path("bak/large").exists() && !lab.path("d/large.old").exists() && !lab.path("d/large~").exists()
            );
        }
        lab.haul(&[command, &["@s/", "@d"]].concat()).ok();
        assert_eq!(fs::read(lab.path("d/large")).unwrap(), noise(1, 3 * MIB));
        let backup = match command[0] {
            "sync" => "bak/large",
            "copy" => "d/large.old",
            _ => "d/large~",
        };
        assert_eq!(fs::read(lab.path(backup)).unwrap(), b"old", "{command:?}");
    }
}

#[test]
fn a_directory_that_could_not_be_made_stays_at_the_source_of_a_move() {
    let lab = Lab::new(HAUL);
    fs::create_dir_all(lab.path("s/empty/in")).unwrap();
    write(&lab.path("s/f"), b"text", TIME);
    write(&lab.path("d/empty"), b"a file", TIME);
    let ran = lab.haul(&["move", "--create-empty-src-dirs", "--delete-empty-src-dirs", "@s", "@d"]);
    assert!(ran.code != 0, "{}", ran.err);
    assert!(lab.path("s/empty/in").is_dir() && lab.path("d/f").exists(), "{}", ran.err);
    fs::remove_file(lab.path("d/empty")).unwrap();
    lab.haul(&["move", "--create-empty-src-dirs", "--delete-empty-src-dirs", "@s", "@d"]).ok();
    assert!(lab.path("d/empty/in").is_dir() && !lab.path("s/empty").exists());
}

#[test]
fn a_backup_may_be_another_name_of_what_it_is_of() {
    let new = TIME + 9_000_000_000;
    let args = ["sync", "@s", "@d", "--backup-dir", "@bak"];
    // Two names of one file: each becomes a backup, though that changes the other.
    let lab = Lab::new(HAUL);
    for name in ["s/f", "s/g"] {
        write(&lab.path(name), b"new content", new);
    }
    write(&lab.path("d/f"), b"old", TIME);
    fs::hard_link(lab.path("d/f"), lab.path("d/g")).unwrap();
    lab.haul(&args).ok();
    let read = |name: &str| fs::read_to_string(lab.path(name)).unwrap();
    assert_eq!(["d/f", "d/g", "bak/f", "bak/g"].map(read), ["new content", "new content", "old", "old"]);
    // A run that was killed has left a backup and the file that it is of: to move one over the other does nothing by itself.
    fs::remove_file(lab.path("bak/f")).unwrap();
    fs::hard_link(lab.path("d/f"), lab.path("bak/f")).unwrap();
    fs::remove_file(lab.path("s/f")).unwrap();
    lab.haul(&args).ok();
    assert!(!lab.path("d/f").exists() && read("bak/f") == "new content");
    // Backups that can't be made stop what they are for.
    fs::remove_dir_all(lab.path("bak")).unwrap();
    link(&lab.path(""), "bak", "nowhere");
    write(&lab.path("s/g"), b"newest", new + 9_000_000_000);
    assert_ne!(lab.haul(&args).code, 0);
    assert_eq!(read("d/g"), "new content");
}

/// Root has as many processes as it likes, so haul runs as nobody.
#[test]
fn too_few_threads_are_told_in_one_line() {
    let lab = Lab::new(HAUL);
    let haul = lab.path("haul");
    fs::copy(HAUL, &haul).unwrap();
    if is_root() && !may_drop_rights() {
        return peers::skip("setpriv or prlimit is not installed, and root has as many processes as it likes");
    }
    let limited = ["prlimit", "--nproc=1", &*haul.to_string_lossy(), "size", "."];
    let ran = match is_root() {
        true => lab.run(Path::new(DROP_RIGHTS[0]), &[&DROP_RIGHTS[1..], &limited].concat()),
        false => lab.run(Path::new(limited[0]), &limited[1..]),
    };
    let ran = ran.code(1);
    assert!(ran.err.starts_with("haul: can't start: ") && ran.err.lines().count() == 1, "{}", ran.err);
    assert!(ran.err.contains("raise the limit of processes"), "{}", ran.err);
}

const DROP_RIGHTS: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

fn is_root() -> bool {
    Command::new("id").arg("-u").output().is_ok_and(|out| out.stdout == b"0\n")
}

fn may_drop_rights() -> bool {
    let ran = Command::new(DROP_RIGHTS[0]).args(&DROP_RIGHTS[1..]).arg("true").output();
    ran.is_ok_and(|out| out.status.success())
}

/// As root nothing is unreadable, so haul runs as nobody.
#[test]
fn an_unreadable_folder_in_the_source_deletes_nothing_below_it() {
    let lab = Lab::new(HAUL);
    let haul = lab.path("haul");
    fs::copy(HAUL, &haul).unwrap();
    let is_root = is_root();
    if is_root && !may_drop_rights() {
        return peers::skip("setpriv is not installed, and root can read everything");
    }
    for side in ["src", "dst"] {
        for name in ["a/1", "secret/2", "secret/deep/3", "z/4"] {
            write(&lab.path(side).join(name), name.as_bytes(), TIME);
        }
    }
    write(&lab.path("dst/secret/extra"), b"extra", TIME);
    write(&lab.path("dst/z/extra"), b"extra", TIME);
    write(&lab.path("src/z/new"), b"new", TIME);
    if is_root {
        Command::new("chown").args(["-R", "65534:65534"]).arg(lab.path("")).status().unwrap();
    }
    fs::set_permissions(lab.path("src/secret"), fs::Permissions::from_mode(0o000)).unwrap();
    let run = |args: &[&str]| match is_root {
        true => lab.run(Path::new(DROP_RIGHTS[0]), &[&DROP_RIGHTS[1..], &[&*haul.to_string_lossy()], args].concat()),
        false => lab.haul(args),
    };
    let ran = run(&["sync", "@src", "@dst"]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    let line = "secret/: error reading source directory: Permission denied";
    assert!(ran.err.contains(line), "{}", ran.err);
    for kept in ["secret/2", "secret/deep/3", "secret/extra", "a/1", "z/4"] {
        assert!(lab.path("dst").join(kept).exists(), "{kept} is gone\n{}", ran.err);
    }
    assert!(lab.path("dst/z/new").exists(), "what could be read is copied");
    // Even when told to delete in spite of errors: below the folder nothing is known to be gone.
    let ran = run(&["sync", "@src", "@dst", "--ignore-errors"]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert!(lab.path("dst/secret/2").exists() && lab.path("dst/secret/extra").exists(), "{}", ran.err);
    assert!(!lab.path("dst/z/extra").exists(), "--ignore-errors deletes what is known to be gone\n{}", ran.err);
    fs::set_permissions(lab.path("src/secret"), fs::Permissions::from_mode(0o755)).unwrap();
}

/// A simulated cloud with a bucket `b` of these keys.
fn holding(keys: &[(&str, &'static str)]) -> Cloudsim {
    let server = Cloudsim::with(&[]);
    keys.iter().for_each(|(key, text)| server.put("b", key.as_bytes(), *text, &[]));
    server
}

#[test]
fn a_link_planted_in_the_destination_leads_nowhere() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/dir/file"), b"mine", TIME);
    write(&lab.path("src/ok"), b"ok", TIME);
    fs::create_dir(lab.path("outside")).unwrap();
    fs::create_dir(lab.path("dst")).unwrap();
    link(&lab.path("dst"), "dir", "../outside");
    let server = holding(&[("dir/file", "mine"), ("ok", "ok")]);
    lab.remote("s", &server.endpoint());
    for from in ["@src", "s:b"] {
        let ran = lab.haul(&["copy", from, "@dst", "--retries=1"]);
        assert_ne!(ran.code, 0, "{from}: {}", ran.err);
        assert!(folder::read(&lab.path("outside")).is_empty(), "{from} wrote through the link");
        assert!(lab.path("dst/ok").exists(), "{from}: the rest arrives\n{}", ran.err);
        fs::remove_file(lab.path("dst/ok")).unwrap();
    }
    write(&lab.path("outside/precious"), b"precious", TIME);
    write(&lab.path("src2/ok"), b"ok", TIME);
    lab.haul(&["sync", "@src2", "@dst"]);
    assert!(lab.path("outside/precious").exists(), "sync deleted through the link");
}

#[test]
fn keys_that_climb_out_of_the_folder_are_refused() {
    let server = holding(&[
        ("../evil1", "evil"),
        ("a/../../evil2", "evil"),
        ("/evil3", "evil"),
        ("a/./evil4", "evil"),
        ("x/..", "evil"),
        ("ok", "ok"),
    ]);
    let lab = Lab::new(HAUL);
    lab.remote("s", &server.endpoint());
    let before: BTreeSet<_> = folder::read(&lab.path("")).into_keys().collect();
    let ran = lab.haul(&["copy", "s:b", "@deep/er/dst", "--retries=1"]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    for evil in ["evil1", "evil2", "evil3", "evil4"] {
        assert!(ran.err.contains(evil), "{evil} isn't reported\n{}", ran.err);
    }
    let now = folder::read(&lab.path(""));
    let new: Vec<_> = now.keys().filter(|path| !before.contains(*path)).map(|p| p.display().to_string()).collect();
    assert_eq!(new, ["deep", "deep/er", "deep/er/dst", "deep/er/dst/ok"]);
    assert!(!Path::new("/evil3").exists());
}

/// What another user has mounted by FUSE may not even be asked what it is, by root neither.
#[test]
fn a_name_that_may_not_be_asked_about_hides_none_of_those_beside_it() {
    let lab = Lab::new(HAUL);
    let haul = lab.path("haul");
    fs::copy(HAUL, &haul).unwrap();
    for n in 0..20 {
        write(&lab.path(&format!("src/f{n:02}")), b"text", TIME);
    }
    write(&lab.path("dst/f10mount/kept"), b"kept", TIME);
    write(&lab.path("dst/gone"), b"gone", TIME);
    let mount = MountedFs::new(&lab.path("real"), &lab.path("src/f10mount"), FsBehaviour::default());
    if mount.is_none() || !is_root() || !may_drop_rights() {
        return peers::skip("no FUSE here, or setpriv is not installed");
    }
    Command::new("chown").args(["-R", "65534:65534"]).arg(lab.path("dst")).status().unwrap();
    fs::set_permissions(lab.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    let run = |args: &[&str]| {
        lab.run(Path::new(DROP_RIGHTS[0]), &[&DROP_RIGHTS[1..], &[&*haul.to_string_lossy()], args].concat())
    };
    if run(&["lsf", "@src/f10mount"]).code == 0 {
        return peers::skip("others may see what is mounted by FUSE here");
    }
    let ran = run(&["sync", "@src", "@dst"]);
    assert!(ran.code != 0 && ran.err.contains("f10mount/: error reading source directory"), "{}", ran.err);
    assert!((0..20).all(|n| lab.path(&format!("dst/f{n:02}")).exists()), "{}", ran.err);
    assert!(lab.path("dst/f10mount/kept").exists() && lab.path("dst/gone").exists());
    // What is left out needn't be seen.
    run(&["sync", "@src", "@dst", "--exclude=/f10mount/**"]).ok();
    assert!(lab.path("dst/f10mount/kept").exists() && !lab.path("dst/gone").exists());
}
