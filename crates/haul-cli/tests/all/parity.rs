//! Side by side with rclone on the same trees: the same tree comes out, the same exit code, the same report. Where haul
//! differs on purpose, the test says so and holds haul's way.

use haul_testkit::{
    folder::{self, Node, Tree, assert_same, link, noise, set_mtime, write},
    lab::{Lab, ProgramResult},
    minio::Minio,
};
use std::{fs, path::Path};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const DAY: u64 = 86_400 * 1_000_000_000;
/// 2020-01-01.
const BASE: u64 = 18_262 * DAY + 123_456_789;

/// Every relation that a file can have to the other side, below `src`, `dst` and `ref`.
fn build(root: &Path) {
    let src = |name: &str, bytes: &[u8], at: u64| write(&root.join("src").join(name), bytes, at);
    let dst = |name: &str, bytes: &[u8], at: u64| write(&root.join("dst").join(name), bytes, at);
    for (name, bytes) in [("same.txt", &b"same"[..]), ("dir/same.jpg", b"jpeg"), ("dir/sub/same.txt", b"deep")] {
        src(name, bytes, BASE);
        dst(name, bytes, BASE);
    }
    src("new.txt", b"new", BASE);
    src("dir/sub/new.txt", b"new too", BASE + DAY);
    src("dir/sub/deep/three.bin", &noise(3, 5_000), BASE + 2 * DAY);
    src("big.bin", &noise(4, 300_000), BASE);
    src("old.log", b"long ago", 11_323 * DAY);
    src("Case.TXT", b"case", BASE);
    src("with space & sign.txt", b"odd", BASE);
    src("ignored/.ignore", b"", BASE);
    src("ignored/file.txt", b"in an ignored folder", BASE);
    src("resized.txt", b"longer now", BASE + DAY);
    dst("resized.txt", b"short", BASE);
    src("edited.txt", b"edit 2", BASE + DAY);
    dst("edited.txt", b"edit 1", BASE);
    src("newer there.txt", b"mine", BASE);
    dst("newer there.txt", b"your", BASE + DAY);
    src("touched.txt", b"touched", BASE + DAY);
    dst("touched.txt", b"touched", BASE);
    src("hidden change.txt", b"aaaa", BASE);
    dst("hidden change.txt", b"bbbb", BASE);
    src("renamed to.bin", &noise(7, 4_000), BASE);
    dst("renamed from.bin", &noise(7, 4_000), BASE);
    dst("extra.txt", b"extra", BASE);
    dst("extra dir/x.jpg", b"extra jpeg", BASE);
    dst("dir/sub/extra.bin", b"extra", BASE);
    fs::create_dir_all(root.join("src/empty/inside")).unwrap();
    fs::create_dir_all(root.join("dst/empty there")).unwrap();
    link(&root.join("src"), "link to file", "same.txt");
    link(&root.join("src"), "link to dir", "dir/sub");
    write(&root.join("ref/new.txt"), b"new", BASE);
    write(&root.join("ref/edited.txt"), b"edit 2", BASE + DAY);
    write(&root.join("list.txt"), b"same.txt\nnew.txt\ndir/sub/new.txt\n# a comment\nnot there.txt\n", BASE);
    write(&root.join("meta.txt"), b"# of 2001\n+ mtime=2001*\n- *\n", BASE);
    write(&root.join("rules.txt"), b"- *.bin\n+ /dir/**\n- *.txt\n", BASE);
}

/// Both programs' trees and exit codes for a line in which `@@` stands for each one's own folder and a no-break space
/// for a space inside an argument.
fn side_by_side(lab: &Lab, number: usize, line: &str) -> [(Tree, ProgramResult); 2] {
    let run = |side: &str, program: fn(&Lab, &[&str]) -> ProgramResult| {
        let root = format!("{side}{number}");
        build(&lab.path(&root));
        let line = line.replace("@@", &format!("@{root}/"));
        let args: Vec<String> = line.split(' ').map(|arg| arg.replace('\u{a0}', " ")).collect();
        let mut args: Vec<&str> = args.iter().map(String::as_str).collect();
        args.push("--retries=1");
        let ran = program(lab, &args);
        (folder::read(&lab.path(&root)), ran)
    };
    [run("haul", Lab::haul), run("rclone", Lab::rclone)]
}

