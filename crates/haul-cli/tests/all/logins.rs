//! Logging in: the real binary, a service of ours that says yes, and rclone on the other machine.

use haul_testkit::{
    lab::Lab,
    serve::{Server, answer},
    web_servers::{Make, WebServer},
};
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use serde_json::Value;
use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// There is one port that browsers come back to.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A service on whose page everybody says yes; a code is good once, for whoever can prove that he asked.
fn service() -> Server {
    let server = Server::start(|request, _| async move {
        let (path, query) = (request.uri().path().to_owned(), request.uri().query().unwrap_or_default().to_owned());
        let field = |text: &str, name: &str| {
            let fields = url::form_urlencoded::parse(text.as_bytes()).find(|(field, _)| field == name);
            fields.map(|(_, value)| value.into_owned()).unwrap_or_default()
        };
        if path == "/auth" {
            let mut back = url::Url::parse(&field(&query, "redirect_uri")).map_err(std::io::Error::other)?;
            let challenge = field(&query, "code_challenge");
            back.query_pairs_mut()
                .append_pair("code", &format!("yes {challenge}"))
                .append_pair("state", &field(&query, "state"));
            let mut response = answer(StatusCode::FOUND, String::new())?;
            response.headers_mut().insert("location", back.as_str().parse().map_err(std::io::Error::other)?);
            return Ok(response);
        }
        let form = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
        let form = String::from_utf8_lossy(&form).into_owned();
        if path == "/revoke" {
            return match &*field(&form, "token") {
                "r1" => answer(StatusCode::OK, "{}".into()),
                "gone" => answer(StatusCode::BAD_REQUEST, "{\"error\":\"invalid_token\"}".into()),
                _ => answer(StatusCode::FORBIDDEN, "{\"error\":\"access_denied\"}".into()),
            };
        }
        let (code, verifier) = (field(&form, "code"), field(&form, "code_verifier"));
        let proved = match code.strip_prefix("yes ") {
            Some("") => verifier.is_empty(),
            Some(challenge) => challenge == challenge_of(&verifier),
            None => field(&form, "refresh_token") == "r1",
        };
        match proved {
            true => answer(
                StatusCode::OK,
                "{\"access_token\":\"a1\",\"token_type\":\"Bearer\",\"refresh_token\":\"r1\",\"expires_in\":3600}"
                    .into(),
            ),
            false => answer(
                StatusCode::BAD_REQUEST,
                format!("{{\"error\":\"invalid_grant\",\"error_description\":\"{form}\"}}"),
            ),
        }
    });
    server.expect("a port")
}

fn challenge_of(verifier: &str) -> String {
    use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
    let hash = haul_core::hash::hash_bytes(&[haul_core::Algo::Sha256], verifier.as_bytes());
    URL_SAFE_NO_PAD.encode(hash.get(haul_core::Algo::Sha256).expect("a hash"))
}

/// What a browser does: it goes where it is sent, as long as that is on this machine. Gives the last page.
fn browse(link: &str) -> String {
    let mut link = link.to_owned();
    for _ in 0..5 {
        let url = url::Url::parse(&link).expect("a link");
        let host = (url.host_str().expect("a host").to_owned(), url.port().expect("a port"));
        let mut socket = TcpStream::connect(host).expect("connected");
        let path = &url[url::Position::BeforePath..url::Position::AfterQuery];
        write!(socket, "GET {path} HTTP/1.0\r\nHost: {}\r\n\r\n", url.authority()).expect("sent");
        let mut page = String::new();
        socket.read_to_string(&mut page).expect("a page");
        match page
            .lines()
            .find_map(|line| line.to_ascii_lowercase().starts_with("location: ").then(|| line[10..].to_owned()))
        {
            Some(next) => link = next,
            None => return page,
        }
    }
    panic!("sent round and round: {link}")
}

