//! Every message about a mistake, with its full text and exit code. One line, names the thing, says what to do.

use haul_testkit::{
    folder::write,
    lab::{Lab, ProgramResult},
    minio::{Minio, SECRET_KEY},
};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// What haul says of a mistake: the lines that aren't statistics, without time, and without the lab's own path.
fn error_lines(lab: &Lab, ran: &ProgramResult) -> Vec<String> {
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
    assert_eq!(error_lines(lab, &ran), lines, "{args:?}\n{}", ran.err);
}

#[test]
fn a_sync_sees_what_it_is_to_delete() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/f"), b"x", 1);
    write(&lab.path("dst/g"), b"y", 1);
    let refused = "haul: --no-check-dest finds nothing to delete: use copy, or leave it out";
    for args in [&["sync"][..], &["status", "--sync"]] {
        assert_says(&lab, &[args, &["@src", "@dst", "--no-check-dest"]].concat(), 2, &[refused]);
    }
    let status = lab.haul(&["status", "--sync", "@src", "@dst", "--no-traverse", "--combined=-"]).code(1);
    assert!(status.out.contains("- g"), "{}", status.out);
    let ran = lab.haul(&["sync", "@src", "@dst", "--no-traverse"]).ok();
    let notice = "NOTICE: Ignoring --no-traverse: what is to be deleted is found by listing the destination\n";
    assert!(ran.err.contains(notice), "{}", ran.err);
    assert!(lab.path("dst/f").exists() && !lab.path("dst/g").exists());
}

#[test]
fn mistakes_on_the_command_line() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/f"), b"x", 1);
    for (arg, line) in [
        ("--transfers=many", "invalid value 'many' for '--transfers <N>': it is not a whole number"),
        ("--transfers=-1", "invalid value '-1' for '--transfers <N>': must be 0 or more"),
        ("--tranfers=3", "unknown flag --tranfers (did you mean --transfers?)"),
        (
            "--max-size=big",
            "invalid value 'big' for '--max-size <SIZE>': bad size \"big\": not a number; write a number and B, K, M, G, T, P \
             or E, or off",
        ),
        (
            "--max-age=someday",
            "--max-age: bad age \"someday\": write a number and ms, s, m, h, d, w, M or y, a date such as \
             2006-01-02T15:04:05, or off",
        ),
        (
            "--order-by=colour",
            "invalid value 'colour' for '--order-by <ORDER>': unknown field \"colour\": choose from size, name, modtime",
        ),
        (
            "--bwlimit=fast",
            "invalid value 'fast' for '--bwlimit <LIMIT>': bad size \"fast\": not a number; write a number and B, K, M, G, T, \
             P or E, or off",
        ),
        ("--filter=*.txt", "bad filter rule \"*.txt\": write `+ pattern`, `- pattern` or `!`"),
        ("--exclude={a", "bad filter rule \"- {a\": '{' without '}'"),
    ] {
        assert_says(&lab, &["copy", "@src", "@dst", arg], 2, &[&format!("haul: {line}")]);
    }
    assert_says(&lab, &["copy", "@src"], 2, &["haul: the following required arguments were not provided: <DEST:PATH>"]);
    assert_says(&lab, &["cpoy", "@src", "@dst"], 2, &["haul: unknown command \"cpoy\" (did you mean copy?)"]);
    assert_says(
        &lab,
        &["copy", "@src", "@dst", "--files-from=@none"],
        1,
        &["haul: can't read @none: No such file or directory (os error 2)"],
    );
    assert!(!lab.path("dst").exists(), "a mistake starts nothing");
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
    assert_says(
        &lab,
        &["sync", "@src/d", "@src"],
        1,
        &["Failed to start: the source @src/d is inside the destination @src: exclude it with a filter"],
    );
    assert_says(&lab, &["sync", "@src", "@src"], 1, &["Failed to start: source and destination are the same: @src"]);
    assert_says(&lab, &["moveto", "@src/f", "@src/f"], 0, &[]);
    assert_says(&lab, &["copy", "@none", "@dst"], 3, &["@none doesn't exist"]);
    assert_says(&lab, &["copyto", "@src/none", "@dst/f"], 3, &["@src/none doesn't exist"]);
    let nothing = ["haul: @none: no such file or directory (check the spelling)"];
    for verb in ["ls", "lsd", "lsf", "lsjson", "cat", "tree", "size", "md5sum"] {
        assert_says(&lab, &[verb, "@none"], 3, &nothing);
    }
    fs::write(lab.config(), "[nas]\ntype = local\n").unwrap();
    let hint = "haul: @nas: no such file or directory (nas is also a remote: for that, type nas:)";
    assert_says(&lab, &["lsd", "nas"], 3, &[hint]);
    let ran = lab.haul(&["copy", "nas", "@dst"]).code(3);
    assert!(ran.err.contains("NOTICE: nas is also a remote: for that, type nas:\n"), "{}", ran.err);
    assert_says(&lab, &["deletefile", "@src/none"], 4, &["haul: @src/none is a directory or doesn't exist"]);
}

