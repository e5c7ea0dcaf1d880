//! Writing files: parts at their offsets into a hidden file beside the final name, over as many sessions as there is work for, then a
//! rename.

mod link;

use crate::{
    change,
    channel::{Channel, PendingReply},
    hidden,
    pool::{self, Fault, Handle},
    read,
    service::{AttributeChange, Service, SessionTurn, at, version},
    shell,
    wire::{Attrs, Hello, Request, open, status},
};
use bytes::Bytes;
use futures::{FutureExt, StreamExt, TryStreamExt, future::BoxFuture, stream};
use haul_core::{Algo, Error, ErrorKind, Hasher, Key, Result};
use haul_store::{
    Body, Direction, LateFacts, Part, Payload, ResumedWrite, SentPart, StoredFacts, Unpublished, Upload, WriteSpec,
    body::Pieces,
};
use http_body::Body as _;
use std::{
    collections::{BTreeMap, VecDeque},
    future::poll_fn,
    ops::Range,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

const OP: &str = "write";

/// Parts that are read back at once.
const PROVED: usize = 8;

/// See [`haul_store::Store::write`]; sends nothing.
pub fn begin(service: &Arc<Service>, key: &Key, spec: WriteSpec) -> Result<Box<dyn Upload>> {
    if key.is_root() || key.is_dir() {
        return Err(Error::new(ErrorKind::Invalid, OP, "this can't be the name of a file").with_key(key));
    }
    service.path(key)?;
    AttributeChange::new(key, spec.mtime, None, false)?;
    if key.is_symlink() {
        if !service.links.keeps() {
            return Err(Error::new(ErrorKind::Unsupported, OP, "symbolic links aren't kept here").with_key(key));
        }
        return Ok(link::begin(service, key, spec));
    }
    let temp = match spec.inplace {
        true => key.clone(),
        false => beside(key, &hidden::new(key.name(), &spec.partial_suffix)),
    };
    Ok(Box::new(FileWrite(Arc::new(Inner::new(service, key, spec, temp, false)?))))
}

fn beside(key: &Key, name: &[u8]) -> Key {
    Key::new([key.parent().as_bytes(), name].concat())
}

struct FileWrite(Arc<Inner>);

struct Inner {
    service: Arc<Service>,
    key: Key,
    spec: WriteSpec,
    /// The written file: the key itself for a write in place.
    temp: Key,
    /// Where that is.
    path: Vec<u8>,
    /// It exists; locked by whoever creates it.
    made: tokio::sync::Mutex<bool>,
    state: Mutex<State>,
    /// Bytes may lie behind the end.
    longer: AtomicBool,
}

#[derive(Default)]
struct State {
    /// By session.
    handles: BTreeMap<u64, Arc<Handle>>,
    /// The file that is there already, when the write began.
    there: Option<Attrs>,
    /// The file is complete: the attributes that it was to get, and the facts that the server reports since.
    finished: Option<(Attrs, Attrs)>,
    /// A rename was asked for and nobody knows whether it was made.
    maybe_renamed: bool,
    /// It was made by us.
    created: bool,
    /// Where it was asked for under a hidden name, which is ours alone, and nobody knows whether it was made.
    maybe_created: Option<Arc<Channel>>,
}

impl Inner {
    fn new(service: &Arc<Service>, key: &Key, spec: WriteSpec, temp: Key, made: bool) -> Result<Inner> {
        let path = service.path(&temp)?;
        let (service, longer) = (service.clone(), AtomicBool::new(spec.inplace));
        let made = tokio::sync::Mutex::new(made);
        Ok(Inner { service, key: key.clone(), spec, temp, path, made, state: Mutex::default(), longer })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn error(&self, message: &str, kind: ErrorKind) -> Error {
        Error::new(kind, OP, message).with_key(&self.key)
    }

    /// The open file on the session of a turn.
    async fn handle(&self, turn: &SessionTurn) -> Result<Arc<Handle>, Fault> {
        let channel = &turn.claim;
        if let Some(handle) = self.opened(channel.number)? {
            return Ok(handle);
        }
        let mut made = self.made.lock().await;
        if let Some(handle) = self.opened(channel.number)? {
            return Ok(handle);
        }
        let handle = match *made {
            true if self.is_alone(turn) => {
                let message = "the server keeps only what comes through one opening of a file, and that was closed";
                return Err(self.error(message, ErrorKind::Io).into());
            }
            true => {
                drop(made);
                Handle::opened(channel, channel.ask(&Request::Open(&self.path, open::WRITE, Attrs::default()))).await?
            }
            false => {
                let handle = self.create(turn).await?;
                *made = true;
                handle
            }
        };
        let handle = Arc::new(handle);
        // Of two that came at once the second is closed by being dropped.
        Ok(self.state().handles.entry(channel.number).or_insert(handle).clone())
    }

    /// The handle on a session; any session's where a file can only be opened once.
    ///
    /// Errors: that one is lost.
    fn opened(&self, session: u64) -> Result<Option<Arc<Handle>>, Fault> {
        let state = self.state();
        let own = state.handles.get(&session);
        let handle = match own.or_else(|| state.handles.values().next()) {
            Some(handle) if own.is_some() || self.is_alone_on(&handle.channel.hello) => handle,
            _ => return Ok(None),
        };
        if own.is_none() && handle.channel.is_dead() {
            let message = "the session that wrote it is lost, and with it what was written";
            return Err(self.error(message, ErrorKind::Io).into());
        }
        Ok(Some(handle.clone()))
    }

    /// All of it must come through one opening of the file. Of a file in place that is there already nobody can find out.
    fn is_alone(&self, turn: &SessionTurn) -> bool {
        self.is_alone_on(&turn.claim.hello)
    }

    fn is_alone_on(&self, hello: &Hello) -> bool {
        self.service.pool.keeps_at_close().unwrap_or(self.spec.inplace && !hello.is_in_order())
    }

    async fn create(&self, turn: &SessionTurn) -> Result<Handle, Fault> {
        let parent = self.key.parent();
        let handle = match self.try_create(turn).await {
            Err(fault) if fault.is(status::NO_SUCH_FILE) => {
                self.service.forget(&parent);
                change::make_dir(&self.service, &parent).await?;
                self.try_create(turn).await?
            }
            other => other?,
        };
        if self.state().created {
            self.service.pool.learn_when_it_keeps(&handle).await?;
        }
        Ok(handle)
    }

    async fn try_create(&self, turn: &SessionTurn) -> Result<Handle, Fault> {
        let (channel, spec) = (&turn.claim, &self.spec);
        // The existing file passes its permissions on. Requested together with everything that doesn't depend on it.
        let own = self.service.path(&self.key)?;
        let there = channel.ask(&Request::Lstat(&own));
        if spec.inplace {
            let there = pool::attrs(there).await;
            if let Ok(there) = &there
                && !there.is_file()
            {
                let message =
                    "is a directory, symbolic link, device, FIFO or socket: remove it to write a file there in place";
                return Err(self.error(message, ErrorKind::Exists).into());
            }
            if let haul_core::plan::Replace::Exactly(want) = &spec.replace
                && there.as_ref().ok().map(version).as_ref() != Some(want)
            {
                return Err(self.error("changed since it was listed", ErrorKind::Changed).into());
            }
            // An existing file that we can't see isn't ours to remove when the write fails.
            let new = there.is_err_and(|fault| fault.is(status::NO_SUCH_FILE));
            let exclusive = if spec.replace == haul_core::plan::Replace::Absent { open::EXCLUSIVE } else { 0 };
            let flags = open::WRITE | open::READ | open::CREATE | exclusive;
            let handle =
                Handle::opened(channel, channel.ask(&Request::Open(&self.path, flags, Attrs::default()))).await;
            let handle = match handle {
                Err(fault) if exclusive != 0 && !new && !matches!(fault, Fault::Lost(_)) => {
                    return Err(self.error("is there already", ErrorKind::Exists).into());
                }
                other => other?,
            };
            self.state().created = new;
            return Ok(handle);
        }
        // A file that others may not read in the end isn't readable while it arrives either.
        let mode = spec.meta.as_ref().and_then(|meta| u32::from_str_radix(meta.get("mode")?, 8).ok());
        let private = mode.is_some_and(|mode| mode & 0o044 != 0o044);
        let attrs = Attrs { mode: private.then_some(0o600), ..Attrs::default() };
        let again = self.state().maybe_created.replace(Arc::clone(channel)).is_some();
        let exclusive = if again { 0 } else { open::EXCLUSIVE };
        let flags = open::WRITE | open::READ | open::CREATE | exclusive;
        let mut handle = Handle::opened(channel, channel.ask(&Request::Open(&self.path, flags, attrs))).await;
        if !again && matches!(handle, Err(Fault::Status(..))) {
            self.state().maybe_created = None;
        }
        let there = if_present(pool::attrs(there).await)?;
        let closed = |there: &Attrs| there.is_file() && there.mode.is_some_and(|mode| mode & 0o044 != 0o044);
        if !private && mode.is_none() && there.as_ref().is_some_and(closed) {
            // Created anew, as anyone who has opened it meanwhile could continue reading. Nothing was written yet.
            pool::done(handle?.close()).await?;
            pool::done(channel.ask(&Request::Remove(&self.path))).await?;
            let attrs = Attrs { mode: Some(0o600), ..Attrs::default() };
            handle = Handle::opened(channel, channel.ask(&Request::Open(&self.path, flags, attrs))).await;
        }
        let handle = handle?;
        self.service.has(&self.key.parent());
        let mut state = self.state();
        (state.there, state.created) = (there, true);
        Ok(handle)
    }

    /// Attributes of the file, as far as they are known now.
    fn wish(&self, late: &LateFacts) -> Result<AttributeChange> {
        let meta = late.meta.as_deref().or(self.spec.meta.as_deref());
        let mtime = late.mtime.or(self.spec.mtime).filter(|_| self.service.set_times);
        let mut wish = AttributeChange::new(&self.key, mtime, meta, self.spec.keep_setid)?;
        if !self.service.set_times {
            wish.attrs.times = None;
        }
        if wish.attrs.mode.is_none() && !self.spec.inplace {
            let there = self.state().there.filter(Attrs::is_file);
            wish.attrs.mode = there.and_then(|there| there.mode).map(|mode| mode & 0o777);
        }
        Ok(wish)
    }

    async fn part(&self, index: u64, offset: u64, payload: Payload) -> Result<Part> {
        let (size, error) = (payload.len(), at(OP, &self.key));
        let turn = self.service.turn("Write", Direction::Up, size).await?;
        let whole = index == 0 && offset == 0 && self.spec.size == Some(size) && !self.spec.inplace;
        self.state().finished = None;
        // A later run must find out whether the part is there.
        let mut hasher = self.spec.resumable.then(|| Hasher::new(&[Algo::Sha256]));
        let result = async {
            let handle = self.handle(&turn).await?;
            let answers = self.send(&turn, &handle, offset, &payload, &mut hasher).await?;
            // A server that does all in order gets the rest in the same breath.
            match whole && turn.claim.hello.is_in_order() {
                true => {
                    let wish = self.wish(&LateFacts::default())?;
                    self.state().handles.remove(&turn.claim.number);
                    let finished = self.finish(&handle, &wish, size, answers).await?;
                    self.state().finished = Some((wish.attrs, finished));
                }
                false => settled(answers).await?,
            }
            Ok(())
        };
        let result = result.await;
        turn.end(&result);
        match result {
            Ok(()) => {
                let hashes = hasher.map(Hasher::finish).unwrap_or_default();
                let tag = hashes.get(Algo::Sha256).map(<[u8]>::to_vec).unwrap_or_default();
                Ok(Part { index, size, tag })
            }
            Err(fault) => {
                let own = payload.relay().and_then(|relay| relay.error());
                Err(match own {
                    Some(own) => own,
                    None => change::no_space(&self.service, error(fault), size).await,
                })
            }
        }
    }

    /// Sends content as it is at hand, and gives the answers that are still to come.
    async fn send(
        &self,
        turn: &SessionTurn,
        handle: &Handle,
        offset: u64,
        payload: &Payload,
        hasher: &mut Option<Hasher>,
    ) -> Result<VecDeque<PendingReply>, Fault> {
        let (mut at, mut left) = (offset, payload.len());
        let mut pieces = Pieces::new(payload.clone());
        let mut held = Bytes::new();
        let mut answers: VecDeque<PendingReply> = VecDeque::new();
        while left > 0 {
            let len = u64::from(self.service.pool.write_len()).min(left) as u32;
            let room = handle.channel.room(len).await;
            let (mut content, mut got) = (Vec::new(), 0);
            while got < len as usize {
                if held.is_empty() {
                    held = next(&mut pieces).await?;
                }
                let piece = held.split_to(held.len().min(len as usize - got));
                got += piece.len();
                hasher.iter_mut().for_each(|hasher| hasher.update(&piece));
                content.push(piece);
            }
            answers.push_back(handle.channel.write(&handle.name, at, content, room));
            (at, left) = (at + u64::from(len), left - u64::from(len));
            turn.moved(len.into());
            // Check answers early, to fail early.
            while let Some(answer) = answers.front_mut().and_then(|answer| answer.now_or_never()) {
                answers.pop_front();
                pool::is_done(answer?)?;
            }
        }
        Ok(answers)
    }

    /// Gives what is written its facts, asks for them, and closes it, behind what is on its way.
    async fn finish(
        &self,
        handle: &Arc<Handle>,
        wish: &AttributeChange,
        size: u64,
        before: VecDeque<PendingReply>,
    ) -> Result<Attrs, Fault> {
        let channel = &handle.channel;
        let owner = wish.owner.map(|owner| {
            channel.ask(&Request::Fsetstat(&handle.name, Attrs { owner: Some(owner), ..Attrs::default() }))
        });
        let cut = self.longer.load(Ordering::Relaxed).then_some(size);
        let attrs = Attrs { size: cut, ..wish.attrs };
        let set = (attrs != Attrs::default()).then(|| channel.ask(&Request::Fsetstat(&handle.name, attrs)));
        let synced = match self.spec.fsync && channel.hello.has("fsync@openssh.com", "1") {
            true => Some(channel.ask_slow(&Request::Extended("fsync@openssh.com", &[&handle.name]))),
            false => None,
        };
        // Others than those that do all in order may keep something else than they say while it is open.
        let facts = channel.hello.is_in_order().then(|| channel.ask(&Request::Fstat(&handle.name)));
        let closed = channel.ask(&Request::Close(&handle.name));
        handle.is_closed();
        settled(before).await?;
        if let Some(owner) = owner {
            match pool::done(owner).await {
                Err(fault @ Fault::Lost(_)) => return Err(fault),
                Err(fault) => tracing::debug!(key = %self.key, ?fault, "can't set the owner"),
                Ok(()) => {}
            }
        }
        if let Some(set) = set {
            pool::done(set).await?;
        }
        if let Some(synced) = synced {
            pool::done(synced).await?;
        }
        let early = match facts {
            Some(facts) => Some(pool::attrs(facts).await?),
            None => None,
        };
        pool::done(closed).await?;
        match early {
            Some(facts) => self.whole(facts, size),
            None => self.whole(pool::attrs(channel.ask(&Request::Lstat(&self.path))).await?, size),
        }
    }

    /// As [`finish`](Self::finish), where a file exists only once it is closed.
    async fn finish_closed(&self, turn: &SessionTurn, wish: &AttributeChange, size: u64) -> Result<Attrs, Fault> {
        let channel = &turn.claim;
        if let Some(owner) = wish.owner {
            let attrs = Attrs { owner: Some(owner), ..Attrs::default() };
            match pool::done(channel.ask(&Request::Setstat(&self.path, attrs))).await {
                Err(fault @ Fault::Lost(_)) => return Err(fault),
                Err(fault) => tracing::debug!(key = %self.key, ?fault, "can't set the owner"),
                Ok(()) => {}
            }
        }
        let cut = self.longer.load(Ordering::Relaxed).then_some(size);
        let attrs = Attrs { size: cut, ..wish.attrs };
        if attrs != Attrs::default() {
            pool::done(channel.ask(&Request::Setstat(&self.path, attrs))).await?;
        }
        self.whole(pool::attrs(channel.ask(&Request::Lstat(&self.path))).await?, size)
    }

    fn whole(&self, facts: Attrs, size: u64) -> Result<Attrs, Fault> {
        match facts.size {
            Some(there) if there == size => Ok(facts),
            there => {
                let there = there.map_or("doesn't say how many it has".to_owned(), |there| format!("has {there}"));
                let message = format!("{size} bytes were sent, and the server {there}");
                Err(Error::new(ErrorKind::Corrupt, OP, message).with_key(&self.key).into())
            }
        }
    }

    async fn publish(&self, parts: &[Part], late: &LateFacts) -> Result<StoredFacts> {
        let size = total(&self.key, &self.spec, parts)?;
        let wish = self.wish(late)?;
        let finished = self.state().finished.filter(|(had, facts)| {
            let same_times = had.times.map(|(_, mtime)| mtime) == wish.attrs.times.map(|(_, mtime)| mtime);
            same_times && had.mode == wish.attrs.mode && facts.size == Some(size)
        });
        let facts = match finished {
            Some((_, facts)) => facts,
            None => match self.complete(&wish, size).await {
                Ok(facts) => facts,
                Err(error) if error.kind() == ErrorKind::NotFound && self.state().maybe_renamed => {
                    return self.was_renamed(size, &wish).await;
                }
                Err(error) => return Err(error),
            },
        };
        self.state().finished = Some((wish.attrs, facts));
        if !self.spec.inplace {
            let there = self.state().there;
            let renamed =
                change::settle(&self.service, &self.path, &self.key, &self.spec.replace, there.as_ref()).await;
            match renamed {
                Err((error, _)) if self.state().maybe_renamed && self.is_gone(&error).await => {
                    return self.was_renamed(size, &wish).await;
                }
                Err((error, maybe)) => {
                    self.state().maybe_renamed |= maybe;
                    return Err(error);
                }
                Ok(()) => {}
            }
        }
        Ok(StoredFacts { version: Some(version(&facts)), size, ..StoredFacts::default() })
    }

    /// True where an error of the rename shows that the written file no longer has its hidden name.
    async fn is_gone(&self, error: &Error) -> bool {
        match error.kind() {
            ErrorKind::NotFound => true,
            // The file to replace is another one, which may be just this.
            ErrorKind::Changed => {
                let there = self.service.facts(&self.path, false).await;
                there.is_err_and(|fault| fault.is(status::NO_SUCH_FILE))
            }
            _ => false,
        }
    }

    /// The answer to an earlier rename was lost, and what was written isn't there any more: it has its name.
    async fn was_renamed(&self, size: u64, wish: &AttributeChange) -> Result<StoredFacts> {
        let path = self.service.path(&self.key)?;
        let facts = self.service.facts(&path, false).await.map_err(at(OP, &self.key))?;
        let same = facts.is_file()
            && facts.size == Some(size)
            && wish.attrs.times.is_none_or(|(_, mtime)| facts.times.is_some_and(|(_, there)| there == mtime));
        match same {
            true => Ok(StoredFacts { version: Some(version(&facts)), size, ..StoredFacts::default() }),
            false => Err(self.error("what was written is gone: somebody removed it", ErrorKind::Changed)),
        }
    }

    /// Closes all that is open of what was written, and gives it its facts.
    async fn complete(&self, wish: &AttributeChange, size: u64) -> Result<Attrs> {
        let turn = self.service.turn("Fsetstat", Direction::Meta, 0).await?;
        let result = async {
            let mut handles: Vec<Arc<Handle>> = std::mem::take(&mut self.state().handles).into_values().collect();
            handles.retain(|handle| !handle.channel.is_dead());
            if handles.is_empty() && self.is_alone(&turn) && *self.made.lock().await {
                // An earlier try has closed it: opened again it would be empty.
                return self.finish_closed(&turn, wish, size).await;
            }
            let last = match handles.pop() {
                Some(last) => last,
                None => {
                    let opened = self.handle(&turn).await?;
                    self.state().handles.clear();
                    opened
                }
            };
            // A server on a network file system may report lost writes at the close.
            let closing: Vec<_> = handles.iter().map(|handle| handle.close()).collect();
            for closed in closing {
                pool::done(closed).await?;
            }
            if self.is_alone(&turn) {
                pool::done(last.close()).await?;
                return self.finish_closed(&turn, wish, size).await;
            }
            self.finish(&last, wish, size, VecDeque::new()).await
        };
        let result = result.await;
        turn.end(&result);
        result.map_err(at(OP, &self.key))
    }

    async fn remove(&self) -> Result<()> {
        let handles = std::mem::take(&mut self.state().handles);
        for handle in handles.values().filter(|handle| self.is_alone_on(&handle.channel.hello)) {
            // It is there from then on.
            let _ = pool::done(handle.close()).await;
        }
        drop(handles);
        let made = *self.made.lock().await;
        if made && self.spec.inplace && !self.state().created {
            // In place it is the user's file.
            return Ok(());
        }
        if !made {
            let Some(channel) = self.state().maybe_created.take() else { return Ok(()) };
            // Behind the request to make it, for whose answer nobody waited. What another session asked could be done before that.
            match pool::done(channel.ask(&Request::Remove(&self.path))).await {
                Err(Fault::Lost(_)) => {}
                Err(fault) if !fault.is(status::NO_SUCH_FILE) => return Err(at("delete", &self.key)(fault)),
                _ => return Ok(()),
            }
        }
        change::remove(&self.service, &self.path, &self.key).await
    }
}

async fn settled(answers: VecDeque<PendingReply>) -> Result<(), Fault> {
    for answer in answers {
        pool::done(answer).await?;
    }
    Ok(())
}

async fn next(pieces: &mut Pieces) -> Result<Bytes, Fault> {
    let frame = poll_fn(|cx| Pin::new(&mut *pieces).poll_frame(cx)).await;
    let early = || Error::new(ErrorKind::Io, OP, "the source ended early");
    match frame {
        Some(Ok(frame)) => Ok(frame.into_data().unwrap_or_default()),
        Some(Err(error)) => Err(Error::new(ErrorKind::Io, OP, error.to_string()).into()),
        None => Err(early().into()),
    }
}

/// The size that the parts make, checked against what was promised.
fn total(key: &Key, spec: &WriteSpec, parts: &[Part]) -> Result<u64> {
    let sizes: BTreeMap<u64, u64> = parts.iter().map(|part| (part.index, part.size)).collect();
    let size = sizes.values().sum();
    match spec.size {
        Some(want) if want != size && !spec.size_may_differ => {
            let message = format!("{size} bytes arrived instead of {want}: nothing was changed");
            Err(Error::new(ErrorKind::Corrupt, OP, message).with_key(key))
        }
        _ => Ok(size),
    }
}

impl Upload for FileWrite {
    /// The hidden file's key. What is written in place can't be told from what was there before.
    fn token(&self) -> BoxFuture<'_, Result<Option<Vec<u8>>>> {
        let token = (!self.0.spec.inplace).then(|| self.0.temp.as_bytes().to_vec());
        async { Ok(token) }.boxed()
    }

    fn read_back(&self, range: Range<u64>) -> BoxFuture<'_, Result<Body>> {
        async move { Ok(read::read(&self.0.service, &self.0.temp, None, Some(range)).await?.body) }.boxed()
    }

    fn part(&self, index: u64, offset: u64, payload: Payload) -> BoxFuture<'_, Result<Part>> {
        let inner = self.0.clone();
        if offset + payload.len() > self.0.spec.size.unwrap_or(0) {
            self.0.longer.store(true, Ordering::Relaxed);
        }
        async move { inner.part(index, offset, payload).await }.boxed()
    }

    fn publish(
        self: Box<Self>,
        parts: Vec<Part>,
        late: LateFacts,
    ) -> BoxFuture<'static, Result<StoredFacts, Unpublished>> {
        async move {
            match self.0.publish(&parts, &late).await {
                Ok(stored) => Ok(stored),
                Err(error) => Err(Unpublished { error, upload: self }),
            }
        }
        .boxed()
    }

    fn abort(self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        async move { self.0.remove().await }.boxed()
    }
}

