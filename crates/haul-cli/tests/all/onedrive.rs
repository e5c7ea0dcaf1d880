//! The simulated OneDrive: real rclone is at home on it; then the real binary, beside rclone.

use haul_testkit::{
    folder::{self, noise, write},
    lab::{Lab, until},
    onedrivesim::{OneDrive, Settings, USER_CODE},
};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_000_000_000;

fn lab(drive: &OneDrive) -> Lab {
    let lab = Lab::new(HAUL);
    fs::write(lab.config(), drive.section("od")).expect("config");
    lab
}

fn files(lab: &Lab, dir: &str) {
    for n in 0..30u64 {
        let size = if n % 10 == 0 { 3 * MIB + n as usize } else { (n * n * 7) as usize };
        write(&lab.path(&format!("{dir}/{}/f {n}é", n % 3)), &noise(n, size), TIME + n * 1_000_000_000);
    }
}

#[test]
fn rclone_is_at_home_on_the_simulator() {
    for drive_type in ["personal", "business", "documentLibrary"] {
        let drive = OneDrive::start(Settings { drive_type, page: 7, ..Settings::default() }).expect("started");
        let lab = lab(&drive);
        if !lab.has_rclone() {
            return;
        }
        files(&lab, "src");
        lab.rclone(&["copy", "@src", "od:a/b", "--onedrive-chunk-size", "640k"]).ok();
        let config = fs::read_to_string(lab.config()).expect("config");
        fs::write(lab.config(), config.replace("2099-01-01", "2020-01-01")).expect("config");
        lab.rclone(&["check", "--download", "@src", "od:a/b"]).ok();
        assert_eq!(drive.renewals(), 1);
        lab.rclone(&["check", "@src", "od:a/b"]).ok();
        let sorted = |text: String| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        let times = |ran: haul_testkit::lab::ProgramResult| sorted(ran.ok().out);
        let format = |dir| ["lsf", "-R", "--files-only", "--format", "pst", "--time-format", "RFC3339", dir];
        let local = lab.path("src");
        let local = local.to_str().expect("text");
        assert_eq!(times(lab.rclone(&format("od:a/b"))), times(lab.rclone(&format(local))));
        let whole = lab.rclone(&["lsf", "-R", "od:", "--onedrive-delta", "--fast-list"]).ok();
        assert_eq!(whole.lines(), lab.rclone(&["lsf", "-R", "od:"]).ok().lines());
        assert!(drive.counts()["delta"] > 1);
        let sums = |dir: &str| lab.rclone(&["hashsum", "quickxor", dir]).ok().out;
        assert_eq!(sorted(sums("od:a/b")), sorted(sums("@src")));
        // Again nothing is to be done; a changed file is another version.
        lab.rclone(&["copy", "@src", "od:a/b"]).ok();
        assert!(!drive.counts().contains_key("range"));
        write(&lab.path("src/1/f 1é"), b"other", TIME + 5_000_000_000);
        lab.rclone(&["sync", "@src", "od:a/b"]).ok();
        assert_eq!(drive.shown()["a/b/1/f 1é"].versions, 2);
        assert_eq!(drive.shown()["a/b/1/f 4é"].versions, 1);
        lab.rclone(&["copy", "od:a/b", "od:copied"]).ok();
        lab.rclone(&["check", "od:a/b", "od:copied"]).ok();
        lab.rclone(&["moveto", "od:copied/1", "od:moved/x"]).ok();
        lab.rclone(&["moveto", "od:moved/x/f 1é", "od:moved/y"]).ok();
        lab.rclone(&["deletefile", "od:moved/y"]).ok();
        lab.rclone(&["purge", "od:copied"]).ok();
        assert_eq!(drive.recycled(), 2);
        lab.rclone(&["copy", "od:a/b", "@back"]).ok();
        let read = |name| folder::files(&folder::read(&lab.path(name)));
        folder::assert_same(&read("src"), &read("back"), "");
        assert!(lab.rclone(&["about", "od:"]).ok().out.contains("1 TiB"));
        lab.rclone(&["link", "od:a/b/1/f 1é"]).ok();
    }
}

