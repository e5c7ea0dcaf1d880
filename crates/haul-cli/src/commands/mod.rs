//! The commands: one file each, with `Args` (as typed) and `run`.

pub mod about;
mod authorize;
pub mod bench;
pub mod cat;
pub mod check;
pub mod checksum;
pub mod cleanup;
pub mod completion;
pub mod config;
pub mod copy;
pub mod copyto;
#[cfg(feature = "http")]
pub mod copyurl;
pub mod cryptcheck;
pub mod cryptdecode;
pub mod dcp;
pub mod dedupe;
pub mod delete;
pub mod deletefile;
pub mod dvc;
mod events;
pub mod far;
pub mod fleet;
pub mod generate;
pub mod hashsum;
pub mod help;
pub mod job;
pub mod jobs;
pub mod link;
pub mod listremotes;
pub mod ls;
pub mod lsd;
pub mod lsf;
pub mod lsjson;
pub mod lsl;
pub mod md5sum;
pub mod mkdir;
pub mod moveto;
pub mod mv;
#[cfg(feature = "ncdu")]
pub mod ncdu;
pub mod obscure;
pub mod purge;
pub mod rcat;
pub mod resume;
pub mod rmdir;
pub mod rmdirs;
pub mod rsync;
pub mod sbatch;
pub mod settier;
pub mod sha1sum;
pub mod size;
pub mod snapshot;
pub mod status;
pub mod sync;
pub mod touch;
pub mod tree;
pub mod version;

mod deleting;
mod existing_file;
mod file_lists;
mod hash_sums;
mod item;
mod listing;

use crate::{context::Context, error::CommandResult};
use anyhow::Result;

