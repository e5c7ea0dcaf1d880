//! TLS: whom to trust (`--ca-cert`, `--no-check-certificate`), and what to do about a certificate that is refused.

use crate::{ClientCert, Net};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use haul_core::{Error, ErrorKind, Result};
use rustls::{
    CertificateError, ClientConfig, ConfigBuilder, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::{
        WantsClientCert, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
};
use std::{path::Path, sync::Arc};

/// TLS settings for connections; `needed` says whether there will be any.
///
/// Errors: `Invalid` when a CA file can't be used.
pub fn config(net: &Net, needed: bool) -> Result<ClientConfig> {
    let own_cert = net.client_cert.as_ref().filter(|_| needed).map(client_cert).transpose()?;
    if net.insecure_tls {
        return shown_by(anyone()?, own_cert);
    }
    let mut roots = if needed { known_authorities() } else { RootCertStore::empty() };
    let mut own = Vec::new();
    for path in &net.ca_certs {
        let bad = |e: &dyn std::fmt::Display| {
            Error::new(ErrorKind::Invalid, "open", format!("CA file {}: {e}", path.display()))
        };
        let before = own.len();
        for cert in CertificateDer::pem_file_iter(path).map_err(|e| bad(&e))? {
            let cert = cert.map_err(|e| bad(&e))?;
            roots.add(cert.clone()).map_err(|e| bad(&e))?;
            own.push(cert);
        }
        if own.len() == before {
            return Err(bad(&"it holds no certificate in PEM form"));
        }
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let builder = builder.map_err(|e| unusable(&e))?;
    if own.is_empty() {
        return shown_by(builder.with_root_certificates(roots), own_cert);
    }
    let authorities = WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build();
    let authorities = authorities.map_err(|e| unusable(&e))?;
    let verifier = Arc::new(OwnToo { authorities, own });
    shown_by(builder.dangerous().with_custom_certificate_verifier(verifier), own_cert)
}

/// Takes any certificate, and shows none.
///
/// Errors: `Invalid`, when there is no TLS at all.
pub fn blind() -> Result<ClientConfig> {
    Ok(anyone()?.with_no_client_auth())
}

type Trusting = ConfigBuilder<ClientConfig, WantsClientCert>;
type OwnCert = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn anyone() -> Result<Trusting> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_safe_default_protocol_versions();
    let verifier = Arc::new(AnyCertificate(provider));
    let builder = builder.map_err(|e| unusable(&e))?.dangerous();
    Ok(builder.with_custom_certificate_verifier(verifier))
}

/// With a certificate of our own for servers that ask for one.
fn shown_by(builder: Trusting, own: Option<OwnCert>) -> Result<ClientConfig> {
    let Some((certs, key)) = own else { return Ok(builder.with_no_client_auth()) };
    builder.with_client_auth_cert(certs, key).map_err(|e| {
        let why = format!("the certificate of --client-cert and the key of --client-key can't be used: {e}");
        Error::new(ErrorKind::Invalid, "open", why)
    })
}

fn client_cert(own: &ClientCert) -> Result<OwnCert> {
    let bad = |what: &str, path: &Path, e: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Invalid, "open", format!("{what} {}: {e}", path.display()))
    };
    let certs = CertificateDer::pem_file_iter(&own.cert).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let certs = certs.map_err(|e| bad("client certificate", &own.cert, &e))?;
    if certs.is_empty() {
        return Err(bad("client certificate", &own.cert, &"it holds no certificate in PEM form"));
    }
    let key = match &own.password {
        Some(password) => {
            let pem = read(&own.key).map_err(|e| bad("client key", &own.key, &e))?;
            decrypted(&pem, password).map_err(|why| bad("client key", &own.key, &why))?
        }
        None => PrivateKeyDer::from_pem_file(&own.key).map_err(|e| bad("client key", &own.key, &e))?,
    };
    Ok((certs, key))
}

/// A file that the user names.
#[allow(clippy::disallowed_methods)]
fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    std::fs::read(path)
}

/// A key under a password, in PKCS #8, as openssl writes it; one that isn't encrypted needs none.
fn decrypted(pem: &[u8], password: &str) -> Result<PrivateKeyDer<'static>, String> {
    let text = String::from_utf8_lossy(pem);
    let (begin, end) = ("-----BEGIN ENCRYPTED PRIVATE KEY-----", "-----END ENCRYPTED PRIVATE KEY-----");
    let Some(inner) = text.split(begin).nth(1).and_then(|rest| rest.split(end).next()) else {
        return PrivateKeyDer::from_pem_slice(pem).map_err(|e| e.to_string());
    };
    let der = STANDARD.decode(inner.split_whitespace().collect::<String>()).map_err(|e| e.to_string())?;
    let info = pkcs8::EncryptedPrivateKeyInfoRef::try_from(&der[..]).map_err(|e| e.to_string())?;
    let key = info.decrypt(password).map_err(|_| "--client-pass isn't its password")?;
    Ok(PrivateKeyDer::Pkcs8(key.as_bytes().to_vec().into()))
}

fn unusable(error: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Invalid, "open", format!("TLS can't be set up: {error}"))
}

/// The system's authorities, or Mozilla's where the system has none. Read once a process: it takes milliseconds.
fn known_authorities() -> RootCertStore {
    static ROOTS: std::sync::OnceLock<RootCertStore> = std::sync::OnceLock::new();
    let read = || {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
        roots
    };
    ROOTS.get_or_init(read).clone()
}

