//! Clouds that lie: whatever they answer, nothing is written outside of the destination, no token goes to others, a listing that can't be
//! trusted deletes nothing, and the run ends. Each simulator is the honest service behind a liar.

use bytes::Bytes;
use haul_testkit::{
    boxsim::{self, BoxSim},
    drivesim::{self, DriveSim},
    dropboxsim::{self, Dropbox},
    folder::write,
    gcssim::{self, GcsSim},
    lab::{Lab, ProgramResult, peak},
    liar::{Answer, Liar, LiarRequest, Stranger},
    onedrivesim::{self, OneDrive},
    web_servers::{Make, WebServer},
};
use hyper::{
    StatusCode,
    header::{self, HeaderValue},
};
use serde_json::{Value, json};
use std::{
    any::Any,
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;
const TEXT: &str = "the content of a.txt";
/// Once, and not again: what is tried again is another test's.
const ONCE: [&str; 2] = ["--retries=1", "--low-level-retries=1"];

/// How a service words its listings.
#[derive(Clone, Copy)]
struct Words {
    /// What a listing's address has in it …
    address: &'static str,
    /// … and where its entries are.
    entries: &'static str,
    /// Gives an entry another name, in this directory.
    rename: fn(&mut Value, &str),
    /// Says that there are more pages, and how they are asked for.
    more: fn(&LiarRequest, &mut Value, &str),
}

struct Cloud {
    lab: Lab,
    liar: Liar,
    words: Words,
    _honest: Box<dyn Any>,
}

fn named(entry: &mut Value, name: &str) {
    entry["name"] = name.into();
}

fn token_next(_: &LiarRequest, page: &mut Value, token: &str) {
    page["nextPageToken"] = token.into();
}

impl Cloud {
    /// Of a section of the configuration for the service where it is, and one where the liar is.
    fn new(honest: Box<dyn Any>, at: &str, section: impl Fn(&str, &str) -> String, words: Words) -> Cloud {
        let lab = Lab::new(HAUL);
        let liar = Liar::start(at.trim_start_matches("http://").parse().expect("an address"));
        fs::write(lab.config(), section("honest", at) + &section("x", &liar.endpoint())).expect("config");
        write(&lab.path("src/a.txt"), TEXT.as_bytes(), TIME);
        write(&lab.path("src/d/b.txt"), b"the content of b.txt", TIME);
        write(&lab.path("src/z.txt"), b"the content of z.txt", TIME);
        lab.haul(&["copy", "@src", "honest:own/top"]).ok();
        let cloud = Cloud { lab, liar, words, _honest: honest };
        // An honest sync deletes extra files, so in the attacks they stay for a reason.
        let ran = cloud.sync(&[]).ok();
        assert!(!cloud.lab.path("dst/mine").exists() && cloud.lab.path("dst/d/b.txt").exists(), "{}", ran.err);
        cloud
    }

    /// Once to a destination that holds a file of ours.
    fn sync(&self, more: &[&str]) -> ProgramResult {
        let _ = fs::remove_dir_all(self.lab.path("dst"));
        write(&self.lab.path("dst/mine"), b"mine", TIME);
        self.lab.haul(&[&["sync", "x:own/top", "@dst"], &ONCE[..], more].concat())
    }

    fn outside(&self) -> BTreeSet<String> {
        let found = fs::read_dir(self.lab.path("")).expect("the lab").flatten();
        found.map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(|name| name != "dst").collect()
    }

    /// Runs against a lie. What fails has deleted nothing.
    fn attack(
        &self,
        what: &str,
        lie: impl Fn(&LiarRequest, Answer) -> Answer + Send + Sync + 'static,
    ) -> ProgramResult {
        let before = self.outside();
        self.liar.tell(lie);
        let ran = self.sync(&[]);
        self.liar.tell(|_, answer| answer);
        assert_eq!(self.outside(), before, "{what}: something is outside: {}", ran.err);
        assert!(!ran.err.contains("panicked"), "{what}: {}", ran.err);
        assert!(ran.code < 20, "{what}: it has to be stopped: {}", ran.err);
        assert!(ran.code == 0 || self.lab.path("dst/mine").exists(), "{what}: it deleted: {}", ran.err);
        ran
    }

    /// Runs against a lie that must be found out.
    fn refused(
        &self,
        what: &str,
        lie: impl Fn(&LiarRequest, Answer) -> Answer + Send + Sync + 'static,
    ) -> ProgramResult {
        let ran = self.attack(what, lie);
        assert!(ran.code != 0, "{what}: believed: {}", ran.err);
        ran
    }

    /// Runs against a size that isn't the file's: what arrives is the file, or nothing does.
    fn of_another_size(&self, size: &str, lie: impl Fn(&LiarRequest, Answer) -> Answer + Send + Sync + 'static) {
        let ran = self.attack(&format!("the size {size}"), lie);
        let there = fs::read(self.lab.path("dst/a.txt")).ok();
        let is_right = there.as_ref().map_or(ran.code != 0, |bytes| bytes == TEXT.as_bytes());
        assert!(is_right, "the size {size}: {there:?}: {}", ran.err);
    }

    /// A lie about listings.
    fn of_listings(
        &self,
        lie: impl Fn(&LiarRequest, &mut Value) + Send + Sync + 'static,
    ) -> impl Fn(&LiarRequest, Answer) -> Answer + Send + Sync + 'static {
        let words = self.words;
        move |request: &LiarRequest, answer: Answer| {
            let page = serde_json::from_slice::<Value>(answer.body()).ok();
            match page.filter(|page| request.target.contains(words.address) && page[words.entries].is_array()) {
                Some(mut page) => {
                    lie(request, &mut page);
                    answer.map(|_| Bytes::from(page.to_string()))
                }
                None => answer,
            }
        }
    }

    /// A lie about one entry, by the end of its name.
    fn of_entry(
        &self,
        name: &'static str,
        lie: impl Fn(&mut Value) + Send + Sync + 'static,
    ) -> impl Fn(&LiarRequest, Answer) -> Answer + Send + Sync + 'static {
        let entries = self.words.entries;
        self.of_listings(move |_, page| {
            let all = page[entries].as_array_mut().into_iter().flatten();
            all.filter(|entry| entry["name"].as_str().is_some_and(|own| own.ends_with(name))).for_each(&lie);
        })
    }
}