fn all_the_same(lines: &[&str]) {
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    let mut wrong = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let [(ours, ran), (theirs, rclone)] = side_by_side(&lab, number, line);
        if ran.code != rclone.code {
            let outputs = format!("--- haul\n{}--- rclone\n{}", ran.err, rclone.err);
            wrong.push(format!("{line}: exit code {}, rclone's {}\n{outputs}", ran.code, rclone.code));
        }
        let same = std::panic::catch_unwind(|| assert_same(&ours, &theirs, line));
        if let Err(what) = same {
            wrong.push(what.downcast_ref::<String>().cloned().unwrap_or_default());
        }
    }
    assert!(wrong.is_empty(), "{} lines differ from rclone\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn comparing() {
    all_the_same(&[
        "copy @@src @@dst",
        "sync @@src @@dst",
        "move @@src @@dst",
        "copy @@src @@not/there/yet",
        "sync @@src @@dst --size-only",
        "sync @@src @@dst -c",
        "sync @@src @@dst --checksum --no-update-modtime",
        "sync @@src @@dst -I",
        "sync @@src @@dst --ignore-size",
        "sync @@src @@dst --update",
        "copy @@src @@dst -u --size-only",
        "copy @@src @@dst --ignore-existing",
        "sync @@src @@dst --ignore-existing",
        "copy @@src @@dst --immutable",
        "copy @@src @@dst --modify-window=48h",
        "copy @@src @@dst --no-update-modtime",
        "copy @@src @@dst --no-traverse",
        "copy @@src @@dst --no-check-dest",
        "copy @@src @@dst --check-first",
        "copy @@src @@dst --order-by=size,descending",
        "copy @@src @@dst --inplace",
        "copy @@src @@dst --transfers=1 --checkers=1",
        "copy @@src @@dst --multi-thread-cutoff=100k --multi-thread-streams=4 --multi-thread-chunk-size=64k",
        "copy @@src @@dst --error-on-no-transfer",
        "copy @@ref @@ref2 --error-on-no-transfer",
        "sync @@src @@dst --dry-run",
        "move @@src @@dst --dry-run",
        "copy @@not-there @@dst",
        "sync @@not-there @@dst",
    ]);
}

#[test]
fn new_names() {
    all_the_same(&[
        "copy @@src @@dst --name-transform=prefix=x_",
        "sync @@src @@dst --name-transform=suffix_keep_extension=-1",
        "move @@src @@dst --name-transform=all,uppercase --exclude=/empty/**",
        "move @@src @@dst --name-transform=all,lowercase --exclude=/empty/**",
        "sync @@src @@dst --name-transform=dir,prefix=d- --create-empty-src-dirs",
        "copy @@src @@dst --name-transform=regex=([a-z]+)/<$1> --name-transform=all,replace=\u{a0}:_",
        "copy @@src @@dst --name-transform=truncate_keep_extension=9 --exclude=/dir/sub/",
        "copy @@src @@dst --name-transform=all,base64encode --exclude=/empty/**",
        "copy @@src @@dst --name-transform=all,encoder=Ctl,LtGt --include=*.txt",
        "copy @@src @@dst --name-transform=trimsuffix=.txt --max-depth=2",
        "copy @@src @@dst --name-transform=date=-{2006} --exclude=*.bin",
        "copy @@src/new.txt @@dst --name-transform=prefix=x_",
        "copyto @@src/new.txt @@dst/other --name-transform=uppercase",
        "sync @@src @@dst --name-transform=lowercase --backup-dir=@@old",
        "sync @@src @@dst --name-transform=prefix=x_ --dry-run",
        "copy @@src @@dst --refresh-times",
    ]);
}

