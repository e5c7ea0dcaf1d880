//! Google Drive, by the binary, on the simulator; rclone at the other side.

use haul_testkit::{
    drivesim::{DriveSim, Fault, Settings},
    interceptor::Interceptor,
    lab::{Lab, until},
    tree::content,
};
use std::{
    fs,
    time::{Duration, Instant},
};

/// A remote `g` as rclone has it, without what only haul knows.
fn rclones(sim: &DriveSim) -> String {
    format!(
        "[g]\ntype = drive\nclient_id = x\nclient_secret = y\ntoken = {}\ntoken_url = {}/token\nscope = drive\n",
        sim.token(),
        sim.endpoint()
    )
}

#[test]
fn haul_and_rclone_read_what_the_other_wrote() {
    let (lab, sim) = (Lab::new(env!("CARGO_BIN_EXE_haul")), DriveSim::start(Settings::default()));
    let section = rclones(&sim);
    fs::write(lab.config(), &section).expect("written");
    let up = lab.path("up");
    fs::create_dir_all(up.join("d/e")).expect("folders");
    for name in ["it's \\ö?", " lead", "trail ", "‛／", "％", "tab\t", "a:b*c<d>|\"", "..."] {
        fs::write(up.join("d").join(name), name).expect("written");
    }
    let large = content(3, 9_000_000);
    fs::write(up.join("d/e/large"), &large).expect("written");
    let endpoint = sim.endpoint();
    let haul = |args: &[&str]| lab.haul(&[args, &["--drive-endpoint", &endpoint]].concat());
    assert_eq!(haul(&["config", "userinfo", "g:"]).ok().out, "email: user@example.com\n name: User\n");
    // Refusals and lost answers on the way.
    sim.spoil("upload.create", 1, Fault::Refused(403, "userRateLimitExceeded"));
    sim.spoil("upload.create", 3, Fault::Lost);
    sim.spoil("upload.piece", 0, Fault::Refused(503, "backendError"));
    haul(&["copy", "@up", "g:haul"]).ok();
    haul(&["check", "@up", "g:haul"]).ok();
    let again = haul(&["copy", "-v", "@up", "g:haul"]).ok();
    assert!(!again.err.contains("large"), "{}", again.err);
    assert!(haul(&["cat", "g:haul/d/e/large"]).ok().out.len() > 1_000_000);
    if lab.has_rclone()
        && let Some(interceptor) = Interceptor::start(&lab, &[("www.googleapis.com", sim.address())])
    {
        let (proxy, ca) = (interceptor.url(), interceptor.ca().display().to_string());
        let fixed = ["--http-proxy", &proxy, "--ca-cert", &ca, "--drive-pacer-min-sleep", "1ms", "--retries", "1"];
        let rclone = |args: &[&str]| lab.rclone(&[args, &fixed].concat());
        let up = up.display().to_string();
        rclone(&["check", &up, "g:haul"]).ok();
        rclone(&["copy", &up, "g:rclone"]).ok();
        haul(&["check", "@up", "g:rclone"]).ok();
        haul(&["sync", "--check-first", "g:rclone", "@down"]).ok();
        assert!(fs::read(lab.path("down/d/e/large")).expect("there") == large);
    }
    haul(&["moveto", "g:haul/d/e/large", "g:haul/moved"]).ok();
    haul(&["purge", "g:haul/d"]).ok();
    assert_eq!(haul(&["lsf", "-R", "g:haul"]).ok().out, "moved\n");
}