fn instead(answer: Answer, body: impl Into<Bytes>) -> Answer {
    let body = body.into();
    answer.map(|_| body)
}

/// Names that would lead elsewhere, or can't be.
const NAMES: [&str; 10] =
    ["../evil", "..", ".", "", "a/../../evil", "/evil", "nul\0x", "sub//x", "d/../../../evil", "evil/"];

/// What every service is asked to withstand.
fn withstands(cloud: &Cloud) {
    let words = cloud.words;
    for name in NAMES {
        cloud.attack(&format!("the name {name:?}"), cloud.of_entry("a.txt", move |entry| (words.rename)(entry, name)));
    }
    let all = move |request: &LiarRequest| request.target.contains(words.address);
    let cut = move |request: &LiarRequest, answer: Answer| {
        let half = answer.body().len() / 2;
        if all(request) { answer.map(|body| body.slice(..half)) } else { answer }
    };
    cloud.refused("a listing that is cut", cut);
    for (what, said) in [
        ("a page for people", "<html>Log in</html>".to_owned()),
        ("an error that is a success", "{\"error\":{\"code\":\"x\",\"message\":\"y\"}}".into()),
        ("no object", "[]".into()),
        ("null", "null".into()),
        ("depth", "[".repeat(200_000)),
    ] {
        let lie = move |request: &LiarRequest, answer: Answer| {
            if all(request) { instead(answer, said.clone()) } else { answer }
        };
        cloud.refused(what, lie);
    }
    for (what, value) in [("no entries", Value::Null), ("entries that aren't", json!({})), ("numbers", json!([1]))] {
        cloud.refused(what, cloud.of_listings(move |_, page| page[words.entries] = value.clone()));
    }
    cloud.refused("the same page again", cloud.of_listings(move |request, page| (words.more)(request, page, "again")));
    let turn = AtomicUsize::new(0);
    let two = move |request: &LiarRequest, page: &mut Value| {
        (words.more)(request, page, ["one", "two"][turn.fetch_add(1, SeqCst) % 2]);
    };
    cloud.refused("two pages in turn", cloud.of_listings(two));
    let turn = AtomicUsize::new(0);
    let fresh = move |request: &LiarRequest, page: &mut Value| {
        (words.more)(request, page, &turn.fetch_add(1, SeqCst).to_string());
    };
    cloud.refused("the same page by other tokens", cloud.of_listings(fresh));
    let turn = AtomicUsize::new(0);
    let empty = move |request: &LiarRequest, page: &mut Value| {
        page[words.entries] = json!([]);
        (words.more)(request, page, &turn.fetch_add(1, SeqCst).to_string());
    };
    cloud.refused("empty pages without an end", cloud.of_listings(empty));
    for size in
        [json!(1), json!("1"), json!(-1), json!("x"), json!(1u64 << 63), json!(u64::MAX.to_string()), json!(1e300)]
    {
        cloud.of_another_size(&size.to_string(), cloud.of_entry("a.txt", move |entry| entry["size"] = size.clone()));
    }
    contents(cloud);
    elsewhere(cloud);
    huge(cloud);
}