/// rclone first: what it does in China's cloud, and with what others share, is what the simulator has to answer.
#[test]
fn rclone_is_at_home_in_chinas_cloud_and_in_what_others_share() {
    for by_child in [false, true] {
        let drive = OneDrive::start(Settings { by_child, page: 4, ..Settings::default() }).expect("started");
        let lab = lab(&drive);
        if !lab.has_rclone() {
            return;
        }
        if by_child {
            fs::write(lab.config(), drive.section("od") + "region = cn\n").expect("config");
        }
        drive.put_there("team/d/old", b"old");
        drive.share("team", "shared");
        files(&lab, "src");
        for to in ["od:own/it's", "od:shared/d"] {
            lab.rclone(&["copy", "@src", to, "--onedrive-chunk-size", "640k"]).ok();
            lab.rclone(&["check", "--one-way", "--download", "@src", to]).ok();
        }
        let (own, theirs) = (drive.shown(), drive.shown_there());
        assert!(theirs.contains_key("team/d/1/f 1é"), "{:?} {:?}", theirs.keys(), own.keys());
        assert!(!own.keys().any(|name| name.starts_with("shared/")), "{:?}", own.keys());
        assert!(drive.shown()["own/it's/1/f 1é"].size.is_some());
        let listed = lab.rclone(&["lsf", "-R", "od:"]).ok();
        assert!(listed.lines().contains(&"shared/d/old"), "{}{}", listed.out, listed.err);
        lab.rclone(&["delete", "od:shared/d", "--include", "old"]).ok();
        assert!(!drive.shown_there().contains_key("team/d/old"));
    }
}

#[test]
fn chinas_cloud_and_what_others_share() {
    for by_child in [false, true] {
        let drive = OneDrive::start(Settings { by_child, page: 4, ..Settings::default() }).expect("started");
        let lab = lab(&drive);
        if by_child {
            fs::write(lab.config(), drive.section("od") + "region = cn\n").expect("config");
        }
        drive.put_there("team/d/old", b"old");
        drive.put_there("team/one", b"one file");
        drive.share("team", "shared");
        drive.share("team/one", "one here");
        files(&lab, "src");
        for to in ["od:own/it's", "od:shared/d"] {
            lab.haul(&["copy", "@src", to]).ok();
            lab.haul(&["check", "--one-way", "--download", "@src", to]).ok();
            let again = lab.haul(&["copy", "@src", to, "-v"]).ok();
            assert!(!again.err.contains("Copied"), "nothing moves again: {}", again.err);
        }
        let (own, theirs) = (drive.shown(), drive.shown_there());
        assert!(theirs.contains_key("team/d/1/f 1é"), "{:?} {:?}", theirs.keys(), own.keys());
        assert!(!own.keys().any(|name| name.starts_with("shared/")), "{:?}", own.keys());
        let listed = lab.haul(&["lsf", "-R", "od:"]).ok();
        for name in ["shared/", "shared/d/old", "shared/d/1/f 1é", "shared/one", "one here", "own/it's/1/f 1é"] {
            assert!(listed.lines().contains(&name), "{name}: {}", listed.out);
        }
        if lab.has_rclone() {
            assert_eq!(lab.rclone(&["lsf", "-R", "od:"]).ok().lines(), listed.lines());
        }
        assert_eq!(lab.haul(&["cat", "od:one here"]).ok().out, "one file");
        // From one drive to the other all passes through here; inside one it doesn't.
        lab.haul(&["copy", "od:shared/d", "od:copied"]).ok();
        lab.haul(&["copy", "od:shared/d", "od:shared/e"]).ok();
        lab.haul(&["check", "od:copied", "od:shared/e"]).ok();
        lab.haul(&["moveto", "od:shared/e/old", "od:shared/e/new"]).ok();
        assert!(drive.shown_there().contains_key("team/e/new") && !drive.shown_there().contains_key("team/e/old"));
        fs::remove_dir_all(lab.path("src/1")).expect("removed");
        lab.haul(&["sync", "@src", "od:shared/d"]).ok();
        assert!(!drive.shown_there().contains_key("team/d/1/f 1é") && !drive.shown_there().contains_key("team/d/old"));
        // What is shared is deleted here and stays where it is.
        let full = lab.haul(&["rmdir", "od:shared"]);
        assert!(full.code != 0 && drive.shown().contains_key("shared"), "{}", full.err);
        lab.haul(&["deletefile", "od:one here"]).ok();
        assert!(!drive.shown().contains_key("one here") && drive.shown_there().contains_key("team/one"));
        lab.haul(&["purge", "od:shared/d"]).ok();
        lab.haul(&["purge", "od:shared/e"]).ok();
        assert!(drive.shown_there().keys().eq(["team", "team/one"]), "{:?}", drive.shown_there().keys());
        // Somebody else's folder as a remote of its own.
        let (id, folder) = drive.there("team");
        let theirs = format!("od,drive_id={id},root_folder_id={folder}:");
        lab.haul(&["copy", "@src", &theirs]).ok();
        assert!(drive.shown_there().contains_key("team/2/f 2é"));
        lab.haul(&["check", "@src", &theirs, "--one-way"]).ok();
    }
}

