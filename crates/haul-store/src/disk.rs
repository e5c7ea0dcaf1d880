//! Work that blocks on a disk or a processor, off the network's threads.

use haul_core::{Error, ErrorKind, Result};

/// Runs `job` on a thread that may block, and waits for it.
///
/// Errors: the job's; `Io` when its thread was lost.
pub async fn run<T: Send + 'static>(job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    match tokio::task::spawn_blocking(job).await {
        Ok(result) => result,
        Err(error) => Err(Error::new(ErrorKind::Io, "run", error.to_string())),
    }
}
