//! The real binary and Azurite: copied, compared, synced and killed, beside rclone.

use bytes::Bytes;
use haul_testkit::{
    folder::{self, noise, write},
    front::Front,
    lab::{Lab, until},
    newer_azure::NewerAzure,
    serve::Server,
    tls::Certificate,
    web_servers::{Make, WebServer},
};
use http_body_util::{BodyExt as _, Full};
use hyper::Response;
use std::{
    env, fs,
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;

fn lab(server: &str) -> Lab {
    let lab = Lab::new(HAUL);
    let section =
        format!("[az]\ntype = azureblob\nuse_emulator = true\nendpoint = {server}/devstoreaccount1\nchunk_size = 1M\n");
    fs::write(lab.config(), section).expect("config");
    lab
}

#[test]
fn files_get_another_access_tier() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let lab = lab(&server.url());
    ["a.txt", "d/b.bin"].iter().for_each(|name| write(&lab.path("src").join(name), name.as_bytes(), TIME));
    lab.haul(&["copy", "@src", "az:tiers"]).ok();
    lab.haul(&["settier", "Cool", "az:tiers", "--include", "*.txt"]).ok();
    let tiers = |ran: haul_testkit::lab::ProgramResult| {
        ran.ok().lines().iter().map(|line| line.to_string()).collect::<Vec<_>>()
    };
    let list = ["lsf", "-R", "--files-only", "--format", "pT", "az:tiers"];
    assert_eq!(tiers(lab.haul(&list)), ["a.txt;Cool", "d/b.bin;Hot"]);
    if lab.has_rclone() {
        assert_eq!(tiers(lab.rclone(&list)), tiers(lab.haul(&list)));
    }
    lab.haul(&["check", "--download", "@src", "az:tiers"]).ok();
    assert_ne!(lab.haul(&["settier", "Silly", "az:tiers/a.txt"]).code, 0);
}

/// Directories that are blobs without content, marked `hdi_isfolder`: on an account that has such of its own, and on one that has them only
/// because some program wrote them. They are directories, never empty files, and go with what was in them.
#[test]
fn blobs_that_stand_for_directories_are_directories() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let azure = NewerAzure::hierarchical(server.address);
    let lab = lab(&server.url());
    let own = format!("[own]\ntype = azureblob\nuse_emulator = true\nendpoint = {}\n", azure.account());
    fs::write(lab.config(), fs::read_to_string(lab.config()).expect("config") + &own).expect("config");
    let src = ["a-b", "a/b/c", "a/b/d/e", "a/x", "m/n/f", "z"];
    src.iter().for_each(|name| write(&lab.path("src").join(name), name.as_bytes(), TIME));
    for (remote, container) in [("own", "one"), ("az", "two")] {
        let at = |path: &str| format!("{remote}:{container}{path}");
        lab.haul(&["copy", "@src", &format!("own:{container}")]).ok();
        let list = |path: &str| lab.haul(&["lsf", "-R", &at(path)]).ok().out;
        assert_eq!(list(""), "a-b\na/\na/b/\na/b/c\na/b/d/\na/b/d/e\na/x\nm/\nm/n/\nm/n/f\nz\n", "{remote}");
        if lab.has_rclone() {
            let files = ["lsf", "-R", "--files-only", &at("")];
            assert_eq!(lab.rclone(&files).ok().lines(), lab.haul(&files).ok().lines());
        }
        assert_eq!(lab.haul(&["lsf", "--files-only", &at("")]).ok().out, "a-b\nz\n", "{remote}");
        let same = lab.haul(&["sync", "-v", "@src", &at("")]).ok();
        assert!(!same.err.contains("Copied") && !same.err.contains("Deleted"), "{}", same.err);
        // Nothing goes as long as something is in it.
        let full = lab.haul(&["rmdir", &at("/a")]);
        assert!(full.code != 0, "{remote}: {}", full.line);
        assert!(list("/a").contains("b/d/e"));
        fs::create_dir_all(lab.path("less")).expect("made");
        ["a-b", "a/x", "m/n/f", "z"].iter().for_each(|name| write(&lab.path("less").join(name), name.as_bytes(), TIME));
        lab.haul(&["sync", "@less", &at("")]).ok();
        assert_eq!(list("/a"), "b/\nb/d/\nx\n", "{remote}: empty ones stay, as with rclone");
        lab.haul(&["rmdirs", "--leave-root", &at("")]).ok();
        assert_eq!(list(""), "a-b\na/\na/x\nm/\nm/n/\nm/n/f\nz\n", "{remote}");
        lab.haul(&["moveto", &at("/a/x"), &at("/a/y")]).ok();
        lab.haul(&["move", &at("/m"), &at("/moved")]).ok();
        lab.haul(&["rmdirs", &at("/m")]).ok();
        assert_eq!(list(""), "a-b\na/\na/y\nmoved/\nmoved/n/\nmoved/n/f\nz\n", "{remote}");
        lab.haul(&["deletefile", &at("/a/y")]).ok();
        assert_eq!(list("/a"), "", "{remote}: it is there, and empty");
        lab.haul(&["rmdir", &at("/a")]).ok();
        lab.haul(&["purge", &at("/moved")]).ok();
        // By Azurite itself, which shows each blob.
        let left = lab.haul(&["lsf", "-R", &format!("az:{container}")]).ok().out;
        assert_eq!(left, "a-b\nz\n", "{remote}");
        lab.haul(&["purge", &at("")]).ok();
        assert!(!lab.haul(&["lsf", "az:"]).ok().out.contains(container), "{remote}");
    }
}