#[test]
fn copied_compared_synced_and_moved() {
    let drive = OneDrive::start(Settings { page: 9, ..Settings::default() }).expect("started");
    let lab = lab(&drive);
    files(&lab, "src");
    drive.counts();
    let whose = lab.haul(&["config", "userinfo", "od:", "--json"]).ok().out;
    assert!(whose.contains("\"email\": \"a@example.com\""), "{whose}");
    lab.haul(&["copy", "@src", "od:d"]).ok();
    let counts = drive.counts();
    // A session and a range for each file; nothing is sent twice.
    // Times are set of the three folders alone.
    assert_eq!((counts["session"], counts["range"], counts["patch"]), (30, 30, 3), "{counts:?}");
    assert!(drive.shown().values().all(|shown| shown.versions <= 1));
    lab.haul(&["check", "@src", "od:d"]).ok();
    assert!(!drive.counts().contains_key("download"), "hashes are listed");
    lab.haul(&["check", "--download", "@src", "od:d"]).ok();
    let again = lab.haul(&["copy", "@src", "od:d", "-v"]).ok();
    assert!(!again.err.contains("Copied"), "nothing moves again: {}", again.err);
    drive.counts();
    let whole = lab.haul(&["lsf", "-R", "od:"]).ok();
    assert!(drive.counts().keys().all(|kind| *kind == "delta"), "the drive is asked for as a whole");
    if lab.has_rclone() {
        lab.rclone(&["check", "--download", "@src", "od:d"]).ok();
        assert_eq!(lab.rclone(&["lsf", "-R", "od:"]).ok().lines(), whole.lines());
        lab.rclone(&["copy", "@src", "od:r"]).ok();
        let same = lab.haul(&["sync", "@src", "od:r", "-v"]).ok();
        assert!(!same.err.contains("Copied"), "{}", same.err);
        let format = ["--files-only", "--format", "pst", "--time-format", "RFC3339"];
        let list = |dir| [&["lsf", "-R", dir][..], &format].concat();
        assert_eq!(lab.rclone(&list("od:r")).ok().lines(), lab.haul(&list("od:d")).ok().lines());
        let sums = |ran: haul_testkit::lab::ProgramResult| ran.ok().lines().join("\n");
        assert_eq!(
            sums(lab.rclone(&["hashsum", "quickxor", "@src"])),
            sums(lab.haul(&["hashsum", "quickxor", "@src"]))
        );
        assert_eq!(
            sums(lab.rclone(&["hashsum", "quickxor", "od:d"])),
            sums(lab.haul(&["hashsum", "quickxor", "od:d"]))
        );
    }
    drive.counts();
    lab.haul(&["copy", "od:d", "od:e"]).ok();
    let counts = drive.counts();
    assert!(
        counts["copy"] == 30 && !counts.contains_key("download"),
        "inside the drive nothing passes here: {counts:?}"
    );
    fs::remove_dir_all(lab.path("src/1")).expect("removed");
    write(&lab.path("src/0/f 0é"), b"changed", TIME + 100_000_000_000);
    lab.haul(&["sync", "@src", "od:e"]).ok();
    lab.haul(&["copy", "od:e", "@back"]).ok();
    let read = |name| folder::files(&folder::read(&lab.path(name)));
    folder::assert_same(&read("src"), &read("back"), "");
    lab.haul(&["move", "od:e", "od:moved"]).ok();
    assert_eq!(lab.haul(&["lsf", "-R", "--files-only", "od:e"]).ok().out, "");
    let moved = lab.haul(&["moveto", "od:moved", "od:m2", "-v"]).ok();
    assert!(moved.err.contains("Renamed to"), "{}", moved.err);
    lab.haul(&["lsf", "od:moved"]).code(3);
    lab.haul(&["moveto", "od:m2", "od:moved"]).ok();
    lab.haul(&["check", "@src", "od:moved"]).ok();
    lab.haul(&["purge", "od:d"]).ok();
    assert!(!drive.shown().contains_key("d"));
    assert!(lab.haul(&["about", "od:"]).ok().out.contains("1 TiB"));
}

