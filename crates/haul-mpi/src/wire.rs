//! Messages between ranks: sent without waiting, received when they are there. MPI is used by the main thread alone, and by no
//! call that waits: those spin, and two ranks that send to each other would wait forever.

use mpi::{
    Count,
    datatype::Equivalence as _,
    point_to_point::{Destination as _, Source as _},
    request::{Request, StaticScope},
    topology::{Communicator as _, SimpleCommunicator},
};
use serde::{Serialize, de::DeserializeOwned};

/// Begins every message. Another version of haul-mpi may write the rest in another way.
const VERSION: &[u8] = concat!("haul-mpi ", env!("CARGO_PKG_VERSION"), "\n").as_bytes();

/// Messages under way keep their bytes until MPI is done with them.
type UnderWay = Request<'static, [u8], StaticScope>;

/// All ranks.
pub struct Wire {
    /// `None` for a rank that is alone: it has nobody to speak with.
    world: Option<SimpleCommunicator>,
    sending: Vec<(Option<UnderWay>, *mut [u8])>,
    coming: Vec<IncomingMessage>,
}

/// A message that was announced. Its sender may stop before all of it is here.
struct IncomingMessage {
    from: usize,
    request: Option<UnderWay>,
    bytes: *mut [u8],
}

/// This program's version, as it stands in the program: a test changes it there, to have two of them.
fn version() -> &'static [u8] {
    std::hint::black_box(VERSION)
}

/// A message that arrived.
pub enum ReceivedMessage<T> {
    /// From whom, what.
    Said(usize, T),
    /// From whom, which other version it is.
    Other(usize, String),
}

impl Wire {
    /// Of all ranks of this communicator, or of one that is alone.
    pub fn new(world: Option<SimpleCommunicator>) -> Wire {
        Wire { world, sending: Vec::new(), coming: Vec::new() }
    }

    /// This rank's number.
    pub fn rank(&self) -> usize {
        self.world.as_ref().map_or(0, |world| world.rank() as usize)
    }

    /// How many there are.
    pub fn size(&self) -> usize {
        self.world.as_ref().map_or(1, |world| world.size() as usize)
    }

    /// Sends a message; returns at once.
    pub fn send(&mut self, to: usize, message: &impl Serialize) {
        let Some(world) = &self.world else { return };
        let mut bytes = version().to_vec();
        rmp_serde::encode::write(&mut bytes, message).expect("messages are plain data");
        debug_assert!(Count::try_from(bytes.len()).is_ok());
        let bytes: *mut [u8] = Box::into_raw(bytes.into_boxed_slice());
        // SAFETY: these bytes stay until `sent` takes them back, after MPI has said that it doesn't need them any more.
        #[allow(unsafe_code)]
        let buffer: &'static [u8] = unsafe { &*bytes };
        let request = world.process_at_rank(to as i32).immediate_send(StaticScope, buffer);
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

    /// The next message, if one is there whole.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Option<ReceivedMessage<T>> {
        let (from, bytes) = loop {
            if let Some(arrived) = self.arrived() {
                break arrived;
            }
            let (message, status) = self.world.as_ref()?.any_process().immediate_matched_probe()?;
            let count = usize::try_from(status.count(u8::equivalent_datatype())).unwrap_or(0);
            let bytes: *mut [u8] = Box::into_raw(vec![0u8; count].into_boxed_slice());
            // SAFETY: nobody else touches these bytes until `arrived` takes them back, after MPI has said that it is done with them.
            #[allow(unsafe_code)]
            let buffer: &'static mut [u8] = unsafe { &mut *bytes };
            let request = Some(message.immediate_matched_receive_into(StaticScope, buffer));
            self.coming.push(IncomingMessage { from: status.source_rank() as usize, request, bytes });
        };
        let ours = bytes.strip_prefix(version()).and_then(|rest| rmp_serde::from_slice(rest).ok());
        Some(match ours {
            Some(message) => ReceivedMessage::Said(from, message),
            None => {
                let line = bytes.split(|b| *b == b'\n').next().unwrap_or_default();
                ReceivedMessage::Other(from, String::from_utf8_lossy(line).into_owned())
            }
        })
    }

    /// The first message that is here whole. Those of one rank come in the order in which it sent them.
    fn arrived(&mut self) -> Option<(usize, Box<[u8]>)> {
        for at in 0..self.coming.len() {
            let from = self.coming[at].from;
            if self.coming[..at].iter().any(|before| before.from == from) {
                continue;
            }
            let coming = &mut self.coming[at];
            match coming.request.take().map(|request| request.test()) {
                Some(Err(still)) => coming.request = Some(still),
                _ => {
                    let IncomingMessage { bytes, .. } = self.coming.remove(at);
                    // SAFETY: made by `Box::into_raw` in `receive`, and MPI is done with them; this entry was removed.
                    #[allow(unsafe_code)]
                    return Some((from, unsafe { Box::from_raw(bytes) }));
                }
            }
        }
        None
    }

    /// Forgets what can't be sent or received any more: nobody is there to take or to send it.
    pub fn abandon(&mut self) {
        std::mem::take(&mut self.sending).into_iter().for_each(std::mem::forget);
        std::mem::take(&mut self.coming).into_iter().for_each(std::mem::forget);
    }
}
