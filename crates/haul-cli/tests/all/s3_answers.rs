//! What a server's answers mean: no answer is a yes that isn't one, every provider's row works above the upload cut-off, and a
//! key is exactly the one that was typed.

use haul_testkit::{
    amount,
    cloudsim::Cloudsim,
    folder::{noise, write},
    interceptor::Interceptor,
    lab::{Lab, ProgramResult, until},
    minio::Minio,
    proxy::{Fault, Proxy, RuleScope},
    servers::{Make, Server},
};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    process::Stdio,
    sync::mpsc,
    thread,
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;
/// Parts as small as S3 allows.
const PARTS: [&str; 5] = [
    "--s3-upload-cutoff=5Mi",
    "--s3-chunk-size=5Mi",
    "--multi-thread-cutoff=5Mi",
    "--multi-thread-chunk-size=5Mi",
    "--multi-thread-streams=2",
];
/// A failure is not tried again.
const ONCE: [&str; 2] = ["--retries=1", "--low-level-retries=1"];

const ROLE: &str = "AssumeRole";
const GIVEN: &str = "<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>ASIAIOSFODNN7EXAMPLE</AccessKeyId>\
     <SecretAccessKey>SECRET</SecretAccessKey><SessionToken>TOKEN</SessionToken>\
     <Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>";
const REFUSED: &str =
    "<ErrorResponse><Error><Code>AccessDenied</Code><Message>a may not assume reader</Message></Error></ErrorResponse>";

/// Lists the buckets of a remote whose role AWS's own token service (which `role` answers for) gives or refuses. Also what both were asked.
fn list_by_role(role: (u16, &'static str)) -> Option<(ProgramResult, Vec<String>)> {
    let lab = Lab::new(HAUL);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let interceptor = Interceptor::start(&lab, &[("sts.us-east-1.amazonaws.com", address)])?;
    let (told, heard) = mpsc::channel();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut head) = (stream.unwrap(), Vec::new());
            let mut byte = [0];
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).unwrap_or(0) == 1 {
                head.push(byte[0]);
            }
            let head = String::from_utf8_lossy(&head).into_owned();
            let (status, body) = match head.contains(ROLE) {
                true => role,
                false => (200, "<ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>"),
            };
            let _ = told.send(head);
            let head = format!("HTTP/1.1 {status} x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(format!("{head}{body}").as_bytes());
        }
    });
    let section = format!(
        "[r]\ntype = s3\nprovider = AWS\nendpoint = http://{address}\naccess_key_id = AKIAIOSFODNN7EXAMPLE\nsecret_access_key = b\n\
         role_arn = arn:aws:iam::123456789012:role/reader\nrole_external_id = who-else\nrole_session_name = nightly\n"
    );
    fs::write(lab.config(), section).unwrap();
    let ca = interceptor.ca().display().to_string();
    let mut command = lab.haul_command(&["lsd", "r:", "--ca-cert", &ca]);
    let child =
        command.env("HTTPS_PROXY", interceptor.url()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    Some((lab.end(child), heard.try_iter().collect()))
}

/// AWS's own token service is asked as the options say, and what it gives signs the requests that follow.
#[test]
fn a_role_is_assumed_with_an_external_id() {
    let Some((ran, heard)) = list_by_role((200, GIVEN)) else { return };
    ran.ok();
    assert!(heard[0].contains("ExternalId=who-else") && heard[0].contains("RoleSessionName=nightly"), "{}", heard[0]);
    assert!(heard[1].to_lowercase().contains("x-amz-security-token: token"), "{}", heard[1]);
}

#[test]
fn why_a_role_is_refused_is_told() {
    let Some((ran, heard)) = list_by_role((403, REFUSED)) else { return };
    let message = "arn:aws:iam::123456789012:role/reader can't be assumed: AccessDenied: a may not assume reader";
    assert!(ran.code != 0 && ran.err.contains(message), "{}", ran.err);
    assert!(heard.iter().all(|head| head.contains(ROLE)), "{heard:?}");
}