#[test]
fn two_names_that_are_one_are_told_and_neither_is_lost() {
    let drive = OneDrive::start(Settings::default()).expect("started");
    let lab = lab(&drive);
    for name in ["a/Read", "a/read", "b"] {
        write(&lab.path("src").join(name), name.as_bytes(), TIME);
    }
    let ran = lab.haul(&["copy", "@src", "od:x"]).code(6);
    assert!(ran.err.contains("which is the same name for OneDrive: rename one of them"), "{}", ran.err);
    let shown = drive.shown();
    let versions: Vec<usize> =
        shown.values().filter(|shown| shown.size.is_some()).map(|shown| shown.versions).collect();
    assert_eq!(versions, [1, 1], "{shown:?}");
}

#[test]
fn names_mean_the_same_to_rclone() {
    let drive = OneDrive::start(Settings::default()).expect("started");
    let lab = lab(&drive);
    if !lab.has_rclone() {
        return;
    }
    let odd = [
        "a:b",
        "q?",
        "s*",
        "p|",
        "b\\s",
        "lt<gt>",
        "quote\"",
        " left",
        "right ",
        "dot.",
        "~tilde",
        "...",
        "new\nline",
        "tab\t",
        "del\u{7f}",
        "full：",
        "％",
        "é",
        "日本",
        "a#b",
        "a%b",
        "a%20b",
        "a+b",
        "a&b=c",
        "(x)",
        "a;b",
        "a'b",
        "[x]",
        "␀",
    ];
    for (n, name) in odd.iter().enumerate() {
        write(&lab.path(&format!("src/{n} {name}/{name}")), name.as_bytes(), TIME);
        write(&lab.path(&format!("src/{n}f/{name}x{name}")), name.as_bytes(), TIME);
    }
    lab.haul(&["copy", "@src", "od:h"]).ok();
    lab.rclone(&["copy", "@src", "od:r"]).ok();
    let below = |top: &str| -> Vec<String> {
        let shown = drive.shown().into_keys();
        shown.filter_map(|path| path.strip_prefix(top).map(str::to_owned)).collect()
    };
    assert_eq!(below("h/"), below("r/"));
    assert_eq!(below("h/").len(), odd.len() * 4);
    lab.rclone(&["copy", "od:h", "@by-rclone"]).ok();
    lab.haul(&["copy", "od:r", "@by-haul"]).ok();
    let read = |name| folder::files(&folder::read(&lab.path(name)));
    folder::assert_same(&read("src"), &read("by-rclone"), "rclone");
    folder::assert_same(&read("src"), &read("by-haul"), "haul");
}

