//! `dvc`: what dvc's commands of these names do, in a DVC repository. Here are arguments, opening and words; `haul-dvc` knows
//! repositories.

mod add;
mod checkout;
mod gc;
mod status;
mod transfer;

use crate::{
    context::Context,
    environment::{env, home},
    error::{CommandResult, usage},
};
use anyhow::{Context as _, Result, anyhow};
use haul_cas::{
    address::Address,
    remote::{EarlyQueries, Proof},
};
use haul_core::{Error, ErrorKind, event::Sink};
use haul_dvc::{
    config::{Remote, RemoteLocation},
    history::{Revisions, earlier, with_revisions},
    lock::Lock,
    repo::{CallerSettings, Index, Repo, SelectedPath, count},
};
use haul_remotes::{Location as At, Spec};
use haul_store::{Store, disk};
use std::{ffi::OsStr, path::PathBuf, sync::Arc};

/// What to do in a DVC repository.
#[derive(clap::Args, Debug)]
pub struct Args {
    #[command(subcommand)]
    what: DvcCommand,
}

#[derive(clap::Subcommand, Debug)]
enum DvcCommand {
    /// Show changes in the workspace, or the differences between cache and remote
    ///
    /// Like dvc status, compares the workspace with the .dvc files and dvc.lock or, with -c, the cache with the remote.
    Status(status::Args),
    /// Track files and directories
    Add(add::Args),
    /// Upload what the remote is missing
    ///
    /// Content that the remote has lost is uploaded again. A directory's list is uploaded last, after all its files.
    Push(transfer::PushArgs),
    /// Download what the cache is missing, and check it out
    Pull(transfer::PullArgs),
    /// Download what the cache is missing
    Fetch(transfer::FetchArgs),
    /// Restore tracked files in the workspace from the cache
    Checkout(checkout::Args),
    /// Show unused content of the cache, and with -c of the remote
    ///
    /// Only shows it, as with --dry-run: use dvc gc to remove it.
    Gc(gc::Args),
}

impl Args {
    /// True for what moves content as a job.
    pub fn is_job(&self) -> bool {
        matches!(self.what, DvcCommand::Push(_) | DvcCommand::Pull(_) | DvcCommand::Fetch(_))
    }
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    match args.what {
        DvcCommand::Status(args) => status::run(args, ctx).await,
        DvcCommand::Add(args) => add::run(args, ctx).await,
        DvcCommand::Push(args) => transfer::push(args, ctx).await,
        DvcCommand::Pull(args) => transfer::pull(args, ctx).await,
        DvcCommand::Fetch(args) => transfer::fetch(args, ctx).await,
        DvcCommand::Checkout(args) => checkout::run(args, ctx).await,
        DvcCommand::Gc(args) => gc::run(args, ctx).await,
    }
}

/// Which of what is tracked.
#[derive(clap::Args, Debug, Clone)]
struct TargetArgs {
    /// Tracked paths, paths in tracked directories, .dvc files or stages [default: everything]
    #[arg(value_name = "TARGET")]
    targets: Vec<String>,
    /// Include paths tracked below directories
    #[arg(long, short = 'R')]
    recursive: bool,
}

/// Which revisions, beside the workspace.
#[derive(clap::Args, Debug, Clone, Copy)]
struct RevisionArgs {
    /// Include paths tracked by all branches
    #[arg(long, short = 'a')]
    all_branches: bool,
    /// Include paths tracked by all tags
    #[arg(long, short = 'T')]
    all_tags: bool,
    /// Include paths tracked by all commits
    #[arg(long, short = 'A')]
    all_commits: bool,
}

impl RevisionArgs {
    fn revisions(self) -> Revisions {
        Revisions { branches: self.all_branches, tags: self.all_tags, commits: self.all_commits }
    }
}

/// Which remote, and how many at once.
#[derive(clap::Args, Debug, Clone)]
struct TransferArgs {
    /// The remote [default: each path's own, or core.remote]
    #[arg(long, short = 'r', value_name = "NAME")]
    remote: Option<String>,
    /// Concurrent transfers and requests [default: found automatically]
    #[arg(long, short = 'j', value_name = "N")]
    jobs: Option<usize>,
}

/// An opened repository, and what it tracks.
struct Opened {
    repo: Repo,
    index: Index,
    here: PathBuf,
}

fn open(ctx: &Context) -> Result<Opened> {
    let here = std::env::current_dir().context("can't find the current directory")?;
    let base = |var: &str, fallback: Option<PathBuf>| env(var).map(PathBuf::from).or(fallback);
    let home = home();
    let user = base("XDG_CONFIG_HOME", home.as_ref().map(|home| home.join(".config"))).map(|dir| dir.join("dvc"));
    let system = base("DVC_SYSTEM_CONFIG_DIR", Some("/etc/xdg/dvc".into()));
    let configs = [system, base("DVC_GLOBAL_CONFIG_DIR", user)];
    let around = CallerSettings {
        home,
        configs: configs.into_iter().flatten().map(|dir| dir.join("config")).collect(),
        hashes: ctx.hashes(),
    };
    let repo = Repo::find(&here, &around)?;
    let index = repo.index()?;
    Ok(Opened { repo, index, here })
}

