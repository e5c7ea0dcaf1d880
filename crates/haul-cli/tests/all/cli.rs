//! The real binary: version, flags, configuration (with the real rclone where it is installed), messages and exit codes.

// Tests make and read their own files.

use assert_cmd::Command;
use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

/// haul in an empty home, so that no configuration of the machine counts.
fn haul(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.env_clear().env("HOME", home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.current_dir(home).args(args).timeout(std::time::Duration::from_secs(60));
    command
}

/// Exit code, standard output, standard error; the home folder shows as HOME.
fn run(home: &Path, args: &[&str]) -> (i32, String, String) {
    run_command(home, haul(home, args))
}

fn run_command(home: &Path, mut command: Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace(home.to_str().unwrap(), "HOME");
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn home() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn version() {
    let home = home();
    let (code, out, err) = run(home.path(), &["version"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with(concat!("haul v", env!("CARGO_PKG_VERSION"), "\n- commit: ")), "{out}");
    assert!(
        out.contains("\n- os/type: linux\n")
            && out.ends_with(
                "\n- stores: local, s3, azureblob, box, drive, dropbox, gcs, onedrive, http, sftp, far, webdav, crypt, memory, pack\n- ncdu: yes\n"
            ),
        "{out}"
    );
}

#[test]
fn each_message_in_full() {
    let home = home();
    let conf = home.path().join(".config/rclone");
    fs::create_dir_all(&conf).unwrap();
    fs::write(conf.join("rclone.conf"), "[minio]\ntype = s3\n[mega]\ntype = mega\n").unwrap();
    fs::write(home.path().join("bad.conf"), "[a]\ntype = local\nbad line\n").unwrap();
    for (args, code, message) in [
        (&["version", "--transferz", "3"][..], 2, "unknown flag --transferz (did you mean --transfers?)"),
        (&["cpoy", "a", "b"], 2, "unknown command \"cpoy\" (did you mean copy?)"),
        (&["help", "cp"], 2, "unknown command \"cp\" (use copy, or copyto to give a file a new name)"),
        (&["version", "--transfers", "x"], 2, "invalid value 'x' for '--transfers <N>': it is not a whole number"),
        (
            &["version", "--max-size", "5x"],
            2,
            "invalid value '5x' for '--max-size <SIZE>': bad size \"5x\": unknown suffix; write a number and B, K, M, G, \
             T, P or E, or off",
        ),
        (&["version", "-v", "-q"], 2, "-v and -q can't be used together: choose one"),
        (&["copy", "onlyone"], 2, "the following required arguments were not provided: <DEST:PATH>"),
        (
            &["copy", "mino:b", "x"],
            1,
            "unknown remote \"mino\": not in HOME/.config/rclone/rclone.conf (did you mean minio:?)",
        ),
        (
            &["copy", "mega:b", "x"],
            1,
            "remote \"mega\": unknown type of store \"mega\"; haul has local, s3, azureblob, box, drive, dropbox, gcs, onedrive, http, sftp, far, webdav, crypt, memory, pack",
        ),
        (
            &["--config", "bad.conf", "listremotes"],
            1,
            "config file bad.conf:3: expected [section], a comment or key = value",
        ),
        (
            &["config", "create", "a/b", "local"],
            2,
            "\"a/b\" can't be a remote's name: use letters, digits, _ - . + @ and space, not - or space at the ends",
        ),
        (
            &["config", "create", "q", "nosuch"],
            2,
            "unknown type of store \"nosuch\"; haul has local, s3, azureblob, box, drive, dropbox, gcs, onedrive, http, sftp, far, webdav, crypt, memory, pack, alias",
        ),
        (&["config", "show", "minoi"], 1, "unknown remote \"minoi\" (did you mean minio?)"),
        (&["config", "update", "minio", "region"], 2, "option \"region\" has no value"),
    ] {
        assert_eq!(run(home.path(), args), (code, String::new(), format!("haul: {message}\n")), "{args:?}");
    }
}

#[test]
fn purge_never_means_every_bucket() {
    let home = home();
    let remote = ":s3,provider=Minio,endpoint='http://127.0.0.1:1',access_key_id=x,secret_access_key=y:";
    let (code, _, err) = run(home.path(), &["purge", remote]);
    assert_eq!(code, 2, "{err}");
    assert!(err.contains("all buckets of the remote: name the one to purge"), "{err}");
}

#[test]
fn a_remote_goes_through_its_life() {
    let home = home();
    let own = home.path().join(".config/haul/haul.conf");
    let ok = |args: &[&str]| {
        let (code, out, err) = run(home.path(), args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        out
    };
    assert_eq!(
        ok(&["config", "file"]),
        "Configuration file doesn't exist, but haul will use this path:\nHOME/.config/haul/haul.conf\n"
    );
    let created = ok(&["config", "create", "m", "s3", "provider=Minio", "access_key_id", "x", "secret_access_key=y"]);
    assert_eq!(created, "[m]\ntype = s3\nprovider = Minio\naccess_key_id = XXX\nsecret_access_key = XXX\n");
    assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o600);
    ok(&["config", "update", "m", "region=eu", "--no-output"]);
    assert_eq!(
        ok(&["config", "redacted", "m"]),
        "[m]\ntype = s3\nprovider = Minio\naccess_key_id = XXX\nsecret_access_key = XXX\nregion = eu\n\
         ### Look it over for what is private before showing it to others\n"
    );
    assert_eq!(
        ok(&["config", "string", "m:b"]),
        ":s3,provider=Minio,access_key_id=x,secret_access_key=y,region=eu:b\n"
    );
    ok(&["config", "unset", "m", "region", "access_key_id", "secret_access_key"]);
    assert_eq!(
        ok(&["config", "dump"]),
        "{\n    \"m\": {\n        \"provider\": \"Minio\",\n        \"type\": \"s3\"\n    }\n}\n"
    );
    assert_eq!(ok(&["listremotes", "--long"]), "m: s3\n");
    ok(&["config", "delete", "m"]);
    assert_eq!(ok(&["listremotes"]), "");
}

#[test]
fn a_remote_of_rclones_file_is_changed_there() {
    let home = home();
    let dir = home.path().join(".config/rclone");
    fs::create_dir_all(&dir).unwrap();
    fs::write(dir.join("rclone.conf"), "# mine\n[m]\ntype = s3\n").unwrap();
    let (code, out, err) = run(home.path(), &["config", "update", "m", "region", "eu"]);
    assert_eq!((code, out.as_str()), (0, "[m]\ntype = s3\nregion = eu\n"));
    assert!(err.ends_with("NOTICE: changed HOME/.config/rclone/rclone.conf, where this remote is defined\n"), "{err}");
    assert_eq!(fs::read_to_string(dir.join("rclone.conf")).unwrap(), "# mine\n[m]\ntype = s3\nregion = eu\n");
}

#[test]
fn the_menu_makes_and_deletes_a_remote() {
    let home = home();
    let mut menu = haul(home.path(), &["config"]);
    let (code, out, _) = run_command(home.path(), {
        menu.write_stdin("n\nnick\nalias\n/tmp\ny\nq\n");
        menu
    });
    assert_eq!(code, 0, "{out}");
    assert_eq!(run(home.path(), &["config", "show"]).1, "[nick]\ntype = alias\nremote = /tmp\n");
    let mut menu = haul(home.path(), &["config"]);
    menu.write_stdin("c\nnick\nnack\nd\n1\ny\nq\n");
    assert_eq!(run_command(home.path(), menu).0, 0);
    assert_eq!(run(home.path(), &["listremotes"]).1, "nack:\n");
    let mut cut = haul(home.path(), &["config"]);
    cut.write_stdin("n\n");
    let (code, _, err) = run_command(home.path(), cut);
    assert_eq!((code, err.as_str()), (1, "haul: the input ended before the configuration was done\n"));
}

#[test]
fn an_encrypted_configuration() {
    let home = home();
    let file = home.path().join("c");
    fs::write(&file, "[m]\ntype = local\n").unwrap();
    let with = |password: Option<&str>, args: &[&str]| {
        let mut command = haul(home.path(), &["--config", "c", "--ask-password=false"]);
        command.args(args);
        if let Some(password) = password {
            command.env("RCLONE_CONFIG_PASS", password);
        }
        run_command(home.path(), command)
    };
    assert_eq!(with(None, &["config", "encryption", "check"]).2, "haul: config file c isn't encrypted\n");
    assert_eq!(with(Some("pw"), &["config", "encryption", "set"]).0, 0);
    assert!(fs::read_to_string(&file).unwrap().contains("RCLONE_ENCRYPT_V0:"));
    assert_eq!(with(Some("pw"), &["config", "encryption", "check"]).0, 0);
    assert_eq!(with(Some("pw"), &["listremotes"]).1, "m:\n");
    assert_eq!(
        with(None, &["listremotes"]).2,
        "haul: c is encrypted: set HAUL_CONFIG_PASS or --password-command, or allow --ask-password\n"
    );
    let by_command = ["--password-command", "echo pw", "listremotes"];
    assert_eq!(with(None, &by_command).1, "m:\n");
    assert_eq!(with(Some("pw"), &["config", "encryption", "remove"]).0, 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), "[m]\ntype = local\n");
}

/// rclone, where it is installed.
fn rclone(home: &Path, args: &[&str]) -> Option<String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let go = std::env::home_dir().map(|h| h.join("go/bin/rclone"));
    let program = std::env::split_paths(&path).map(|d| d.join("rclone")).chain(go).find(|p| p.exists())?;
    let mut command = Command::new(program);
    let output = command.env_clear().env("HOME", home).env("RCLONE_CONFIG_PASS", "pw é").args(args).output().unwrap();
    Some(String::from_utf8(output.stdout).unwrap())
}

#[test]
fn rclone_reads_what_haul_wrote_and_the_other_way_round() {
    let home = home();
    let file = home.path().join("c");
    let path = file.to_str().unwrap();
    let values = [
        "access_key_id= a ",
        "secret_access_key=`q\"=:#",
        "region=\"\"\"x\"\"\"",
        "acl=%20",
        "endpoint=http://h:1/?a=b",
    ];
    let mut args = vec!["--config", path, "config", "create", "m", "s3"];
    args.extend(values);
    assert_eq!(run(home.path(), &args).0, 0);
    let dump = |of: &str| -> serde_json::Value { serde_json::from_str(of).unwrap() };
    let ours = run(home.path(), &["--config", path, "config", "dump"]).1;
    let Some(theirs) = rclone(home.path(), &["--config", path, "config", "dump"]) else {
        eprintln!("skipped: rclone is not installed");
        return;
    };
    assert_eq!(dump(&ours), dump(&theirs));
    for value in values {
        let (key, value) = value.split_once('=').unwrap();
        assert_eq!(dump(&theirs)["m"][key], value, "{key}");
    }
    rclone(home.path(), &["--config", path, "config", "encryption", "set"]).unwrap();
    let mut command = haul(home.path(), &["--config", path, "config", "dump"]);
    command.env("HAUL_CONFIG_PASS", "pw é");
    assert_eq!(dump(&run_command(home.path(), command).1), dump(&theirs));
    let mut command = haul(home.path(), &["--config", path, "config", "update", "m", "region=new", "--no-output"]);
    command.env("HAUL_CONFIG_PASS", "pw é");
    assert_eq!(run_command(home.path(), command).0, 0);
    let theirs = rclone(home.path(), &["--config", path, "config", "dump"]).unwrap();
    assert_eq!(dump(&theirs)["m"]["region"], "new");
}

#[test]
fn a_copy_reads_its_flags_from_the_environment_and_logs_like_rclone() {
    let home = home();
    let src = home.path().join("s");
    fs::create_dir(&src).unwrap();
    fs::write(src.join("a.txt"), "hello").unwrap();
    fs::write(src.join("b.log"), "no").unwrap();
    let mut dry = haul(home.path(), &["copy", "s", "d"]);
    dry.env("RCLONE_EXCLUDE", "*.log").env("HAUL_DRY_RUN", "true");
    let (code, _, err) = run_command(home.path(), dry);
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("NOTICE: a.txt: Skipped copy as --dry-run is set (size 5)\n"), "{err}");
    assert!(!err.contains("b.log") && !home.path().join("d").exists(), "{err}");
    let (code, out, err) = run(home.path(), &["copy", "s", "d", "-v", "--exclude", "*.log", "--log-file", "log"]);
    assert_eq!((code, out.as_str(), err.as_str()), (0, "", ""));
    let log = fs::read_to_string(home.path().join("log")).unwrap();
    assert!(log.contains(" INFO  : a.txt: Copied ("), "{log}");
    assert!(log.contains("Transferred:   \t") && log.contains("Elapsed time:"), "{log}");
    let (code, out, _) = run(home.path(), &["copy", "s", "d", "-P"]);
    assert_eq!(code, 0);
    assert!(out.contains("Transferred:            1 / 1, 100%\n"), "{out}");
    assert!(!out.contains('\x1b'), "nothing is drawn where there is no terminal: {out:?}");
    let (code, _, err) = run(home.path(), &["copy", "s", "d", "--use-json-log", "-vv"]);
    assert_eq!(code, 0);
    for line in err.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["time"].is_string() && line["level"].is_string() && line["msg"].is_string(), "{line}");
        assert!(line["source"].as_str().is_some_and(|source| !source.contains(".rs")), "{line}");
    }
    let last: serde_json::Value = serde_json::from_str(err.lines().last().unwrap()).unwrap();
    assert_eq!((&last["stats"]["transfers"], &last["stats"]["errors"]), (&0.into(), &0.into()), "{last}");
    let (_, _, err) = run(home.path(), &["copy", "s", "d", "--color=always", "--buffer-size=1M"]);
    assert!(err.contains(" \x1b[33mNOTICE\x1b[0m: Ignoring --buffer-size: haul needs no such setting\n"), "{err:?}");
    assert_eq!(run(home.path(), &["copy", "s", "d", "--error-on-no-transfer"]).0, 9);
}

