//! Files that flags protect stay, whatever the command: backups, existing files, files that changed since they were listed.

use haul_testkit::{
    cloudsim::Cloudsim,
    folder::write,
    lab::{Lab, elsewhere, until},
    peers,
};
use std::{
    fs,
    io::{Read as _, Write as _},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    process::{Child, Stdio},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| format!("{error}"))
}

/// Names in a folder, in order.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// By a run over SFTP to a server that can't replace, which was killed between its two renames.
#[test]
fn what_was_put_aside_is_not_taken_for_deleted() {
    let lab = Lab::new(HAUL);
    fs::write(lab.config(), format!("[far]\ntype = far\ncommand = exec {HAUL} far\n")).unwrap();
    let aside = lab.path("src/.haul-e30c2799c19cc4a5.f.old");
    write(&aside, b"as it is", TIME);
    write(&lab.path("src/other"), b"other", TIME);
    write(&lab.path("dst/f"), b"as it was", TIME);
    for source in ["@src".to_owned(), format!("far:{}", lab.path("src").display())] {
        let ran = lab.haul(&["sync", "--ignore-errors", &source, "@dst"]);
        assert!(ran.code != 0 && ran.err.contains("has put it aside"), "{source}: {}", ran.err);
        assert_eq!(fs::read(lab.path("dst/f")).unwrap(), b"as it was", "{source}");
    }
    fs::rename(aside, lab.path("src/f")).unwrap();
    lab.haul(&["sync", "@src", "@dst"]).ok();
    assert_eq!(fs::read(lab.path("dst/f")).unwrap(), b"as it is");
}

#[test]
fn a_sync_takes_the_backups_beside_its_files_for_no_extra_files() {
    for (more, kept) in [(&[][..], "f.txt-old"), (&["--suffix-keep-extension"], "f-old.txt")] {
        let lab = Lab::new(HAUL);
        write(&lab.path("t/extra.txt"), b"extra", TIME);
        let mut last = String::new();
        for (n, content) in ["v1", "v22", "v333", "v4444"].into_iter().enumerate() {
            write(&lab.path("s/f.txt"), content.as_bytes(), TIME + n as u64 * 1_000_000_000);
            let args = [&["sync", "--suffix=-old", "@s", "@t"], more].concat();
            lab.haul(&[&args[..], &["--dry-run"]].concat()).ok();
            lab.haul(&args).ok();
            assert_eq!(text(&lab.path("t/f.txt")), content);
            if n > 0 {
                assert_eq!(text(&lab.path("t").join(kept)), last);
            }
            last = content.into();
        }
        assert_eq!(names(&lab.path("t")).len(), 3, "{:?}", names(&lab.path("t")));
    }
}

#[test]
fn a_backup_is_as_private_as_what_it_is_a_backup_of() {
    let lab = Lab::new(HAUL);
    let runs: [&[&str]; 4] = [
        &["copy", "--inplace", "--suffix=~", "@s", "@d"],
        &["sync", "--inplace", "--backup-dir=@b", "@s", "@d"],
        &["rsync", "-rt", "--inplace", "--backup", "@s/", "@d/"],
        &["rsync", "-rt", "--inplace", "--backup", "--backup-dir=@b", "@s/", "@d/"],
    ];
    for run in runs {
        write(&lab.path("s/f"), b"new content", TIME);
        write(&lab.path("d/f"), b"secret", TIME - 1_000_000_000);
        fs::set_permissions(lab.path("d/f"), fs::Permissions::from_mode(0o600)).unwrap();
        lab.haul(run).ok();
        let kept = [lab.path("d/f~"), lab.path("b/f")].into_iter().find(|path| path.exists()).unwrap();
        assert_eq!((text(&kept), fs::metadata(&kept).unwrap().mode() & 0o777), ("secret".into(), 0o600), "{run:?}");
        fs::remove_dir_all(lab.path("d")).unwrap();
        let _ = fs::remove_dir_all(lab.path("b"));
    }
}

#[test]
fn no_backup_can_be_kept_of_what_is_not_looked_at() {
    let lab = Lab::new(HAUL);
    write(&lab.path("s/f"), b"new", TIME);
    write(&lab.path("d/f"), b"old", TIME);
    for more in ["--backup-dir=@b", "--suffix=.old"] {
        let ran = lab.haul(&["copy", "--no-check-dest", more, "@s", "@d"]).code(2);
        assert!(ran.err.contains("--no-check-dest doesn't see what it replaces"), "{}", ran.err);
    }
    assert_eq!(text(&lab.path("d/f")), "old");
}

