//! Work that runs without being polled, and ends when nobody waits for it any more. A holder of a lane's slot, or a waiter for
//! one, must not be a future that may rest unpolled: others may need that slot before they come to poll it.

use futures::FutureExt as _;
use std::{
    panic::resume_unwind,
    pin::Pin,
    task::{Context, Poll},
};
use tokio::task::JoinHandle;

/// A running task; dropping it aborts it. A panic in it resumes in the waiter.
pub struct Task<T>(JoinHandle<T>);

impl<T: Send + 'static> Task<T> {
    /// Begins it at once.
    pub fn spawn(work: impl Future<Output = T> + Send + 'static) -> Self {
        Task(tokio::spawn(work))
    }
}

impl<T> Future for Task<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match self.0.poll_unpin(cx) {
            Poll::Ready(Ok(done)) => Poll::Ready(done),
            Poll::Ready(Err(error)) => match error.try_into_panic() {
                Ok(panic) => resume_unwind(panic),
                // The runtime is shutting down, and the waiter with it.
                Err(_) => Poll::Pending,
            },
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}