/// The server's rules for names count, not ours: old buckets have names that new ones can't have.
#[test]
fn a_bucket_that_can_not_be_ends_the_job_with_one_line() {
    let Some(server) = Server::shared(Make::Minio) else { return };
    let lab = Lab::new(HAUL);
    (0..20).for_each(|n| write(&lab.path("src").join(format!("f{n}")), b"x", TIME));
    lab.remote("m", &server.endpoint());
    for command in ["copy", "sync"] {
        let ran = lab.haul(&[command, "@src", "m:No_such..Bucket/d"]);
        let errors: Vec<_> = ran.err.lines().filter(|line| line.contains("ERROR")).collect();
        assert!(ran.code != 0 && errors.len() == 1, "{}", ran.err);
        assert!(
            errors[0].contains("no bucket can be called No_such..Bucket (InvalidBucketName): correct its name"),
            "{}",
            ran.err
        );
    }
    // Among others it is the only one that fails.
    write(&lab.path("all/No_such..Bucket/f"), b"x", TIME);
    let good = server.bucket("good");
    write(&lab.path("all").join(&good).join("f"), b"x", TIME);
    let ran = lab.haul(&["copy", "@all", "m:"]);
    assert!(ran.code != 0, "{}", ran.err);
    assert_eq!(lab.haul(&["cat", &format!("m:{good}/f")]).ok().out, "x");
}

/// Every row that says what providers do differently, with the journal on, which knows checksums that not every provider takes.
#[test]
fn every_provider_takes_uploads_in_parts_whole_and_resumed() {
    for make in [Make::Minio, Make::Versity] {
        if let Some(server) = Server::shared(make) {
            takes_uploads_in_parts(server);
        }
    }
}

fn takes_uploads_in_parts(server: &Server) {
    let bytes = noise(7, 21 * MIB + 5);
    let rows = ["AWS", "Minio", "Ceph", "Backblaze", "Cloudflare", "Wasabi", "DigitalOcean", "GCS", "Other"];
    amount::each(rows, |row| {
        let lab = Lab::new(HAUL);
        write(&lab.path("src/big"), &bytes, TIME);
        let on = format!("{row} on {}", server.make.name());
        let proxy = Proxy::start(server.address).unwrap();
        let name = row.to_lowercase();
        lab.remote(&name, &proxy.endpoint());
        let there = format!("{name}:{}", server.bucket(&name));
        let provider = format!("--s3-provider={row}");
        let flags = [&[provider.as_str(), "--s3-region=us-east-1", "--s3-force-path-style"], &PARTS[..]].concat();
        let copy = ["copy", "@src", &there];
        lab.haul(&[&copy[..], &flags, &ONCE].concat()).ok();
        assert_eq!(proxy.counts().get("CompleteMultipartUpload"), Some(&1), "{on}");
        let noted = || lab.journaled() > 1_000;
        let sends = || noted() && proxy.counts().get("UploadPart") > Some(&2);
        let over = || proxy.counts().contains_key("CompleteMultipartUpload");
        // A busy machine may look too late, and what was sent last may complete the upload after the kill: then it begins afresh.
        let resumed = (0..10).find_map(|_| {
            // Missing if the last run was killed before it completed the upload.
            let _ = lab.haul(&["deletefile", &format!("{there}/big")]);
            proxy.reset();
            let mut child = lab.start(&[&copy[..], &flags, &["--bwlimit=6M"]].concat());
            until(|| sends() || over());
            child.kill().unwrap();
            child.wait().unwrap();
            if over() {
                return None;
            }
            proxy.reset();
            lab.haul(&[&copy[..], &flags, &ONCE].concat()).ok();
            let counts = proxy.counts();
            let requests = (counts.get("ListParts").copied(), counts.get("CreateMultipartUpload").copied());
            // Nothing was left to send: the object was whole.
            (requests != (None, None)).then_some(requests)
        });
        assert_eq!(resumed, Some((Some(1), None)), "{on}: not resumed, or no run was killed in time");
        lab.haul(&["copyto", &format!("{there}/big"), "@back"]).ok();
        assert!(fs::read(lab.path("back")).unwrap() == bytes, "{on}");
        assert!(lab.journals().is_empty(), "{on}");
    });
}

