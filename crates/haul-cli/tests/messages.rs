//! Every message about a mistake, with its full text and exit code. One line, names the thing, says what to do.

#![allow(clippy::disallowed_methods)] // A test makes the files that haul is to read.

use haul_testkit::{
    folder::write,
    lab::{Lab, Ran},
    minio::{ACCESS_KEY, Minio},
};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// What haul says of a mistake: the lines that aren't statistics, without time, and without the lab's own path.
fn said(lab: &Lab, ran: &Ran) -> Vec<String> {
    let root = format!("{}/", lab.path("").display()).replace("//", "/");
    let text = ran.err.replace(&root, "@");
    let line = |line: &str| match line.split_once(" ERROR : ") {
        Some((_, rest)) => Some(rest.to_owned()),
        None => line.starts_with("haul: ").then(|| line.to_owned()),
    };
    text.lines().filter_map(line).collect()
}

#[track_caller]
fn assert_says(lab: &Lab, args: &[&str], code: i32, lines: &[&str]) {
    let ran = lab.haul(&[args, &["--retries=1", "--low-level-retries=1"]].concat()).code(code);
    assert_eq!(said(lab, &ran), lines, "{args:?}\n{}", ran.err);
}

#[test]
fn mistakes_on_the_command_line() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/f"), b"x", 1);
    for (args, line) in [
        (
            &["copy", "@src", "@dst", "--transfers=many"][..],
            "haul: invalid value 'many' for '--transfers <N>': invalid digit found in string",
        ),
        (&["copy", "@src", "@dst", "--tranfers=3"], "haul: unknown flag --tranfers (did you mean --transfers?)"),
        (&["copy", "@src", "@dst", "--max-size=big"], ""),
        (&["copy", "@src", "@dst", "--max-age=someday"], ""),
        (&["copy", "@src", "@dst", "--order-by=colour"], ""),
        (&["copy", "@src", "@dst", "--bwlimit=fast"], ""),
        (&["copy", "@src", "@dst", "--filter=*.txt"], ""),
        (&["copy", "@src", "@dst", "--exclude={a"], ""),
        (&["copy", "@src"], ""),
        (&["cpoy", "@src", "@dst"], ""),
        (&["copy", "@src", "@dst", "--files-from=@none"], ""),
    ] {
        let ran = lab.haul(args);
        assert_eq!((ran.code, said(&lab, &ran)), (2, vec![line.to_owned()]), "{args:?}\n{}", ran.err);
    }
}

#[test]
fn mistakes_about_local_folders() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/f"), b"x", 1);
    assert_says(
        &lab,
        &["copy", "@src", "@src/d"],
        1,
        &[
            "Failed to start: the destination @src/d is inside the source @src: exclude it with a filter, or choose another",
        ],
    );
    assert_says(&lab, &["sync", "@src", "@src"], 1, &["Failed to start: source and destination are the same: @src"]);
    assert_says(&lab, &["sync", "@src/", "@x/../src"], 1, &[""]);
    assert_says(&lab, &["copy", "@none", "@dst"], 3, &["error reading source: @none: no such directory"]);
    assert_says(&lab, &["copyto", "@src/none", "@dst/f"], 3, &[""]);
    assert_says(&lab, &["cat", "@src/none"], 3, &[""]);
    assert_says(&lab, &["ls", "@none"], 3, &[""]);
    assert_says(&lab, &["deletefile", "@src/none"], 4, &[""]);
}

#[test]
fn mistakes_about_remotes() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote("r", &minio.endpoint());
    let bucket = minio.bucket("messages");
    write(&lab.path("src/f"), b"x", 1);
    assert_says(
        &lab,
        &["ls", "nope:x"],
        1,
        &["haul: unknown remote \"nope\": not in @rclone.conf (see haul listremotes)"],
    );
    assert_says(&lab, &["ls", "r:no-such-bucket"], 3, &[""]);
    assert_says(&lab, &["copy", "r:no-such-bucket/x", "@dst"], 3, &[""]);
    assert_says(&lab, &["cat", &format!("r:{bucket}/none")], 3, &[""]);
    assert_says(&lab, &["about", "r:"], 1, &["haul: about: S3 has no quota to report: add sizes up with `haul size`"]);
    let secret = "--s3-secret-access-key=not-the-secret";
    assert_says(&lab, &["ls", &format!("r:{bucket}"), secret], 1, &[""]);
    assert_says(&lab, &["copy", "@src", &format!("r:{bucket}"), secret], 1, &[""]);
    assert_says(&lab, &["ls", &format!("r:{bucket}"), "--s3-access-key-id=nobody"], 1, &[""]);
    // Nobody listens there.
    assert_says(&lab, &["ls", &format!("r:{bucket}"), "--s3-endpoint=http://127.0.0.1:1"], 5, &[""]);
    for args in [&["ls", "-vv", "--dump=headers"][..], &["copy", "-vv", "@src"]] {
        let ran = lab.haul(&[args, &[&format!("r:{bucket}"), secret]].concat());
        assert!(!ran.err.contains("not-the-secret") && !ran.out.contains("not-the-secret"), "{}", ran.err);
        assert!(!ran.err.contains(&format!("Credential={ACCESS_KEY}")), "{}", ran.err);
    }
}

#[test]
fn mistakes_in_the_configuration() {
    let lab = Lab::new(HAUL);
    for (text, line) in [
        ("[r]\ntype = s3\nthis line says nothing\n", ""),
        ("key = value\n[r]\ntype = s3\n", ""),
        ("[r\ntype = s3\n", ""),
        ("[r]\nprovider = AWS\n", ""),
        ("[r]\ntype = teleport\n", ""),
        ("[r]\ntype = s3\nprovider = Minio\nchunk_size = much\n", ""),
    ] {
        fs::write(lab.config(), text).unwrap();
        let ran = lab.haul(&["ls", "r:b", "--retries=1", "--low-level-retries=1"]);
        assert_eq!((ran.code, said(&lab, &ran)), (1, vec![line.to_owned()]), "{text:?}\n{}", ran.err);
    }
}