/// The attributes of a name, if it exists; also `None` where the server shows no files but accepts them (a drop box). Any other failure
/// proves nothing: the existing file may be one that not everybody may read.
fn if_present(there: Result<Attrs, Fault>) -> Result<Option<Attrs>, Fault> {
    match there {
        Err(fault) if fault.is(status::NO_SUCH_FILE) || fault.is(status::PERMISSION_DENIED) => Ok(None),
        there => there.map(Some),
    }
}

/// See [`haul_store::Resumable::resume`]. Every part is verified, since a server loses unwritten data when it crashes: by
/// a hash command there, else by reading it back.
pub async fn resume(
    service: &Arc<Service>,
    key: &Key,
    token: &[u8],
    sent: Vec<SentPart>,
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    const OP: &str = "resume";
    let temp = hidden_key(OP, key, token)?;
    if spec.inplace {
        return Err(Error::new(ErrorKind::Changed, OP, "it was begun under a hidden name").with_key(key));
    }
    let gone = || Error::new(ErrorKind::NotFound, OP, "the partial file is no longer there").with_key(key);
    let facts = service.facts(&service.path(&temp)?, false).await.map_err(at(OP, key))?;
    let most = spec.size.filter(|_| !spec.size_may_differ).unwrap_or(u64::MAX);
    let Some(size) = facts.size.filter(|size| facts.is_file() && *size <= most) else { return Err(gone()) };
    if keeps_at_close(service, key, &spec).await.map_err(at(OP, key))? {
        // Here opening the file would replace the bytes written before.
        change::remove(service, &service.path(&temp)?, key).await?;
        return Err(gone());
    }
    let there = if_present(service.facts(&service.path(key)?, false).await).map_err(at(OP, key))?;
    let (hashed, unknown) = proved_there(service, &temp, size, sent).await?;
    let proofs = unknown.into_iter().map(|sent| {
        let (service, temp) = (service.clone(), temp.clone());
        async move { is_there(&service, &temp, size, &sent).await.map(|there| there.then_some(sent.part)) }
    });
    let read: Vec<Option<Part>> =
        stream::iter(proofs).buffered(PROVED).try_collect().await.map_err(|e: Error| e.with_key(key))?;
    let inner = Inner::new(service, key, WriteSpec { resumable: true, ..spec }, temp, true)?;
    {
        let mut state = inner.state();
        (state.there, state.created) = (there, true);
    }
    Ok((Box::new(FileWrite(Arc::new(inner))), hashed.into_iter().chain(read.into_iter().flatten()).collect()))
}

