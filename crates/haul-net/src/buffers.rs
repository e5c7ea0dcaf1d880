//! Buffers that are used again. Reading into fresh memory costs a page fault for every 4 KiB, which is more than the read
//! itself costs; and memory freed on another thread than took it comes back late.

use bytes::Bytes;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
};

/// Smaller buffers come from the allocator, which is good at them.
const LEAST: usize = 64 << 10;

/// Bytes that are kept for later where nobody says how many.
const KEPT: usize = 64 << 20;

/// Buffers of a job, or of a run's network stores; clones share them.
#[derive(Clone, Debug)]
pub struct Buffers(Arc<Mutex<Idle>>);

#[derive(Debug)]
struct Idle {
    /// Bytes that are kept for later at most; what is in use doesn't count.
    most: usize,
    /// By size.
    buffers: BTreeMap<usize, Vec<Vec<u8>>>,
    bytes: usize,
}

/// A buffer that is being filled piece by piece.
#[derive(Debug)]
pub struct Filling {
    loan: Loan,
    room: usize,
}

/// A buffer on loan; goes back when the last of its bytes is dropped.
#[derive(Debug)]
struct Loan {
    buffer: Vec<u8>,
    len: usize,
    home: Buffers,
}

impl Default for Buffers {
    fn default() -> Self {
        Buffers::keeping(KEPT)
    }
}

impl Buffers {
    /// Buffers of which at most `bytes` bytes are kept while nobody uses them.
    pub fn keeping(bytes: usize) -> Self {
        Buffers(Arc::new(Mutex::new(Idle { most: bytes, buffers: BTreeMap::new(), bytes: 0 })))
    }

    /// Fills a buffer of `len` bytes with `read`, which says how many of them it filled, and returns those.
    ///
    /// Errors: `read` fails.
    pub fn fill<E>(&self, len: usize, read: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<Bytes, E> {
        let mut filling = self.begin(len);
        filling.loan.len = read(&mut filling.loan.buffer[..len])?.min(len);
        Ok(filling.done())
    }

    /// A buffer of `len` bytes to be filled piece by piece.
    pub fn begin(&self, len: usize) -> Filling {
        let buffer = if len < LEAST { vec![0; len] } else { self.take(size(len)) };
        Filling { loan: Loan { buffer, len: 0, home: self.clone() }, room: len }
    }

    fn take(&self, size: usize) -> Vec<u8> {
        let mut idle = self.idle();
        match idle.buffers.get_mut(&size).and_then(Vec::pop) {
            Some(buffer) => {
                idle.bytes -= size;
                buffer
            }
            None => {
                drop(idle);
                vec![0; size]
            }
        }
    }

    fn give_back(&self, buffer: Vec<u8>) {
        let mut idle = self.idle();
        if buffer.len() >= LEAST && idle.bytes + buffer.len() <= idle.most {
            idle.bytes += buffer.len();
            idle.buffers.entry(buffer.len()).or_default().push(buffer);
        }
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl Filling {
    /// Takes as many bytes off the front of `bytes` as there is room for.
    pub fn add(&mut self, bytes: &mut Bytes) {
        let take = bytes.len().min(self.room - self.loan.len);
        self.loan.buffer[self.loan.len..self.loan.len + take].copy_from_slice(&bytes[..take]);
        self.loan.len += take;
        bytes::Buf::advance(bytes, take);
    }

    /// Bytes that are in it.
    pub fn len(&self) -> usize {
        self.loan.len
    }

    /// True when nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.loan.len == 0
    }

    /// True when there is no room left.
    pub fn is_full(&self) -> bool {
        self.loan.len == self.room
    }

    /// Gives out what is in it.
    pub fn done(self) -> Bytes {
        Bytes::from_owner(self.loan)
    }
}

/// Four sizes to each doubling: at most a quarter is wasted, and files of about one size share buffers.
fn size(len: usize) -> usize {
    let step = (len.next_power_of_two() / 8).max(LEAST);
    len.next_multiple_of(step)
}

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        &self.buffer[..self.len]
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        self.home.give_back(std::mem::take(&mut self.buffer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn fill(buffers: &Buffers, len: usize, with: u8) -> Bytes {
        let filled = buffers.fill(len, |space| {
            space.fill(with);
            Ok::<_, Infallible>(len)
        });
        filled.unwrap_or_default()
    }

    #[test]
    fn a_buffer_is_used_again_once_nobody_holds_it() {
        let buffers = Buffers::default();
        let first = fill(&buffers, 1_000_000, 1);
        let at = first.as_ptr();
        let second = fill(&buffers, 1_000_000, 2);
        assert_ne!(second.as_ptr(), at, "still in use");
        let slice = first.slice(10..20);
        drop(first);
        assert_ne!(fill(&buffers, 1_000_000, 3).as_ptr(), at, "a part of it is still in use");
        assert_eq!(&slice[..], [1; 10]);
        drop(slice);
        let again = fill(&buffers, 990_000, 4);
        assert_eq!(again.len(), 990_000);
        assert!(again.iter().all(|b| *b == 4));
    }

    #[test]
    fn pieces_fill_a_buffer_up() {
        let buffers = Buffers::default();
        for len in [7, 100_000] {
            let mut filling = buffers.begin(len);
            let mut piece = Bytes::from(vec![1; len - 3]);
            filling.add(&mut piece);
            assert!(piece.is_empty() && !filling.is_full() && filling.len() == len - 3);
            let mut piece = Bytes::from(vec![2; 5]);
            filling.add(&mut piece);
            assert!(filling.is_full());
            assert_eq!(piece.len(), 2, "what there is no room for stays");
            assert_eq!(filling.done()[len - 4..], [1, 2, 2, 2]);
        }
    }

    #[test]
    fn what_was_not_filled_is_not_given_out() {
        let buffers = Buffers::default();
        let short = buffers.fill(100_000, |_| Ok::<_, Infallible>(5));
        assert_eq!(short.map(|b| b.len()), Ok(5));
        assert_eq!(buffers.fill(100_000, |_| Err::<usize, _>("no")), Err("no"));
        assert_eq!(buffers.idle().buffers.values().map(Vec::len).sum::<usize>(), 1);
    }

    #[test]
    fn little_is_wasted_and_not_all_is_kept() {
        for len in [LEAST, 1_000_000, 8 << 20, (8 << 20) + 1, 5_000_000_000] {
            assert!(size(len) >= len && size(len) <= len + (len / 4).max(LEAST), "{len}");
        }
        let buffers = Buffers::default();
        let held: Vec<Bytes> = (0..10).map(|_| fill(&buffers, 8 << 20, 0)).collect();
        drop(held);
        assert_eq!(buffers.idle().bytes, KEPT);
    }
}
