//! Encrypted remotes beside rclone: either program reads what the other wrote, in each mode, on disk and on S3.

use haul_testkit::{
    cloudsim::Cloudsim,
    folder::{self, Tree, assert_same, files, link, noise, set_mtime, write},
    lab::{Lab, ProgramResult},
    minio::Minio,
};
use std::{fs, path::Path};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
/// 2021-03-04 in nanoseconds.
const TIME: u64 = 18_690 * 86_400 * 1_000_000_000 + 987_654_321;
const MIB: usize = 1 << 20;
/// Of sizes around a block, in several directories, with names of all kinds.
fn fill(src: &Path) {
    for (n, size) in [0, 1, 15, 16, 17, 65_535, 65_536, 65_537, 131_072, 131_073, 3 * MIB + 7].into_iter().enumerate() {
        write(&src.join(format!("sizes/{size}")), &noise(n as u64, size), TIME + n as u64);
    }
    let long = "n".repeat(143);
    for (n, name) in [
        "a",
        "A b",
        "dot.",
        "...",
        "trailing ",
        " leading",
        "tab\t",
        "new\nline",
        "back\\slash",
        "star*[x]?",
        "100%",
        "e\u{301}x",
        "\u{e9}",
        "\u{1F69A} van",
        "\u{4f60}\u{597d}",
        "!quoted!",
        "del\u{7f}",
        "\u{2409}",
        "\u{ff0e}",
        "\u{ff0f}",
        "1234567890",
        "x-v2001-02-03-040506-123.txt",
        ".hidden",
        &long,
    ]
    .into_iter()
    .enumerate()
    {
        write(&src.join("names").join(name), name.as_bytes(), TIME + 100 + n as u64);
        write(&src.join("deep").join(name.chars().take(40).collect::<String>()).join("f"), b"f", TIME + 200);
    }
}

fn tree(lab: &Lab, path: &str) -> Tree {
    files(&folder::read(&lab.path(path)))
}

const MODES: [&[&str]; 6] = [
    &[],
    &["filename_encryption=obfuscate"],
    &["filename_encryption=off", "suffix=enc"],
    &["directory_name_encryption=false", "filename_encoding=base64"],
    &["filename_encoding=base32768"],
    &["no_data_encryption=true"],
];

/// An encrypted remote of this name on `remote`.
fn make(lab: &Lab, name: &str, remote: &str, options: &[&str]) {
    let remote = format!("remote={remote}");
    let args = ["config", "create", name, "crypt", &remote, "password=correct horse", "password2=battery staple"];
    let args = [&args[..], options].concat();
    // In the file that both read, where rclone is there.
    if lab.has_rclone() {
        lab.rclone(&args).ok()
    } else {
        lab.haul(&args).ok()
    };
}

#[test]
fn rclone_reads_what_haul_wrote_and_the_reverse() {
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    fill(&lab.path("src"));
    let wanted = tree(&lab, "src");
    for (n, options) in MODES.into_iter().enumerate() {
        let what = options.join(" ");
        let (ours, theirs) = (format!("ours{n}"), format!("theirs{n}"));
        make(&lab, &ours, lab.path(&ours).to_str().unwrap(), options);
        make(&lab, &theirs, lab.path(&theirs).to_str().unwrap(), options);
        // The longest name fits in base32 alone.
        let skip = "--exclude=/names/nnnn*";
        let skip = if n == 0 { "--exclude=/none" } else { skip };
        lab.haul(&["copy", "@src", &format!("{ours}:"), skip]).ok();
        lab.haul(&["copy", "@src", &format!("{ours}:"), skip, "--error-on-no-transfer"]).code(9);
        lab.rclone(&["check", "@src", &format!("{ours}:"), "--download", skip]).ok();
        lab.rclone(&["copy", "@src", &format!("{ours}:"), skip, "--error-on-no-transfer"]).code(9);
        lab.rclone(&["copy", "@src", &format!("{theirs}:"), skip]).ok();
        lab.haul(&["copy", "@src", &format!("{theirs}:"), skip, "--error-on-no-transfer"]).code(9);
        lab.haul(&["check", "@src", &format!("{theirs}:"), "--download", skip]).ok();
        let names = |side: &str| -> Vec<String> { tree(&lab, side).keys().map(|key| format!("{key:?}")).collect() };
        assert_eq!(names(&ours), names(&theirs), "{what}: names as rclone makes them");
        lab.haul(&["cryptcheck", "@src", &format!("{theirs}:"), skip]).code(i32::from(n == 5));
        let ran = lab.haul(&["cryptcheck", &format!("{theirs}:"), "@src"]).code(1);
        assert!(ran.err.contains("isn't an encrypted remote") && ran.err.lines().count() == 1, "{}", ran.err);
        for args in [&["--reverse", "a/b c", "x-v2001-02-03-040506-123.txt"][..], &["readme.txt"], &[]] {
            let hidden = lab.haul(&["cryptdecode", "--reverse", &format!("{ours}:"), "d/f"]).ok().out;
            let hidden = hidden.trim_end().split('\t').next_back().unwrap().to_owned();
            let args = if args.is_empty() { vec![hidden.as_str()] } else { args.to_vec() };
            let ask = |program: fn(&Lab, &[&str]) -> ProgramResult| {
                program(&lab, &[&["cryptdecode", &format!("{ours}:")], &args[..]].concat()).out.replace(" \t ", "\t")
            };
            assert_eq!(ask(Lab::haul), ask(Lab::rclone), "{what} {args:?}");
        }
        for args in [
            &["lsf", "-R", "-F", "pe"][..],
            &["lsjson", "-R", "--encrypted", "--no-modtime", "--no-mimetype", "--files-only"],
        ] {
            let listed = |program: fn(&Lab, &[&str]) -> ProgramResult| {
                let out = program(&lab, &[args, &[&format!("{ours}:sizes")]].concat()).ok().out;
                let mut lines: Vec<String> = out.lines().map(|line| line.trim_end_matches(',').to_owned()).collect();
                lines.sort();
                lines
            };
            assert_eq!(listed(Lab::haul), listed(Lab::rclone), "{what} {args:?}");
        }
        let back = format!("@back{n}");
        lab.haul(&["copy", &format!("{theirs}:"), &back]).ok();
        let mut wanted = wanted.clone();
        wanted.retain(|key, _| n == 0 || !format!("{key:?}").contains("names/nnnn"));
        assert_same(&tree(&lab, &format!("back{n}")), &wanted, &what);
    }
}

