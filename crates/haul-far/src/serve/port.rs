//! The far end's port, for as long as its first pipe lives: further pipes over TCP and TLS, for those with the token. The key is made for
//! this port and never written to disk.

use super::{Session, converse};
use crate::{
    compression::Packing,
    handshake,
    listen_address::{Listening, Ports, TOKEN, Token},
    tcp::{self, HANDSHAKE, SEALED},
};
use aws_lc_rs::{
    constant_time::verify_slices_are_equal,
    rand::{SecureRandom as _, SystemRandom},
    signature::Ed25519KeyPair,
};
use haul_core::{Error, ErrorKind, Result};
use haul_store::task::Task;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs::default_provider,
    pki_types::{CertificateDer, PrivateKeyDer},
    server::AlwaysResolvesServerRawPublicKeys,
    sign::CertifiedKey,
};
use std::{
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_rustls::TlsAcceptor;

/// Connections that have not yet shown the token, at once: a near end has few pipes. Others wait in the system's queue.
const STRANGERS: usize = 8;

/// Connections that wait to be taken.
const QUEUE: u32 = 16;

/// Out of descriptors: there may be some after this.
const PAUSE: Duration = Duration::from_secs(1);

/// Opens a port for further pipes of this session, on this address of its machine. It closes when the task is dropped.
///
/// Errors: no port is to be had.
pub fn open(session: &Arc<Session>, address: IpAddr, ports: Ports) -> Result<(Listening, Task<()>)> {
    let failed = |why: String| Error::new(ErrorKind::Unsupported, "listen", why);
    let listener = listen(address, ports).map_err(|why| {
        failed(if ports.last == 0 {
            format!("it can't listen: {why}")
        } else {
            format!("it can't listen on port {ports}: {why}")
        })
    })?;
    let port = listener.local_addr().map_err(|why| failed(why.to_string()))?.port();
    let (config, fingerprint) = identity().map_err(|why| failed(why.to_string()))?;
    let mut token = vec![0; TOKEN];
    SystemRandom::new().fill(&mut token).map_err(|_| failed("it has no random numbers".to_owned()))?;
    let token = Token(token);
    let listening = Listening { address, port, fingerprint, token: token.clone() };
    let task = Task::spawn(attend(listener, TlsAcceptor::from(Arc::new(config)), token, session.clone()));
    Ok((listening, task))
}

/// The first of the ports that is free.
fn listen(address: IpAddr, ports: Ports) -> io::Result<TcpListener> {
    let mut failed = io::ErrorKind::AddrInUse.into();
    for port in ports.first..=ports.last {
        match bind(SocketAddr::new(address, port)) {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    // A port of the range may have been another far end's a moment ago.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(QUEUE)
}

/// A new key, and its fingerprint.
fn identity() -> Result<(ServerConfig, Vec<u8>), rustls::Error> {
    let provider = Arc::new(default_provider());
    let unspecified = |_| rustls::Error::FailedToGetRandomBytes;
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).map_err(unspecified)?;
    let key = provider.key_provider.load_private_key(PrivateKeyDer::Pkcs8(document.as_ref().to_vec().into()))?;
    let public = key.public_key().ok_or_else(|| rustls::Error::General("a key has no public half".to_owned()))?;
    let public = CertificateDer::from(public.as_ref().to_vec());
    let fingerprint = tcp::fingerprint(&public);
    let certified = Arc::new(CertifiedKey::new(vec![public], key));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(certified)));
    // Nobody comes again by one.
    config.send_tls13_tickets = 0;
    Ok((config, fingerprint))
}