#[test]
fn copied_compared_synced_and_moved() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let lab = lab(&server.url());
    for n in 0..40u64 {
        let size = if n % 20 == 0 { 3 * MIB + n as usize } else { (n * n * 7) as usize };
        write(&lab.path(&format!("src/{}/f {n}é", n % 3)), &noise(n, size), TIME + n);
    }
    lab.haul(&["copy", "@src", "az:box/d"]).ok();
    lab.haul(&["check", "--download", "@src", "az:box/d"]).ok();
    let again = lab.haul(&["copy", "@src", "az:box/d", "-v"]).ok();
    assert!(!again.err.contains("Copied"), "nothing moves again: {}", again.err);
    if lab.has_rclone() {
        lab.rclone(&["check", "--download", "@src", "az:box/d"]).ok();
        let times = |ran: haul_testkit::lab::ProgramResult| ran.ok().out;
        let format = ["lsf", "-R", "--files-only", "--format", "pst", "--time-format", "RFC3339Nano", "az:box/d"];
        assert_eq!(times(lab.rclone(&format)), times(lab.haul(&format)));
        // What rclone brought counts as the same.
        lab.rclone(&["copy", "@src", "az:box/r"]).ok();
        let same = lab.haul(&["sync", "@src", "az:box/r", "-v"]).ok();
        assert!(!same.err.contains("Copied"), "{}", same.err);
    }
    // Inside the account nothing passes through here.
    let inside = lab.haul(&["copy", "az:box/d", "az:other/e", "-v"]).ok();
    assert!(
        inside.err.contains("GetBlobProperties 40)") || inside.err.contains("GetBlobProperties 40,"),
        "{}",
        inside.err
    );
    assert!(inside.err.contains("CopyBlob") && !inside.err.contains("GetBlob "), "{}", inside.err);
    fs::remove_dir_all(lab.path("src/1")).expect("removed");
    write(&lab.path("src/0/f 0é"), b"changed", TIME + 100);
    lab.haul(&["sync", "@src", "az:other/e"]).ok();
    lab.haul(&["copy", "az:other/e", "@back"]).ok();
    let read = |name| folder::files(&folder::read(&lab.path(name)));
    folder::assert_same(&read("src"), &read("back"), "");
    lab.haul(&["move", "az:other/e", "az:box/moved"]).ok();
    assert_eq!(lab.haul(&["lsf", "-R", "az:other"]).ok().out, "");
    lab.haul(&["check", "@src", "az:box/moved"]).ok();
    lab.haul(&["purge", "az:other"]).ok();
    assert_eq!(lab.haul(&["lsd", "az:"]).ok().out.lines().count(), 1);
    let refused = lab.haul(&["copyto", "@src/0/f 0é", "az:box/ends."]).code(1);
    assert!(
        refused.err.contains("Azure can't hold this name: a part of it ends in a dot; rename it"),
        "{}",
        refused.err
    );
}

