//! Standard input and output as what they are: a pipe or a socket is read and written without a thread between.

use rustix::fs::{FileType, fstat};
use std::{
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream as Stream,
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{UnixStream, unix::pipe},
};

/// Bytes that a pipe takes before it waits; the kernel's own 64 KiB where it refuses more.
const PIPE: usize = 1 << 20;

/// To read from.
///
/// Errors: the system's.
pub fn reader(fd: OwnedFd) -> io::Result<Box<dyn AsyncRead + Send + Unpin>> {
    Ok(match kind(&fd)? {
        FileType::Fifo => Box::new(pipe::Receiver::from_owned_fd(fd)?),
        FileType::Socket => Box::new(socket(fd)?),
        // A terminal or a file, by a thread: then it is what this process was started with.
        _ => Box::new(tokio::io::stdin()),
    })
}

/// To write to.
///
/// Errors: the system's.
pub fn writer(fd: OwnedFd) -> io::Result<Box<dyn AsyncWrite + Send + Unpin>> {
    Ok(match kind(&fd)? {
        FileType::Fifo => Box::new(pipe::Sender::from_owned_fd(fd)?),
        FileType::Socket => Box::new(socket(fd)?),
        _ => Box::new(tokio::io::stdout()),
    })
}

fn kind(fd: impl AsFd) -> io::Result<FileType> {
    let kind = FileType::from_raw_mode(fstat(&fd)?.st_mode);
    if kind == FileType::Fifo {
        let _ = rustix::pipe::fcntl_setpipe_size(&fd, PIPE);
    }
    Ok(kind)
}

fn socket(fd: OwnedFd) -> io::Result<UnixStream> {
    // Only read and write are used, which all stream sockets have.
    let stream = Stream::from(fd);
    stream.set_nonblocking(true)?;
    UnixStream::from_std(stream)
}