/// What to do. Help shows the first line of each command's description.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Show total, used and free space
    ///
    /// For a local path, shows the space of its file system. S3 has no quota, so the command fails there: use size.
    About(about::Args),
    Authorize(authorize::Args),
    /// Measure the speed of a remote, or between two directories, and suggest settings
    ///
    /// Sends files of several sizes, made in memory, with 1, 2, 4, … concurrent transfers, reads them back, compares every byte,
    /// and removes them. Asks before it spends anything; --max-bytes and --max-time limit it. Shows speed-up and efficiency, the
    /// point where more transfers stop helping, and what limits them there. Ctrl-C removes the files it sent.
    ///
    /// With two directories, creates files in one and copies them to the other, 1, 2, 4, … at once. Shows how many copies at once
    /// the file system takes, and how many ranks of haul-mpi that means.
    ///
    /// Example: haul bench minio:backup
    ///
    /// Example: haul bench --yes --max-bytes 200M --max-time 1m --report bench.html minio:backup
    ///
    /// Example: haul bench --sizes 6500B,1M,64M --max-concurrency 128 --json --yes minio:backup
    ///
    /// Example: haul bench --max-bytes 20G /scratch/me /project/me
    Bench(bench::Args),
    /// Print the content of files
    ///
    /// Prints all files of a path that pass the filter, one after another. Exits with 3 if the path doesn't exist, as rclone does.
    Cat(cat::Args),
    /// Compare source and destination; change nothing
    ///
    /// Compares sizes and hashes; with --size-only only sizes, with --download the content. Exits with 1 if there is a difference.
    /// With --checkfile, SOURCE is a file of hashes, as in haul checksum.
    ///
    /// Example: haul check ~/photos minio:backup/photos --combined -
    Check(check::Args),
    /// Check files against a file of hashes, as written by sha256sum
    ///
    /// Exits with 1 if a file differs, is missing, or has no hash in SUMFILE (--one-way ignores files without one).
    ///
    /// Example: haul checksum sha256 SHA256SUMS minio:backup/photos
    Checksum(checksum::Args),
    /// Compare files with their copies on an encrypted remote, without downloading the copies
    ///
    /// Reads the source, encrypts it as the copy was encrypted, and compares the hash with the one that the other store reports.
    ///
    /// Example: haul cryptcheck ~/papers secret:papers
    Cryptcheck(cryptcheck::Args),
    /// Print the plain names behind encrypted ones
    ///
    /// Example: haul cryptdecode secret: p0e52nreeaj0a5ea7s64m4j72s
    Cryptdecode(cryptdecode::Args),
    /// Remove unfinished uploads that are older than a day
    ///
    /// On S3, the parts of unfinished uploads are stored, and cost money, until they are removed. On a local path, removes the
    /// hidden files that a killed run left. --dry-run shows what would be removed.
    Cleanup(cleanup::Args),
    /// Print a shell's completion script
    Completion(completion::Args),
    /// Show and change the configuration
    Config(config::Args),
    /// Copy new and changed files; never delete
    ///
    /// Copies the contents of SOURCE into DEST, as rsync does for a source with a trailing slash. If SOURCE is a file, it is copied
    /// into DEST under its own name.
    ///
    /// Example: haul copy -P ~/photos minio:backup/photos
    Copy(copy::Args),
    /// Copy one file to a new name
    ///
    /// If SOURCE is a directory, this is the same as copy.
    ///
    /// Example: haul copyto report.pdf minio:docs/2026/final.pdf
    Copyto(copyto::Args),
    /// Copy the file at a URL
    ///
    /// Accepts any http:// or https:// URL, including a query. Downloads several parts of a large file at once if the server can
    /// send parts. Replaces an existing file unless --no-clobber is given.
    ///
    /// Example: haul copyurl -P https://example.com/data/set.tar minio:data/set.tar
    ///
    /// Example: haul copyurl -a https://example.com/data/set.tar minio:data
    #[cfg(feature = "http")]
    Copyurl(copyurl::Args),
    /// Copy as dcp of mpiFileUtils does, on this node
    ///
    /// Uses dcp's own options and cp's rule: copies into DEST if that is a directory, otherwise as DEST.
    ///
    /// Example: haul dcp -p /scratch/run42 /project/run42
    #[command(disable_help_flag = true)]
    Dcp(dcp::Args),
    Dedupe(dedupe::Args),
    /// Delete the files in a path
    ///
    /// Deletes files that pass the filter, and keeps directories. To delete a path and everything in it, use purge.
    Delete(delete::Args),
    /// Delete one file
    ///
    /// Ignores the filter, and never deletes a directory.
    Deletefile(deletefile::Args),
    /// Work in a DVC repository: status, add, push, pull, fetch, checkout, gc
    ///
    /// Compatible with dvc: same files, remotes and arguments. docs/dvc.md explains it.
    ///
    /// Example: haul dvc status -c
    ///
    /// Example: haul -P dvc pull -r backup data
    Dvc(dvc::Args),
    /// Serve a directory to a haul on another machine
    ///
    /// The other haul starts it through ssh or any other command that reaches this machine, and talks to it on standard input and
    /// output. With --root it can be the command= of a key in ~/.ssh/authorized_keys.
    ///
    /// Example: haul copy ~/photos ":far,command='ssh nas haul far':photos"
    Far(far::Args),
    /// Run one job with many workers, on any number of machines
    ///
    /// The job is a directory in a store that all workers see. Any scheduler that can run copies of one command can start workers.
    /// docs/clusters.md has scripts for Slurm, Kubernetes, Ray, Dask and a list of hosts.
    ///
    /// Example: haul fleet create s3:old/data gcs:new/data --sync --at s3:jobs/move-1
    ///
    /// Example: srun -n 16 haul fleet work s3:jobs/move-1
    ///
    /// Example: haul fleet report s3:jobs/move-1
    Fleet(fleet::Args),
    /// Write the reference and the man pages
    #[command(hide = true)]
    Generate(generate::Args),
    /// Print hashes of files
    ///
    /// Prints a hash, two spaces and a name on each line, as md5sum does. Without HASH, lists the supported types.
    Hashsum(hashsum::Args),
    /// Show help on commands and flags
    Help(help::Args),
    /// List interrupted jobs, and clean up after them
    ///
    /// Lists jobs that were killed or stopped while transferring large files. To continue one, run the same command again, or haul
    /// resume.
    Jobs(jobs::Args),
    /// Print a public link to a file
    ///
    /// On S3, prints a signed link that is valid for at most a week.
    Link(link::Args),
    /// List the configured remotes
    Listremotes(listremotes::Args),
    /// List files with their sizes
    ///
    /// Recurses; --max-depth 1 shows the top level only.
    Ls(ls::Args),
    /// List directories or buckets
    ///
    /// Lists the buckets of a remote, or the directories of a path; --max-depth or -R goes deeper.
    Lsd(lsd::Args),
    /// List a path for scripts
    ///
    /// The format is a row of letters: p path, s size, t modification time, h hash, i id, o original id, m media
    /// type, e encrypted name, T tier, M metadata.
    ///
    /// Example: haul lsf -R --format pst --csv minio:backup
    Lsf(lsf::Args),
    /// List a path as JSON
    Lsjson(lsjson::Args),
    /// List files with their sizes and times
    ///
    /// Recurses; --max-depth 1 shows the top level only. If the store's listings don't include the stored time, haul requests it
    /// for each file; --use-server-modtime avoids that.
    Lsl(lsl::Args),
    /// Print MD5 hashes of files
    Md5sum(md5sum::Args),
    /// Create a directory or bucket
    Mkdir(mkdir::Args),
    /// Copy, then delete each source file whose copy is verified
    ///
    /// On one disk, files are renamed, not copied.
    #[command(name = "move")]
    Mv(mv::Args),
    /// Move one file to a new name
    Moveto(moveto::Args),
    /// Browse the sizes of directories on the terminal
    ///
    /// Shows sizes while the scan is running; press ? for a list of keys. Deletes only after you confirm with y.
    ///
    /// Example: haul ncdu minio:backup
    #[cfg(feature = "ncdu")]
    Ncdu(ncdu::Args),
    /// Obscure a password for the config file
    Obscure(obscure::Args),
    /// Delete a path and everything in it
    ///
    /// Ignores filters, so it refuses to run with one: use delete for that.
    Purge(purge::Args),
    /// Write standard input to a file
    ///
    /// An interrupted write can't be resumed, because a pipe can't be read twice.
    ///
    /// Example: tar c project | haul rcat minio:backup/project.tar
    Rcat(rcat::Args),
    /// Resume an interrupted job
    ///
    /// Runs the command that haul jobs shows, in the directory where it was started. Files and parts of large files that were
    /// already transferred aren't sent again.
    Resume(resume::Args),
    /// Delete an empty directory or bucket
    Rmdir(rmdir::Args),
    /// Delete empty directories below a path
    Rmdirs(rmdirs::Args),
    /// Copy and synchronise with rsync's options and rules
    ///
    /// Uses rsync's own options, trailing-slash rule, filter rules and exit codes.
    ///
    /// Example: haul rsync -a --delete ~/photos/ /mnt/backup/photos/
    #[command(disable_help_flag = true)]
    Rsync(rsync::Args),
    /// Write the script that runs a command as a Slurm job
    ///
    /// Prints the script. The job runs one task on each node, gets SIGTERM two minutes before its time limit, and is queued again
    /// if the command can continue. With several nodes, dcp becomes haul-mpi dcp, and fleet work runs one worker per node.
    ///
    /// Example: haul sbatch --nodes 4 dcp -p /scratch/run42 /project/run42 > job.sh
    Sbatch(sbatch::Args),
    /// Change the storage class of files
    ///
    /// Changes the file at REMOTE:PATH, or the files in it that pass the filter. Files in an archive class can't be read until they
    /// are restored.
    ///
    /// Example: haul settier STANDARD_IA s3:bucket/2020 --min-age 90d
    Settier(settier::Args),
    /// Print SHA-1 hashes of files
    Sha1sum(sha1sum::Args),
    /// Show the number of files in a path and their total size
    Size(size::Args),
    /// Keep versions of directories on a remote: push, pull, list, check, diff, forget, gc
    ///
    /// Identical content is stored once, named by its MD5. docs/versions.md explains it.
    ///
    /// Example: haul snapshot push ~/data minio:backup/versions
    ///
    /// Example: haul snapshot pull minio:backup/versions data@3f9a ~/data
    Snapshot(snapshot::Args),
    /// Show what a copy or sync would do; change nothing
    ///
    /// Lists new files, changed files and why they changed and, with --sync, extra files at DEST. Accepts the flags of copy and
    /// sync. Exits with 0 if there is nothing to do, 1 if there are differences, another code after errors.
    ///
    /// Example: haul status ~/photos minio:backup/photos
    ///
    /// Example: haul status --sync --json ~/photos minio:backup/photos
    Status(status::Args),
    /// Make the destination equal to the source; delete extra files
    ///
    /// Try it with --dry-run first. Deletes extra files after the last transfer, and deletes nothing after an error or if the
    /// source is empty.
    ///
    /// Example: haul sync --dry-run ~/photos minio:backup/photos
    Sync(sync::Args),
    /// Set times of files, or create an empty file
    ///
    /// For a directory, sets the times of the files in it; with --recursive, also of files in subdirectories.
    Touch(touch::Args),
    /// Show a path as a tree
    Tree(tree::Args),
    /// Show the version
    Version(version::Args),
}

