//! `bench`: asks, has `haul-bench` measure a remote or two folders, and shows what came of it as text, JSON and a page with plots.

use crate::{
    context::Context,
    error::{CommandResult, code, error_text, usage},
    flags,
    flags::values::{Span, size, span},
    print, prompt,
};
use anyhow::{Context as _, Result, bail};
use aws_lc_rs::rand;
use futures::StreamExt as _;
use haul_bench::{
    Bench, Bounds, Class, Plan, Progress, Source,
    report::{BetweenFolders, Findings, json, page, sentences, table},
};
use haul_core::{
    Listed,
    filter::Filter,
    job::Job,
    units::{Size, parse_size},
};
use haul_remotes::OpenOptions;
use haul_store::{Domain, ListRequest, Store, disk};
use std::{
    ffi::{OsStr, OsString},
    fs::File,
    io::{IsTerminal as _, Write as _},
    num::NonZero,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

/// Arguments of `bench`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Remote or local path; the benchmark creates a directory in it and removes it at the end
    #[arg(value_name = "REMOTE:PATH")]
    path: OsString,
    /// Measure copies from the first path to this one; both are local or mounted directories, on one file system or two
    #[arg(value_name = "DST_DIR")]
    dst: Option<OsString>,
    /// Send and read at most this much in total; between directories, create and copy [default: 1G; 4G between directories]
    #[arg(long, value_name = "SIZE", value_parser = size)]
    max_bytes: Option<Size>,
    /// Measure for at most this long; files are removed after that
    #[arg(long, value_name = "DURATION", value_parser = span, default_value = "5m")]
    max_time: Span,
    /// Try at most this many transfers at once
    #[arg(long, value_name = "N", default_value = "64")]
    max_concurrency: NonZero<usize>,
    /// File sizes, separated by commas; files of 16M or more are sent in parts, but not between directories [default: 100 kB,
    /// 1 MB and a large one; 10 kB and 4 MiB between directories]
    #[arg(long, value_name = "SIZE,...", value_parser = sizes)]
    sizes: Option<Sizes>,
    /// Don't ask before spending bytes and requests
    #[arg(long, short = 'y')]
    yes: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write a self-contained HTML page with plots to this file
    #[arg(long, value_name = "FILE", value_parser = flags::values::path)]
    report: Option<PathBuf>,
}

/// `--sizes`, in bytes.
#[derive(Clone, Debug)]
struct Sizes(Vec<u64>);

fn sizes(text: &str) -> Result<Sizes, String> {
    let one = |text: &str| parse_size(text.trim())?.bytes().ok_or_else(|| "off isn't a file size".to_owned());
    text.split(',').map(one).collect::<Result<_, _>>().map(Sizes)
}

/// `--max-bytes` unless it is given.
const MAX_BYTES: u64 = 1 << 30;
/// `--max-bytes` between two directories, where bytes cost nothing and many are written in a second.
const MAX_BYTES_ACROSS: u64 = 4 << 30;

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    refuse_flags(ctx)?;
    let root = ctx.open(&args.path)?;
    let dst = args.dst.as_deref().map(|dst| open_dst(&*root, dst, ctx)).transpose()?;
    // The root of a remote with buckets: a bucket made for this would be billed to whoever forgot to name one.
    if !root.caps().dirs && root.caps().domain.as_ref().is_some_and(Domain::is_all) {
        return Err(usage(format!("{} is all buckets of the remote: name the one to measure", root.locator())));
    }
    let (name, seed) = fresh_name()?;
    let (folder, source) = (if dst.is_some() { name.clone() + "-to" } else { name.clone() }, name + "-from");
    let plan = match &dst {
        Some(dst) => Plan::between(bounds(&args)?, root.caps().copy_batch.min(dst.caps().copy_batch)),
        None => Plan::new(bounds(&args)?, root.caps()),
    };
    let plan = plan.map_err(usage)?;
    ctx.screen.log(&match &dst {
        Some(dst) => sentences::cost_across(&plan, [root.locator(), dst.locator()], [&source, &folder]),
        None => sentences::cost(&plan, &plan.cost(root.caps()), root.locator(), &folder),
    });
    if !root.caps().files {
        ctx.screen.log(match ctx.session.removes_for_good(&args.path)? {
            true => "What is removed goes for good; its directories may stay in the store's trash, empty.",
            false => "What is removed goes where the store keeps deleted files (a trash, versions), and may count against the quota there.",
        });
    }
    if ctx.flags.config.dry_run {
        return Ok(CommandResult::Done);
    }
    if !args.yes && !consent(ctx).await? {
        return Ok(CommandResult::Done);
    }
    for root in dst.iter().chain([&root]) {
        check_there(root, &folder).await?;
    }
    // Before anything is spent: a report that can't be written is no reason to measure twice.
    let report = args.report.as_deref().map(open_report).transpose()?;

    let across =
        dst.map(|dst| BetweenFolders { to: crate::error::one_line(dst.locator()), alone: alone(&*root, &*dst) });
    let source = across.as_ref().map(|across| (&*source, across.alone));
    let bench = bench(&args, ctx, &plan, (&folder, source), seed)?;
    let (measured, uncleared) = haul_bench::run(&bench, &plan).await;
    ctx.screen.finish();
    for (place, error) in &uncleared {
        tracing::error!(
            "not all of {place} could be removed: {} (remove it with haul purge {place})",
            error_text(error)
        );
    }
    if !uncleared.is_empty() && measured.is_ok() {
        return Ok(CommandResult::Exit(code::OTHER));
    }
    if ctx.cancel.is_cancelled() {
        return Ok(CommandResult::Exit(code::INTERRUPTED));
    }
    let remote = crate::error::one_line(root.locator());
    let at = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z").to_string();
    let found = Findings::new(remote, folder, measured?, cores(), at);
    let found = match across {
        Some(across) => found.between(across),
        None => found,
    };
    if let Some(mut file) = report {
        let path = args.report.as_deref().unwrap_or(OsStr::new("").as_ref()).display();
        let written = file.set_len(0).and_then(|()| file.write_all(page::html(&found).as_bytes()));
        written.and_then(|()| file.sync_all()).with_context(|| format!("can't write {path}"))?;
    }
    print::text(&if args.json { json::text(&found)? } else { text(&found, args.report.is_none()) })?;
    Ok(CommandResult::Done)
}