/// Files and folders of one name, alike for both: haul and rclone leave the same.
#[test]
fn duplicates_go_as_rclone_lets_them_go() {
    let (lab, sim) = (Lab::new(env!("CARGO_BIN_EXE_haul")), DriveSim::start(Settings::default()));
    let section = rclones(&sim);
    fs::write(lab.config(), &section).expect("written");
    let endpoint = sim.endpoint();
    let haul = |args: &[&str]| lab.haul(&[args, &["--drive-endpoint", &endpoint]].concat());
    let [ours, theirs] = ["haul", "rclone"].map(|name| sim.add_folder("root", name));
    let fill = |top: &str, name: &str| {
        let dir = sim.add_folder(top, name);
        for (content, time) in [("one", 1), ("one", 2), ("second!", 9), ("the third one", 7)] {
            sim.date(&sim.add_file(&dir, "a.txt", content.as_bytes()), 1_600_000_000 + time);
        }
        sim.add_file(&dir, "a-1.txt", b"taken");
        for (inner, content) in [("x", "1"), ("x", "1"), ("y", "2")] {
            let folder = sim.add_folder(&dir, "d");
            sim.add_file(&sim.add_folder(&folder, "deep"), inner, content.as_bytes());
        }
        dir
    };
    let interceptor = lab.has_rclone().then(|| Interceptor::start(&lab, &[("www.googleapis.com", sim.address())]));
    // The file to keep is looked at before each deletion. Somebody has removed it.
    let dir = fill(&ours, "gone");
    sim.reset_counts();
    haul(&["dedupe", "--dry-run", "newest", "g:haul/gone"]).ok();
    sim.spoil("get", sim.counts().get("get").copied().unwrap_or_default(), Fault::Refused(404, "notFound"));
    let ran = haul(&["dedupe", "newest", "g:haul/gone"]);
    let told = "a.txt: the file to keep: removed since it was listed: nothing of this name is deleted";
    assert!(ran.code == 1 && ran.err.contains(told), "{} {}", ran.code, ran.err);
    assert_eq!(sim.tree(&dir).iter().filter(|line| line.starts_with("a.txt=")).count(), 4);
    for (mode, left) in [
        ("skip", &["a.txt=one", "a.txt=second!", "a.txt=the third one"][..]),
        ("newest", &["a.txt=second!"]),
        ("oldest", &["a.txt=one"]),
        ("largest", &["a.txt=the third one"]),
        ("smallest", &["a.txt=one"]),
        ("rename", &["a-2.txt", "a-3.txt", "a-4.txt"]),
    ] {
        let (dir, path) = (fill(&ours, mode), format!("g:haul/{mode}"));
        let before = sim.tree(&dir);
        haul(&["dedupe", "--dry-run", mode, &path]).ok();
        let listed = haul(&["dedupe", "list", &path]).ok().out;
        assert!(listed.starts_with("a.txt: 4 files\n   1: 3 B, 2020-09-13 12:26:41 UTC, md5 f97c5d29"), "{listed}");
        assert!(listed.contains("\nd/: 3 directories of this name"), "{listed}");
        assert_eq!(sim.tree(&dir), before, "neither changes anything");
        let refused = haul(&["dedupe", &path]);
        assert_eq!((refused.code, sim.tree(&dir) == before), (2, true), "{}", refused.err);
        haul(&["dedupe", mode, &path]).ok();
        let names = |tree: Vec<String>| match mode {
            "rename" => tree.iter().map(|line| line.split('=').next().unwrap_or_default().to_owned()).collect(),
            _ => tree,
        };
        let taken = if mode == "rename" { "a-1.txt" } else { "a-1.txt=taken" };
        let below = if mode == "rename" { ["d/deep/x", "d/deep/y"] } else { ["d/deep/x=1", "d/deep/y=2"] };
        let mut want: Vec<&str> = left.iter().copied().chain([taken, "d/", "d/deep/"]).chain(below).collect();
        want.sort();
        let kept = names(sim.tree(&dir));
        assert_eq!(kept, want, "{mode}");
        if let Some(Some(interceptor)) = &interceptor {
            let theirs = fill(&theirs, mode);
            let (proxy, ca) = (interceptor.url(), interceptor.ca().display().to_string());
            let (place, pace) = (format!("g:rclone/{mode}"), ["--drive-pacer-min-sleep", "1ms", "--retries", "1"]);
            let args = ["dedupe", mode, &place, "--http-proxy", &proxy, "--ca-cert", &ca];
            lab.rclone(&[&args[..], &pace].concat()).ok();
            assert_eq!(names(sim.tree(&theirs)), kept, "rclone's {mode}");
        }
    }
}

/// On a disk files are read, and names of one file are no duplicates.
#[test]
fn files_of_one_content_are_found_on_a_disk() {
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    for (name, content, time) in [("a", "same", 1), ("b/b", "same", 3), ("c", "else", 2), ("e", "", 1), ("f", "", 2)] {
        haul_testkit::folder::write(&lab.path(&format!("d/{name}")), content.as_bytes(), time * 1_000_000_000);
    }
    fs::hard_link(lab.path("d/a"), lab.path("d/again")).expect("linked");
    let listed = lab.haul(&["dedupe", "--by-hash", "list", "@d"]).ok().out;
    assert!(listed.starts_with("a: 2 files\n") && listed.lines().count() == 3, "{listed}");
    lab.haul(&["dedupe", "--by-hash", "oldest", "@d"]).ok();
    assert_eq!(lab.haul(&["lsf", "-R", "--files-only", "@d"]).ok().lines(), ["a", "again", "c", "e", "f"]);
}

