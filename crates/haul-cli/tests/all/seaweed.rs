//! SeaweedFS beyond what all S3 servers are tried with (`servers.rs`): what it does otherwise than AWS, and its WebDAV and SFTP.

use haul_testkit::{
    folder::{self, assert_same, files, noise, write},
    lab::{Lab, until},
    servers::{Make, Server},
};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_000_000_000;

/// A lab with the remotes `s3` (as SeaweedFS), `other`, `dav` and `sftp` on the server. `None` after saying that the test is skipped.
fn lab() -> Option<(Lab, &'static Server)> {
    let server = Server::shared(Make::Seaweed)?;
    let lab = Lab::new(HAUL);
    lab.remote_of("s3", "SeaweedFS", &server.endpoint(), &[]);
    lab.remote_of("other", "Other", &server.endpoint(), &[]);
    let gateways = server.gateways.as_ref().expect("WebDAV and SFTP");
    let config = fs::read_to_string(lab.config()).expect("a config file");
    let more = format!(
        "[dav]\ntype = webdav\nvendor = other\nurl = {}\n\n[sftp]\ntype = sftp\nprotocol = sftp\nssh = {}\n",
        gateways.webdav(),
        gateways.ssh()
    );
    fs::write(lab.config(), format!("{config}\n{more}")).expect("written");
    Some((lab, server))
}

#[track_caller]
fn same(lab: &Lab, back: &str) {
    assert_same(&files(&folder::read(&lab.path("src"))), &files(&folder::read(&lab.path(back))), back);
}

/// Also with another provider configured: the server identifies itself.
#[test]
fn more_than_a_page_is_listed_in_order_as_any_provider() {
    let Some((lab, server)) = lab() else { return };
    let keys = ["a-b", "a.txt", "a/b", "a/c-e", "a/c/d", "a0", "b!/x", "b!y", "b/x"];
    for (n, key) in keys.iter().enumerate() {
        write(&lab.path("src").join(key), &noise(n as u64, 10), TIME);
    }
    let bucket = server.bucket("order");
    for remote in ["s3", "other"] {
        let there = format!("{remote}:{bucket}");
        let few = "--s3-list-chunk=3";
        lab.haul(&["copy", "@src", &there, few]).ok();
        assert_eq!(lab.haul(&["lsf", "-R", "--files-only", &there, few]).ok().out.lines().collect::<Vec<_>>(), keys);
        lab.haul(&["sync", "@src", &there, few, "--error-on-no-transfer"]).code(9);
    }
}

/// It would delete the bucket with all that is in it.
#[test]
fn a_bucket_that_holds_something_is_not_deleted() {
    let Some((lab, server)) = lab() else { return };
    let there = format!("s3:{}", server.bucket("full"));
    lab.haul_reading(&["rcat", &format!("{there}/dear")], b"dear").ok();
    let ran = lab.haul(&["rmdir", &there]).code(1);
    assert!(ran.err.contains("is not empty"), "{}", ran.err);
    assert_eq!(lab.haul(&["cat", &format!("{there}/dear")]).ok().out, "dear");
    lab.haul(&["deletefile", &format!("{there}/dear")]).ok();
    lab.haul(&["rmdir", &there]).ok();
    lab.haul(&["lsf", &there]).code(3);
}

/// It answers 500 to a copy into a bucket that isn't there.
#[test]
fn a_copy_inside_makes_its_bucket() {
    let Some((lab, server)) = lab() else { return };
    let (from, to) = (format!("s3:{}", server.bucket("from")), format!("s3:{}", server.no_bucket("to")));
    lab.haul_reading(&["rcat", &format!("{from}/f")], b"content").ok();
    lab.haul(&["copy", &from, &to]).ok();
    assert_eq!(lab.haul(&["cat", &format!("{to}/f")]).ok().out, "content");
}

/// Up, again, copied, synced, moved and down.
fn there_and_back(remote: &str, copies: bool) {
    let Some((lab, _)) = lab() else { return };
    write(&lab.path("src/big"), &noise(1, 12 * MIB + 345), TIME);
    for name in ["empty", "a b/per%cent", "a b/pl+us", "\u{fc}/nfd u\u{308}", "deep/er/and/deeper/f"] {
        let bytes: &[u8] = if name == "empty" { b"" } else { name.as_bytes() };
        write(&lab.path("src").join(name), bytes, TIME);
    }
    let (there, moved) = (format!("{remote}:there and back"), format!("{remote}:moved"));
    lab.haul(&["copy", "@src", &there]).ok();
    lab.haul(&["check", "@src", &there, "--download"]).ok();
    lab.haul(&["copy", "@src", &there, "--error-on-no-transfer"]).code(9);
    write(&lab.path("src/a b/pl+us"), b"changed, and longer", TIME);
    fs::remove_file(lab.path("src/a b/per%cent")).unwrap();
    lab.haul(&["sync", "@src", &there]).ok();
    if copies {
        lab.haul(&["copy", &there, &format!("{remote}:copied")]).ok();
        lab.haul(&["check", "@src", &format!("{remote}:copied"), "--download"]).ok();
    }
    lab.haul(&["move", &there, &moved]).ok();
    lab.haul(&["check", "@src", &moved, "--download"]).ok();
    lab.haul(&["purge", &moved]).ok();
    assert_eq!(lab.haul(&["lsf", "-R", "--files-only", &there]).out, "");
    lab.haul(&["lsf", &moved]).code(3);
}

#[test]
fn webdav_there_and_back() {
    there_and_back("dav", true);
}

#[test]
fn sftp_there_and_back() {
    there_and_back("sftp", false);
}

/// A file is there only once it is closed, with what came through one opening of it: neither several sessions nor a second run may
/// write to one file.
#[test]
fn a_large_file_by_sftp_is_whole_also_after_a_kill() {
    let Some((lab, _)) = lab() else { return };
    write(&lab.path("src/large"), &noise(2, 40 * MIB + 1), TIME);
    let args =
        ["copy", "@src", "sftp:killed", "--stats=0", "--multi-thread-cutoff=1Mi", "--multi-thread-chunk-size=4Mi"];
    let mut child = lab.start(&[&args[..], &["--bwlimit=20M", "-vv"]].concat());
    let noted = || lab.haul(&["jobs"]).out.contains("MiB");
    until(|| noted() || child.try_wait().unwrap().is_some());
    child.kill().unwrap();
    child.wait().unwrap();
    lab.haul(&args).ok();
    lab.haul(&["copy", "sftp:killed", "@back"]).ok();
    same(&lab, "back");
}
