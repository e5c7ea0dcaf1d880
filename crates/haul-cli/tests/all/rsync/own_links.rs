//! Symbolic links of other users: not followed on the way to what the command line names, as in rsync 3.5. Only root can give
//! a link away, so this is tried as root.

use haul_testkit::{
    folder::write,
    lab::{Lab, ProgramResult},
};
use std::{
    fs,
    os::unix::fs::{lchown, symlink},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const REFUSED: &str = "Refused to follow a symbolic link of another user on the way (--insecure-links follows it)";

/// A source, a destination with an older `a`, and `link`, which leads to `out`; `None` where links can't be given away.
fn lab(owner: u32) -> Option<Lab> {
    let lab = Lab::new(HAUL);
    for (name, text) in [("s/a", "new"), ("s/b", "b"), ("d/a", "old one"), ("out/list", "b\n"), ("out/b", "b")] {
        write(&lab.path(name), text.as_bytes(), 1_000_000_000);
    }
    symlink(lab.path("out"), lab.path("link")).unwrap();
    lchown(lab.path("link"), Some(owner), None).ok().map(|()| lab)
}

fn names(lab: &Lab, dir: &str) -> Vec<String> {
    let names = fs::read_dir(lab.path(dir)).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Options and paths, the exit code where the link is another user's, and what is then at the destination.
const LINES: &[(&str, i32, &[&str])] = &[
    ("-a @s/ @link", 3, &["a"]),
    ("-a @s/ @link/", 3, &["a"]),
    ("-a @s/ @link/sub", 3, &["a"]),
    ("-a @s/a @link/x", 3, &["a"]),
    ("-a --mkpath @s/ @link/sub/x", 3, &["a"]),
    ("-ab --backup-dir=@link @s/ @d", 3, &["a"]),
    ("-ab --backup-dir=@link/sub @s/ @d", 3, &["a"]),
    ("-a --link-dest=@link @s/ @d", 0, &["a", "b"]),
    ("-a --copy-dest=@link @s/ @d", 0, &["a", "b"]),
    ("-a --compare-dest=@link @s/ @d", 0, &["a", "b"]),
    ("-a --files-from=@link/list @s/ @d", 1, &["a"]),
    ("-a --exclude-from=@link/list @s/ @d", 11, &["a"]),
    ("-a --filter=.-_@link/list @s/ @d", 11, &["a"]),
    ("-a --log-file=@link/log @s/ @d", 0, &["a", "b"]),
];

fn run(lab: &Lab, line: &str, more: &[&str]) -> ProgramResult {
    let args: Vec<&str> = ["rsync"].iter().chain(more).copied().chain(line.split_whitespace()).collect();
    lab.haul(&args)
}

#[test]
fn links_of_other_users_are_not_followed_on_the_way_to_what_is_named() {
    for (line, code, left) in LINES {
        let Some(lab) = lab(65534) else { return haul_testkit::peers::skip("root, who can give links away") };
        let ran = run(&lab, line, &[]);
        assert_eq!(ran.code, *code, "{line}: {}", ran.err);
        assert!(ran.err.contains(REFUSED), "{line}: {}", ran.err);
        assert_eq!(names(&lab, "out"), ["b", "list"], "{line}");
        assert_eq!(names(&lab, "d"), *left, "{line}");
    }
}

#[test]
fn own_links_are_followed_and_all_are_with_insecure_links() {
    for (line, ..) in LINES {
        for (owner, more) in [(0, &[][..]), (65534, &["--insecure-links"])] {
            let Some(lab) = lab(owner) else { return haul_testkit::peers::skip("root, who can give links away") };
            let ran = run(&lab, line, more);
            assert_eq!(ran.code, 0, "{line}: {}", ran.err);
        }
    }
}

#[test]
fn rules_of_a_directory_behind_anothers_link_are_none() {
    let Some(lab) = lab(65534) else { return haul_testkit::peers::skip("root, who can give links away") };
    symlink(lab.path("out/list"), lab.path("s/.cvsignore")).unwrap();
    lchown(lab.path("s/.cvsignore"), Some(65534), None).unwrap();
    assert_eq!(lab.haul(&["rsync", "-aC", "@s/", "@d"]).code, 0);
    assert_eq!(names(&lab, "d"), [".cvsignore", "a", "b"]);
}
