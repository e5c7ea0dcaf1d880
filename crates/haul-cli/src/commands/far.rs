//! `far`: the other end of a haul on another machine, on standard input and output.

use crate::{context::Context, error::Outcome};
use anyhow::Result;
use haul_core::{Error, ErrorKind};
use haul_far::Settings;
use haul_remotes::{OpenOptions, Session, Spec};
use haul_store::{Links, Store};
use std::{
    io::{stdin, stdout},
    os::{fd::AsFd as _, unix::ffi::OsStringExt as _},
    path::{PathBuf, absolute},
    sync::Arc,
};

/// What it lets the other end do.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Allow only this directory and what is in it
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Refuse every change
    #[arg(long)]
    read_only: bool,
}

/// Serves until the other end hangs up.
pub async fn run(args: Args, ctx: &Context) -> Result<Outcome> {
    let session: Arc<Session> = Arc::new(ctx.session.reread());
    let open = move |path: &[u8], links: Links, own_links: bool| -> haul_core::Result<Arc<dyn Store>> {
        let options = OpenOptions { links, own_links, ..OpenOptions::default() };
        let opened = session.open_spec(&Spec::local(path), &options);
        opened.map_err(|error| Error::new(ErrorKind::Invalid, "open", error.to_string()))
    };
    let root = args.root.map(absolute).transpose()?.map(|root| root.into_os_string().into_vec());
    let settings = Settings { open: Arc::new(open), root, read_only: args.read_only };
    let ends = [stdin().as_fd().try_clone_to_owned()?, stdout().as_fd().try_clone_to_owned()?];
    haul_far::serve_on(ends, settings).await?;
    Ok(Outcome::Done)
}