#[test]
fn a_backup_inside_what_is_synced_is_refused() {
    let home = home();
    fs::create_dir_all(home.path().join("dst/old")).unwrap();
    fs::create_dir(home.path().join("src")).unwrap();
    fs::write(home.path().join("src/a"), "new").unwrap();
    fs::write(home.path().join("dst/a"), "old one").unwrap();
    let message = "Failed to start: --backup-dir dst/old overlaps with the destination dst: choose one outside of it, or \
                leave it out with a filter\n";
    let (code, _, err) = run(home.path(), &["sync", "src", "dst", "--backup-dir", "dst/old"]);
    assert!(code == 1 && err.ends_with(message), "{err}");
    let (code, _, err) = run(home.path(), &["copyto", "src/a", "dst/a", "--backup-dir", "dst"]);
    assert!(code == 1 && err.contains("--backup-dir dst overlaps with the destination dst: "), "{err}");
    assert_eq!(fs::read_to_string(home.path().join("dst/a")).unwrap(), "old one");
    for _ in 0..2 {
        let args = ["sync", "src", "dst", "--backup-dir", "dst/old", "--exclude", "/old/**"];
        assert_eq!(run(home.path(), &args), (0, String::new(), String::new()));
    }
    assert_eq!(fs::read_to_string(home.path().join("dst/old/a")).unwrap(), "old one");
}