/// Advice about a certificate that is refused: the problem, and what to type.
pub fn advice(error: &CertificateError) -> String {
    let skip = "or skip the check with --no-check-certificate";
    match error {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            let since = match error {
                CertificateError::ExpiredContext { not_after, .. } => day(*not_after),
                _ => String::new(),
            };
            format!("its certificate expired{since}: renew it on the server, {skip}")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("its certificate isn't valid yet: set this machine's clock, {skip}")
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            let names = match error {
                CertificateError::NotValidForNameContext { presented, .. } => names(presented),
                _ => String::new(),
            };
            let names = if names.is_empty() { "another name".to_owned() } else { names };
            format!("its certificate is for {names}: use that name in the endpoint, {skip}")
        }
        CertificateError::Revoked => format!("its certificate was revoked: renew it on the server, {skip}"),
        // Whatever else is wrong with it, its issuer is unknown.
        _ => format!(
            "its certificate isn't from an authority that this machine knows: name the authority's certificate, or the \
             server's own, with --ca-cert FILE, {skip}"
        ),
    }
}

fn day(at: UnixTime) -> String {
    let at = i64::try_from(at.as_secs()).ok().and_then(|s| jiff::Timestamp::from_second(s).ok());
    at.map_or(String::new(), |at| format!(" on {}", at.strftime("%Y-%m-%d")))
}

/// `DnsName("a.example")` and `IpAddress(127.0.0.1)` as names.
fn names(presented: &[String]) -> String {
    let plain = |name: &String| {
        let inner = name.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')')).unwrap_or(name);
        inner.trim_matches('"').to_owned()
    };
    presented.iter().map(plain).collect::<Vec<_>>().join(" and ")
}

/// Trusts the authorities, and besides them exactly the certificates that the user names, as curl and rclone do: a server's
/// own, which no authority has signed, is checked for its name and its time alone.
#[derive(Debug)]
struct OwnToo {
    authorities: Arc<WebPkiServerVerifier>,
    own: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for OwnToo {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
        match self.authorities.verify_server_cert(cert, between, name, ocsp, now) {
            // Its time is checked before its issuer is looked for.
            Err(rustls::Error::InvalidCertificate(
                late @ (Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }),
            )) => return Err(late.into()),
            Err(_) if self.own.iter().any(|own| own == cert) => {}
            other => return other,
        }
        verify_server_name(&ParsedCertificate::try_from(cert)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls12_signature(message, cert, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.authorities.verify_tls13_signature(message, cert, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.authorities.supported_verify_schemes()
    }
}

/// Takes any certificate (`--no-check-certificate`), but still checks that the peer holds its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made by `openssl pkcs8 -topk8 -v2 aes-256-cbc` with the password `potato`.
    const ENCRYPTED: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----\n\
        MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAj1WivunODInAICCAAw\n\
        DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEF7vYBxYVtyfdzCUqdwjIVQEgZAJ\n\
        IxgoIWQjrxzBbIRw9cR2mVBHogTTV1BrM2IA2t30DpEdyaHr0gxnf1Z72sgLkS2T\n\
        YK4IqezQytU/beNv5o6HzM+2+oGY8MKfKPp6hkx2UifA8asy7uvYIGk/36x0BEP5\n\
        kghm7Jg2B1yoMHit4H6dOdAb4z8Gv2mZXscUu4L4WZGV1BLAhzZ/9jPQEfBelvg=\n\
        -----END ENCRYPTED PRIVATE KEY-----\n";

    #[test]
    fn a_key_is_decrypted_by_its_password() {
        let key = decrypted(ENCRYPTED.as_bytes(), "potato").unwrap();
        assert_eq!((key.secret_der().len(), &key.secret_der()[..4]), (138, &b"\x30\x81\x87\x02"[..]));
        assert_eq!(decrypted(ENCRYPTED.as_bytes(), "tomato").unwrap_err(), "--client-pass isn't its password");
        assert!(decrypted(b"no key", "potato").is_err());
    }

    #[test]
    fn what_to_do_about_a_certificate() {
        let presented = vec!["DnsName(\"a.example\")".to_owned(), "IpAddress(127.0.0.1)".to_owned()];
        let expected = ServerName::try_from("b.example").unwrap();
        for (error, said) in [
            (
                CertificateError::ExpiredContext {
                    time: UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_700_000_000)),
                    not_after: UnixTime::since_unix_epoch(std::time::Duration::from_secs(1_600_000_000)),
                },
                "its certificate expired on 2020-09-13: renew it on the server, or skip the check with \
                 --no-check-certificate",
            ),
            (
                CertificateError::NotValidYet,
                "its certificate isn't valid yet: set this machine's clock, or skip the check with --no-check-certificate",
            ),
            (
                CertificateError::NotValidForNameContext { expected, presented },
                "its certificate is for a.example and 127.0.0.1: use that name in the endpoint, or skip the check with \
                 --no-check-certificate",
            ),
            (
                CertificateError::NotValidForName,
                "its certificate is for another name: use that name in the endpoint, or skip the check with \
                 --no-check-certificate",
            ),
            (
                CertificateError::UnknownIssuer,
                "its certificate isn't from an authority that this machine knows: name the authority's certificate, or \
                 the server's own, with --ca-cert FILE, or skip the check with --no-check-certificate",
            ),
            (
                CertificateError::Revoked,
                "its certificate was revoked: renew it on the server, or skip the check with --no-check-certificate",
            ),
        ] {
            assert_eq!(advice(&error), said);
        }
    }
}
