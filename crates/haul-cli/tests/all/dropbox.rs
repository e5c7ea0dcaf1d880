//! Dropbox, by the binary, on the simulator.

use haul_testkit::{
    dropboxsim::{Dropbox, Settings},
    folder::write,
    interceptor::Interceptor,
    lab::Lab,
};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
};

const FILES: u64 = 60;

/// haul finds the rate at which Dropbox accepts changes, and keeps to it: few moves and copies are throttled, and all succeed.
#[test]
fn throttled_requests_wait_as_the_service_says() {
    let service = Dropbox::start(Settings { writes: Some(10.0), ..Settings::default() }).expect("started");
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    let section =
        format!("[d]\ntype = dropbox\nclient_id = x\ntoken = {}\nendpoint = {}\n", service.token(), service.endpoint());
    fs::write(lab.config(), section).expect("written");
    for n in 0..FILES {
        let name = format!("src/{}/{n}", n % 5);
        write(&lab.path(&name), name.as_bytes(), 1_600_000_000_000_000_000);
    }
    lab.haul(&["copy", "@src", "d:a"]).ok();
    lab.haul(&["move", "d:a", "d:b"]).ok();
    lab.haul(&["copy", "d:b", "d:c"]).ok();
    let files = |top: &str| service.all().iter().filter(|(path, file)| path.starts_with(top) && file.is_some()).count();
    assert_eq!((files("/a/"), files("/b/"), files("/c/")), (0, FILES as usize, FILES as usize));
    lab.haul(&["check", "@src", "d:c"]).ok();
    let counts = service.counts();
    assert_eq!(counts["files/upload_session/finish_batch_v2"], 1, "one commit for all: {counts:?}");
    let (throttled, changes) = (service.throttled(), counts["files/move_v2"] + counts["files/copy_v2"]);
    assert!(throttled > 0 && throttled <= changes / 10, "{throttled} of {changes} throttled: {counts:?}");
}

/// The code that the page shows.
fn shown(page: &str) -> String {
    let url = url::Url::parse(page).expect("a link");
    let mut socket =
        TcpStream::connect((url.host_str().expect("a host"), url.port().expect("a port"))).expect("connected");
    let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
    write!(socket, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", url.authority()).expect("sent");
    let mut page = String::new();
    socket.read_to_string(&mut page).expect("a page");
    assert!(page.starts_with("HTTP/1.0 200") || page.starts_with("HTTP/1.1 200"), "{page}");
    page.rsplit("\r\n").next().expect("a code").to_owned()
}

/// Without a browser on this machine the page shows a code, which is of use only to the one who asked; and a log-in that is ended is
/// dead, wherever its token was copied.
#[test]
fn a_code_is_copied_from_the_page_and_a_disconnected_token_is_dead() {
    let service = Dropbox::start(Settings::default()).expect("started");
    let lab = Lab::new(env!("CARGO_BIN_EXE_haul"));
    let at = service.endpoint();
    let bare = format!(
        "[d]\ntype = dropbox\nclient_id = app\nauth_url = {at}/oauth2/authorize\ntoken_url = {at}/oauth2/token\n"
    );
    fs::write(lab.config(), bare).expect("written");
    let mut child = lab.start_reading(&["config", "reconnect", "d:"]);
    let (mut typed, mut output) = (child.stdin.take().expect("piped"), child.stdout.take().expect("piped"));
    typed.write_all(b"n\n").expect("written");
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !said.ends_with(b"config_verification_code> ") {
        assert!(output.read_exact(&mut byte).is_ok(), "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    let said = String::from_utf8_lossy(&said).into_owned();
    let page = said.lines().find(|line| line.starts_with("http")).expect("a page");
    // Dropbox takes the code from whoever proves that the page was opened for it.
    typed.write_all(format!("{}\n", shown(page)).as_bytes()).expect("written");
    drop(typed);
    assert!(child.wait().expect("ended").success());
    let config = fs::read_to_string(lab.config()).expect("config");
    assert!(config.contains("token = {") && !config.contains("client_secret"), "{config}");
    service.put("/f", b"there");
    let haul = |args: &[&str]| lab.haul(&[args, &["--dropbox-endpoint", &at]].concat());
    assert_eq!(haul(&["lsf", "d:"]).ok().out, "f\n");
    let hosts = ["api.dropboxapi.com", "content.dropboxapi.com"].map(|host| (host, service.address()));
    let interceptor = Interceptor::start(&lab, &hosts).expect("a proxy");
    let rclone = |args: &[&str]| {
        let (proxy, ca) = (interceptor.url(), interceptor.ca().display().to_string());
        lab.rclone(&[args, &["--http-proxy", &proxy, "--ca-cert", &ca, "--retries", "1"]].concat())
    };
    if lab.has_rclone() {
        assert_eq!(rclone(&["lsf", "d:"]).ok().out, "f\n");
    }
    fs::write(lab.config(), format!("{config}revoke_url = {at}/2/auth/token/revoke\n")).expect("written");
    let said = lab.haul(&["config", "disconnect", "d:"]).ok().out;
    assert_eq!(said, "Dropbox has ended the access, and the token is forgotten here.\n");
    assert!(!fs::read_to_string(lab.config()).expect("config").contains("token = {"));
    // A copy of it is good for nothing, not even for the next token.
    fs::write(lab.config(), &config).expect("written");
    let ran = haul(&["lsf", "d:"]);
    assert!(ran.code != 0 && ran.out.is_empty(), "{}", ran.err);
    if lab.has_rclone() {
        assert_ne!(rclone(&["lsf", "d:"]).code, 0);
    }
    // An ended log-in that is ended again counts as ended.
    fs::write(lab.config(), format!("{config}revoke_url = {at}/2/auth/token/revoke\n")).expect("written");
    assert_eq!(lab.haul(&["config", "disconnect", "d:"]).ok().out, said);
}
