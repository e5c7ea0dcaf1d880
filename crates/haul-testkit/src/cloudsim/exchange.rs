//! A request from its beginning to its end, as it is counted and logged.

use super::{
    cloud::Cloud,
    operation::{Op, Target},
    report,
};
use std::{sync::Arc, time::Instant};

/// A request under way. Its end is when this is dropped: an answer's body has no other sign of having been sent or
/// given up.
#[derive(Debug)]
pub struct Exchange {
    cloud: Arc<Cloud>,
    came: Instant,
    in_flight: u64,
    connection: u64,
    op: Op,
    status: u16,
    bytes: u64,
    /// Bucket and key, when there is a log.
    about: Option<(String, String)>,
    /// Requests to the admin path don't count.
    counts: bool,
}

impl Exchange {
    /// One that counts from now on.
    pub fn begin(cloud: Arc<Cloud>, op: Op, target: &Target, connection: u64) -> Exchange {
        let came = Instant::now();
        let in_flight = cloud.counters.came(op, came);
        let about = cloud.counters.logs().then(|| {
            let listed = matches!(op, Op::ListObjects | Op::ListObjectsV2);
            let key = if listed { target.bytes("prefix").unwrap_or_default() } else { &target.key };
            (target.bucket.clone(), String::from_utf8_lossy(key).into_owned())
        });
        Exchange { cloud, came, in_flight, connection, op, status: 0, bytes: 0, about, counts: true }
    }

    /// One that leaves no trace.
    pub fn silent(cloud: Arc<Cloud>) -> Exchange {
        let came = Instant::now();
        Exchange {
            cloud,
            came,
            in_flight: 0,
            connection: 0,
            op: Op::Other,
            status: 0,
            bytes: 0,
            about: None,
            counts: false,
        }
    }

    /// It is answered with this status.
    pub fn answers(&mut self, status: u16) {
        self.status = status;
    }

    /// Bytes of its own body came.
    pub fn received(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// Bytes of the answer's body went.
    pub fn sent(&mut self, bytes: u64) {
        if self.counts {
            self.bytes += bytes;
            self.cloud.counters.sent(bytes);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.counts {
            return;
        }
        let now = Instant::now();
        self.cloud.counters.went(now);
        if let Some((bucket, key)) = self.about.take() {
            let line = report::Line {
                ms: 0.0,
                op: self.op.name(),
                bucket,
                key,
                status: self.status,
                bytes: self.bytes,
                took_ms: (now - self.came).as_secs_f64() * 1e3,
                in_flight: self.in_flight,
                connection: self.connection,
            };
            self.cloud.counters.log(self.came, line);
        }
    }
}
