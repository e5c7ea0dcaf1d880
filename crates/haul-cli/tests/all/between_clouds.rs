//! From each kind of store to the others, and `haul bench` on each: on servers that aren't ours, and on simulators that other clients
//! have passed on.

use haul_testkit::{
    amount::rounds,
    boxsim::{self, BoxSim},
    cloudsim::Cloudsim,
    drivesim::{self, DriveSim},
    dropboxsim::{self, Dropbox},
    folder::{self, files, noise, write},
    lab::Lab,
    onedrivesim::{self, OneDrive},
    web_servers::{Make, WebServer},
};
use serde_json::Value;
use std::{collections::BTreeMap, fs};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const SECOND: u64 = 1_000_000_000;
const TIME: u64 = 1_600_000_000 * SECOND;

/// All of them, and each encrypted, reached by one configuration.
struct Clouds {
    lab: Lab,
    /// Remotes with a folder that is empty or isn't there: `drive:top`.
    places: Vec<String>,
    _servers: Vec<WebServer>,
    _cloudsim: Cloudsim,
    drive: DriveSim,
    _dropbox: Dropbox,
    _onedrive: OneDrive,
    own_box: BoxSim,
}

impl Clouds {
    fn start() -> Clouds {
        let lab = Lab::new(HAUL);
        let cloudsim = Cloudsim::with(&[("etag", "md5")]);
        let drive = DriveSim::start(drivesim::Settings::default());
        let dropbox = Dropbox::start(dropboxsim::Settings::default()).expect("started");
        let onedrive = OneDrive::start(onedrivesim::Settings::default()).expect("started");
        let own_box = BoxSim::start(boxsim::Settings::default()).expect("started");
        lab.remote("s3", &cloudsim.endpoint());
        let app = "client_id = app\nclient_secret = secret";
        let mut config = fs::read_to_string(lab.config()).expect("a configuration");
        let at = drive.endpoint();
        config += &format!(
            "\n[drive]\ntype = drive\n{app}\nendpoint = {at}\ntoken_url = {at}/token\ntoken = {}\n",
            drive.token()
        );
        let at = dropbox.endpoint();
        config += &format!(
            "[dropbox]\ntype = dropbox\n{app}\nendpoint = {at}\ntoken_url = {at}/oauth2/token\ntoken = {}\n",
            dropbox.token()
        );
        config += &onedrive.section("onedrive");
        config += &format!("{}endpoint = {}\n", own_box.section("box"), own_box.endpoint());
        let password = lab.haul(&["obscure", "of this test"]).ok().out;
        let mut places =
            ["s3:b/top", "drive:top", "dropbox:top", "onedrive:top", "box:top"].map(str::to_owned).to_vec();
        let mut servers = Vec::new();
        for (make, place, section) in [
            (
                Make::Azurite,
                "azure:box/top",
                "[azure]\ntype = azureblob\nuse_emulator = true\nendpoint = @/devstoreaccount1\n",
            ),
            (
                Make::FakeGcs,
                "gcs:bucket/top",
                "[gcs]\ntype = google cloud storage\nanonymous = true\nendpoint = @\nproject_number = 1\n",
            ),
            (Make::RcloneDav, "webdav:top", "[webdav]\ntype = webdav\nvendor = rclone\nurl = @\n"),
        ] {
            if let Some(server) = WebServer::start(make) {
                config += &section.replace('@', &server.url());
                places.push(place.to_owned());
                servers.push(server);
            }
        }
        // Each beside itself encrypted.
        for place in places.clone() {
            let name = place.split(':').next().unwrap_or_default();
            config += &format!("[{name}-crypt]\ntype = crypt\nremote = {place}-hidden\npassword = {password}");
            places.push(format!("{name}-crypt:"));
        }
        fs::write(lab.config(), config).expect("written");
        Clouds {
            lab,
            places,
            _servers: servers,
            _cloudsim: cloudsim,
            drive,
            _dropbox: dropbox,
            _onedrive: onedrive,
            own_box,
        }
    }
}

fn below(place: &str, name: &str) -> String {
    if place.ends_with(':') { format!("{place}{name}") } else { format!("{place}/{name}") }
}