/// Content of another length, or other content.
fn contents(cloud: &Cloud) {
    let of_content = |lie: fn(Answer) -> Answer| {
        move |_: &LiarRequest, answer: Answer| if answer.body() == TEXT.as_bytes() { lie(answer) } else { answer }
    };
    cloud.refused("content that is cut", of_content(|answer| instead(answer, "the content")));
    cloud.refused("content and more", of_content(|answer| instead(answer, format!("{TEXT} and more"))));
    cloud.refused("other content", of_content(|answer| instead(answer, TEXT.replace("a.txt", "c.txt"))));
    let announced = |mut answer: Answer| {
        answer.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from_static("20"));
        instead(answer, "the content")
    };
    cloud.refused("content that ends too early", of_content(announced));
}

/// Every answer leads to a stranger.
fn elsewhere(cloud: &Cloud) {
    let stranger = Stranger::start(TEXT);
    for status in [301, 302, 303, 307, 308] {
        let to = HeaderValue::from_str(&format!("{}/there", stranger.endpoint())).expect("an address");
        let lie = move |_: &LiarRequest, mut answer: Answer| {
            *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
            answer.headers_mut().insert(header::LOCATION, to.clone());
            instead(answer, "")
        };
        cloud.refused(&format!("a redirection by {status}"), lie);
    }
    // Up, too: wherever an answer says that an upload goes on.
    write(&cloud.lab.path("up/large"), &haul_testkit::folder::noise(1, 9 << 20), TIME);
    let (from, to) = (cloud.liar.endpoint(), stranger.endpoint());
    let before = cloud.outside();
    cloud.liar.tell(move |_, mut answer| {
        if let Some(place) = answer.headers().get(header::LOCATION).and_then(|place| place.to_str().ok()) {
            let place = HeaderValue::from_str(&place.replace(&from, &to)).expect("an address");
            answer.headers_mut().insert(header::LOCATION, place);
        }
        let text = String::from_utf8_lossy(answer.body()).replace(&from, &to);
        if std::str::from_utf8(answer.body()).is_ok() { instead(answer, text) } else { answer }
    });
    let ran = cloud.lab.haul(&[&["copy", "@up", "x:own/up"], &ONCE[..]].concat());
    cloud.liar.tell(|_, answer| answer);
    assert_eq!(cloud.outside(), before);
    // Content may be sent where an answer says; a token may not.
    let came = stranger.came();
    assert!(came.iter().all(|(_, has_token)| !has_token), "{came:?}: {}", ran.err);
}

/// Answers that are large, and those that are large once they are understood.
fn huge(cloud: &Cloud) {
    let words = cloud.words;
    let entry = Arc::new(Mutex::new(Value::Null));
    let seen = entry.clone();
    let first = move |_: &LiarRequest, page: &mut Value| {
        if let Some(found) = page[words.entries].as_array().and_then(|all| all.first()) {
            *seen.lock().expect("no panic") = found.clone();
        }
    };
    cloud.attack("nothing", cloud.of_listings(first));
    let text = format!("{},", entry.lock().expect("no panic"));
    let small = "{},".repeat(10 << 20);
    let many = text.repeat((60 << 20) / text.len());
    for (what, entries) in [("many of nothing", small), ("many", many), ("more than may be", " ".repeat(80 << 20))] {
        let bomb = Bytes::from(entries);
        let lie = move |request: &LiarRequest, answer: Answer| {
            let page = String::from_utf8_lossy(answer.body()).into_owned();
            let begin = format!("\"{}\":[", words.entries);
            match page.find(&begin).filter(|_| request.target.contains(words.address)) {
                Some(at) => {
                    let at = at + begin.len();
                    let rest = page[at..].trim_start_matches(',');
                    let end = if rest.starts_with(']') { "{}" } else { "" };
                    instead(answer, [&page.as_bytes()[..at], &bomb, end.as_bytes(), rest.as_bytes()].concat())
                }
                None => answer,
            }
        };
        cloud.liar.tell(lie);
        let mut command = cloud.lab.haul_command(&[&["lsf", "-R", "x:own/top"], &ONCE[..]].concat());
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let (code, kib) = peak(command);
        assert!(code != 0, "{what}: believed");
        assert!(kib < 400 << 10, "{what}: {kib} KiB");
    }
    cloud.liar.tell(|_, answer| answer);
}

