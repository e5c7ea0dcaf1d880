//! `settier` on a server that keeps storage classes.

use haul_testkit::{folder::write, lab::Lab, minio::Minio};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");
const TIME: u64 = 1_600_000_000_000_000_000;

#[test]
fn files_get_another_class_and_keep_the_rest() {
    let Some(minio) = Minio::shared() else { return };
    let lab = Lab::new(HAUL);
    lab.remote("m", &minio.endpoint());
    write(&lab.path("src/a.txt"), b"a", TIME);
    write(&lab.path("src/d/b.bin"), b"b", TIME);
    write(&lab.path("large"), &vec![5; 12 << 20], TIME);
    let bucket = format!("m:tiers-{}-0", std::process::id());
    lab.haul(&["copy", "@src", &bucket, "--metadata-set", "colour=red"]).ok();
    lab.haul(&["copyto", "@large", &format!("{bucket}/large"), "--s3-upload-cutoff=5M", "--s3-chunk-size=5M"]).ok();
    let classes = || {
        let shown = lab.haul(&["lsf", "-R", "--files-only", "-F", "ptT", &bucket]).ok();
        shown.lines().iter().map(|line| line.to_string()).collect::<Vec<_>>()
    };
    lab.haul(&["settier", "REDUCED_REDUNDANCY", &bucket, "--include", "*.txt"]).ok();
    let time = "2020-09-13 12:26:40";
    let of = |name: &str, class: &str| format!("{name};{time};{class}");
    let before = [of("a.txt", "REDUCED_REDUNDANCY"), of("d/b.bin", ""), of("large", "")];
    assert_eq!(classes(), before);
    lab.haul(&["settier", "REDUCED_REDUNDANCY", &format!("{bucket}/large")]).ok();
    assert_eq!(classes()[2], of("large", "REDUCED_REDUNDANCY"));
    let shown = lab.haul(&["lsjson", "-M", "--stat", &format!("{bucket}/a.txt")]).ok();
    assert!(shown.out.contains("\"colour\": \"red\""), "{}", shown.out);
    lab.haul(&["check", "@src", &bucket, "--one-way", "--download"]).ok();
    lab.haul(&["purge", &bucket]).ok();
    let bucket = format!("m:tiers-{}", std::process::id());
    lab.haul(&["copy", "@src", &bucket]).ok();
    lab.haul(&["settier", "REDUCED_REDUNDANCY", &bucket, "--dry-run"]).ok();
    assert!(!lab.haul(&["lsf", "-F", "pT", &bucket]).ok().out.contains("REDUCED"));
    let ran = lab.haul(&["settier", "SILLY", &format!("{bucket}/a.txt"), "--low-level-retries=1"]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    let ran = lab.haul(&["settier", "COOL", "@src"]).code(1);
    assert!(ran.err.contains("the store has no storage classes"), "{}", ran.err);
}
