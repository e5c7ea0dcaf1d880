//! Simulated clouds that enforce what the table of providers says of them, and makes that do otherwise than AWS: haul asks each
//! only for what it knows, and takes no missing answer for a yes. What real servers say is in `servers.rs`.

use haul_s3::provider::PROVIDERS;
use haul_testkit::{
    cloudsim::Cloudsim,
    folder::{self, assert_same, files, noise, write},
    lab::{Lab, ProgramResult},
};
use std::fs;

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;
/// As small as S3 lets parts be, and every request once.
const FLAGS: [&str; 6] = [
    "--s3-upload-cutoff=5Mi",
    "--s3-chunk-size=5Mi",
    "--s3-copy-cutoff=5Mi",
    "--multi-thread-cutoff=5Mi",
    "--retries=1",
    "--low-level-retries=1",
];

/// A simulated cloud with these settings, and a lab with the remote `r` of a row of the providers' table on it.
fn cloud(provider: &str, settings: &[(&str, &str)], more: &[(&str, &str)]) -> (Lab, Cloudsim) {
    let cloud = Cloudsim::with(&[&[("log", "true"), ("etag", "md5")], settings].concat());
    let lab = Lab::new(HAUL);
    lab.remote_of("r", provider, &cloud.endpoint(), &[&[("force_path_style", "true")], more].concat());
    (lab, cloud)
}

fn run(lab: &Lab, args: &[&str]) -> ProgramResult {
    lab.haul(&[args, &FLAGS[..]].concat())
}

fn fill(lab: &Lab) {
    write(&lab.path("src/big"), &noise(1, 11 * MIB), TIME);
    for n in 0..6u64 {
        write(&lab.path(&format!("src/d{}/small {n}+%", n % 2)), &noise(n, 100), TIME + n);
    }
}

#[track_caller]
fn same(lab: &Lab, back: &str, what: &str) {
    assert_same(&files(&folder::read(&lab.path("src"))), &files(&folder::read(&lab.path(back))), what);
}

/// Refused requests, except those that only ask for a missing key.
fn refused(cloud: &Cloudsim) -> Vec<String> {
    let lines = cloud.log().into_iter().filter(|line| line.status >= 400 && line.status != 404);
    lines.map(|line| format!("{} {} {}", line.status, line.op, line.key)).collect()
}

/// Every row on a cloud that refuses what the row says it can't: up in parts with the journal on, again, copied, moved, synced,
/// deleted and back, and not one request refused.
#[test]
fn each_row_asks_its_provider_only_for_what_it_knows() {
    for row in PROVIDERS {
        let provider = row.name;
        let (lab, cloud) = cloud(provider, &[("provider", provider), ("strict-names", "true")], &[]);
        fill(&lab);
        let there = "r:bucket/up";
        run(&lab, &["mkdir", "r:bucket"]).ok();
        run(&lab, &["copy", "@src", there]).ok();
        run(&lab, &["copy", "@src", there, "--error-on-no-transfer"]).code(9);
        run(&lab, &["copy", there, "r:bucket/copied"]).ok();
        run(&lab, &["move", "r:bucket/copied", "r:bucket/moved"]).ok();
        fs::remove_dir_all(lab.path("src/d0")).unwrap();
        write(&lab.path("src/d1/small 1+%"), b"changed", TIME + 50);
        run(&lab, &["sync", "@src", "r:bucket/moved"]).ok();
        run(&lab, &["touch", there, "--no-create"]);
        run(&lab, &["copy", "r:bucket/moved", "@back"]).ok();
        same(&lab, "back", provider);
        run(&lab, &["purge", there]).ok();
        assert_eq!(cloud.keys("bucket").len(), 4, "{provider}");
        assert_eq!(refused(&cloud), [""; 0], "{provider}");
        let report = cloud.report();
        assert!(report.of("CompleteMultipartUpload") >= 1, "{provider}: not in parts");
        assert_eq!(
            (report.of("UploadPartCopy") > 0, report.of("DeleteObjects") > 0),
            (row.part_copy, row.batch_delete),
            "{provider}"
        );
        assert_eq!(report.unfinished_uploads, 0, "{provider}");
    }
}