/// Keys with empty parts are keys like any others, and never those without.
#[test]
fn a_key_is_exactly_the_one_that_was_typed() {
    let (cloud, lab) = (Cloudsim::with(&[]), Lab::new(HAUL));
    lab.remote("c", &cloud.endpoint());
    let fresh = || {
        for bucket in ["b", "d"] {
            cloud.drop_bucket(bucket);
            cloud.bucket(bucket, None);
        }
        for (key, text) in [("q/a//b", "AA"), ("q/a/b", "B"), ("/x", "lead"), ("x", "plain")] {
            cloud.put("b", key.as_bytes(), text, &[]);
        }
    };
    let there = |bucket: &str, key: &str| cloud.get(bucket, key.as_bytes()).map(|held| held.bytes.to_vec());
    let says = |args: &[&str]| lab.haul(args).ok().out;
    fresh();
    assert_eq!(says(&["cat", "c:b/q/a//b"]), "AA");
    assert_eq!(says(&["cat", "c:b/q/a/b"]), "B");
    assert_eq!(says(&["cat", "c:b//x"]), "lead");
    assert_eq!(says(&["lsf", "--format=ps", "c:b/q/a//b"]), "b;2\n");
    assert!(says(&["lsjson", "--stat", "c:b/q/a//b"]).contains("\"Size\": 2"));
    assert!(says(&["size", "c:b/q/a//b"]).contains("2 B"));
    assert!(
        says(&["hashsum", "sha1", "--download", "c:b/q/a//b"]).starts_with("801c34269f74ed383fc97de33604b8a905adb635")
    );
    assert!(says(&["link", "c:b/q/a//b"]).contains("/b/q/a//b?"));
    assert_eq!(says(&["lsf", "-R", "c:b/q/a/"]), "/\n/b\nb\n");
    write(&lab.path("one"), b"one", TIME);

    lab.haul(&["copyto", "@one", "c:d/p/a//b"]).ok();
    lab.haul_reading(&["rcat", "c:d//r"], b"r").ok();
    lab.haul(&["touch", "c:d/t//t"]).ok();
    lab.haul(&["copyto", "c:b/q/a//b", "c:d/s//b"]).ok();
    lab.haul(&["copyto", "c:b/q/a//b", "@fetched"]).ok();
    lab.haul(&["check", "c:b/q/a//b", "c:d/s//"]).ok();
    let keys: Vec<String> = cloud.keys("d").iter().map(|k| String::from_utf8_lossy(k).into_owned()).collect();
    assert_eq!(keys, ["/r", "p/a//b", "s//b", "t//t"]);
    assert_eq!((there("d", "p/a//b").unwrap(), there("d", "s//b").unwrap()), (b"one".to_vec(), b"AA".to_vec()));
    assert_eq!(fs::read(lab.path("fetched")).unwrap(), b"AA");

    lab.haul(&["moveto", "c:b/q/a//b", "c:d/m"]).ok();
    assert_eq!((there("b", "q/a//b"), there("b", "q/a/b")), (None, Some(b"B".to_vec())));
    fresh();
    lab.haul(&["deletefile", "c:b/q/a//b"]).ok();
    assert_eq!((there("b", "q/a//b"), there("b", "q/a/b")), (None, Some(b"B".to_vec())));
    // A missing key is not mistaken for a similar one.
    let ran = lab.haul(&["copyto", "c:b/q/a//b", "@none"]).code(3);
    assert!(ran.err.contains("directory c:b/q/a//b not found"), "{}", ran.err);
}

#[test]
fn a_folder_of_a_bucket_that_is_not_there_is_said() {
    let (cloud, lab) = (Cloudsim::with(&[]), Lab::new(HAUL));
    lab.remote("c", &cloud.endpoint());
    cloud.put("b", b"d/x", "x", &[]);
    write(&lab.path("dst/kept"), b"kept", TIME);
    for line in [
        "lsf c:b/none",
        "lsf -R c:b/none/",
        "lsd c:b/none",
        "ls c:b/none",
        "tree c:b/none",
        "cat c:b/none",
        "size c:b/none",
        "copy c:b/none @dst",
        "copyto c:b/none @dst",
        "sync c:b/none @dst",
        "move c:b/none @dst",
        "moveto c:b/none c:b/e",
        "check c:b/none @dst",
    ] {
        let ran = lab.haul(&line.split(' ').collect::<Vec<_>>()).code(3);
        assert!(ran.err.contains("directory c:b/none"), "{line}: {}", ran.err);
    }
    assert_eq!(fs::read(lab.path("dst/kept")).unwrap(), b"kept");
    // A bucket that isn't there is no empty one.
    let ran = lab.haul(&["sync", "c:mistyped", "@dst", "--allow-empty-source"]);
    assert!(ran.code != 0 && !haul_testkit::folder::read(&lab.path("dst")).is_empty(), "{}", ran.err);
    lab.haul(&["sync", "c:b/none", "@dst", "--allow-empty-source"]).ok();
    assert!(!lab.path("dst/kept").exists());
    write(&lab.path("dst/kept"), b"kept", TIME);
    // A destination needs no folder, and a bucket may be empty.
    lab.haul(&["copy", "@dst", "c:b/new"]).ok();
    cloud.bucket("empty", None);
    assert_eq!(lab.haul(&["lsf", "c:empty"]).ok().out, "");
}

