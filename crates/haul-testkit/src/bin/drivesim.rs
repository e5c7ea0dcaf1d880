//! A Google Drive of our own for tries by hand: `drivesim MILLISECONDS CREATIONS-A-SECOND BURST`. It tells a config section, and for rclone
//! by which proxy and with which certificate; each line that it reads makes it tell what was asked for since.

use haul_testkit::{
    drivesim::{DriveSim, Settings},
    interceptor::Interceptor,
    lab::Lab,
};
use std::{env, io, time::Duration};

fn main() -> io::Result<()> {
    let number = |n: usize| env::args().nth(n).and_then(|text| text.parse::<f64>().ok());
    let latency = Duration::from_secs_f64(number(1).unwrap_or(0.0) / 1000.0);
    let (lab, sim) = (
        Lab::new(""),
        DriveSim::start(Settings {
            latency,
            creations: number(2).map(|rate| (rate, number(3).unwrap_or(rate))),
            ..Settings::default()
        }),
    );
    let (token, endpoint) = (sim.token(), sim.endpoint());
    println!("[g]\ntype = drive\nclient_id = x\nclient_secret = y\ntoken = {token}\ntoken_url = {endpoint}/token");
    println!("scope = drive\nendpoint = {endpoint}");
    let interceptor = Interceptor::start(&lab, &[("www.googleapis.com", sim.address())]);
    if let Some(interceptor) = &interceptor {
        println!("--http-proxy {} --ca-cert {}", interceptor.url(), interceptor.ca().display());
    }
    for line in io::stdin().lines() {
        line?;
        println!("{} bytes, {} throttled, {:?}", sim.uploaded(), sim.throttled(), sim.counts());
        sim.reset_counts();
    }
    Ok(())
}
