//! The certificate of a service principal: its file, and the signed claim that proves the caller's identity.

// A file that people name, as Azure's own tools read it.
#![allow(clippy::disallowed_methods)]

use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use haul_core::{Error, ErrorKind, Result};
use haul_oauth::{Key, pem};
use serde_json::{Value, json};

/// A claim is good for so long, in seconds: as in Microsoft's own libraries.
const LASTS: i64 = 600;

/// A certificate and its key.
#[derive(Debug)]
pub struct Certificate {
    key: Key,
    /// The key's own first, then those above it.
    chain: Vec<Vec<u8>>,
    /// The service is shown the certificates, not their number alone.
    shown: bool,
}

impl Certificate {
    /// Reads a PEM file with the certificate and its private key, which may be encrypted with a password.
    ///
    /// Errors: `Invalid`, with the file and the problem.
    pub fn read(path: &str, password: &str, shown: bool) -> Result<Certificate> {
        let invalid =
            |why: String| Err(Error::new(ErrorKind::Invalid, "open", format!("client_certificate_path {path}: {why}")));
        let bytes = match std::fs::read(path) {
            Ok(bytes) => bytes,
            Err(e) => return invalid(format!("can't be read: {e}")),
        };
        let text = String::from_utf8(bytes).unwrap_or_default();
        let mut chain = pem(&text, "CERTIFICATE");
        if chain.is_empty() {
            return invalid(format!(
                "there is no certificate in PEM in it; make one of a PFX file with: openssl pkcs12 -in {path} -out cert.pem"
            ));
        }
        let Some(key) = Key::from_pem(&text, password) else {
            return invalid("no RSA key in PEM can be read in it with client_certificate_password".into());
        };
        match chain.iter().position(|certificate| key.is_of(certificate)) {
            Some(own) => chain.swap(0, own),
            None => return invalid("its private key is not that of a certificate in it".into()),
        }
        Ok(Certificate { key, chain, shown })
    }

    /// This application's signed claim for the token endpoint at `address`.
    ///
    /// Errors: `Io` where the machine supplies no random numbers.
    pub fn claim(&self, client_id: &str, address: &str) -> Result<String> {
        let sha256 = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &self.chain[0]);
        let mut head = json!({ "alg": "PS256", "x5t#S256": URL_SAFE_NO_PAD.encode(sha256) });
        if self.shown {
            head["x5c"] = self.chain.iter().map(|one| STANDARD.encode(one)).map(Value::from).collect();
        }
        let claims = json!({ "aud": address, "iss": client_id, "sub": client_id });
        let random = || Error::new(ErrorKind::Io, "open", "this machine gives no random numbers");
        self.key.signed(head, claims, LASTS).ok_or_else(random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_testkit::{lab::Lab, peers};
    use std::fs;

    /// Microsoft's own library makes claims of the same form, and its parts take ours for good.
    #[test]
    fn a_claim_is_as_microsofts_library_makes_it() {
        let (Some(openssl), Some(python)) = (peers::need("openssl"), peers::need("cloud_sdks")) else { return };
        let lab = Lab::new("");
        let path = |name: &str| lab.path(name).display().to_string();
        let openssl = |args: &[&str]| lab.run(&openssl, args).ok();
        for name in ["own", "above"] {
            let (key, cert) = (path(&format!("{name}.key")), path(&format!("{name}.crt")));
            let subject = format!("/CN={name}");
            let new = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", &*subject, "-keyout"];
            openssl(&[&new[..], &[&*key, "-out", &*cert]].concat());
        }
        let read = |name: &str| fs::read_to_string(lab.path(name)).expect("there");
        openssl(&[
            "pkcs8",
            "-topk8",
            "-in",
            &path("own.key"),
            "-passout",
            "pass:secret",
            "-out",
            &path("encrypted.key"),
        ]);
        openssl(&["rsa", "-traditional", "-in", &path("own.key"), "-out", &path("older.key")]);
        let (own, above) = (read("own.crt"), read("above.crt"));
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/claim.py");
        for (key, password) in [("own.key", ""), ("encrypted.key", "secret"), ("older.key", "")] {
            let file = path("all.pem");
            fs::write(&file, format!("{above}{own}{}", read(key))).expect("written");
            for shown in [false, true] {
                let certificate = Certificate::read(&file, password, shown).expect(key);
                let claim = certificate.claim("app", "https://login.example/t/oauth2/v2.0/token").expect("signed");
                let ran = lab.run(&python, &[script, &path("own.crt"), &path("own.key"), &claim, &shown.to_string()]);
                assert_eq!(ran.ok().out.trim(), "passed", "{key} {shown}");
            }
        }
        let pfx = ["pkcs12", "-export", "-in", &*path("own.crt"), "-inkey", &path("own.key"), "-passout", "pass:x"];
        openssl(&[&pfx[..], &["-out", &path("x.pfx")]].concat());
        let wrong = |name: &str, password: &str| {
            let error = Certificate::read(&path(name), password, false).expect_err(name);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            error.message().replace(&*path(name), "FILE")
        };
        fs::write(lab.path("encrypted.pem"), own.clone() + &read("encrypted.key")).expect("written");
        fs::write(lab.path("another.pem"), above + &read("own.key")).expect("written");
        for (name, message) in [
            (
                "x.pfx",
                "there is no certificate in PEM in it; make one of a PFX file with: openssl pkcs12 -in FILE -out cert.pem",
            ),
            ("none.pem", "can't be read: No such file or directory (os error 2)"),
            ("own.crt", "no RSA key in PEM can be read in it with client_certificate_password"),
            ("encrypted.pem", "no RSA key in PEM can be read in it with client_certificate_password"),
            ("another.pem", "its private key is not that of a certificate in it"),
        ] {
            assert_eq!(wrong(name, "wrong"), format!("client_certificate_path FILE: {message}"));
        }
    }
}
