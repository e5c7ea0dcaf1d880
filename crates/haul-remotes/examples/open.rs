//! Lists a remote: `cargo run -p haul-remotes --example open -- r2:bucket/dir`. Remotes are those of `haul.conf` and
//! `rclone.conf`.

use futures::StreamExt as _;
use haul_core::Listed;
use haul_remotes::{Environment, OpenOptions, Session, Settings};
use haul_store::ListRequest;
use std::{error::Error, ffi::OsStr};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let remote = std::env::args_os().nth(1).ok_or("name a remote: r2:bucket/dir")?;
    let session = Session::new(Settings::from_environment(Environment::new(std::env::vars_os())));
    for line in list(&session, &remote).await? {
        println!("{line}");
    }
    Ok(())
}

/// The entries directly in a remote's folder, a line each.
pub async fn list(session: &Session, remote: &OsStr) -> Result<Vec<String>, Box<dyn Error>> {
    let store = session.open(remote, &OpenOptions::default())?;
    let mut listing = store.list(ListRequest::default());
    let mut lines = Vec::new();
    while let Some(step) = listing.next().await {
        match step {
            Listed::Batch(entries) => lines.extend(entries.iter().map(|e| format!("{:>12} {}", e.size, e.key))),
            Listed::Failed { error, .. } => return Err(error.into()),
            Listed::Vanished(_) => {}
            Listed::End => return Ok(lines),
        }
    }
    Err("the listing was cut off".into())
}
