//! Messages between ranks: sent without waiting, received when they are there. MPI is used by the main thread alone, and by no
//! call that waits: those spin, and two ranks that send to each other would wait forever.

use mpi::{
    Count,
    point_to_point::{Destination as _, MatchedReceiveVec as _, Source as _},
    request::{Request, StaticScope},
    topology::{Communicator as _, SimpleCommunicator},
};
use serde::{Serialize, de::DeserializeOwned};

/// Begins every message. Another version of haul-mpi may write the rest in another way.
const VERSION: &[u8] = concat!("haul-mpi ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// Messages under way keep their bytes until MPI has them.
type Sending = Request<'static, [u8], StaticScope>;

/// All ranks.
pub struct Wire {
    world: SimpleCommunicator,
    sending: Vec<(Option<Sending>, *mut [u8])>,
}

/// What arrived.
pub enum Arrived<T> {
    /// From whom, what.
    Said(usize, T),
    /// From whom, which other version it is.
    Other(usize, String),
}

impl Wire {
    /// Of all ranks of this communicator.
    pub fn new(world: SimpleCommunicator) -> Wire {
        Wire { world, sending: Vec::new() }
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.world.rank() as usize
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.world.size() as usize
    }

    /// Sends a message; returns at once.
    pub fn send(&mut self, to: usize, message: &impl Serialize) {
        let mut bytes = VERSION.to_vec();
        rmp_serde::encode::write(&mut bytes, message).expect("messages are plain data");
        debug_assert!(Count::try_from(bytes.len()).is_ok());
        let bytes: *mut [u8] = Box::into_raw(bytes.into_boxed_slice());
        // SAFETY: these bytes stay until `sent` takes them back, after MPI has said that it doesn't need them any more.
        #[allow(unsafe_code)]
        let buffer: &'static [u8] = unsafe { &*bytes };
        let request = self.world.process_at_rank(to as i32).immediate_send(StaticScope, buffer);
        self.sending.push((Some(request), bytes));
        self.sent();
    }

    /// Frees what has been sent; how many messages are still under way.
    pub fn sent(&mut self) -> usize {
        self.sending.retain_mut(|(request, bytes)| {
            match request.take().map(|request| request.test()) {
                Some(Err(still)) => {
                    *request = Some(still);
                    true
                }
                _ => {
                    // SAFETY: made by `Box::into_raw` in `send`, and MPI is done with them; this entry is removed now.
                    #[allow(unsafe_code)]
                    drop(unsafe { Box::from_raw(*bytes) });
                    false
                }
            }
        });
        self.sending.len()
    }

    /// The next message, if one is there.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Option<Arrived<T>> {
        let (bytes, status) = self.world.any_process().immediate_matched_probe()?.matched_receive_vec::<u8>();
        let from = status.source_rank() as usize;
        let ours = bytes.strip_prefix(VERSION).and_then(|rest| rmp_serde::from_slice(rest).ok());
        Some(match ours {
            Some(message) => Arrived::Said(from, message),
            None => {
                let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
                Arrived::Other(from, String::from_utf8_lossy(line).into_owned())
            }
        })
    }

    /// Forgets what can't be sent any more: nobody is there to take it.
    pub fn abandon(&mut self) {
        std::mem::take(&mut self.sending).into_iter().for_each(std::mem::forget);
    }
}