#[test]
fn names_that_differ_by_case() {
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    for line in [
        "copy SRC DST --ignore-case-sync",
        "sync SRC DST --ignore-case-sync",
        "move SRC DST --ignore-case-sync",
        "sync SRC DST --ignore-case-sync --checksum --include=*.txt",
        "sync SRC DST --ignore-case-sync --dry-run",
        "check SRC DST --ignore-case-sync",
    ] {
        let run = |side: &str, program: fn(&Lab, &[&str]) -> ProgramResult| {
            let root = lab.path(side);
            let _ = fs::remove_dir_all(&root);
            let pairs = [
                ("Same.TXT", "same.txt", true),
                ("d/\u{c9}.txt", "D/e\u{301}.txt", true),
                ("Other.txt", "oTHER.txt", false),
            ];
            for (src, dst, same) in pairs {
                write(&root.join("src").join(src), b"text", BASE);
                write(&root.join("dst").join(dst), if same { b"text" } else { b"another" }, BASE);
            }
            write(&root.join("src/new.txt"), b"new", BASE);
            write(&root.join("dst/extra.txt"), b"extra", BASE);
            let line = line.replace("SRC", &format!("@{side}/src")).replace("DST", &format!("@{side}/dst"));
            let ran = program(&lab, &line.split(' ').collect::<Vec<_>>());
            (folder::files(&folder::read(&root)), ran)
        };
        let ((ours, ran), (theirs, rclone)) = (run("haul", Lab::haul), run("rclone", Lab::rclone));
        assert_eq!(ran.code, rclone.code, "{line}\n{}\n{}", ran.err, rclone.err);
        assert_same(&ours, &theirs, line);
    }
}

#[test]
fn filters() {
    all_the_same(&[
        "copy @@src @@dst --include=*.txt",
        "copy @@src @@dst --exclude=*.txt",
        "copy @@src @@dst --hash-filter=1/3",
        "sync @@src @@dst --hash-filter=5/3",
        "move @@src @@dst --hash-filter=0/2 --include=*.txt",
        "copy @@src @@dst --metadata-exclude=mtime=2020-01-01*",
        "copy @@src @@dst --metadata-include=mtime=2020-01-0[23]*",
        "copy @@src @@dst --metadata-include=mode=*644 --metadata-exclude=nothing=*",
        "copy @@src @@dst --metadata-filter=-\u{a0}mtime=2020-01-02* --metadata-filter=+\u{a0}mode=*",
        "copy @@src @@dst --metadata-filter-from=@@meta.txt",
        "sync @@src @@dst --exclude=*.txt",
        "sync @@src @@dst --exclude=*.txt --delete-excluded",
        "sync @@src @@dst --include=/dir/**",
        "copy @@src @@dst --include=*.{txt,jpg}",
        "copy @@src @@dst --include=**/new.txt",
        "copy @@src @@dst --exclude=/dir/sub/",
        "copy @@src @@dst --exclude=sub/**",
        "copy @@src @@dst --filter=+\u{a0}*.bin --filter=-\u{a0}*",
        "sync @@src @@dst --filter-from=@@rules.txt",
        "copy @@src @@dst --files-from=@@list.txt",
        "copy @@src @@dst --files-from=@@list.txt --no-traverse",
        "copy @@src @@dst --files-from-raw=@@list.txt",
        "copy @@src @@dst --include-from=@@list.txt",
        "copy @@src @@dst --exclude-from=@@list.txt",
        "copy @@src @@dst --include=case.txt",
        "copy @@src @@dst --include=case.txt --ignore-case",
        "copy @@src @@dst --max-depth=1",
        "copy @@src @@dst --max-depth=2",
        "sync @@src @@dst --max-depth=2",
        "copy @@src @@dst --min-size=1k",
        "copy @@src @@dst --max-size=1k",
        "sync @@src @@dst --max-size=4k --delete-excluded",
        "copy @@src @@dst --max-age=2015-01-01",
        "copy @@src @@dst --min-age=2015-01-01",
        "copy @@src @@dst --exclude-if-present=.ignore",
        "sync @@src @@dst --exclude=extra/** --exclude=*.jpg",
        "move @@src @@dst --include=*.txt",
    ]);
}

#[test]
fn folders_and_links() {
    all_the_same(&[
        "copy @@src @@dst --create-empty-src-dirs",
        "sync @@src @@dst --create-empty-src-dirs",
        "move @@src @@dst --create-empty-src-dirs",
        "move @@src @@dst --delete-empty-src-dirs",
        "copy @@src @@dst --links",
        "sync @@src @@dst -l",
        "move @@src @@dst --links",
        "copy @@src @@dst -L",
        "sync @@src @@dst --copy-links",
        "copy @@src/same.txt @@dst/into",
        "copyto @@src/new.txt @@dst/other/name.txt",
        "copyto @@src/dir @@dst/dir2",
        "copyto @@src/new.txt @@dst/same.txt",
        "moveto @@src/new.txt @@dst/other/name.txt",
        "move @@src/new.txt @@dst",
        "sync @@src/new.txt @@dst",
        "copy @@src/dir/sub @@src2",
        "copyto @@src/not-there.txt @@dst/x",
    ]);
}

