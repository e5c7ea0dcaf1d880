//! The far end: answers requests with a store of its own, many at once. It may touch one folder: the one that the near end
//! names, or one below the folder that it was started for.

mod answer;
mod bundle;
mod keys;
mod memory;
mod pipe;
mod port;
#[cfg(test)]
mod tests;

use crate::{
    compression::Packing,
    extra_pipes::{self, JoinSocket, JoiningPipe},
    frame::{AHEAD, Frame, Kind},
    handshake::{self, About, ReceivedHello},
    history::ReceiverHistory,
    listen_address::{Listening, Ports},
    message::{self, Answer, Folder, FolderId, FolderRequest, Request, UploadId},
    settings::Settings,
    wire::{self, Queued},
};
use answer::Replies;
use bytes::Bytes;
use haul_core::{Error, ErrorKind, Result};
use haul_store::{Links, Store, Upload, task::Task};
use memory::Room;
use std::{
    collections::HashMap,
    ffi::OsStr,
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt as _},
    path::{Component, Path},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, BufReader, BufWriter},
    sync::{Semaphore, mpsc},
    task::JoinSet,
};

/// Requests that are under way at once. A near end has some hundreds.
const REQUESTS: usize = 4096;

/// Folders that a near end has open: one for each of its stores.
const FOLDERS: usize = 1024;

/// Writes that it has begun: a near end has half as many requests under way.
const UPLOADS: usize = 2048;

/// Parts still in flight when their write ends have this long to be noticed as given up.
const GIVEN_UP: Duration = Duration::from_secs(10);

/// Bytes written at a time.
const BLOCK: usize = 256 << 10;

/// How often the far end says that it is there.
pub const SIGN_OF_LIFE: Duration = Duration::from_secs(10);

/// Serves one near end, on one pipe, until it hangs up. Unfinished writes that it won't resume are removed.
///
/// Errors: the pipes'; `InvalidData` when the other end isn't haul, or breaks the protocol.
pub async fn serve(
    mut from: impl AsyncRead + Send + Unpin,
    to: impl AsyncWrite + Send + Unpin + 'static,
    settings: Settings,
) -> io::Result<()> {
    match handshake::hear(&mut from).await? {
        Some(heard) => attend(from, to, heard, settings, None).await,
        None => Ok(()),
    }
}

/// Serves descriptors, which may be further pipes of a near end that another process serves: then they are handed over to that process,
/// and this returns when it is done with them.
///
/// Errors: as [`serve`]; the descriptors can't be read and written.
pub async fn serve_on(ends: [OwnedFd; 2], settings: Settings) -> io::Result<()> {
    let [input, output] = [ends[0].try_clone()?, ends[1].try_clone()?];
    let mut from = BufReader::with_capacity(AHEAD, pipe::reader(input)?);
    let Some(heard) = handshake::hear(&mut from).await? else { return Ok(()) };
    if let Some(token) = heard.joins() {
        // Nothing follows a hello before it is answered, so that nothing is lost in the buffer.
        drop(from);
        return extra_pipes::knock(token, &heard, &settings, ends).await;
    }
    drop(ends);
    let to = BufWriter::with_capacity(BLOCK, pipe::writer(output)?);
    attend(from, to, heard, settings, JoinSocket::open()).await
}

/// Serves a near end that has greeted, and its further pipes that arrive through `door`.
async fn attend(
    from: impl AsyncRead + Send + Unpin,
    mut to: impl AsyncWrite + Send + Unpin + 'static,
    heard: ReceivedHello,
    settings: Settings,
    door: Option<JoinSocket>,
) -> io::Result<()> {
    let about = About { joins: door.as_ref().map(|door| door.token.clone()), ..about(&settings) };
    let packing = heard.packing();
    if !handshake::answer(heard, &mut to, about).await? {
        return Ok(());
    }
    let session = Arc::new(Session::new(settings));
    let guests = door.map(|door| Task::spawn(guests(door, session.clone())));
    let served = converse(from, to, session.clone(), packing).await;
    drop((guests, session.port().take()));
    session.tidy().await;
    served
}

