//! `far`: the other end of a haul on another machine, on standard input and output.

use crate::{context::Context, environment::env, error::CommandResult};
use anyhow::Result;
use haul_core::{Error, ErrorKind};
use haul_far::Settings;
use haul_remotes::{OpenOptions, Session, Spec};
use haul_store::{Links, Store};
use std::{
    io::{stdin, stdout},
    net::IpAddr,
    os::{fd::AsFd as _, unix::ffi::OsStringExt as _},
    path::{PathBuf, absolute},
    sync::Arc,
};

/// What it lets the other end do.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Allow only this directory and its contents
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Refuse every change
    #[arg(long)]
    read_only: bool,
    /// Open a port if the other end asks for content by TCP, even with --root or --read-only
    #[arg(long)]
    listen: bool,
}

/// Serves until the other end hangs up.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let session: Arc<Session> = Arc::new(ctx.session.reread());
    let open = move |path: &[u8], links: Links, own_links: bool| -> haul_core::Result<Arc<dyn Store>> {
        let options = OpenOptions { links, own_links, ..OpenOptions::default() };
        let opened = session.open_spec(&Spec::local(path), &options);
        opened.map_err(|error| Error::new(ErrorKind::Invalid, "open", error.to_string()))
    };
    let root = args.root.map(absolute).transpose()?.map(|root| root.into_os_string().into_vec());
    let address = env("SSH_CONNECTION").and_then(|connection| server(connection.to_str()?));
    // A peer with all the user's rights can open ports anyway; a confined one opens none unasked.
    let listens = address.filter(|_| args.listen || root.is_none() && !args.read_only);
    let settings = Settings { open: Arc::new(open), root, read_only: args.read_only, listens };
    let ends = [stdin().as_fd().try_clone_to_owned()?, stdout().as_fd().try_clone_to_owned()?];
    haul_far::serve_on(ends, settings).await?;
    Ok(CommandResult::Done)
}

/// The server's address of an ssh connection (`CLIENT PORT SERVER PORT`), where there is one: a server without a port has none.
fn server(connection: &str) -> Option<IpAddr> {
    connection.split(' ').nth(2)?.parse().ok().map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_was_reached_is_the_servers() {
        assert_eq!(server("10.0.0.1 50123 10.0.0.2 22"), Some([10, 0, 0, 2].into()));
        assert_eq!(server("::1 50123 ::ffff:10.0.0.2 22"), Some([10, 0, 0, 2].into()));
        assert_eq!(server("UNKNOWN 65535 UNKNOWN 65535"), None);
        assert_eq!(server(""), None);
    }
}