/// Every row at AWS's strictest: what a row doesn't use it doesn't half use either.
#[test]
fn each_row_gets_along_with_all_that_aws_checks() {
    for row in PROVIDERS {
        let region = [("region", "us-east-1")];
        let (lab, cloud) = cloud(row.name, &[("strict-names", "true")], &region);
        fill(&lab);
        run(&lab, &["copy", "@src", "r:bucket"]).ok();
        run(&lab, &["copy", "r:bucket", "@back"]).ok();
        same(&lab, "back", row.name);
        run(&lab, &["copy", "r:bucket", "r:other-bucket"]).ok();
        run(&lab, &["delete", "r:bucket"]).ok();
        assert_eq!(refused(&cloud), [""; 0], "{}", row.name);
    }
}

/// All of `a/` comes before `a-b` there, and so does what is listed after a key.
#[test]
fn a_server_that_lists_by_directory_is_listed_whole_and_in_order() {
    let (lab, cloud) = cloud("SeaweedFS", &[("provider", "SeaweedFS"), ("page", "3"), ("bucket", "b")], &[]);
    let keys = ["a-b", "a.txt", "a/b", "a/c-e", "a/c/d", "a0", "b!/x", "b!y", "b/x"];
    for (n, key) in keys.iter().enumerate() {
        write(&lab.path("src").join(key), &noise(n as u64, 10), TIME);
    }
    run(&lab, &["copy", "@src", "r:b"]).ok();
    assert_eq!(run(&lab, &["lsf", "-R", "--files-only", "r:b"]).ok().lines(), keys);
    cloud.reset();
    run(&lab, &["sync", "@src", "r:b", "--error-on-no-transfer"]).code(9);
    fs::remove_file(lab.path("src/b!/x")).unwrap();
    run(&lab, &["sync", "@src", "r:b"]).ok();
    assert_eq!(cloud.keys("b").len(), keys.len() - 1);
    run(&lab, &["check", "@src", "r:b"]).ok();
    assert!(cloud.report().of("PutObject") == 0, "{:?}", cloud.report().requests);
    // Nothing of what is in the way of a bucket's deletion is lost with it.
    let ran = run(&lab, &["rmdir", "r:b"]).code(1);
    assert!(ran.err.contains("b is not empty"), "{}", ran.err);
    assert_eq!(cloud.keys("b").len(), keys.len() - 1);
    run(&lab, &["purge", "r:b"]).ok();
    assert_eq!(run(&lab, &["lsf", "r:"]).ok().out, "");
}

#[test]
fn a_server_that_refuses_to_tell_checksums_is_read_all_the_same() {
    for provider in ["AWS", "Minio"] {
        let (lab, cloud) = cloud(provider, &[("quirk", "refuses-checksum-mode"), ("bucket", "b")], &[]);
        fill(&lab);
        for (name, node) in
            [("big", noise(1, 11 * MIB)), ("d0/small 0+%", noise(0, 100)), ("d1/small 1+%", noise(1, 100))]
        {
            cloud.put("b", name.as_bytes(), node, &[("x-amz-meta-mtime", "1600000000.123456789")]);
        }
        run(&lab, &["copy", "r:b", "@back"]).ok();
        assert_eq!(fs::read(lab.path("back/big")).unwrap(), noise(1, 11 * MIB), "{provider}");
        assert_eq!(fs::read(lab.path("back/d1/small 1+%")).unwrap(), noise(1, 100), "{provider}");
        assert_eq!(
            run(&lab, &["cat", "r:b/d0/small 0+%"]).ok().out.as_bytes(),
            String::from_utf8_lossy(&noise(0, 100)).as_bytes()
        );
    }
}

