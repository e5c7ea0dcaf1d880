//! Nextcloud as far as large files go: `rclone serve webdav` for a user's files, and before it the uploads in chunks, over a folder. It does
//! what Nextcloud 32 was seen to do. rclone's own chunks go through it in the same tests that haul's do.

use crate::{
    proxy::pass,
    serve::{Body, Server},
    web_servers::{Make, USER_FILES, WebServer},
};
use bytes::Bytes;
use haul_core::{Algo, hash::hash_bytes};
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, StatusCode, body::Incoming};
use std::{
    collections::BTreeMap,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::SystemTime,
};
use tempfile::TempDir;
use tokio::sync::Notify;

/// Where uploads in chunks are.
const UPLOADS: &str = "/remote.php/dav/uploads/anna/";

/// A running server.
#[derive(Debug)]
pub struct Nextcloud {
    files: WebServer,
    server: Server,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    uploads: TempDir,
    data: PathBuf,
    /// Uploads and chunks that were taken, in order.
    taken: Mutex<Vec<(String, String)>>,
    /// Requests of each method for uploads.
    counts: Mutex<BTreeMap<String, usize>>,
    /// Chunks that are taken before further ones wait for `release`.
    admitted: AtomicUsize,
    release: Notify,
    /// Files that are put together without an answer that says so.
    silent: AtomicUsize,
    /// Chunks that are damaged as they arrive.
    damaged: AtomicUsize,
}

impl Nextcloud {
    /// Starts one without files. `None` after saying that the test is skipped.
    ///
    /// Panics if it doesn't start.
    pub fn start() -> Option<Nextcloud> {
        let files = WebServer::start(Make::RcloneUser)?;
        let state = Arc::new(State {
            uploads: TempDir::new().expect("a folder"),
            data: files.data(),
            taken: Mutex::default(),
            counts: Mutex::default(),
            admitted: AtomicUsize::new(usize::MAX),
            release: Notify::new(),
            silent: AtomicUsize::default(),
            damaged: AtomicUsize::default(),
        });
        let (front, upstream) = (state.clone(), files.address);
        // It has a runtime of its own, which no test's may start.
        let start = move || Server::start(move |request, _| answer(front.clone(), upstream, request));
        let server = thread::spawn(start).join().expect("no panic").expect("started");
        Some(Nextcloud { files, server, state })
    }

    /// The address of the user's files.
    pub fn url(&self) -> String {
        format!("{}{USER_FILES}", self.server.endpoint())
    }

    /// The folder of the user's files.
    pub fn data(&self) -> PathBuf {
        self.files.data()
    }

    /// The folder of uploads.
    pub fn uploads(&self) -> &Path {
        self.state.uploads.path()
    }

    /// The chunks that were taken so far, as `UPLOAD`, `CHUNK`.
    pub fn taken(&self) -> Vec<(String, String)> {
        lock(&self.state.taken).clone()
    }

    /// Requests of a method for uploads.
    pub fn count(&self, method: &str) -> usize {
        lock(&self.state.counts).get(method).copied().unwrap_or(0)
    }

    /// Takes so many more chunks; further ones get no answer before [`Nextcloud::go_on`].
    pub fn hold_after(&self, chunks: usize) {
        self.state.admitted.store(chunks, SeqCst);
    }

    /// Drops the requests that wait and takes all from now on.
    pub fn go_on(&self) {
        self.state.admitted.store(usize::MAX, SeqCst);
        self.state.release.notify_waiters();
    }

    /// Puts so many files together and answers 504, as a proxy does that lost patience.
    pub fn say_nothing(&self, times: usize) {
        self.state.silent.store(times, SeqCst);
    }

    /// Changes a byte of so many chunks as they arrive.
    pub fn damage(&self, chunks: usize) {
        self.state.damaged.store(chunks, SeqCst);
    }
}

fn lock<T>(state: &Mutex<T>) -> MutexGuard<'_, T> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes one, if there is one.
fn take(count: &AtomicUsize) -> bool {
    count.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok()
}

async fn answer(state: Arc<State>, files: SocketAddr, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let path = request.uri().path().to_owned();
    let Some(rest) = path.strip_prefix(UPLOADS) else {
        let is_silent = request.method().as_str() == "MOVE" && take(&state.silent);
        let answer = pass(request, files).await?;
        return Ok(if is_silent { plain(504) } else { answer });
    };
    let rest = rest.trim_end_matches('/').to_owned();
    let (upload, chunk) = rest.split_once('/').unwrap_or((&rest, ""));
    *lock(&state.counts).entry(request.method().to_string()).or_default() += 1;
    let folder = state.uploads.path().join(upload);
    let odd = |name: &str| name.split('/').any(|part| part == "..") || name.contains('%');
    if odd(&rest) {
        return Ok(plain(400));
    }
    match (request.method().as_str(), chunk) {
        ("MKCOL", "") => Ok(plain(if fs::create_dir(&folder).is_ok() { 201 } else { 405 })),
        ("DELETE", "") => Ok(plain(if fs::remove_dir_all(&folder).is_ok() { 204 } else { 404 })),
        ("PROPFIND", "") => Ok(list(&path, &folder)),
        ("MOVE", ".file") => {
            let answer = assemble(&state, &folder, files, &request).await?;
            Ok(if take(&state.silent) { plain(504) } else { answer })
        }
        ("PUT", chunk) if !chunk.is_empty() => put(&state, &folder, upload, chunk, request).await,
        _ => Ok(plain(405)),
    }
}

