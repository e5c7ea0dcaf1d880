//! A server in front of another: it passes everything on as it came, counts some of the requests, lets so many of them pass, and loses
//! answers.

use crate::{
    proxy::pass,
    serve::{Body, Server},
};
use http_body_util::BodyExt as _;
use hyper::{Method, Request, Response, Uri, body::Incoming};
use std::{
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
};
use tokio::sync::Notify;

/// Which requests are counted.
pub type RequestFilter = fn(&Method, &Uri) -> bool;

/// A running front.
#[derive(Debug)]
pub struct Front {
    server: Server,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    /// Requests that may still pass; further ones wait for `release`.
    admitted: AtomicUsize,
    release: Notify,
    /// Those that were answered.
    answered: AtomicUsize,
    /// Answers to lose.
    lost: AtomicUsize,
}

impl Front {
    /// Starts one.
    ///
    /// Panics if there is no port to be had.
    pub fn start(upstream: SocketAddr, which: RequestFilter) -> Front {
        let state = Arc::new(State {
            admitted: AtomicUsize::new(usize::MAX),
            release: Notify::new(),
            answered: AtomicUsize::default(),
            lost: AtomicUsize::default(),
        });
        let own = state.clone();
        // It has a runtime of its own, which no test's may start.
        let start = move || Server::start(move |request, _| answer(own.clone(), upstream, which, request));
        let server = thread::spawn(start).join().expect("no panic").expect("started");
        Front { server, state }
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        self.server.endpoint()
    }

    /// How many were answered.
    pub fn answered(&self) -> usize {
        self.state.answered.load(SeqCst)
    }

    /// Lets so many more pass; further ones get no answer before [`Front::go_on`].
    pub fn hold_after(&self, requests: usize) {
        self.state.admitted.store(requests, SeqCst);
    }

    /// So many more are done, and the connection ends before their answers.
    pub fn lose(&self, answers: usize) {
        self.state.lost.store(answers, SeqCst);
    }

    /// Drops those that wait and lets all pass from now on.
    pub fn go_on(&self) {
        self.state.admitted.store(usize::MAX, SeqCst);
        self.state.release.notify_waiters();
    }
}

async fn answer(
    state: Arc<State>,
    upstream: SocketAddr,
    which: RequestFilter,
    request: Request<Incoming>,
) -> io::Result<Response<Body>> {
    if !which(request.method(), request.uri()) {
        return pass(request, upstream).await;
    }
    let released = state.release.notified();
    let take = |count: &AtomicUsize| count.fetch_update(SeqCst, SeqCst, |n| n.checked_sub(1)).is_ok();
    if !take(&state.admitted) {
        released.await;
        return Err(io::Error::other("given up by the test"));
    }
    let response = pass(request, upstream).await?;
    if take(&state.lost) {
        response.into_body().collect().await?;
        return Err(io::Error::other("lost by the test"));
    }
    state.answered.fetch_add(1, SeqCst);
    Ok(response)
}
