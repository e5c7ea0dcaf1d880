//! A Box of our own for tries by hand: `boxsim MILLISECONDS`. It tells a config section, and for rclone by which proxy and with which
//! certificate; each line that it reads makes it tell what was asked for since.

use haul_testkit::{
    boxsim::{BoxSim, Settings},
    interceptor::Interceptor,
    lab::Lab,
};
use std::{env, io, time::Duration};

fn main() -> io::Result<()> {
    let latency = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let settings = Settings { latency: Duration::from_millis(latency), ..Settings::default() };
    let (lab, service) = (Lab::new(""), BoxSim::start(settings)?);
    let hosts = ["api.box.com", "upload.box.com"].map(|host| (host, service.address()));
    println!("{}endpoint = {}", service.section("b"), service.endpoint());
    let interceptor = Interceptor::start(&lab, &hosts);
    if let Some(interceptor) = &interceptor {
        println!("--http-proxy {} --ca-cert {}", interceptor.url(), interceptor.ca().display());
    }
    for line in io::stdin().lines() {
        line?;
        println!("{} bytes, {:?}", service.sent(), service.counts());
    }
    Ok(())
}
