//! TLS in front of a server on this machine, with certificates that a test makes: good ones, expired ones, of another name.

use crate::{lab::Lab, peers};
use rustls::{
    ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};
use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    runtime::{Builder, Runtime},
};
use tokio_rustls::TlsAcceptor;

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Certificate {
    /// The certificate's file.
    pub cert: PathBuf,
    /// Its key's file.
    pub key: PathBuf,
}

impl Certificate {
    /// A certificate that signs itself, for these names (`DNS:localhost,IP:127.0.0.1`), good between these dates
    /// (`20200101000000Z`); `authority` when it is one that may sign others too. `None` after saying that the test is skipped.
    ///
    /// Panics if openssl is there and can't make it.
    pub fn make(lab: &Lab, name: &str, names: &str, dates: (&str, &str), authority: bool) -> Option<Certificate> {
        let openssl = peers::need("openssl")?;
        let folder = lab.path(&format!("certificate-{name}"));
        fs::create_dir(&folder).expect("folder");
        let at = |name: &str| folder.join(name);
        let text = |name: &str| at(name).display().to_string();
        fs::write(at("index"), "").expect("index");
        let config = format!(
            "[req]\ndistinguished_name=dn\n[dn]\n[ca]\ndefault_ca=own\n[own]\ndatabase={}\nnew_certs_dir={}\nrand_serial=yes\n\
             default_md=sha256\npolicy=any\nx509_extensions=ext\n[any]\ncommonName=supplied\n[ext]\nsubjectAltName={names}\n\
             basicConstraints=CA:{}\n",
            text("index"),
            folder.display(),
            if authority { "TRUE" } else { "FALSE" },
        );
        fs::write(at("config"), config).expect("config");
        let (config, key, request, cert) = (text("config"), text("key"), text("request"), text("cert"));
        let subject = format!("/CN=haul test {name}");
        let curve = "ec_paramgen_curve:P-256";
        let new = ["req", "-new", "-newkey", "ec", "-pkeyopt", curve, "-nodes", "-subj", &subject];
        lab.run(&openssl, &[&new[..], &["-config", &config, "-keyout", &key, "-out", &request]].concat()).ok();
        let sign = ["ca", "-selfsign", "-batch", "-notext", "-startdate", dates.0, "-enddate", dates.1];
        let files = ["-config", &config, "-keyfile", &key, "-in", &request, "-out", &cert];
        lab.run(&openssl, &[&sign[..], &files].concat()).ok();
        Some(Certificate { cert: at("cert"), key: at("key") })
    }
}

/// A port that speaks TLS and hands on what comes to a server that doesn't.
#[derive(Debug)]
pub struct TlsFront {
    /// Where it listens.
    pub address: SocketAddr,
    runtime: Option<Runtime>,
}

impl TlsFront {
    /// Starts one.
    ///
    /// Errors: no thread or port to be had, or no such certificate.
    pub fn start(upstream: SocketAddr, certificate: &Certificate) -> io::Result<TlsFront> {
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0"))?;
        let address = listener.local_addr()?;
        let acceptor = TlsAcceptor::from(Arc::new(config(&certificate.cert, &certificate.key)?));
        runtime.spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    // Clients that don't trust it hang up: that is what tests want to see.
                    let Ok(mut client) = acceptor.accept(socket).await else { return };
                    let Ok(mut server) = TcpStream::connect(upstream).await else { return };
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        Ok(TlsFront { address, runtime: Some(runtime) })
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a server with this certificate needs.
pub(crate) fn config(cert: &Path, key: &Path) -> io::Result<ServerConfig> {
    let cert = CertificateDer::from_pem_file(cert).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?.with_no_client_auth();
    builder.with_single_cert(vec![cert], key).map_err(io::Error::other)
}
