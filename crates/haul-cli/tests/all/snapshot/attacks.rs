//! A remote that means harm or is broken: nothing is written outside of the folder, and nothing that isn't what the version says.

use super::site::{Site, facts, names};
use haul_core::{Algo, Mtime, hash};
use haul_snapshot::record::{Record, Totals};
use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
};

/// A version whose folder's list is this text, as somebody would make it who can write to the remote.
fn forge(site: &Site, tree: &str, totals: Totals) -> String {
    let md5 =
        |bytes: &[u8]| <[u8; 16]>::try_from(hash::hash_bytes(&[Algo::Md5], bytes).get(Algo::Md5).unwrap()).unwrap();
    let put = |bytes: &[u8], end: &str| {
        let hex = hash::to_hex(&md5(bytes));
        site.write(&format!("store/files/md5/{}/{}{end}", &hex[..2], &hex[2..]), bytes);
    };
    put(tree.as_bytes(), "");
    put(b"evil", "");
    put(b"[]", ".dir");
    let (size, time) = (tree.len() as u64, Mtime(1_700_000_000_000_000_000));
    let record = Record {
        name: "evil".into(),
        time,
        tree: md5(tree.as_bytes()),
        tree_size: size,
        dir: md5(b"[]"),
        totals,
        filtered: false,
    };
    let (bytes, version) = record.write().unwrap();
    site.write(&format!("store/snapshots/evil/{version}"), &bytes);
    format!("evil@{version}")
}

const EVIL: &str = r#""size":4,"md5":"4034a346ccee15292d823416f7510a2f""#;

#[test]
fn no_list_leads_out_of_the_folder() {
    let file = |path: &str| format!("{{\"type\":\"file\",\"path\":\"{path}\",{EVIL}}}\n");
    let dir = |path: &str| format!("{{\"type\":\"dir\",\"path\":\"{path}\"}}\n");
    let link = |path: &str, to: &str| format!("{{\"type\":\"link\",\"path\":\"{path}\",\"target\":\"{to}\"}}\n");
    for body in [
        file("../outside/x"),
        file("/tmp/haul-outside"),
        file("a/../../outside/x"),
        format!("{{\"type\":\"file\",\"path_hex\":\"2e2e2f6f7574736964652f78\",{EVIL}}}\n"),
        link("way", "../outside") + &file("way/x"),
        link("way", "../outside") + &dir("way/x"),
        file("a") + &file("a/b"),
        dir("way") + &file("way/x") + &link("way", "../outside"),
        dir("way") + &link("way", "../outside") + &file("way/x"),
    ] {
        let site = Site::new();
        fs::create_dir(site.path("outside")).unwrap();
        forge(&site, &format!("{{\"haul_tree\":1}}\n{body}"), Totals { files: 1, bytes: 4, dirs: 0, links: 1 });
        let ran = site.haul(&["snapshot", "pull", "@store", "evil", "@out"]).code(1);
        assert!(ran.err.contains("of its list") || ran.err.contains("\": "), "{body}: {}", ran.err);
        assert!(names(&site.path("outside")).is_empty() && !site.path("out").exists(), "{body}");
    }
}

#[test]
fn a_link_that_lies_in_the_folder_is_not_gone_through() {
    let site = Site::new();
    site.write("src/way/x", b"content");
    site.write("outside/keep", b"mine");
    site.push();
    fs::create_dir(site.path("out")).unwrap();
    for target in [site.path("outside"), "../outside".into()] {
        let _ = fs::remove_dir_all(site.path("out/way"));
        symlink(target, site.path("out/way")).unwrap();
        site.haul(&["snapshot", "pull", "--delete", "@store", "src", "@out"]).ok();
        assert!(fs::symlink_metadata(site.path("out/way")).unwrap().is_dir(), "it makes way");
        assert_eq!(names(&site.path("outside")).into_iter().collect::<Vec<_>>(), ["keep"]);
    }
}

#[test]
fn set_id_bits_of_a_list_are_not_taken_unasked() {
    let site = Site::new();
    let line = format!("{{\"type\":\"file\",\"path\":\"x\",\"mode\":\"4755\",{EVIL}}}");
    forge(&site, &format!("{{\"haul_tree\":1}}\n{line}\n"), Totals { files: 1, bytes: 4, ..Totals::default() });
    let mode = |name: &str| fs::metadata(site.path(name)).unwrap().permissions().mode() & 0o7777;
    site.haul(&["snapshot", "pull", "@store", "evil", "@out"]).ok();
    assert_eq!(mode("out/x"), 0o755);
    site.haul(&["snapshot", "pull", "--metadata-setid", "@store", "evil", "@other"]).ok();
    assert_eq!(mode("other/x"), 0o4755);
}