/// The copy was made, so it isn't made again.
#[test]
fn a_copy_without_an_etag_is_a_copy() {
    let (lab, cloud) = cloud("Other", &[("quirk", "copy-without-etag"), ("bucket", "b")], &[]);
    write(&lab.path("src/file"), b"content", TIME);
    run(&lab, &["copy", "@src", "r:b"]).ok();
    cloud.reset();
    run(&lab, &["copyto", "r:b/file", "r:b/copy"]).ok();
    folder::set_mtime(&lab.path("src/file"), TIME + 1_000_000_000_000);
    run(&lab, &["copy", "@src", "r:b"]).ok();
    assert_eq!(cloud.get("b", b"copy").unwrap().bytes, b"content");
    assert_eq!(cloud.get("b", b"file").unwrap().meta["x-amz-meta-mtime"], "1600001000.123456789");
    assert!(cloud.report().of("CopyObject") <= 2, "{:?}", cloud.report().requests);
}

/// An answer of success without a receipt proves nothing: the source stays.
#[test]
fn a_write_without_an_etag_is_no_write() {
    for provider in ["Other", "AWS", "Minio"] {
        let (lab, _cloud) = cloud(provider, &[("quirk", "put-without-etag,ignores-checksums"), ("bucket", "b")], &[]);
        write(&lab.path("src/file"), b"content", TIME);
        let ran = run(&lab, &["move", "@src", "r:b"]);
        assert!(ran.code != 0, "{provider}: {}", ran.err);
        assert_eq!(fs::read(lab.path("src/file")).unwrap(), b"content", "{provider}");
    }
}

/// A part that was "copied" without an answer is an empty one, and some are all of the source: no file is made of such. It goes
/// through this machine.
#[test]
fn a_server_that_copies_no_parts_is_found_out() {
    for quirk in ["empty-part-copy", "no-copy-range", "no-copy-range,no-list-parts"] {
        let (lab, cloud) = cloud("Other", &[("quirk", quirk), ("bucket", "b")], &[]);
        cloud.put("b", b"big", noise(1, 11 * MIB), &[]);
        run(&lab, &["copyto", "r:b/big", "r:b/copy"]).ok();
        assert!(cloud.get("b", b"copy").unwrap().bytes == noise(1, 11 * MIB), "{quirk}");
        assert_eq!(cloud.report().unfinished_uploads, 0, "{quirk}");
    }
}

/// Another request was at work on the same bucket: that is over in a moment.
#[test]
fn conflicts_are_tried_again() {
    let (lab, cloud) = cloud("AWS", &[("fault", "conflict=0.3")], &[]);
    for n in 0..20 {
        write(&lab.path(&format!("src/f{n}")), b"content", TIME);
    }
    lab.haul(&["mkdir", "r:b"]).ok();
    lab.haul(&["copy", "@src", "r:b", "--immutable"]).ok();
    assert_eq!(cloud.keys("b").len(), 20);
    let report = cloud.report();
    assert!(report.of("PutObject") > 20, "no conflict came");
    assert_eq!(report.throttled, 0);
}

/// A listing that doesn't say whether it is whole, or miscounts, deletes nothing.
#[test]
fn listings_that_leave_it_open_prove_nothing() {
    for quirk in ["no-is-truncated", "wrong-key-count"] {
        for side in ["source", "destination"] {
            let (lab, cloud) = cloud("Other", &[("quirk", quirk), ("bucket", "b"), ("page", "3")], &[]);
            for n in 0..8 {
                cloud.put("b", format!("f{n}").as_bytes(), "x", &[]);
                write(&lab.path(&format!("there/f{n}")), b"x", TIME);
            }
            let args = if side == "source" { ["sync", "r:b", "@there"] } else { ["sync", "@there", "r:b"] };
            let ran = run(&lab, &args);
            assert!(ran.code != 0, "{quirk} at the {side}: {}", ran.err);
            assert_eq!(
                (cloud.keys("b").len(), fs::read_dir(lab.path("there")).unwrap().count()),
                (8, 8),
                "{quirk} at the {side}"
            );
        }
    }
    // It is not everywhere.
    let (lab, cloud) = cloud("Other", &[("quirk", "no-key-count"), ("bucket", "b"), ("page", "3")], &[]);
    (0..8).for_each(|n| cloud.put("b", format!("f{n}").as_bytes(), "x", &[]));
    run(&lab, &["sync", "r:b", "@there"]).ok();
    assert_eq!(fs::read_dir(lab.path("there")).unwrap().count(), 8);
}

