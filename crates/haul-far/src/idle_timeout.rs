//! A pipe of which something must come every so often: any bytes, as a large frame takes long on a slow link.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    io::{AsyncRead, ReadBuf},
    time::{Instant, Sleep, sleep},
};

/// Reads from `from`; `TimedOut` where nothing has come for as long as `patience`.
pub struct Patient<R> {
    from: R,
    patience: Duration,
    ends: Pin<Box<Sleep>>,
    /// It waits, and `ends` is when that is over.
    waits: bool,
}

impl<R> Patient<R> {
    pub fn new(from: R, patience: Duration) -> Self {
        Patient { from, patience, ends: Box::pin(sleep(patience)), waits: false }
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Patient<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Poll::Ready(read) = Pin::new(&mut this.from).poll_read(cx, into) {
            this.waits = false;
            return Poll::Ready(read);
        }
        if !std::mem::replace(&mut this.waits, true) {
            this.ends.as_mut().reset(Instant::now() + this.patience);
        }
        let silent =
            || io::Error::new(io::ErrorKind::TimedOut, format!("nothing came for {} s", this.patience.as_secs()));
        this.ends.as_mut().poll(cx).map(|()| Err(silent()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn what_comes_slowly_comes_and_silence_ends_it() {
        let (mut near, far) = tokio::io::duplex(64);
        let mut patient = Patient::new(far, Duration::from_secs(2));
        tokio::spawn(async move {
            // Longer together than it waits.
            for _ in 0..6 {
                sleep(Duration::from_millis(400)).await;
                near.write_all(b"byte").await.unwrap();
            }
            std::future::pending::<()>().await;
        });
        let mut all = [0; 24];
        patient.read_exact(&mut all).await.unwrap();
        let error = patient.read(&mut all).await.unwrap_err();
        assert_eq!((error.kind(), error.to_string()), (io::ErrorKind::TimedOut, "nothing came for 2 s".to_owned()));
    }
}
