//! Rank 0: starts the job, coordinates it, shows how it goes, and works too.

use crate::{
    args::JobRequest,
    coordinator::{Coordinator, Note},
    crew::Crew,
    input::Names,
    journal::{self, Journal, UnfinishedFiles},
    node, overlap,
    rank::{BEAT, LOOP, SAID, SHORTEST, STOP},
    shared::{LONGEST, Shared},
    show,
    wire::{ReceivedMessage, Wire},
    work::{CoordinatorMessage, Job, Mounts, Problem, RankMessage, Root, Verb},
};
use jiff::Zoned;
use std::{
    collections::BTreeSet,
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{Receiver, sync_channel},
    },
    time::{Duration, Instant},
};

/// Leases that a rank has beyond those that its threads do: the next are there when they are done.
const AHEAD: usize = 2;

/// Rank 0's state of a rank.
#[derive(Clone)]
struct Peer {
    slots: usize,
    /// For so long it has said nothing.
    silent: Duration,
    moved: u64,
    lost: bool,
    bye: bool,
}

/// How it ended.
pub struct JobEnd {
    /// The exit code.
    pub code: u8,
    /// Every rank is there to end together.
    pub together: bool,
}

/// Runs a job; gives the exit code.
pub fn run(asked: JobRequest, wire: &mut Wire, share: node::Share, runtime: &tokio::runtime::Runtime) -> JobEnd {
    let verb = asked.verb();
    let before = asked.before();
    let mut peers = vec![Peer::new(); wire.size()];
    let refuse_with = |wire: &mut Wire, peers: &mut [Peer], line: &str, code: u8| {
        error(verb, line);
        end(wire, peers, code, Duration::from_secs(10))
    };
    let refuse = |wire: &mut Wire, peers: &mut [Peer], line: &str| refuse_with(wire, peers, line, 1);
    let mut job = match asked.job().and_then(|job| overlap::check(&job).map(|()| job)) {
        Ok(job) => job,
        Err(line) => return refuse(wire, &mut peers, &line),
    };
    let names = match Names::of(&job) {
        Ok(names) => names,
        Err(line) => return refuse(wire, &mut peers, &line),
    };
    let mut kept = None;
    let mut left = UnfinishedFiles::new();
    if matches!(verb, Verb::Dcp | Verb::Sync) && !job.dry_run {
        match runtime.block_on(remember(&mut job, before, &journal::state())) {
            Ok((journal, rest)) => (kept, left) = (Some(journal), rest),
            Err(line) => return refuse(wire, &mut peers, &line),
        }
    }
    let changes = verb != Verb::Check && !job.dry_run;
    // A job that can't begin leaves nothing to resume.
    let forget = |kept: Option<Journal>, resuming: bool| kept.filter(|_| !resuming).map(Journal::remove);
    let made = match runtime.block_on(node::prove(&job, changes)) {
        Ok(made) => made,
        Err(Problem { line, full, .. }) => {
            forget(kept, job.resuming);
            return refuse_with(wire, &mut peers, &line, show::code_of_refusal(verb, full));
        }
    };
    let begun = kept.as_mut().filter(|_| !job.resuming);
    if let Some(Err(line)) = begun.map(|kept| kept.goes_into(&made.proof.targets, &made.since)) {
        forget(kept, job.resuming);
        runtime.block_on(made.remove(true));
        return refuse(wire, &mut peers, &line);
    }
    let job = Arc::new(job);
    let (began, clock) = (Zoned::now(), Instant::now());
    for rank in 1..wire.size() {
        wire.send(rank, &CoordinatorMessage::Start(Box::new((*job).clone()), made.proof.clone()));
    }
    let (says, said) = sync_channel(SAID);
    let several = share.is_one_of_several(wire.size());
    let opened = runtime.block_on(Shared::open((*job).clone(), 0, several, says));
    let slots = share.slots(opened.as_ref().map_or(1, Shared::concurrency));
    peers[0].slots = slots;
    let patience = Duration::from_secs(job.patience);
    let ready = gather(|| wire.receive(), &mut peers, patience);
    let agreed = ready.and_then(|seen| agree(&job, wire, &mut peers, (&made.proof.mounts, seen)));
    let has_mounts = agreed.as_ref().is_ok_and(|all| all.iter().any(|below| !below.is_empty()));
    let ready = agreed.and(opened);
    runtime.block_on(made.remove(ready.is_err()));
    let shared = match ready {
        Ok(shared) => shared,
        Err(line) => {
            forget(kept, job.resuming);
            return refuse(wire, &mut peers, &line);
        }
    };
    runtime.block_on(shared.prepare());
    let crew = Crew::start(shared, slots, runtime.handle());
    if job.resuming && !job.quiet {
        print("Goes on with a run of this job that was not finished");
    }
    let all = peers.iter().map(|peer| peer.slots).sum();
    let mut state = Coordinator::new(job.clone(), all, left, names);
    if has_mounts {
        state.has_mounts();
    }
    let mut lead = Lead { state, peers, crew: Some(crew), journal: kept, patience, clock, job };
    lead.coordinate(wire, &said);
    drop(said);
    lead.close(wire, &began)
}