#[test]
fn keeping_and_finding() {
    all_the_same(&[
        "sync @@src @@dst --backup-dir=@@backup",
        "copy @@src @@dst --backup-dir=@@backup",
        "sync @@src @@dst --backup-dir=@@backup --suffix=.old",
        "sync @@src @@dst --suffix=.old",
        "sync @@src @@dst --suffix=.old --exclude=*.old",
        "copy @@src @@dst --suffix=-old --suffix-keep-extension",
        "sync @@src @@dst --compare-dest=@@ref",
        "copy @@src @@dst2 --compare-dest=@@ref",
        "sync @@src @@dst --track-renames",
        "sync @@src @@dst --track-renames --track-renames-strategy=modtime,leaf",
        "sync @@src @@dst --delete-before",
        "sync @@src @@dst --delete-during",
        "sync @@src @@dst --delete-after",
        "sync @@src @@dst --max-delete=100",
    ]);
}

#[test]
fn check_reports_the_same() {
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    build(&lab.path("t"));
    write(&lab.path("t/twin/same.txt"), b"same", BASE);
    write(&lab.path("t/twin/dir/same.jpg"), b"jpeg", BASE);
    let reports = ["combined", "differ", "missing-on-src", "missing-on-dst", "match", "error"];
    // What a program reports of a check, all reports in one run.
    let all = |program: fn(&Lab, &[&str]) -> ProgramResult, args: &[&str]| {
        let words = reports.map(|report| format!("--{report}=@{report}"));
        let ran = program(&lab, &[args, &words.each_ref().map(String::as_str)].concat());
        let reported = reports.map(|report| {
            let text = fs::read_to_string(lab.path(report)).unwrap();
            fs::remove_file(lab.path(report)).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            (report, lines)
        });
        (ran, reported)
    };
    let flags = [
        &[][..],
        &["--one-way"],
        &["--size-only"],
        &["--download"],
        &["--include=*.txt"],
        &["--max-depth=1"],
        &["--links"],
    ];
    for pair in [["@t/src", "@t/dst"], ["@t/twin", "@t/src"], ["@t/ref", "@t/ref"], ["@t/src", "@t/nowhere"]] {
        for flags in flags {
            let args = [&["check"], &pair[..], flags].concat();
            let ((ours, we), (theirs, they)) = (all(Lab::haul, &args), all(Lab::rclone, &args));
            assert_eq!(we, they, "{args:?}\n{}", ours.err);
            assert_eq!(ours.code, theirs.code, "{args:?}\n{}\n{}", ours.err, theirs.err);
        }
    }
    for report in reports {
        let args = ["check", "@t/src", "@t/dst", &format!("--{report}=-")];
        let (ours, theirs) = (lab.haul(&args), lab.rclone(&args));
        assert_eq!((ours.lines(), ours.code), (theirs.lines(), theirs.code), "{args:?}\n{}", ours.err);
    }
}

/// Gives every file the time that it has, which makes it one that has just changed.
fn retouch(root: &Path) {
    for (path, node) in folder::read(root) {
        if let Node::File(_, ns) = node {
            set_mtime(&root.join(path), u64::try_from(ns).unwrap());
        }
    }
}

