//! The real binary and Nextcloud: large files in chunks, killed, gone on with, beside rclone.

use bytes::Bytes;
use haul_testkit::{
    folder::{noise, write},
    lab::{Lab, until},
    nextcloud::Nextcloud,
    serve::Server,
    web_servers::{Make, WebServer},
};
use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use std::{
    fs,
    sync::{Arc, Mutex},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_000_000_000;
const CHUNKS: usize = 8;

/// Servers that keep no times say when they stored a file: what was modified later is another one, as large as it may be.
#[test]
fn what_was_modified_after_it_was_stored_goes_again() {
    for make in [Make::Nginx, Make::ApacheDav] {
        let Some(server) = WebServer::start(make) else { continue };
        let lab = Lab::new(HAUL);
        fs::write(lab.config(), format!("[w]\ntype = webdav\nvendor = other\nurl = {}\n", server.url()))
            .expect("config");
        let copy = |code: i32| lab.haul(&["copy", "@src", "w:d", "--error-on-no-transfer"]).code(code);
        write(&lab.path("src/f"), b"old", TIME);
        copy(0);
        // Its time says that it is what was stored.
        write(&lab.path("src/f"), b"new", TIME + 1_000_000_000);
        copy(9);
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
        let later = later.duration_since(std::time::UNIX_EPOCH).expect("a clock").as_nanos();
        write(&lab.path("src/f"), b"new", later as u64);
        copy(0);
        assert_eq!(fs::read(server.data().join("d/f")).expect("stored"), b"new", "{make:?}");
    }
}

fn lab(server: &Nextcloud) -> Lab {
    let lab = Lab::new(HAUL);
    let section = format!(
        "[c]\ntype = webdav\nvendor = nextcloud\nnextcloud_chunk_size = 1M\nuser = anna\nurl = {}\n",
        server.url()
    );
    fs::write(lab.config(), section).expect("config");
    lab
}

#[test]
fn a_killed_upload_goes_on_with_the_chunks_that_arrived() {
    let Some(server) = Nextcloud::start() else { return };
    let lab = lab(&server);
    if !lab.has_rclone() {
        return;
    }
    // The server is right where rclone's chunks arrive.
    write(&lab.path("by"), &noise(1, 3 * MIB), TIME);
    lab.rclone(&["copyto", "@by", "c:by"]).ok();
    assert_eq!(server.taken().len(), 3);
    assert!(fs::read(server.data().join("by")).expect("there") == noise(1, 3 * MIB));
    let (made, bytes) = (server.count("MKCOL"), noise(2, (CHUNKS - 1) * MIB + 5));
    write(&lab.path("src/big"), &bytes, TIME);
    server.hold_after(3);
    let mut child = lab.start(&["copy", "@src", "c:d"]);
    // An answer that came is in the journal soon after; the last of them may not be.
    assert!(until(|| server.taken().len() == 6));
    lab.journals_rest();
    child.kill().expect("killed");
    child.wait().expect("ended");
    server.go_on();
    assert_eq!(fs::read_dir(server.data().join("d")).map_or(0, Iterator::count), 0, "nothing shows");
    let ran = lab.haul(&["copy", "@src", "c:d", "-v"]).ok();
    assert!(fs::read(server.data().join("d/big")).expect("there") == bytes, "{}", ran.err);
    assert_eq!(server.count("MKCOL"), made + 1, "one upload, gone on with");
    let sent = server.taken().len() - 6;
    assert!((CHUNKS - 3..=CHUNKS).contains(&sent), "{sent} chunks of {CHUNKS} were sent again");
    assert_eq!(fs::read_dir(server.uploads()).expect("uploads").count(), 0);
    assert_eq!(lab.journals().len(), 0, "a journal is left");
    // What rclone sees is what was sent, time and all.
    lab.rclone(&["check", "--download", "@src", "c:d"]).ok();
    assert_eq!(lab.rclone(&["lsf", "-R", "--format", "pst", "c:"]).ok().out.matches("2020-09-13").count(), 2);
    lab.haul(&["sync", "@src", "c:d", "--stats-one-line"]).ok();
    assert_eq!(server.count("MKCOL"), made + 1, "nothing to do");
}

#[test]
fn what_has_no_known_size_goes_in_chunks_too_and_other_addresses_are_told_of() {
    let Some(server) = Nextcloud::start() else { return };
    let lab = lab(&server);
    let bytes = noise(3, 2 * MIB + 7);
    lab.haul_reading(&["rcat", "c:piped"], &bytes).ok();
    assert!(fs::read(server.data().join("piped")).expect("there") == bytes);
    lab.haul_reading(&["rcat", "c:small"], b"small").ok();
    assert_eq!(fs::read(server.data().join("small")).expect("there"), b"small");
    assert_eq!((server.taken().len(), server.count("MOVE")), (3, 1));
    // In chunks only where Nextcloud has a user's files.
    let url = format!("--webdav-url={}/d", server.url().replace("/dav/files/", "/webdav/"));
    let ran = lab.haul(&["lsf", "c:", &url]);
    let message = "Large files go as a whole and aren't resumed. For chunks, set a url like https://HOST/remote.php/dav/files/USER";
    assert_eq!(ran.err.matches(message).count(), 1, "{}", ran.err);
    assert!(!lab.haul(&["lsf", "c:", &url, "--webdav-nextcloud-chunk-size=0"]).err.contains(message));
}

/// rclone's server answers 500 when it is asked to set one.
#[test]
fn a_directory_whose_time_the_server_does_not_take_is_no_error() {
    let Some(server) = WebServer::start(Make::RcloneDav) else { return };
    let lab = Lab::new(HAUL);
    fs::write(lab.config(), format!("[c]\ntype = webdav\nvendor = rclone\nurl = {}\n", server.url())).expect("config");
    write(&lab.path("src/d/f"), b"1", TIME);
    lab.haul(&["copy", "@src", "c:to"]).ok();
    assert_eq!(lab.haul(&["lsf", "-R", "--format", "pt", "c:to"]).ok().out.matches("2020-09-13").count(), 1);
}

/// A server that takes a token once, and only the next one after that, as it is with tokens that expire.
#[test]
fn a_token_comes_from_a_command_and_is_renewed_when_it_is_refused() {
    let lab = Lab::new(HAUL);
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let own = seen.clone();
    let server = Server::start(move |request, _| {
        let own = own.clone();
        async move {
            let token =
                request.headers().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
            own.lock().expect("no panic").push(token.to_owned());
            let is_good = token == "Bearer token-2";
            let folder = "<D:response><D:href>/dav/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/>\
                </D:resourcetype></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>";
            let text = format!("<?xml version=\"1.0\"?><D:multistatus xmlns:D=\"DAV:\">{folder}</D:multistatus>");
            let text = if is_good { text } else { String::new() };
            let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|e| match e {}).boxed_unsync());
            *response.status_mut() = if is_good { 207 } else { 401 }.try_into().expect("a status");
            Ok(response)
        }
    })
    .expect("started");
    let section = format!(
        "[dav]\ntype = webdav\nurl = {}/dav/\nbearer_token_command = sh -c \"echo x >> {1}; echo token-$(wc -l < {1})\"\n",
        server.endpoint(),
        lab.path("count").display()
    );
    fs::write(lab.config(), section).expect("config");
    let ran = lab.haul(&["lsf", "dav:"]).ok();
    assert_eq!(ran.out, "");
    let seen = seen.lock().expect("no panic");
    assert_eq!(seen[..2], ["Bearer token-1", "Bearer token-2"]);
    assert!(seen[1..].iter().all(|token| token == "Bearer token-2"), "{seen:?}");
    assert_eq!(fs::read_to_string(lab.path("count")).expect("asked").lines().count(), 2);
}