#[test]
fn a_move_deletes_no_source_of_another_size() {
    let lab = Lab::new(HAUL);
    write(&lab.path("a/f"), b"the longer, only copy", TIME);
    write(&lab.path("b/f"), b"short", TIME);
    lab.haul(&["copy", "--ignore-size", "@a", "@b"]).ok();
    assert_eq!(text(&lab.path("b/f")), "short");
    lab.haul(&["move", "--ignore-size", "@a", "@b"]).ok();
    assert_eq!(text(&lab.path("b/f")), "the longer, only copy");
    assert!(!lab.path("a/f").exists());
}

#[test]
fn a_pipe_replaces_only_what_it_may() {
    let lab = Lab::new(HAUL);
    let kept = [
        ("--immutable", 6),
        ("--ignore-existing", 0),
        ("--backup-dir=@b", 1),
        ("--suffix=.old", 1),
        ("--interactive", 2),
        ("--dry-run", 0),
    ];
    for (flag, code) in kept {
        write(&lab.path("f"), b"precious", TIME);
        lab.haul_reading(&["rcat", flag, "@f"], b"from a pipe").code(code);
        assert_eq!(text(&lab.path("f")), "precious", "{flag}");
    }
    lab.haul_reading(&["rcat", "--existing", "@new"], b"from a pipe").ok();
    assert!(!lab.path("new").exists());
    for flag in ["--immutable", "--ignore-existing", "--suffix=.old"] {
        fs::remove_file(lab.path("f")).unwrap();
        lab.haul_reading(&["rcat", flag, "@f"], b"from a pipe").ok();
        assert_eq!(text(&lab.path("f")), "from a pipe", "{flag}");
    }
    lab.haul_reading(&["rcat", "--existing", "@f"], b"again").ok();
    assert_eq!(text(&lab.path("f")), "again");
}

#[test]
fn a_link_to_a_directory_is_not_purged_by_its_name() {
    let lab = Lab::new(HAUL);
    write(&lab.path("real/f"), b"precious", TIME);
    symlink("real", lab.path("link")).unwrap();
    let ran = lab.haul(&["purge", "@link"]).code(2);
    assert!(ran.err.contains("is a symlink: write"), "{}", ran.err);
    assert_eq!(text(&lab.path("real/f")), "precious");
    // As rm -r does with a slash at the end: all that it leads to, and not the link.
    write(&lab.path("other/f"), b"x", TIME);
    lab.haul(&["purge", "@other"]).ok();
    assert!(!lab.path("other").exists());
}

#[test]
fn the_only_file_is_no_duplicate_of_a_link_to_it() {
    let lab = Lab::new(HAUL);
    write(&lab.path("d/zreal"), b"content", TIME);
    symlink("zreal", lab.path("d/alias")).unwrap();
    for more in [&[][..], &["--copy-links"]] {
        lab.haul(&[&["dedupe", "--by-hash", "first", "@d"], more].concat()).ok();
        assert_eq!(text(&lab.path("d/alias")), "content", "{more:?}");
    }
}

/// Through memory, where a store doesn't copy by itself: the backup must be there before the first byte is overwritten.
#[test]
fn what_is_written_in_place_is_kept_before() {
    let lab = Lab::new(HAUL);
    let large = "old content ".repeat(300_000);
    let through_memory: [&[&str]; 3] = [
        &["copy", "--inplace", "--suffix=~", "--bwlimit=500M", "@s", "@d"],
        &["sync", "--inplace", "--backup-dir=@b", "--bwlimit=500M", "@s", "@d"],
        &["rsync", "-rt", "--inplace", "--backup", "--bwlimit=500m", "@s/", "@d/"],
    ];
    for run in through_memory {
        for (name, old) in [("small", "old"), ("large", &large[..])] {
            write(&lab.path(&format!("s/{name}")), old.replace("old", "newer").as_bytes(), TIME);
            write(&lab.path(&format!("d/{name}")), old.as_bytes(), TIME - 1_000_000_000);
        }
        lab.haul(run).ok();
        for (name, old) in [("small", "old"), ("large", &large[..])] {
            let kept = [format!("d/{name}~"), format!("b/{name}")].map(|path| lab.path(&path));
            let kept = kept.iter().find(|path| path.exists()).unwrap_or_else(|| panic!("no backup: {run:?}"));
            assert!(text(kept) == old, "{run:?} {name}");
            assert!(text(&lab.path(&format!("d/{name}"))) == old.replace("old", "newer"), "{run:?} {name}");
        }
        fs::remove_dir_all(lab.path("d")).unwrap();
        let _ = fs::remove_dir_all(lab.path("b"));
    }
}