/// Serves further pipes as they come.
async fn guests(door: JoinSocket, session: Arc<Session>) {
    let mut served = JoinSet::new();
    loop {
        let guest = door.guest(&session.settings).await;
        while served.try_join_next().is_some() {}
        let session = session.clone();
        served.spawn(async move {
            if let Err(error) = welcome(guest, session).await {
                tracing::debug!(%error, "a further pipe broke");
            }
        });
    }
}

async fn welcome(guest: JoiningPipe, session: Arc<Session>) -> io::Result<()> {
    let JoiningPipe { input, output, mark, version, packing, knocker: _knocker } = guest;
    let from = BufReader::with_capacity(AHEAD, pipe::reader(input)?);
    let mut to = BufWriter::with_capacity(BLOCK, pipe::writer(output)?);
    handshake::answer_again(&mark, version, packing, &mut to).await?;
    converse(from, to, session, packing).await
}

/// Answers what comes on a pipe until its other end hangs up.
async fn converse(
    mut from: impl AsyncRead + Send + Unpin,
    to: impl AsyncWrite + Send + Unpin + 'static,
    session: Arc<Session>,
    packing: Packing,
) -> io::Result<()> {
    let _place = session.room.pipe()?;
    let (first, firsts) = mpsc::unbounded_channel::<Queued>();
    // A short queue is enough: each request has a window of its own.
    let (content, contents) = mpsc::channel(16);
    let mut writer = Task::spawn(wire::send(to, firsts, contents, packing, |_| true));
    let signs = first.clone();
    let alive = Task::spawn(async move {
        loop {
            tokio::time::sleep(SIGN_OF_LIFE).await;
            let _ = signs.send(Frame::ALIVE.into());
        }
    });
    let served = tokio::select! {
        served = requests(&mut from, ReceiverHistory::of(packing), &session, &first, &content) => served,
        // Nobody reads: what waits for room would wait for good.
        written = &mut writer => return written,
    };
    drop((alive, first, content));
    served.and(writer.await)
}

/// This end's rights where it serves.
fn about(settings: &Settings) -> About {
    let place = settings.root.as_deref().unwrap_or(b".");
    let store = (settings.open)(place, Links::Keep, false);
    About {
        rights: store.ok().and_then(|store| store.caps().attributes.clone()),
        confined: settings.root.is_some(),
        packs: true,
        keeps: true,
        joins: None,
        listens: settings.listens.is_some(),
        history: true,
        bundles: true,
        small_blocks: true,
        opens_along: true,
    }
}

/// One near end's.
struct Session {
    settings: Settings,
    folders: Mutex<HashMap<FolderId, Arc<OpenFolder>>>,
    uploads: Mutex<HashMap<UploadId, OpenWrite>>,
    next: AtomicU64,
    /// Memory that it may make this end hold.
    room: Room,
    /// Takes further pipes over TCP.
    port: Mutex<Option<(Listening, Task<()>)>>,
}

/// A folder that the near end opened.
struct OpenFolder {
    store: Arc<dyn Store>,
    /// Keys of the near end are below this one of the store: empty, or ending in `/`.
    below: Vec<u8>,
    as_asked: Folder,
}

/// A write under way.
#[derive(Clone)]
struct OpenWrite {
    upload: Arc<Box<dyn Upload>>,
    after: After,
}

/// Treatment of a write that wasn't ended.
#[derive(Clone)]
struct After {
    /// A later run may resume it.
    resumable: bool,
    /// By this the near end finds it again, once it has asked.
    token: Option<Vec<u8>>,
}

/// A request under way.
struct UnderWay {
    _task: Task<()>,
    window: Arc<Semaphore>,
    content: mpsc::UnboundedSender<Bytes>,
}

impl Session {
    fn new(settings: Settings) -> Session {
        let (folders, uploads, port) = (Mutex::default(), Mutex::default(), Mutex::default());
        Session { settings, folders, uploads, next: AtomicU64::new(1), room: Room::new(), port }
    }

    fn port(&self) -> MutexGuard<'_, Option<(Listening, Task<()>)>> {
        self.port.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a port; what is asked again gets the one that is open.
    ///
    /// Errors: `Denied` where this end may not; no port is to be had.
    fn listen(self: &Arc<Self>, ports: Ports) -> Result<Listening> {
        let Some(address) = self.settings.listens else {
            return Err(Error::new(ErrorKind::Denied, "listen", "haul there opens no port"));
        };
        let mut open = self.port();
        if let Some((listening, _)) = &*open {
            return Ok(listening.clone());
        }
        let (listening, task) = port::open(self, address, ports)?;
        *open = Some((listening.clone(), task));
        Ok(listening)
    }