#[test]
fn damage_is_found_and_never_restored() {
    let site = Site::new();
    site.write("src/a", b"hello\n");
    site.write("src/b", b"other\n");
    let version = site.push();
    let hello = site.path("store/files/md5/b1/946ac92492d2347c6235b4d2611184");
    let rewrite = |bytes: &[u8]| {
        let _ = fs::remove_file(&hello);
        fs::write(&hello, bytes).unwrap();
    };
    // Same size, other bytes: only reading tells, and restoring reads.
    rewrite(b"hellO\n");
    site.haul(&["snapshot", "check", "@store"]).ok();
    let key = "files/md5/b1/946ac92492d2347c6235b4d2611184";
    assert_eq!(
        site.haul(&["snapshot", "check", "--verify=read", "@store"]).code(1).out,
        format!("{version}: a: {key} has other content than its name says\n{version}: 1 of 3 missing or wrong\n")
    );
    let ran = site.haul(&["--retries", "1", "snapshot", "pull", "@store", "src", "@out"]).code(1);
    assert!(ran.err.contains("a: Failed to read: what was read does not have the md5"), "{}", ran.err);
    assert_eq!(names(&site.path("out")).into_iter().collect::<Vec<_>>(), ["b"]);
    rewrite(b"short");
    assert_eq!(
        site.haul(&["snapshot", "check", "@store", "src"]).code(1).out,
        format!("{version}: a: {key} has 5 bytes, which isn't its size\n{version}: 1 of 3 missing or wrong\n")
    );
    let ran = site.haul(&["--retries", "1", "snapshot", "pull", "@store", "src", "@out"]).code(1);
    assert!(ran.err.contains("the remote has 5 bytes of its content, and there are to be 6"), "{}", ran.err);
    fs::remove_file(&hello).unwrap();
    assert_eq!(
        site.haul(&["snapshot", "check", "@store", &version]).code(1).out,
        format!("{version}: a: {key} is missing\n{version}: 1 of 3 missing or wrong\n")
    );
    // Nothing is deleted where not all is well.
    site.write("out/more", b"mine");
    let ran = site.haul(&["snapshot", "pull", "--delete", "@store", "src", "@out"]).code(4);
    assert!(
        ran.err.contains(&format!("a: Failed to read: its content is missing at the remote, {key}")),
        "{}",
        ran.err
    );
    assert!(site.path("out/more").exists());
    // Pushing again sends what was lost, and makes no version.
    assert_eq!(site.push(), version);
    site.haul(&["snapshot", "check", "@store", "--verify=read"]).ok();
    site.haul(&["snapshot", "pull", "--delete", "@store", "src", "@out"]).ok();
    assert_eq!(facts(&site.path("out")), facts(&site.path("src")));
}

#[test]
fn a_damaged_record_or_list_is_no_version() {
    let site = Site::new();
    site.write("src/a", b"hello\n");
    let version = site.push();
    let record = site.path("store/snapshots/src").join(&version[4..]);
    let whole = fs::read(&record).unwrap();
    let damaged = String::from_utf8(whole.clone()).unwrap().replace("\"files\":1", "\"files\":2");
    fs::remove_file(&record).unwrap();
    fs::write(&record, damaged).unwrap();
    let why = "the record doesn't match its name: it was changed or cut off";
    let ran = site.haul(&["snapshot", "pull", "@store", "src", "@out"]).code(1);
    assert!(ran.err.contains(why), "{}", ran.err);
    assert!(site.haul(&["snapshot", "check", "@store"]).code(1).out.contains(why));
    assert!(site.haul(&["snapshot", "list", "@store", "src"]).code(1).err.contains(why));
    // What it may refer to isn't known, so nothing is called unused.
    assert!(site.haul(&["snapshot", "gc", "-n", "@store"]).code(1).err.contains(why));
    // A push goes on without it.
    let ran = site.haul(&["snapshot", "push", "@src", "@store"]).ok();
    assert!(ran.err.contains(why) && ran.out.trim() > version.as_str(), "{}", ran.err);
    site.haul(&["snapshot", "pull", "@store", "src", "@out"]).ok();
}