/// Nothing is written through a symlink that can't be replaced by a directory.
#[test]
fn nothing_is_written_through_a_link_that_stays() {
    let lab = Lab::new(HAUL);
    write(&lab.path("s/id/y"), b"new", TIME);
    write(&lab.path("d/real/y"), b"PRECIOUS", TIME);
    symlink("real", lab.path("d/id")).unwrap();
    // In the place of the backup.
    write(&lab.path("d/id~/x"), b"x", TIME);
    lab.haul(&["rsync", "-rlt", "-b", "@s/", "@d/"]).code(23);
    assert_eq!(text(&lab.path("d/real/y")), "PRECIOUS");
}

#[test]
fn sizes_alone_are_said_to_be_compared() {
    let server = Path::new("/usr/lib/openssh/sftp-server");
    if !server.exists() {
        return peers::skip("there is no sftp-server");
    }
    let lab = Lab::new(HAUL);
    // Nothing hashes there.
    let there = format!(":sftp,ssh='sh -c {}':{}", server.display(), lab.path("there").display());
    write(&lab.path("s/f"), b"content", TIME);
    write(&lab.path("there/f"), b"CONTENT", TIME - 5_000_000_000);
    let ran = lab.haul(&["copy", "--checksum", "@s", &there]).ok();
    assert!(ran.err.contains("no hash in common, so files of one size count as the same"), "{}", ran.err);
    let ran = lab.haul(&["copy", "--checksum", "@s", "@plain"]).ok();
    assert!(!ran.err.contains("in common"), "{}", ran.err);
}

#[test]
fn a_closed_terminal_ends_a_run_as_ctrl_c_does() {
    let lab = Lab::new(HAUL);
    write(&lab.path("s/a"), &vec![7; 24 << 20], TIME);
    let start = |ignores: bool| {
        let trap = if ignores { "trap '' HUP; " } else { "" };
        let run = format!("{trap}exec \"$0\" copy --bwlimit 6M s d");
        let mut command = lab.command(Path::new("sh"));
        let child = command.arg("-c").arg(run).arg(HAUL).current_dir(lab.path("")).spawn().unwrap();
        assert!(until(|| fs::read_dir(lab.path("d")).is_ok_and(|names| names.count() > 0)), "nothing came");
        std::process::Command::new("kill").args(["-HUP", &child.id().to_string()]).status().unwrap();
        child
    };
    let ended = start(false).wait().unwrap();
    assert_eq!(ended.code(), Some(130));
    assert_eq!(names(&lab.path("d")), [""; 0], "nothing half is left");
    assert_eq!(start(true).wait().unwrap().code(), Some(0), "nohup outlives its terminal");
    assert_eq!(names(&lab.path("d")), ["a"]);
}

/// Many are made at one time, with targets of one length.
#[test]
fn a_symlink_that_leads_elsewhere_is_another() {
    for more in [&["copy", "-l"][..], &["sync", "-a"], &["move", "-l"], &["copy", "-l", "--update"]] {
        let lab = Lab::new(HAUL);
        for (folder, target) in [("s", "new"), ("d", "old")] {
            fs::create_dir(lab.path(folder)).unwrap();
            symlink(target, lab.path(folder).join("z")).unwrap();
            let time = ["-h", "-d", "2021-01-01T00:00:00Z"];
            std::process::Command::new("touch").args(time).arg(lab.path(folder).join("z")).status().unwrap();
        }
        lab.haul(&[more, &["@s", "@d"]].concat()).ok();
        assert_eq!(fs::read_link(lab.path("d/z")).unwrap(), Path::new("new"), "{more:?}");
    }
}

/// Its time is set through another of its names while it is read.
#[test]
fn a_file_whose_other_name_gets_its_time_is_read_again() {
    let lab = Lab::new(HAUL);
    for n in 0..40 {
        for name in ["a", "b"] {
            write(&lab.path(&format!("s/{name}{n}")), &vec![n as u8; 100_000], TIME + n * 1_000_000_000);
        }
        write(&lab.path(&format!("d/a{n}")), &vec![n as u8; 100_000], TIME - 1_000_000_000);
        fs::hard_link(lab.path(&format!("d/a{n}")), lab.path(&format!("d/b{n}"))).unwrap();
    }
    for run in [&["rsync", "-a", "-c", "--delete", "@s/", "@d/"][..], &["sync", "@s", "@d"]] {
        lab.haul(run).ok();
    }
}

/// There a rename is a copy, which has to keep to the limit.
#[test]
fn backups_go_to_another_file_system_while_bandwidth_is_limited() {
    let lab = Lab::new(HAUL);
    let Some(elsewhere) = elsewhere() else { return };
    write(&lab.path("s/changed"), b"new", 2 * TIME);
    write(&lab.path("d/changed"), b"old", TIME);
    write(&lab.path("d/d/extra"), b"extra", TIME);
    let backup = format!("--backup-dir={}", elsewhere.path().display());
    lab.haul(&["sync", "--bwlimit=100M", &backup, "@s", "@d"]).ok();
    assert_eq!((names(&lab.path("d")), text(&lab.path("d/changed"))), (vec!["changed".into()], "new".into()));
    assert_eq!(text(&elsewhere.path().join("changed")), "old");
    assert_eq!(text(&elsewhere.path().join("d/extra")), "extra");
}