/// Takes connections until it is dropped, and with it all that came.
async fn attend(listener: TcpListener, acceptor: TlsAcceptor, token: Token, session: Arc<Session>) {
    let strangers = Arc::new(Semaphore::new(STRANGERS));
    let mut pipes = JoinSet::new();
    // Closed never.
    while let Ok(place) = strangers.clone().acquire_owned().await {
        let Ok((stream, from)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        while pipes.try_join_next().is_some() {}
        let (acceptor, token, session) = (acceptor.clone(), token.clone(), session.clone());
        pipes.spawn(async move {
            let guest = timeout(HANDSHAKE, let_in(stream, acceptor, token)).await;
            drop(place);
            let served = match guest {
                Ok(Ok(Guest { from, to, packing })) => converse(from, to, session, packing).await,
                Ok(Err(error)) => Err(error),
                Err(_) => Err(io::ErrorKind::TimedOut.into()),
            };
            if let Err(error) = served {
                tracing::debug!(%from, %error, "a pipe over TCP broke");
            }
        });
    }
}

/// Who has shown the token, and was greeted.
struct Guest<R, W> {
    from: R,
    to: W,
    packing: Packing,
}

/// Admits a connection that has the token.
///
/// Errors: it isn't one of ours; the connection's.
async fn let_in(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    token: Token,
) -> io::Result<Guest<impl AsyncRead + Send + Unpin, impl AsyncWrite + Send + Unpin + 'static>> {
    let refused = |why: &str| io::Error::new(io::ErrorKind::PermissionDenied, why.to_owned());
    stream.set_nodelay(true)?;
    let mut stream = acceptor.accept(tcp::buffered(stream)).await?;
    stream.get_mut().1.set_buffer_limit(Some(SEALED));
    let (mut from, mut to) = tcp::halves(stream);
    let mut shown = [0; TOKEN];
    from.read_exact(&mut shown).await?;
    verify_slices_are_equal(&shown, &token.0).map_err(|_| refused("it has another token"))?;
    let heard = handshake::hear(&mut from).await?.ok_or_else(|| refused("it says nothing"))?;
    let version = heard.version().ok_or_else(|| refused("it speaks no version of ours"))?;
    let packing = heard.packing();
    handshake::answer_again(&heard.mark, version, packing, &mut to).await?;
    Ok(Guest { from, to, packing })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        dial::Call,
        message::{Answer, Folder, Request},
        settings::Settings,
        wire::Wire,
    };
    use haul_core::Key;
    use haul_store::Links;
    use std::{os::unix::ffi::OsStrExt as _, path::Path};
    use tokio::io::AsyncWriteExt as _;

    const HERE: &str = "127.0.0.1";
    const LOOPBACK: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
    const ANY: Ports = Ports { first: 0, last: 0 };

    fn session(root: Option<&Path>, read_only: bool) -> Arc<Session> {
        let root = root.map(|root| root.as_os_str().as_bytes().to_vec());
        Arc::new(Session::new(Settings { listens: Some(LOOPBACK), ..Settings::of_disk(root, read_only) }))
    }

    async fn pipe(listening: &Listening) -> Result<Arc<Wire>> {
        let call = Call::Pipes(tcp::connect(HERE, listening).await?);
        let (pipe, _) = call.greet(Packing::default(), HANDSHAKE, None).await?;
        Ok(Wire::new(pipe, HANDSHAKE, Packing::default(), "far".into()))
    }

    fn folder(path: &Path) -> Request {
        Request::Open(Folder { path: path.as_os_str().as_bytes().to_vec(), links: Links::Keep, own_links: false })
    }

    async fn ask(wire: &Arc<Wire>, folder: u64, request: Request) -> Result<Answer> {
        wire.share(0).ask(&folder.into(), &request)?.answer().await
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_the_key_that_ssh_told_of_is_believed() {
        let session = session(None, false);
        let (listening, _port) = open(&session, LOOPBACK, ANY).unwrap();
        pipe(&listening).await.unwrap();
        let mut other = listening.clone();
        other.fingerprint[0] ^= 1;
        let error = pipe(&other).await.map(drop).unwrap_err();
        let expected = format!("port {} of {HERE} isn't haul's: ", listening.port);
        assert!(error.kind() == ErrorKind::Unreachable && error.message().starts_with(&expected), "{error:?}");
        // Nor is the key of another far end, which signs well.
        let (another, _port) = open(&session, LOOPBACK, ANY).unwrap();
        let between = Listening { port: another.port, ..listening };
        assert!(pipe(&between).await.map(drop).unwrap_err().message().contains("isn't haul's"));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn only_who_has_the_token_is_let_in() {
        let session = session(None, false);
        let (listening, _port) = open(&session, LOOPBACK, ANY).unwrap();
        for bit in [0, TOKEN - 1] {
            let mut other = listening.clone();
            other.token.0[bit] ^= 0x80;
            assert!(pipe(&other).await.is_err(), "byte {bit}");
        }
        assert!(pipe(&Listening { token: Token(Vec::new()), ..listening.clone() }).await.is_err());
        // Another far end's.
        let (another, _port) = open(&session, LOOPBACK, ANY).unwrap();
        assert_ne!(another.token, listening.token);
        assert!(pipe(&Listening { token: another.token, ..listening.clone() }).await.is_err());
        pipe(&listening).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn what_else_comes_to_the_port_hurts_nobody() {
        let (listening, _port) = open(&session(None, false), LOOPBACK, ANY).unwrap();
        let good = pipe(&listening).await.unwrap();
        // Some say nothing, and stay.
        let mut silent = Vec::new();
        for _ in 0..STRANGERS - 1 {
            silent.push(TcpStream::connect((HERE, listening.port)).await.unwrap());
        }
        let token = listening.token.0.clone();
        for noise in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 100], &[0xff; 70_000], &token, b"\x16\x03\x01\x00\x05hello"]
        {
            let mut stranger = TcpStream::connect((HERE, listening.port)).await.unwrap();
            // It may have been closed before all was said.
            let _ = stranger.write_all(noise).await;
            let _ = stranger.shutdown().await;
            let _ = stranger.read_to_end(&mut Vec::new()).await;
        }
        let further = pipe(&listening).await.unwrap();
        let here = tempfile::tempdir().unwrap();
        for wire in [&good, &further] {
            assert!(matches!(ask(wire, 0, folder(here.path())).await.unwrap(), Answer::Folder(_)));
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_pipe_over_tcp_may_what_its_far_end_may() {
        let allowed = tempfile::tempdir().unwrap();
        let (listening, _port) = open(&session(Some(allowed.path()), true), LOOPBACK, ANY).unwrap();
        let wire = pipe(&listening).await.unwrap();
        let error = ask(&wire, 0, folder(Path::new("/etc"))).await.unwrap_err();
        assert_eq!(error.message(), format!("/etc is outside of {}", allowed.path().display()));
        let Answer::Folder(id) = ask(&wire, 0, folder(allowed.path())).await.unwrap() else { panic!() };
        let error = ask(&wire, id, Request::MakeDir(Key::new("made/"), Default::default())).await.unwrap_err();
        assert_eq!(error.message(), "haul there was started with --read-only");
        assert!(!allowed.path().join("made").exists());
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_port_is_the_first_that_is_free_of_those_allowed() {
        let session = session(None, false);
        let (taken, port) = open(&session, LOOPBACK, ANY).unwrap();
        let only = Ports { first: taken.port, last: taken.port };
        let error = open(&session, LOOPBACK, only).map(drop).unwrap_err();
        assert!(error.message().starts_with(&format!("it can't listen on port {}: ", taken.port)), "{error:?}");
        let (next, _port) = open(&session, LOOPBACK, Ports { last: u16::MAX, ..only }).unwrap();
        assert!(next.port > taken.port);
        // Asking one session twice gives the same port.
        let first = session.listen(ANY).unwrap();
        assert_eq!(session.listen(ANY).unwrap().port, first.port);
        drop(port);
        // The task lets it go when it is next looked at.
        while TcpStream::connect((HERE, taken.port)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn pipes_over_tcp_end_with_the_first_pipe() {
        let session = session(None, false);
        let (near, far) = tokio::io::duplex(1 << 16);
        let (from, to) = tokio::io::split(far);
        let serving = tokio::spawn(crate::serve(from, to, session.settings.clone()));
        let (input, output) = tokio::io::split(near);
        let first = crate::Pipe { input: Box::new(input), output: Box::new(output), end: None };
        let (first, about) = Call::Pipes(first).greet(Packing::default(), HANDSHAKE, None).await.unwrap();
        assert!(about.listens);
        let first = Wire::new(first, HANDSHAKE, Packing::default(), "far".into());
        let Answer::Listens(listening) = ask(&first, 0, Request::Listen(ANY)).await.unwrap() else { panic!() };
        let here = tempfile::tempdir().unwrap();
        let Answer::Folder(id) = ask(&first, 0, folder(here.path())).await.unwrap() else { panic!() };
        // The folder that was opened on the first pipe is known on the further one.
        let further = pipe(&listening).await.unwrap();
        let made = Request::MakeDir(Key::new("made/"), Default::default());
        assert!(matches!(ask(&further, id, made).await.unwrap(), Answer::Done));
        drop(first);
        serving.await.unwrap().unwrap();
        while further.is_open() || TcpStream::connect((HERE, listening.port)).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}