#[test]
fn mistakes_about_remotes() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote("r", &minio.endpoint());
    let bucket = format!("r:{}", minio.bucket("messages"));
    write(&lab.path("src/f"), b"x", 1);
    assert_says(
        &lab,
        &["ls", "nope:x"],
        1,
        &["haul: unknown remote \"nope\": not in @rclone.conf (see haul listremotes)"],
    );
    let no_bucket = ["haul: bucket no-such-bucket does not exist (check the spelling)"];
    assert_says(&lab, &["ls", "r:no-such-bucket"], 3, &no_bucket);
    assert_says(&lab, &["copy", "r:no-such-bucket/x", "@dst"], 3, &no_bucket);
    assert_says(
        &lab,
        &["copyto", "@src/f", "r:no-such-bucket/x", "--s3-no-check-bucket"],
        3,
        &["x: Failed to write: bucket no-such-bucket does not exist"],
    );
    assert_says(
        &lab,
        &["deletefile", &format!("{bucket}/none")],
        4,
        &[&format!("haul: {bucket}/none is a directory or doesn't exist")],
    );
    assert_says(&lab, &["about", "r:"], 1, &["haul: S3 has no quota to report: add sizes up with `haul size`"]);

    let secret = "--s3-secret-access-key=not-the-secret";
    let signature = "the server doesn't accept our signature (SignatureDoesNotMatch): correct secret_access_key with haul \
                     config, and see that the clock is right";
    assert_says(&lab, &["ls", &bucket, secret], 1, &[&format!("haul: {signature}")]);
    let ran = lab.haul(&["copy", "@src", &bucket, secret]).code(1);
    assert_eq!(error_lines(&lab, &ran)[0], format!("error reading destination: {signature}"));
    assert_says(
        &lab,
        &["ls", &bucket, "--s3-access-key-id=nobody"],
        1,
        &["haul: the server doesn't know our access key (InvalidAccessKeyId): correct access_key_id with haul config"],
    );
    // Nobody listens there.
    assert_says(
        &lab,
        &["ls", &bucket, "--s3-endpoint=http://127.0.0.1:1"],
        5,
        &["haul: nothing listens at 127.0.0.1:1: check the endpoint's host and port with haul config"],
    );
}

#[test]
fn secrets_are_never_shown() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote("r", &minio.endpoint());
    let bucket = format!("r:{}", minio.bucket("secrets"));
    write(&lab.path("src/f"), b"x", 1);
    for secret in [SECRET_KEY, "not-the-secret"] {
        let flag = format!("--s3-secret-access-key={secret}");
        for args in [&["ls", &bucket, "-vv", "--dump=headers"][..], &["copy", "@src", &bucket, "-vv", "--dump=headers"]]
        {
            let ran = lab.haul(&[args, &[&flag]].concat());
            assert!(!ran.err.contains(secret) && !ran.out.contains(secret), "{}", ran.err);
            assert!(!ran.err.contains("Signature="), "{}", ran.err);
        }
    }
}

#[test]
fn mistakes_in_the_configuration() {
    let lab = Lab::new(HAUL);
    let place = "haul: config file @rclone.conf";
    for (text, line) in [
        (
            "[r]\ntype = s3\nthis line says nothing\n",
            format!("{place}:3: expected [section], a comment or key = value"),
        ),
        ("[r\ntype = s3\n", format!("{place}:1: expected [section], a comment or key = value")),
        (
            "[r]\nprovider = AWS\n",
            "haul: remote \"r\" has no type: set one with haul config update, or create the remote again".into(),
        ),
        (
            "[r]\ntype = teleport\n",
            "haul: remote \"r\": unknown type of store \"teleport\"; haul has local, s3, azureblob, box, drive, dropbox, gcs, onedrive, http, sftp, far, webdav, crypt, memory, pack".into(),
        ),
        (
            "[r]\ntype = s3\nprovider = Minio\nchunk_size = much\n",
            "haul: remote \"r\", option chunk_size: bad size \"much\": unknown suffix; write a number and B, K, M, G, T, P or \
             E, or off"
                .into(),
        ),
        (
            "[r]\ntype = s3\nprovider = Minio\n",
            "haul: endpoint is not set: provider Minio has no host of its own".into(),
        ),
    ] {
        fs::write(lab.config(), text).unwrap();
        assert_says(&lab, &["ls", "r:b"], 1, &[&line]);
    }
}

/// All requested tries are made, and a message says meanwhile what they wait for.
#[test]
fn a_server_that_is_not_there_is_told_before_the_last_try() {
    let lab = Lab::new(HAUL);
    let remote = ":s3,endpoint='http://127.0.0.1:1',access_key_id=a,secret_access_key=b:b";
    let ran = lab.haul(&["ls", remote, "--low-level-retries=5"]).code(5);
    let why = "nothing listens at 127.0.0.1:1: check the endpoint's host and port with haul config";
    let message = format!("list: {why}; it has failed 4 times in a row, trying again up to 5 times");
    assert_eq!(ran.err.matches(&message).count(), 1, "{}", ran.err);
    assert!(ran.err.contains(&format!("haul: {why}\n")), "{}", ran.err);
}
