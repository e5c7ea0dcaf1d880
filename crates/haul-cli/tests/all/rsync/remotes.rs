//! `haul rsync` and `haul dcp` where rsync isn't the measure: remotes of haul's, and dcp's own rules.

use haul_testkit::{
    cloudsim::Cloudsim,
    folder::{self, assert_same, files, link, write},
    lab::Lab,
    minio::Minio,
};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
/// 2020-01-01.
const BASE: u64 = 18_262 * 86_400 * 1_000_000_000;

fn source(lab: &Lab) {
    write(&lab.path("src/a.txt"), b"a", BASE);
    write(&lab.path("src/d/b.txt"), b"bb", BASE);
    write(&lab.path("src/d/c.o"), b"object", BASE);
    link(&lab.path("src"), "l", "a.txt");
}

#[test]
fn remotes_are_sources_and_destinations() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote("r", &minio.endpoint());
    let bucket = minio.bucket("rsync");
    source(&lab);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(String::from).collect();
        lines.sort();
        lines
    };
    let there = format!("r:{bucket}");
    let up = lab.haul(&["rsync", "-ai", "--exclude=*.o", "@src", &there]).ok();
    let names = ["<f+++++++++ src/a.txt", "<f+++++++++ src/d/b.txt", "cL+++++++++ src/l -> a.txt"];
    let lines = sorted(&up.out);
    names.iter().for_each(|name| assert!(lines.iter().any(|line| line == name), "{name} in {lines:?}"));
    let again = lab.haul(&["rsync", "-ai", "--exclude=*.o", "@src", &there]).ok();
    assert!(!again.out.contains("<f") && !again.out.contains("cL"), "{}", again.out);
    lab.haul(&["rsync", "-a", &format!("{there}/src/"), "@back"]).ok();
    fs::remove_file(lab.path("src/d/c.o")).unwrap();
    assert_same(&files(&folder::read(&lab.path("src"))), &files(&folder::read(&lab.path("back"))), "up and down");
    fs::remove_file(lab.path("src/d/b.txt")).unwrap();
    let deleted = lab.haul(&["rsync", "-ai", "--delete", "@src/", &format!("{there}/src")]).ok();
    assert!(deleted.out.contains("*deleting   d/b.txt\n"), "{}", deleted.out);
    lab.haul(&["rsync", "-t", "@src/a.txt", &format!("{there}/one/name.txt")]).ok();
    assert_eq!(lab.haul(&["cat", &format!("{there}/one/name.txt")]).ok().out, "a");
    let listed = lab.haul(&["rsync", "-r", &format!("{there}/src/")]).ok().out;
    assert!(listed.contains("-rw-r--r--              1 2020/01/01 00:00:00 a.txt\n"), "{listed}");
}

#[test]
fn flags_of_haul_that_keep_a_run_from_changing_anything_count() {
    let lab = Lab::new(HAUL);
    source(&lab);
    write(&lab.path("dst/extra"), b"extra", BASE);
    let before = folder::read(&lab.path("dst"));
    for words in [&["rsync", "-a", "--delete", "@src/", "@dst"][..], &["dcp", "@src", "@dst"]] {
        for flag in ["--dry-run", "-n"] {
            lab.haul(&[&[flag], words].concat()).ok();
            assert_same(&before, &folder::read(&lab.path("dst")), flag);
        }
        let refused = lab.haul(&[&["--interactive"], words].concat()).code(1);
        let line = "--interactive works with haul's own commands only: use haul copy or haul sync, or leave it out";
        assert_eq!(refused.err, format!("haul {}: {line}\n", words[0]));
        assert_same(&before, &folder::read(&lab.path("dst")), "refused");
    }
}

