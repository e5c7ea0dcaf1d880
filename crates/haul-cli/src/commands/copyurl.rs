//! `copyurl`: files at URLs.

use super::existing_file::may_replace;
use crate::{
    context::Context,
    error::{CommandResult, code, error_text, usage},
    flags, print,
    show::out::{Output, quiet},
};
use anyhow::{Context as _, Result, anyhow};
use futures::{StreamExt, stream::BoxStream};
use haul::{Report, pipe};
use haul_core::{
    Error, ErrorKind, Key, Mtime, Retry,
    job::{CompareBy, Job, Verb},
    plan::Replace,
    text::csv,
};
use haul_remotes::address::{Address, Addresses, Content, UrlFacts};
use haul_store::{Store, WriteSpec};
use jiff::Timestamp;
use std::{collections::BTreeMap, ffi::OsString, fs::File, io::Read as _, sync::Arc};

/// What is copied where.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Address; with --urls, a CSV file with an address and an optional path on each line
    #[arg(value_name = "URL")]
    url: OsString,
    /// Destination file; a directory with --auto-filename or --urls; - is standard output
    #[arg(value_name = "DEST:PATH")]
    dest: Option<OsString>,
    /// Take the file name from the address, after all redirections
    #[arg(long, short = 'a')]
    auto_filename: bool,
    /// With --auto-filename, take the name from the server's Content-Disposition header
    #[arg(long)]
    header_filename: bool,
    /// Print the name chosen by --auto-filename
    #[arg(long, short = 'p')]
    print_filename: bool,
    /// Never replace a file
    #[arg(long)]
    no_clobber: bool,
    /// Write to standard output
    #[arg(long)]
    stdout: bool,
    /// Treat URL as a CSV file of addresses; an entry without a path is named after its address
    #[arg(long)]
    urls: bool,
}

/// One file that is wanted.
struct UrlFile {
    url: String,
    /// Its name; `None` asks the address or the server.
    name: Option<Key>,
}

/// Files that are found out to be read in parts, and what went wrong with others.
#[derive(Default)]
struct Gathered {
    files: BTreeMap<Key, Box<Address>>,
    report: Report,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let to_stdout = args.stdout || args.dest.as_ref().is_some_and(|dest| dest == "-");
    if to_stdout && args.urls {
        return Err(usage("--stdout and --urls can't be used together"));
    }
    if args.print_filename && args.urls {
        return Err(usage("--print-filename and --urls can't be used together"));
    }
    if to_stdout {
        return quiet(to_output(&address(&args.url)?, ctx).await);
    }
    let Some(dest) = args.dest.clone() else { return Err(usage("where to? Type DEST:PATH, or --stdout")) };
    let named = !args.urls && !args.auto_filename;
    let (dst, name) = if named {
        let (dst, key) = ctx.open_parent(&dest)?;
        (dst, Some(key))
    } else {
        (ctx.open(&dest)?, None)
    };
    let wanted = if args.urls { listed(&args.url)? } else { vec![UrlFile { url: address(&args.url)?, name }] };
    let alone = wanted.len() == 1;
    let at_once = ctx.flags.pace.transfers.unwrap_or(haul::questions(&*dst)).max(1);
    let mut gathered = Gathered::default();
    let found = futures::stream::iter(wanted).map(|wanted| {
        let (args, dst) = (&args, &dst);
        async move {
            let url = wanted.url.clone();
            (url, one(wanted, alone, args, ctx, dst).await)
        }
    });
    let mut found = found.buffer_unordered(at_once).boxed();
    let mut last = None;
    loop {
        let next = tokio::select! {
            biased;
            () = ctx.cancel.cancelled() => return Ok(CommandResult::Exit(code::INTERRUPTED)),
            next = found.next() => next,
        };
        let Some((url, outcome)) = next else { break };
        match outcome {
            Ok((key, file)) => {
                last = Some(key.clone());
                if file.is_some_and(|file| gathered.files.insert(key.clone(), file).is_some()) {
                    let message = "two addresses have this name: give one of them another in the CSV file";
                    gathered.fail(Error::new(ErrorKind::Exists, "copy", message).with_key(&key));
                }
            }
            Err(error) if alone => return Err(error.into()),
            Err(error) => {
                tracing::error!("{}: {}", without_query(&url), error_text(&error));
                gathered.report.error(Arc::new(error));
            }
        }
    }
    drop(found);
    let Gathered { files, mut report } = gathered;
    if let Some(src) = Addresses::new(files) {
        let src = ctx.session.layered(Arc::new(src));
        let cx = super::job::cx(ctx, &ctx.open_options(), src, dst.clone(), &dest)?;
        report.add(haul::run(job(ctx)?, cx).await);
    }
    if let Some(name) = last.filter(|_| args.print_filename && args.auto_filename && report.is_ok()) {
        print::line(&name.display())?;
    }
    Ok(CommandResult::Job(Box::new(report)))
}

impl Gathered {
    fn fail(&mut self, error: Error) {
        tracing::error!("{}", error_text(&error));
        self.report.error(Arc::new(error));
    }
}

/// The file is transferred whatever the destination has, unless flags compare.
fn job(ctx: &Context) -> Result<Job> {
    let mut job = flags::job(&ctx.flags)?;
    job.verb = Verb::Copy;
    job.listing.no_traverse = true;
    if job.compare.by == CompareBy::SizeAndTime && !job.existing.update {
        job.compare.by = CompareBy::Never;
    }
    Ok(job)
}