impl Opened {
    /// Takes DVC's lock, before anything is written. It is held as long as the answer lives.
    async fn lock(&self) -> Result<Lock> {
        if self.repo.config.hardlink_lock() {
            return Err(anyhow!("core.hardlink_lock is set, a lock that haul doesn't have: unset it, or use dvc"));
        }
        let dvc = self.repo.dvc_dir();
        Ok(disk::run(move || Lock::take(&dvc)).await?)
    }

    /// The outputs that the targets name.
    fn choose(&self, targets: &TargetArgs) -> Result<Vec<SelectedPath>> {
        let mut all = Vec::new();
        for target in &targets.targets {
            // A stage is no path, though it may look like one.
            let typed = self.repo.relative(&self.here, target);
            let known = |name: &str| self.index.choose(&[name.to_string()], targets.recursive).is_ok();
            match typed {
                Ok(path) if known(&path) || !known(target) => all.push(path),
                Err(error) if !known(target) => return Err(error.into()),
                _ => all.push(target.clone()),
            }
        }
        Ok(self.index.choose(&all, targets.recursive)?)
    }

    /// A path below the root as dvc shows it: from the current folder.
    fn shown(&self, path: &str) -> String {
        let here = self.here.strip_prefix(&self.repo.root).ok().and_then(|below| below.to_str()).unwrap_or_default();
        if here.is_empty() || path.starts_with('/') {
            return path.into();
        }
        let (from, to): (Vec<&str>, Vec<&str>) = (here.split('/').collect(), path.split('/').collect());
        let same = from.iter().zip(&to).take_while(|(a, b)| a == b).count().min(to.len() - 1);
        [vec![".."; from.len() - same], to[same..].to_vec()].concat().join("/")
    }

    /// Adds what other revisions track.
    async fn add_revisions(&mut self, which: RevisionArgs) -> Result<()> {
        Ok(with_revisions(&self.repo, &mut self.index, which.revisions()).await?)
    }

    /// Errors: the remote that the user named isn't one of the configuration's.
    fn check_named(&self, named: Option<&str>) -> Result<()> {
        named.map_or(Ok(()), |name| self.remote(Some(name)).map(drop))
    }

    /// A remote as configured.
    fn remote(&self, name: Option<&str>) -> Result<Remote> {
        self.repo.config.remote(name).map_err(|why| Error::new(ErrorKind::Invalid, "open", why).into())
    }
}

/// The chosen outputs by the remote that they belong to. An imported one belongs to another repository, and one with a remote of its own
/// goes to no other, whichever is named.
fn by_remote(chosen: Vec<SelectedPath>, named: Option<&str>) -> Vec<(Option<String>, Vec<SelectedPath>)> {
    let mut groups: Vec<(Option<String>, Vec<SelectedPath>)> = Vec::new();
    for one in chosen {
        let path = &one.tracked.path;
        if one.tracked.imported || one.tracked.out.versioned {
            tracing::warn!("{path}: it is imported or kept by versions in the cloud, and left out: use dvc for it");
            continue;
        }
        let own = one.tracked.out.remote.clone();
        if let (Some(named), Some(own)) = (named, &own)
            && named != own
        {
            tracing::warn!("{path}: its own remote is {own}, so it is left out of {named}");
            continue;
        }
        let remote = own.or_else(|| named.map(str::to_string));
        match groups.iter_mut().find(|(name, _)| *name == remote) {
            Some((_, group)) => group.push(one),
            None => groups.push((remote, vec![one])),
        }
    }
    groups
}

/// Asks a remote for the lists of the chosen directories and of their earlier states, and opens its index unless `--no-index` is given;
/// with the lists of the earlier states.
async fn ask_ahead(
    ctx: &Context,
    repo: &Repo,
    store: &Arc<dyn Store>,
    chosen: &[SelectedPath],
    proof: Proof,
) -> haul_core::Result<(EarlyQueries, Vec<Address>)> {
    let sink: Arc<dyn Sink> = ctx.progress.clone();
    let index = ctx.known_content().index;
    let earlier = earlier(repo, chosen).await;
    let outs = chosen.iter().map(|one| &one.tracked.out).filter(|out| out.cache);
    let own = outs.filter_map(|out| out.address.filter(|address| address.dir));
    let candidates = own.chain(earlier.iter().copied());
    let ahead =
        EarlyQueries::ask(store, candidates, count(chosen), proof, index.as_ref().map(|settings| (settings, &sink)))
            .await?;
    Ok((ahead, earlier))
}

/// Opens a remote of DVC's configuration.
fn open_remote(ctx: &Context, remote: &Remote) -> Result<Arc<dyn Store>> {
    let opened = match &remote.place {
        RemoteLocation::Local(path) => ctx.open(path.as_os_str()),
        RemoteLocation::Haul(typed) => ctx.open(OsStr::new(typed)),
        RemoteLocation::S3 { insecure: true, .. } if !ctx.flags.network.no_check_certificate => {
            Err(usage("ssl_verify is false: add --no-check-certificate to skip checking the server's certificate"))
        }
        RemoteLocation::S3 { path, options, .. } => {
            let place = At::Backend { kind: "s3".into(), options: options.clone() };
            ctx.open_spec(&Spec { place, path: path.clone().into_bytes() })
        }
    };
    opened.with_context(|| format!("DVC's remote {:?}", remote.name))
}

/// `3 files` or `1 file`.
fn files(count: u64) -> String {
    format!("{count} file{}", if count == 1 { "" } else { "s" })
}