fn drive() -> Cloud {
    let sim = DriveSim::start(drivesim::Settings::default());
    let (at, token) = (sim.endpoint(), sim.token());
    let section = move |name: &str, at: &str| {
        format!(
            "[{name}]\ntype = drive\nclient_id = app\nclient_secret = secret\nendpoint = {at}\ntoken_url = {at}/token\ntoken = {token}\n"
        )
    };
    let words = Words { address: "/drive/v3/files?", entries: "files", rename: named, more: token_next };
    Cloud::new(Box::new(sim), &at, section, words)
}

fn dropbox() -> Cloud {
    let sim = Dropbox::start(dropboxsim::Settings::default()).expect("started");
    let (at, token) = (sim.endpoint(), sim.token());
    let section = move |name: &str, at: &str| {
        format!(
            "[{name}]\ntype = dropbox\nclient_id = app\nclient_secret = secret\nendpoint = {at}\ntoken_url = {at}/oauth2/token\ntoken = {token}\n"
        )
    };
    let rename = |entry: &mut Value, name: &str| {
        entry["name"] = name.into();
        entry["path_lower"] = format!("/own/top/{}", name.to_lowercase()).into();
        entry["path_display"] = format!("/own/top/{name}").into();
    };
    let more = |_: &LiarRequest, page: &mut Value, token: &str| {
        page["cursor"] = token.into();
        page["has_more"] = true.into();
    };
    let words = Words { address: "/files/list_folder", entries: "entries", rename, more };
    Cloud::new(Box::new(sim), &at, section, words)
}

fn onedrive(delta: bool) -> Cloud {
    let sim = OneDrive::start(onedrivesim::Settings::default()).expect("started");
    let at = sim.endpoint();
    let lines = sim.options("AT");
    let section = move |name: &str, at: &str| {
        let lines: String = lines
            .iter()
            .map(|(name, value)| format!("{name} = {}\n", value.replace("AT/", &format!("{at}/"))))
            .collect();
        format!("[{name}]\ntype = onedrive\n{lines}{}", if delta { "delta = true\n" } else { "" })
    };
    let more = |request: &LiarRequest, page: &mut Value, token: &str| {
        let begin = request.target.split("&lie=").next().unwrap_or_default();
        page["@odata.nextLink"] = format!("{}{begin}&lie={token}", request.origin).into();
    };
    let words = Words { address: "/drives/", entries: "value", rename: named, more };
    Cloud::new(Box::new(sim), &at, section, words)
}

fn own_box() -> Cloud {
    let sim = BoxSim::start(boxsim::Settings::default()).expect("started");
    let (at, own) = (sim.endpoint(), sim.section("NAME"));
    let section = move |name: &str, at: &str| {
        let own = own.replace("[NAME]", &format!("[{name}]"));
        let end = own.find("token_url").unwrap_or(own.len());
        let token = own.lines().find(|line| line.starts_with("token =")).unwrap_or_default();
        format!("{}token_url = {at}/oauth2/token\n{token}\nendpoint = {at}\n", &own[..end])
    };
    let more = |_: &LiarRequest, page: &mut Value, token: &str| page["next_marker"] = token.into();
    let words = Words { address: "/items?", entries: "entries", rename: named, more };
    Cloud::new(Box::new(sim), &at, section, words)
}

fn gcs() -> Cloud {
    let sim = GcsSim::start(gcssim::Settings { token: "known".into(), ..gcssim::Settings::default() });
    let at = sim.endpoint();
    let section = |name: &str, at: &str| {
        format!("[{name}]\ntype = google cloud storage\naccess_token = known\nendpoint = {at}\nproject_number = 1\n")
    };
    let rename = |entry: &mut Value, name: &str| entry["name"] = format!("top/{name}").into();
    let words = Words { address: "/storage/v1/b/own/o?", entries: "items", rename, more: token_next };
    Cloud::new(Box::new(sim), &at, section, words)
}