/// Opens the journal of a job, with what an earlier run of it left of large files. Where that run made DEST, into which SRC would go now,
/// the job's trees become its (`before`).
///
/// Errors: one line.
async fn remember(
    job: &mut Job,
    before: Option<Vec<Root>>,
    state: &Path,
) -> Result<(Journal, UnfinishedFiles), String> {
    if let Some(roots) = before.filter(|roots| *roots != job.roots) {
        let mut begun = Job { roots, ..job.clone() };
        if journal::is_left(&begun, state) {
            let (journal, rest) = go_on(&mut begun, state).await?;
            if begun.resuming {
                *job = begun;
                return Ok((journal, rest));
            }
            journal.remove();
        }
    }
    go_on(job, state).await
}

/// Opens a journal. What an earlier run left is gone on with only in the folders that it went into; else it is removed.
async fn go_on(job: &mut Job, state: &Path) -> Result<(Journal, UnfinishedFiles), String> {
    let (journal, earlier) = Journal::open(job, state)?;
    let Some(earlier) = earlier else { return Ok((journal, UnfinishedFiles::new())) };
    job.resuming = earlier.went_into(&node::targets(job).await);
    if job.resuming {
        job.since = earlier.since;
        return Ok((journal, earlier.rest));
    }
    if !job.quiet {
        let all: Vec<_> = job.roots.iter().map(|root| String::from_utf8_lossy(&root.dst)).collect();
        let of = if all.len() > 1 { "aren't the directories" } else { "isn't the directory" };
        print(&format!("Starts anew: {} {of} that an unfinished run of this job wrote to", all.join(", ")));
    }
    node::discard(job, earlier.rest).await;
    journal.clear()?;
    Ok((journal, UnfinishedFiles::new()))
}

impl Peer {
    fn new() -> Peer {
        Peer { slots: 0, silent: Duration::ZERO, moved: 0, lost: false, bye: false }
    }
}

