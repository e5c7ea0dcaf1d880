//! `hashsum`: hashes of files, and checking files against them.

use super::{
    hash_sums::{self, hashes},
    listing::{Failures, Source, depth},
};
use crate::{
    context::Context,
    error::{CommandResult, usage},
    show::out::{Output, quiet},
};
use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use futures::StreamExt;
use haul::ListOptions;
use haul_core::{Algo, Hasher, hash::to_hex};
use std::{
    ffi::OsString,
    fs::File,
    io::{BufWriter, Read, Write},
    path::PathBuf,
};

/// Bytes of standard input hashed at a time.
const BLOCK: usize = 1 << 20;

/// Print hashes of the files in a path, as md5sum does
///
/// Without a path hashes standard input; without a hash lists those that there are.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Type of hash
    #[arg(value_name = "HASH")]
    hash: Option<String>,
    /// Remote or local path; - for standard input
    #[arg(value_name = "REMOTE:PATH")]
    path: Option<OsString>,
    /// How to print.
    #[command(flatten)]
    how: HashsumOptions,
}

/// How to print hashes.
#[derive(clap::Args, Debug)]
pub struct HashsumOptions {
    /// Print hashes in base64
    #[arg(long)]
    base64: bool,
    /// Check the files against this file of hashes instead
    #[arg(long, short = 'C', value_name = "FILE")]
    checkfile: Option<OsString>,
    /// Read the files and hash them instead of asking the store
    #[arg(long)]
    download: bool,
    /// Print to this file
    #[arg(long, value_name = "FILE")]
    output_file: Option<PathBuf>,
}

/// Runs it.
pub async fn run(args: Args, ctx: &Context) -> Result<CommandResult> {
    let Some(name) = &args.hash else {
        return quiet(list());
    };
    let algo: Algo = name.parse().map_err(usage)?;
    of(algo, args.path, args.how, ctx).await
}

/// Prints, or checks, hashes of one kind.
pub async fn of(algo: Algo, path: Option<OsString>, how: HashsumOptions, ctx: &Context) -> Result<CommandResult> {
    let path = path.filter(|p| p != "-");
    quiet(match (path, &how.checkfile) {
        (None, _) => input(algo, &how).await,
        (Some(path), Some(file)) => {
            let combined = super::file_lists::Lists::combined_to_output();
            let how = hash_sums::SumsOptions {
                download: how.download,
                lists: Some(&combined),
                ..hash_sums::SumsOptions::default()
            };
            hash_sums::check(algo, &path, file, how, ctx).await
        }
        (Some(path), None) => print(algo, path, &how, ctx).await,
    })
}

fn list() -> Result<CommandResult> {
    let names: String = Algo::ALL.iter().map(|a| format!("- {a}\n")).collect();
    let mut out = Output::stdout();
    out.bytes(format!("Supported hashes are:\n{names}").as_bytes())?;
    out.flush()?;
    Ok(CommandResult::Done)
}

async fn print(algo: Algo, path: OsString, how: &HashsumOptions, ctx: &Context) -> Result<CommandResult> {
    let source = Source::open(ctx, &path).await?;
    if !how.download && !supported(algo, &source).await? {
        bail!("{}: the store keeps no {algo} hashes: use --download to read the files", source.store.locator());
    }
    let mut out = Target::open(how)?;
    let entries = source.entries(ListOptions { max_depth: depth(&ctx.flags, true), ..Default::default() });
    let mut sums = hashes(&source, entries, algo, how.download, ctx.known().hashes);
    let mut failures = Failures::default();
    while let Some(sum) = sums.next().await {
        let Some((entry, value)) = failures.keep(sum) else { continue };
        let column = column(algo, value.as_deref(), how);
        match hash_sums::escaped(entry.key.stored()) {
            Some(name) => out.line(&format!("\\{column}"), &name)?,
            None => out.line(&column, entry.key.stored())?,
        }
    }
    out.finish()?;
    failures.finish()?;
    Ok(CommandResult::Done)
}

/// The hash in its column with two spaces after it; blank where the store has none for this file.
fn column(algo: Algo, value: Option<&[u8]>, how: &HashsumOptions) -> String {
    let text = value.map_or(String::new(), |value| encode(value, how.base64));
    let width = encode(&vec![0; algo.size()], how.base64).len();
    format!("{text:>width$}  ")
}

async fn supported(algo: Algo, source: &Source) -> Result<bool> {
    let caps = source.store.caps();
    let keeps = caps.cheap_reads || caps.hashes_listed.contains(&algo) || caps.hashes_stored.contains(&algo);
    Ok(keeps || haul::hash::computed_there(&source.store).await?.contains(&algo))
}

fn encode(value: &[u8], base64: bool) -> String {
    if base64 { base64::engine::general_purpose::URL_SAFE.encode(value) } else { to_hex(value) }
}

/// Hashes standard input.
async fn input(algo: Algo, how: &HashsumOptions) -> Result<CommandResult> {
    let hash = move || -> std::io::Result<_> {
        let (mut hasher, mut buffer) = (Hasher::new(&[algo]), vec![0; BLOCK]);
        let mut stdin = std::io::stdin().lock();
        loop {
            match stdin.read(&mut buffer)? {
                0 => return Ok(hasher.finish()),
                got => hasher.update(&buffer[..got]),
            }
        }
    };
    let hashes = tokio::task::spawn_blocking(hash).await?.context("can't read standard input")?;
    let mut out = Target::open(how)?;
    out.line(&format!("{}  ", encode(hashes.get(algo).unwrap_or_default(), how.base64)), b"-")?;
    out.finish()?;
    Ok(CommandResult::Done)
}

/// Where hashes go.
enum Target {
    Stdout(Output),
    File(BufWriter<File>, PathBuf),
}

impl Target {
    fn open(how: &HashsumOptions) -> Result<Target> {
        let Some(path) = &how.output_file else { return Ok(Target::Stdout(Output::stdout())) };
        #[expect(clippy::disallowed_methods, reason = "a file that the user named for output")]
        let file = File::create(path).with_context(|| format!("can't write {}", path.display()))?;
        Ok(Target::File(BufWriter::new(file), path.clone()))
    }

    fn line(&mut self, text: &str, key: &[u8]) -> Result<()> {
        match self {
            Target::Stdout(out) => out.line(text, key),
            Target::File(file, path) => {
                let line = [text.as_bytes(), key, b"\n"].concat();
                file.write_all(&line).with_context(|| format!("can't write {}", path.display()))
            }
        }
    }

    fn finish(&mut self) -> Result<()> {
        match self {
            Target::Stdout(out) => out.flush(),
            Target::File(file, path) => file.flush().with_context(|| format!("can't write {}", path.display())),
        }
    }
}