impl Command {
    /// True for jobs: Ctrl-C signals them, and they end in their own order. Other commands are dropped.
    pub fn finishes_itself(&self) -> bool {
        use Command::{Bench, Copy, Copyto, Dcp, Dvc, Moveto, Mv, Rcat, Rsync, Sync};
        if let Dvc(args) = self {
            return args.is_job();
        }
        if let Command::Snapshot(args) = self {
            return args.finishes_itself();
        }
        if self.stops_in_its_own_time() {
            return true;
        }
        #[cfg(feature = "ncdu")]
        if let Command::Ncdu(_) = self {
            return true;
        }
        #[cfg(feature = "http")]
        if let Command::Copyurl(_) = self {
            return true;
        }
        matches!(self, Bench(_) | Copy(_) | Copyto(_) | Dcp(_) | Moveto(_) | Mv(_) | Rcat(_) | Rsync(_) | Sync(_))
    }

    /// True for what, asked to stop, still needs its stores to put in order what it began.
    pub fn stops_in_its_own_time(&self) -> bool {
        matches!(self, Command::Fleet(args) if args.works())
    }

    /// Where a job brings its files, as typed.
    pub fn destination(&self) -> Option<&std::ffi::OsStr> {
        use Command::{Copy, Copyto, Moveto, Mv, Sync};
        match self {
            Copy(args) | Copyto(args) | Sync(args) => Some(args.destination()),
            Moveto(args) | Mv(args) => Some(args.destination()),
            Command::Snapshot(args) => args.destination(),
            _ => None,
        }
    }