/// A program that waits for a browser, and the link that it prints to its standard error. Other tests' connections may have the port for a
/// while; `None`, after saying so, when somebody has it for good.
fn waiting(mut start: impl FnMut() -> Child) -> Option<(Child, String)> {
    for _ in 0..30 {
        let mut child = start();
        let lines = BufReader::new(child.stderr.take().expect("stderr")).lines();
        let mut lines = lines.map(|line| line.expect("a line"));
        let mut said = String::new();
        if let Some(line) =
            lines.by_ref().inspect(|line| said += line).find(|line| line.contains("http://127.0.0.1:53682/auth"))
        {
            // The rest must be read, or it waits.
            std::thread::spawn(move || lines.for_each(drop));
            let link = line.split_whitespace().find(|word| word.starts_with("http")).expect("a link").to_owned();
            return Some((child, link));
        }
        assert!(said.contains("53682"), "{said}");
        child.wait().expect("ended");
    }
    haul_testkit::peers::skip("port 53682 is taken");
    None
}

/// What stands between the lines to paste.
fn pasted(child: Child) -> String {
    let out = child.wait_with_output().expect("ended");
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).expect("text");
    let inner = text.split("--->\n").nth(1).and_then(|rest| rest.split("\n<---End paste").next());
    inner.unwrap_or_else(|| panic!("{text}")).to_owned()
}

fn options(server: &Server) -> [String; 4] {
    let at = server.endpoint();
    [format!("auth_url={at}/auth"), format!("token_url={at}/token"), "client_id=me".into(), "client_secret=s".into()]
}