#[test]
fn only_an_encrypted_remote_has_encrypted_names() {
    let lab = Lab::new(HAUL);
    make(&lab, "c", lab.path("hidden").to_str().expect("UTF-8"), &[]);
    write(&lab.path("src/d/f"), b"x", TIME);
    lab.haul(&["copy", "@src", "c:"]).ok();
    let hidden = lab.haul(&["lsf", "-R", "-F", "e", "c:"]).ok().out;
    let below = lab.haul(&["lsf", "-F", "e", "c:d"]).ok().out;
    let names: Vec<&str> = hidden.lines().collect();
    assert!(lab.path(&format!("hidden/{}{}", names[0], names[1])).is_file(), "{hidden}");
    assert_eq!(below.trim_end(), names[1]);
    for args in [&["lsf", "-F", "e", "@src"][..], &["lsjson", "--encrypted", "@src"]] {
        let ran = lab.haul(args).code(2);
        assert!(ran.err.ends_with("src has no encrypted names: only a remote of type crypt has\n"), "{}", ran.err);
    }
}

/// Up in parts, synced after changes, moved inside the store, symlinks, single files, ranges and pipes.
#[test]
fn on_s3_it_is_a_remote_like_any_other() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote("minio", &minio.endpoint());
    let bucket = minio.bucket("crypt");
    make(&lab, "secret", &format!("minio:{bucket}/enc"), &[]);
    let src = lab.path("src");
    fill(&src);
    let big = noise(5, 23 * MIB + 12_345);
    write(&src.join("big"), &big, TIME);
    link(&src, "link", "names/a");
    let parts = ["--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi", "--links"];
    let run = |args: &[&str]| lab.haul(&[args, &parts[..]].concat());
    let ran = run(&["copy", "@src", "secret:up", "-v", "--stats=0"]).ok();
    assert!(ran.err.contains("CompleteMultipartUpload 1"), "not in parts\n{}", ran.err);
    run(&["copy", "@src", "secret:up", "-v", "--error-on-no-transfer"]).code(9);
    if lab.has_rclone() {
        lab.rclone(&["check", "@src", "secret:up", "--download", "--links"]).ok();
        lab.rclone(&["cryptcheck", "@src", "secret:up", "--exclude=/link*"]).ok();
    }
    fs::remove_file(src.join("names/a")).unwrap();
    write(&src.join("sizes/17"), b"changed", TIME + 5_000_000_000);
    set_mtime(&src.join("sizes/16"), TIME + 7_000_000_000);
    run(&["sync", "@src", "secret:up"]).ok();
    run(&["check", "@src", "secret:up", "--download"]).ok();
    let checked = run(&["cryptcheck", "@src", "secret:up", "-v"]).ok();
    assert!(
        checked.err.contains(" 0 differences found") && !checked.err.contains("could not be checked"),
        "{}",
        checked.err
    );
    write(&src.join("sizes/65537"), &noise(77, 65_537), TIME);
    let checked = run(&["cryptcheck", "@src", "secret:up", "--differ", "-"]).code(1);
    assert_eq!(checked.out, "sizes/65537\n", "of the same size and time");
    run(&["copy", "@src", "secret:up", "--ignore-times", "--include", "/sizes/65537"]).ok();
    run(&["cryptcheck", "@src", "secret:up"]).ok();
    // Inside the service, without a byte through here.
    let moved = run(&["move", "secret:up", "secret:moved", "-v", "--stats=0"]).ok();
    assert!(moved.err.contains("by the file system or the service itself"), "{}", moved.err);
    assert_eq!(lab.haul(&["lsf", "-R", "--files-only", "secret:up"]).code(3).out, "", "nothing is left");
    run(&["copy", "secret:moved", "@back"]).ok();
    assert_same(&folder::read(&lab.path("back")), &folder::read(&src), "back again");
    let read = |args: &[&str]| lab.haul_command(args).output().unwrap().stdout;
    assert_eq!(read(&["cat", "secret:moved/big", "--offset=65530", "--count=20"]), big[65_530..65_550]);
    assert!(read(&["cat", "secret:moved/big", "--tail=70000"]) == big[big.len() - 70_000..]);
    lab.haul_reading(&["rcat", "secret:piped", "--s3-chunk-size=5Mi"], &big).ok();
    assert!(read(&["cat", "secret:piped"]) == big);
    assert_eq!(lab.haul(&["lsf", "secret:", "-F", "ps"]).ok().out, format!("moved/;-1\npiped;{}\n", big.len()));
    // Of a file in parts that rclone sent so there is no hash: it is counted, and named.
    if lab.has_rclone() {
        write(&lab.path("two/large"), &big, TIME);
        write(&lab.path("two/small"), b"small", TIME);
        run(&["copy", "@two/small", "secret:two"]).ok();
        let as_is = ["--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi", "--s3-disable-checksum"];
        lab.rclone(&[&["copy", "@two/large", "secret:two"], &as_is[..]].concat()).ok();
        let checked = run(&["cryptcheck", "@two", "secret:two", "-v"]).ok();
        let counted = "secret:two: 1 files match by size alone, which proves nothing of their content (-v names them)";
        let named = "large: same size, not proved: there is no hash of the encrypted file";
        assert!(checked.err.contains(counted) && checked.err.contains(named), "{}", checked.err);
        run(&["purge", "secret:two"]).ok();
    }
    // Nothing of it can be read below.
    let below = lab.haul(&["lsf", "-R", &format!("minio:{bucket}")]).ok().out;
    assert!(!below.contains("moved") && !below.contains("piped"), "{below}");
    run(&["purge", "secret:moved"]).ok();
    run(&["deletefile", "secret:piped"]).ok();
    assert_eq!(lab.haul(&["lsf", "-R", "--files-only", &format!("minio:{bucket}")]).ok().out, "");
}