/// A sync out of a directory below the destination would delete its source, one into a directory below its source would go on for ever.
#[test]
fn overlapping_paths_are_refused_on_each_store() {
    let Clouds { lab, places, .. } = &Clouds::start();
    write(&lab.path("src/in/f"), b"content", TIME);
    let packs = format!(":pack,remote=\"{}\":top", lab.path("packs").display());
    for place in places.iter().chain([&packs, &"@dir".to_owned()]) {
        lab.haul(&["copy", "@src", place]).ok();
        let inner = below(place, "in");
        for (args, words) in [
            (["sync", place, &inner], "is inside the source"),
            (["copy", place, &inner], "is inside the source"),
            (["sync", &inner, place], "is inside the destination"),
            (["move", &inner, place], "is inside the destination"),
            (["sync", place, place], "are the same"),
        ] {
            let ran = lab.haul(&args);
            assert!(ran.code != 0 && ran.err.contains(words), "{args:?}: {}", ran.err);
        }
        lab.haul(&["copy", place, &inner, "--exclude=/in/**"]).ok();
        assert_eq!(lab.haul(&["lsf", "-R", "--files-only", place]).ok().out, "in/f\n");
    }
    for fold in ["dropbox", "onedrive", "box"] {
        let ran = lab.haul(&["sync", &format!("{fold}:top/in"), &format!("{fold}:TOP")]);
        assert!(ran.code != 0 && ran.err.contains("is inside the destination"), "{fold}: {}", ran.err);
    }
    lab.haul(&["mkdir", "s3:other"]).ok();
    let ran = lab.haul(&["copy", "s3:", "s3:other"]);
    assert!(ran.code != 0 && ran.err.contains("is inside the source"), "{}", ran.err);
}

/// In a ring, both ways round; from each to each in all rounds.
#[test]
fn what_goes_from_one_to_the_next_arrives_and_is_proved() {
    let Clouds { lab, places, .. } = &Clouds::start();
    for (n, size) in [0, 1, 4_000, 300_000, 5 << 20, (12 << 20) + 7].into_iter().enumerate() {
        write(&lab.path(&format!("src/{}/it's ü {n}", n % 2)), &noise(n as u64, size), TIME + n as u64 * SECOND);
    }
    let source = files(&folder::read(&lab.path("src")));
    for place in places {
        lab.haul(&["copy", "@src", &below(place, "own")]).ok();
    }
    let count = places.len();
    let steps = rounds(1, count as u64 - 1) as usize;
    for (number, from) in places.iter().enumerate() {
        for step in (1..=steps).chain((steps == 1).then_some(count - 1)) {
            let to = &places[(number + step) % count];
            let (from, to) = (below(from, "own"), below(to, &number.to_string()));
            let ran = lab.haul(&["copy", "--stats-one-line=false", "-v", &from, &to]).ok();
            let proved = ran.err.lines().find(|line| line.contains("Proved equal:"));
            // What is encrypted has no hashes of what it holds, and WebDAV may have none.
            let has_hashes = |place: &str| !place.contains("crypt") && !place.contains("webdav");
            assert!(proved.is_some() || !has_hashes(&from) || !has_hashes(&to), "{from} to {to}: {}", ran.err);
            let again = lab.haul(&["copy", "-v", &from, &to]).ok();
            assert!(!again.err.contains("Copied"), "{from} to {to}: nothing moves again: {}", again.err);
            lab.haul(&["check", &from, &to]).ok();
            let back = lab.path("back");
            lab.haul(&["copy", &to, &back.display().to_string()]).ok();
            folder::assert_same(&source, &files(&folder::read(&back)), &format!("{from} to {to}"));
            fs::remove_dir_all(back).expect("removed");
        }
    }
}

/// Two names of a file, and of a folder above the last, that differ by case alone. What is in the folders has the same sizes and times.
const FOLDING: [(&str, &str); 7] = [
    ("Name", "the first"),
    ("name", "the second one"),
    ("d/f", "lower"),
    ("Foo/sub/f1", "Foo's first"),
    ("Foo/sub/f2", "Foo's second"),
    ("foo/sub/f1", "foo's first"),
    ("foo/sub/f2", "foo's second"),
];

/// What is at a place, by name.
fn held(lab: &Lab, place: &str) -> BTreeMap<String, String> {
    let here = lab.path("held");
    let _ = fs::remove_dir_all(&here);
    lab.haul(&["copy", place, "@held"]).ok();
    let names = lab.haul(&["lsf", "-R", "--files-only", "@held"]).ok().out;
    names.lines().map(|name| (name.to_owned(), fs::read_to_string(here.join(name)).unwrap())).collect()
}