#[test]
fn drive_may_lie() {
    let cloud = drive();
    withstands(&cloud);
    let stolen = json!("../../../token");
    cloud.refused("an id that leads elsewhere", cloud.of_entry("a.txt", move |entry| entry["id"] = stolen.clone()));
    two_of_a_name(&cloud);
    folders_in_themselves(&cloud);
    folders_that_are_gone(&cloud, "in+parents");
}

#[test]
fn dropbox_may_lie() {
    let cloud = dropbox();
    withstands(&cloud);
    cloud.refused(
        "a file of another folder",
        cloud.of_entry("a.txt", |entry| entry["path_lower"] = "/own/other/a.txt".into()),
    );
    cloud.refused("a name that isn't the path's", cloud.of_entry("a.txt", |entry| entry["name"] = "evil".into()));
    cloud.refused(
        "a file of a folder that isn't",
        cloud.of_entry("b.txt", |entry| {
            entry["path_lower"] = "/own/top/e/b.txt".into();
        }),
    );
    for word in ["rev", "size"] {
        cloud.refused(word, cloud.of_entry("a.txt", move |entry| entry[word] = Value::Null));
    }
}

#[test]
fn onedrive_may_lie() {
    for delta in [false, true] {
        let cloud = onedrive(delta);
        withstands(&cloud);
        two_of_a_name(&cloud);
        for what in ["eTag", "size", "file"] {
            cloud.refused(
                what,
                cloud.of_entry("a.txt", move |entry| drop(entry.as_object_mut().map(|all| all.remove(what)))),
            );
        }
        let stranger = Stranger::start("{\"value\":[]}");
        let link = format!("{}/more", stranger.endpoint());
        cloud.refused(
            "pages at a stranger's",
            cloud.of_listings(move |_, page| page["@odata.nextLink"] = link.clone().into()),
        );
        assert_eq!(stranger.came(), []);
        let content = Stranger::start("another content of a");
        let link = format!("{}/content", content.endpoint());
        cloud.refused("content at a stranger's", move |_, answer| {
            let text = String::from_utf8_lossy(answer.body()).into_owned();
            let mut value = serde_json::from_str::<Value>(&text).unwrap_or_default();
            if value["name"] == "a.txt" {
                value["@microsoft.graph.downloadUrl"] = link.clone().into();
                return instead(answer, value.to_string());
            }
            answer
        });
        assert!(content.came().iter().all(|(_, has_token)| !has_token));
    }
}

#[test]
fn box_may_lie() {
    let cloud = own_box();
    withstands(&cloud);
    two_of_a_name(&cloud);
    folders_in_themselves(&cloud);
    folders_that_are_gone(&cloud, "/items?");
    for id in ["../0", "", "0?x=", "a/b"] {
        cloud.refused(id, cloud.of_entry("a.txt", move |entry| entry["id"] = id.into()));
        cloud.refused(id, cloud.of_entry("d", move |entry| entry["id"] = id.into()));
    }
    for what in ["etag", "size"] {
        cloud.refused(
            what,
            cloud.of_entry("a.txt", move |entry| drop(entry.as_object_mut().map(|all| all.remove(what)))),
        );
    }
}

#[test]
fn google_cloud_storage_may_lie() {
    let cloud = gcs();
    withstands(&cloud);
    cloud.refused("another directory", cloud.of_entry("a.txt", |entry| entry["name"] = "other/a.txt".into()));
    for what in ["generation", "size", "name"] {
        cloud.refused(
            what,
            cloud.of_entry("a.txt", move |entry| drop(entry.as_object_mut().map(|all| all.remove(what)))),
        );
    }
}

/// One more entry of the same name that is another.
fn two_of_a_name(cloud: &Cloud) {
    let entries = cloud.words.entries;
    let lie = move |_: &LiarRequest, page: &mut Value| {
        let all = page[entries].as_array_mut().expect("entries");
        let twin = all.iter().find(|entry| entry["name"] == "a.txt").cloned();
        all.extend(twin.map(|mut twin| {
            twin["id"] = "777777".into();
            twin
        }));
    };
    cloud.refused("two of a name", cloud.of_listings(lie));
}