#[test]
fn a_file_that_a_remote_would_take_for_a_link_is_refused_and_nothing_is_lost() {
    let cloud = Cloudsim::with(&[]);
    let lab = Lab::new(HAUL);
    lab.remote("r", &cloud.endpoint());
    cloud.bucket("b", None);
    cloud.put("b", b"gone.rclonelink", b"nowhere".to_vec(), &[]);
    folder::link(&lab.path("s"), "k", "x");
    for name in ["k.rclonelink", "n", "only.rclonelink"] {
        write(&lab.path("s").join(name), b"text", BASE);
    }
    let message = |name: &str| {
        format!("{name}\" failed: a file whose name ends in .rclonelink would become a symbolic link here: rename it")
    };
    let ran = lab.haul(&["rsync", "-a", "--delete", "@s/", "r:b/"]).code(23);
    assert!(ran.err.contains(&message("only.rclonelink")) && ran.err.contains(&message("k.rclonelink")), "{}", ran.err);
    let listed = |flags: &[&str]| lab.haul(&[&["lsf", "-R", "r:b"], flags].concat()).ok().out;
    assert!(listed(&[]).contains("k.rclonelink\n") && listed(&[]).contains("n\n") && !listed(&[]).contains("only"));
    assert_eq!(lab.haul(&["cat", "r:b/k.rclonelink"]).ok().out, "x", "the symlink, not the file");
    // A symlink that is there is shown, read and deleted by the name that it is stored under.
    assert_eq!(listed(&["-l"]), listed(&[]));
    assert_eq!(lab.haul(&["cat", "-l", "r:b/k.rclonelink"]).ok().out, "x");
    let ran = lab.haul(&["move", "-l", "@s", "r:b"]);
    assert!(ran.code != 0 && ran.err.contains("would become a symbolic link here"), "{}", ran.err);
    assert_eq!(std::fs::read(lab.path("s/only.rclonelink")).unwrap(), b"text");
    assert_eq!(std::fs::read(lab.path("s/k.rclonelink")).unwrap(), b"text");
    lab.haul(&["deletefile", "-l", "r:b/k.rclonelink"]).ok();
    assert!(!listed(&[]).contains("k.rclonelink"));
    // Without -l both are files.
    lab.haul(&["copy", "@s", "r:b"]).ok();
    assert_eq!(lab.haul(&["cat", "r:b/only.rclonelink"]).ok().out, "text");
}

#[test]
fn remotes_that_may_bring_the_same_are_refused() {
    let cloud = Cloudsim::with(&[]);
    let lab = Lab::new(HAUL);
    lab.remote("r", &cloud.endpoint());
    cloud.bucket("a", None);
    cloud.bucket("b", None);
    for (bucket, key) in [("a", "x/1"), ("a", "top"), ("b", "x/2"), ("b", "f"), ("b", "l.rclonelink")] {
        cloud.put(bucket, key.as_bytes(), b"text".to_vec(), &[]);
    }
    for path in ["s/x/3", "s/f", "s/l", "s/other", "s/own/4"] {
        write(&lab.path(path), b"here", BASE);
    }
    write(&lab.path("d/gone"), b"gone", BASE);
    let s = lab.path("s").display().to_string();
    let slashes = "several sources that end in / work only where all of them are on this machine";
    for (args, line) in [
        (&["r:a/", "r:b/"][..], slashes.to_string()),
        (&["r:a/", "@s/"], slashes.to_string()),
        (&["r:a/x", "r:b/x"], "two sources contain \"x\": r:a/x and r:b/x".to_string()),
        (&["r:b/f", "@s/f"], format!("two sources contain \"f\": r:b/ and {s}/")),
        (&["@s/f", "r:b/"], "r:b/ contains \"f\", as does another source".to_string()),
        (&["r:b/", "@s/l"], "r:b/ contains \"l\", as does another source".to_string()),
        (&["r:b/", "@s/x", "@s/own"], "r:b/ contains \"x\", as does another source".to_string()),
        (
            &["-K", "r:a/x", "@s/f"],
            "-K with several sources works only where all of them are on this machine".to_string(),
        ),
    ] {
        let ran = lab.haul(&[&["rsync", "-a", "--delete"][..], args, &["@d"]].concat());
        assert_eq!((ran.code, ran.err.trim_end()), (4, &*format!("haul rsync: {line}: run them one after the other")));
        assert!(lab.path("d/gone").exists() && !lab.path("d/x").exists(), "nothing is begun");
    }
    lab.haul(&["rsync", "-a", "--delete", "r:a/", "r:b/f", "@s/other", "@s/own", "@d"]).ok();
    let there: Vec<_> = files(&folder::read(&lab.path("d"))).into_keys().map(|name| format!("{name:?}")).collect();
    assert_eq!(there.len(), 5, "{there:?}");
    assert!(!lab.path("d/gone").exists() && lab.path("d/own/4").exists() && lab.path("d/x/1").exists());
}

