//! Publishes that wait for one another: the service commits for one request of an account at a time, and takes up to a thousand files by
//! one. The content of small ones goes together too, dozens by one request, while those before them are committed.

use crate::{
    error,
    service::{Facts, Service},
    session::{self, ARGUMENT},
};
use bytes::Bytes;
use futures::{StreamExt, future::join_all, stream};
use haul_core::{Error, ErrorKind, Retry};
use haul_net::Fault;
use haul_oauth::{ServiceError, ServiceResult};
use haul_store::{Payload, disk};
use serde::Deserialize;
use serde_json::{Value, json};
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::{sync::oneshot, task::JoinHandle, time::Instant};

/// How often it is looked whether more has come.
const TICK: Duration = Duration::from_millis(5);
/// So long nothing has come while files are under way: what is there goes.
const QUIET: Duration = Duration::from_millis(100);
/// The first waits so long at most.
const PATIENCE: Duration = Duration::from_millis(500);
/// How often those are repeated that failed for too many writes at once.
const TRIES: u32 = 6;
/// Fewer contents than these go by themselves: one request each, but nothing to wait for before it.
const FEW: usize = 4;
/// Bytes of content that go by one request at most.
const TOGETHER: u64 = 4 << 20;
/// How a service answers that doesn't know such requests, or something on the way that finds them too long.
const TAKES_NONE: [u16; 6] = [400, 404, 405, 413, 431, 501];
/// Requests with content that are begun at once; the lane bounds them in the end.
const AT_ONCE: usize = 256;

/// A commit that failed.
#[derive(Clone, Debug)]
pub struct CommitError {
    pub kind: ErrorKind,
    pub retry: Retry,
    pub message: String,
    /// The service's tags.
    pub code: String,
    /// It may be done all the same.
    pub ambiguous: bool,
}

impl From<ServiceError> for CommitError {
    fn from(refused: ServiceError) -> CommitError {
        CommitError {
            kind: refused.fault.kind,
            retry: refused.fault.retry,
            ambiguous: refused.fault.is_ambiguous(),
            message: refused.fault.message,
            code: refused.code,
        }
    }
}

impl From<Error> for CommitError {
    fn from(error: Error) -> CommitError {
        let (kind, retry, message) = (error.kind(), error.retry(), error.message().to_owned());
        CommitError { kind, retry, message, code: String::new(), ambiguous: false }
    }
}

type CommitResult = Result<Facts, CommitError>;

/// A file to publish.
#[derive(Clone, Debug)]
pub struct File {
    /// As the service takes it for a commit. Its session is found out for content that isn't sent yet.
    pub entry: Value,
    /// Of a small file: its bytes, to be sent.
    pub content: Option<Payload>,
}

struct Member {
    file: File,
    answer: oneshot::Sender<CommitResult>,
}

impl Member {
    fn fail(self, failed: CommitError) {
        // Whoever gave up waiting doesn't need to know.
        let _ = self.answer.send(Err(failed));
    }

    fn bytes(&self) -> u64 {
        self.file.content.as_ref().map_or(0, Payload::len)
    }

    /// Its content is in this session.
    fn sent(mut self, session: &str) -> Member {
        self.file.entry["cursor"]["session_id"] = session.into();
        self.file.content = None;
        self
    }
}

/// Files that wait for a commit.
#[derive(Debug, Default)]
pub struct Gather {
    waiting: Mutex<Waiting>,
    /// Small files that are being sent and wait not yet.
    open: Arc<AtomicUsize>,
    /// The service has refused to take contents together.
    alone: AtomicBool,
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

    /// The members to commit now, at most `most`; `ended` says that no commit is under way. With `Nothing`, nobody is sending any
    /// more.
    fn next(&self, most: usize, ended: bool) -> Next {
        let mut waiting = self.waiting();
        let Some((first, last)) = waiting.came else {
            waiting.sending = !ended;
            return if ended { Next::Nothing } else { Next::Later };
        };
        let more = self.open.load(Ordering::Acquire) > 0;
        if waiting.members.len() < most && more && last.elapsed() < QUIET && first.elapsed() < PATIENCE {
            return Next::Later;
        }
        let count = waiting.members.len().min(most);
        let members = waiting.members.drain(..count).collect();
        waiting.came = (!waiting.members.is_empty()).then(|| (Instant::now(), last));
        Next::Members(members)
    }
}

/// The sender's next step.
enum Next {
    Members(Vec<Member>),
    /// Looks again in a while.
    Later,
    Nothing,
}

