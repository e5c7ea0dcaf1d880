//! A server in front of another that changes its answers: what a hostile service would say. Requests pass as they came.

use crate::{
    proxy::pass,
    serve::{Body, Server},
};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{
    Request, Response,
    body::Incoming,
    header::{AUTHORIZATION, CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
};
use std::{
    fmt, io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread,
};

/// A request, as far as a lie goes by it.
#[derive(Clone, Debug)]
pub struct LiarRequest {
    /// Path and query.
    pub target: String,
    /// `http://` and the host that was asked.
    pub origin: String,
}

/// An answer, whole.
pub type Answer = Response<Bytes>;

type Lie = Arc<dyn Fn(&LiarRequest, Answer) -> Answer + Send + Sync>;

/// A running one.
pub struct Liar {
    server: Server,
    lie: Arc<Mutex<Lie>>,
}

impl fmt::Debug for Liar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Liar").field("server", &self.server).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Liar {
    /// Starts one that tells the truth.
    ///
    /// Panics if there is no port to be had.
    pub fn start(upstream: SocketAddr) -> Liar {
        let lie: Arc<Mutex<Lie>> = Arc::new(Mutex::new(Arc::new(|_, answer| answer)));
        let own = lie.clone();
        // It has a runtime of its own, which no test's may start.
        let start = move || Server::start(move |request, _| answer(own.clone(), upstream, request));
        let server = thread::spawn(start).join().expect("no panic").expect("started");
        Liar { server, lie }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// Changes answers so from now on. Lengths that they said are forgotten before, and said anew unless the lie says others.
    pub fn tell(&self, lie: impl Fn(&LiarRequest, Answer) -> Answer + Send + Sync + 'static) {
        *lock(&self.lie) = Arc::new(lie);
    }
}

async fn answer(lie: Arc<Mutex<Lie>>, upstream: SocketAddr, request: Request<Incoming>) -> io::Result<Response<Body>> {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let liar_request = LiarRequest { target: request.uri().to_string(), origin: format!("http://{host}") };
    let (mut head, body) = pass(request, upstream).await?.into_parts();
    let body = body.collect().await?.to_bytes();
    head.headers.remove(CONTENT_LENGTH);
    head.headers.remove(TRANSFER_ENCODING);
    let lie = lock(&lie).clone();
    let message = lie(&liar_request, Response::from_parts(head, body));
    Ok(message.map(|body| Full::new(body).map_err(|e| match e {}).boxed_unsync()))
}

/// A server that is none of the service's, where nobody's token may come.
#[derive(Debug)]
pub struct Stranger {
    server: Server,
    came: Arc<Mutex<Vec<(String, bool)>>>,
}

impl Stranger {
    /// Starts one that answers every request with this.
    ///
    /// Panics if there is no port to be had.
    pub fn start(said: &'static str) -> Stranger {
        let came: Arc<Mutex<Vec<(String, bool)>>> = Arc::default();
        let own = came.clone();
        let start = move || {
            Server::start(move |request, _| {
                let has_token = request.headers().contains_key(AUTHORIZATION);
                lock(&own).push((request.uri().to_string(), has_token));
                async move { crate::serve::answer(hyper::StatusCode::OK, said.to_owned()) }
            })
        };
        let server = thread::spawn(start).join().expect("no panic").expect("started");
        Stranger { server, came }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// The requests that came since the last call, and whether each had a token.
    pub fn came(&self) -> Vec<(String, bool)> {
        std::mem::take(&mut lock(&self.came))
    }
}