/// Starts a command on a terminal, as nobody is asked without one, and waits for its first question. `None` without `script`.
fn asking(lab: &Lab, words: &str) -> Option<Child> {
    let script = peers::need("script")?;
    let mut command = lab.command(&script);
    command.args(["-qefc", &format!("{HAUL} -i {words}"), "/dev/null"]);
    let mut asking = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    until_prompted(&mut asking);
    Some(asking)
}

fn until_prompted(asking: &mut Child) {
    let (mut prompt, mut byte) = (Vec::new(), [0]);
    while !prompt.ends_with(b"y/N>") {
        let read = asking.stdout.as_mut().unwrap().read_exact(&mut byte);
        assert!(read.is_ok(), "{}", String::from_utf8_lossy(&prompt));
        prompt.push(byte[0]);
    }
}

fn answer(asking: &mut Child, line: &[u8]) {
    asking.stdin.as_mut().unwrap().write_all(line).unwrap();
}

/// Whoever is asked may think for long, and S3 deletes whatever has the name by then.
#[test]
fn what_changes_while_it_is_asked_about_stays() {
    let cloud = Cloudsim::with(&[("bucket", "b")]);
    let lab = Lab::new(HAUL);
    lab.remote("s", &cloud.endpoint());
    for name in ["one", "two"] {
        lab.haul_reading(&["rcat", &format!("s:b/{name}")], b"the same").ok();
    }
    let Some(mut run) = asking(&lab, "delete s:b --include two") else { return };
    lab.haul_reading(&["rcat", "s:b/two"], b"something else").ok();
    answer(&mut run, b"y\n");
    let ended = lab.end(run).code(1);
    assert!(ended.out.contains("changed since it was listed"), "{}", ended.out);
    assert_eq!(lab.haul(&["cat", "s:b/two"]).ok().out, "something else");
    // Nor does a file wait for the answer to the next.
    let Some(mut run) = asking(&lab, "delete s:b") else { return };
    answer(&mut run, b"y\n");
    until_prompted(&mut run);
    lab.haul_reading(&["rcat", "s:b/one"], b"written since").ok();
    answer(&mut run, b"n\n");
    lab.end(run).ok();
    assert_eq!(lab.haul(&["cat", "s:b/one"]).ok().out, "written since");
}

/// Of two files of one content the other must not go once the one that is kept has got another.
#[test]
fn the_kept_duplicate_is_looked_at_before_the_other_goes() {
    let cloud = Cloudsim::with(&[("bucket", "b"), ("etag", "md5")]);
    let lab = Lab::new(HAUL);
    lab.remote("s", &cloud.endpoint());
    for name in ["one", "two"] {
        lab.haul_reading(&["rcat", &format!("s:b/{name}")], b"the only content").ok();
    }
    let Some(mut run) = asking(&lab, "dedupe --by-hash first s:b") else { return };
    lab.haul_reading(&["rcat", "s:b/one"], b"something else").ok();
    answer(&mut run, b"y\n");
    let ended = lab.end(run).code(1);
    assert!(ended.out.contains("one: changed since it was listed"), "{}", ended.out);
    assert_eq!(lab.haul(&["cat", "s:b/two"]).ok().out, "the only content");
}

/// A remote that encrypts what is below another's root holds all of that one's buckets.
#[test]
fn an_encrypted_remote_of_all_buckets_is_not_purged() {
    let cloud = Cloudsim::with(&[("bucket", "b")]);
    let lab = Lab::new(HAUL);
    lab.remote("s", &cloud.endpoint());
    let names = ["filename_encryption=off", "directory_name_encryption=false"];
    lab.haul(&[&["config", "create", "c", "crypt", "remote=s:", "password=correct horse"], &names[..]].concat()).ok();
    lab.haul(&[&["config", "create", "cc", "crypt", "remote=c:", "password=battery"], &names[..]].concat()).ok();
    lab.haul_reading(&["rcat", "c:b/f"], b"precious").ok();
    lab.haul(&["config", "create", "p", "pack", "remote=s:"]).ok();
    for all in ["c:", "cc:", "p:"] {
        let refused = lab.haul(&["purge", all]).code(2);
        assert!(refused.err.contains("name the"), "{all}: {}", refused.err);
    }
    assert_eq!(lab.haul(&["cat", "c:b/f"]).ok().out, "precious");
    lab.haul(&["purge", "c:b"]).ok();
}
