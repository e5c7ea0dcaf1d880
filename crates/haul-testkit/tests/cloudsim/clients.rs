//! Clients that are not ours get along with the simulator at its strictest: what they are refused is the simulator's fault.

use haul_testkit::{
    cloudsim::Cloudsim,
    folder::{noise, write},
    lab::Lab,
    peers,
    servers::{ACCESS_KEY, SECRET_KEY},
};
use std::{fs, path::Path};

const MIB: usize = 1 << 20;
const TIME: u64 = 1_600_000_000_123_456_789;

fn strict() -> Cloudsim {
    Cloudsim::with(&[("strict-names", "true"), ("log", "true"), ("etag", "md5")])
}

/// Nothing was refused but what a client asks to find out: whether something is there.
#[track_caller]
fn nothing_refused(cloud: &Cloudsim) {
    let refused: Vec<_> = cloud.log().into_iter().filter(|line| line.status >= 400 && line.status != 404).collect();
    assert!(refused.is_empty(), "{refused:#?}");
}

/// boto3 with its own checksums, in parts and not, signed and as links: what it does by default and each thing that it must be
/// refused.
#[test]
fn boto3() {
    // It is in moto's environment.
    let Some(server) = peers::need("moto_server") else { return };
    let lab = Lab::new("haul");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cloudsim/boto.py");
    let cloud = strict();
    let python = server.with_file_name("python");
    let args = [&script.display().to_string(), &cloud.endpoint(), ACCESS_KEY, SECRET_KEY, "@work"].map(str::to_owned);
    fs::create_dir(lab.path("work")).unwrap();
    let ran = lab.run(&python, &args.each_ref().map(String::as_str)).ok();
    assert_eq!(ran.out, "all went well\n", "{}", ran.err);
}

#[test]
fn rclone() {
    let lab = Lab::new("haul");
    if !lab.has_rclone() {
        return;
    }
    for provider in ["AWS", "Minio", "Other", "Cloudflare", "Ceph"] {
        let cloud = strict();
        if provider == "Cloudflare" {
            cloud.set(None, &[("provider", provider)]).unwrap();
        }
        let options =
            [("region", if provider == "Cloudflare" { "auto" } else { "us-east-1" }), ("use_unsigned_payload", "true")];
        // Over plain HTTP rclone sends nothing to AWS unless the body is left out of the signature.
        lab.remote_of(provider, provider, &cloud.endpoint(), if provider == "AWS" { &options } else { &options[..1] });
        let src = format!("src-{provider}");
        write(&lab.path(&src).join("big"), &noise(1, 11 * MIB), TIME);
        for n in 0..5u64 {
            write(&lab.path(&src).join(format!("d{}/odd +%&ü {n}", n % 2)), &noise(n, 100), TIME + n);
        }
        let (from, there) = (format!("@{src}"), format!("{provider}:bucket/up"));
        let parts = [
            "--s3-upload-cutoff=5Mi",
            "--s3-chunk-size=5Mi",
            "--s3-copy-cutoff=5Mi",
            "--retries=1",
            "--low-level-retries=1",
        ];
        let run = |args: &[&str]| lab.rclone(&[args, &parts[..]].concat()).ok();
        run(&["copy", &from, &there]);
        run(&["check", &from, &there, "--download"]);
        fs::remove_file(lab.path(&src).join("d0/odd +%&ü 0")).unwrap();
        write(&lab.path(&src).join("d1/odd +%&ü 1"), b"changed", TIME + 9);
        run(&["sync", &from, &there, "--s3-list-chunk=2"]);
        run(&["copy", &there, &format!("{provider}:bucket/copied")]);
        run(&["check", &from, &format!("{provider}:bucket/copied"), "--download"]);
        run(&["touch", &format!("{there}/big")]);
        run(&["purge", &there]);
        nothing_refused(&cloud);
        let report = cloud.report();
        assert!(report.of("CompleteMultipartUpload") >= 1, "{provider}: not in parts");
    }
}