/// Sends content that isn't sent yet, and gives the content of a closed session its name, together with others.
pub async fn commit(service: &Arc<Service>, file: File) -> CommitResult {
    let (answer, answered) = oneshot::channel();
    let begins = {
        let mut waiting = service.gather.waiting();
        let now = Instant::now();
        let first = waiting.came.map_or(now, |(first, _)| first);
        waiting.came = Some((first, now));
        waiting.members.push(Member { file, answer });
        !std::mem::replace(&mut waiting.sending, true)
    };
    if begins {
        drop(tokio::spawn(drive(service.clone())));
    }
    answered.await.unwrap_or_else(|_| {
        let message = "the commit was given up".to_owned();
        Err(CommitError { kind: ErrorKind::Io, retry: Retry::Never, message, code: String::new(), ambiguous: true })
    })
}

/// Sends what waits, one batch after another, until nothing does. One is committed while the next is sent.
async fn drive(service: Arc<Service>) {
    let most = service.config.batch_size;
    let mut committed: Option<JoinHandle<()>> = None;
    loop {
        let ended = committed.as_ref().is_none_or(JoinHandle::is_finished);
        let members = match service.gather.next(most, ended) {
            Next::Nothing => return,
            Next::Later => {
                tokio::time::sleep(TICK).await;
                continue;
            }
            Next::Members(members) => members,
        };
        let members = send(&service, members).await;
        if let Some(before) = committed.take() {
            // A sender that panicked has dropped its members, who notice.
            let _ = before.await;
        }
        let service = service.clone();
        committed = Some(tokio::spawn(async move { publish(&service, members).await }));
    }
}

/// Sends the contents of those that have some. Gives back all whose content is there.
async fn send(service: &Service, members: Vec<Member>) -> Vec<Member> {
    let (unsent, mut ready): (Vec<_>, Vec<_>) = members.into_iter().partition(|member| member.file.content.is_some());
    let sent = match unsent.len() < FEW || service.gather.alone.load(Ordering::Relaxed) {
        true => send_alone(service, unsent).await,
        false => send_together(service, unsent).await,
    };
    ready.extend(sent);
    ready
}

/// Commits each in a separate request.
async fn send_alone(service: &Service, members: Vec<Member>) -> Vec<Member> {
    let each = stream::iter(members).map(|member| async move {
        let content = member.file.content.clone().unwrap_or_default();
        let sent = async {
            let blocks = session::blocks(&content).await?;
            Ok::<_, CommitError>(session::start_whole(service, content, &blocks).await?)
        };
        match sent.await {
            Ok(session) => Some(member.sent(&session)),
            Err(failed) => {
                member.fail(CommitError { ambiguous: false, ..failed });
                None
            }
        }
    });
    each.buffer_unordered(AT_ONCE).filter_map(async |member| member).collect().await
}

/// Those whose content could be read.
async fn read(members: Vec<Member>) -> Vec<Member> {
    let mut ready = Vec::new();
    for mut member in members {
        let content = member.file.content.take().unwrap_or_default();
        let of_disk = content.clone();
        let bytes = match content.pieces() {
            Some(pieces) => Ok(pieces.to_vec()),
            None => disk::run(move || Ok(vec![of_disk.concat()?.into()])).await,
        };
        match bytes {
            Ok(bytes) => {
                member.file.content = Some(content.with_pieces(bytes));
                ready.push(member);
            }
            Err(error) => member.fail(error.into()),
        }
    }
    ready
}

/// Many by each request.
async fn send_together(service: &Service, members: Vec<Member>) -> Vec<Member> {
    let members = read(members).await;
    let ids = match session::start_many(service, members.len()).await {
        Ok(ids) => ids,
        Err(refused) => return refused_together(service, members, refused).await,
    };
    let sent = join_all(loads(members, ids).into_iter().map(|load| send_load(service, load))).await;
    sent.into_iter().flatten().collect()
}

/// Contents of one request: members, and their commit data.
#[derive(Default)]
struct Load {
    members: Vec<Member>,
    ids: Vec<String>,
    entries: Vec<Value>,
    bytes: u64,
    characters: usize,
}

