//! Permanent errors fail once, within seconds, and say what to type: no server, another protocol, a certificate,
//! keys, a clock. And a stopped run ends at once, whatever the server does.

use haul_testkit::{
    cloudsim::{Cloudsim, ObjectSpec},
    folder::write,
    lab::{Lab, ProgramResult, until},
    minio::Minio,
    serve::{Server, answer},
    servers::{ACCESS_KEY, SECRET_KEY},
    tls::{Certificate, TlsFront},
};
use http_body_util::BodyExt as _;
use hyper::{Method, StatusCode};
use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener},
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const NOW: (&str, &str) = ("20200101000000Z", "20600101000000Z");
const NAMES: &str = "DNS:localhost,IP:127.0.0.1";
/// What takes under a second takes no longer on a busy machine; what tries again does for minutes.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same of what stops at once. Whoever waits for an answer, or until its turn comes, does so for 50 seconds at least.
const SOON: Duration = Duration::from_secs(20);

/// The lines that aren't statistics, without time.
fn error_lines(ran: &ProgramResult) -> Vec<String> {
    let line = |line: &str| match line.split_once(" ERROR : ") {
        Some((_, rest)) => Some(rest.to_owned()),
        None => line.starts_with("haul: ").then(|| line.to_owned()),
    };
    ran.err.lines().filter_map(line).collect()
}

fn lab() -> Lab {
    let lab = Lab::new(HAUL);
    for n in 0..31 {
        write(&lab.path(&format!("src/{n}")), b"x", 1_600_000_000_000_000_000);
    }
    lab
}

fn remote(endpoint: &str) -> String {
    remote_of(endpoint, ACCESS_KEY)
}

fn remote_of(endpoint: &str, key: &str) -> String {
    format!(":s3,provider=Minio,endpoint='{endpoint}',access_key_id={key},secret_access_key={SECRET_KEY}:bkt")
}

/// Runs every kind of command: each says one line, which ends so, and exits so.
#[track_caller]
fn everything_says(lab: &Lab, there: &str, flags: &[&str], code: i32, message: &str) {
    let (dir, file) = (format!("{there}/d"), format!("{there}/d/f"));
    let commands: [&[&str]; 17] = [
        &["ls", &dir],
        &["lsd", &dir],
        &["lsf", &dir],
        &["cat", &file],
        &["size", &dir],
        &["mkdir", there],
        &["rcat", &file],
        &["link", &file],
        &["deletefile", &file],
        &["purge", &dir],
        &["copy", "@src", &dir],
        &["copy", "@src", &dir, "--no-check-dest"],
        &["copy", &dir, "@dst"],
        &["copyto", "@src/1", &file],
        &["move", "@src", &dir, "--no-traverse"],
        &["sync", "@src", &dir],
        &["sync", &dir, "@src"],
    ];
    for args in commands {
        let begun = Instant::now();
        // What is written from a pipe isn't begun without one.
        let ran = lab.haul_reading(&[args, flags].concat(), b"").code(code);
        assert!(begun.elapsed() < PATIENCE, "{args:?} took {:?}", begun.elapsed());
        let lines = error_lines(&ran);
        assert!(lines.len() == 1 && lines[0].ends_with(&format!(": {message}")), "{args:?}: {lines:#?}\n{}", ran.err);
    }
    assert_eq!(fs::read_dir(lab.path("src")).unwrap().count(), 31, "nothing is deleted");
}

/// A server that reads a line from each connection and says this, if anything.
fn says(text: Option<&'static str>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for socket in listener.incoming().map_while(Result::ok) {
            let Some(text) = text else {
                silent.push(socket);
                continue;
            };
            thread::spawn(move || {
                let mut lines = BufReader::new(&socket);
                // What isn't text is a line too.
                let _ = lines.read_until(b'\n', &mut Vec::new());
                let _ = (&socket).write_all(text.as_bytes());
            });
        }
    });
    address
}

