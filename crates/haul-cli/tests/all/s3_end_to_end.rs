//! The main job: a real folder to a real S3 server that is not ours, back again, from bucket to bucket, and synced after
//! changes. Every byte and every time is checked.

use haul_testkit::{
    cloudsim::Cloudsim,
    folder::{self, assert_same, files, noise, write},
    lab::{Lab, ProgramResult},
    minio::Minio,
    peers,
    proxy::Proxy,
    servers::Server,
    tree,
};
use std::{fs, path::Path};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const SECOND: u64 = 1_000_000_000;

/// A lab with the remote `r`, which rclone has configured, and a bucket.
fn with_minio(hint: &str) -> Option<(Lab, &'static Server, String)> {
    let minio = Minio::shared()?;
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return None;
    }
    lab.remote("r", &minio.endpoint());
    Some((lab, minio, minio.bucket(hint)))
}

/// Odd names, sizes around the edges of parts, links are left out.
fn real_folder(lab: &Lab) {
    folder::names(&lab.path("src"));
    folder::sizes(&lab.path("src"), &[512, 65_536, 5 * MIB]);
}

#[test]
fn a_folder_goes_up_and_comes_back_the_same() {
    let Some((lab, _, bucket)) = with_minio("updown") else { return };
    real_folder(&lab);
    let src = files(&folder::read(&lab.path("src")));
    let there = format!("r:{bucket}/some dir");
    lab.haul(&["copy", "@src", &there, "-P"]).ok();
    lab.haul(&["copy", &there, "@back", "-P"]).ok();
    assert_same(&src, &files(&folder::read(&lab.path("back"))), "haul up, haul down");
    lab.haul(&["check", "@src", &there]).ok();
    lab.haul(&["check", "@src", &there, "--download"]).ok();
}

#[test]
fn in_parts_up_and_down_with_every_size_around_a_part() {
    let Some((lab, minio, bucket)) = with_minio("parts") else { return };
    folder::sizes(&lab.path("src"), &[5 * MIB, 10 * MIB]);
    let proxy = Proxy::start(minio.address).unwrap();
    lab.remote("p", &proxy.endpoint());
    let parts =
        ["--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi", "--multi-thread-cutoff=5Mi", "--multi-thread-streams=4"];
    let there = format!("p:{bucket}");
    let run = |from: &str, to: &str| lab.haul(&[&["copy", from, to][..], &parts].concat()).ok();
    run("@src", &there);
    assert_eq!(proxy.counts().get("CompleteMultipartUpload"), Some(&4), "{:?}", proxy.counts());
    proxy.reset();
    run(&there, "@back");
    assert!(proxy.counts()["GetObject"] > 8, "the larger ones come in ranges: {:?}", proxy.counts());
    assert_same(&files(&folder::read(&lab.path("src"))), &files(&folder::read(&lab.path("back"))), "in parts");
    lab.rclone(&["check", "@src", &there, "--download"]).ok();
}

#[test]
fn random_trees_go_up_and_come_back_the_same() {
    let Some((lab, _, bucket)) = with_minio("seeds") else { return };
    for seed in 0..3 {
        let src = format!("src{seed}");
        tree::Tree::new(seed, &tree::Shape::default()).write_to(&lab.path(&src)).unwrap();
        let there = format!("r:{bucket}/{seed}");
        lab.haul(&["copy", &format!("@{src}"), &there, "--links"]).ok();
        lab.haul(&["copy", &there, &format!("@back{seed}"), "--links"]).ok();
        let back = files(&folder::read(&lab.path(&format!("back{seed}"))));
        assert_same(&files(&folder::read(&lab.path(&src))), &back, &format!("seed {seed}"));
    }
}