/// Members and their sessions, as many together as one request takes.
fn loads(members: Vec<Member>, ids: Vec<String>) -> Vec<Load> {
    let mut loads: Vec<Load> = Vec::new();
    for (member, id) in members.into_iter().zip(ids) {
        let (bytes, entry) = (member.bytes(), session::of_many(&id, member.bytes()));
        let characters = entry.to_string().len() + 1;
        let fits = |load: &&mut Load| load.bytes + bytes <= TOGETHER && load.characters + characters <= ARGUMENT;
        if loads.last_mut().filter(fits).is_none() {
            loads.push(Load::default());
        }
        if let Some(load) = loads.last_mut() {
            load.members.push(member);
            load.ids.push(id);
            load.entries.push(entry);
            (load.bytes, load.characters) = (load.bytes + bytes, load.characters + characters);
        }
    }
    loads
}

async fn send_load(service: &Service, load: Load) -> Vec<Member> {
    let contents: Vec<Payload> = load.members.iter().filter_map(|member| member.file.content.clone()).collect();
    for content in &contents {
        content.begin();
        held_back(content).await;
    }
    let body: Vec<Bytes> = contents.iter().flat_map(|content| content.pieces().unwrap_or_default()).cloned().collect();
    let answers = match session::append_many(service, &load.entries, Payload::new(body)).await {
        Ok(answers) => answers,
        Err(refused) => return refused_together(service, load.members, refused).await,
    };
    contents.iter().for_each(|content| content.sent(content.len()));
    let mut sent = Vec::new();
    for ((member, id), answer) in load.members.into_iter().zip(load.ids).zip(answers) {
        if answer[".tag"] == "success" {
            sent.push(member.sent(&id));
            continue;
        }
        let code = error::code(&answer["failure"]);
        let message = format!("its content wasn't taken: {}", error::words(&code));
        // Whoever asks again gets another session.
        let (kind, retry) = (ErrorKind::Io, Retry::Backoff);
        member.fail(CommitError { kind, retry, message, code, ambiguous: false });
    }
    sent
}

/// Waits until a content may go that is held back.
async fn held_back(content: &Payload) {
    let (mut left, most) = (content.len(), content.piece().map_or(u64::MAX, |piece| piece as u64));
    while left > 0 {
        let now = left.min(most);
        let Some(wait) = content.hold(now) else { return };
        wait.await;
        left -= now;
    }
}

/// A request for several failed: each is committed separately, now and, where this service refuses batches, from now on.
async fn refused_together(service: &Service, members: Vec<Member>, refused: ServiceError) -> Vec<Member> {
    if TAKES_NONE.contains(&refused.fault.status) {
        tracing::debug!(code = refused.code, status = refused.fault.status, "contents aren't taken together");
        service.gather.alone.store(true, Ordering::Relaxed);
        return send_alone(service, members).await;
    }
    let failed = CommitError { ambiguous: false, ..CommitError::from(refused) };
    members.into_iter().for_each(|member| member.fail(failed.clone()));
    Vec::new()
}

#[derive(Deserialize)]
struct CommitResponse {
    entries: Vec<Value>,
}

/// Gives the members their names by one request.
async fn publish(service: &Service, mut members: Vec<Member>) {
    for tried in 1.. {
        if members.is_empty() {
            return;
        }
        let answers = match ask(service, &members).await {
            Ok(answers) => answers,
            Err(refused) => {
                let failed = CommitError::from(refused);
                members.into_iter().for_each(|member| member.fail(failed.clone()));
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
        members = crowded;
        if !members.is_empty() {
            tokio::time::sleep(Duration::from_millis(50 << tried)).await;
        }
    }
}

async fn ask(service: &Service, members: &[Member]) -> ServiceResult<Vec<Value>> {
    let entries: Vec<&Value> = members.iter().map(|member| &member.file.entry).collect();
    let call = service.ask("files/upload_session/finish_batch_v2", &json!({ "entries": entries }));
    let answers = service.api.json::<CommitResponse>(&call).await?.entries;
    match answers.len() == members.len() {
        true => Ok(answers),
        false => Err(Fault::broken("the service answered for another number of files than it was asked for").into()),
    }
}

fn outcome(answer: Value) -> CommitResult {
    if answer[".tag"] == "success" {
        let facts = serde_json::from_value::<Facts>(answer);
        return facts.map_err(|e| CommitError {
            kind: ErrorKind::Io,
            retry: Retry::Backoff,
            message: format!("the answer to a commit can't be understood: {e}"),
            code: String::new(),
            ambiguous: true,
        });
    }
    let code = error::code(&answer["failure"]);
    let (kind, retry) = error::meaning(&code);
    Err(CommitError { kind, retry, message: error::words(&code), code, ambiguous: false })
}