/// A server that refuses everything with this code of S3's, which HEAD doesn't tell.
fn refuses(status: StatusCode, code: &'static str) -> Server {
    let xml = format!("<Error><Code>{code}</Code><Message>No.</Message></Error>");
    Server::start(move |request, _| {
        let body = if request.method() == Method::HEAD { String::new() } else { xml.clone() };
        async move {
            let _ = request.into_body().collect().await;
            answer(status, body)
        }
    })
    .unwrap()
}

#[test]
fn nobody_listens() {
    // No test is given this port; one of the kernel's choice could be another's by then.
    let host = "127.0.0.1:1";
    let message = format!("nothing listens at {host}: check the endpoint's host and port with haul config");
    everything_says(&lab(), &remote(&format!("http://{host}")), &[], 5, &message);
}

#[test]
fn a_host_that_nobody_knows() {
    let message = "can't find the host no-such-host.invalid: check the endpoint with haul config, and the network";
    everything_says(&lab(), &remote("http://no-such-host.invalid"), &[], 5, message);
}

#[test]
fn tls_where_none_is_spoken() {
    let cloud = Cloudsim::with(&[]);
    let host = cloud.endpoint().replace("http://", "");
    let message = format!("{host} does not speak TLS: write the endpoint as http://{host}");
    everything_says(&lab(), &remote(&format!("https://{host}")), &[], 1, &message);
    // Without a scheme it is TLS that is meant.
    everything_says(&lab(), &remote(&host), &[], 1, &message);
    // One that waits for the end of the line.
    let host = says(Some("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
    let ran = lab().haul(&["ls", &remote(&format!("https://{host}"))]).code(1);
    let message = format!("{host} does not speak TLS: write the endpoint as http://{host}");
    assert_eq!(error_lines(&ran), [format!("haul: {message}")]);
}

#[test]
fn no_tls_where_it_is_spoken() {
    let lab = lab();
    let Some(good) = Certificate::make(&lab, "good", NAMES, NOW, false) else { return };
    let cloud = Cloudsim::with(&[]);
    let front = TlsFront::start(cloud.address(), &good).unwrap();
    let go = says(Some("HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"));
    for host in [front.address, go] {
        let message = format!("{host} speaks TLS only: write the endpoint as https://{host}");
        everything_says(&lab, &remote(&format!("http://{host}")), &[], 1, &message);
    }
}

#[test]
fn certificates() {
    let lab = lab();
    let Some(own) = Certificate::make(&lab, "own", NAMES, NOW, false) else { return };
    let make =
        |name: &str, names: &str, dates, authority| Certificate::make(&lab, name, names, dates, authority).unwrap();
    let authority = make("authority", NAMES, NOW, true);
    let expired = make("expired", NAMES, ("20200101000000Z", "20200201000000Z"), false);
    let early = make("early", NAMES, ("20550101000000Z", "20600101000000Z"), false);
    let other = make("other", "DNS:a.example", NOW, false);
    let cloud = Cloudsim::with(&[("bucket", "bkt")]);
    cloud.put("bkt", b"d/f", "content", &[]);

    let skip = "or skip the check with --no-check-certificate";
    let unknown = format!(
        "its certificate isn't from an authority that this machine knows: name the authority's certificate, or the server's \
         own, with --ca-cert FILE, {skip}"
    );
    let late = format!("its certificate expired on 2020-02-01: renew it on the server, {skip}");
    let clock = format!("its certificate isn't valid yet: set this machine's clock, {skip}");
    let name = format!("its certificate is for a.example: use that name in the endpoint, {skip}");
    let mut all = true;
    for (served, trusted, refused) in [
        (&own, None, Some(&unknown)),
        (&own, Some(&authority), Some(&unknown)),
        (&own, Some(&own), None),
        (&authority, None, Some(&unknown)),
        (&authority, Some(&own), Some(&unknown)),
        (&authority, Some(&authority), None),
        (&expired, Some(&expired), Some(&late)),
        (&early, Some(&early), Some(&clock)),
        (&other, Some(&other), Some(&name)),
    ] {
        let front = TlsFront::start(cloud.address(), served).unwrap();
        let endpoint = format!("https://{}", front.address);
        let file = trusted.map(|t| format!("--ca-cert={}", t.cert.display()));
        let flags: Vec<&str> = file.iter().map(String::as_str).collect();
        let cat = format!("{}/d/f", remote(&endpoint));
        match refused {
            None => assert_eq!(lab.haul(&[&["cat", &cat], &flags[..]].concat()).ok().out, "content"),
            Some(why) => {
                let stderr = format!("{} can't be trusted: {why}", front.address);
                if std::mem::take(&mut all) {
                    everything_says(&lab, &remote(&endpoint), &flags, 1, &stderr);
                }
                let ran = lab.haul(&[&["cat", &cat], &flags[..]].concat()).code(1);
                assert_eq!(error_lines(&ran), [format!("haul: {stderr}")]);
            }
        }
        let blind = lab.haul(&["cat", &cat, "--no-check-certificate"]).ok();
        assert_eq!(blind.out, "content");
    }
    let empty = format!("--ca-cert={}", lab.path("src/1").display());
    let ran = lab.haul(&["ls", &remote("https://127.0.0.1:1"), &empty]).code(1);
    let path = lab.path("src/1").display().to_string();
    assert_eq!(error_lines(&ran), [format!("haul: CA file {path}: it holds no certificate in PEM form")]);
}

#[test]
fn keys_and_clocks_that_are_wrong() {
    let forbidden = StatusCode::FORBIDDEN;
    for (code, message) in [
        (
            "InvalidAccessKeyId",
            "the server doesn't know our access key (InvalidAccessKeyId): correct access_key_id with haul config",
        ),
        (
            "SignatureDoesNotMatch",
            "the server doesn't accept our signature (SignatureDoesNotMatch): correct secret_access_key with haul config, \
             and see that the clock is right",
        ),
        (
            "RequestTimeTooSkewed",
            "this machine's clock differs too much from the server's (RequestTimeTooSkewed): set the clock",
        ),
        ("ExpiredToken", "No (ExpiredToken): renew session_token"),
    ] {
        let server = refuses(forbidden, code);
        everything_says(&lab(), &remote(&server.endpoint()), &[], 1, message);
    }
}

#[test]
fn a_missing_permission_stays_one() {
    let server = refuses(StatusCode::FORBIDDEN, "AccessDenied");
    let there = remote(&server.endpoint());
    let hint = "(the store knows you but doesn't allow this: check the permissions)";
    let ran = lab().haul(&["ls", &there]).code(1);
    assert_eq!(error_lines(&ran), [format!("haul: No (AccessDenied) {hint}")]);
    let ran = lab().haul(&["link", &format!("{there}/d/f")]).code(1);
    assert_eq!(error_lines(&ran), [format!("haul: f: the server answered 403 {hint}")]);
}

#[test]
fn keys_that_a_real_server_refuses() {
    let Some(minio) = Minio::shared() else { return };
    let message = "the server doesn't know our access key (InvalidAccessKeyId): correct access_key_id with haul config";
    everything_says(&lab(), &remote_of(&minio.endpoint(), "nobody"), &[], 1, message);
}

#[test]
fn a_password_in_the_endpoint_is_not_shown() {
    let lab = lab();
    let endpoint = "http://user:SECRET@127.0.0.1:1";
    fs::write(lab.config(), format!("[r]\ntype = s3\nprovider = Minio\nendpoint = {endpoint}\n")).unwrap();
    let stderr = "endpoint holds a user name or a password before @: take it out, and set access_key_id and \
                   secret_access_key";
    for args in [&["ls", "r:b", "-vv", "--dump=headers"][..], &["copy", "@src", "r:b", "-vv"]] {
        let ran = lab.haul(args).code(1);
        assert_eq!(error_lines(&ran), [format!("haul: {stderr}")]);
        assert!(!ran.err.contains("SECRET") && !ran.out.contains("SECRET"), "{}", ran.err);
    }
    let shown = lab.haul(&["config", "redacted", "r"]).ok();
    assert!(!shown.out.contains("SECRET"), "{}", shown.out);
}

#[test]
fn a_secret_in_a_remote_that_was_typed_is_not_shown() {
    let (lab, cloud) = (lab(), Cloudsim::with(&[("bucket", "bkt")]));
    let there = remote(&cloud.endpoint());
    cloud.put("bkt", b"f", "x", &[]);
    let (file, none) = (format!("{there}/f"), format!("{there}/none"));
    for args in [
        &["deletefile", &none][..],
        &["deletefile", &there],
        &["rcat", &there],
        &["copyto", "@src/1", &there],
        &["ls", &file, "--include=x"],
        &["sync", "@src", &there, "--backup-dir=@elsewhere"],
        &["checksum", &there, "@src"],
        &["touch", &none, "--no-create"],
        &["link", &none],
        &["cat", &none],
        &["rsync", "-a", &there, &file, "@dst"],
        &["copy", &file, "@dst", "-vv"],
    ] {
        let ran = lab.haul_reading(&[args, &["--dump=headers"]].concat(), b"");
        assert!(!ran.err.contains(SECRET_KEY) && !ran.out.contains(SECRET_KEY), "{args:?}\n{}{}", ran.err, ran.out);
    }
    let ran = lab.haul(&["deletefile", &none]).code(4);
    assert_eq!(error_lines(&ran), ["haul: :s3,…:bkt/none is a directory or doesn't exist"]);
    let mut journals = vec![lab.path("home")];
    while let Some(path) = journals.pop() {
        match fs::read_dir(&path) {
            Ok(entries) => journals.extend(entries.map(|entry| entry.unwrap().path())),
            Err(_) => assert!(!String::from_utf8_lossy(&fs::read(&path).unwrap()).contains(SECRET_KEY), "{path:?}"),
        }
    }
}

/// A host that has answered is waited for, but not with each of a thousand files in turn.
#[test]
fn a_host_that_is_gone_for_good_ends_the_run() {
    let cloud = Cloudsim::with(&[("latency", "50ms")]);
    cloud.bucket("bkt", None);
    let lab = lab();
    for n in 0..2000 {
        write(&lab.path(&format!("src/d/{n}")), b"x", 1_600_000_000_000_000_000);
    }
    let there = remote(&cloud.endpoint());
    let child = lab.start(&["copy", "--timeout=3s", "@src", &there]);
    assert!(until(|| cloud.keys("bkt").len() > 20), "it copies");
    cloud.stop();
    let ran = lab.end(child).code(1);
    let [line] = &error_lines(&ran)[..] else { panic!("{}", ran.err) };
    assert!(
        line.contains("can't be connected to any more, for ") && line.ends_with("run this again when it can"),
        "{line}"
    );
}

/// Starts commands, stops each once `waits` says that it does, and sees it end at once.
fn stopped_at_once(endpoint: &str, flags: &[&str], waits: impl Fn() -> usize) {
    let (lab, there) = (lab(), remote(endpoint));
    let file = format!("{there}/d/f");
    let commands: [&[&str]; 10] = [
        &["ls", &there],
        &["check", "@src", &there],
        &["rsync", "-r", "@src/", &there],
        &["copy", "@src", &there],
        &["copy", "@src", &there, "--no-check-dest"],
        &["copyto", "@src/1", &file],
        &["copy", &there, "@dst"],
        &["sync", "@src", &there],
        &["move", "@src", &there],
        &["rcat", &file],
    ];
    for args in commands {
        let before = waits();
        let mut child = lab.start_reading(&[args, flags].concat());
        drop(child.stdin.take());
        assert!(until(|| waits() > before), "{args:?} asks nothing");
        let begun = Instant::now();
        Command::new("kill").arg(child.id().to_string()).status().unwrap();
        let ended = until(|| child.try_wait().unwrap().is_some());
        let took = begun.elapsed();
        if !ended {
            child.kill().unwrap();
        }
        let ran = lab.end(child);
        let code = if args[0] == "rsync" { 20 } else { 130 };
        assert!(ended && ran.code == code, "{args:?}: {}\n{}", ran.code, ran.err);
        assert!(took < SOON, "{args:?} took {took:?} to stop\n{}", ran.err);
    }
}

#[test]
fn a_run_that_gets_no_answer_stops_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    thread::spawn(move || {
        let mut silent = Vec::new();
        for socket in listener.incoming().map_while(Result::ok) {
            silent.push(socket);
            seen.fetch_add(1, Relaxed);
        }
    });
    stopped_at_once(&endpoint, &[], || count.load(Relaxed));
}

/// A pager that isn't read on holds up all that is to be said, but not the end.
#[test]
fn a_run_with_a_blocked_standard_error_stops_at_once() {
    let (lab, cloud) = (lab(), Cloudsim::with(&[("bucket", "many:keys=20000,shape=flat,size=1"), ("bucket", "none")]));
    lab.remote("c", &cloud.endpoint());
    let mut child = lab.start(&["check", "c:many", "c:none"]);
    let stderr = child.stderr.take().unwrap();
    assert!(until(|| rustix::io::ioctl_fionread(&stderr).unwrap() > 60_000), "the pipe isn't full");
    let begun = Instant::now();
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    let ended = until(|| child.try_wait().unwrap().is_some());
    let took = begun.elapsed();
    if !ended {
        child.kill().unwrap();
    }
    assert_eq!((ended, child.wait().unwrap().code()), (true, Some(130)));
    assert!(took < SOON, "{took:?}");
}

/// Parts that go from cloud to cloud wait for no end either; what has arrived is remembered.
#[test]
fn a_run_from_cloud_to_cloud_stops_at_once_and_goes_on() {
    let (lab, from) = (lab(), Cloudsim::with(&[("bucket", "b")]));
    let to = Cloudsim::with(&[("bucket", "b"), ("connection-rate", "3M")]);
    lab.remote("c", &from.endpoint());
    lab.remote("d", &to.endpoint());
    from.make("b", b"f", &ObjectSpec { size: 150 << 20, seed: 1, mtime: Some("1600000000".into()), md5: false });
    let copy = ["copy", "c:b", "d:b", "--s3-chunk-size=5Mi"];
    let mut child = lab.start(&[&copy[..], &["--transfers=1", "--multi-thread-streams=4"]].concat());
    let arrived = || to.report().of("UploadPart");
    assert!(until(|| arrived() > 5), "no part arrives");
    let begun = Instant::now();
    Command::new("kill").arg(child.id().to_string()).status().unwrap();
    assert!(until(|| child.try_wait().unwrap().is_some()));
    let took = begun.elapsed();
    assert_eq!(lab.end(child).code, 130);
    assert!(took < SOON, "{took:?}");
    to.set(None, &[("connection-rate", "off")]).unwrap();
    to.reset();
    lab.haul(&copy).ok();
    assert!(arrived() < 30, "{} of 30 parts were sent again", arrived());
    lab.haul(&["check", "c:b", "d:b"]).ok();
}

#[test]
fn a_run_that_is_put_off_stops_at_once() {
    let count = Arc::new(AtomicUsize::new(0));
    let seen = count.clone();
    let server = Server::start(move |request, _| {
        seen.fetch_add(1, Relaxed);
        async move {
            let _ = request.into_body().collect().await;
            let mut response = answer(StatusCode::SERVICE_UNAVAILABLE, String::new())?;
            response.headers_mut().insert("retry-after", 60.into());
            Ok(response)
        }
    });
    stopped_at_once(&server.unwrap().endpoint(), &[], || count.load(Relaxed));
}

#[test]
fn a_run_that_holds_itself_back_stops_at_once() {
    let cloud = Cloudsim::with(&[("bucket", "bkt")]);
    let lab = lab();
    write(&lab.path("big/f"), &vec![7; 40 << 20], 1);
    let there = remote(&cloud.endpoint());
    for limit in ["--bwlimit=100k", "--tpslimit=0.02"] {
        let mut child = lab.start(&["copy", "@big", &there, limit, "--timeout=1h"]);
        let seen = || cloud.report().total_requests;
        let before = seen();
        assert!(until(|| seen() > before), "{limit} asks nothing");
        let begun = Instant::now();
        Command::new("kill").arg(child.id().to_string()).status().unwrap();
        let ended = until(|| child.try_wait().unwrap().is_some());
        let took = begun.elapsed();
        if !ended {
            child.kill().unwrap();
        }
        lab.end(child).code(130);
        assert!(ended && took < SOON, "{limit} took {took:?} to stop");
    }
}