#[test]
fn rclone_reads_what_haul_wrote_and_the_reverse() {
    let Some((lab, _, bucket)) = with_minio("mixed") else { return };
    real_folder(&lab);
    let src = files(&folder::read(&lab.path("src")));
    let (ours, theirs) = (format!("r:{bucket}/ours"), format!("r:{bucket}/theirs"));
    lab.haul(&["copy", "@src", &ours]).ok();
    lab.rclone(&["copy", "@src", &theirs]).ok();

    lab.rclone(&["copy", &ours, "@by-rclone"]).ok();
    assert_same(&src, &files(&folder::read(&lab.path("by-rclone"))), "haul up, rclone down");
    lab.haul(&["copy", &theirs, "@by-haul"]).ok();
    assert_same(&src, &files(&folder::read(&lab.path("by-haul"))), "rclone up, haul down");

    assert_eq!(lab.rclone(&["lsl", &ours]).ok().lines(), lab.rclone(&["lsl", &theirs]).ok().lines());
    assert_eq!(lab.rclone(&["md5sum", &ours]).ok().lines(), lab.rclone(&["md5sum", "@src"]).ok().lines());
    // rclone shows control characters as pictures; haul prints names as they are, but with a hash as the GNU tools do.
    let plain = |ran: ProgramResult| {
        let text = ran.ok().out.replace('\u{240a}', "\n").replace('\u{2409}', "\t");
        let named = |line: &str| match line.strip_prefix('\\') {
            Some(escaped) => escaped.replace("\\n", "\n").replace("\\\\", "\\"),
            None => line.to_owned(),
        };
        let text: Vec<String> = text.lines().map(named).collect();
        let mut lines: Vec<String> = text.join("\n").lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    for verb in ["lsl", "ls", "md5sum"] {
        assert_eq!(plain(lab.haul(&[verb, &theirs])), plain(lab.rclone(&[verb, &theirs])), "{verb}");
    }
    lab.rclone(&["check", "@src", &ours]).ok();
    lab.haul(&["check", "@src", &theirs]).ok();
    // Neither finds anything to do after the other.
    for program in [Lab::haul, Lab::rclone] {
        for there in [&ours, &theirs] {
            program(&lab, &["sync", "@src", there, "--error-on-no-transfer"]).code(9);
        }
    }
}

#[test]
fn bucket_to_bucket_stays_inside_the_server() {
    let Some((lab, minio, bucket)) = with_minio("inside") else { return };
    let proxy = Proxy::start(minio.address).unwrap();
    lab.remote("p", &proxy.endpoint());
    real_folder(&lab);
    lab.haul(&["copy", "@src", &format!("p:{bucket}")]).ok();
    proxy.reset();
    let other = format!("p:{}", minio.bucket("inside"));
    lab.haul(&["copy", &format!("p:{bucket}"), &other]).ok();
    let (counts, all) = (proxy.counts(), folder::read(&lab.path("src")));
    assert_eq!(counts.get("CopyObject"), Some(&(files(&all).len() as u64)), "{counts:?}");
    assert!(!counts.contains_key("GetObject") && !counts.contains_key("PutObject"), "{counts:?}");
    lab.haul(&["copy", &other, "@back"]).ok();
    assert_same(&files(&all), &files(&folder::read(&lab.path("back"))), "through a copy inside the server");
}

#[test]
fn remote_to_remote_goes_through_us() {
    let Some((lab, minio, bucket)) = with_minio("across") else { return };
    let proxy = Proxy::start(minio.address).unwrap();
    lab.remote("p", &proxy.endpoint());
    real_folder(&lab);
    let there = format!("r:{bucket}");
    lab.haul(&["copy", "@src", &there]).ok();
    let other = format!("p:{}", minio.bucket("across"));
    lab.haul(&["copy", &there, &other, "--multi-thread-cutoff=5Mi", "--multi-thread-chunk-size=5Mi"]).ok();
    assert!(proxy.counts().get("UploadPart").is_some_and(|n| *n >= 2), "{:?}", proxy.counts());
    lab.haul(&["copy", &other, "@back"]).ok();
    let src = files(&folder::read(&lab.path("src")));
    assert_same(&src, &files(&folder::read(&lab.path("back"))), "from one remote to another");
    lab.haul(&["check", &there, &other]).ok();
}

#[test]
fn sync_follows_every_kind_of_change_both_ways() {
    let Some((lab, _, bucket)) = with_minio("changes") else { return };
    real_folder(&lab);
    let there = format!("r:{bucket}/tree");
    lab.haul(&["sync", "@src", &there]).ok();
    lab.haul(&["sync", &there, "@back"]).ok();

    let src = lab.path("src");
    let old = 1_600_000_000 * SECOND;
    write(&src.join("plain.txt"), b"longer than it was before", old);
    write(&src.join("sizes/65536.bin"), &noise(99, 65_536), old + 5); // Same size, other bytes.
    folder::set_mtime(&src.join("UPPER.TXT"), old + 7); // Only the time.
    fs::remove_file(src.join("what?.txt")).unwrap();
    fs::remove_dir_all(src.join("deep/100%_txt")).unwrap();
    fs::rename(src.join("sizes/5242880.bin"), src.join("moved here.bin")).unwrap();
    write(&src.join("new/dir/file"), b"new", old + 9);

    let now = files(&folder::read(&src));
    lab.haul(&["sync", "@src", &there]).ok();
    lab.haul(&["check", "@src", &there, "--download"]).ok();
    lab.haul(&["sync", &there, "@back"]).ok();
    assert_same(&now, &files(&folder::read(&lab.path("back"))), "after changes");
    lab.haul(&["sync", "@src", &there, "--error-on-no-transfer"]).code(9);
    lab.haul(&["sync", &there, "@back", "--error-on-no-transfer"]).code(9);
    lab.rclone(&["check", "@src", &there]).ok();
}

#[test]
fn a_big_file_goes_in_parts_and_stays_whole() {
    let Some((lab, minio, bucket)) = with_minio("big") else { return };
    let proxy = Proxy::start(minio.address).unwrap();
    lab.remote("p", &proxy.endpoint());
    let (bytes, mtime) = (noise(5, 200 * MIB + 12_345), 1_700_000_000_123_456_789);
    write(&lab.path("src/big.bin"), &bytes, mtime);
    lab.haul(&["copy", "@src", &format!("p:{bucket}")]).ok();
    let counts = proxy.counts();
    assert_eq!(counts.get("CreateMultipartUpload"), Some(&1), "{counts:?}");
    assert_eq!(counts.get("CompleteMultipartUpload"), Some(&1), "{counts:?}");
    assert!(counts["UploadPart"] > 4 && !counts.contains_key("PutObject"), "{counts:?}");
    proxy.reset();
    lab.haul(&["copy", &format!("p:{bucket}"), "@back"]).ok();
    assert!(proxy.counts()["GetObject"] > 1, "one file in several ranges: {:?}", proxy.counts());
    proxy.reset();
    lab.haul(&["copy", &format!("p:{bucket}"), "@whole", "--multi-thread-cutoff=1G"]).ok();
    assert_eq!(proxy.counts()["GetObject"], 1, "below the cut-off by one request: {:?}", proxy.counts());
    assert_same(&folder::read(&lab.path("src")), &folder::read(&lab.path("back")), "200 MiB");
    lab.rclone(&["check", "@src", &format!("r:{bucket}")]).ok();
}

#[test]
fn rclone_can_check_large_uploads_whose_md5_was_asked_for() {
    let Some((lab, _, bucket)) = with_minio("md5") else { return };
    write(&lab.path("src/large"), &noise(11, 9 * MIB), 1_700_000_000 * SECOND);
    for (flag, known) in [(&[][..], false), (&["--store-md5"][..], true)] {
        let there = format!("r:{bucket}/{known}");
        let line = ["copy", "@src", &there, "--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi"];
        lab.haul(&[&line[..], flag].concat()).ok();
        assert_eq!(lab.rclone(&["md5sum", &there]).ok().out.contains(char::is_numeric), known);
        lab.rclone(&["check", "@src", &there]).ok();
        // A download proves it by that too.
        lab.haul(&["copy", &there, "@back"]).ok();
    }
    assert_same(&folder::read(&lab.path("src")), &folder::read(&lab.path("back")), "there and back");
}

/// It is hashed from the file that it is written to, behind what has arrived; zeros that `--sparse` leaves out are not there before
/// the end.
#[test]
fn a_large_file_that_comes_in_ranges_is_proved_by_its_md5() {
    let Some((lab, _, bucket)) = with_minio("ranges") else { return };
    let mut bytes = noise(12, 12 * MIB + 77);
    bytes.resize(24 * MIB, 0);
    write(&lab.path("src/large"), &bytes, 1_700_000_000 * SECOND);
    let there = format!("r:{bucket}");
    let parts = ["--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi", "--multi-thread-cutoff=5Mi"];
    lab.haul(&[&["copy", "@src", &there, "--store-md5"][..], &parts[..]].concat()).ok();
    for way in [&[][..], &["--sparse"][..], &["--inplace"][..], &["--multi-thread-streams=1"][..]] {
        let back = lab.path("back");
        lab.haul(&[&["copy", &there, "@back"][..], &parts[..], way].concat()).ok();
        assert_same(&folder::read(&lab.path("src")), &folder::read(&back), &format!("{way:?}"));
        fs::remove_dir_all(back).unwrap();
    }
}

#[test]
fn the_lines_of_the_posts() {
    let Some((lab, minio, bucket)) = with_minio("lines") else { return };
    lab.remote("R1", &minio.endpoint());
    lab.remote("R2", &minio.endpoint());
    write(&lab.path("src/dir/one"), &noise(1, 100_000), SECOND * 1_500_000_000);
    write(&lab.path("src/dir/sub/two"), b"two", SECOND * 1_500_000_001);
    write(&lab.path("src/dir/sub/deeper/three"), b"three", SECOND * 1_500_000_002);
    let (all, dir) = (format!("r:{bucket}"), format!("r:{bucket}/dir"));
    lab.haul(&["copy", "@src", &all, "-P"]).ok();

    let lsd = lab.haul(&["lsd", "r:"]).ok();
    assert!(lsd.lines().iter().any(|line| line.ends_with(&format!(" {bucket}"))), "{}", lsd.out);
    for line in [&["ls", &dir][..], &["lsl", &dir], &["lsf", "-R", &dir], &["size", &dir], &["lsd", &dir]] {
        assert_eq!(lab.haul(line).ok().lines(), lab.rclone(line).ok().lines(), "{line:?}");
    }
    let tree = lab.haul(&["tree", &dir, "--max-depth", "2"]).ok();
    assert_eq!(tree.out, lab.rclone(&["tree", &dir, "--max-depth", "2"]).ok().out);
    lab.haul(&["about", "r:"]).code(1);
    lab.haul(&["copy", &dir, "@local", "-P"]).ok();
    lab.haul(&["sync", &dir, "@local", "-P"]).ok();
    assert_same(&folder::read(&lab.path("src/dir")), &folder::read(&lab.path("local")), "copy and sync down");

    lab.haul(&["--no-check-dest", "copyto", &format!("R1:{bucket}/dir/one"), &format!("R2:{bucket}/else/uno")]).ok();
    let other = minio.bucket("lines");
    let flags = ["--fast-list", "--no-check-dest", "--ignore-size", "copyto"];
    lab.haul(&[&flags[..], &[&format!("R1:{bucket}"), &format!("R2:{other}")]].concat()).ok();
    lab.haul(&["copy", &format!("R2:{other}/"), "@other"]).ok();
    write(&lab.path("want/else/uno"), &noise(1, 100_000), SECOND * 1_500_000_000);
    lab.haul(&["copy", "@src", "@want"]).ok();
    assert_same(
        &files(&folder::read(&lab.path("want"))),
        &files(&folder::read(&lab.path("other"))),
        "buckets by copyto",
    );
}

#[test]
fn the_lines_of_the_video_maker() {
    let lab = Lab::new(HAUL);
    folder::names(&lab.path("A"));
    write(&lab.path("A/clip/._junk"), b"junk", SECOND);
    write(&lab.path("A/.fcpcache/cached"), b"junk", SECOND);
    write(&lab.path("A/clip/x.mov"), &noise(3, 3 * MIB), 1_700_000_000_111_222_333);
    folder::link(&lab.path("A"), "clip/current", "x.mov");
    let line = ["sync", "--exclude=**/._*", "--exclude=.fcpcache/**", "--multi-thread-streams=32", "-P", "--links"];
    lab.haul(&[&line[..], &["--metadata", "@A/", "@B"]].concat()).ok();
    let mut want = files(&folder::read(&lab.path("A")));
    // As in rclone, `**/` asks for at least one folder: a `._x` at the top is copied.
    let excluded = |path: &Path| {
        let junk = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("._"));
        path.starts_with(".fcpcache") || (junk && path.components().count() > 1)
    };
    want.retain(|path, _| !excluded(path));
    assert_same(&want, &files(&folder::read(&lab.path("B"))), "A/ to B");

    write(&lab.path("app/lib/index.js"), b"js", SECOND);
    write(&lab.path("app/lib/x.unpacked/y"), b"y", SECOND);
    let dry = ["copy", "--dry-run", "--progress", "--exclude", "**/**.unpacked/", "@app", "@nowhere"];
    lab.haul(&dry).ok();
    assert!(!lab.path("nowhere").exists(), "a dry run makes nothing");
}