#[test]
fn to_a_bucket() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    lab.remote("r", &minio.endpoint());
    let bucket = format!("r:{}", minio.bucket("parity"));
    build(&lab.path("t"));
    lab.rclone(&["copy", "@t/dst", &format!("{bucket}/before/it")]).ok();
    lab.rclone(&["copy", "@t/ref", &format!("{bucket}/before/it.ref")]).ok();
    let lines = [
        "copy @t/src DST",
        "sync @t/src DST",
        "sync @t/src DST -c",
        "sync @t/src DST --size-only",
        "sync @t/src DST --update",
        "sync @t/src DST --links --exclude=*.txt",
        "sync @t/src DST --include=*.txt --delete-excluded",
        "copy @t/src DST --ignore-existing --max-depth=2",
        "sync @t/src DST --backup-dir=DST.backup",
        "sync @t/src DST --suffix=.old",
        "sync @t/src DST --track-renames",
        "sync @t/src DST --copy-dest=DST.ref",
        "copy @t/src DST --files-from=@t/list.txt --no-traverse",
        "copy @t/src DST --immutable",
        "copyto @t/src/new.txt DST/a/b/c.txt",
        "sync @t/src DST --dry-run",
    ];
    for (number, line) in lines.iter().enumerate() {
        let run = |program: fn(&Lab, &[&str]) -> ProgramResult, side: &str| {
            let there = format!("{bucket}/{side}{number}");
            lab.rclone(&["copy", &format!("{bucket}/before"), &there]).ok();
            // Files that changed after the keys were stored: so haul asks for the stored times, as rclone always does.
            retouch(&lab.path("t/src"));
            let line = line.replace("DST", &format!("{there}/it"));
            let mut args: Vec<&str> = line.split(' ').collect();
            args.push("--retries=1");
            let ran = program(&lab, &args);
            // Includes the backups and the files of --compare-dest.
            let list = ["lsf", "-R", "--files-only", "--format=psth", "--hash=MD5", &there];
            (ran.code, lab.rclone(&list).ok().out, ran.err)
        };
        let (ours, theirs) = (run(Lab::haul, "haul"), run(Lab::rclone, "rclone"));
        let outputs = format!("{line}\n--- haul\n{}--- rclone\n{}", ours.2, theirs.2);
        assert_eq!(ours.1, theirs.1, "{outputs}");
        assert_eq!(ours.0, theirs.0, "{outputs}");
    }
}

/// rclone ends with these codes too, unless a listing that it cancels in the middle makes it 1.
#[test]
fn limits_end_with_their_codes() {
    let lab = Lab::new(HAUL);
    build(&lab.path("t"));
    for (number, (flags, code)) in [
        (&["--max-transfer=1k"][..], 8),
        (&["--max-transfer=1k", "--cutoff-mode=soft"], 8),
        (&["--max-transfer=1k", "--cutoff-mode=cautious"], 8),
        (&["--max-transfer=1G"], 0),
    ]
    .into_iter()
    .enumerate()
    {
        lab.haul(&[&["copy", "@t/src", &format!("@dst{number}")], flags].concat()).code(code);
        let arrived: usize = folder::read(&lab.path(&format!("dst{number}"))).values().map(size).sum();
        // Only the cautious one keeps below the limit: the kernel copies a file in one go.
        let most = if flags.len() == 2 && flags[1].ends_with("cautious") { 1_024 } else { usize::MAX };
        assert!(arrived <= most, "{flags:?}: {arrived} bytes");
    }
}

fn size(node: &Node) -> usize {
    match node {
        Node::File(bytes, _) => bytes.len(),
        Node::Dir | Node::Link(_) => 0,
    }
}

/// haul differs: rclone deletes up to the limit and then stops, haul deletes nothing when it is too much.
#[test]
fn too_many_deletes_delete_none() {
    let lab = Lab::new(HAUL);
    build(&lab.path("t"));
    let ran = lab.haul(&["sync", "@t/src", "@t/dst", "--max-delete=1"]).code(7);
    assert!(ran.err.contains("Refused to delete 4 files: that is more than --max-delete 1"), "{}", ran.err);
    assert!(lab.path("t/dst/extra.txt").exists() && lab.path("t/dst/extra dir/x.jpg").exists());
}

/// haul differs: for rclone an empty source empties the destination.
#[test]
fn an_empty_source_empties_nothing_unless_told() {
    let lab = Lab::new(HAUL);
    build(&lab.path("t"));
    fs::create_dir(lab.path("none")).unwrap();
    let before = folder::read(&lab.path("t/dst"));
    let ran = lab.haul(&["sync", "@none", "@t/dst"]).code(7);
    assert!(ran.err.contains(" is empty (--allow-empty-source if that is intended)"), "{}", ran.err);
    assert_same(&before, &folder::read(&lab.path("t/dst")), "nothing is deleted");
    lab.haul(&["sync", "@none", "@t/dst", "--allow-empty-source"]).ok();
    assert_same(&Tree::new(), &folder::read(&lab.path("t/dst")), "all is deleted");
}

