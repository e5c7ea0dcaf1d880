//! S3 servers of several makes, each row of the providers' table on each of them: what one of them takes and another refuses
//! is found here. [`CANNOT`] says what a make can't do, with what it says itself.

use haul_s3::provider::{Checksum, PROVIDERS, Provider};
use haul_testkit::{
    amount,
    folder::{self, assert_same, files, noise, set_mtime, write},
    lab::{Lab, until},
    proxy::Proxy,
    servers::{Make, Server},
};
use std::{fs, path::Path};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;
/// As small as S3 lets parts be, and nothing in memory that is uploaded in parts.
const PARTS: [&str; 3] = ["--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi", "--multi-thread-cutoff=5Mi"];

/// An ability that a make of server is missing.
struct Cannot {
    make: Make,
    deed: Deed,
    /// Its error message.
    says: &'static str,
}

/// What a test asks of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// Writing with a checksum in a header (`x-amz-checksum-…`).
    Checksums,
    /// Keys with this in them.
    Named(&'static str),
    /// Keys with this in them under their own names.
    OwnName(&'static str),
    /// Keys that differ in a double slash alone.
    DoubleSlash,
    /// UploadPartCopy.
    CopyOfParts,
    /// ListParts of an upload of which one part was cut off.
    CutPart,
}

const CANNOT: &[Cannot] = &[
    // It knows the headers of some years ago and refuses others. rclone and boto3 fail alike when they send one.
    Cannot { make: Make::S3Proxy, deed: Deed::Checksums, says: "implies functionality that is not implemented" },
    // They keep keys as paths of files.
    Cannot { make: Make::Minio, deed: Deed::DoubleSlash, says: "" },
    Cannot { make: Make::Versity, deed: Deed::DoubleSlash, says: "" },
    Cannot { make: Make::Rclone, deed: Deed::DoubleSlash, says: "" },
    Cannot { make: Make::S3Proxy, deed: Deed::DoubleSlash, says: "" },
    Cannot { make: Make::Seaweed, deed: Deed::DoubleSlash, says: "" },
    // It takes it for a slash.
    Cannot { make: Make::Seaweed, deed: Deed::OwnName("\\"), says: "" },
    // Its router takes the line for the end of the path.
    Cannot { make: Make::Moto, deed: Deed::Named("\n"), says: "the server answered 404, but not as S3 does" },
    // It takes the request for an UploadPart without content, and answers 200 without a document.
    Cannot { make: Make::Rclone, deed: Deed::CopyOfParts, says: "" },
    // Its own temporary file stays, without the attributes that it looks for: in one of three cases it answers 500 to ListParts and
    // to listings of the bucket from then on. The file begins anew.
    Cannot {
        make: Make::S3Proxy,
        deed: Deed::CutPart,
        says: "Starting over: the server can't tell what it has of an unfinished upload: the server answered 500",
    },
];

fn cannot(make: Make, deed: Deed) -> Option<&'static Cannot> {
    CANNOT.iter().find(|row| row.make == make && row.deed == deed)
}

/// A lab with the remote `r` of a row of the providers' table, on a server of this make, and a bucket there. `None` after saying
/// that the test is skipped.
fn on(make: Make, provider: &str) -> Option<(Lab, &'static Server, String)> {
    let server = Server::shared(make)?;
    let lab = Lab::new(HAUL);
    lab.remote_of("r", provider, &server.endpoint(), &[("force_path_style", "true")]);
    // For rclone, which is to judge: with what it does at any server that it doesn't know.
    lab.remote_of("other", "Other", &server.endpoint(), &[]);
    Some((lab, server, server.bucket("servers")))
}

fn row(provider: &str) -> &'static Provider {
    PROVIDERS.iter().find(|row| row.name == provider).expect("a row")
}

/// The rows of the table that this make is tried with, of those whose uploads it takes: each third one in a daily run, so that each row is
/// on some make, and all of them in a full one.
fn rows(make: Make) -> impl Iterator<Item = &'static str> {
    let sends = |name: &str| row(name).checksum == Checksum::Crc64Nvme;
    let step = amount::rounds(3, 1) as usize;
    let place = Make::ALL.iter().position(|one| *one == make).expect("a make");
    let of_its = PROVIDERS.iter().enumerate().filter(move |(n, _)| (n + place) % step == step - 1);
    let names = of_its.map(|(_, row)| row.name);
    names.filter(move |name| !(sends(name) && cannot(make, Deed::Checksums).is_some()))
}