#[test]
fn metadata_goes_along_and_is_not_lost_on_the_way() {
    use std::os::unix::fs::PermissionsExt as _;
    let Some((lab, minio, bucket)) = with_minio("meta") else { return };
    write(&lab.path("src/tool"), b"run", SECOND * 1_600_000_000);
    fs::set_permissions(lab.path("src/tool"), fs::Permissions::from_mode(0o4750)).unwrap();
    let stored = |at: &str| lab.haul(&["lsjson", "-M", at]).ok().out;
    let there = format!("r:{bucket}");
    lab.haul(&["copy", "@src", &there, "-M"]).ok();
    assert!(stored(&there).contains("\"mode\":\"104750\""), "{}", stored(&there));

    // Inside the server, with nothing to add, with something, and without --metadata.
    let (kept, added, plain) = (minio.bucket("meta"), minio.bucket("meta"), minio.bucket("meta"));
    lab.haul(&["copy", &there, &format!("r:{kept}"), "-M"]).ok();
    assert!(stored(&format!("r:{kept}")).contains("\"mode\":\"104750\""));
    lab.haul(&["copy", &there, &format!("r:{added}"), "-M", "--metadata-set", "project=x"]).ok();
    let both = stored(&format!("r:{added}"));
    assert!(both.contains("\"mode\":\"104750\"") && both.contains("\"project\":\"x\""), "{both}");
    lab.haul(&["copy", "@src", &format!("r:{plain}"), "--metadata-set", "project=y"]).ok();
    let set = stored(&format!("r:{plain}"));
    assert!(!set.contains("mode") && set.contains("\"project\":\"y\""), "{set}");

    let mode = |name: &str| fs::metadata(lab.path(name).join("tool")).unwrap().permissions().mode() & 0o7777;
    lab.haul(&["copy", &there, "@back", "-M"]).ok();
    lab.haul(&["copy", &there, "@all", "-M", "--metadata-setid"]).ok();
    assert_eq!((mode("back"), mode("all")), (0o750, 0o4750));

    // Attributes that only file systems keep are reported once.
    let assert_reported = |flags: &str, what: &str| {
        let ran = lab.haul(&["copy", flags, "@src", &format!("{there}/again")]).ok();
        assert_eq!(ran.err.matches(what).count(), 1, "{}", ran.err);
    };
    assert_reported(
        "-aHAX",
        "attributes of files are kept between file systems only, here or with haul at the other end; --metadata keeps what a store can hold",
    );
    assert_reported(
        "-aHM",
        "hard links are kept between file systems only, here or with haul at the other end: each name becomes a file",
    );
}