    /// Opens a folder, if it may be had.
    ///
    /// Errors: `Denied` where it is outside of the one that is allowed; the store's.
    fn open(&self, folder: &Folder) -> Result<OpenFolder> {
        let denied = |why: String| Error::new(ErrorKind::Denied, "open", why);
        let follows = folder.links.follows_dirs() || folder.links.follows_files();
        let (place, below) = match &self.settings.root {
            None => (&folder.path, Vec::new()),
            Some(_) if follows => return Err(denied("symlinks aren't followed by haul far --root".to_owned())),
            Some(root) => (root, within(root, &folder.path).map_err(denied)?),
        };
        let own_links = folder.own_links || self.settings.root.is_some();
        let store = (self.settings.open)(place, folder.links, own_links)?;
        Ok(OpenFolder { store, below, as_asked: folder.clone() })
    }

    /// Keeps a folder open.
    ///
    /// Errors: there are too many.
    fn keep(&self, opened: OpenFolder) -> Result<FolderId> {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        check_count(&folders)?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        folders.insert(id, Arc::new(opened));
        Ok(id)
    }

    /// The folder of a number of the near end's, which is opened if it isn't yet.
    ///
    /// Errors: it may not be had; there are too many; the number is another folder's.
    fn folder_along(&self, id: FolderId, folder: &Folder) -> Result<Arc<OpenFolder>> {
        let open = || self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let known = open().get(&id).cloned();
        let opened = match known {
            Some(opened) => opened,
            None => {
                let opened = Arc::new(self.open(folder)?);
                let mut folders = open();
                check_count(&folders)?;
                // Another request may have been faster.
                folders.entry(id).or_insert(opened).clone()
            }
        };
        match opened.as_asked == *folder {
            true => Ok(opened),
            false => Err(Error::new(ErrorKind::Invalid, "open", "the near end has two folders of one number")),
        }
    }

    fn folder(&self, id: FolderId) -> Result<Arc<OpenFolder>> {
        let folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = || Error::new(ErrorKind::Invalid, "open", "the near end asks for a directory it didn't open");
        folders.get(&id).cloned().ok_or_else(unknown)
    }

    fn uploads(&self) -> MutexGuard<'_, HashMap<UploadId, OpenWrite>> {
        self.uploads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses a write where there are too many.
    fn check_uploads(&self) -> Result<()> {
        if self.uploads().len() < UPLOADS {
            return Ok(());
        }
        let why = format!("the near end has begun {UPLOADS} writes, and gets no more");
        Err(Error::new(ErrorKind::Busy, "write", why))
    }

    fn hold(&self, upload: Box<dyn Upload>, resumable: bool) -> UploadId {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let after = After { resumable, token: None };
        self.uploads().insert(id, OpenWrite { upload: Arc::new(upload), after });
        id
    }

    fn held(&self, id: UploadId) -> Result<OpenWrite> {
        self.uploads().get(&id).cloned().ok_or_else(no_upload)
    }

    /// Notes what the near end knows a write by.
    fn note_token(&self, id: UploadId, token: Vec<u8>) {
        if let Some(held) = self.uploads().get_mut(&id) {
            held.after.token = Some(token);
        }
    }

    /// Closes a write that the near end gave up, and now resumes or removes: nothing else reports that it was given up.
    fn let_go(&self, token: &[u8]) {
        self.uploads().retain(|_, held| held.after.token.as_deref() != Some(token));
    }

