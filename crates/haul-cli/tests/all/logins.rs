//! Logging in: the real binary, a service of ours that says yes, and rclone on the other machine.

use haul_testkit::{
    lab::{Lab, ProgramResult},
    onedrivesim::{self, OneDrive},
    serve::{Server, answer},
    web_servers::{Make, WebServer},
};
use http_body_util::BodyExt as _;
use hyper::StatusCode;
use serde_json::Value;
use std::{
    collections::BTreeMap,
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
        let proved = match code.strip_prefix("yes").map(str::trim) {
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

/// Follows redirections within this machine, as a browser would, and returns the last page.
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
        let mut output = String::new();
        if let Some(line) =
            lines.by_ref().inspect(|line| output += line).find(|line| line.contains("http://127.0.0.1:53682/auth"))
        {
            // The rest must be read, or it waits.
            std::thread::spawn(move || lines.for_each(drop));
            let link = line.split_whitespace().find(|word| word.starts_with("http")).expect("a link").to_owned();
            return Some((child, link));
        }
        assert!(output.contains("53682"), "{output}");
        child.wait().expect("ended");
        std::thread::sleep(std::time::Duration::from_secs(2));
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
    // An answer with another state is refused, and the right one is still awaited.
    let again = || lab.start(&["config", "reconnect", "g:", "--auto-confirm"]);
    let Some((mut child, link)) = waiting(again) else { return };
    for other in ["?code=no&state=other", "?error=no&state=other", ""] {
        assert!(browse(&format!("http://127.0.0.1:53682/{other}")).contains("400"), "{other}");
    }
    assert!(browse("http://127.0.0.1:53682/auth?state=other").contains("403"));
    browse(&link);
    assert!(child.wait().expect("ended").success());
    let at = server.endpoint();
    let path = lab.haul(&["config", "file"]).ok().out.lines().last().expect("a path").to_owned();
    let config = fs::read_to_string(&path).expect("config");
    let with = |token: &str| fs::write(&path, format!("{config}revoke_url = {at}/revoke\n").replace("\"r1\"", token));
    with("\"other\"").expect("written");
    let ran = lab.haul(&["config", "disconnect", "g:"]);
    let message = "g: Google didn't end the access (access_denied), so nothing was changed. To forget the token here alone: haul config unset g token";
    assert!(ran.code != 0 && ran.err.contains(message) && written(&lab).contains("token = {"), "{}", ran.err);
    for token in ["\"gone\"", "\"r1\""] {
        with(token).expect("written");
        let message = lab.haul(&["config", "disconnect", "g:"]).ok().out;
        assert_eq!(message, "Google has ended the access, and the token is forgotten here.\n");
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
fn a_configured_key_needs_no_login() {
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

/// The command for the other machine, as rclone prints it, is haul's too.
#[test]
fn rclone_asks_and_haul_authorizes() {
    let (_one, server, lab) = (alone(), service(), Lab::new(HAUL));
    if !lab.has_rclone() {
        return;
    }
    let options = options(&server);
    let options = options.iter().map(String::as_str);
    let begin = ["config", "create", "g", "box"].into_iter().chain(options);
    let begin: Vec<&str> = begin.chain(["--non-interactive", "config_is_local=false"]).collect();
    let reply: Value = serde_json::from_str(&lab.rclone(&begin).ok().out).expect("JSON");
    let question = match &reply["Option"]["Name"] {
        name if name == "config_token" => reply,
        _ => {
            let state = reply["State"].as_str().expect("a state").to_owned();
            let ran = lab.rclone(&["config", "update", "g", "--continue", "--state", &state, "--result", "false"]);
            serde_json::from_str(&ran.ok().out).expect("JSON")
        }
    };
    let help = question["Option"]["Help"].as_str().expect("help");
    let line = help.lines().find(|line| line.contains("rclone authorize")).expect("a command");
    let words: Vec<&str> = line.split_whitespace().skip(1).map(|word| word.trim_matches('"')).collect();
    let Some((child, link)) = waiting(|| lab.start(&[&words[..], &["--auth-no-open-browser"]].concat())) else {
        return;
    };
    browse(&link);
    let state = question["State"].as_str().expect("a state");
    lab.rclone(&["config", "update", "g", "--continue", "--state", state, "--result", &pasted(child)]).ok();
    assert!(written(&lab).contains("token = {\"access_token\":\"a1\""), "{}", written(&lab));
}

/// On a node that people reach by ssh: the first question is whether there is a browser, and a token may be longer than a line of a terminal.
#[test]
fn who_has_no_browser_is_asked_at_the_terminal() {
    let lab = Lab::new(HAUL);
    let Some(script) = haul_testkit::peers::need("script") else { return };
    let mut command = lab.command(&script);
    command.args(["-qefc", &format!("{HAUL} config create g box client_id=me client_secret=s"), "/dev/null"]);
    let mut asking = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script");
    // Open up to the end: what is on its way when it closes is lost.
    let mut typed = asking.stdin.take().expect("piped");
    let token = format!("{{\"access_token\":\"{}\"}}", "a".repeat(9000));
    for (question, answer) in [("config_is_local [y/N]> ", ""), ("config_token> ", &token)] {
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !said.ends_with(question.as_bytes()) {
            let read = asking.stdout.as_mut().expect("piped").read_exact(&mut byte);
            assert!(read.is_ok(), "{}", String::from_utf8_lossy(&said));
            said.push(byte[0]);
        }
        // The terminal shows what comes: that must be read, too.
        typed.write_all(format!("{answer}\n").as_bytes()).expect("written");
    }
    lab.end(asking).ok();
    assert!(written(&lab).contains(&"a".repeat(9000)));
}

/// The questions after a log-in may fail: nobody logs in twice for that.
#[test]
fn a_token_is_kept_whatever_is_asked_after_it() {
    let lab = Lab::new(HAUL);
    let ran = lab.haul(&[
        "config",
        "create",
        "g",
        "onedrive",
        "client_id=me",
        "tenant_url=http://127.0.0.1:1/_api",
        "config_is_local=false",
        "config_device_code=false",
        "config_token={\"access_token\":\"kept\"}",
        "--low-level-retries=1",
    ]);
    assert_ne!(ran.code, 0, "{}", ran.out);
    let before = written(&lab);
    assert!(before.contains("token = {\"access_token\":\"kept\""), "{before}");
    // Another account's token beside the drive that was chosen would lead to other files: it is written with what is asked after it.
    let answers = b"y\nn\nn\n{\"access_token\":\"another's\"}\n";
    let ran = lab.haul_reading(&["config", "reconnect", "g:", "--low-level-retries=1"], answers);
    assert!(ran.code == 1 && ran.err.contains("the input ended before the log-in was done"), "{}", ran.err);
    assert!(ran.out.contains("config_type> "), "it came to the questions after the log-in: {}", ran.out);
    assert_eq!(written(&lab), before);
}

/// The shell that comes after haul must show what is typed.
#[test]
fn a_terminal_is_put_back_where_a_password_was_asked_for() {
    let lab = Lab::new(HAUL);
    let Some(script) = haul_testkit::peers::need("script") else { return };
    let pid = lab.path("pid");
    let asks = format!("echo $$ >{}; exec {HAUL} config encryption set", pid.display());
    let mut command = lab.command(&script);
    command.args(["-qefc", &format!("sh -c '{asks}'; stty -a"), "/dev/null"]);
    let mut asking = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("script");
    let _open = asking.stdin.take().expect("piped");
    let (mut said, mut byte) = (Vec::new(), [0]);
    while !said.ends_with(b"New password: ") {
        let read = asking.stdout.as_mut().expect("piped").read_exact(&mut byte);
        assert!(read.is_ok(), "{}", String::from_utf8_lossy(&said));
        said.push(byte[0]);
    }
    let pid = fs::read_to_string(pid).expect("written");
    assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().expect("kill").success());
    let after = lab.end(asking).out;
    for mode in ["echo", "icanon", "isig"] {
        assert!(after.split_whitespace().any(|word| word == mode), "{mode}: {after}");
    }
}

/// What a section of rclone's asks for, and haul can't do, isn't passed over.
#[test]
fn options_that_haul_lacks_are_told_or_refused() {
    let lab = Lab::new(HAUL);
    let token = "token = {\"access_token\":\"a\",\"expiry\":\"2099-01-01T00:00:00Z\"}";
    let config = format!(
        "[d]\ntype = dropbox\nclient_id = me\n{token}\nshared_files = true\n[l]\ntype = memory\ndescription = mine\ndiscard = true\n"
    );
    fs::write(lab.config(), config).expect("config");
    let ran = lab.haul(&["lsf", "d:"]);
    assert!(ran.code != 0 && ran.err.contains("option shared_files: haul can't do"), "{}", ran.err);
    let ran = lab.haul(&["copy", "l:a", "l:b"]);
    assert_eq!(ran.err.matches("no option \"discard\"").count(), 1, "{}", ran.err);
    assert!(!ran.err.contains("description"), "{}", ran.err);
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
    let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(!ran.status.success() && stderr.contains("rclone") && stderr.contains("client_id"), "{stderr}");
    assert!(stderr.contains("haul config reconnect g:"), "{stderr}");
    let ran = command(&["mkdir", "g:box"], true);
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let text = fs::read_to_string(lab.config()).expect("there");
    assert!(text.starts_with("# mine\n[g]\n") && text.contains("\"access_token\":\"a1\""), "{text}");
    // While it lasts nobody is asked.
    drop(server);
    fs::write(lab.path("f"), "x").expect("written");
    let file = lab.path("f");
    for flags in [&[][..], &["-q"]] {
        let args = [&["copyto", file.to_str().expect("text"), "g:box/d/f"], flags].concat();
        let ran = command(&args, false);
        let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
        assert!(ran.status.success(), "{stderr}");
        assert_eq!(
            stderr.matches("by rclone's application at Google").count(),
            usize::from(flags.is_empty()),
            "{stderr}"
        );
    }
    lab.rclone(&["check", "@f", "g:box/d", "--one-way"]).ok();
}

/// A question, as far as a program that knows the protocol alone goes by it.
fn shape(option: &Value) -> String {
    let of = |name: &str| option[name].to_string();
    let examples = option["Examples"].as_array().into_iter().flatten().map(|one| one["Value"].to_string());
    let words = ["Name", "Default", "DefaultStr", "ValueStr", "Value", "Type", "Required", "Exclusive", "IsPassword"];
    let more = ["Sensitive", "Advanced", "Hide", "NoPrefix", "FieldName"];
    format!(
        "{:?} {:?}",
        words.iter().chain(&more).map(|name| of(name)).collect::<Vec<_>>(),
        examples.collect::<Vec<_>>()
    )
}

/// What a program with a window of its own does: it shows each question, answers by name what its person knows, and takes the default
/// otherwise. The shapes of the questions.
fn driven(run: &dyn Fn(&[&str]) -> ProgramResult, begin: &[&str], answers: &[(&str, &str)]) -> Vec<String> {
    let mut questions = Vec::new();
    let mut ran = run(&[&["config", "create", "g"], begin, &["--non-interactive"]].concat());
    for _ in 0..200 {
        let reply: Value = serde_json::from_str(&ran.ok().out).expect("JSON");
        let state = reply["State"].as_str().expect("a state");
        assert_eq!((&reply["Error"], &reply["Result"]), (&Value::from(""), &Value::from("")), "{reply}");
        if state.is_empty() {
            assert!(reply["Option"].is_null(), "{reply}");
            return questions;
        }
        let option = &reply["Option"];
        questions.push(shape(option));
        let name = option["Name"].as_str().expect("a name");
        let default = option["DefaultStr"].as_str().expect("a default");
        let answer = answers.iter().find(|(known, _)| *known == name).map_or(default, |(_, answer)| *answer);
        assert!(!answer.is_empty() || option["Required"] == false, "{reply}");
        if option["Exclusive"] == true {
            let shown = option["Examples"].as_array().expect("examples");
            assert!(shown.iter().any(|example| example["Value"] == answer), "{reply}");
        }
        ran = run(&["config", "update", "g", "--continue", "--state", state, "--result", answer]);
    }
    panic!("asked without an end: {questions:?}")
}

/// What a remote is in the file; options without a value are none.
fn kept(run: &dyn Fn(&[&str]) -> ProgramResult) -> BTreeMap<String, String> {
    let text = run(&["config", "show", "g"]).ok().out;
    let pairs = text.lines().filter_map(|line| line.split_once('=')).map(|(key, value)| (key.trim(), value.trim()));
    pairs.filter(|(_, value)| !value.is_empty()).map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

#[test]
fn a_program_is_asked_what_rclone_asks_it() {
    const TOKEN: &str =
        r#"{"access_token":"a","token_type":"Bearer","refresh_token":"r","expiry":"2099-01-01T00:00:00Z"}"#;
    let lab = Lab::new(HAUL);
    let drive = OneDrive::start(onedrivesim::Settings::default()).expect("started");
    let of_drive = drive.options(&drive.endpoint());
    let (token, tenant) =
        (of_drive.iter().find(|(name, _)| *name == "token"), of_drive.iter().find(|(name, _)| *name == "tenant_url"));
    let (token, tenant) = (&*token.expect("there").1, format!("tenant_url={}", tenant.expect("there").1));
    let id = ["client_id=app", "client_secret=s"];
    let answers = [("config_is_local", "false"), ("config_token", TOKEN)];
    for (kind, options, answers) in [
        ("drive", &id[..], &answers[..]),
        ("dropbox", &id, &answers),
        ("box", &id, &answers),
        ("box", &[], &answers),
        // Answers that are given ahead are asked for no more.
        ("drive", &["client_id=app", "config_is_local=false", "config_change_team_drive=false"], &answers),
        ("onedrive", &["client_id=app", &tenant], &[answers[0], ("config_token", token)]),
    ] {
        let begin = [&[kind], options].concat();
        let ours = driven(&|args| lab.haul(args), &begin, answers);
        let by_haul = kept(&|args| lab.haul(args));
        assert!(by_haul.contains_key("token"), "{begin:?}: {by_haul:?}");
        if !lab.has_rclone() {
            continue;
        }
        fs::write(lab.config(), "").expect("config");
        let mut theirs = driven(&|args| lab.rclone(args), &begin, answers);
        if options.is_empty() {
            // Without an application of one's own there is no browser to offer: rclone's is for rclone alone.
            theirs.retain(|question| !question.contains("config_is_local"));
        }
        // To rclone any text is a drive, haul takes those that it found.
        let but_drive = |asked: &[String]| {
            let others = asked.iter().filter(|question| !question.contains("config_driveid"));
            (asked.len(), others.cloned().collect::<Vec<_>>())
        };
        assert_eq!(but_drive(&ours), but_drive(&theirs), "{begin:?}");
        assert_eq!(by_haul, kept(&|args| lab.rclone(args)), "{begin:?}");
        fs::remove_file(lab.config()).expect("removed");
    }
    // A remote that is there is logged in to anew, or stays as it is.
    let ran = lab.haul(&["config", "update", "g", "--non-interactive"]).ok();
    let reply: Value = serde_json::from_str(&ran.out).expect("JSON");
    assert_eq!(reply["Option"]["Name"], "config_refresh_token");
}

#[test]
fn a_program_is_asked_for_every_option() {
    let lab = Lab::new(HAUL);
    let mine = [
        ("provider", "Minio"),
        ("access_key_id", "me"),
        ("secret_access_key", "mine"),
        ("endpoint", "http://127.0.0.1:1"),
        ("config_fs_advanced", "true"),
        ("chunk_size", "7Mi"),
    ];
    let run = |args: &[&str]| lab.haul(args);
    let questions = driven(&run, &["s3", "--all"], &mine);
    let names = |shapes: &[String]| {
        shapes
            .iter()
            .map(|shape| shape.split('"').nth(2).expect("a name").trim_end_matches('\\').to_owned())
            .collect::<Vec<_>>()
    };
    let questions = names(&questions);
    assert!(
        questions.iter().any(|name| name == "secret_access_key") && questions.iter().any(|name| name == "chunk_size"),
        "{questions:?}"
    );
    let expected =
        [("access_key_id", "me"), ("chunk_size", "7Mi"), ("endpoint", "http://127.0.0.1:1"), ("provider", "Minio")];
    let text = lab.haul(&["config", "show", "g"]).ok().out;
    assert!(expected.iter().all(|(name, value)| text.contains(&format!("{name} = {value}\n"))), "{text}");
    assert_eq!(text.lines().count(), 7, "what is as it would be anyway isn't written: {text}");
    let without = names(&driven(&run, &["s3", "--all"], &mine[..4]));
    assert!(without.last().is_some_and(|name| name == "config_fs_advanced"), "{without:?}");
    // The log-in comes after them.
    let questions = names(&driven(
        &run,
        &["box", "--all"],
        &[("config_is_local", "false"), ("config_token", "{\"access_token\":\"a\"}")],
    ));
    assert_eq!(questions[questions.len() - 2..], ["config_fs_advanced", "config_token"]);
    assert_eq!(questions[..2], ["client_id", "client_secret"]);
    let ran = lab.haul(&["config", "update", "g", "--continue", "--state", "*all-set,999,false", "--result", "x"]);
    assert_eq!(ran.code(2).err, "haul: \"*all-set,999,false\" is no state of a dialogue\n");
}