/// See [`Pool::keeps_at_close`](pool::Pool::keeps_at_close); where nobody knows yet, an empty hidden file shows it.
async fn keeps_at_close(service: &Arc<Service>, key: &Key, spec: &WriteSpec) -> Result<bool, Fault> {
    if let Some(known) = service.pool.keeps_at_close() {
        return Ok(known);
    }
    let path = service.path(&beside(key, &hidden::new(key.name(), &spec.partial_suffix)))?;
    let flags = open::WRITE | open::CREATE | open::EXCLUSIVE;
    let probe = async |channel: &pool::Claim| {
        let made = Handle::opened(channel, channel.ask(&Request::Open(&path, flags, Attrs::default()))).await?;
        let known = service.pool.learn_when_it_keeps(&made).await?;
        pool::done(made.close()).await?;
        Ok(known)
    };
    let known = match service.pool.hello().await?.is_in_order() {
        true => return Ok(false),
        false => service.ask("Write", probe).await?,
    };
    change::remove(service, &path, key).await?;
    Ok(known)
}

/// The parts whose hashes a command there found, and those of which it can say nothing. What it found to be otherwise is neither.
async fn proved_there(
    service: &Service,
    temp: &Key,
    size: u64,
    sent: Vec<SentPart>,
) -> Result<(Vec<Part>, Vec<SentPart>)> {
    let whole = |sent: &SentPart| {
        sent.part.tag.len() == Algo::Sha256.size() && sent.offset.saturating_add(sent.part.size) <= size
    };
    let (tagged, others): (Vec<SentPart>, Vec<SentPart>) = sent.into_iter().partition(whole);
    let of: Vec<(u64, u64)> = tagged.iter().map(|sent| (sent.offset, sent.part.size)).collect();
    let found =
        if of.is_empty() { None } else { shell::stretches(&service.pool, &service.for_shell(temp)?, &of).await };
    match found {
        Some(found) => {
            let pairs = tagged.into_iter().zip(found);
            Ok((pairs.filter(|(sent, found)| sent.part.tag == *found).map(|(sent, _)| sent.part).collect(), others))
        }
        None => Ok((Vec::new(), tagged.into_iter().chain(others).collect())),
    }
}