#[test]
fn wrong_keys_are_said_once_and_not_once_a_file() {
    let Some((lab, _, bucket)) = with_minio("keys") else { return };
    for name in 0..50 {
        write(&lab.path(&format!("src/{name}")), b"x", SECOND);
    }
    let ran = lab.haul(&["copy", "@src", &format!("r,secret_access_key=wrong:{bucket}")]).code(1);
    assert_eq!(ran.err.matches("SignatureDoesNotMatch").count(), 1, "{}", ran.err);
    assert!(!ran.err.contains("Failed to"), "{}", ran.err);
}

#[test]
fn a_limit_that_was_reached_is_said() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/a"), &noise(1, MIB), SECOND);
    let ran = lab.haul(&["copy", "@src", "@dst", "--max-transfer=10Ki", "--cutoff-mode=cautious"]).code(8);
    let message = "NOTICE: Stopped: --max-transfer was reached. Run the same command to transfer more.\n";
    assert!(ran.err.ends_with(message), "{}", ran.err);
    let ran = lab.haul(&["sync", "@src", "@src", "-c", "--error-on-no-transfer"]).code(1);
    assert_eq!(ran.err.lines().count(), 1, "a job that never began has no statistics: {}", ran.err);
    lab.haul(&["copy", "@src", "@dst"]).ok();
    let ran = lab.haul(&["copy", "@src", "@dst", "--error-on-no-transfer"]).code(9);
    assert!(ran.err.ends_with("NOTICE: Nothing was transferred, and --error-on-no-transfer is set\n"), "{}", ran.err);
}