#[test]
fn a_killed_upload_goes_on_where_its_session_is() {
    let drive = OneDrive::start(Settings { latency: std::time::Duration::from_millis(50), ..Settings::default() })
        .expect("started");
    let lab = lab(&drive);
    write(&lab.path("src/big"), &noise(1, 40 * MIB + 5), TIME);
    let flags = ["copy", "@src", "od:x", "--onedrive-chunk-size", "640Ki"];
    drive.received();
    let (mut sent, mut sessions) = (0, 0);
    for goal in [8, 16, 24] {
        let mut child = lab.start(&flags);
        let ranges = || {
            let counts = drive.counts();
            sessions += counts.get("session").copied().unwrap_or_default();
            sent += drive.received();
            sent > goal * MIB as u64
        };
        assert!(until(ranges));
        child.kill().expect("killed");
        child.wait().expect("ended");
        assert!(!drive.shown().contains_key("x/big"), "it doesn't show");
    }
    lab.haul(&flags).ok();
    sessions += drive.counts().get("session").copied().unwrap_or_default();
    sent += drive.received();
    assert_eq!((sessions, drive.shown()["x/big"].versions), (1, 1));
    // A request that is cut is sent again: of three kills, three chunks.
    assert!(sent < (40 + 3) * MIB as u64, "{sent} bytes were sent");
    lab.haul(&["check", "--download", "@src", "od:x"]).ok();
}

#[test]
fn throttled_requests_wait_as_the_service_says() {
    let settings = Settings { rate: Some(40.0), retry_after: 1, ..Settings::default() };
    let drive = OneDrive::start(settings).expect("started");
    let lab = lab(&drive);
    files(&lab, "src");
    lab.haul(&["copy", "@src", "od:x"]).ok();
    let requests: usize = drive.counts().values().sum();
    lab.haul(&["check", "@src", "od:x"]).ok();
    assert!(drive.throttled() * 4 < requests, "{} of {requests} requests were refused", drive.throttled());
    assert!(drive.shown().values().all(|shown| shown.versions <= 1));
}

#[test]
fn a_token_is_renewed_and_kept() {
    let drive = OneDrive::start(Settings::default()).expect("started");
    let lab = lab(&drive);
    drive.put("d/f", b"text");
    drive.revoke();
    for _ in 0..2 {
        assert_eq!(lab.haul(&["cat", "od:d/f"]).ok().out, "text");
    }
    assert_eq!(drive.renewals(), 1);
    assert!(fs::read_to_string(lab.config()).expect("config").contains("refresh-1"));
    if lab.has_rclone() {
        assert_eq!(lab.rclone(&["cat", "od:d/f"]).ok().out, "text");
    }
}

#[test]
fn office_files_that_sharepoint_rewrites_are_told() {
    let drive = OneDrive::start(Settings { drive_type: "documentLibrary", rewrites: true, ..Settings::default() });
    let drive = drive.expect("started");
    let lab = lab(&drive);
    write(&lab.path("src/x.docx"), b"text", TIME);
    let ran = lab.haul(&["copy", "@src", "od:x"]).code(1);
    assert!(ran.err.contains("SharePoint writes into Office and HTML files"), "{}", ran.err);
    assert_eq!(drive.shown()["x/x.docx"].versions, 1, "it is sent once");
    let quiet = ["copy", "@src", "od:x", "--ignore-size", "--ignore-checksum", "-v"];
    assert!(!lab.haul(&quiet).ok().err.contains("Copied"));
}

