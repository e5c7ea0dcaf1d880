//! A rank other than the first: does its work, reports it, and shows that it lives.

use crate::{
    END,
    crew::Crew,
    guard, node,
    shared::{LONGEST, Shared},
    wire::{ReceivedMessage, Wire},
    work::{CoordinatorMessage, RankMessage},
};
use std::{
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::{RecvTimeoutError, SyncSender, sync_channel},
    },
    time::{Duration, Instant},
};

/// Waits between two looks for messages: short while there are some.
pub const SHORTEST: Duration = Duration::from_micros(20);
/// Between two signs of life.
pub const BEAT: Duration = Duration::from_millis(500);
/// A first rank that says nothing for so long is dead, and the launcher lets the others live, as srun may. Until then it may wait for
/// its own disk.
const LEAD_SILENT: Duration = Duration::from_secs(3600);
/// A loop that took longer was suspended, together with the other ranks.
pub const LOOP: Duration = Duration::from_secs(1);
/// Messages that may wait in MPI before threads have to wait.
const UNDER_WAY: usize = 64;
/// Messages of the threads that may wait to be sent.
pub const SAID: usize = 256;

/// Set by SIGTERM and SIGINT.
pub static STOP: AtomicBool = AtomicBool::new(false);

/// Notes signals that ask for an end. Slurm sends them before the time is over (`--signal=TERM@120`).
pub fn watch_signals(runtime: &tokio::runtime::Runtime) {
    use tokio::signal::unix::{SignalKind, signal};
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        runtime.spawn(async move {
            if let Ok(mut signals) = signal(kind) {
                while signals.recv().await.is_some() {
                    STOP.store(true, Ordering::Relaxed);
                }
            }
        });
    }
}

/// Says the last word, and waits until it is sent. The end of MPI waits for all ranks, and the first rank for as long as it has
/// patience; then it ends them all.
fn bye(wire: &mut Wire, patience: Duration, code: u8) {
    guard::arm(patience + 2 * END, code, None).for_good();
    wire.send(0, &RankMessage::Bye);
    while wire.sent() > 0 {
        std::thread::sleep(LONGEST);
    }
}

/// Takes part until rank 0 says that all is done; returns the exit code.
pub fn run(wire: &mut Wire, share: node::Share, runtime: &tokio::runtime::Runtime) -> u8 {
    let (says, said) = sync_channel(SAID);
    let mut says: Option<SyncSender<RankMessage>> = Some(says);
    let mut crew: Option<Crew> = None;
    let mut patience = Duration::from_secs(60);
    let mut slots = 0;
    let (mut beats, mut last_beat, mut idle) = (0u64, Instant::now(), SHORTEST);
    let mut sent_at = std::collections::VecDeque::new();
    let longest = share.longest();
    let (mut silent, mut looked) = (Duration::ZERO, Instant::now());
    loop {
        let mut busy = false;
        silent += looked.elapsed().min(LOOP);
        looked = Instant::now();
        if silent > LEAD_SILENT.max(10 * patience) {
            let secs = silent.as_secs();
            let line = format!("rank {}: the first rank has said nothing for {secs} seconds", wire.rank());
            guard::arm(Duration::ZERO, 1, Some(line)).for_good();
            silent = Duration::ZERO;
        }
        while let Some(arrived) = wire.receive::<CoordinatorMessage>() {
            busy = true;
            silent = Duration::ZERO;
            match arrived {
                ReceivedMessage::Other(..) => {
                    // The first rank finds out by this answer, and ends the others.
                    bye(wire, patience, 1);
                    return 1;
                }
                ReceivedMessage::Said(_, CoordinatorMessage::Start(job, proof)) => {
                    patience = Duration::from_secs(job.patience);
                    let several = share.is_one_of_several(wire.size());
                    let seen = runtime.block_on(node::sees(&job, &proof));
                    let mounts = node::mounts(&job);
                    let shared = seen.and_then(|()| {
                        let says = says.take().ok_or("started twice")?;
                        runtime.block_on(Shared::open(*job, wire.rank(), several, says))
                    });
                    let concurrency = shared.as_ref().map_or(1, Shared::concurrency);
                    slots = share.slots(concurrency);
                    let ready = shared.map(|shared| {
                        runtime.block_on(shared.prepare());
                        shared.trust(Instant::now(), patience);
                        crew = Some(Crew::start(shared, slots, runtime.handle()));
                        (slots, mounts)
                    });
                    wire.send(0, &RankMessage::Ready(ready));
                }
                ReceivedMessage::Said(_, CoordinatorMessage::Mounts(mounts)) => {
                    let seen = crew.as_ref().map_or(Ok(()), |crew| node::has_mounted(&crew.shared.job, &mounts));
                    wire.send(0, &RankMessage::Ready(seen.map(|()| (slots, mounts))));
                }
                ReceivedMessage::Said(_, CoordinatorMessage::Lease(lease, work)) => {
                    if let Some(crew) = &crew {
                        crew.give(lease, work);
                    }
                }
                ReceivedMessage::Said(_, CoordinatorMessage::Heard(beat)) => {
                    while let Some((number, at)) = sent_at.pop_front() {
                        if number == beat {
                            if let Some(crew) = &crew {
                                crew.shared.trust(at, patience);
                            }
                            break;
                        }
                    }
                }
                ReceivedMessage::Said(_, CoordinatorMessage::End(code)) => {
                    drop(said);
                    if let Some(crew) = crew.take() {
                        crew.shared.stop.store(true, Ordering::Relaxed);
                        crew.end(patience / 2);
                    }
                    bye(wire, patience, code);
                    return code;
                }
            }
        }
        if wire.sent() < UNDER_WAY {
            let mut next = said.recv_timeout(idle);
            if matches!(next, Err(RecvTimeoutError::Disconnected)) {
                std::thread::sleep(idle);
            }
            while let Ok(said_now) = next {
                busy = true;
                wire.send(0, &said_now);
                next = said.recv_timeout(Duration::ZERO);
            }
        } else {
            std::thread::sleep(idle);
        }
        if let Some(crew) = &crew {
            let stop = STOP.load(Ordering::Relaxed);
            if stop {
                crew.shared.stop.store(true, Ordering::Relaxed);
            }
            // Several for each time of patience, so that one that comes late costs nothing.
            if last_beat.elapsed() >= BEAT.min(patience / 6) {
                last_beat = Instant::now();
                beats += 1;
                sent_at.push_back((beats, last_beat));
                let hung = crew.hung();
                wire.send(
                    0,
                    &RankMessage::Beat { number: beats, moved: crew.shared.moved.load(Ordering::Relaxed), stop, hung },
                );
            }
        }
        idle = if busy { SHORTEST } else { (idle * 2).min(longest) };
    }
}