fn create<'a>(options: &'a [String], more: &[&'a str]) -> Vec<&'a str> {
    let options = options.iter().map(String::as_str);
    ["config", "create", "g", "gcs"].into_iter().chain(options).chain(more.iter().copied()).collect()
}

#[test]
fn a_browser_of_this_machine_logs_in() {
    let (_one, server, lab) = (alone(), service(), Lab::new(HAUL));
    let options = options(&server);
    let Some((mut child, link)) = waiting(|| lab.start(&create(&options, &[]))) else { return };
    let page = browse(&link);
    assert!(page.contains("200 OK") && page.contains("Go back to the terminal"), "{page}");
    assert!(child.wait().expect("ended").success());
    let text = written(&lab);
    assert!(
        text.contains(
            "token = {\"access_token\":\"a1\",\"token_type\":\"Bearer\",\"refresh_token\":\"r1\",\"expiry\":\""
        ),
        "{text}"
    );
    // Whoever comes with another question's answer isn't believed; the right one is waited for.
    let again = || lab.start(&["config", "reconnect", "g:", "--auto-confirm"]);
    let Some((mut child, link)) = waiting(again) else { return };
    assert!(browse("http://127.0.0.1:53682/?code=no&state=other").contains("400"));
    assert!(browse("http://127.0.0.1:53682/auth?state=other").contains("403"));
    browse(&link);
    assert!(child.wait().expect("ended").success());
    let at = server.endpoint();
    let path = lab.haul(&["config", "file"]).ok().out.lines().last().expect("a path").to_owned();
    let config = fs::read_to_string(&path).expect("config");
    let with = |token: &str| fs::write(&path, format!("{config}revoke_url = {at}/revoke\n").replace("\"r1\"", token));
    with("\"other\"").expect("written");
    let ran = lab.haul(&["config", "disconnect", "g:"]);
    let said = "g: Google didn't end the access (access_denied), so nothing was changed. To forget the token here alone: haul config unset g token";
    assert!(ran.code != 0 && ran.err.contains(said) && written(&lab).contains("token = {"), "{}", ran.err);
    for token in ["\"gone\"", "\"r1\""] {
        with(token).expect("written");
        let said = lab.haul(&["config", "disconnect", "g:"]).ok().out;
        assert_eq!(said, "Google has ended the access, and the token is forgotten here.\n");
        assert!(!written(&lab).contains("token = {"));
    }
    let ran = lab.haul(&["config", "disconnect", "g:"]);
    assert!(ran.code != 0 && ran.err.contains("nobody is logged in"), "{}", ran.err);
}

/// The question for a token that haul asks a program, and the command that answers it on another machine.
fn question(lab: &Lab, options: &[String]) -> (String, Vec<String>) {
    let ran = lab.haul(&create(options, &["--non-interactive", "config_is_local=false"])).ok();
    let question: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(question["Option"]["Name"], "config_token");
    let help = question["Option"]["Help"].as_str().expect("help").to_owned();
    let line = help.lines().find(|line| line.contains("rclone authorize")).expect("a command").to_owned();
    let words = line.split_whitespace().skip(1).map(|word| word.trim_matches('"').to_owned()).collect();
    (question["State"].as_str().expect("a state").to_owned(), words)
}

/// The remote, as the file has it.
fn written(lab: &Lab) -> String {
    lab.haul(&["config", "show", "g"]).ok().out
}

#[test]
fn nobody_is_asked_to_log_in_where_there_is_a_key() {
    let lab = Lab::new(HAUL);
    for option in ["box_config_file=/x.json", "config_credentials={}", "access_token=a"] {
        let ran = lab.haul(&["config", "create", "b", "box", option, "--non-interactive"]).ok();
        let end: Value = serde_json::from_str(&ran.out).expect("JSON");
        assert_eq!((&end["State"], &end["Option"]), (&Value::from(""), &Value::Null), "{option}");
        lab.haul(&["config", "create", "c", "box", option]).ok();
    }
}

fn goes_on(lab: &Lab, state: &str, paste: &str) {
    let ran = lab.haul(&["config", "update", "g", "--continue", "--state", state, "--result", paste]).ok();
    let end: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!((&end["State"], &end["Option"]), (&Value::from(""), &Value::Null));
    assert!(written(lab).contains("token = {\"access_token\":\"a1\""));
}

#[test]
fn another_machine_logs_in_with_haul_or_with_rclone() {
    let (_one, server, lab) = (alone(), service(), Lab::new(HAUL));
    let options = options(&server);
    let (state, words) = question(&lab, &options);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let authorize = || lab.start(&[&words[..], &["--auth-no-open-browser"]].concat());
    let Some((child, link)) = waiting(authorize) else { return };
    browse(&link);
    goes_on(&lab, &state, &pasted(child));
    // What isn't a token is asked for again.
    let (state, _) = question(&lab, &options);
    let ran = lab.haul(&["config", "update", "g", "--continue", "--state", &state, "--result", "nonsense"]).ok();
    let again: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert!(again["Error"].as_str().is_some_and(|error| error.contains("authorize printed")), "{again}");
    if !lab.has_rclone() {
        return;
    }
    let (state, words) = question(&lab, &options);
    let rclone = haul_testkit::peers::need("rclone").expect("there");
    let mut command = Command::new(&rclone);
    command
        .args(["authorize", "gcs"])
        .args(&words[2..])
        .arg("--auth-no-open-browser")
        .env("RCLONE_CONFIG", "/dev/null");
    let authorize = || command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("rclone");
    let Some((child, link)) = waiting(authorize) else { return };
    browse(&link);
    goes_on(&lab, &state, &pasted(child));
}

/// A token that rclone got in its own name is renewed by rclone, for two who need it at once too.
#[test]
fn rclone_renews_what_is_its_own() {
    let (server, lab) = (service(), Lab::new(HAUL));
    let (Some(gcs), Some(rclone)) = (WebServer::start(Make::FakeGcs), haul_testkit::peers::need("rclone")) else {
        return;
    };
    let old = "{\"access_token\":\"a0\",\"token_type\":\"Bearer\",\"refresh_token\":\"r1\",\"expiry\":\"2020-01-01T00:00:00Z\"}";
    let section = format!(
        "# mine\n[g]\ntype = google cloud storage\nendpoint = {}/storage/v1/\ntoken_url = {}/token\nproject_number = 1\ntoken = {old}\n",
        gcs.url(),
        server.endpoint()
    );
    fs::write(lab.config(), section).expect("config");
    let command = |args: &[&str], there: bool| {
        let mut command = lab.haul_command(args);
        let path = if there { rclone.parent().expect("a folder").to_owned() } else { "/nowhere".into() };
        command.env("PATH", path).output().expect("haul")
    };
    let ran = command(&["mkdir", "g:box"], false);
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && said.contains("rclone") && said.contains("client_id"), "{said}");
    assert!(said.contains("haul config reconnect g:"), "{said}");
    let ran = command(&["mkdir", "g:box"], true);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = fs::read_to_string(lab.config()).expect("there");
    assert!(text.starts_with("# mine\n[g]\n") && text.contains("\"access_token\":\"a1\""), "{text}");
    // While it lasts nobody is asked.
    drop(server);
    fs::write(lab.path("f"), "x").expect("written");
    let file = lab.path("f");
    let ran = command(&["copyto", file.to_str().expect("text"), "g:box/d/f"], false);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    lab.rclone(&["check", "@f", "g:box/d", "--one-way"]).ok();
}