#[test]
fn the_drive_is_asked_for_by_rclones_questions() {
    let drive = OneDrive::start(Settings { drive_type: "documentLibrary", ..Settings::default() }).expect("started");
    let lab = lab(&drive);
    let id = drive.options("").into_iter().find(|(name, _)| *name == "drive_id").expect("an id").1;
    let bare: Vec<String> =
        drive.section("od").lines().filter(|line| !line.starts_with("drive_")).map(str::to_owned).collect();
    let bare = bare.join("\n") + "\n";
    let ways: [&[&str]; 6] = [
        &["onedrive", &id, "true"],
        &["sharepoint", &id, "true"],
        &["url", "team", &id, "true"],
        &["path", "/sites/team", &id, "true"],
        &["siteid", "x.example,1,2", &id, "true"],
        &["search", "ea", "x.example,1,2", &id, "true"],
    ];
    // Names of the questions and what there is to choose from.
    let configure = |by: &dyn Fn(&[&str]) -> haul_testkit::lab::ProgramResult, answers: &[&str]| {
        fs::write(lab.config(), &bare).expect("config");
        let (mut state, mut questions) = ("choose_type".to_owned(), Vec::new());
        for answer in ["begin"].iter().chain(answers) {
            let reply = by(&["config", "update", "od", "--continue", "--state", &state, "--result", answer]).ok().out;
            let reply: serde_json::Value = serde_json::from_str(&reply).expect("JSON");
            assert_eq!(reply["Error"], "", "{answers:?} {reply}");
            state = reply["State"].as_str().expect("a state").to_owned();
            let choices = reply["Option"]["Examples"].as_array().cloned().unwrap_or_default();
            let choices: Vec<String> = choices.iter().map(|choice| choice["Value"].to_string()).collect();
            questions.push((reply["Option"]["Name"].to_string(), choices));
        }
        assert_eq!(state, "", "{answers:?}");
        let config = fs::read_to_string(lab.config()).expect("config");
        assert!(config.contains(&format!("drive_id = {id}\ndrive_type = documentLibrary\n")), "{config}");
        questions
    };
    for answers in ways {
        let ours = configure(&|args| lab.haul(args), answers);
        if lab.has_rclone() {
            assert_eq!(ours, configure(&|args| lab.rclone(args), answers), "{answers:?}");
        }
    }
    // A whole address, and an id that somebody knows.
    configure(&|args| lab.haul(args), &["url", "https://x.example/sites/team", &id, "true"]);
    configure(&|args| lab.haul(args), &["driveid", &id, "true"]);
    // A missing site is asked for again. A person answers by number.
    let no = ["config", "update", "od", "--continue", "--state", "url_end", "--result", "nowhere"];
    let output = lab.haul(&no).ok().out;
    assert!(output.contains("\"Name\": \"config_type\"") && output.contains("itemNotFound"), "{output}");
    if lab.has_rclone() {
        fs::write(lab.config(), &bare).expect("config");
        let ran = lab.haul_reading(&["config", "reconnect", "od:"], b"n\n1\n1\ny\n");
        assert!(ran.code == 0 && ran.out.contains("1  OneDrive (documentLibrary)"), "{} {}", ran.out, ran.err);
        files(&lab, "src");
        lab.rclone(&["copy", "@src", "od:chosen"]).ok();
    }
}

/// On a machine without a browser a code is typed in on another one.
#[test]
fn a_code_is_typed_in_on_another_device() {
    let drive = OneDrive::start(Settings::default()).expect("started");
    let lab = Lab::new(HAUL);
    let at = drive.endpoint();
    let options =
        ["client_id=app", &format!("device_url={at}/devicecode"), &format!("token_url={at}/token")].map(str::to_owned);
    let more = [format!("tenant_url={at}/_api"), "config_is_local=false".into(), "config_device_code=true".into()];
    // Where rclone finds it too.
    let file = format!("--config={}", lab.config().display());
    let mut args = vec!["config", "create", "od", "onedrive", &file];
    args.extend(options.iter().chain(&more).map(String::as_str));
    let child = lab.start(&args);
    assert!(until(|| drive.type_in(USER_CODE)), "it asks for no code");
    let ran = lab.end(child).ok();
    let said = format!("{}{}", ran.out, ran.err);
    assert!(said.contains(USER_CODE) && said.contains("https://microsoft.com/devicelogin"), "{said}");
    let config = fs::read_to_string(lab.config()).expect("config");
    assert!(config.contains("\"refresh_token\":\"refresh-1\""), "{config}");
    write(&lab.path("f"), b"f", TIME);
    lab.haul(&["copy", "@f", "od:"]).ok();
    if lab.has_rclone() {
        assert_eq!(lab.rclone(&["lsf", "od:"]).ok().out, "f\n", "rclone goes by the same token");
    }
    // The code is good once, and a person who doesn't type it in is waited for only so long.
    assert!(!drive.type_in(USER_CODE));
}