#[test]
fn help_says_how_to_use_a_command() {
    let home = home();
    for (args, part) in [
        (&["lsf", "--help"][..], "p path, s size, t modification time, h hash"),
        (&["help", "sync"], "Example: haul sync --dry-run ~/photos minio:backup/photos"),
        (&["help", "flags", "bwlimit"], "--bwlimit <LIMIT>"),
    ] {
        let (code, out, err) = run(home.path(), args);
        assert!(code == 0 && err.is_empty() && out.contains(part), "{args:?}: {out}");
    }
}

#[test]
fn the_menu_of_config_makes_an_s3_remote() {
    let home = home();
    // Name, type, provider, keys, region, endpoint; --auto-confirm keeps it.
    let answers = "n\nr\n?\ns3\n2\n?\nkey\nsecret\n\nhttp://127.0.0.1:9\nq\n";
    let output = haul(home.path(), &["config", "--auto-confirm"]).write_stdin(answers).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let out = String::from_utf8(output.stdout).unwrap();
    assert!(!out.contains("= key") && !out.contains("= secret"), "secrets are shown: {out}");
    let (code, out, _) = run(home.path(), &["config", "show", "r"]);
    let want = "[r]\ntype = s3\nprovider = Minio\naccess_key_id = key\nsecret_access_key = secret\n\
                endpoint = http://127.0.0.1:9\n";
    assert_eq!((code, out.as_str()), (0, want));
}

