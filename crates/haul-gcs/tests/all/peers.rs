//! Google's own client for Python, and rclone, on the simulator and at the other side of the store: what proves the simulator.

use crate::{
    emulators::get,
    simulator::{open, start},
};
use bytes::Bytes;
use haul_core::{Algo, Key, Mtime, hash::hash_bytes};
use haul_store::{LateFacts, Payload, WriteSpec};
use haul_testkit::{lab::Lab, peers, tree::content};
use std::fs;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn googles_own_client_passes() {
    let Some(python) = peers::need("cloud_sdks") else { return };
    let (lab, sim) = (Lab::new(""), start());
    let store = open(&sim, "before", &[]);
    let bytes = content(1, 11 << 20);
    let spec = WriteSpec { size: Some(bytes.len() as u64), ..WriteSpec::default() };
    let upload = store.write(&Key::new("d/large"), spec).await.expect("begun");
    let mut parts = Vec::new();
    for (index, piece) in bytes.chunks(5 << 20).enumerate().rev() {
        let payload = Payload::from(Bytes::copy_from_slice(piece));
        parts.push(upload.part(index as u64, (index * (5 << 20)) as u64, payload).await.expect("sent"));
    }
    upload.publish(parts, LateFacts::default()).await.expect("published");
    fs::write(lab.path("large"), &bytes).expect("written");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/sdk.py");
    let large = lab.path("large");
    let ran = lab.run(&python, &[script, &sim.endpoint(), "known", large.to_str().expect("text")]).ok();
    assert_eq!(ran.out.trim(), "passed");
    let counts = sim.counts();
    let expected = ["parts.begin", "parts.put", "parts.complete", "batch", "session.piece", "rewrite", "copy", "patch"];
    assert!(expected.iter().all(|kind| counts.contains_key(kind)), "{counts:?}");
    // What it uploaded in parts.
    assert!(get(&*open(&sim, "sdk", &[]), "in/parts é").await == bytes);
    assert_eq!(sim.unfinished(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rclone_passes() {
    let Some(rclone) = peers::need("rclone") else { return };
    let (lab, sim) = (Lab::new(""), start());
    let endpoint = format!("{}/storage/v1/", sim.endpoint());
    let run = |args: &[&str]| {
        let own = ["--config", "/dev/null", "--gcs-endpoint", &endpoint, "--gcs-access-token", "known"];
        let more = ["--gcs-project-number", "1", "--gcs-directory-markers"];
        lab.run(&rclone, &[&own[..], &more, args].concat()).ok().out
    };
    let large = content(2, (17 << 20) + 5);
    let time = Mtime(1_600_000_000_123_456_789);
    fs::create_dir_all(lab.path("from/d")).expect("made");
    for (name, bytes) in [("from/d/large", &large[..]), ("from/small é#", b"small")] {
        fs::write(lab.path(name), bytes).expect("written");
        let file = fs::File::options().append(true).open(lab.path(name)).expect("opened");
        file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_nanos(time.0 as u64)).expect("a time");
    }
    run(&["copy", lab.path("from").to_str().expect("text"), ":gcs:box/in"]);
    run(&["check", "--download", lab.path("from").to_str().expect("text"), ":gcs:box/in"]);
    let store = open(&sim, "box/in", &[("directory_markers", "true")]);
    assert!(get(&*store, "d/large").await == large);
    let entry = store.stat(&Key::new("small é#")).await.expect("there");
    assert_eq!((entry.size, entry.mtime), (5, Some(time)));
    // And what haul wrote in parts, with a time.
    let spec = WriteSpec { size: Some(large.len() as u64), mtime: Some(time), ..WriteSpec::default() };
    let upload = store.write(&Key::new("by haul"), spec).await.expect("begun");
    let mut parts = Vec::new();
    for (index, piece) in large.chunks(5 << 20).enumerate() {
        let payload = Payload::from(Bytes::copy_from_slice(piece));
        parts.push(upload.part(index as u64, (index * (5 << 20)) as u64, payload).await.expect("sent"));
    }
    upload.publish(parts, LateFacts::default()).await.expect("published");
    store.make_dir(&Key::new("empty/"), &Default::default()).await.expect("made");
    let format = ["lsf", "-R", "--format", "pst", "--time-format", "RFC3339Nano", ":gcs:box/in"];
    let listed = run(&format);
    let line = format!("by haul;{};2020-09-13T12:26:40.123456789Z", large.len());
    assert!(listed.lines().any(|found| found == line), "{listed}");
    assert!(listed.lines().any(|found| found.starts_with("empty/;")), "{listed}");
    run(&["copyto", ":gcs:box/in/by haul", lab.path("back").to_str().expect("text")]);
    assert!(fs::read(lab.path("back")).expect("read") == large);
    let md5 = hash_bytes(&[Algo::Md5], &large).hex(Algo::Md5).expect("a hash");
    assert_eq!(run(&["md5sum", ":gcs:box/in/d/large"]), format!("{md5}  large\n"));
    run(&["copyto", ":gcs:box/in/by haul", ":gcs:box/copied"]);
    run(&["delete", ":gcs:box/in"]);
    assert_eq!(run(&["lsf", "-R", "--files-only", ":gcs:box"]), "copied\n");
    assert!(get(&*open(&sim, "box", &[]), "copied").await == large);
}
