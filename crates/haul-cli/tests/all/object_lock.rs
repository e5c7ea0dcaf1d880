//! Object locks on MinIO, beside rclone: what is written is locked alike, and the lock holds.

use haul_testkit::{folder::write, lab::Lab, minio::Minio, peers};
use std::path::{Path, PathBuf};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const UNTIL: &str = "2099-01-31T00:00:00Z";

#[test]
fn what_is_written_is_locked() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    lab.remote("m", &minio.endpoint());
    let bucket = format!("m:locks-{}", std::process::id());
    lab.haul(&["mkdir", &bucket, "--s3-bucket-object-lock-enabled"]).ok();
    write(&lab.path("small"), b"text", 1_600_000_000_000_000_000);
    write(&lab.path("large"), &vec![7; 12 << 20], 1_600_000_000_000_000_000);
    let lock = ["--s3-object-lock-mode=governance", "--s3-object-lock-legal-hold-status=on", "--s3-chunk-size=5M"];
    let programs = [PathBuf::from(HAUL)].into_iter().chain(peers::find("rclone"));
    let mut facts = Vec::new();
    for (n, program) in programs.enumerate() {
        for (file, more) in [("small", &[][..]), ("large", &["--s3-upload-cutoff=5M"])] {
            let dest = format!("{bucket}/{n}-{file}");
            let until = format!("--s3-object-lock-retain-until-date={UNTIL}");
            let source = format!("@{file}");
            lab.run(&program, &[&["copyto", &source, &dest, &until][..], &lock, more].concat()).ok();
            let shown = lab.rclone(&["lsjson", "-M", "--stat", &dest]).ok();
            let shown: serde_json::Value = serde_json::from_str(&shown.out).unwrap();
            let of = |name: &str| shown["Metadata"][name].as_str().unwrap_or("nothing").to_owned();
            facts.push(
                ["mode", "retain-until-date", "legal-hold-status"].map(|name| of(&format!("object-lock-{name}"))),
            );
        }
    }
    for fact in &facts {
        assert_eq!(fact, &["GOVERNANCE".to_owned(), UNTIL.to_owned(), "ON".to_owned()], "{facts:?}");
    }
    // So long from now.
    let dest = format!("{bucket}/days");
    let days = ["--s3-object-lock-mode=COMPLIANCE", "--s3-object-lock-retain-until-date=1d"];
    lab.haul(&[&["copyto", "@small", &dest][..], &days].concat()).ok();
    assert!(lab.rclone(&["lsjson", "-M", "--stat", &dest]).ok().out.contains("\"object-lock-mode\": \"COMPLIANCE\""));
    // A bucket without locks refuses; flags that can't be meant are told.
    let plain = format!("m:no-locks-{}/small", std::process::id());
    assert_ne!(lab.haul(&[&["copyto", "@small", &plain, "--retries=1"][..], &days].concat()).code, 0);
    for (flags, why) in [
        (&["--s3-object-lock-mode=x"][..], "object_lock_mode \"X\" is neither GOVERNANCE nor COMPLIANCE"),
        (
            &["--s3-object-lock-mode=COMPLIANCE"],
            "set both object_lock_mode and object_lock_retain_until_date, or neither",
        ),
        (
            &["--s3-object-lock-mode=COMPLIANCE", "--s3-object-lock-retain-until-date=soon"],
            "\"soon\" is no time such as",
        ),
    ] {
        let ran = lab.run(Path::new(HAUL), &[&["ls", &bucket], flags].concat());
        assert!(ran.code != 0 && ran.err.contains(why), "{}", ran.err);
    }
}
