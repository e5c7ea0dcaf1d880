//! Proxies of the environment and of `--http-proxy`, and headers of the user, as a server sees them.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::TcpListener,
    process::{Command, Output},
    sync::{Arc, Mutex},
    thread,
};

const PAGE: &str = "<html><title>Index of /</title><a href=\"f\">f</a></html>";

/// A proxy that answers every request itself, with a page or a file of 5 bytes, and refuses tunnels; with the heads of what it
/// was asked.
fn proxy() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines.by_ref().map_while(Result::ok).take_while(|line| !line.is_empty()).collect();
            let Some(first) = head.first() else { continue };
            let (method, target) = (first.split(' ').next().unwrap(), first.split(' ').nth(1).unwrap());
            let answer = match (method, target.ends_with('/')) {
                ("CONNECT", _) => "HTTP/1.1 407 Who?\r\ncontent-length: 0\r\n\r\n".to_owned(),
                ("GET", true) => {
                    let length = PAGE.len();
                    format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{PAGE}"
                    )
                }
                _ => {
                    let body = if method == "HEAD" { "" } else { "hello" };
                    let cookie = "set-cookie: session=abc; path=/";
                    format!("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n{cookie}\r\nconnection: close\r\n\r\n{body}")
                }
            };
            seen.lock().unwrap().push(head.join("\n").to_lowercase());
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    (address, heads)
}

fn haul(variables: &[(&str, &str)], args: &[&str]) -> Output {
    let home = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.env_clear().env("HOME", home.path()).args(args).args(["--retries", "1", "--low-level-retries", "1"]);
    command.envs(variables.iter().copied()).output().unwrap()
}

#[test]
fn a_host_is_asked_through_the_proxy_that_the_environment_names() {
    let (address, heads) = proxy();
    let url = format!("http://u:p@{address}");
    let listed = haul(&[("http_proxy", &url)], &["lsf", ":http,url='http://nowhere.invalid/':"]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "f\n", "{listed:?}");
    let first = heads.lock().unwrap()[0].clone();
    assert!(first.starts_with("get http://nowhere.invalid/ http/1.1"), "{first}");
    assert!(first.contains("proxy-authorization: basic dtpw"), "{first}");
    // Those that are spared, and this machine itself.
    let before = heads.lock().unwrap().len();
    let spared = [("HTTP_PROXY", url.as_str()), ("NO_PROXY", "x.org, invalid")];
    let error = haul(&spared, &["lsf", ":http,url='http://nowhere.invalid/':"]);
    assert!(String::from_utf8_lossy(&error.stderr).contains("can't find the host nowhere.invalid"), "{error:?}");
    assert_eq!(heads.lock().unwrap().len(), before);
    let own = haul(&[("HTTP_PROXY", "http://127.0.0.1:1")], &["lsf", &format!(":http,url='http://{address}/':")]);
    assert_eq!(String::from_utf8_lossy(&own.stdout), "f\n", "{own:?}");
}

#[test]
fn a_proxy_that_is_typed_counts_before_the_environment_and_for_this_machine_too() {
    let (address, heads) = proxy();
    let args = ["lsf", ":http,url='http://127.0.0.1:1/':", "--http-proxy", &address];
    let listed = haul(&[("HTTP_PROXY", "http://127.0.0.1:1"), ("NO_PROXY", "*")], &args);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "f\n", "{listed:?}");
    assert!(heads.lock().unwrap()[0].starts_with("get http://127.0.0.1:1/ "));
    // The flag's own variable is no option of the store `http`.
    let listed = haul(&[("HAUL_HTTP_PROXY", &address)], &args[..2]);
    assert_eq!(String::from_utf8_lossy(&listed.stdout), "f\n", "{listed:?}");
}

#[test]
fn a_tunnel_is_asked_for_where_there_is_tls() {
    let (address, heads) = proxy();
    let error = haul(&[("HTTPS_PROXY", &address)], &["lsf", ":http,url='https://nowhere.invalid/':"]);
    let stderr = String::from_utf8_lossy(&error.stderr).into_owned();
    let why = format!(
        "the proxy {address} makes no connection: it wants a user and a password: write them as http://USER:PASSWORD@HOST:PORT"
    );
    assert!(stderr.contains(&why), "{stderr}");
    assert!(heads.lock().unwrap()[0].starts_with("connect nowhere.invalid:443 http/1.1"));
    let wrong = haul(&[("HTTPS_PROXY", "ftp://x")], &["lsf", ":http,url='https://nowhere.invalid/':"]);
    let message = "HTTPS_PROXY names no proxy that haul knows: write http://HOST:PORT, https:// or socks5://";
    assert!(String::from_utf8_lossy(&wrong.stderr).contains(message), "{wrong:?}");
}

