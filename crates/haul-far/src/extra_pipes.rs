//! Further pipes of one near end: the `haul far` that each of them starts hands its input and output over to the one that was there
//! first, and waits until that has done with them. They meet on a socket without a file, which only the same user may knock at.

use crate::{compression::Packing, handshake, settings::Settings};
use rustix::{
    io::IoSlice,
    net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        recvmsg, sendmsg,
    },
};
use serde::{Deserialize, Serialize};
use std::{
    hash::{BuildHasher as _, RandomState},
    io::{self, IoSliceMut},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::{SocketAddr, UnixListener as Listener, UnixStream as Stream},
    },
    time::Duration,
};
use tokio::net::{UnixListener, UnixStream};

/// Largest knock: a larger one isn't ours.
const MOST: usize = 64 << 10;

/// Who knocks says at once what for.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where others join a far end.
pub struct JoinSocket {
    listener: UnixListener,
    /// Its name.
    pub token: String,
}

/// Contents of a knock, beside its descriptors.
#[derive(Debug, Serialize, Deserialize)]
struct JoinRequest {
    /// The mark that its near end expects.
    mark: Vec<u8>,
    /// Of the messages that both speak.
    version: u32,
    packing: Packing,
    /// Root that it was started with, which must be the same.
    root: Option<Vec<u8>>,
    read_only: bool,
}

/// Who joins: its pipe, and what its near end waits for.
pub struct JoiningPipe {
    pub input: OwnedFd,
    pub output: OwnedFd,
    pub mark: Vec<u8>,
    pub version: u32,
    pub packing: Packing,
    /// Closed when it is done with.
    pub knocker: UnixStream,
}

#[cfg(target_os = "linux")]
fn address(token: &str) -> io::Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(format!("haul-far-{token}"))
}

/// Other systems have no sockets without a file.
#[cfg(not(target_os = "linux"))]
fn address(_token: &str) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(target_os = "linux")]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::CMSG_CLOEXEC;
#[cfg(not(target_os = "linux"))]
const CLOSED_ON_EXEC: RecvFlags = RecvFlags::empty();

impl JoinSocket {
    /// Opens one; `None` where the system has no such sockets.
    pub fn open() -> Option<JoinSocket> {
        // Random, so that nobody hits it by chance; permission to knock doesn't rest on it.
        let state = RandomState::new();
        let token = format!("{:016x}{:016x}", state.hash_one(0), state.hash_one(1));
        let listener = Listener::bind_addr(&address(&token).ok()?).ok()?;
        listener.set_nonblocking(true).ok()?;
        Some(JoinSocket { listener: UnixListener::from_std(listener).ok()?, token })
    }

    /// The next pipe that joins and may.
    pub async fn guest(&self, settings: &Settings) -> JoiningPipe {
        loop {
            let Ok((knocker, _)) = self.listener.accept().await else {
                // Out of descriptors: there may be some later.
                tokio::time::sleep(PATIENCE).await;
                continue;
            };
            let ours = rustix::process::geteuid().as_raw();
            if knocker.peer_cred().is_ok_and(|peer| peer.uid() == ours)
                && let Ok(Ok(guest)) = tokio::time::timeout(PATIENCE, taken(knocker, settings)).await
            {
                return guest;
            }
        }
    }
}

async fn taken(knocker: UnixStream, settings: &Settings) -> io::Result<JoiningPipe> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidData, why.to_owned());
    let (bytes, fds) = loop {
        knocker.readable().await?;
        match knocker.try_io(tokio::io::Interest::READABLE, || received(&knocker)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            other => break other?,
        }
    };
    let knock: JoinRequest = rmp_serde::from_slice(&bytes).map_err(|error| refused(&error.to_string()))?;
    if knock.root != settings.root || knock.read_only != settings.read_only {
        return Err(refused("it was started for something else"));
    }
    let [input, output] = <[OwnedFd; 2]>::try_from(fds).map_err(|_| refused("it has no pipe"))?;
    let JoinRequest { mark, version, packing, .. } = knock;
    Ok(JoiningPipe { input, output, mark, version, packing, knocker })
}

