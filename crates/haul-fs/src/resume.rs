//! Hidden files that an earlier run left: found by their token, believed only after they were read again.

use super::{
    Local,
    dir::Dir,
    error::{check_file, fail},
    hidden::is_temp,
    meta, publish, upload,
};
use haul_core::{Algo, Error, ErrorKind, Hasher, Key, Result};
use haul_store::{Part, ResumedWrite, SentPart, WriteSpec};
use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, StatxFlags},
    io::Errno,
};
use std::{os::fd::OwnedFd, sync::Arc};

const OP: &str = "resume";

/// Bytes read at a time.
const BLOCK: usize = 1 << 20;

/// See [`haul_store::Resumable::resume`]; runs on the pool. Every part is read and compared: a file whose data was not yet on the
/// disk when the machine lost power holds zeros where parts were.
pub(super) fn resume(
    local: &Arc<Local>,
    key: &Key,
    token: &[u8],
    sent: &[SentPart],
    spec: WriteSpec,
) -> Result<ResumedWrite> {
    let name = hidden_name(key, token)?;
    if spec.inplace {
        return Err(Error::new(ErrorKind::Changed, OP, "it was begun under a hidden name").with_key(key));
    }
    let error = |errno| fail(OP, key, errno);
    let dir = directory(local, key).map_err(error)?;
    let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = match rustix::fs::openat(&dir, name, flags, Mode::empty()) {
        // A link was put in its place.
        Err(Errno::LOOP) => return Err(gone(key)),
        answer => answer.map_err(error)?,
    };
    let st = meta::facts(&file, StatxFlags::BASIC_STATS).map_err(error)?;
    let size = spec.size.filter(|_| !spec.size_may_differ).unwrap_or(u64::MAX);
    // Of another kind, owner or size, or with a second name: not the file that we left.
    let ours = meta::file_type(&st) == FileType::RegularFile
        && st.stx_uid == rustix::process::geteuid().as_raw()
        && st.stx_nlink == 1
        && st.stx_size <= size;
    if !ours {
        return Err(gone(key));
    }
    let parts = proved(key, &file, st.stx_size, sent)?;
    let upload = upload::go_on(local, key, spec, publish::HiddenFile { dir, temp: name.to_vec(), file })?;
    Ok((upload, parts))
}

/// See [`haul_store::Resumable::discard`]; runs on the pool.
pub(super) fn discard(local: &Arc<Local>, key: &Key, token: &[u8]) -> Result<bool> {
    let name = hidden_name(key, token)?;
    match directory(local, key).and_then(|dir| rustix::fs::unlinkat(&dir, name, AtFlags::empty())) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(fail("discard", key, errno)),
    }
}

/// The name in a token, which must be one that hidden files beside `key` have: a token can't make us touch another file.
fn hidden_name<'t>(key: &Key, token: &'t [u8]) -> Result<&'t [u8]> {
    check_file(OP, key)?;
    let name = token.strip_prefix(key.parent().as_bytes()).filter(|name| !name.contains(&b'/') && is_temp(name));
    name.ok_or_else(|| Error::new(ErrorKind::Invalid, OP, "this isn't the token of a write to it").with_key(key))
}

fn directory(local: &Local, key: &Key) -> rustix::io::Result<Dir> {
    local.root.dir_beneath(key.parent().as_bytes())
}

fn gone(key: &Key) -> Error {
    Error::new(ErrorKind::NotFound, OP, "the partial file is no longer there").with_key(key)
}

fn proved(key: &Key, file: &OwnedFd, size: u64, sent: &[SentPart]) -> Result<Vec<Part>> {
    let mut buffer = vec![0; BLOCK];
    let mut parts = Vec::new();
    for sent in sent {
        let end = sent.offset.saturating_add(sent.part.size);
        if end <= size && crc(file, sent.offset, end, &mut buffer).map_err(|e| fail(OP, key, e))? == Some(sent.crc64) {
            parts.push(sent.part.clone());
        }
    }
    Ok(parts)
}

/// CRC-64/NVME of a range; `None` when the file ends before it.
fn crc(file: &OwnedFd, mut at: u64, end: u64, buffer: &mut [u8]) -> rustix::io::Result<Option<u64>> {
    let mut hasher = Hasher::new(&[Algo::Crc64Nvme]);
    while at < end {
        let want = buffer.len().min((end - at) as usize);
        match rustix::io::pread(file, &mut buffer[..want], at) {
            Err(Errno::INTR) => {}
            Ok(0) => return Ok(None),
            answer => {
                let got = answer?;
                hasher.update(&buffer[..got]);
                at += got as u64;
            }
        }
    }
    Ok(hasher.finish().crc64())
}