/// haul differs: a file of which only the time differs gets the time, it isn't sent again, also without `--checksum`.
#[test]
fn a_second_run_finds_nothing_to_do() {
    let lab = Lab::new(HAUL);
    build(&lab.path("t"));
    lab.haul(&["sync", "@t/src", "@t/dst"]).ok();
    set_mtime(&lab.path("t/src/new.txt"), BASE + 9 * DAY);
    lab.haul(&["sync", "@t/src", "@t/dst"]).ok();
    lab.haul(&["sync", "@t/src", "@t/dst", "--error-on-no-transfer"]).code(9);
}

/// rclone 1.75 has no such flag.
#[test]
fn existing_creates_nothing() {
    let lab = Lab::new(HAUL);
    build(&lab.path("t"));
    let before: Vec<_> = folder::read(&lab.path("t/dst")).into_keys().collect();
    lab.haul(&["copy", "@t/src", "@t/dst", "--existing"]).ok();
    let after = folder::read(&lab.path("t/dst"));
    assert_eq!(before, after.keys().cloned().collect::<Vec<_>>());
    assert_eq!(after[Path::new("edited.txt")], Node::File(b"edit 2".to_vec(), i128::from(BASE + DAY)));
}

/// haul differs: rclone has no such copies on disk and refuses.
#[test]
fn copies_from_another_folder_on_disk() {
    let lab = Lab::new(HAUL);
    build(&lab.path("t"));
    build(&lab.path("u"));
    lab.haul(&["sync", "@t/src", "@t/dst", "--copy-dest=@t/ref"]).ok();
    lab.haul(&["sync", "@u/src", "@u/dst"]).ok();
    assert_same(&folder::read(&lab.path("t/dst")), &folder::read(&lab.path("u/dst")), "with and without --copy-dest");
}

/// haul differs: where nothing is at the destination yet, rclone renames the source's folder with all that is in it;
/// haul moves what a copy would have copied, so links and empty folders stay unless flags say otherwise.
#[test]
fn a_move_moves_what_a_copy_copies() {
    let lab = Lab::new(HAUL);
    build(&lab.path("t"));
    lab.haul(&["copy", "@t/src", "@copied"]).ok();
    // To a free name the directory would be renamed as a whole.
    std::fs::create_dir_all(lab.path("moved/there")).unwrap();
    lab.haul(&["move", "@t/src", "@moved/there", "--delete-empty-src-dirs"]).ok();
    assert_same(&folder::read(&lab.path("copied")), &folder::read(&lab.path("moved/there")), "copied and moved");
    let left: Vec<_> = folder::read(&lab.path("t/src")).into_keys().map(|p| p.display().to_string()).collect();
    assert_eq!(left, ["link to dir", "link to file"]);
    // rclone tries to rename what isn't there and calls it an error of another kind.
    lab.haul(&["moveto", "@t/src/not-there.txt", "@t/dst/x"]).code(3);
}

/// haul differs: rclone takes paths as they are written. As with rclone only a sync of a folder with itself is an error.
#[test]
fn two_paths_to_one_folder_are_the_same_folder() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/f"), b"precious", BASE);
    link(&lab.path(""), "way", "src");
    for there in ["@src", "@src/", "@src/../src", "@not-there/../src", "@way", "@way/."] {
        for verb in ["copy", "sync", "move"] {
            let ran = lab.haul(&[verb, "@src", there]).code(i32::from(verb == "sync"));
            assert!(ran.err.contains("source and destination are the same: "), "{verb} to {there}: {}", ran.err);
            assert!(lab.path("src/f").exists(), "{verb} to {there} lost the file");
        }
    }
    let ran = lab.haul(&["move", "@src", "@way/deeper"]).code(1);
    assert!(ran.err.contains(" is inside the source "), "{}", ran.err);
    lab.haul(&["moveto", "@src/f", "@way/f"]).ok();
    assert!(lab.path("src/f").exists() && !lab.path("not-there").exists());
}