/// Files of one content have names of their own: all but one go, where that one stands out.
#[test]
fn files_of_one_content_are_found_by_their_hash() {
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    let sim = DriveSim::start(Settings::default());
    let section = format!("[g]\ntype = drive\nclient_id = x\ntoken = {}\nendpoint = {}\n", sim.token(), sim.endpoint());
    fs::write(lab.config(), section).expect("written");
    for (name, content, time) in
        [("a", "same", 1), ("b", "same", 3), ("c", "same", 2), ("d", "else", 1), ("e", "", 1), ("f", "", 2)]
    {
        sim.date(&sim.add_file("root", name, content.as_bytes()), 1_600_000_000 + time);
    }
    let listed = lab.haul(&["dedupe", "--by-hash", "list", "g:"]).ok().out;
    assert!(listed.starts_with("a: 3 files\n") && listed.lines().count() == 4, "{listed}");
    lab.haul(&["dedupe", "--by-hash", "newest", "g:"]).ok();
    assert_eq!(sim.tree("root"), ["b=same", "d=else", "e=", "f="]);
    fs::create_dir(lab.path("here")).expect("folder");
    let refused = lab.haul(&["dedupe", "newest", "@here"]);
    assert!(refused.code != 0 && refused.err.contains("only --by-hash can find duplicates"), "{}", refused.err);
    let refused = lab.haul(&["dedupe", "sideways", "g:"]);
    let modes = "interactive, skip, first, newest, oldest, largest, smallest, rename, list";
    assert!(
        refused.code == 2 && refused.err.contains(&format!("sideways is no mode: use one of {modes}")),
        "{}",
        refused.err
    );
}

#[test]
fn a_shared_drive_is_chosen() {
    let (lab, sim) = (Lab::new(env!("CARGO_BIN_EXE_haul")), DriveSim::start(Settings::default()));
    sim.add_drive("one");
    let id = sim.add_drive("two");
    let text = format!(
        "[g]\ntype = drive\nclient_id = x\nclient_secret = y\ntoken = {}\ntoken_url = {}/token\nendpoint = {1}\n",
        sim.token(),
        sim.endpoint()
    );
    fs::write(lab.config(), text).expect("written");
    // It is there already: no new log-in; a shared drive; the one called so.
    let ran = lab.haul_reading(&["config", "reconnect", "g:"], b"n\ny\n3\n2\n");
    assert!(ran.code == 0 && ran.out.contains("Answer with a number from 1 to 2."), "{} {}", ran.out, ran.err);
    let config = fs::read_to_string(lab.config()).expect("config");
    let chosen = config.lines().find_map(|line| line.strip_prefix("team_drive = ")).expect("chosen").to_owned();
    let listed = ran.out.lines().find(|line| line.starts_with('2')).expect("the second");
    assert!(listed.ends_with(&format!("({chosen})")), "{listed}");
    fs::write(lab.path("f"), "f").expect("written");
    lab.haul(&["copy", "@f", &format!("g,team_drive={id}:")]).ok();
    let seen = lab.haul(&["lsf", "g:"]).ok().out;
    assert_eq!(seen, if chosen == id { "f\n" } else { "" });
}

#[test]
fn a_large_tree_costs_few_requests() {
    let sim = DriveSim::start(Settings::default());
    for a in 0..100 {
        let outer = sim.add_folder("root", &format!("a{a:02}"));
        for b in 0..99 {
            let inner = sim.add_folder(&outer, &format!("b{b:02}"));
            (0..10).for_each(|f| drop(sim.add_file(&inner, &format!("f{f}"), b"x")));
        }
    }
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    let section = format!("[g]\ntype = drive\nclient_id = x\ntoken = {}\nendpoint = {}\n", sim.token(), sim.endpoint());
    fs::write(lab.config(), section).expect("written");
    let begun = Instant::now();
    let listed = lab.haul(&["lsf", "-R", "g:"]).ok();
    assert_eq!(listed.out.lines().count(), 100 + 9900 + 99_000);
    let requests: u64 = sim.counts().values().sum();
    println!("{requests} requests, {:?}", begun.elapsed());
    assert!(requests <= 400, "{requests} requests");
}

