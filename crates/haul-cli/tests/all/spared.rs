//! What flags say is to stay stays, whatever the command: backups, files that exist, what changed since it was listed.

use haul_testkit::{folder::write, lab::Lab};
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
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