/// A list of names is what the user relies on: those that name nothing are counted.
#[test]
fn names_of_a_list_that_are_no_files_are_counted() {
    let (cloud, lab) = (Cloudsim::with(&[]), Lab::new(HAUL));
    lab.remote("c", &cloud.endpoint());
    for key in ["a", "d/b"] {
        cloud.put("b", key.as_bytes(), "x", &[]);
    }
    fs::write(lab.path("names"), "a\nd\n/\nd/none\n../a\n").unwrap();
    for (more, to) in [("--no-traverse", "@one"), ("--transfers=4", "@two")] {
        let ran = lab.haul(&["copy", "c:b", to, "--files-from", "@names", more]).ok();
        assert_says(&ran, "4 of 5 names of --files-from are no files of c:b");
    }
    fs::write(lab.path("names"), "a\nd/b\n").unwrap();
    let ran = lab.haul(&["copy", "c:b", "@three", "--files-from", "@names"]).ok();
    assert!(!ran.err.contains("names of"), "{}", ran.err);
}

/// A web page where one logs in answers every PUT with 200: nothing is stored, so nothing may be deleted.
#[test]
fn what_was_not_stored_is_not_moved_away() {
    let Some(minio) = Minio::shared() else { return };
    let (lab, proxy) = (Lab::new(HAUL), Proxy::start(minio.address).unwrap());
    lab.remote("p", &proxy.endpoint());
    let there = format!("p:{}", minio.bucket("portal"));
    for provider in ["--s3-provider=Minio", "--s3-provider=Other"] {
        for fault in [Fault::Page, Fault::ErrorIn200] {
            proxy.reset();
            proxy.rule("PutObject", RuleScope::Always, fault);
            write(&lab.path("src/a"), b"a", TIME);
            write(&lab.path("src/b"), b"b", TIME);
            let ran = lab.haul(&[&["move", "@src", &there, provider], &ONCE[..]].concat());
            assert_ne!(ran.code, 0, "{}", ran.err);
            assert!(ran.err.contains("the server gave no receipt (an ETag) for what was sent"), "{}", ran.err);
            assert!(lab.path("src/a").exists() && lab.path("src/b").exists(), "{provider}: the source is gone");
            assert_ne!(lab.haul_reading(&["rcat", &format!("{there}/r"), provider, ONCE[0], ONCE[1]], b"r").code, 0);
        }
    }
}

/// A server of one bucket that answers each request by a function of its first line.
fn serve(answer: impl Fn(&str) -> String + Send + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    // It ends with the test's process.
    thread::spawn(move || {
        for socket in listener.incoming() {
            // A client that hangs up is none of its concern.
            let _ = socket.and_then(|socket| one(socket, &answer));
        }
    });
    endpoint
}

fn one(mut socket: TcpStream, answer: &impl Fn(&str) -> String) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && socket.read(&mut byte)? > 0 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    socket.write_all(answer(head.lines().next().unwrap_or_default()).as_bytes())
}

fn ok(headers: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}")
}

fn listing(elements: &str) -> String {
    ok("", &format!("<ListBucketResult>{elements}</ListBucketResult>"))
}

fn lab_of(endpoint: &str) -> Lab {
    let lab = Lab::new(HAUL);
    lab.remote("s", endpoint);
    lab
}

#[track_caller]
fn assert_says(ran: &ProgramResult, text: &str) {
    assert!(ran.err.contains(text), "{}\n{}", ran.line, ran.err);
}

