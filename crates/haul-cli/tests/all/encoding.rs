//! Names as services take them, beside rclone's: it writes each name to a disk in each encoding, and what is there is what we would
//! have made of it.

use haul_core::encoding::Encoding;
use haul_testkit::{
    amount,
    boxsim::{self, BoxSim},
    drivesim::{self, DriveSim},
    dropboxsim::{self, Dropbox},
    gcssim::{self, GcsSim},
    interceptor::Interceptor,
    lab::{Lab, ProgramResult},
    minio::{ACCESS_KEY, Minio, SECRET_KEY},
    onedrivesim::{self, OneDrive},
    web_servers::{Make, WebServer},
};
use serde_json::Value;
use std::{
    any::Any,
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    net::SocketAddr,
    os::unix::ffi::OsStringExt,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// What rclone's remotes use, and all at once.
const MASKS: [&str; 9] = [
    // Drive; on a disk a slash must be replaced too.
    "Slash,InvalidUtf8",
    // Dropbox.
    "Slash,BackSlash,Del,RightSpace,InvalidUtf8,Dot",
    // OneDrive.
    "Slash,LtGt,DoubleQuote,Colon,Question,Asterisk,Pipe,BackSlash,Del,Ctl,LeftSpace,LeftTilde,RightSpace,RightPeriod,InvalidUtf8,Dot",
    // Box.
    "Slash,BackSlash,Del,Ctl,RightSpace,InvalidUtf8,Dot",
    // Azure.
    "Slash,BackSlash,Del,Ctl,RightPeriod,InvalidUtf8",
    // Google Cloud Storage.
    "Slash,CrLf,InvalidUtf8,Dot",
    "Slash,SingleQuote,BackQuote,Dollar,Hash,Percent,SquareBracket,Semicolon,Exclamation,LeftPeriod,LeftCrLfHtVt,RightCrLfHtVt",
    "Slash",
    // S3.
    "Slash,InvalidUtf8,Dot",
];

/// Every character that is ever replaced, its symbol, the quote before both, at the beginning, within and at the end.
fn names() -> Vec<Vec<u8>> {
    let mut odd: Vec<String> = (1u8..0x80)
        .filter(|byte| !byte.is_ascii_alphanumeric() && *byte != b'/')
        .map(|byte| char::from(byte).to_string())
        .collect();
    let symbols =
        (0x2400..0x2424).chain(0xff01..0xff10).chain(0xff1a..0xff20).chain(0xff3b..0xff41).chain(0xff5b..0xff5f);
    odd.extend(symbols.filter_map(char::from_u32).map(String::from));
    let mut names = Vec::new();
    for odd in odd {
        for quote in ["", "‛"] {
            for (before, after) in [("", "x"), ("x", "x"), ("x", "")] {
                names.push(format!("{before}{quote}{odd}{after}").into_bytes());
            }
        }
    }
    let whole = [
        "．",
        "．．",
        "...",
        "‛．",
        "．x．",
        "‛",
        "x‛",
        "‛‛x",
        "x‛41",
        "．．．",
        " ",
        "~",
        "é",
        "e\u{301}",
        "a\u{2028}b",
    ];
    names.extend(whole.iter().map(|name| name.as_bytes().to_vec()));
    names.extend([&b"a\xff"[..], b"\xc3x", b"x\xe2\x82", b"a\xed\xa0\x80"].map(<[u8]>::to_vec));
    names
}

#[test]
fn names_are_replaced_as_by_rclone() {
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    fs::write(lab.config(), "").expect("config");
    // By its content each file is known again.
    let mut ours = BTreeMap::new();
    for (number, name) in names().into_iter().enumerate() {
        let path = lab.path("src").join(OsString::from_vec(name.clone()));
        fs::create_dir_all(lab.path("src")).expect("folder");
        fs::write(path, number.to_string()).expect("written");
        ours.insert(number.to_string(), name);
    }
    for (number, mask) in MASKS.iter().enumerate() {
        let encoding = Encoding::parse(mask).expect("known");
        // Names with a quote that quotes nothing it can't read back itself from a disk, and says so, unless it takes them as they are.
        for (from, least) in [("Slash,Dot", 400), ("Raw", 780)] {
            let to = lab.path(&format!("to{number}{from}"));
            let [src, dst] = [(from, &lab.path("src")), (*mask, &to)]
                .map(|(encoding, path)| format!(":local,encoding='{encoding}':{}", path.display()));
            lab.rclone(&["copy", &src, &dst, "--no-unicode-normalization", "--retries=1"]);
            let mut seen = 0;
            for file in fs::read_dir(&to).expect("there") {
                let file = file.expect("read");
                let theirs = file.file_name().into_vec();
                let name = &ours[&fs::read_to_string(file.path()).expect("read")];
                let text = String::from_utf8_lossy(name).into_owned();
                // Where it takes names as they are, a wide slash is no slash.
                let other = from == "Raw" && (text.contains(['／', '␀']) || text.trim_matches(['‛', '．']).is_empty());
                // Two quotes are one to it, so two names are one.
                if other || text == "‛‛x" {
                    continue;
                }
                seen += 1;
                let made = encoding.encode(name);
                // It takes a name that it can't read back itself.
                if let Some(made) = made {
                    assert_eq!(String::from_utf8_lossy(&made), String::from_utf8_lossy(&theirs), "{text} with {mask}");
                } else {
                    assert!(text.contains('‛'), "{text} with {mask}");
                }
            }
            assert!(seen >= least, "{seen} names with {mask}, from {from}");
        }
    }
}

/// A service that both programs reach by an option, or rclone as it does at home.
struct Service {
    kind: &'static str,
    section: String,
    /// Lines of haul's section alone.
    own: String,
    /// Hosts that rclone must take for the service; none if its config section names the simulator.
    hosts: Vec<(&'static str, SocketAddr)>,
    /// Encoding in which names must be unambiguous, at services that address files by name.
    strict: Option<&'static str>,
    _running: Box<dyn Any + Send>,
}

fn services() -> Vec<Service> {
    let app = "client_id = app\nclient_secret = secret";
    let drive = DriveSim::start(drivesim::Settings::default());
    let dropbox = Dropbox::start(dropboxsim::Settings::default()).expect("started");
    let own_box = BoxSim::start(boxsim::Settings::default()).expect("started");
    let onedrive = OneDrive::start(onedrivesim::Settings::default()).expect("started");
    let at = |address| move |host| (host, address);
    vec![
        Service {
            kind: "drive",
            section: format!("{app}\ntoken_url = {}/token\ntoken = {}\n", drive.endpoint(), drive.token()),
            own: format!("endpoint = {}\n", drive.endpoint()),
            strict: None,
            hosts: ["www.googleapis.com"].map(at(drive.address())).into(),
            _running: Box::new(drive),
        },
        Service {
            kind: "dropbox",
            section: format!("{app}\ntoken_url = {}/oauth2/token\ntoken = {}\n", dropbox.endpoint(), dropbox.token()),
            own: format!("endpoint = {}\n", dropbox.endpoint()),
            strict: None,
            hosts: ["api.dropboxapi.com", "content.dropboxapi.com", "notify.dropboxapi.com"]
                .map(at(dropbox.address()))
                .into(),
            _running: Box::new(dropbox),
        },
        Service {
            kind: "box",
            section: own_box.section("r").lines().skip(2).map(|line| format!("{line}\n")).collect(),
            own: format!("endpoint = {}\n", own_box.endpoint()),
            strict: None,
            hosts: ["api.box.com", "upload.box.com"].map(at(own_box.address())).into(),
            _running: Box::new(own_box),
        },
        Service {
            kind: "onedrive",
            section: onedrive.section("r").lines().skip(2).map(|line| format!("{line}\n")).collect(),
            own: String::new(),
            strict: None,
            // It is reached by its own address.
            hosts: vec![("localhost", ([127, 0, 0, 1], 1).into())],
            _running: Box::new(onedrive),
        },
    ]
}

/// Services for which haul encodes names on request.
fn encoding_services() -> Vec<Service> {
    let gcs = GcsSim::start(gcssim::Settings { token: "known".into(), ..gcssim::Settings::default() });
    let mut all = vec![Service {
        kind: "google cloud storage",
        section: format!("access_token = known\nproject_number = 1\nendpoint = {}/storage/v1/\n", gcs.endpoint()),
        own: format!("encoding = {}\n", MASKS[5]),
        hosts: Vec::new(),
        strict: Some(MASKS[5]),
        _running: Box::new(gcs),
    }];
    all.extend(WebServer::start(Make::Azurite).map(|azurite| Service {
        kind: "azureblob",
        section: format!("use_emulator = true\nendpoint = {}/devstoreaccount1\n", azurite.url()),
        own: format!("encoding = {}\n", MASKS[4]),
        hosts: Vec::new(),
        strict: Some(MASKS[4]),
        _running: Box::new(azurite),
    }));
    all.extend(WebServer::start(Make::ApacheDav).map(|apache| Service {
        kind: "webdav",
        section: format!("url = {}\nencoding = {}\n", apache.url(), MASKS[2]),
        own: String::new(),
        hosts: Vec::new(),
        strict: Some(MASKS[2]),
        _running: Box::new(apache),
    }));
    all.extend(Minio::shared().map(|minio| Service {
        kind: "s3",
        section: format!(
            "provider = Minio\nendpoint = {}\naccess_key_id = {ACCESS_KEY}\nsecret_access_key = {SECRET_KEY}\n",
            minio.endpoint()
        ),
        own: format!("encoding = {}\n", MASKS[8]),
        hosts: Vec::new(),
        strict: Some(MASKS[8]),
        _running: Box::new(()),
    }));
    all
}

/// The names that a listing has, as rclone shows them, but those that aren't text and those with a quote, which it shows in its own way.
fn shown(ran: ProgramResult, by_rclone: bool) -> BTreeSet<String> {
    let all: Value = serde_json::from_str(&ran.ok().out).expect("JSON");
    let names = all.as_array().expect("a list").iter().map(|one| one["Path"].as_str().expect("a path").to_owned());
    let encoded = |name: String| if by_rclone { Some(name) } else { Encoding::STANDARD.encode_text(name.as_bytes()) };
    names.filter_map(encoded).filter(|name| !name.contains(['\u{fffd}', '‛'])).collect()
}

/// Each file that came and is one of these has its name; which came.
fn came(lab: &Lab, folder: &str, ours: &BTreeMap<String, Vec<u8>>, what: &str) -> BTreeSet<String> {
    let mut came = BTreeSet::new();
    for file in fs::read_dir(lab.path(folder)).expect("there") {
        let file = file.expect("read");
        let (name, text) = (file.file_name().into_vec(), fs::read_to_string(file.path()).expect("read"));
        let Some(meant) = ours.get(&text) else { continue };
        assert_eq!(String::from_utf8_lossy(&name), String::from_utf8_lossy(meant), "{what}");
        came.insert(text);
    }
    came
}

/// A file of each name, by its content.
fn written(lab: &Lab, strict: Option<&str>) -> BTreeMap<String, Vec<u8>> {
    let mut ours = BTreeMap::new();
    let strict = strict.map(|mask| Encoding::parse(mask).expect("known"));
    let can_be = |name: &[u8]| strict.is_none_or(|encoding| encoding.encode(name).is_some());
    fs::create_dir_all(lab.path("src")).expect("folder");
    // Two quotes are one to rclone, so two names are one.
    let all = names().into_iter().filter(|name| name != "‛‛x".as_bytes() && can_be(name));
    for (number, name) in all.enumerate() {
        fs::write(lab.path("src").join(OsString::from_vec(name.clone())), number.to_string()).expect("written");
        ours.insert(number.to_string(), name);
    }
    ours
}

/// What rclone wrote to a cloud haul lists and reads by the names that it had, and the reverse.
#[test]
fn names_go_to_each_cloud_and_come_back_by_either_program() {
    amount::each(services(), go_and_come_back);
}

/// The same where haul does so only if it is told to.
#[test]
fn names_go_where_they_are_to_be_encoded_and_come_back_by_either_program() {
    amount::each(encoding_services(), go_and_come_back);
}

fn go_and_come_back(Service { kind, section, own, hosts, strict, _running }: Service) {
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    let mut ours = written(&lab, strict);
    fs::write(lab.config(), format!("[r]\ntype = {kind}\n{section}[h]\ntype = {kind}\n{section}{own}"))
        .expect("config");
    let interceptor = if hosts.is_empty() { None } else { Interceptor::start(&lab, &hosts) };
    if interceptor.is_none() && !hosts.is_empty() {
        return;
    }
    let through = interceptor
        .as_ref()
        .map(|it| [format!("--http-proxy={}", it.url()), format!("--ca-cert={}", it.ca().display())]);
    let fixed = ["--retries=1", "--transfers=16", "--checkers=16", "--no-unicode-normalization"];
    let fast = ["--drive-pacer-min-sleep=1ms", "--drive-pacer-burst=1000"];
    let fixed: Vec<&str> = fixed.into_iter().chain(fast).chain(through.iter().flatten().map(String::as_str)).collect();
    let rclone = |args: &[&str]| lab.rclone(&[args, &fixed].concat());
    // It leaves out names that it can't read back itself, and says so.
    let ran = rclone(&["copy", "@src", "r:rclone"]);
    let list = |at: &str| {
        [["lsjson", "-R", "--no-modtime"], ["--no-mimetype", "--files-only", at]]
            .concat()
            .iter()
            .map(|word| (*word).to_owned())
            .collect::<Vec<_>>()
    };
    let listed = |run: &dyn Fn(&[&str]) -> ProgramResult, at: &str, by_rclone: bool| {
        shown(run(&list(at).iter().map(String::as_str).collect::<Vec<_>>()), by_rclone)
    };
    let haul = |args: &[&str]| lab.haul(args);
    let theirs = listed(&rclone, "r:rclone", true);
    assert!(theirs.len() > 200, "{kind}: {} names: {}", theirs.len(), ran.err);
    assert_eq!(listed(&haul, "h:rclone", false), theirs, "{kind}: what rclone wrote");
    lab.haul(&["copy", "h:rclone", "@back"]).ok();
    let readable = came(&lab, "back", &ours, kind);
    assert!(readable.len() > 400, "{kind}: {} files", readable.len());
    lab.haul(&["check", "--one-way", "h:rclone", "@src"]).ok();
    let ran = lab.haul(&["copy", "@src", "h:haul", "--retries=1"]);
    let own = listed(&haul, "h:haul", false);
    assert!(own.is_superset(&theirs), "{kind}: {}", ran.err);
    assert_eq!(listed(&rclone, "r:haul", true), own, "{kind}: what haul wrote");
    // rclone can't write names to a disk that it can't read from one.
    rclone(&["copy", "r:haul", "@again"]);
    ours.retain(|number, _| readable.contains(number));
    assert_eq!(came(&lab, "again", &ours, kind), readable, "{kind}");
    lab.haul(&["check", "h:rclone", "h:haul", "--one-way"]).ok();
}