/// Cloudflare takes parts of one size only; then each part begins with the end of the one before it.
#[test]
fn parts_of_one_size_are_put_together() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote_of("r2", "Cloudflare", &minio.endpoint(), &[("force_path_style", "true")]);
    let bucket = minio.bucket("crypt-equal");
    make(&lab, "secret", &format!("r2:{bucket}"), &[]);
    let src = lab.path("src");
    write(&src.join("big"), &noise(6, 27 * MIB + 12_345), TIME);
    write(&src.join("whole parts"), &noise(7, 20 * MIB), TIME);
    let parts = ["--s3-upload-cutoff=5Mi", "--s3-chunk-size=5Mi", "-v", "--stats=0"];
    let ran = lab.haul(&[&["copy", "@src", "secret:"], &parts[..]].concat()).ok();
    assert!(ran.err.contains("CompleteMultipartUpload 2"), "{}", ran.err);
    lab.haul(&["check", "@src", "secret:", "--download"]).ok();
    if lab.has_rclone() {
        lab.rclone(&["check", "@src", "secret:", "--download"]).ok();
    }
}

/// The encrypted files would be taken for extra, or encrypted once more.
#[test]
fn a_place_that_holds_the_encrypted_files_is_no_other_end() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/f"), b"content", TIME);
    make(&lab, "c", lab.path("whole/enc").to_str().unwrap(), &[]);
    lab.haul(&["copy", "@src", "c:"]).ok();
    let before = tree(&lab, "whole");
    for (args, words) in [
        (&["sync", "c:", "@whole"][..], "is inside the destination"),
        (&["sync", "c:", "@whole", "--delete-before"], "is inside the destination"),
        (&["move", "c:", "@whole/enc"], "is inside the destination"),
        (&["copy", "@whole", "c:"], "is inside the source"),
        (&["move", "@whole", "c:d"], "is inside the source"),
    ] {
        let ran = lab.haul(args);
        assert!(ran.code != 0 && ran.err.contains(words), "{args:?}: {}", ran.err);
        assert_same(&before, &tree(&lab, "whole"), "nothing was touched");
    }
    // Where names of directories aren't encrypted, one can be taken for the other.
    make(&lab, "plain", lab.path("plain").to_str().unwrap(), &["directory_name_encryption=false"]);
    lab.haul(&["copy", "@src", "plain:d"]).ok();
    let ran = lab.haul(&["sync", "plain:d", "@plain/d"]);
    assert!(ran.code != 0 && ran.err.contains("is inside the destination"), "{}", ran.err);
    let ran = lab.haul(&["sync", "plain:", "@plain/d"]);
    assert!(ran.code != 0 && ran.err.contains("is where the source plain: keeps its content"), "{}", ran.err);
    lab.haul(&["sync", "plain:d", "@plain/beside"]).ok();
    lab.haul(&["check", "@src", "plain:d"]).ok();
    // Beside the encrypted files there may be others.
    write(&lab.path("whole/enc/plain/f"), b"plain", TIME);
    lab.haul(&["sync", "@whole/enc/plain", "c:there"]).ok();
    fs::remove_dir_all(lab.path("whole/enc/plain")).unwrap();
    lab.haul(&["purge", "c:there"]).ok();
    // A destination that holds the encrypted files is accepted if a filter excludes them.
    lab.haul(&["sync", "c:", "@whole", "--exclude=/enc/**"]).ok();
    assert_eq!(fs::read(lab.path("whole/f")).unwrap(), b"content");
    lab.haul(&["check", "@src", "c:", "--download"]).ok();
}