#[test]
fn keys_out_of_order_in_a_complete_page_are_sorted() {
    let (lab, cloud) = cloud("Other", &[("quirk", "swapped-keys"), ("bucket", "b")], &[]);
    for n in 0..8 {
        cloud.put("b", format!("f{n}").as_bytes(), "x", &[]);
        cloud.put("b", format!("d/f{n}").as_bytes(), "x", &[]);
    }
    assert_eq!(run(&lab, &["lsf", "-R", "--files-only", "r:b"]).ok().lines().len(), 16);
    run(&lab, &["copy", "r:b", "@back"]).ok();
    assert_eq!(fs::read_dir(lab.path("back/d")).unwrap().count(), 8);
}

#[test]
fn folders_whose_slash_is_encoded_are_folders() {
    let (lab, cloud) = cloud("Other", &[("quirk", "encoded-delimiter"), ("bucket", "b")], &[]);
    for key in ["my_data/one", "my_data/deeper/two", "three"] {
        cloud.put("b", key.as_bytes(), "x", &[]);
    }
    assert_eq!(run(&lab, &["lsf", "r:b"]).ok().lines(), ["my_data/", "three"]);
    assert_eq!(run(&lab, &["lsd", "r:b"]).ok().out.matches("my_data").count(), 1);
    let tree = run(&lab, &["tree", "r:b"]).ok().out;
    assert!(tree.contains("one") && tree.contains("two") && tree.contains("3 files"), "{tree}");
}

/// A wrong region is corrected whatever the first request is, also by an answer without a body.
#[test]
fn a_wrong_region_is_corrected_by_any_first_request() {
    let here = [("region", "eu-west-1"), ("bucket", "b")];
    let firsts = [
        &["cat", "r:b/file"][..],
        &["lsf", "r:b"],
        &["lsjson", "--stat", "r:b/file"],
        &["copyto", "@file", "r:b/other"],
        &["copyto", "r:b/file", "@back"],
        &["link", "r:b/file"],
        &["deletefile", "r:b/file"],
    ];
    for provider in ["AWS", "Other", "Cloudflare"] {
        for first in firsts {
            let (lab, cloud) = cloud(provider, &here, &[]);
            cloud.put("b", b"file", "content", &[]);
            write(&lab.path("file"), b"mine", TIME);
            let ran = run(&lab, first).ok();
            if first[0] == "link" {
                assert!(ran.out.contains("eu-west-1"), "{provider}: {}", ran.out);
            }
        }
        // The endpoint's region is right, and the bucket is in another.
        let (lab, cloud) = cloud(provider, &[("bucket", "b")], &[("region", "us-east-1")]);
        cloud.put("b", b"file", "content", &[]);
        cloud.set(Some("b"), &[("region", "eu-west-1")]).unwrap();
        assert_eq!(run(&lab, &["cat", "r:b/file"]).ok().out, "content", "{provider}");
    }
}

/// Wrong keys are called so, also where the first answer has no body.
#[test]
fn wrong_keys_are_called_wrong_keys() {
    for (name, value, says) in
        [("access_key_id", "nobody", "access_key_id"), ("secret_access_key", "wrong", "secret_access_key")]
    {
        for first in [&["lsf", "r:b"][..], &["cat", "r:b/file"], &["lsjson", "--stat", "r:b/file"]] {
            let (lab, cloud) = cloud("Other", &[("bucket", "b")], &[]);
            cloud.put("b", b"file", "content", &[]);
            let config = fs::read_to_string(lab.config()).unwrap();
            let lines = config.lines().map(|line| {
                let own = line.split('=').next().is_some_and(|field| field.trim() == name);
                if own { format!("{name} = {value}") } else { line.to_owned() }
            });
            fs::write(lab.config(), lines.collect::<Vec<_>>().join("\n")).unwrap();
            let ran = run(&lab, first);
            assert!(ran.code != 0 && ran.err.contains(says), "{first:?} with a wrong {name}: {}", ran.err);
        }
    }
}