/// The other directory.
///
/// Errors: one of the two is no local or mounted directory.
fn open_dst(root: &dyn Store, dst: &OsStr, ctx: &Context) -> Result<Arc<dyn Store>> {
    let dst = ctx.open(dst)?;
    let place = match (root.caps().files, dst.caps().files) {
        (false, _) => root.locator(),
        (true, false) => dst.locator(),
        (true, true) => return Ok(dst),
    };
    Err(usage(format!("with two paths bench copies between local or mounted directories: measure {place} by itself")))
}

/// Copies at once that haul makes between two directories by itself, and a rank of haul-mpi too.
fn alone(src: &dyn Store, dst: &dyn Store) -> usize {
    src.caps().concurrency.max(dst.caps().concurrency)
}

/// Rejects flags that a bench sets itself or has no use for, which would be silently ignored.
fn refuse_flags(ctx: &Context) -> Result<()> {
    let flags = &ctx.flags;
    let fixed = [
        ("--transfers", flags.pace.transfers.is_some()),
        ("--checkers", flags.pace.checkers.is_some()),
        ("--multi-thread-streams", flags.copy.multi_thread_streams.is_some()),
        ("--multi-thread-cutoff", flags.copy.multi_thread_cutoff.is_some()),
        ("--multi-thread-chunk-size", flags.copy.multi_thread_chunk_size.is_some()),
    ];
    if let Some((name, _)) = fixed.iter().find(|(_, given)| *given) {
        return Err(usage(format!("bench finds out what suits, so it takes no {name}: leave it out")));
    }
    if !Filter::new(flags::filter(flags)?).map_err(usage)?.is_all() {
        return Err(usage("bench makes its own files and takes no filter: leave it out"));
    }
    Ok(())
}

fn bounds(args: &Args) -> Result<Bounds> {
    let usual = if args.dst.is_some() { MAX_BYTES_ACROSS } else { MAX_BYTES };
    let max_bytes = args.max_bytes.map_or(Some(usual), |size| size.bytes());
    let max_bytes = max_bytes.ok_or_else(|| usage("--max-bytes must be a size: bench is always bounded"))?;
    let max_time = args.max_time.0.ok_or_else(|| usage("--max-time must be a duration: bench is always bounded"))?;
    let sizes = args.sizes.as_ref().map(|sizes| sizes.0.clone());
    Ok(Bounds { max_bytes, max_time, max_at_once: args.max_concurrency.get(), sizes })
}

/// A name that nobody uses, and a seed.
fn fresh_name() -> Result<(String, u64)> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let (mut name, mut seed) = ([0; 8], [0; 8]);
    if rand::fill(&mut name).is_err() || rand::fill(&mut seed).is_err() {
        bail!("the system gives no random numbers");
    }
    let name: String = name.iter().map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()])).collect();
    Ok((format!("haul-bench-{name}"), u64::from_le_bytes(seed)))
}