#[test]
fn what_was_cut_off_is_replaced_and_never_read() {
    let lab = Lab::new(HAUL);
    for name in ["d/a", "d/b"] {
        write(&lab.path("src").join(name), &noise(1, 1000), TIME);
    }
    make(&lab, "c", lab.path("enc").to_str().unwrap(), &["filename_encryption=off"]);
    lab.haul(&["copy", "@src", "c:"]).ok();
    lab.haul(&["copy", "c:d", "c:mirror"]).ok();
    for size in [0, 40] {
        let file = fs::OpenOptions::new().write(true).open(lab.path("enc/d/a.bin")).unwrap();
        file.set_len(size).unwrap();
        let ran = lab.haul(&["lsf", "-R", "--files-only", "c:"]).ok();
        assert_eq!(ran.out, "d/a\nd/b\nmirror/a\nmirror/b\n");
        assert!(ran.err.contains("d/a: no encrypted file has this size"), "{}", ran.err);
        lab.haul(&["check", "@src/d", "c:d"]).code(1);
        let ran = lab.haul(&["copy", "c:", "@back"]).code(1);
        assert!(ran.err.contains("it was cut off") && !lab.path("back/d/a").exists(), "{}", ran.err);
        let ran = lab.haul(&["cat", "c:d/a"]).code(1);
        assert!(ran.out.is_empty() && ran.err.contains("its content is lost or was cut off"), "{}", ran.err);
        // Nor does it replace a copy that is whole.
        lab.haul(&["sync", "c:d", "c:mirror"]).code(1);
        lab.haul(&["check", "@src/d", "c:mirror", "--download"]).ok();
        // A sync leaves nothing missing, and deletes extra files although a neighbour is damaged.
        fs::copy(lab.path("enc/d/b.bin"), lab.path("enc/d/extra.bin")).unwrap();
        lab.haul(&["sync", "@src/d", "c:d"]).ok();
        lab.haul(&["check", "@src/d", "c:d", "--download"]).ok();
    }
    fs::write(lab.path("enc/d/a.bin"), b"").unwrap();
    lab.haul(&["deletefile", "c:d/a"]).ok();
    assert!(!lab.path("enc/d/a.bin").exists());
}

#[test]
fn a_directory_that_is_not_there_is_an_error_on_a_bucket_too() {
    let lab = Lab::new(HAUL);
    write(&lab.path("src/r/x/f"), b"content", TIME);
    let (cloud, args) = (Cloudsim::with(&[("bucket", "bkt")]), ["password=another horse", "password2=battery staple"]);
    lab.remote("m", &cloud.endpoint());
    make(&lab, "c", "m:bkt/enc", &[]);
    let wrong = [&["config", "create", "w", "crypt", "remote=m:bkt/enc"], &args[..]].concat();
    lab.haul(&wrong).ok();
    lab.haul(&["copy", "@src", "c:"]).ok();
    for there in ["c:none", "c:r/none", "w:r/x"] {
        for args in [&["copy", there, "@out"][..], &["ls", there], &["check", there, "@src"], &["size", there]] {
            let ran = lab.haul(args);
            assert_eq!(ran.code, 3, "{args:?}: {}", ran.err);
        }
    }
    // A destination may be new.
    lab.haul(&["sync", "@src", "c:new/place"]).ok();
    lab.haul(&["check", "@src", "c:new/place", "--download"]).ok();
}