#[test]
fn dcp_copies_as_cp_would() {
    let lab = Lab::new(HAUL);
    source(&lab);
    let first = lab.haul(&["dcp", "-p", "@src", "@new"]).ok();
    assert_same(&folder::read(&lab.path("src")), &folder::read(&lab.path("new")), "as a new folder");
    for line in [
        "Walked 6 items in ",
        "Items: 6\n",
        "  Directories: 2\n",
        "  Files: 3\n",
        "  Links: 1\n",
        "Data: 9.000 B (9 bytes)\n",
        "Rate: ",
    ] {
        assert!(first.out.contains(&format!("] {line}")), "{line:?} in {}", first.out);
    }
    lab.haul(&["dcp", "-qp", "@src", "@new"]).ok();
    assert_same(&files(&folder::read(&lab.path("src"))), &files(&folder::read(&lab.path("new/src"))), "into a folder");
    fs::remove_dir_all(lab.path("new/src")).unwrap();
    lab.haul(&["dcp", "-qp", "@src/", "@new"]).ok();
    assert_same(&folder::read(&lab.path("src")), &folder::read(&lab.path("new")), "what is in it into a folder");
    let src = lab.path("src").display().to_string();
    fs::write(
        lab.path("list"),
        format!("{src}/a.txt\n-rw-r--r-- ann staff   2.000  B Jan  1 2020 00:00 {src}/d/b.txt\n"),
    )
    .unwrap();
    lab.haul(&["dcp", "-p", "--input", "@list", "@src", "@listed"]).ok();
    let listed: Vec<_> = files(&folder::read(&lab.path("listed"))).into_keys().collect();
    assert_eq!(
        listed,
        files(&folder::read(&lab.path("src")))
            .into_keys()
            .filter(|name| format!("{name:?}").contains(".txt"))
            .collect::<Vec<_>>()
    );
    // As scripts call it.
    lab.haul(&[
        "dcp",
        "-p",
        "-s",
        "-S",
        "--chunksize",
        "16MB",
        "--bufsize",
        "8MB",
        "-X",
        "non-lustre",
        "--progress",
        "10",
        "@src",
        "@many",
    ])
    .ok();
    assert_same(&files(&folder::read(&lab.path("src"))), &files(&folder::read(&lab.path("many"))), "with all options");
    fs::create_dir(lab.path("both")).unwrap();
    lab.haul(&["dcp", "-p", "@src/d", "@src/a.txt", "@both"]).ok();
    assert!(lab.path("both/d/b.txt").exists() && lab.path("both/a.txt").exists());
    // A slash at the end stands for what is in a directory, as in rsync; a dot doesn't.
    for (end, to, at) in [("/", "s1", "s1"), ("//", "s2", "s2"), ("/.", "s3", "s3/src"), ("/d/..", "s4", "s4/src")] {
        fs::create_dir(lab.path(to)).unwrap();
        lab.haul(&["dcp", "-p", &format!("@src{end}"), &format!("@{to}")]).ok();
        let (want, have) = (files(&folder::read(&lab.path("src"))), folder::read(&lab.path(at)));
        assert_same(&want, &files(&have), end);
    }
    // A symlink is one at the top too, whether the destination is there or not.
    std::os::unix::fs::symlink("src", lab.path("way")).unwrap();
    lab.haul(&["dcp", "-q", "@way", "@way-new"]).ok();
    lab.haul(&["dcp", "-q", "@way", "@both"]).ok();
    for name in ["way-new", "both/way"] {
        assert_eq!(fs::read_link(lab.path(name)).unwrap().as_os_str(), "src", "{name}");
    }
    lab.haul(&["dcp", "-qL", "@way", "@way-followed"]).ok();
    assert!(lab.path("way-followed/a.txt").is_file());
    let refused = lab.haul(&["dcp", "--chunksize", "4X", "@src", "@other"]);
    assert_eq!((refused.code, refused.err.trim_end()), (1, "haul dcp: --chunksize=4X: not a size, such as 4MB"));
    // Files that weren't transferred aren't counted.
    fs::create_dir_all(lab.path("in-the-way/f")).unwrap();
    fs::write(lab.path("in-the-way/f/x"), b"").unwrap();
    fs::write(lab.path("f"), vec![1; 5000]).unwrap();
    let failed = lab.haul(&["dcp", "@f", "@in-the-way"]).code(1);
    assert!(failed.out.contains("] Data: 0.000 B (0 bytes)\n"), "{}", failed.out);
    let refused = lab.haul(&["dcp", "--open-noatime", "@src", "@other"]);
    let line = "haul dcp: --open-noatime: haul dcp doesn't support this option";
    assert_eq!((refused.code, refused.err.trim_end()), (1, line));
}

#[test]
fn dcp_that_was_started_several_times_copies_nothing() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/a"), b"a", 1);
    let run = |vars: &[(&str, &str)]| {
        let mut command = lab.haul_command(&["dcp", "-q", "@src", "@new"]);
        let output = command.envs(vars.iter().copied()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let step = [("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0"), ("SLURM_STEP_ID", "0"), ("SLURM_STEP_NUM_TASKS", "4")];
    let refused = "haul dcp: Refused to copy everything 4 times over: SLURM_STEP_NUM_TASKS=4 says that 4 processes were started, \
                   and each would. One uses all cores of its node: srun -n 1 -c CORES haul dcp ...\n";
    assert_eq!(run(&step), (Some(1), refused.into()));
    assert!(!lab.path("new").exists());
    // A batch script is one process.
    assert_eq!(run(&step[..2]), (Some(0), String::new()));
    assert!(lab.path("new/a").exists());
}
