//! Where this rank runs: whether MPI and the launcher agree on how many there are, what tasks of one node share, whether all ranks
//! see the same files.

use crate::{
    journal::UnfinishedFiles,
    shared::LONGEST,
    work::{Job, JobStart, Mounts, Problem, Raw, Root, SameFilesProof, TargetIdentities, UnfinishedFile},
};
use haul_core::{ErrorKind, Key};
use haul_store::{Payload, WriteSpec, late_errors};
use mpi::{
    collective::CommunicatorCollectives as _,
    topology::{Communicator as _, SimpleCommunicator},
};
use std::{
    collections::HashMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt as _,
    path::Path,
    time::Duration,
};

/// Variables by which launchers tell each process how many they started, and its number. Slurm's are of the step: a batch script,
/// which is one process, has none, however many tasks the job may have.
const LAUNCHERS: [(&str, &str); 4] = [
    ("SLURM_STEP_NUM_TASKS", "SLURM_PROCID"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("PMI_SIZE", "PMI_RANK"),
    ("MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
];

/// Beginnings of variables by which libraries of MPI find the other tasks.
const TRACES: [&str; 8] = ["PMI", "OMPI_", "MV2_COMM_", "PRTE_", "PALS_", "ALPS_", "FLUX_", "JSM_"];

/// Threads for a network file system, and the limit for a local disk (`haul_store::disk::at_once`).
const MOST: usize = 32;

/// Why nothing is done, if a launcher started several and MPI counts one: each would do all the work.
pub fn one_of_many(env: impl Fn(&str) -> Option<OsString>, size: usize) -> Option<String> {
    let number = |name: &str| env(name)?.to_str()?.parse::<usize>().ok();
    LAUNCHERS.iter().find_map(|(name, _)| {
        let count = number(name).filter(|count| *count > 1 && size == 1)?;
        Some(format!(
            "Refused to do everything {count} times over: {name}={count} says that {count} tasks were started, but MPI counts 1. haul-mpi was \
             built with another MPI than the launcher's: try srun --mpi=pmix or --mpi=pmi2 (srun --mpi=list), or mpirun of that MPI"
        ))
    })
}

/// True for a task that has no others: a launcher says so, or nothing is there by which MPI could find any. It needs no MPI, of which
/// the start alone takes a third of a second. `all`: the names of all variables.
pub fn is_alone(env: impl Fn(&str) -> Option<OsString>, mut all: impl Iterator<Item = OsString>) -> bool {
    let size = |name: &str| env(name).map(|value| value.to_str().and_then(|text| text.parse::<usize>().ok()));
    let sizes: Vec<(&str, Option<usize>)> =
        LAUNCHERS.iter().filter_map(|(name, _)| Some((*name, size(name)?))).collect();
    if sizes.iter().any(|(_, size)| *size != Some(1)) {
        return false;
    }
    // Slurm counts its own tasks, and a launcher of MPI's may have started more below one of them.
    let by_mpi = sizes.iter().any(|(name, _)| !name.starts_with("SLURM_"));
    by_mpi || all.all(|name| !TRACES.iter().any(|trace| name.as_encoded_bytes().starts_with(trace.as_bytes())))
}

/// True for the process that speaks, as far as a launcher tells before MPI is asked.
pub fn speaks(env: impl Fn(&str) -> Option<OsString>) -> bool {
    let rank = LAUNCHERS.iter().find_map(|(_, rank)| env(rank));
    rank.is_none_or(|rank| rank == "0")
}

/// So many times longer than alone a rank may wait between two looks for messages.
const MOST_PATIENT: usize = 16;

/// State that a node's tasks share.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    tasks: usize,
    cores: usize,
}

/// Asks the tasks of this node, if this one has others. All ranks ask together, before they know anything of each other.
pub fn share(world: Option<&SimpleCommunicator>) -> Share {
    let mine = cores();
    let (mut tasks, mut all) = (1, mine.to_vec());
    if let Some(world) = world {
        let node = world.split_shared(world.rank());
        tasks = node.size().max(1) as usize;
        all = vec![0u64; mine.len() * tasks];
        node.all_gather_into(&mine[..], &mut all[..]);
    }
    // Tasks that are bound to cores of their own have all of them together.
    let union = (0..mine.len()).map(|word| {
        let words = all.iter().skip(word).step_by(mine.len());
        words.fold(0, |union, bits| union | bits).count_ones() as usize
    });
    let own: usize = mine.iter().map(|bits| bits.count_ones() as usize).sum();
    let granted = std::thread::available_parallelism().map_or(1, |n| n.get());
    // A limit of the job's cgroup is below what the mask shows.
    let cores = if granted < own { granted } else { union.sum() };
    Share { tasks, cores }
}

impl Share {
    /// Are there ranks of these `ranks` on other nodes?
    pub fn is_one_of_several(self, ranks: usize) -> bool {
        self.tasks < ranks
    }

    /// How long a rank waits at most between two looks for messages. Where there are more ranks than cores, each look takes time from
    /// one that works, and whatever comes is late by the others' work anyway.
    pub fn longest(self) -> Duration {
        let of_a_core = self.tasks.div_ceil(self.cores.max(1)).clamp(1, MOST_PATIENT);
        LONGEST * of_a_core as u32
    }

    /// How many threads this rank has: what the node's cores, as far as this job may use them, are good for, shared by its tasks.
    pub fn slots(self, concurrency: usize) -> usize {
        let budget = if concurrency >= MOST { MOST } else { (2 * self.cores).clamp(4, MOST) };
        (budget / self.tasks).max(1)
    }
}

/// The cores that this task may use, as bits.
fn cores() -> [u64; 16] {
    let mut words = [0; 16];
    if let Ok(set) = rustix::thread::sched_getaffinity(None) {
        for core in (0..1024).filter(|core| set.is_set(*core)) {
            words[core / 64] |= 1 << (core % 64);
        }
    }
    words
}

/// Things that a job creates before it begins.
#[derive(Default)]
pub struct CreatedFiles {
    /// Facts that ranks must see.
    pub proof: SameFilesProof,
    /// When that was.
    pub since: JobStart,
    /// The write that holds the proof.
    nonce: Option<Box<dyn haul_store::Upload>>,
    /// Destinations that weren't there.
    roots: Vec<std::sync::Arc<dyn haul_store::Store>>,
}

impl CreatedFiles {
    /// Removes the proof, when all have looked. Where the job can't begin, also the folders that it made.
    pub async fn remove(self, roots_too: bool) {
        if let Some(nonce) = self.nonce {
            let _ = nonce.abort().await;
        }
        for root in self.roots.iter().filter(|_| roots_too) {
            root.delete(vec![(Key::new(""), None)]).await;
        }
    }
}

/// Makes the destination, and what proves to other ranks that they see the same.
///
/// Errors: one line. Nothing that was made is left then.
pub async fn prove(job: &Job, changes: bool) -> Result<CreatedFiles, Problem> {
    let mut made = CreatedFiles::default();
    match prove_by(&mut made, job, changes).await {
        Ok(()) => Ok(made),
        Err(problem) => {
            made.remove(true).await;
            Err(problem)
        }
    }
}

/// Writes what proves that a folder is the same; when that was.
async fn write_proof(upload: &dyn haul_store::Upload, text: &str) -> haul_core::Result<Option<(i64, u32)>> {
    upload.part(0, 0, Payload::new(vec![text.to_owned().into()])).await?;
    let Ok(haul_store::Body::File(file, _)) = upload.read_back(0..0).await else { return Ok(None) };
    // Other nodes see what a server has.
    late_errors::Mounts::default().ask(&*file).map_err(|errno| haul_core::Error::from_io("write", errno.into()))?;
    Ok(rustix::fs::fstat(&*file).ok().map(|st| (st.st_ctime, st.st_ctime_nsec as u32)))
}

async fn prove_by(made: &mut CreatedFiles, job: &Job, changes: bool) -> Result<(), Problem> {
    for root in &job.roots {
        made.proof.sources.push(pin(root, job.follow).await?);
    }
    made.proof.link_dest = link_dest_pin(job).await?;
    let mut clocks = HashMap::new();
    if !changes || job.verb == crate::work::Verb::Delete {
        made.proof.targets = targets(job).await;
        made.proof.mounts = mounts(job);
        return Ok(());
    }
    for root in &job.roots {
        let shown = String::from_utf8_lossy(&root.dst).into_owned();
        let dst = crate::shared::open(&root.dst, false).map_err(|e| e.message().to_owned())?;
        let spec = WriteSpec { keep: crate::shared::keep(job), ..WriteSpec::default() };
        let failed = |e: haul_core::Error| Problem {
            line: format!("{shown}: {}", e.message()),
            full: e.kind() == ErrorKind::NoSpace,
            vanished: false,
        };
        let new = dst.stat(&Key::new("")).await.is_err();
        dst.make_dir(&Key::new(""), &spec).await.map_err(failed)?;
        if new {
            made.roots.push(dst.clone());
        }
        let top = dst.stat(&Key::new("")).await.map_err(failed)?;
        let device = top.posix.map(|posix| posix.dev);
        if let Some(since) = clocks.get(&device) {
            made.since.push(*since);
            continue;
        }
        let random =
            std::hash::BuildHasher::hash_one(&std::collections::hash_map::RandomState::new(), std::process::id());
        let text = format!("haul-mpi {random:016x}\n");
        let upload = dst.write(&Key::new("haul-mpi"), WriteSpec::default()).await.map_err(failed)?;
        let since = match write_proof(&*upload, &text).await {
            Ok(since) => since,
            Err(error) => {
                let _ = upload.abort().await;
                return Err(failed(error));
            }
        };
        made.since.push(since);
        clocks.insert(device, since);
        if made.nonce.is_some() {
            // It was made for its time alone.
            let _ = upload.abort().await;
            continue;
        }
        let token = upload.token().await.map_err(failed)?.unwrap_or_default();
        let path = [&root.dst[..], b"/", &token].concat();
        made.proof.nonce = Some((Raw::from(path), text));
        made.nonce = Some(upload);
    }
    made.proof.targets = targets(job).await;
    made.proof.mounts = mounts(job);
    Ok(())
}

/// The folders of a job below which all ranks must see the same file systems.
fn folders(job: &Job) -> impl Iterator<Item = &Raw> {
    let trees = job.roots.iter().filter(|root| root.one.is_none());
    trees.flat_map(|root| [&root.src, &root.dst]).chain(&job.link_dest)
}

/// Mounts below a job's folders here, as far as this rank knows by now: an automounter waits until somebody looks.
pub fn mounts(job: &Job) -> Mounts {
    let below = |folder: &Raw| haul_fs::mounts::below(Path::new(OsStr::from_bytes(folder)));
    folders(job).map(|folder| below(folder).into_iter().map(Raw::from).collect()).collect()
}

/// All that any rank has mounted.
pub fn united(mut mounts: Mounts, others: Vec<Mounts>) -> Mounts {
    for other in others {
        for (all, more) in mounts.iter_mut().zip(other) {
            all.extend(more);
            all.sort();
            all.dedup();
        }
    }
    mounts
}

/// Looks whether this rank has mounted what others have. An empty folder in its place would be taken for all that there is.
///
/// Errors: one line.
pub fn has_mounted(job: &Job, wanted: &Mounts) -> Result<(), String> {
    for (folder, wanted) in folders(job).zip(wanted) {
        let wanted: Vec<Vec<u8>> = wanted.iter().map(|place| place.to_vec()).collect();
        let folder = Path::new(OsStr::from_bytes(folder));
        if let Some(place) = haul_fs::mounts::lacking(folder, &wanted).first() {
            let place = folder.join(OsStr::from_bytes(place));
            return Err(format!(
                "Refused to start: nothing is mounted at {} on {}, but something is for another rank: mount it there, too",
                place.display(),
                host()
            ));
        }
    }
    Ok(())
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Identity of the existing destinations.
pub async fn targets(job: &Job) -> TargetIdentities {
    let mut targets = Vec::new();
    for root in &job.roots {
        targets.push(folder_pin(&root.dst, false, &Key::new("")).await.ok());
    }
    targets
}

/// Removes what an earlier run left half written. It is hidden: what can't be removed is in nobody's way.
pub async fn discard(job: &Job, left: UnfinishedFiles) {
    for ((root, _), UnfinishedFile { key, token, .. }) in left {
        let Some(Root { dst, one, .. }) = job.roots.get(usize::from(root)) else { continue };
        let key = one.as_ref().map_or(&key, |(_, to)| to);
        if let Ok(dst) = crate::shared::open(dst, false)
            && let Some(resumable) = dst.resumable()
        {
            let _ = resumable.discard(&Key::new(key), &token).await;
        }
    }
}

/// Looks whether this rank sees what rank 0 sees.
#[allow(clippy::disallowed_methods)] // A hidden file, which no store shows.
///
/// Errors: one line.
pub async fn sees(job: &Job, proof: &SameFilesProof) -> Result<(), String> {
    let host = host();
    let other = |path: &[u8]| {
        let path = String::from_utf8_lossy(path);
        Err(format!("Refused to start: {path} on {host} is another directory than on the first node"))
    };
    let here = |line: String| format!("{line} (on {host})");
    for (root, want) in job.roots.iter().zip(&proof.sources) {
        if pin(root, job.follow).await.map_err(here)? != *want {
            return other(&root.src);
        }
    }
    if link_dest_pin(job).await.map_err(here)? != proof.link_dest {
        return other(job.link_dest.as_ref().map_or(&[][..], |dir| dir));
    }
    // The first is proved by more, where something is written.
    for (root, want) in job.roots.iter().zip(&proof.targets).skip(usize::from(proof.nonce.is_some())) {
        if folder_pin(&root.dst, false, &Key::new("")).await.ok() != *want {
            return Err(not_shared(&String::from_utf8_lossy(&root.dst), &host));
        }
    }
    if let Some((path, text)) = &proof.nonce {
        let path = std::path::Path::new(std::ffi::OsStr::from_bytes(path));
        if std::fs::read(path).ok().as_deref() != Some(text.as_bytes()) {
            return Err(not_shared(&path.parent().unwrap_or(path).to_string_lossy(), &host));
        }
    }
    has_mounted(job, &proof.mounts)
}

fn not_shared(dir: &str, host: &str) -> String {
    format!(
        "Refused to start: {dir} on {host} isn't the directory that the first node sees: it must be on a shared file system"
    )
}

/// Identity of a source, the same on every node: its inode's number, and when that was created.
async fn pin(root: &Root, follow: bool) -> Result<(u64, String), String> {
    let key = root.one.as_ref().map_or_else(|| Key::new(""), |(from, _)| Key::new(from));
    folder_pin(&root.src, follow, &key).await
}

async fn link_dest_pin(job: &Job) -> Result<Option<(u64, String)>, String> {
    match &job.link_dest {
        Some(dir) => folder_pin(dir, false, &Key::new("")).await.map(Some),
        None => Ok(None),
    }
}

async fn folder_pin(folder: &Raw, follow: bool, key: &Key) -> Result<(u64, String), String> {
    let shown = crate::shared::below(folder, key.as_bytes());
    let store = crate::shared::open(folder, follow).map_err(|e| e.message().to_owned())?;
    let top = store.stat(key).await.map_err(|e| format!("{shown}: {}", e.message()))?;
    let posix = top.posix.ok_or_else(|| format!("{shown}: has no inode"))?;
    let made = top.meta.and_then(|meta| meta.get("btime").cloned());
    Ok((posix.ino, made.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    async fn each_destination_is_proved_also_where_nothing_is_written() {
        let temp = tempfile::tempdir().unwrap();
        let (src, dst) = (temp.path().join("src"), temp.path().join("dst"));
        std::fs::create_dir(&src).unwrap();
        std::fs::create_dir(&dst).unwrap();
        let job = crate::shared::tests::job(crate::work::Verb::Check, &src, &dst);
        let made = prove(&job, false).await.unwrap();
        assert_eq!(sees(&job, &made.proof).await, Ok(()));
        // Another node has another folder there, or none.
        std::fs::rename(&dst, temp.path().join("was")).unwrap();
        let start = format!("Refused to start: {} on ", dst.display());
        assert!(sees(&job, &made.proof).await.unwrap_err().starts_with(&start));
        std::fs::create_dir(&dst).unwrap();
        assert!(sees(&job, &made.proof).await.unwrap_err().starts_with(&start));
    }

    #[test]
    fn what_another_rank_has_mounted_must_be_mounted_here() {
        let root = Path::new("/");
        let job = crate::shared::tests::job(crate::work::Verb::Sync, root, root);
        let here = mounts(&job);
        assert_eq!((here.len(), &here[0]), (2, &here[1]));
        assert_eq!(has_mounted(&job, &here), Ok(()));
        let other = vec![vec![], vec![Raw::from("proc/self"); 2]];
        let all = united(here.clone(), vec![here.clone(), other]);
        assert_eq!((all[0] == here[0], all[1].len()), (true, here[1].len() + 1));
        let line = format!(
            "Refused to start: nothing is mounted at /proc/self on {}, but something is for another rank: mount it there, too",
            host()
        );
        assert_eq!(has_mounted(&job, &all), Err(line));
        // Of a single file nothing that is mounted beside it matters.
        let one = Root { one: Some((Raw::from("f"), Raw::from("f"))), ..job.roots[0].clone() };
        assert!(mounts(&Job { roots: vec![one], ..job }).is_empty());
    }

    #[test]
    fn ranks_that_share_a_core_look_for_messages_less_often() {
        let longest = |tasks, cores| Share { tasks, cores }.longest();
        assert_eq!(longest(1, 2), LONGEST);
        assert_eq!(longest(2, 2), LONGEST);
        assert_eq!(longest(8, 2), 4 * LONGEST);
        assert_eq!(longest(32, 0), 16 * LONGEST);
    }

    #[test]
    fn who_has_no_others_needs_no_mpi() {
        let alone = |vars: &'static [(&str, &str)]| {
            let env = |name: &str| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into());
            is_alone(env, vars.iter().map(|(name, _)| name.into()))
        };
        assert!(alone(&[]) && alone(&[("SLURM_NTASKS", "4"), ("HOME", "/home/ann")]), "a shell, a batch script");
        assert!(alone(&[("OMPI_COMM_WORLD_SIZE", "1"), ("PMIX_RANK", "0")]) && alone(&[("PMI_SIZE", "1")]));
        assert!(alone(&[("SLURM_STEP_NUM_TASKS", "1")]), "srun -n 1");
        for others in [
            &[("OMPI_COMM_WORLD_SIZE", "2")][..],
            &[("SLURM_STEP_NUM_TASKS", "1"), ("PMI_SIZE", "4")],
            &[("SLURM_STEP_NUM_TASKS", "4"), ("PMI_SIZE", "1")],
            &[("SLURM_STEP_NUM_TASKS", "1"), ("PMIX_RANK", "0")],
            &[("PALS_RANKID", "0")],
            &[("PMI_SIZE", "?")],
        ] {
            assert!(!alone(others), "{others:?}");
        }
    }

    #[test]
    fn tasks_that_mpi_does_not_count_are_refused() {
        let with = |vars: &'static [(&str, &str)], size| {
            one_of_many(move |name| vars.iter().find(|(n, _)| *n == name).map(|(_, value)| value.into()), size)
        };
        assert_eq!(with(&[], 1), None);
        assert_eq!(with(&[("SLURM_NTASKS", "4")], 1), None, "a batch script");
        assert_eq!(with(&[("SLURM_STEP_NUM_TASKS", "4")], 4), None);
        assert!(
            with(&[("SLURM_STEP_NUM_TASKS", "4")], 1).unwrap().starts_with("Refused to do everything 4 times over")
        );
    }
}