/// Waits until every rank has said whether it can take part, and what is mounted there. Who says nothing for too long, as its file
/// system doesn't answer, is lost.
fn gather(
    mut receive: impl FnMut() -> Option<ReceivedMessage<RankMessage>>,
    peers: &mut [Peer],
    patience: Duration,
) -> Result<Vec<Mounts>, String> {
    let mut seen = Vec::new();
    let mut missing: BTreeSet<usize> = (1..peers.len()).collect();
    let mut refused = None;
    let until = Instant::now() + patience;
    while !missing.is_empty() {
        match receive() {
            Some(ReceivedMessage::Said(rank, RankMessage::Ready(Ok((slots, mounts))))) => {
                peers[rank].slots = slots;
                seen.push(mounts);
                missing.remove(&rank);
            }
            Some(ReceivedMessage::Said(rank, RankMessage::Ready(Err(line)))) => {
                refused.get_or_insert(line);
                missing.remove(&rank);
            }
            Some(ReceivedMessage::Said(..)) => {}
            Some(ReceivedMessage::Other(rank, version)) => {
                let ours = env!("CARGO_PKG_VERSION");
                refused = Some(format!("Refused to start: rank {rank} is {version}, and this is haul-mpi {ours}"));
                // It leaves as soon as it hears another version.
                peers[rank].bye = true;
                missing.remove(&rank);
            }
            None if Instant::now() > until => {
                missing.iter().for_each(|rank| peers[*rank].lost = true);
                let first = missing.first().copied().unwrap_or_default();
                let others = if missing.len() > 1 { format!(", and {} others,", missing.len() - 1) } else { "".into() };
                let secs = patience.as_secs();
                return Err(refused.unwrap_or_else(|| {
                    format!("Refused to start: rank {first}{others} has not seen source and destination within {secs} seconds")
                }));
            }
            None => std::thread::sleep(LONGEST),
        }
    }
    refused.map_or(Ok(seen), Err)
}

/// Has all ranks look for what only some have mounted by now. What the first has mounted the others have looked for.
/// Gives what any of them has mounted.
///
/// Errors: one line.
fn agree(
    job: &Job,
    wire: &mut Wire,
    peers: &mut [Peer],
    (own, seen): (&Mounts, Vec<Mounts>),
) -> Result<Mounts, String> {
    let all = node::united(own.clone(), seen);
    if all != *own {
        node::has_mounted(job, &all)?;
        (1..peers.len()).for_each(|rank| wire.send(rank, &CoordinatorMessage::Mounts(all.clone())));
        gather(|| wire.receive(), peers, Duration::from_secs(job.patience))?;
    }
    Ok(all)
}

struct Lead {
    state: Coordinator,
    peers: Vec<Peer>,
    crew: Option<Crew>,
    journal: Option<Journal>,
    patience: Duration,
    clock: Instant,
    job: Arc<Job>,
}

impl Lead {
    fn coordinate(&mut self, wire: &mut Wire, own: &Receiver<RankMessage>) {
        let mut idle = SHORTEST;
        let mut reported_at = Instant::now();
        let (mut looked, mut looked_at_own) = (Instant::now(), Instant::now());
        loop {
            let mut busy = false;
            while let Some(arrived) = wire.receive::<RankMessage>() {
                busy = true;
                if let ReceivedMessage::Said(rank, said) = arrived {
                    self.hear(wire, rank, said);
                }
            }
            let mut next = own.recv_timeout(idle);
            while let Ok(said) = next {
                busy = true;
                self.hear(wire, 0, said);
                next = own.recv_timeout(Duration::ZERO);
            }
            if STOP.load(Ordering::Relaxed) {
                self.stop();
            }
            self.give(wire);
            self.print();
            self.look_for_lost(looked.elapsed().min(LOOP));
            looked = Instant::now();
            if looked_at_own.elapsed() >= BEAT {
                looked_at_own = Instant::now();
                let hung = self.crew.as_ref().map(|crew| crew.hung()).unwrap_or_default();
                self.hang(0, &hung);
            }
            wire.sent();
            if let Some(every) = self.job.progress
                && reported_at.elapsed() >= Duration::from_secs(every)
            {
                reported_at = Instant::now();
                let line = show::progress(&self.job, &self.state, self.moved(), self.clock.elapsed(), self.live());
                print(&line);
            }
            if self.state.is_done() {
                return;
            }
            idle = if busy { SHORTEST } else { (idle * 2).min(LONGEST) };
        }
    }

    fn hear(&mut self, wire: &mut Wire, rank: usize, said: RankMessage) {
        let peer = &mut self.peers[rank];
        peer.silent = Duration::ZERO;
        match said {
            RankMessage::Beat { number, moved, stop, hung } => {
                // It knows that what it had isn't its own any more before new leases come.
                wire.send(rank, &CoordinatorMessage::Heard(number));
                peer.moved = moved;
                if std::mem::replace(&mut peer.lost, false) {
                    error(self.job.verb, &format!("warning: rank {rank} is back"));
                    self.state.back(rank);
                }
                if stop {
                    self.stop();
                }
                self.hang(rank, &hung);
            }
            said => self.state.take(rank, said),
        }
    }