#[test]
fn a_large_upload_that_is_killed_goes_on() {
    let settings = Settings { latency: Duration::from_millis(50), ..Settings::default() };
    let (lab, sim) = (Lab::new(env!("CARGO_BIN_EXE_haul")), DriveSim::start(settings));
    let section = format!("[g]\ntype = drive\nclient_id = x\ntoken = {}\nendpoint = {}\n", sim.token(), sim.endpoint());
    fs::write(lab.config(), section).expect("written");
    const SIZE: u64 = 120_000_000;
    fs::write(lab.path("large"), content(5, SIZE)).expect("written");
    let args = ["copyto", "@large", "g:d/large", "--drive-chunk-size", "1Mi"];
    for part in 1..=3 {
        let mut child = lab.start(&args);
        assert!(until(|| sim.uploaded() >= SIZE / 4 * part), "it doesn't get so far");
        child.kill().expect("killed");
        child.wait().expect("ended");
    }
    lab.haul(&args).ok();
    let sent = sim.uploaded();
    println!("{sent} of {SIZE} bytes sent");
    assert!(sent <= SIZE / 100 * 105, "{sent} bytes sent of {SIZE}");
    lab.haul(&["check", "@large", "g:d"]).ok();
}

/// What Google takes in a day is used up: one line says so, few requests are in vain, and the next day brings the rest.
#[test]
fn the_end_of_a_days_uploads_is_told_and_the_next_day_goes_on() {
    let (lab, sim) = (Lab::new(env!("CARGO_BIN_EXE_haul")), DriveSim::start(Settings::default()));
    fs::write(lab.config(), rclones(&sim)).expect("written");
    let names: Vec<String> = (0..16).map(|number| format!("f{number:02}")).collect();
    for name in &names {
        haul_testkit::folder::write(&lab.path("up").join(name), &content(1, 100_000), 1_600_000_000_000_000_000);
    }
    // A large one goes in pieces: the wall is in its middle.
    fs::write(lab.path("large"), content(2, 9_000_000)).expect("written");
    let endpoint = sim.endpoint();
    let haul = |args: &[&str]| lab.haul(&[args, &["--drive-endpoint", &endpoint]].concat());
    let day = "Google takes no more uploads today (750 GB a day): go on tomorrow";
    sim.set(|settings| settings.uploads_a_day = 1_050_000);
    let ran = haul(&["copy", "@up", "g:up", "--drive-stop-on-upload-limit"]).code(7);
    assert_eq!(ran.err.matches(day).count(), 1, "{}", ran.err);
    let lines: Vec<&str> = ran.err.lines().filter(|line| line.contains("ERROR")).collect();
    println!("{} refused\n{}", sim.throttled(), ran.err);
    assert!(lines.len() <= 2, "{}", ran.err);
    assert_eq!(sim.sizes("root").len(), 10, "whatever fits arrives");
    assert!(sim.throttled() <= 10, "{} requests were in vain", sim.throttled());
    sim.reset_counts();
    let ran = haul(&["copyto", "@large", "g:large", "--drive-stop-on-upload-limit"]).code(7);
    assert!(ran.err.contains(day) && sim.throttled() <= 2, "{}, {} refused", ran.err, sim.throttled());
    // Without the flag it waits as for any rate, and doesn't storm.
    sim.reset_counts();
    let ran = haul(&["copy", "@up", "g:up", "--low-level-retries", "2", "--retries", "1"]);
    println!("{}: {} refused\n{}", ran.code, sim.throttled(), ran.err);
    assert!(ran.code != 0 && ran.err.contains("the day's 750 GB are used up"), "{}", ran.err);
    assert!(sim.throttled() <= 40, "{} requests were in vain", sim.throttled());
    sim.next_day();
    sim.set(|settings| settings.uploads_a_day = u64::MAX);
    sim.reset_counts();
    haul(&["copy", "@up", "g:up", "--drive-stop-on-upload-limit"]).ok();
    assert_eq!((sim.sizes("root").len(), sim.uploaded()), (16, 600_000), "the rest, once");
    haul(&["copyto", "@large", "g:large", "--drive-stop-on-upload-limit"]).ok();
    // rclone meets the same wall: what it takes for the day's end is what haul does.
    let interceptor = lab.has_rclone().then(|| Interceptor::start(&lab, &[("www.googleapis.com", sim.address())]));
    let Some(Some(interceptor)) = interceptor else { return };
    let (proxy, ca) = (interceptor.url(), interceptor.ca().display().to_string());
    let fixed = ["--http-proxy", &proxy, "--ca-cert", &ca, "--drive-pacer-min-sleep", "1ms"];
    let rclone = |args: &[&str]| lab.rclone(&[args, &fixed].concat());
    sim.next_day();
    sim.set(|settings| settings.uploads_a_day = 1_050_000);
    let ran = rclone(&["copy", "@up", "g:rclone", "--drive-stop-on-upload-limit"]);
    assert!(ran.code == 7 && ran.err.contains("Received upload limit error"), "{} {}", ran.code, ran.err);
    let ran = rclone(&["copy", "@up", "g:rclone", "--retries", "1", "--low-level-retries", "1"]);
    assert!(ran.code != 0 && ran.err.contains("User rate limit exceeded"), "{} {}", ran.code, ran.err);
    sim.next_day();
    sim.set(|settings| settings.uploads_a_day = u64::MAX);
    rclone(&["copy", "@up", "g:rclone", "--drive-stop-on-upload-limit"]).ok();
    rclone(&["check", "@up", "g:rclone"]).ok();
}

