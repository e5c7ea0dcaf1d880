//! Google's own client on the simulator, and at the other side of the store.

use crate::simulator::open;
use haul_core::Key;
use haul_testkit::{
    conformance::collect,
    drivesim::{DriveSim, Settings},
    lab::Lab,
    peers,
};
use std::fs;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn googles_own_client_passes() {
    let Some(python) = peers::need("cloud_sdks") else { return };
    let (lab, sim) = (Lab::new(""), DriveSim::start(Settings::default()));
    sim.add_drive("shared");
    let account = lab.path("account.json");
    fs::write(&account, sim.service_account()).expect("written");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/sdk.py");
    let ran = lab.run(&python, &[script, &sim.endpoint(), &sim.token(), &account.display().to_string()]).ok();
    assert_eq!(ran.out.trim(), "passed");
    let store = open(&sim, "sdk");
    let read = store.read(&Key::new("small"), None, None).await.expect("there");
    assert_eq!(collect(read).await.expect("bytes"), b"other");
}