    /// Running work ends soon, and no more is begun.
    fn stop(&mut self) {
        self.state.stopping = true;
        if let Some(crew) = &self.crew {
            crew.shared.stop.store(true, Ordering::Relaxed);
        }
    }

    fn give(&mut self, wire: &mut Wire) {
        // One to each at a time, so that what there is little of is shared.
        for ahead in 0..=AHEAD {
            for rank in 0..self.peers.len() {
                let Peer { slots, lost, .. } = self.peers[rank];
                let room = (slots + ahead).min(2 * slots);
                while !lost && self.state.held(rank) < room {
                    let Some((lease, work)) = self.state.next(rank) else { return };
                    match (&self.crew, rank) {
                        (Some(crew), 0) => crew.give(lease, work),
                        _ => wire.send(rank, &CoordinatorMessage::Lease(lease, work)),
                    }
                }
            }
        }
    }

    /// Other ranks may be able to do work that hangs in a rank's file system.
    fn hang(&mut self, rank: usize, hung: &[(u64, bool)]) {
        if hung.is_empty() {
            return;
        }
        let secs = self.job.hang;
        let line = format!("warning: a file system has not answered rank {rank} for {secs} seconds: others try");
        error(self.job.verb, &line);
        self.state.hung(rank, hung);
    }

    /// `passed`: since the last look, without a time in which this rank was suspended.
    fn look_for_lost(&mut self, passed: Duration) {
        for rank in 1..self.peers.len() {
            let peer = &mut self.peers[rank];
            peer.silent += passed;
            if !peer.lost && peer.silent > self.patience {
                peer.lost = true;
                let secs = self.patience.as_secs();
                let line = format!("warning: rank {rank} has said nothing for {secs} seconds: others do its work");
                error(self.job.verb, &line);
                self.state.lost(rank);
            }
        }
    }

    fn moved(&self) -> u64 {
        let own = self.crew.as_ref().map_or(0, |crew| crew.shared.moved.load(Ordering::Relaxed));
        own + self.peers.iter().skip(1).map(|peer| peer.moved).sum::<u64>()
    }

    fn live(&self) -> usize {
        self.peers.iter().filter(|peer| !peer.lost).count()
    }

    fn print(&mut self) {
        let lines = std::mem::take(&mut self.state.lines);
        if !lines.is_empty() {
            print(&lines.join("\n"));
        }
        for problem in std::mem::take(&mut self.state.problems) {
            error(self.job.verb, &format!("error: {}", problem.line));
        }
        let notes = std::mem::take(&mut self.state.notes);
        let Some(journal) = &mut self.journal else { return };
        for note in notes {
            match note {
                Note::Begun(root, item, token) => {
                    if let Some(pin) = item.pin {
                        journal.begun(root, &item.key, &token, pin);
                    }
                }
                Note::Piece(root, key, piece) => journal.piece(root, &key, piece),
                Note::Ended(root, key) => journal.ended(root, &key),
            }
        }
    }

    fn close(mut self, wire: &mut Wire, began: &Zoned) -> JobEnd {
        let (job, took, live) = (self.job.clone(), self.clock.elapsed(), self.live());
        if let Some(line) = &self.state.broken {
            error(job.verb, &format!("error: {line}"));
        }
        let code = show::code(&job, &self.state);
        if !job.quiet {
            print(&show::summary(&job, &self.state, took, began, live));
        }
        if self.state.stopping {
            error(job.verb, "stopped by a signal: type the same again to go on");
        } else if self.state.full {
            error(job.verb, "no space is left: type the same again to go on when there is");
        }
        if code == 0
            && let Some(journal) = self.journal.take()
        {
            journal.remove();
        }
        // Nobody waits for long when time is over.
        let patience = if self.state.stopping { self.patience.min(Duration::from_secs(10)) } else { self.patience };
        let ended = self.crew.take().is_none_or(|crew| crew.end(patience));
        let JobEnd { code, together } = end(wire, &mut self.peers, code, patience);
        JobEnd { code, together: together && ended }
    }
}

