//! An HTTP/1.1 server on 127.0.0.1 for tests that are not async: it has its own threads and ends when dropped.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, combinators::UnsyncBoxBody};
use hyper::{Request, Response, StatusCode, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use percent_encoding::percent_decode_str;
use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
};

/// The fields of a form, or of a query.
pub(crate) fn pairs(text: &str) -> BTreeMap<String, String> {
    let decoded = |text: &str| percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned();
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), decoded(value))).collect()
}

/// The body of an answer; an error closes the connection.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// The client's connection, to be cut.
#[derive(Clone, Debug)]
pub struct Line(Arc<TcpStream>);

impl Line {
    /// From here on, closing the connection is a reset.
    pub fn reset_on_close(&self) {
        // If it can't be set, closing still ends the answer too early.
        let _ = self.0.set_zero_linger();
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// Where it listens.
    pub address: SocketAddr,
    runtime: Option<Runtime>,
}

impl Server {
    /// Starts a server that answers by a function. Its error closes the connection without an answer.
    ///
    /// Errors: no thread or port to be had.
    pub fn start<F, A>(answer: F) -> io::Result<Server>
    where
        F: Fn(Request<Incoming>, Line) -> A + Send + Sync + 'static,
        A: Future<Output = io::Result<Response<Body>>> + Send + 'static,
    {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let answer = Arc::new(answer);
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                tokio::spawn(connection(socket, answer.clone()));
            }
        });
        Ok(Server { address, runtime: Some(runtime) })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Answers that are held up on purpose must not hold up the end of a test.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn connection<F, A>(socket: TcpStream, answer: Arc<F>) -> io::Result<()>
where
    F: Fn(Request<Incoming>, Line) -> A + Send + Sync + 'static,
    A: Future<Output = io::Result<Response<Body>>> + Send + 'static,
{
    socket.set_nodelay(true)?;
    let socket = socket.into_std()?;
    let line = Line(Arc::new(TcpStream::from_std(socket.try_clone()?)?));
    let service = service_fn(|request| answer(request, line.clone()));
    let socket = TokioIo::new(TcpStream::from_std(socket)?);
    // A client that hangs up is no concern of the server's.
    let _ = http1::Builder::new().timer(TokioTimer::new()).serve_connection(socket, service).await;
    Ok(())
}

/// An answer of this text.
///
/// Errors: none, in practice.
pub fn answer(status: StatusCode, body: String) -> io::Result<Response<Body>> {
    let mut response = Response::new(Full::new(Bytes::from(body)).map_err(|e| match e {}).boxed_unsync());
    *response.status_mut() = status;
    Ok(response)
}