#[test]
fn each_row_is_tried_on_some_make() {
    for row in PROVIDERS {
        assert!(Make::ALL.into_iter().any(|make| rows(make).any(|name| name == row.name)), "{}", row.name);
    }
}

/// One file in three parts, the last one small, one at the cut-off, small ones in folders, an empty one.
fn fill(src: &Path) {
    write(&src.join("big"), &noise(1, 12 * MIB + 345), TIME);
    write(&src.join("at the cut-off"), &noise(2, 5 * MIB), TIME + 1);
    for n in 0..6u64 {
        write(&src.join(format!("d{}/small {n}+%", n % 2)), &noise(n, 1_000 + n as usize), TIME + 10 + n);
    }
    write(&src.join("empty"), b"", TIME + 2);
}

fn same(lab: &Lab, left: &str, right: &str, what: &str) {
    assert_same(&files(&folder::read(&lab.path(left))), &files(&folder::read(&lab.path(right))), what);
}

/// Up in parts with the journal on, nothing to do the second time, synced after changes, copied and moved inside the server,
/// back again; judged by rclone.
fn there_and_back(make: Make, provider: &str) {
    let Some((lab, _, bucket)) = on(make, provider) else { return };
    let what = format!("{provider} on {}", make.name());
    let run = |args: &[&str]| lab.haul(&[args, &PARTS[..]].concat());
    fill(&lab.path("src"));
    let there = format!("r:{bucket}/up");
    if make == Make::Rclone {
        // A folder that several requests make at once it may know twice, and then it loses uploads in parts that began in the other one.
        run(&["copyto", "@src/empty", &format!("{there}/empty")]).ok();
    }
    let ran = run(&["copy", "@src", &there, "-v", "--stats=0"]).ok();
    assert!(ran.err.contains("CompleteMultipartUpload 1"), "{what}: not in parts\n{}", ran.err);
    run(&["copy", "@src", &there, "--error-on-no-transfer"]).code(9);
    if lab.has_rclone() {
        lab.rclone(&["check", "@src", &format!("other:{bucket}/up"), "--download"]).ok();
    }
    fs::remove_file(lab.path("src/d0/small 0+%")).unwrap();
    write(&lab.path("src/d1/small 1+%"), b"changed", TIME + 100);
    write(&lab.path("src/big"), &noise(9, 11 * MIB), TIME + 100);
    set_mtime(&lab.path("src/d1/small 3+%"), TIME + 200);
    run(&["sync", "@src", &there]).ok();
    run(&["check", "@src", &there]).ok();
    run(&["copy", &there, &format!("r:{bucket}/copied")]).ok();
    run(&["move", &format!("r:{bucket}/copied"), &format!("r:{bucket}/moved")]).ok();
    assert_eq!(
        lab.haul(&["lsf", "-R", "--files-only", &format!("r:{bucket}"), "--exclude=/up/**", "--exclude=/moved/**"])
            .ok()
            .out,
        ""
    );
    run(&["copy", &format!("r:{bucket}/moved"), "@back"]).ok();
    same(&lab, "src", "back", &what);
    run(&["purge", &there]).ok();
    run(&["delete", &format!("r:{bucket}/moved")]).ok();
    assert_eq!(lab.haul(&["lsf", "-R", "--files-only", &format!("r:{bucket}")]).ok().out, "", "{what}");
}

