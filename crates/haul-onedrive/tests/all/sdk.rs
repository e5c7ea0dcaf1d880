//! Microsoft's own SDK on the simulator, and at the other side of the store.

use crate::{open, put, start};
use haul_core::Key;
use haul_testkit::{conformance::collect, lab::Lab, onedrivesim::Settings, peers};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn microsofts_own_sdk_passes() {
    let Some(python) = peers::need("cloud_sdks") else { return };
    let (lab, drive) = (Lab::new(""), start(Settings::default()));
    open(&drive, "").make_dir(&Key::new("before/"), &Default::default()).await.expect("made");
    put(&*open(&drive, ""), "before/f", b"text").await.expect("written");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/sdk.py");
    let by_name = drive.endpoint().replace("127.0.0.1", "localhost");
    let ran = lab.run(&python, &[script, &by_name, "access-0"]).ok();
    assert_eq!(ran.out.trim(), "passed");
    let store = open(&drive, "");
    let read = store.read(&Key::new("kept"), None, None).await.expect("there");
    assert_eq!(collect(read).await.expect("bytes"), b"kept");
}