#[test]
fn links_travel_as_small_files() {
    let Some((lab, _, bucket)) = with_minio("links") else { return };
    write(&lab.path("src/target"), b"t", SECOND * 1_600_000_000);
    folder::link(&lab.path("src"), "d/up", "../target");
    folder::link(&lab.path("src"), "dangling", "no such file");
    let there = format!("r:{bucket}");
    lab.haul(&["copy", "@src", &there, "--links"]).ok();
    let listed = lab.rclone(&["lsf", "-R", "--files-only", &there]).ok();
    assert_eq!(listed.lines(), ["d/up.rclonelink", "dangling.rclonelink", "target"]);
    lab.haul(&["copy", &there, "@back", "--links"]).ok();
    assert_same(&files(&folder::read(&lab.path("src"))), &files(&folder::read(&lab.path("back"))), "links");
    lab.rclone(&["copy", &there, "@by-rclone", "--links"]).ok();
    assert_same(&files(&folder::read(&lab.path("src"))), &files(&folder::read(&lab.path("by-rclone"))), "for rclone");
}

#[test]
fn a_missing_bucket_is_made_by_the_first_write() {
    let Some((lab, _, bucket)) = with_minio("made") else { return };
    for name in 0..20 {
        write(&lab.path(&format!("src/{name}")), b"x", SECOND);
    }
    lab.haul(&["copy", "@src", &format!("r:new-{bucket}"), "--retries=1"]).ok();
    lab.haul(&["copy", &format!("r:new-{bucket}"), &format!("r:newer-{bucket}"), "--retries=1"]).ok();
    assert_eq!(lab.rclone(&["lsf", &format!("r:newer-{bucket}")]).ok().lines().len(), 20);
}

