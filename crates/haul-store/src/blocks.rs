//! Reads a range of a file in blocks, to hash or inspect it. Blocks the thread: see [`crate::disk`].

use haul_core::{Error, ErrorKind, Result, Retry};
use rustix::io::Errno;
use std::{ops::Range, os::fd::AsFd};

/// Bytes read at a time: little enough that they are still in the core's cache when they are hashed.
const BLOCK: usize = 256 << 10;

/// Passes the bytes of a range to `take`, in order.
///
/// Errors: a failed read; [`ended_early`] when the file is shorter than the range.
pub fn read(file: impl AsFd, range: Range<u64>, mut take: impl FnMut(&[u8])) -> Result<()> {
    let mut buffer = vec![0; BLOCK.min((range.end - range.start) as usize).max(1)];
    let mut at = range.start;
    while at < range.end {
        let want = buffer.len().min((range.end - at) as usize);
        match rustix::io::pread(&file, &mut buffer[..want], at) {
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::from_io("read", errno.into())),
            Ok(0) => return Err(ended_early(at - range.start, range.end - range.start)),
            Ok(got) => {
                take(&buffer[..got]);
                at += got as u64;
            }
        }
    }
    Ok(())
}

/// The bytes that a file has of a range, read into memory that isn't zeroed first; fewer where the file ends within the range.
///
/// Errors: the system's.
pub fn held(file: impl AsFd, range: Range<u64>) -> rustix::io::Result<Vec<u8>> {
    let size = (range.end - range.start) as usize;
    let mut bytes = Vec::with_capacity(size);
    while bytes.len() < size {
        let at = range.start + bytes.len() as u64;
        match rustix::io::pread(&file, rustix::buffer::spare_capacity(&mut bytes), at) {
            Ok(0) => break,
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    // The memory may have room for more.
    bytes.truncate(size);
    Ok(bytes)
}

/// The error of content that is shorter than promised: `Io`, worth another try.
pub fn ended_early(got: u64, want: u64) -> Error {
    Error::new(ErrorKind::Io, "read", format!("it ended after {got} of {want} bytes")).with_retry(Retry::Backoff)
}