/// Asks on the terminal; only a clear yes is one. Ctrl-C is a no.
async fn consent(ctx: &Context) -> Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Err(usage(
            "bench transfers data, which may cost money, and can't ask without a terminal: allow it with --yes",
        ));
    }
    Ok(prompt::yes("Continue?", &ctx.cancel).await.unwrap_or(false))
}

/// A mistyped path must not be made, measured and left behind.
async fn check_there(root: &Arc<dyn Store>, folder: &str) -> Result<()> {
    // Where there are no directories, only the bucket must be there: an empty listing of what will be made proves that.
    let below = if root.caps().dirs { String::new() } else { format!("{folder}/") };
    let mut steps = root.list(ListRequest { limit: Some(1), ..ListRequest::dir(below) });
    match steps.next().await {
        Some(Listed::Failed { error, .. }) => Err(error.into()),
        _ => Ok(()),
    }
}

fn open_report(path: &Path) -> Result<File> {
    let file = File::options().create(true).write(true).truncate(false).open(path);
    file.with_context(|| format!("can't write {}", path.display()))
}

/// The path as typed, with something below it.
fn place(typed: &OsStr, below: &str) -> OsString {
    let mut place = typed.as_bytes().to_vec();
    if !matches!(place.last(), None | Some(b'/' | b':')) {
        place.push(b'/');
    }
    place.extend_from_slice(below.as_bytes());
    OsString::from_vec(place)
}

/// A directory of a bench's own, and one in it for each class.
type BenchDirs = (Arc<dyn Store>, Vec<Arc<dyn Store>>);

/// `folder` is its own; `source` that in the first of two directories, and how many copies at once suit.
fn bench(
    args: &Args,
    ctx: &Context,
    plan: &Plan,
    (folder, source): (&str, Option<(&str, usize)>),
    seed: u64,
) -> Result<Bench> {
    if source.is_some() {
        // Else no more would be under way than haul takes to be good for this machine.
        disk::widen(plan.bounds.max_at_once);
    }
    let options = OpenOptions { for_good: true, ..ctx.open_options() };
    let open = |path: &OsStr, folder: &str| -> Result<BenchDirs> {
        let below = |class: &Class| ctx.open_as(&place(path, &format!("{folder}/{}", class.folder())), &options);
        Ok((ctx.open_as(&place(path, folder), &options)?, plan.classes.iter().map(below).collect::<Result<_>>()?))
    };
    let source = match source {
        Some((folder, alone)) => {
            let (root, folders) = open(&args.path, folder)?;
            Some(Source { root, folders, alone })
        }
        None => None,
    };
    let (root, folders) = open(args.dst.as_ref().unwrap_or(&args.path), folder)?;
    let given = flags::job(&ctx.flags)?;
    let job = Job::default().with(|job| {
        job.pace.file_retries = given.pace.file_retries;
        job.pace.retries_sleep = given.pace.retries_sleep;
        job.limits.memory = given.limits.memory;
    });
    let (screen, live) = (ctx.screen.clone(), !args.json);
    Ok(Bench {
        root,
        folders,
        source,
        job,
        meters: ctx.meters.clone(),
        cancel: ctx.cancel.clone(),
        cpu_time,
        cores: cores(),
        seed,
        watch: Box::new(move |step: &Progress| {
            let line = sentences::step(step);
            tracing::info!("{line}");
            if live {
                screen.draw(vec![line]);
            }
        }),
    })
}

/// CPU time of this process, all threads.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

fn text(found: &Findings, mention_report: bool) -> String {
    let mut text = table::text(&found.measured.sweeps);
    text.push('\n');
    for line in sentences::sentences(found) {
        text.push_str(&line);
        text.push('\n');
    }
    if mention_report {
        text.push_str("--report FILE.html writes this with plots.\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_below_what_was_typed() {
        for (typed, want) in [
            ("r:bucket", "r:bucket/x"),
            ("r:bucket/", "r:bucket/x"),
            ("r:", "r:x"),
            ("/tmp/a", "/tmp/a/x"),
            ("/", "/x"),
            (":s3,provider=Minio:b/c", ":s3,provider=Minio:b/c/x"),
        ] {
            assert_eq!(place(OsStr::new(typed), "x"), want);
        }
    }

    #[test]
    fn names_are_fresh() {
        let (a, b) = (fresh_name().unwrap(), fresh_name().unwrap());
        assert!(a.0 != b.0 && a.1 != b.1);
        assert_eq!(a.0.len(), "haul-bench-".len() + 8);
    }

    #[test]
    fn sizes_are_read() {
        assert_eq!(sizes("100k, 1M,7B").unwrap().0, [102_400, 1 << 20, 7]);
        assert!(sizes("1M,off").is_err() && sizes("1M,,2M").is_err());
    }
}