#[test]
fn a_killed_upload_goes_on_with_the_blocks_that_arrived() {
    let Some(server) = WebServer::start(Make::Azurite) else { return };
    let front = Front::start(server.address, |_, uri| uri.query().is_some_and(|query| query.contains("comp=block&")));
    let lab = lab(&front.endpoint());
    // What the journal has of the last answers when a run is killed is a matter of chance.
    let goes_on = (0..5).any(|round| {
        let (src, dst) = (format!("@src/{round}"), format!("az:box/{round}"));
        write(&lab.path(&format!("src/{round}/big")), &noise(round, 7 * MIB + 5), TIME);
        let before = front.answered();
        front.hold_after(3);
        let mut child = lab.start(&["copy", &src, &dst]);
        assert!(until(|| front.answered() == before + 3));
        lab.journals_rest();
        child.kill().expect("killed");
        child.wait().expect("ended");
        front.go_on();
        assert_eq!(
            lab.haul(&["lsf", "-R", "az:box"]).ok().out.matches("big").count(),
            round as usize,
            "it doesn't show"
        );
        let ran = lab.haul(&["copy", &src, &dst, "-v"]).ok();
        lab.haul(&["check", "--download", &src, &dst]).ok();
        assert_eq!(lab.journals().len(), 0, "a journal is left");
        // A block of the run that was killed may have been on its way and count here; of the 8, the first of each run goes twice: it
        // finds out that Azurite looks at no CRC-64.
        let sent = front.answered() - before - 3;
        assert!(sent >= 5, "{sent}: {}", ran.err);
        sent < 9 && ran.err.contains("GetBlockList 1")
    });
    assert!(goes_on, "no block was kept");
}

/// A token as Entra ID writes them. Azurite looks at all of it but the signature.
fn token() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs();
    let claims = format!(
        "{{\"aud\":\"https://storage.azure.com\",\"iss\":\"https://sts.windows.net/t/\",\"iat\":{now},\"nbf\":{now},\"exp\":{}}}",
        now + 3600
    );
    let encoded = |text: &str| {
        use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD as B64};
        B64.encode(text)
    };
    format!("{}.{}.{}", encoded("{\"alg\":\"RS256\",\"typ\":\"JWT\"}"), encoded(&claims), encoded("signature"))
}