/// Where two names of the source are one, the second is an error: in no run does either replace the other, and a move loses none. Encrypted
/// content under plain names is no other matter; names that are encrypted don't fold.
#[test]
fn the_second_of_two_equivalent_names_is_an_error() {
    let Clouds { lab, places, .. } = &Clouds::start();
    let all: BTreeMap<String, String> = FOLDING.map(|(name, text)| (name.to_owned(), text.to_owned())).into();
    let fill = |folder: &str| {
        all.iter().for_each(|(name, text)| write(&lab.path(folder).join(name), text.as_bytes(), TIME));
        lab.path(folder).display().to_string()
    };
    let source = fill("src");
    let password = lab.haul(&["obscure", "of this test"]).ok().out;
    for (number, place) in places.iter().enumerate() {
        let folds = ["dropbox:", "onedrive:", "box:"].iter().any(|name| place.starts_with(name));
        let hidden =
            |there: &str| format!(":crypt,remote='{there}-c',password={},filename_encryption=off:", password.trim());
        for is_hidden in if folds { &[false, true][..] } else { &[false] } {
            let to = |name: &str| if *is_hidden { hidden(&below(place, name)) } else { below(place, name) };
            let (copied, moved) = (to("folds"), to("moves"));
            let is_right = |held: &BTreeMap<String, String>, what: &str| {
                assert!(held.iter().all(|(name, text)| all.get(name) == Some(text)), "{copied}: {what}: {held:?}");
                assert_eq!(held.len(), if folds { 4 } else { 7 }, "{copied}: {what}: {held:?}");
            };
            // One run is enough where names don't fold.
            let runs = if folds { 3 } else { 1 };
            let mut before = None;
            for run in 1..=runs {
                let ran = lab.haul(&["copy", &source, &copied, if run == 1 { "--retries=1" } else { "--retries=2" }]);
                assert_eq!(ran.code != 0, folds, "{copied}: run {run}: {}", ran.err);
                assert!(!folds || ran.err.contains("ame"), "{copied}: run {run}: {}", ran.err);
                let now = held(lab, &copied);
                is_right(&now, &format!("run {run}: {}", ran.err));
                assert!(before.is_none_or(|before| before == now), "{copied}: run {run}: {now:?}");
                before = Some(now);
            }
            let folder = format!("move-{number}-{is_hidden}");
            let source = fill(&folder);
            for run in 1..=runs {
                let ran = lab.haul(&["move", &source, &moved]);
                assert_eq!(ran.code != 0, folds, "{moved}: run {run}: {}", ran.err);
                let there = held(lab, &moved);
                is_right(&there, &format!("move, run {run}: {}", ran.err));
                for (name, text) in &all {
                    let left = fs::read_to_string(lab.path(&folder).join(name)).ok();
                    let is_kept = left.as_ref() == Some(text) || there.get(name) == Some(text);
                    assert!(is_kept, "{moved}: run {run}: {name} is lost: {}", ran.err);
                }
            }
        }
    }
}

#[test]
fn a_measurement_leaves_nothing_behind() {
    let Clouds { lab, places, drive, own_box, .. } = &Clouds::start();
    write(&lab.path("src/theirs"), b"not ours", TIME);
    for place in places {
        lab.haul(&["copy", "@src", place]).ok();
        let bounds = ["--max-bytes=2M", "--sizes=20000B", "--max-concurrency=2", "--max-time=30m"];
        let ran = lab.haul(&[&["bench", "--yes", "--json", place], &bounds[..]].concat()).ok();
        let json: Value = serde_json::from_str(&ran.out).expect("JSON and nothing else");
        assert!(json["bytes_verified"].as_u64().is_some_and(|bytes| bytes > 0), "{place}: {}", ran.out);
        let sweeps = json["sweeps"].as_array().expect("sweeps");
        let ways: Vec<&Value> = sweeps.iter().map(|sweep| &sweep["direction"]).collect();
        assert_eq!(ways, ["up", "down"], "{place}: {}", ran.out);
        assert_eq!(lab.haul(&["lsf", "-R", place]).ok().out, "theirs\n", "{place}");
    }
    // For good, where the service lets one choose.
    assert!(drive.counts().contains_key("delete") && own_box.counts().contains_key("DeleteForGood"));
    if places.iter().any(|place| place.starts_with("webdav:")) {
        let ran = lab.haul(&["purge", "webdav:"]).code(2);
        assert_eq!(ran.err, "haul: webdav: is the whole remote: name the directory to purge\n");
        lab.haul(&["purge", "webdav:/"]).code(2);
        assert_eq!(lab.haul(&["lsf", "-R", "webdav:top"]).ok().out, "theirs\n");
    }
    // A remote without buckets may be measured at its root, but its root is never purged.
    lab.haul(&["bench", "--yes", "--max-bytes=1M", "--sizes=20000B", "--max-concurrency=1", "dropbox:"]).ok();
    let ran = lab.haul(&["purge", "dropbox:"]).code(2);
    assert!(ran.err.ends_with("dropbox: is the whole remote: name the directory to purge\n"), "{}", ran.err);
}
