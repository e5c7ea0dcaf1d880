//! A Dropbox of our own for tries by hand: `dropboxsim MILLISECONDS`. It tells where it is, and for rclone by which proxy and with which
//! certificate; each line that it reads makes it tell what was asked for so far.

use haul_testkit::{
    dropboxsim::{Dropbox, Settings},
    interceptor::Interceptor,
    lab::Lab,
};
use std::{env, io, time::Duration};

fn main() -> io::Result<()> {
    let latency = env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let settings = Settings { latency: Duration::from_millis(latency), ..Settings::default() };
    let (lab, service) = (Lab::new(""), Dropbox::start(settings)?);
    let hosts = ["api.dropboxapi.com", "content.dropboxapi.com"].map(|host| (host, service.address()));
    println!("endpoint = {}\ntoken = {}", service.endpoint(), service.token());
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