#[test]
fn a_name_that_the_server_refuses_is_reported_and_the_rest_arrives() {
    let Some((lab, _, bucket)) = with_minio("raw") else { return };
    write(&lab.path("src").join(folder::raw_name()), b"raw", SECOND);
    write(&lab.path("src/good"), b"good", SECOND);
    let ran = lab.haul(&["copy", "@src", &format!("r:{bucket}")]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert!(ran.err.contains("raw-"), "{}", ran.err);
    assert_eq!(lab.rclone(&["lsf", &format!("r:{bucket}")]).ok().lines(), ["good"]);
}

/// MinIO refuses empty parts in a key, so a simulated cloud holds them.
#[test]
fn keys_with_empty_parts_go_from_bucket_to_bucket() {
    let keys = [("d//x", "two"), ("d/x", "one"), ("/lead", "lead"), (" s p ", "sp"), ("a+b%2F?#", "signs")];
    let (server, second, lab) = (Cloudsim::with(&[]), Cloudsim::with(&[]), Lab::new(HAUL));
    for (key, text) in keys {
        server.put("b", key.as_bytes(), text, &[]);
    }
    lab.remote("s", &server.endpoint());
    lab.remote("t", &second.endpoint());
    let listed = lab.haul(&["lsf", "-R", "--files-only", "s:b"]).ok();
    for key in ["d//x", "d/x", "/lead", " s p ", "a+b%2F?#"] {
        assert!(listed.lines().contains(&key), "{key} in {}", listed.out);
    }
    for (to, kept) in [("s:c", &server), ("t:c", &second)] {
        lab.haul(&["copy", "s:b", to]).ok();
        lab.haul(&["check", "s:b", to]).ok();
        for (key, text) in keys {
            let copy = kept.get("c", key.as_bytes()).unwrap_or_else(|| panic!("{key} is not in {to}"));
            assert_eq!(copy.bytes, text.as_bytes(), "{key} to {to}");
        }
    }
}

#[test]
fn the_tools_are_where_make_puts_them() {
    // Without this, a missing tool would make every test above pass by skipping.
    if std::env::var_os("CI").is_some() {
        assert!(peers::find("minio").is_some() && peers::find("rclone").is_some(), "run `make tools`");
    }
}
