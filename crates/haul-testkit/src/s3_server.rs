//! An S3 server inside the test's process: s3s over a folder, with real signatures and checksums checked.

use crate::folder::temporary;
use hyper_util::{
    rt::{TokioExecutor, TokioIo},
    server::conn::auto::Builder,
};
use s3s::{auth::SimpleAuth, service::S3ServiceBuilder};
use s3s_fs::FileSystem;
use std::io;
use tempfile::TempDir;
use tokio::{net::TcpListener, task::JoinSet};

/// A server on 127.0.0.1 that ends, and whose folder goes, when this is dropped.
pub struct S3Server {
    /// `http://127.0.0.1:PORT`.
    pub endpoint: String,
    /// The access key that it accepts.
    pub access_key: String,
    /// The secret key that it accepts.
    pub secret_key: String,
    /// Its buckets are the folders in here.
    pub root: TempDir,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for S3Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Starts a server without any bucket.
///
/// Errors: no temporary folder or port to be had.
pub async fn start_s3s() -> io::Result<S3Server> {
    let root = temporary("haul-s3s-")?;
    let (access_key, secret_key) = ("haul-test".to_owned(), "haul-test-secret".to_owned());
    let files = FileSystem::new(root.path()).map_err(|e| io::Error::other(format!("{e:?}")))?;
    let mut builder = S3ServiceBuilder::new(files);
    builder.set_auth(SimpleAuth::from_single(&access_key, secret_key.clone()));
    let service = builder.build();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let endpoint = format!("http://{}", listener.local_addr()?);
    let task = tokio::spawn(async move {
        // Connections end with the task that holds them.
        let mut connections = JoinSet::new();
        while let Ok((socket, _)) = listener.accept().await {
            let service = service.clone();
            connections.spawn(async move {
                // A client that hangs up is no concern of the server's.
                let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(socket), service).await;
            });
            while connections.try_join_next().is_some() {}
        }
    });
    Ok(S3Server { endpoint, access_key, secret_key, root, task })
}