    /// True for what `resume` can run again.
    pub fn is_job(&self) -> bool {
        self.destination().is_some() || matches!(self, Command::Rsync(_) | Command::Dcp(_))
    }

    /// True when the command's own flags say that symlinks are copied as such (`--archive`).
    pub fn keeps_links(&self) -> bool {
        use Command::{Copy, Copyto, Moveto, Mv, Sync};
        match self {
            Copy(args) | Copyto(args) | Sync(args) => args.keeps_links(),
            Moveto(args) | Mv(args) => args.keeps_links(),
            Command::Fleet(args) => args.keeps_links(),
            _ => false,
        }
    }

    /// Runs it.
    pub async fn run(self, context: &Context) -> Result<CommandResult> {
        match self {
            Command::About(args) => about::run(args, context).await,
            Command::Authorize(args) => authorize::run(args, context).await,
            Command::Bench(args) => bench::run(args, context).await,
            Command::Cat(args) => cat::run(args, context).await,
            Command::Check(args) => check::run(args, context).await,
            Command::Checksum(args) => checksum::run(args, context).await,
            Command::Cryptcheck(args) => cryptcheck::run(args, context).await,
            Command::Cryptdecode(args) => cryptdecode::run(args, context).await,
            Command::Cleanup(args) => cleanup::run(args, context).await,
            Command::Completion(args) => completion::run(args, context).await,
            Command::Config(args) => config::run(args, context).await,
            Command::Copy(args) => copy::run(args, context).await,
            Command::Copyto(args) => copyto::run(args, context).await,
            #[cfg(feature = "http")]
            Command::Copyurl(args) => copyurl::run(args, context).await,
            Command::Dcp(args) => dcp::run(args, context).await,
            Command::Dedupe(args) => dedupe::run(args, context).await,
            Command::Delete(args) => delete::run(args, context).await,
            Command::Deletefile(args) => deletefile::run(args, context).await,
            Command::Dvc(args) => dvc::run(args, context).await,
            Command::Far(args) => far::run(args, context).await,
            Command::Fleet(args) => fleet::run(args, context).await,
            Command::Generate(args) => generate::run(args, context).await,
            Command::Hashsum(args) => hashsum::run(args, context).await,
            Command::Help(args) => help::run(args, context).await,
            Command::Jobs(args) => jobs::run(args, context).await,
            Command::Link(args) => link::run(args, context).await,
            Command::Listremotes(args) => listremotes::run(args, context).await,
            Command::Ls(args) => ls::run(args, context).await,
            Command::Lsd(args) => lsd::run(args, context).await,
            Command::Lsf(args) => lsf::run(args, context).await,
            Command::Lsjson(args) => lsjson::run(args, context).await,
            Command::Lsl(args) => lsl::run(args, context).await,
            Command::Md5sum(args) => md5sum::run(args, context).await,
            Command::Mkdir(args) => mkdir::run(args, context).await,
            Command::Mv(args) => mv::run(args, context).await,
            Command::Moveto(args) => moveto::run(args, context).await,
            #[cfg(feature = "ncdu")]
            Command::Ncdu(args) => ncdu::run(args, context).await,
            Command::Obscure(args) => obscure::run(args, context).await,
            Command::Purge(args) => purge::run(args, context).await,
            Command::Rcat(args) => rcat::run(args, context).await,
            Command::Resume(args) => resume::run(args),
            Command::Rmdir(args) => rmdir::run(args, context).await,
            Command::Rmdirs(args) => rmdirs::run(args, context).await,
            Command::Rsync(args) => rsync::run(args, context).await,
            Command::Sbatch(args) => sbatch::run(args, context).await,
            Command::Settier(args) => settier::run(args, context).await,
            Command::Sha1sum(args) => sha1sum::run(args, context).await,
            Command::Size(args) => size::run(args, context).await,
            Command::Snapshot(args) => snapshot::run(args, context).await,
            Command::Status(args) => status::run(args, context).await,
            Command::Sync(args) => sync::run(args, context).await,
            Command::Touch(args) => touch::run(args, context).await,
            Command::Tree(args) => tree::run(args, context).await,
            Command::Version(args) => version::run(args, context).await,
        }
    }
}