/// Killed in the middle of an upload in parts, the next run keeps the parts that had arrived.
fn killed_and_gone_on(make: Make, provider: &str) {
    let Some((lab, server, bucket)) = on(make, provider) else { return };
    let what = format!("{provider} on {}", make.name());
    let proxy = Proxy::start(server.address).unwrap();
    lab.remote_of("p", provider, &proxy.endpoint(), &[("force_path_style", "true")]);
    let (there, parts) = (format!("p:{bucket}"), 6);
    write(&lab.path("src/big"), &noise(3, (parts - 1) * 5 * MIB + 1), TIME);
    let args = ["copy", "@src", &there, "--s3-upload-concurrency=1", "--stats=0"];
    let seen = |operation: &str| proxy.counts().get(operation).copied().unwrap_or(0);
    let mut child = lab.start(&[&args[..], &PARTS[..], &["--bwlimit=4M"]].concat());
    // An answer that came is in the journal soon after, not with it.
    let mut noted = lab.journal_grows(1);
    until(|| seen("UploadPart") >= 1 && noted() || child.try_wait().unwrap().is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(seen("CompleteMultipartUpload"), 0, "{what}: it was over before it was killed");
    proxy.reset();
    let ran = lab.haul(&[&args[..], &PARTS[..]].concat()).ok();
    let anew = cannot(make, Deed::CutPart).is_some_and(|row| ran.err.contains(row.says));
    assert_eq!(
        (seen("CreateMultipartUpload"), seen("CompleteMultipartUpload")),
        (u64::from(anew), 1),
        "{what}: {:?}",
        proxy.counts()
    );
    let (lookups, sent) = (seen("ListParts"), seen("UploadPart"));
    assert!(lookups >= 1 && (anew || sent < parts as u64), "{what}: {:?}", proxy.counts());
    // S3Proxy can't list a bucket either where a part was cut off.
    lab.haul(&["copyto", &format!("r:{bucket}/big"), "@back/big"]).ok();
    same(&lab, "src", "back", &what);
}

/// Copies inside the server, of one piece and in parts.
fn copied_inside(make: Make, provider: &str) {
    let Some((lab, server, bucket)) = on(make, provider) else { return };
    let what = format!("{provider} on {}", make.name());
    let proxy = Proxy::start(server.address).unwrap();
    lab.remote_of("p", provider, &proxy.endpoint(), &[("force_path_style", "true")]);
    fill(&lab.path("src"));
    lab.haul(&[&["copy", "@src", &format!("r:{bucket}/up")][..], &PARTS[..]].concat()).ok();
    let (from, to) = (format!("p:{bucket}/up"), format!("p:{bucket}/copied"));
    // Objects that the server can't copy in parts go through this machine.
    lab.haul(&[&["copy", &from, &to, "--s3-copy-cutoff=5Mi"][..], &PARTS[..]].concat()).ok();
    let counts = proxy.counts();
    if cannot(make, Deed::CopyOfParts).is_none() && row(provider).part_copy {
        assert_eq!(counts.get("UploadPartCopy"), Some(&3), "{what}: {counts:?}");
        assert!(!counts.contains_key("GetObject"), "{what}: {counts:?}");
    }
    lab.haul(&["copy", &to, "@back"]).ok();
    same(&lab, "src", "back", &what);
}

/// True for a server whose answer to a part doesn't confirm a checksum in a trailer.
fn whole_only(make: Make, provider: &str) -> bool {
    matches!(make, Make::Moto | Make::Rclone) && row(provider).checksum == Checksum::Crc64Nvme
}

/// From a server of another make, in parts that are sent on as they come.
fn from_another(make: Make, provider: &str) {
    let other = if make == Make::Minio { Make::Versity } else { Make::Minio };
    let (Some((lab, server, bucket)), Some(source)) = (on(make, provider), Server::shared(other)) else { return };
    let what = format!("{} to {provider} on {}", other.name(), make.name());
    let proxy = Proxy::start(server.address).unwrap();
    lab.remote_of("p", provider, &proxy.endpoint(), &[("force_path_style", "true")]);
    lab.remote_of("s", "Minio", &source.endpoint(), &[("force_path_style", "true")]);
    fill(&lab.path("src"));
    let from = format!("s:{}", source.bucket("source"));
    lab.haul(&[&["copy", "@src", &from][..], &PARTS[..]].concat()).ok();
    lab.haul(&[&["copy", &from, &format!("p:{bucket}")][..], &PARTS[..]].concat()).ok();
    // Sent again from memory where no answer confirms what was sent on: those that were under way when the first answer came.
    let sent = if whole_only(make, provider) { 5..=8 } else { 4..=4 };
    assert!(sent.contains(&proxy.counts()["UploadPart"]), "{what}: {:?}", proxy.counts());
    lab.haul(&["check", &from, &format!("r:{bucket}")]).ok();
    lab.haul(&["copy", &format!("r:{bucket}"), "@back"]).ok();
    same(&lab, "src", "back", &what);
    if lab.has_rclone() {
        lab.rclone(&["check", "@src", &format!("other:{bucket}"), "--download"]).ok();
    }
}

/// Names as people and programs make them.
const NAMES: &[&str] = &[
    "with space",
    " leading",
    "trailing ",
    "per%cent",
    "enc%2Foded",
    "pl+us",
    "ünïcode",
    "nfd u\u{308}",
    "emoji \u{1f600}",
    "q?uery",
    "ha#sh",
    "am&p",
    "st*r",
    "back\\slash",
    "quo\"te",
    "apo'strophe",
    "col:on",
    "<lt>",
    "semi;colon",
    "eq=ual",
    "com,ma",
    "at@",
    "dollar$",
    "tilde~",
    "(paren)",
    "dot.",
    ".hidden",
    "new\nline",
    "tab\t",
    "del\x7f",
];

fn odd_names(make: Make) {
    let Some((lab, _, bucket)) = on(make, "Other") else { return };
    let other = |name: &str| {
        CANNOT.iter().any(|row| row.make == make && matches!(row.deed, Deed::OwnName(part) if name.contains(part)))
    };
    for (n, name) in NAMES.iter().enumerate().filter(|(_, name)| !other(name)) {
        let reported =
            CANNOT.iter().find(|row| row.make == make && matches!(row.deed, Deed::Named(part) if name.contains(part)));
        let Some(reported) = reported else {
            write(&lab.path("src").join(format!("{name}/{name}")), name.as_bytes(), TIME + n as u64);
            continue;
        };
        write(&lab.path("refused").join(name), name.as_bytes(), TIME);
        let tries = ["--retries=1", "--low-level-retries=1"];
        let ran = lab.haul(
            &[&["copyto", &format!("@refused/{name}"), &format!("r:{bucket}/refused/{n}/{name}")][..], &tries].concat(),
        );
        assert!(ran.code != 0 && ran.err.contains(reported.says), "{} takes {name:?}: {}", make.name(), ran.err);
    }
    let there = format!("r:{bucket}/names");
    lab.haul(&["copy", "@src", &there]).ok();
    lab.haul(&["copy", "@src", &there, "--error-on-no-transfer"]).code(9);
    lab.haul(&["copy", &there, &format!("r:{bucket}/copied")]).ok();
    lab.haul(&["copy", &format!("r:{bucket}/copied"), "@back"]).ok();
    same(&lab, "src", "back", make.name());
    for name in ["with space", "per%cent", "pl+us", "trailing ", "enc%2Foded"] {
        assert_eq!(lab.haul(&["cat", &format!("{there}/{name}/{name}")]).ok().out, name, "{}", make.name());
    }
    if lab.has_rclone() {
        lab.rclone(&["check", "@src", &format!("other:{bucket}/names"), "--download"]).ok();
    }
}

/// The exact key, also where two differ in a double slash alone.
#[test]
fn a_double_slash_is_part_of_a_key() {
    for make in Make::ALL.into_iter().filter(|make| cannot(*make, Deed::DoubleSlash).is_none()) {
        let Some((lab, _, bucket)) = on(make, "Other") else { continue };
        let at = |name: &str| format!("r:{bucket}/q/{name}");
        for (name, text) in [("a/b", "one slash"), ("a//b", "two"), ("c//d", "two alone")] {
            lab.haul_reading(&["rcat", &at(name)], text.as_bytes()).ok();
        }
        let cat = |name: &str| lab.haul(&["cat", &at(name)]).ok().out;
        assert_eq!([cat("a/b"), cat("a//b"), cat("c//d")], ["one slash", "two", "two alone"], "{}", make.name());
        lab.haul(&["moveto", &at("a//b"), &at("moved")]).ok();
        lab.haul(&["copyto", &at("c//d"), "@one"]).ok();
        assert_eq!(fs::read_to_string(lab.path("one")).unwrap(), "two alone");
        lab.haul(&["copyto", "@one", &at("e//f")]).ok();
        assert_eq!([cat("a/b"), cat("moved"), cat("e//f")], ["one slash", "two", "two alone"], "{}", make.name());
        lab.haul(&["deletefile", &at("e//f")]).ok();
        let mut keys = lab.haul(&["lsf", "-R", "--files-only", &format!("r:{bucket}/q")]).ok().out;
        keys.retain(|c| c != '\r');
        assert_eq!(keys.lines().collect::<Vec<_>>(), ["a/b", "c//d", "moved"], "{}", make.name());
    }
}

/// More keys than a page has, in both versions of the request and folder by folder.
fn pages(make: Make) {
    let Some((lab, _, bucket)) = on(make, "Other") else { return };
    for n in 0..23u64 {
        write(&lab.path(&format!("src/d{}/file {n:02}+", n / 4)), &noise(n, 10), TIME + n);
    }
    let there = format!("r:{bucket}");
    lab.haul(&["copy", "@src", &there]).ok();
    let whole = lab.haul(&["lsf", "-R", "--files-only", "@src"]).ok().out;
    for version in ["--s3-list-version=1", "--s3-list-version=2"] {
        let list = |args: &[&str]| {
            let mut lines: Vec<_> = lab
                .haul(&[args, &["--s3-list-chunk=5", version]].concat())
                .ok()
                .out
                .lines()
                .map(str::to_owned)
                .collect();
            lines.sort_unstable();
            lines
        };
        let mut expected: Vec<_> = whole.lines().collect();
        expected.sort_unstable();
        assert_eq!(list(&["lsf", "-R", "--files-only", &there]), expected, "{} {version}", make.name());
        assert_eq!(list(&["lsf", &there]), ["d0/", "d1/", "d2/", "d3/", "d4/", "d5/"], "{} {version}", make.name());
        let sync = lab.haul(&["sync", "@src", &there, "--s3-list-chunk=5", version, "--error-on-no-transfer"]);
        sync.code(9);
    }
}

/// What rclone wrote is read with its times and sums, and nothing is written again.
fn written_by_rclone(make: Make) {
    let Some((lab, _, bucket)) = on(make, "Other") else { return };
    if !lab.has_rclone() {
        return;
    }
    fill(&lab.path("src"));
    lab.rclone(&["copy", "@src", &format!("other:{bucket}"), "--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi"]).ok();
    // Rows that ask for stored checksums too: reading goes on where a server knows none.
    for provider in ["Other", "Minio", "AWS"] {
        let remote = format!("as-{}", provider.to_lowercase());
        let server = Server::shared(make).expect("it runs");
        lab.remote_of(&remote, provider, &server.endpoint(), &[("force_path_style", "true")]);
        let there = format!("{remote}:{bucket}");
        lab.haul(&["sync", "@src", &there, "--error-on-no-transfer"]).code(9);
        lab.haul(&["check", "@src", &there]).ok();
        let sums = lab.haul(&["md5sum", &there]).ok();
        assert_eq!(sums.lines(), lab.haul(&["md5sum", "@src"]).ok().lines(), "{provider} on {}", make.name());
        lab.haul(&["copy", &there, &format!("@{provider}")]).ok();
        same(&lab, "src", provider, &format!("written by rclone, read as {provider} on {}", make.name()));
    }
}

/// Uploads with checksums in headers fail at once where a make knows none, and say why.
#[test]
fn a_make_without_checksums_says_so() {
    for row in CANNOT.iter().filter(|row| row.deed == Deed::Checksums) {
        let Some((lab, _, bucket)) = on(row.make, "Minio") else { continue };
        write(&lab.path("file"), b"x", TIME);
        let ran = lab.haul(&["copyto", "@file", &format!("r:{bucket}/file"), "--retries=1"]);
        assert!(ran.code == 0 || ran.err.contains(row.says), "{}", ran.err);
    }
}

macro_rules! makes {
    ($($module:ident: $make:ident;)+) => {$(
        mod $module {
            use super::*;

            #[test]
            fn every_row_goes_there_and_back() {
                rows(Make::$make).for_each(|provider| there_and_back(Make::$make, provider));
            }

            #[test]
            fn a_killed_upload_goes_on() {
                rows(Make::$make).take(1).for_each(|provider| killed_and_gone_on(Make::$make, provider));
            }

            #[test]
            fn copies_stay_inside() {
                rows(Make::$make).for_each(|provider| copied_inside(Make::$make, provider));
            }

            #[test]
            fn parts_come_from_another_server() {
                rows(Make::$make).for_each(|provider| from_another(Make::$make, provider));
            }

            #[test]
            fn odd_names_come_back() {
                odd_names(Make::$make);
            }

            #[test]
            fn pages_join() {
                pages(Make::$make);
            }

            #[test]
            fn rclones_files_are_read() {
                written_by_rclone(Make::$make);
            }
        }
    )+};
}

makes! {
    minio: Minio;
    versitygw: Versity;
    rclone_serve: Rclone;
    moto: Moto;
    s3proxy: S3Proxy;
    seaweedfs: Seaweed;
}