    /// Takes a write out of the table, to end it. Giving up a part may be reported on another pipe, a moment later.
    async fn release(&self, id: UploadId) -> Result<(Box<dyn Upload>, After)> {
        let until = Instant::now() + GIVEN_UP;
        loop {
            let OpenWrite { upload, after } = self.uploads().remove(&id).ok_or_else(no_upload)?;
            match Arc::try_unwrap(upload) {
                Ok(upload) => return Ok((upload, after)),
                Err(upload) => self.uploads().insert(id, OpenWrite { upload, after }),
            };
            if Instant::now() > until {
                return Err(Error::new(ErrorKind::Invalid, "write", "parts of it are still on their way"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Removes what was begun and has no end.
    async fn tidy(&self) {
        let left: Vec<_> = self.uploads().drain().map(|(_, held)| held).collect();
        for held in left.into_iter().filter(|held| !held.after.resumable) {
            if let Ok(upload) = Arc::try_unwrap(held.upload) {
                // Nobody is left to report to; a later `cleanup` finds remains that can't be removed now.
                let _ = upload.abort().await;
            }
        }
    }
}

/// Refuses a folder where there are too many.
fn check_count(folders: &HashMap<FolderId, Arc<OpenFolder>>) -> Result<()> {
    if folders.len() < FOLDERS {
        return Ok(());
    }
    let why = format!("the near end has {FOLDERS} folders open, and gets no more");
    Err(Error::new(ErrorKind::Busy, "open", why))
}

fn no_upload() -> Error {
    Error::new(ErrorKind::NotFound, "write", "the far end knows nothing of this write")
}

/// Where a path is below a root, as the beginning of keys.
fn within(root: &[u8], path: &[u8]) -> Result<Vec<u8>, String> {
    let (root, path) = (Path::new(OsStr::from_bytes(root)), Path::new(OsStr::from_bytes(path)));
    let refused = || format!("{} is outside of {}", path.display(), root.display());
    let path_below = match path.is_absolute() {
        true => path.strip_prefix(root).map_err(|_| refused())?,
        false => path,
    };
    let mut below = Vec::new();
    for part in path_below.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                below.extend_from_slice(name.as_bytes());
                below.push(b'/');
            }
            _ => return Err(refused()),
        }
    }
    Ok(below)
}

/// Takes requests in until the near end hangs up; those under way then end.
async fn requests(
    from: &mut (impl AsyncRead + Unpin),
    mut reading: ReceiverHistory,
    session: &Arc<Session>,
    first: &mpsc::UnboundedSender<Queued>,
    content: &mpsc::Sender<Queued>,
) -> io::Result<()> {
    let (end, mut ended) = mpsc::unbounded_channel::<u32>();
    let mut under_way: HashMap<u32, UnderWay> = HashMap::new();
    let broken = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    while let Some(frame) = Frame::read(from, &mut reading).await? {
        while let Ok(id) = ended.try_recv() {
            under_way.remove(&id);
        }
        match frame.kind {
            Kind::Answer | Kind::Alive => return Err(broken("the near end answers, where it should ask")),
            Kind::Cancel => drop(under_way.remove(&frame.id)),
            Kind::Taken => {
                let count = frame.count().filter(|count| *count <= 2 * wire::WINDOW);
                let count = count.ok_or_else(|| broken("the near end took more than it was sent"))?;
                // One that has ended needs no more room.
                under_way.get(&frame.id).inspect(|request| request.window.add_permits(count as usize));
            }
            Kind::Data => {
                let size = frame.body.len();
                session.room.came(size)?;
                let taken = under_way.get(&frame.id).is_some_and(|request| request.content.send(frame.body).is_ok());
                if !taken {
                    // Of a part that failed.
                    session.room.unstored().fetch_sub(memory::piece(size), Ordering::Relaxed);
                }
            }
            Kind::Request => {
                if under_way.len() >= REQUESTS || under_way.contains_key(&frame.id) {
                    return Err(broken("the near end asks for too much at once"));
                }
                let id = frame.id;
                let (send, receive) = mpsc::unbounded_channel();
                let window = Arc::new(Semaphore::new(wire::WINDOW as usize));
                let permit = session.room.request(frame.body.len()).await;
                let replies =
                    Replies::new(session.clone(), id, (first.clone(), content.clone()), window.clone(), permit);
                let incoming = answer::Incoming::new(receive, session.room.unstored());
                let (session, end) = (session.clone(), end.clone());
                let task = Task::spawn(async move {
                    let done = match message::read::<FolderRequest<Request>>(&frame) {
                        Ok(asking) => answer::answer(&session, asking, &replies, incoming).await,
                        Err(error) => Err(error),
                    };
                    if let Err(error) = done {
                        replies.last(Answer::Failed(error)).await;
                    }
                    let _ = end.send(replies.id);
                });
                under_way.insert(id, UnderWay { _task: task, window, content: send });
            }
        }
    }
    Ok(())
}
