//! What snapshots cost in requests.

use crate::site::Site;
use haul_testkit::cloudsim::Cloudsim;

const FILES: usize = 1_000;

#[test]
fn a_push_that_changes_nothing_costs_a_handful_of_requests() {
    // A million contents of others.
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b:keys=1000000,shape=dvc,size=1")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    for n in 0..FILES {
        site.write(&format!("src/{:02}/{n}", n % 30), format!("file {n}").as_bytes());
    }
    let push = || {
        cloud.reset();
        let version = site.haul(&["snapshot", "push", "@src", "c:b"]).ok().out;
        (version, cloud.report())
    };
    let (first, report) = push();
    // Contents, two lists, the record.
    assert_eq!(report.of("PutObject"), FILES as u64 + 3, "{:?}", report.requests);
    let (second, report) = push();
    assert_eq!(first, second);
    assert!(report.total_requests <= 16 && report.of("PutObject") == 0, "{:?}", report.requests);
    site.write("src/07/7", b"another");
    let (third, report) = push();
    assert_ne!(first, third);
    assert_eq!(report.of("PutObject"), 4, "{:?}", report.requests);
    assert!(report.total_requests <= 30, "{:?}", report.requests);
    cloud.reset();
    site.haul(&["snapshot", "pull", "c:b", "src", "@out"]).ok();
    let report = cloud.report();
    // The record, the list, each content once for each file; a listing of versions.
    assert_eq!(report.of("GetObject"), FILES as u64 + 2, "{:?}", report.requests);
    assert!(report.total_requests <= FILES as u64 + 4, "{:?}", report.requests);
    cloud.reset();
    site.haul(&["snapshot", "pull", "c:b", "src", "@out"]).ok();
    assert!(cloud.report().total_requests <= 3, "{:?}", cloud.report().requests);
    cloud.reset();
    site.haul(&["snapshot", "list", "c:b", "src"]).ok();
    assert!(cloud.report().total_requests <= 3, "{:?}", cloud.report().requests);
}

#[test]
fn a_bucket_that_is_not_there_is_no_reason_to_wait() {
    let (cloud, site) = (Cloudsim::with(&[("bucket", "b")]), Site::new());
    site.lab.remote("c", &cloud.endpoint());
    let ran = site.haul(&["snapshot", "list", "c:other"]).code(3);
    assert!(ran.err.contains("bucket other does not exist"), "{}", ran.err);
    assert_eq!(cloud.report().total_requests, 2, "{:?}", cloud.report().requests);
    // A push makes it.
    site.write("src/a", b"a");
    cloud.reset();
    site.haul(&["snapshot", "push", "@src", "c:new/deep"]).ok();
    let report = cloud.report();
    assert!(report.of("CreateBucket") >= 1 && report.total_requests <= 12, "{:?}", report.requests);
    site.haul(&["snapshot", "check", "c:new/deep"]).ok();
}