/// A listing that doesn't say that it is whole proves nothing: a sync deletes nothing.
#[test]
fn half_a_listing_deletes_nothing() {
    let key = "<Contents><Key>a</Key><Size>1</Size></Contents>";
    let token = "<NextContinuationToken>t</NextContinuationToken>";
    let whole = "<IsTruncated>false</IsTruncated>";
    for (elements, why) in [
        (format!("{key}{token}"), "the listing doesn't say whether it is complete (no IsTruncated)"),
        (format!("{whole}{key}{token}"), "the listing says that it is complete, and where it continues"),
        (format!("{whole}{key}<KeyCount>41</KeyCount>"), "the listing counts 41 entries and holds 1"),
        (
            format!("{key}<IsTruncated>true</IsTruncated>"),
            "the listing is truncated and doesn't say where it continues",
        ),
    ] {
        let lab = lab_of(&serve(move |_| listing(&elements)));
        for n in 0..10 {
            write(&lab.path(&format!("dst/{n}")), b"kept", TIME);
        }
        let ran = lab.haul(&[&["sync", "s:b", "@dst"], &ONCE[..]].concat());
        assert_ne!(ran.code, 0, "{}", ran.err);
        assert_says(&ran, why);
        assert_eq!(fs::read_dir(lab.path("dst")).unwrap().count(), 10, "{why}");
    }
}

/// An encoded delimiter is one all the same.
#[test]
fn folders_are_known_by_decoded_names() {
    let page = "<IsTruncated>false</IsTruncated><EncodingType>url</EncodingType>\
        <CommonPrefixes><Prefix>my_data%2F</Prefix></CommonPrefixes>";
    let lab = lab_of(&serve(move |_| listing(page)));
    assert_eq!(lab.haul(&["lsf", "s:b"]).ok().out, "my_data/\n");
    assert_eq!(lab.haul(&["lsd", "s:b"]).ok().out.lines().count(), 1);
}

/// Bytes that aren't what the store says they are can't be taken back, but they are no success.
#[test]
fn cat_tells_of_wrong_bytes() {
    // The MD5 of "abc".
    let etag = "\"900150983cd24fb0d6963f7d28e17f72\"";
    let lab = lab_of(&serve(move |line| {
        let key = format!("<Contents><Key>k</Key><Size>3</Size><ETag>{etag}</ETag></Contents>");
        if line.contains("list-type") {
            return listing(&format!("<IsTruncated>false</IsTruncated>{key}"));
        }
        let answer = ok(&format!("etag: {etag}\r\n"), "abd");
        if line.starts_with("HEAD") { answer.trim_end_matches("abd").to_owned() } else { answer }
    }));
    let ran = lab.haul(&["cat", "s:b/k"]);
    assert_eq!(ran.out, "abd");
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert_says(&ran, "k: what was read does not have the md5 that the source says it has");
    let part = lab.haul(&["cat", "--count=9", "s:b/k"]);
    assert_ne!(part.code, 0, "all of it is all of it, however it is asked for\n{}", part.err);
}

/// Folders of a bucket are only beginnings of keys: one that isn't there leaves no empty folder here, and isn't to be made.
#[test]
fn a_missing_prefix_leaves_no_folder_and_says_what_helps() {
    let (lab, cloud) = (Lab::new(HAUL), Cloudsim::with(&[("bucket", "b")]));
    lab.remote("c", &cloud.endpoint());
    cloud.put("b", b"there/f", "x", &[]);
    for verb in ["copy", "copyto", "sync", "move"] {
        let ran = lab.haul(&[verb, "c:b/none", "@new/folder"]).code(3);
        assert!(ran.err.contains("directory c:b/none not found: no key begins with it"), "{verb}: {}", ran.err);
        assert!(!lab.path("new").exists(), "{verb}");
    }
    let ran = lab.haul(&["ls", "c:b/none"]).code(3);
    let line = "haul: directory c:b/none not found: no key begins with it \
                (check the spelling: haul lsd shows the directories of the path above it)\n";
    assert_eq!(ran.err, line);
    lab.haul(&["copy", "c:b/there", "@new/folder"]).ok();
    assert!(lab.path("new/folder/f").exists());
}

#[test]
fn a_check_says_once_that_a_store_cannot_be_reached() {
    let lab = Lab::new(HAUL);
    lab.remote("c", "http://127.0.0.1:1");
    write(&lab.path("src/f"), b"x", TIME);
    for flags in [&["check", "@src", "c:b/d"][..], &["check", "@src", "c:b/d", "--one-way"]] {
        let ran = lab.haul(flags).code(1);
        assert_eq!(ran.err.matches("nothing listens at 127.0.0.1:1").count(), 1, "{}", ran.err);
    }
}