#[test]
fn documents_come_as_files_of_the_chosen_formats() {
    const WORD: &str = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
    let (lab, sim) = (Lab::new(env!("CARGO_BIN_EXE_haul")), DriveSim::start(Settings::default()));
    let section = rclones(&sim);
    fs::write(lab.config(), section).expect("written");
    let folder = sim.add_folder("root", "texts");
    let plan = sim.add_document_of(&folder, "plan", &[(WORD, b"a plan"), ("application/pdf", b"a plan, printed")]);
    sim.add_document_of(&folder, "long", &[(WORD, &content(8, 11_000_000))]);
    sim.add_file(&folder, "plain", b"bytes");
    let endpoint = sim.endpoint();
    let haul = |args: &[&str]| lab.haul(&[args, &["--drive-endpoint", &endpoint]].concat());
    // A document's link leads to where rclone finds it, which haul asks for only where it must.
    if lab.has_rclone() {
        let hosts = [("www.googleapis.com", sim.address()), ("docs.google.com", sim.address())];
        if let Some(interceptor) = Interceptor::start(&lab, &hosts) {
            let (proxy, ca) = (interceptor.url(), interceptor.ca().display().to_string());
            let fixed = ["--http-proxy", &proxy, "--ca-cert", &ca, "--drive-pacer-min-sleep", "1ms", "--retries", "1"];
            let rclone = |args: &[&str]| lab.rclone(&[args, &fixed].concat());
            rclone(&["copy", "g:texts", "@rclone"]).ok();
            assert_eq!(fs::read(lab.path("rclone/long.docx")).expect("there"), content(8, 11_000_000));
            let format = ["lsf", "g:texts", "--format", "pst", "--time-format", "RFC3339"];
            assert_eq!(rclone(&format).ok().lines(), haul(&format).ok().lines());
            assert_eq!(rclone(&["size", "g:", "--json"]).ok().out, haul(&["size", "g:", "--json"]).ok().out);
        }
    }
    sim.link_here();
    assert_eq!(
        haul(&["ls", "g:"]).ok().lines(),
        ["        5 texts/plain", "       -1 texts/long.docx", "       -1 texts/plan.docx"]
    );
    haul(&["copy", "g:texts", "@down"]).ok();
    assert_eq!(fs::read(lab.path("down/plan.docx")).expect("there"), b"a plan");
    assert!(fs::read(lab.path("down/long.docx")).expect("there") == content(8, 11_000_000));
    let again = haul(&["copy", "-v", "g:texts", "@down"]).ok();
    assert!(!again.err.contains("Copied"), "nobody edited them: {}", again.err);
    haul(&["check", "g:texts", "@down"]).ok();
    haul(&["copyto", "g:texts/plan.pdf", "@plan.pdf", "--drive-export-formats", "pdf"]).ok();
    assert_eq!(fs::read(lab.path("plan.pdf")).expect("there"), b"a plan, printed");
    let refused = haul(&["lsf", "g:", "--drive-import-formats", "docx"]);
    assert!(refused.code != 0 && refused.err.contains("haul makes no documents of Google's"), "{}", refused.err);
    // Whose owner takes the export away doesn't take what was exported before.
    sim.withhold(&plan);
    let synced = haul(&["sync", "g:texts", "@down"]).code(1);
    assert!(
        synced.err.contains("plan: error reading source directory: Google offers no file of this document"),
        "{}",
        synced.err
    );
    assert_eq!(fs::read(lab.path("down/plan.docx")).expect("kept"), b"a plan");
    haul(&["copy", "g:texts", "@down", "--drive-skip-gdocs"]).ok();
    sim.edit(&plan, WORD, b"a plan");
    haul(&["delete", "g:texts"]).ok();
    let emptied = haul(&["cleanup", "g:", "-v"]).ok();
    assert!(emptied.err.contains("plan: Removed from the trash"), "{}", emptied.err);
    assert_eq!(sim.held(), (2, 0));
}