async fn is_there(service: &Arc<Service>, temp: &Key, size: u64, sent: &SentPart) -> Result<bool> {
    let range = sent.offset..sent.offset.saturating_add(sent.part.size);
    if range.end > size {
        return Ok(false);
    }
    if range.is_empty() {
        return Ok(true);
    }
    let Body::Stream(mut pieces) = read::read(service, temp, None, Some(range)).await?.body else { return Ok(false) };
    let mut hasher = Hasher::new(&[Algo::Crc64Nvme]);
    while let Some(piece) = pieces.next().await {
        hasher.update(&piece?);
    }
    Ok(hasher.finish().crc64() == Some(sent.crc64))
}

/// See [`haul_store::Resumable::discard`].
pub async fn discard(service: &Service, key: &Key, token: &[u8]) -> Result<bool> {
    let temp = hidden_key("discard", key, token)?;
    let path = service.path(&temp)?;
    let removed = service.ask("Remove", async |channel| pool::done(channel.ask(&Request::Remove(&path))).await).await;
    match removed {
        Err(fault) if fault.is(status::NO_SUCH_FILE) => Ok(false),
        other => other.map(|()| true).map_err(at("discard", key)),
    }
}

/// The key in a token, which must be one that hidden files beside `key` have: a token can't make us touch another file.
fn hidden_key(op: &'static str, key: &Key, token: &[u8]) -> Result<Key> {
    let name = token.strip_prefix(key.parent().as_bytes());
    let name = name.filter(|name| !name.contains(&b'/') && hidden::is_hidden(name));
    match name {
        Some(name) if !key.is_dir() && !key.is_root() => Ok(beside(key, name)),
        _ => Err(Error::new(ErrorKind::Invalid, op, "this isn't the token of a write to it").with_key(key)),
    }
}
