//! Publishes that wait for one another: the service commits for one request of an account at a time, and takes up to a thousand files by
//! one.

use crate::{
    error,
    service::{Facts, Service},
};
use haul_core::{ErrorKind, Retry};
use haul_net::Fault;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::oneshot, time::Instant};

/// How often it is looked whether more has come.
const TICK: Duration = Duration::from_millis(5);
/// So long nothing has come while files are under way: what is there goes.
const QUIET: Duration = Duration::from_millis(100);
/// The first waits so long at most.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often those are repeated that failed for too many writes at once.
const TRIES: u32 = 6;

/// A commit that failed.
#[derive(Clone, Debug)]
pub struct Failed {
    pub kind: ErrorKind,
    pub retry: Retry,
    pub message: String,
    /// The service's tags.
    pub code: String,
    /// It may be done all the same.
    pub ambiguous: bool,
}

type Outcome = Result<Facts, Failed>;

struct Member {
    entry: Value,
    answer: oneshot::Sender<Outcome>,
}

/// What waits.
#[derive(Debug, Default)]
pub struct Gather {
    waiting: Mutex<Waiting>,
    /// Small files that are being sent and wait not yet.
    open: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Waiting {
    members: Vec<Member>,
    /// When the first and the last came.
    came: Option<(Instant, Instant)>,
    /// Somebody sends them.
    sending: bool,
}

impl std::fmt::Debug for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiting({})", self.members.len())
    }
}

/// A small file that is being sent; it counts until it is dropped.
pub struct Open(Arc<AtomicUsize>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Gather {
    /// A small file is on its way.
    pub fn open(&self) -> Open {
        self.open.fetch_add(1, Ordering::AcqRel);
        Open(self.open.clone())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the content of a closed session its name, together with others.
pub async fn commit(service: &Arc<Service>, entry: Value) -> Outcome {
    let (answer, answered) = oneshot::channel();
    let begins = {
        let mut waiting = service.gather.waiting();
        let now = Instant::now();
        let first = waiting.came.map_or(now, |(first, _)| first);
        waiting.came = Some((first, now));
        waiting.members.push(Member { entry, answer });
        !std::mem::replace(&mut waiting.sending, true)
    };
    if begins {
        drop(tokio::spawn(drive(service.clone())));
    }
    answered.await.unwrap_or_else(|_| {
        let message = "the commit was given up".to_owned();
        Err(Failed { kind: ErrorKind::Io, retry: Retry::Never, message, code: String::new(), ambiguous: true })
    })
}

/// Sends what waits, one batch after another, until nothing does.
async fn drive(service: Arc<Service>) {
    let most = service.config.batch_size;
    loop {
        let members = {
            let mut waiting = service.gather.waiting();
            let Some((first, last)) = waiting.came else {
                waiting.sending = false;
                return;
            };
            let more = service.gather.open.load(Ordering::Acquire) > 0;
            if waiting.members.len() >= most || !more || last.elapsed() >= QUIET || first.elapsed() >= PATIENCE {
                let count = waiting.members.len().min(most);
                let members: Vec<Member> = waiting.members.drain(..count).collect();
                waiting.came = (!waiting.members.is_empty()).then(|| (Instant::now(), last));
                Some(members)
            } else {
                None
            }
        };
        match members {
            Some(members) => send(&service, members).await,
            None => tokio::time::sleep(TICK).await,
        }
    }
}

#[derive(Deserialize)]
struct Answers {
    entries: Vec<Value>,
}

async fn send(service: &Service, mut members: Vec<Member>) {
    for tried in 1.. {
        let entries: Vec<&Value> = members.iter().map(|member| &member.entry).collect();
        let call = service.ask("files/upload_session/finish_batch_v2", &json!({ "entries": entries }));
        let answers: Result<Answers, _> = service.api.json(&call).await;
        let answers = answers.and_then(|answers| match answers.entries.len() == members.len() {
            true => Ok(answers.entries),
            false => {
                Err(Fault::broken("the service answered for another number of files than it was asked for").into())
            }
        });
        let answers = match answers {
            Ok(answers) => answers,
            Err(refused) => {
                let failed = Failed {
                    kind: refused.fault.kind,
                    retry: refused.fault.retry,
                    ambiguous: refused.fault.is_ambiguous(),
                    message: refused.fault.message,
                    code: refused.code,
                };
                for member in members {
                    // Whoever gave up waiting doesn't need to know.
                    let _ = member.answer.send(Err(failed.clone()));
                }
                return;
            }
        };
        let mut crowded = Vec::new();
        for (member, answer) in members.into_iter().zip(answers) {
            let outcome = outcome(answer);
            match &outcome {
                Err(failed) if failed.kind == ErrorKind::Busy && tried < TRIES => crowded.push(member),
                _ => drop(member.answer.send(outcome)),
            }
        }
        if crowded.is_empty() {
            return;
        }
        members = crowded;
        tokio::time::sleep(Duration::from_millis(50 << tried)).await;
    }
}

fn outcome(answer: Value) -> Outcome {
    if answer[".tag"] == "success" {
        let facts = serde_json::from_value::<Facts>(answer);
        return facts.map_err(|e| Failed {
            kind: ErrorKind::Io,
            retry: Retry::Backoff,
            message: format!("the answer to a commit can't be understood: {e}"),
            code: String::new(),
            ambiguous: true,
        });
    }
    let code = error::code(&answer["failure"]);
    let (kind, retry) = error::meaning(&code);
    Err(Failed { kind, retry, message: error::words(&code), code, ambiguous: false })
}