fn received(from: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; MOST];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = RecvAncillaryBuffer::new(&mut space);
    let got = recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut beside, CLOSED_ON_EXEC)?.bytes;
    bytes.truncate(got);
    let fds = beside.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    Ok((bytes, fds.flatten().collect()))
}

/// Hands this process's pipe over to the far end that has the door of this name, and waits until it is done with.
///
/// Errors: there is none, or it doesn't want it.
pub async fn knock(
    token: &str,
    heard: &handshake::ReceivedHello,
    settings: &Settings,
    ends: [OwnedFd; 2],
) -> io::Result<()> {
    let stream = Stream::connect_addr(&address(token)?)?;
    let knock = JoinRequest {
        version: heard.version().ok_or_else(|| io::Error::other("its near end speaks no version of ours"))?,
        mark: heard.mark.to_vec(),
        packing: heard.packing(),
        root: settings.root.clone(),
        read_only: settings.read_only,
    };
    let bytes = rmp_serde::to_vec_named(&knock).map_err(io::Error::other)?;
    let fds = ends.each_ref().map(AsFd::as_fd);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    beside.push(SendAncillaryMessage::ScmRights(&fds));
    if sendmsg(&stream, &[IoSlice::new(&bytes)], &mut beside, SendFlags::NOSIGNAL)? < bytes.len() {
        return Err(io::Error::other("the far end took half a knock"));
    }
    // The pipe ends when the other closes it.
    drop(ends);
    stream.set_nonblocking(true)?;
    let stream = UnixStream::from_std(stream)?;
    loop {
        stream.readable().await?;
        match stream.try_read(&mut [0; 64]) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dial::{Call, Pipe},
        message::{Answer, Folder, Request},
        wire::Wire,
    };
    use haul_core::{Key, Result};
    use haul_store::Links;
    use tokio::task::JoinHandle;

    /// A far end on descriptors, as ssh starts it, and a greeting by its near end.
    async fn pipe(
        read_only: bool,
        joins: Option<String>,
    ) -> (Result<(Pipe, handshake::About)>, JoinHandle<io::Result<()>>) {
        let (near, far) = Stream::pair().unwrap();
        let ends = [far.try_clone().unwrap().into(), far.into()];
        let serving = tokio::spawn(crate::serve_on(ends, Settings::of_disk(None, read_only)));
        near.set_nonblocking(true).unwrap();
        let (input, output) = UnixStream::from_std(near).unwrap().into_split();
        let call = Call::Pipes(Pipe { input: Box::new(input), output: Box::new(output), end: None });
        (call.greet(Packing::default(), PATIENCE, joins).await, serving)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_further_pipe_leads_to_the_far_end_that_it_names() {
        let (first, serving) = pipe(false, None).await;
        let (first, about) = first.unwrap();
        let token = about.joins.unwrap();
        let wire = Wire::new(first, PATIENCE, Packing::default(), "far".into());
        let folder = tempfile::tempdir().unwrap();
        let path = std::os::unix::ffi::OsStrExt::as_bytes(folder.path().as_os_str()).to_vec();
        let open = Request::Open(Folder { path, links: Links::Keep, own_links: false });
        let Answer::Folder(id) = wire.share(0).ask(&0.into(), &open).unwrap().answer().await.unwrap() else { panic!() };
        let (further, joined) = pipe(false, Some(token.clone())).await;
        let further = Wire::new(further.unwrap().0, PATIENCE, Packing::default(), "far".into());
        // The folder that was opened on the first pipe is known on the further one.
        let made = Request::MakeDir(Key::new("made/"), Default::default());
        let answer = further.share(0).ask(&id.into(), &made).unwrap().answer().await.unwrap();
        assert!(matches!(answer, Answer::Done), "{answer:?}");
        // A pipe that was started with other settings, or with an unknown token, is refused.
        for (read_only, token) in [(true, token), (false, "nobody".to_owned())] {
            let (refused, serving) = pipe(read_only, Some(token)).await;
            assert!(refused.is_err());
            let _ = serving.await.unwrap();
        }
        // All end with the first.
        drop(wire);
        serving.await.unwrap().unwrap();
        joined.await.unwrap().unwrap();
        assert!(folder.path().join("made").is_dir());
    }
}