#[test]
fn the_menu_of_config_explains_tests_and_edits() {
    let home = home();
    let menu = |answers: &'static str| {
        let output = haul(home.path(), &["config", "--auto-confirm"]).write_stdin(answers).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    // Enter alone shows the menu again.
    let out = menu("\nq\n");
    assert!(out.matches("n) New remote").count() == 2 && !out.contains("isn't in the menu"), "{out}");
    // What can't be an answer is asked for again. Who has keys isn't asked about the environment's.
    let out = menu("n\nr\n?\ns3\nMinio\nkey\nsecret\nhttp://127.0.0.1:1\n\nhttp://127.0.0.1:1\nq\n");
    assert!(!out.contains("env_auth>") && !out.contains("env_auth (default"), "{out}");
    assert!(
        out.contains("A region is a name, such as us-east-1. The address is asked for next, as\nendpoint."),
        "{out}"
    );
    let too_wide = |line: &&str| line.chars().count() > 80 && !line.contains("Written to ");
    assert_eq!(out.lines().flat_map(|line| line.split("> ")).find(too_wide), None);
    assert!(out.contains("An S3 service of any make is s3."), "{out}");
    assert!(!out.contains("sse_kms_key_id") && !out.contains("storage_class"), "few questions: {out}");
    assert!(out.contains("It doesn't work yet: nothing listens at 127.0.0.1:1"), "{out}");
    let out = menu("e\nr\n\n\n\neu\n-\nq\n");
    assert!(out.contains("endpoint (now http://127.0.0.1:1)"), "{out}");
    let want = "[r]\ntype = s3\nprovider = Minio\naccess_key_id = key\nsecret_access_key = secret\nregion = eu\n";
    assert_eq!(run(home.path(), &["config", "show", "r"]).1, want);
    // Without keys no secret is asked for.
    let out = menu("n\nopen\ns3\nMinio\n\n?\nyes\n\n\nhttp://127.0.0.1:1\nq\n");
    assert_eq!(out.matches("Type true or false.").count(), 2, "{out}");
    assert!(!out.contains("secret_access_key>"), "{out}");
    let out = menu("n\nhere\nalias\n/tmp\nq\n");
    assert!(out.contains("It works. Next: haul lsd here:"), "{out}");
}