/// A folder is in itself, under a long name: it is listed until the path is too long.
fn folders_in_themselves(cloud: &Cloud) {
    let entries = cloud.words.entries;
    let top: Arc<Mutex<Option<Value>>> = Arc::default();
    let lie = cloud.of_listings(move |_, page| {
        let mut kept = top.lock().expect("no panic");
        let all = page[entries].as_array_mut().expect("entries");
        if let Some(folder) = all.iter().find(|entry| entry["name"] == "d") {
            *kept = Some(folder.clone());
        }
        let in_it = all.iter().any(|entry| entry["name"] == "b.txt");
        if let (true, Some(folder)) = (in_it, kept.as_ref()) {
            let mut again = folder.clone();
            again["name"] = "d".repeat(200).into();
            again["parents"] = json!([folder["id"]]);
            all.push(again);
        }
    });
    let ran = cloud.refused("a folder in itself", lie);
    assert!(ran.err.contains("the server lists directories without an end"), "{}", ran.err);
}

/// A folder that was listed is said to be gone.
fn folders_that_are_gone(cloud: &Cloud, address: &'static str) {
    let lie = move |request: &LiarRequest, mut answer: Answer| {
        let is_below = String::from_utf8_lossy(answer.body()).contains("b.txt");
        if is_below && request.target.contains(address) {
            *answer.status_mut() = StatusCode::NOT_FOUND;
            return instead(answer, "{\"error\":{\"code\":404,\"errors\":[{\"reason\":\"notFound\"}]}}");
        }
        answer
    };
    cloud.attack("a folder that is gone", lie);
}

/// Azure answers in XML.
#[test]
fn azure_may_lie() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let at = server.url();
    let section = |name: &str, at: &str| {
        format!("[{name}]\ntype = azureblob\nuse_emulator = true\nendpoint = {at}/devstoreaccount1\n")
    };
    let words = Words { address: "comp=list", entries: "", rename: named, more: token_next };
    let cloud = Cloud::new(Box::new(server), at.trim_end_matches('/'), section, words);
    let of_listings = |lie: Arc<dyn Fn(String) -> String + Send + Sync>| {
        move |request: &LiarRequest, answer: Answer| {
            let text = String::from_utf8_lossy(answer.body()).into_owned();
            if request.target.contains("comp=list") { instead(answer, lie(text)) } else { answer }
        }
    };
    let replaced = |from: &'static str, to: String| of_listings(Arc::new(move |text| text.replace(from, &to)));
    for name in NAMES {
        let to = format!("<Name>top/{}</Name>", name.replace('\0', "&#0;"));
        cloud.attack(&format!("the name {name:?}"), replaced("<Name>top/a.txt</Name>", to));
    }
    cloud.refused("another directory", replaced("<Name>top/a.txt", "<Name>other/a.txt".into()));
    cloud.refused("a listing that is cut", of_listings(Arc::new(|text| text[..text.len() / 2].to_owned())));
    cloud.refused("a page for people", of_listings(Arc::new(|_| "<html><body>Log in</body></html>".into())));
    cloud.refused("no end of depth", of_listings(Arc::new(|_| "<EnumerationResults>".repeat(200_000))));
    let marker = |text: String, to: &str| {
        let end = "</Blobs>";
        let at = text.find(end).map_or(0, |at| at + end.len());
        format!("{}<NextMarker>{to}</NextMarker></EnumerationResults>", &text[..at])
    };
    cloud.refused("the same page again", of_listings(Arc::new(move |text| marker(text, "again"))));
    let turn = AtomicUsize::new(0);
    cloud.refused(
        "the same page by other markers",
        of_listings(Arc::new(move |text| marker(text, &turn.fetch_add(1, SeqCst).to_string()))),
    );
    for words in [&["one", "two"][..], &[]] {
        let turn = AtomicUsize::new(0);
        let empty = move |text: String| {
            let at = text.find("<Blobs>").unwrap_or_else(|| text.find("<Blobs/>").unwrap_or(text.len()));
            let number = turn.fetch_add(1, SeqCst);
            let word = words.get(number % 2).map_or_else(|| number.to_string(), |word| (*word).to_owned());
            format!("{}<Blobs/><NextMarker>{word}</NextMarker></EnumerationResults>", &text[..at])
        };
        cloud.refused("empty pages without an end", of_listings(Arc::new(empty)));
    }
    for size in ["1", "-1", "x", "9223372036854775808", "1e300"] {
        let to = format!("<Content-Length>{size}<");
        cloud.of_another_size(size, replaced("<Content-Length>20<", to));
    }
    contents(&cloud);
    elsewhere(&cloud);
}
