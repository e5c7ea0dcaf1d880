//! `--events`: the lines of a job and of a check, as another program reads them.

use haul_core::event::Event;
use haul_testkit::{folder::write, lab::Lab};
use serde_json::{Value, json};
use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt as _};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;

fn lab() -> Lab {
    let lab = Lab::new(HAUL);
    for (path, text) in
        [("src/same", "same"), ("dst/same", "same"), ("src/new/a", "new"), ("src/x", "longer"), ("dst/x", "x")]
    {
        write(&lab.path(path), text.as_bytes(), TIME);
    }
    fs::write(lab.path("src").join(OsStr::from_bytes(b"\xff")), "bytes").unwrap();
    std::os::unix::fs::symlink("new/a", lab.path("src/link")).unwrap();
    lab
}

/// Each line has a time and is an event that the library reads, and writes the same.
fn events(lab: &Lab) -> Vec<Value> {
    let text = fs::read_to_string(lab.path("events")).unwrap();
    let line = |line: &str| {
        let mut value: Value = serde_json::from_str(line).unwrap();
        let time = value.as_object_mut().unwrap().shift_remove("time").unwrap();
        assert!(time.as_str().unwrap().parse::<jiff::Timestamp>().is_ok(), "{line}");
        let event: Event = serde_json::from_value(value.clone()).unwrap();
        assert_eq!(serde_json::to_value(event).unwrap(), value);
        value
    };
    text.lines().map(line).collect()
}

fn of<'a>(all: &'a [Value], event: &str, key: &Value) -> &'a Value {
    let is = |one: &&Value| one["event"] == event && one["key"] == *key;
    all.iter().find(is).unwrap_or_else(|| panic!("{event} {key}: {all:#?}"))
}

#[test]
fn a_copy_tells_what_it_decides_and_does() {
    let lab = lab();
    lab.haul(&["copy", "--links", "--archive", "--events", "@events", "@src", "@dst"]).ok();
    let all = events(&lab);
    let decided = of(&all, "decided", &json!("x"));
    assert_eq!((&decided["action"], &decided["why"], &decided["size"]), (&json!("copy"), &json!("size"), &json!(6)));
    assert_eq!(decided["facts"]["mtime"], json!("1600000000.000000000"));
    assert_eq!(decided["facts"]["posix"]["size"], json!(6));
    assert_eq!(of(&all, "decided", &json!("same"))["action"], json!("keep"));
    assert_eq!(of(&all, "done", &json!("new/a"))["replaced"], json!(false));
    assert_eq!(of(&all, "done", &json!("x"))["replaced"], json!(true));
    assert_eq!(of(&all, "done", &json!({"bytes": "ff"}))["size"], json!(5));
    assert_eq!(of(&all, "done", &json!({"symlink": "link"}))["size"], json!(5));
    let listed = |all: &[Value]| all.iter().filter(|e| e["event"] == "listed" && e["side"] == "src").count();
    assert!(listed(&all) > 0);
    // A run after it replaces the file.
    lab.haul(&["sync", "--links", "--archive", "--dry-run", "--events", "@events", "@src", "@dst"]).ok();
    let all = events(&lab);
    assert!(!all.iter().any(|event| event["event"] == "done"), "{all:#?}");
}

#[test]
fn a_check_tells_decisions_of_which_none_is_carried_out() {
    let lab = lab();
    write(&lab.path("dst/extra"), b"e", TIME);
    let ran = lab.haul(&["check", "--events", "@events", "@src", "@dst"]);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let all = events(&lab);
    let decided = |key: &str| {
        let one = of(&all, "decided", &json!(key));
        assert_eq!(one["dry_run"], json!(true));
        (one["action"].as_str().unwrap().to_owned(), one["why"].clone())
    };
    assert_eq!(decided("same"), ("keep".into(), json!({"hash": "blake3"})));
    assert_eq!(decided("x"), ("copy".into(), json!("size")));
    assert_eq!(decided("new/a"), ("copy".into(), json!("missing")));
    assert_eq!(decided("extra"), ("keep".into(), json!("extra")));
}

#[test]
fn events_that_can_not_be_written_are_an_error() {
    let lab = lab();
    let ran = lab.haul(&["copy", "--events", "@nowhere/events", "@src", "@dst"]);
    assert!(ran.code != 0 && ran.err.contains("can't create"), "{}: {}", ran.code, ran.err);
    assert!(!lab.path("dst/new").exists(), "nothing began");
    let ran = lab.haul(&["copy", "--events", "/dev/full", "@src", "@dst"]);
    assert!(ran.code != 0 && ran.err.contains("can't write the events"), "{}: {}", ran.code, ran.err);
}
