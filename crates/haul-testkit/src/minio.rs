//! MinIO, the server that most tests run against.

pub use crate::servers::{ACCESS_KEY, SECRET_KEY};
use crate::servers::{Make, Server};

/// The MinIO of this test program.
#[derive(Debug)]
pub struct Minio;

impl Minio {
    /// It, started at the first call. `None` after saying that the test is skipped.
    pub fn shared() -> Option<&'static Server> {
        Server::shared(Make::Minio)
    }
}