#[test]
fn service_principals_and_machines_get_tokens() {
    let lab = Lab::new(HAUL);
    let dates = ("20200101000000Z", "20600101000000Z");
    let Some(certificate) = Certificate::make(&lab, "azurite", "DNS:localhost,IP:127.0.0.1", dates, false) else {
        return;
    };
    let Some(server) = WebServer::azurite_for_tokens(&certificate) else { return };
    let requests: Arc<Mutex<Vec<String>>> = Arc::default();
    let own = requests.clone();
    let authority = Server::start(move |request, _| {
        let own = own.clone();
        async move {
            let machine = request.headers().contains_key("metadata");
            let path = request.uri().to_string();
            let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            own.lock().expect("no panic").push(format!("{path} {body}"));
            let (status, text) = match machine || body.contains("client_secret=right") {
                true => (200, format!("{{\"access_token\":\"{}\",\"expires_in\":\"3600\"}}", token())),
                false => {
                    let message = "{\"error\":\"invalid_client\",\"error_description\":\"AADSTS7000215: Invalid client secret.\"}";
                    (401, message.to_owned())
                }
            };
            let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|e| match e {}).boxed_unsync());
            *response.status_mut() = status.try_into().expect("a status");
            Ok(response)
        }
    })
    .expect("started");
    let section = format!(
        "[az]\ntype = azureblob\naccount = devstoreaccount1\nendpoint = https://{}/devstoreaccount1\n",
        server.address
    );
    fs::write(lab.config(), section).expect("config");
    let ca = format!("--ca-cert={}", certificate.cert.display());
    let run = |args: &[&str]| {
        let mut command = lab.haul_command(&[args, &[&ca]].concat());
        command.env("AZURE_AUTHORITY_HOST", authority.endpoint());
        command.env("AZURE_POD_IDENTITY_AUTHORITY_HOST", authority.endpoint());
        lab.end(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started"))
    };
    let principal = ["--azureblob-tenant=t", "--azureblob-client-id=c"];
    let with = |secret: &str, args: &[&str]| {
        run(&[args, &principal, &[&format!("--azureblob-client-secret={secret}")]].concat())
    };
    for n in 0..20u64 {
        write(&lab.path(&format!("src/{n}")), &noise(n, 100), TIME);
    }
    with("right", &["copy", "@src", "az:box/d"]).ok();
    // One token was enough for all requests.
    let form = "grant_type=client_credentials&client_id=c&client_secret=right&scope=https%3A%2F%2Fstorage%2Eazure%2Ecom%2F%2Edefault";
    assert_eq!(*requests.lock().expect("no panic"), [format!("/t/oauth2/v2.0/token {form}")]);
    let listed = run(&["lsf", "az:box/d", "--azureblob-use-msi", "--azureblob-msi-client-id=m"]).ok();
    assert_eq!(listed.out.lines().count(), 20);
    let question = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fstorage%2Eazure%2Ecom&client_id=m ";
    assert_eq!(requests.lock().expect("no panic").last().map(String::as_str), Some(question));
    assert_eq!(run(&["lsf", "az:box/d", "--azureblob-env-auth"]).ok().out.lines().count(), 20);
    // What az is asked for and answers is as its documentation has it.
    let az = |script: &str, args: &[&str]| {
        let program = lab.path("bin/az");
        write(&program, format!("#!/bin/sh\n{script}").as_bytes(), TIME);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("made executable");
        let mut command = lab.haul_command(&[args, &[&ca, "--azureblob-use-az"]].concat());
        let path = env::join_paths([lab.path("bin"), "/usr/bin".into(), "/bin".into()]).expect("a path");
        lab.end(command.env("PATH", path).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started"))
    };
    let until = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock").as_secs() + 3600;
    let answer = format!(
        "{{\"accessToken\": \"{}\", \"expiresOn\": \"2030-01-01 00:00:00.000000\", \"expires_on\": {until}, \"tokenType\": \"Bearer\"}}",
        token()
    );
    let script = format!("echo \"$*\" >> {}\necho '{answer}'", lab.path("asked").display());
    az(&script, &["copy", "@src", "az:box/e"]).ok();
    let asked_az = fs::read_to_string(lab.path("asked")).expect("asked");
    assert_eq!(asked_az, "account get-access-token --output json --resource https://storage.azure.com\n");
    let out = az("echo \"ERROR: Please run 'az login' to setup account.\" >&2; exit 1", &["lsf", "az:box/e"]);
    let expected = "no token was given: log in with az login (az: Please run 'az login' to setup account.)";
    assert!(out.code != 0 && out.err.contains(expected), "{}", out.err);
    let refused = with("wrong", &["lsf", "az:box/d"]);
    let expected =
        "no token was given: check tenant, client_id and client_secret (401: AADSTS7000215: Invalid client secret.)";
    assert!(refused.code != 0 && refused.err.contains(expected), "{}", refused.err);
}
