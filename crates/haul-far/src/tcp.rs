//! Content over TCP and TLS beside ssh, where the user asks for it: facts shared by both ends, and the near end's half. The far end's is
//! `serve/port.rs`. ssh has authenticated both: through its session come the fingerprint of the key that the far end made for
//! this one connection, and the token that admits a pipe. So there are no names, no certificates and no authorities.

use crate::{dial::Pipe, listen_address::Listening};
use aws_lc_rs::digest::{SHA256, digest};
use haul_core::{Error, ErrorKind, Result, Retry};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs::default_provider, verify_tls13_signature_with_raw_key},
    pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
};
use std::{io, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, BufReader, BufWriter, split},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

/// Bytes written at a time.
const BLOCK: usize = 256 << 10;

/// Bytes asked for at a time.
const AHEAD: usize = 64 << 10;

/// Bytes that are encrypted before the system is asked to take them: a piece of content at once, with what stands before it.
pub const SEALED: usize = 2 * BLOCK;

/// A port that doesn't answer for so long is barred.
const ANSWERS: Duration = Duration::from_secs(2);

/// Time in which the far end must prove its identity, and the near end must state its purpose.
pub const HANDSHAKE: Duration = Duration::from_secs(10);

/// Knows the far end by the fingerprint of its key.
#[derive(Debug)]
struct Pinned {
    fingerprint: Vec<u8>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        key: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        match fingerprint(key) == self.fingerprint {
            true => Ok(ServerCertVerified::assertion()),
            false => Err(CertificateError::ApplicationVerificationFailure.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.3 alone is spoken".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        verify_tls13_signature_with_raw_key(message, &key, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// SHA-256 of a public key, as a SubjectPublicKeyInfo.
pub fn fingerprint(key: &[u8]) -> Vec<u8> {
    digest(&SHA256, key).as_ref().to_vec()
}

/// Connects to the far end at this name or address, proves that it is the one, and says the token: what follows is a greeting.
///
/// Errors: `Unreachable` where nobody answers, or somebody else does.
pub async fn connect(host: &str, listening: &Listening) -> Result<Pipe> {
    let port = listening.port;
    let error = |why: String| Error::new(ErrorKind::Unreachable, "connect", why).with_retry(Retry::Never);
    let stream = match timeout(ANSWERS, TcpStream::connect((host, port))).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(why)) => return Err(error(format!("port {port} of {host} can't be reached: {why}"))),
        Err(_) => {
            return Err(error(format!(
                "port {port} of {host} can't be reached: no answer within {} s",
                ANSWERS.as_secs()
            )));
        }
    };
    let secured =
        timeout(HANDSHAKE, secured(stream, listening)).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    secured.map_err(|why| error(format!("port {port} of {host} isn't haul's: {why}")))
}

async fn secured(stream: TcpStream, listening: &Listening) -> io::Result<Pipe> {
    stream.set_nodelay(true)?;
    let name = ServerName::from(stream.peer_addr()?.ip());
    let provider = Arc::new(default_provider());
    let pinned = Pinned { fingerprint: listening.fingerprint.clone(), provider: provider.clone() };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(pinned))
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    let mut stream = TlsConnector::from(Arc::new(config)).connect(name, buffered(stream)).await?;
    stream.get_mut().1.set_buffer_limit(Some(SEALED));
    let (input, mut output) = halves(stream);
    // Goes with the greeting.
    output.write_all(&listening.token.0).await?;
    Ok(Pipe { input: Box::new(input), output: Box::new(output), end: None })
}

/// TLS reads a record or less at a time: the system is asked for some, no more than stay in a processor's cache.
pub fn buffered(stream: TcpStream) -> BufReader<TcpStream> {
    BufReader::with_capacity(AHEAD, stream)
}

/// Both directions of a stream. What is read is in memory already.
pub fn halves<S: AsyncRead + AsyncWrite + Send + Unpin>(
    stream: S,
) -> (impl AsyncRead + Send + Unpin + use<S>, impl AsyncWrite + Send + Unpin + use<S>) {
    let (input, output) = split(stream);
    (input, BufWriter::with_capacity(BLOCK, output))
}