async fn put(
    state: &State,
    folder: &Path,
    upload: &str,
    chunk: &str,
    request: Request<Incoming>,
) -> io::Result<Response<Body>> {
    let released = state.release.notified();
    if !take(&state.admitted) {
        released.await;
        return Err(io::Error::other("given up by the test"));
    }
    let wanted = request.headers().get("x-hash").cloned();
    let mut bytes = request.into_body().collect().await.map_err(io::Error::other)?.to_bytes().to_vec();
    if take(&state.damaged) {
        bytes[0] ^= 1;
    }
    if !folder.is_dir() {
        return Ok(plain(409));
    }
    let place = folder.join(chunk);
    fs::write(place.with_extension("part"), &bytes)?;
    fs::rename(place.with_extension("part"), place)?;
    lock(&state.taken).push((upload.to_owned(), chunk.to_owned()));
    Ok(hashed(plain(201), wanted.as_ref(), &bytes))
}

/// Says the hash that was asked for.
fn hashed(mut response: Response<Body>, wanted: Option<&hyper::header::HeaderValue>, bytes: &[u8]) -> Response<Body> {
    let algos = [("md5", "x-hash-md5", Algo::Md5), ("sha1", "x-hash-sha1", Algo::Sha1)];
    let chosen = algos.into_iter().find(|(name, ..)| wanted.is_some_and(|wanted| wanted == name));
    if let Some((_, header, algo)) = chosen
        && let Some(value) = hash_bytes(&[algo], bytes).hex(algo).and_then(|hex| hex.parse().ok())
    {
        response.headers_mut().insert(header, value);
    }
    response
}

async fn assemble(
    state: &State,
    folder: &Path,
    files: SocketAddr,
    request: &Request<Incoming>,
) -> io::Result<Response<Body>> {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let Ok(read) = fs::read_dir(folder) else { return Ok(plain(404)) };
    let mut chunks: Vec<PathBuf> = read.map(|entry| entry.map(|e| e.path())).collect::<io::Result<_>>()?;
    chunks.sort();
    let bytes = chunks.iter().map(fs::read).collect::<io::Result<Vec<_>>>()?.concat();
    if header("oc-total-length").is_some_and(|total| total != bytes.len().to_string()) {
        return Ok(plain(400));
    }
    let Some(name) = header("destination").and_then(|to| Some(to.split_once(USER_FILES)?.1)) else {
        return Ok(plain(400));
    };
    let decoded: Vec<u8> = percent_encoding::percent_decode_str(name.trim_start_matches('/')).collect();
    let to = state.data.join(String::from_utf8_lossy(&decoded).as_ref());
    if to.exists() && header("overwrite") == Some("F") {
        return Ok(plain(412));
    }
    if !to.parent().is_some_and(Path::is_dir) || to.is_dir() {
        return Ok(plain(409));
    }
    let bytes = Bytes::from(bytes);
    let mut put = Request::put(format!("{USER_FILES}{name}")).header("host", files.to_string());
    if let Some(time) = request.headers().get("x-oc-mtime") {
        put = put.header("x-oc-mtime", time);
    }
    let put = put.body(Full::new(bytes.clone())).map_err(io::Error::other)?;
    let answer = pass(put, files).await?;
    if !answer.status().is_success() {
        return Ok(answer);
    }
    fs::remove_dir_all(folder)?;
    Ok(hashed(plain(201), request.headers().get("x-hash"), &bytes))
}

fn list(path: &str, folder: &Path) -> Response<Body> {
    let Ok(read) = fs::read_dir(folder) else { return plain(404) };
    let base = path.trim_end_matches('/');
    let one = |href: String, props: &str, time: SystemTime| {
        let secs = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let time = jiff::Timestamp::from_second(secs as i64).unwrap_or_default();
        let time = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&time).unwrap_or_default();
        format!(
            "<d:response><d:href>{href}</d:href><d:propstat><d:prop><d:getlastmodified>{time}</d:getlastmodified>{props}\
             </d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response>"
        )
    };
    let now = SystemTime::now();
    let mut text = one(format!("{base}/"), "<d:resourcetype><d:collection/></d:resourcetype>", now);
    let mut total = 0;
    for entry in read.flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        let (name, time) = (entry.file_name().to_string_lossy().into_owned(), meta.modified().unwrap_or(now));
        text += &match meta.is_dir() {
            true => one(format!("{base}/{name}/"), "<d:resourcetype><d:collection/></d:resourcetype>", time),
            false => {
                total += meta.len();
                let props = format!("<d:getcontentlength>{}</d:getcontentlength><d:resourcetype/>", meta.len());
                one(format!("{base}/{name}"), &props, time)
            }
        };
    }
    if path.trim_end_matches('/').len() > UPLOADS.len() {
        let props = format!("<d:getcontentlength>{total}</d:getcontentlength><d:resourcetype/>");
        text += &one(format!("{base}/.file"), &props, now);
    }
    let text = format!("<?xml version=\"1.0\"?>\n<d:multistatus xmlns:d=\"DAV:\">{text}</d:multistatus>");
    let mut response = Response::new(Full::new(Bytes::from(text)).map_err(|e| match e {}).boxed_unsync());
    *response.status_mut() = StatusCode::MULTI_STATUS;
    response
}

fn plain(status: u16) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::new()).map_err(|e| match e {}).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}