/// Finds out what is at an address. What can only be read once is written now; a file that can be read in parts is given back.
async fn one(
    wanted: UrlFile,
    alone: bool,
    args: &Args,
    ctx: &Context,
    dst: &Arc<dyn Store>,
) -> Result<(Key, Option<Box<Address>>), Error> {
    let mut tries = ctx.flags.pace.retries.max(1);
    loop {
        let found = find(&wanted.url, ctx).await?;
        let key = match &wanted.name {
            Some(key) => key.clone(),
            None => name(&found, args)?,
        };
        if args.no_clobber && exists(dst, &key).await? {
            let message = "is there already, and --no-clobber keeps it";
            return Err(Error::new(ErrorKind::Exists, "copy", message).with_key(&key));
        }
        let (mtime, size) = (found.mtime, found.size);
        let stream = match found.content(alone)? {
            Content::File(file) => return Ok((key, Some(file))),
            Content::Stream(stream) => stream,
        };
        let Some(replace) = may_replace(ctx, dst, &key).await? else { return Ok((key, None)) };
        let replace = if args.no_clobber && dst.caps().conditional { Replace::Absent } else { replace };
        tries -= 1;
        match write(ctx, dst, &key, (mtime, size, replace), stream).await {
            Err(error) if tries > 0 && error.retry() != Retry::Never => {
                tracing::info!("{key}: {}: trying again", error_text(&error));
            }
            written => return written.map(|()| (key, None)),
        }
    }
}

async fn write(
    ctx: &Context,
    dst: &Arc<dyn Store>,
    key: &Key,
    (mtime, size, replace): (Option<Mtime>, Option<u64>, Replace),
    stream: BoxStream<'static, Result<bytes::Bytes, Error>>,
) -> Result<(), Error> {
    let mtime = mtime.or(Some(Mtime(Timestamp::now().as_nanosecond())));
    let spec = WriteSpec { size, mtime, replace, inplace: ctx.flags.copy.inplace, ..Default::default() };
    pipe::write(dst, key, spec, stream).await?;
    tracing::info!("{key}: Copied (new)");
    Ok(())
}

/// Asks for what is at an address, again where that may help.
async fn find(url: &str, ctx: &Context) -> Result<UrlFacts, Error> {
    let mut tries = ctx.flags.pace.retries.max(1);
    loop {
        tries -= 1;
        match ctx.session.find(url).await {
            Err(error) if tries > 0 && error.retry() != Retry::Never => {
                tracing::info!("{}: {}: trying again", without_query(url), error_text(&error));
                tokio::time::sleep(ctx.flags.pace.retries_sleep.0.unwrap_or_default()).await;
            }
            found => return found,
        }
    }
}

fn name(found: &UrlFacts, args: &Args) -> Result<Key, Error> {
    let (name, where_) = match args.header_filename {
        true => (&found.file_name, "the server gives no file name (Content-Disposition)"),
        false => (&found.name, "the address ends in no file name"),
    };
    let error = || Error::new(ErrorKind::Invalid, "copy", format!("{where_}: give it one"));
    name.as_ref().map(|name| Key::new(name.as_bytes())).ok_or_else(error)
}

async fn exists(dst: &Arc<dyn Store>, key: &Key) -> Result<bool, Error> {
    match dst.stat(key).await {
        Ok(_) => Ok(true),
        Err(e) if e.is_missing() => Ok(false),
        Err(error) => Err(error),
    }
}

/// The bytes on standard output.
async fn to_output(url: &str, ctx: &Context) -> Result<CommandResult> {
    let mut out = Output::of_content();
    let mut stream = find(url, ctx).await?.stream()?;
    while let Some(piece) = stream.next().await {
        out.bytes(&piece?)?;
    }
    out.flush()?;
    Ok(CommandResult::Done)
}

fn address(typed: &OsString) -> Result<String> {
    let url = typed.to_str().ok_or_else(|| usage("a URL is UTF-8"))?;
    match url.split_once("://") {
        Some((scheme, _)) if ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) => {
            Ok(url.to_owned())
        }
        _ => Err(usage(format!("{:?} isn't an http:// or https:// URL", without_query(url)))),
    }
}

/// The addresses of a CSV file, each with a path, or without one.
fn listed(file: &OsString) -> Result<Vec<UrlFile>> {
    let mut text = String::new();
    let read = File::open(file).and_then(|mut file| file.read_to_string(&mut text));
    read.with_context(|| format!("can't read {}", file.display()))?;
    let rows = text.lines().map(csv).filter(|row| row.first().is_some_and(|url| !url.is_empty()));
    let wanted = rows.map(|row| {
        let path = row.get(1).map(|path| path.trim_matches('/')).filter(|path| !path.is_empty());
        if path.is_some_and(|path| path.split('/').any(|part| matches!(part, "" | "." | ".."))) {
            return Err(anyhow!("{}: {:?} can't be a path", file.display(), row[1]));
        }
        Ok(UrlFile { url: row[0].trim().to_owned(), name: path.map(|path| Key::new(path.as_bytes())) })
    });
    wanted.collect()
}

/// An address as it may be shown: a query may hold a secret.
fn without_query(url: &str) -> &str {
    let end = url.find(['?', '#']).unwrap_or(url.len());
    let shown = &url[..end];
    shown.rsplit_once('@').map_or(shown, |(_, after)| after)
}