#[test]
fn headers_go_with_the_requests_that_they_are_for() {
    let (address, heads) = proxy();
    let remote = format!(":http,url='http://{address}/':f");
    let args = ["cat", &remote, "--header", "X-All: 1", "--header-download", "x-down: 2", "--header-upload", "x-up: 3"];
    let read = haul(&[], &args);
    assert_eq!(String::from_utf8_lossy(&read.stdout), "hello", "{read:?}");
    let heads = heads.lock().unwrap();
    assert!(heads.iter().all(|head| head.contains("x-all: 1") && !head.contains("x-up")), "{heads:?}");
    let down = |head: &&String| head.contains("x-down: 2");
    assert!(
        heads.iter().filter(down).count() == 1 && heads.iter().find(down).unwrap().starts_with("get /f "),
        "{heads:?}"
    );
    let wrong = haul(&[], &["lsf", &remote, "--header", "none"]);
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("\"none\" isn't a header: write it as \"Name: value\""),
        "{wrong:?}"
    );
}

#[test]
fn connections_are_used_again_unless_the_user_says_no() {
    for (flags, closes) in [(&[][..], false), (&["--disable-http-keep-alives"], true)] {
        let (address, heads) = proxy();
        let listed = haul(&[], &[&["lsf", &format!(":http,url='http://{address}/':")], flags].concat());
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "f\n", "{listed:?}");
        let heads = heads.lock().unwrap();
        assert!(heads.iter().all(|head| head.contains("connection: close") == closes), "{heads:?}");
    }
}

#[test]
fn a_server_hears_its_cookie_again_if_the_user_says_so() {
    for (flags, told) in [(&[][..], false), (&["--use-cookies"], true)] {
        let (address, heads) = proxy();
        let read = haul(&[], &[&["cat", &format!(":http,url='http://{address}/':f")], flags].concat());
        assert_eq!(String::from_utf8_lossy(&read.stdout), "hello", "{read:?}");
        let heads = heads.lock().unwrap();
        assert!(heads.len() > 1 && !heads[0].contains("session=abc"), "{heads:?}");
        assert!(heads[1..].iter().all(|head| head.contains("cookie: session=abc") == told), "{heads:?}");
    }
}

#[test]
fn packets_are_marked_as_rclone_marks_them() {
    let Some(strace) = haul_testkit::peers::need("strace") else { return };
    let programs = [Some(env!("CARGO_BIN_EXE_haul").into()), haul_testkit::peers::find("rclone")];
    for program in programs.into_iter().flatten() {
        for (class, mark) in
            [("CS1", "IP_TOS, [32]"), ("af43", "IP_TOS, [152]"), ("LE", "IP_TOS, [4]"), ("60", "IP_TOS, [240]")]
        {
            let (address, _) = proxy();
            let home = tempfile::tempdir().unwrap();
            let out = home.path().join("strace");
            let mut command = Command::new(&strace);
            command.args(["-f", "-e", "trace=setsockopt", "-o"]).arg(&out).arg(&program).env_clear();
            command.env("HOME", home.path()).args(["--dscp", class, "lsf", &format!(":http,url='http://{address}/':")]);
            let ran = command.output().unwrap();
            if !out.exists() {
                return haul_testkit::peers::skip("strace can't trace here");
            }
            assert!(ran.status.success(), "{ran:?}");
            let calls = std::fs::read_to_string(&out).unwrap();
            assert!(calls.contains(mark), "{program:?} {class}: {calls}");
        }
    }
    let ran = haul(&[], &["ls", ".", "--dscp", "AF9"]);
    assert!(String::from_utf8_lossy(&ran.stderr).contains("\"AF9\" is no class"), "{ran:?}");
}

#[test]
fn a_password_that_is_not_obscured_is_told() {
    let ran = haul(&[], &["ls", ".", "--client-cert", "x.pem", "--client-pass", "plain"]);
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert!(stderr.contains("--client-pass isn't an obscured password: type haul obscure PASSWORD"), "{stderr}");
}