/// Tells all ranks that it is over, and waits for them.
fn end(wire: &mut Wire, peers: &mut [Peer], code: u8, patience: Duration) -> JobEnd {
    for (rank, peer) in peers.iter().enumerate().skip(1) {
        if !peer.lost && !peer.bye {
            wire.send(rank, &CoordinatorMessage::End(code));
        }
    }
    let until = Instant::now() + patience;
    loop {
        while let Some(arrived) = wire.receive::<RankMessage>() {
            match arrived {
                ReceivedMessage::Said(rank, RankMessage::Bye) | ReceivedMessage::Other(rank, _) => {
                    peers[rank].bye = true
                }
                ReceivedMessage::Said(..) => {}
            }
        }
        let missing = peers.iter().skip(1).filter(|peer| !peer.bye).count();
        let lost = peers.iter().skip(1).filter(|peer| !peer.bye && peer.lost).count();
        if missing == 0 && wire.sent() == 0 {
            return JobEnd { code, together: true };
        }
        if missing == lost || Instant::now() > until {
            wire.abandon();
            return JobEnd { code, together: false };
        }
        wire.sent();
        std::thread::sleep(LONGEST);
    }
}

/// The job goes on where nobody can read of it: whoever reads may have gone.
fn print(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn error(verb: Verb, line: &str) {
    let _ = writeln!(std::io::stderr(), "haul-mpi {}: {line}", verb.name());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        shared::tests,
        work::{Pin, Raw},
    };
    use haul_core::Key;
    use haul_store::WriteSpec;
    use std::fs;

    const PIN: Pin = Pin { ino: 7, ctime: (1, 2) };

    /// Begins a large file as a job does; its token.
    async fn half_written(journal: &mut Journal, dst: &Path) -> Vec<u8> {
        use std::os::unix::ffi::OsStrExt as _;
        let store = crate::shared::open(dst.as_os_str().as_bytes(), false).unwrap();
        let spec = WriteSpec { size: Some(9), resumable: true, ..WriteSpec::default() };
        let upload = store.write(&Key::new("big"), spec).await.unwrap();
        let token = upload.token().await.unwrap().unwrap();
        journal.begun(0, &Raw::from("big"), &token.clone().into(), PIN);
        token
    }

    #[tokio::test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    async fn a_job_is_gone_on_with_only_in_the_folder_that_it_went_into() {
        let temp = tempfile::tempdir().unwrap();
        let [src, dst, state] = ["src", "dst", "state"].map(|name| temp.path().join(name));
        fs::create_dir(&src).unwrap();
        let began = Job { quiet: true, ..tests::job(Verb::Dcp, &src, &dst) };
        // SRC goes into an existing DEST, which an earlier run may have created.
        let into = Job { roots: tests::job(Verb::Dcp, &src, &dst.join("src")).roots, ..began.clone() };
        let open = async |job: &Job| {
            let mut job = job.clone();
            let (journal, rest) = remember(&mut job, Some(began.roots.clone()), &state).await.unwrap();
            assert_eq!(job.since, if job.resuming { vec![Some((7, 8))] } else { vec![] });
            (journal, rest, job.roots == began.roots, job.resuming)
        };
        let (mut journal, rest, ..) = open(&began).await;
        assert!(rest.is_empty());
        fs::create_dir(&dst).unwrap();
        journal.goes_into(&node::targets(&began).await, &vec![Some((7, 8))]).unwrap();
        let token = half_written(&mut journal, &dst).await;
        drop(journal);

        let (journal, rest, as_begun, resuming) = open(&into).await;
        assert!(as_begun && resuming && rest[&(0, PIN.ino)].token == token[..]);
        let line = format!("another run of this job is under way: its journal is {}", state.display());
        let refused = remember(&mut into.clone(), Some(began.roots.clone()), &state).await.err();
        assert!(refused.as_deref().is_some_and(|said| said.starts_with(&line)), "{refused:?}");
        drop(journal);

        // Another folder of that name, with what was half written in the first.
        let hidden = |dir: &Path| dir.join(std::str::from_utf8(&token).unwrap());
        fs::rename(&dst, temp.path().join("was")).unwrap();
        fs::create_dir(&dst).unwrap();
        fs::copy(hidden(&temp.path().join("was")), hidden(&dst)).unwrap();
        let (journal, rest, as_begun, resuming) = open(&into).await;
        assert!(!as_begun && !resuming && rest.is_empty());
        assert!(!hidden(&dst).exists() && hidden(&temp.path().join("was")).exists());
        assert!(!journal::is_left(&began, &state), "nothing is gone on with that was discarded");
        journal.remove();

        // One that doesn't say into which folder it went, as it was ended before.
        drop(open(&began).await.0);
        assert!(journal::is_left(&began, &state));
        let (_, _, as_begun, resuming) = open(&into).await;
        assert!(!as_begun && !resuming);
    }

    #[tokio::test]
    #[allow(clippy::disallowed_methods)] // A test makes its own files.
    async fn a_file_that_restarts_in_a_journal_is_resumed_later() {
        let temp = tempfile::tempdir().unwrap();
        let [src, dst, state] = ["src", "dst", "state"].map(|name| temp.path().join(name));
        fs::create_dir_all(&dst).unwrap();
        let job = Job { quiet: true, ..tests::job(Verb::Sync, &src, &dst) };
        let begin = async || {
            let mut job = job.clone();
            let (mut journal, rest) = remember(&mut job, None, &state).await.unwrap();
            if !job.resuming {
                journal.goes_into(&node::targets(&job).await, &Vec::new()).unwrap();
            }
            (journal, job.resuming, rest.len())
        };
        let (mut journal, ..) = begin().await;
        half_written(&mut journal, &dst).await;
        drop(journal);
        assert!(matches!(begin().await, (_, true, 1)));
        fs::rename(&dst, temp.path().join("was")).unwrap();
        fs::create_dir(&dst).unwrap();
        assert!(matches!(begin().await, (_, false, 0)));
        assert!(matches!(begin().await, (_, true, 0)), "it knows its own folder, and nothing of the other's files");
    }

    #[test]
    fn a_rank_that_does_not_answer_is_not_waited_for_without_end() {
        let peers = || vec![Peer::new(); 4];
        let refused = |said: Vec<ReceivedMessage<RankMessage>>, peers: &mut [Peer]| {
            let mut messages = said.into_iter();
            gather(|| messages.next(), peers, Duration::from_millis(5)).err()
        };
        let ready = |rank| ReceivedMessage::Said(rank, RankMessage::Ready(Ok((2, Vec::new()))));
        let mut all = peers();
        assert_eq!(refused(vec![ready(2), ready(1), ready(3)], &mut all), None);
        let mut some = peers();
        let line = "Refused to start: rank 2 has not seen source and destination within 0 seconds";
        assert_eq!(refused(vec![ready(3), ready(1)], &mut some).as_deref(), Some(line));
        assert_eq!(some.iter().map(|peer| peer.lost).collect::<Vec<_>>(), [false, false, true, false]);
        let line = "Refused to start: rank 1, and 2 others, has not seen source and destination within 0 seconds";
        assert_eq!(refused(vec![], &mut peers()).as_deref(), Some(line));
        // Another rank's objection is reported in any case.
        let other = ReceivedMessage::Other(1, "haul-mpi 0.0.1".into());
        let line = "Refused to start: rank 1 is haul-mpi 0.0.1, and this is haul-mpi 0.1.0";
        assert_eq!(refused(vec![other], &mut peers()).as_deref(), Some(line));
    }
}
