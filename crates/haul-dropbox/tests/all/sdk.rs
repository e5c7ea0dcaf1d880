//! Dropbox's own SDK on the simulator, and at the other side of the store.

use crate::{dropbox::open, rclone::HOSTS};
use haul_core::Key;
use haul_testkit::{
    conformance::collect,
    dropboxsim::{Dropbox, Settings},
    interceptor::Interceptor,
    lab::Lab,
    peers,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropboxs_own_sdk_passes() {
    let Some(python) = peers::need("cloud_sdks") else { return };
    let lab = Lab::new("");
    let service = Dropbox::start(Settings { job_checks: 2, team: true, ..Settings::default() }).expect("a port");
    service.share("One", &[]);
    service.share("Two", &[("f", b"shared")]);
    let Some(interceptor) = Interceptor::start(&lab, &HOSTS.map(|host| (host, service.address()))) else { return };
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/sdk.py");
    let ran = lab.run(&python, &[script, &interceptor.url(), &interceptor.ca().display().to_string()]).ok();
    assert_eq!(ran.out.trim(), "passed");
    let store = open(&service, "sdk", &[]);
    let read = store.read(&Key::new("small"), None, None).await.expect("there");
    assert_eq!(collect(read).await.expect("bytes"), b"third");
}
