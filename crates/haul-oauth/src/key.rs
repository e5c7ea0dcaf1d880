//! RSA keys in PEM, and claims that they sign (RFC 7519).

use aws_lc_rs::{
    rand::{SecureRandom as _, SystemRandom},
    signature::{KeyPair as _, RSA_PKCS1_SHA256, RSA_PSS_SHA256, RsaKeyPair},
};
use base64::{
    Engine,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use haul_core::hash::to_hex;
use jiff::Timestamp;
use serde_json::{Value, json};
use std::fmt;

/// A private key.
pub struct Key(RsaKeyPair);

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key")
    }
}

/// Content of the PEM blocks with this label, in order.
pub fn pem(text: &str, what: &str) -> Vec<Vec<u8>> {
    let (begin, end) = (format!("-----BEGIN {what}-----"), format!("-----END {what}-----"));
    let inner = text.split(&*begin).skip(1).filter_map(|rest| rest.split_once(&*end));
    inner.filter_map(|(inner, _)| STANDARD.decode(inner.split_whitespace().collect::<String>()).ok()).collect()
}

impl Key {
    /// The first key of a text in PEM: PKCS #8, encrypted with this passphrase or not, or PKCS #1. `None` where there is none that can be read.
    pub fn from_pem(text: &str, passphrase: &str) -> Option<Key> {
        let first = |what: &str| pem(text, what).into_iter().next();
        let key = if let Some(der) = first("ENCRYPTED PRIVATE KEY") {
            let info = pkcs8::EncryptedPrivateKeyInfoRef::try_from(&der[..]).ok()?;
            RsaKeyPair::from_pkcs8(info.decrypt(passphrase).ok()?.as_bytes())
        } else if let Some(der) = first("PRIVATE KEY") {
            RsaKeyPair::from_pkcs8(&der)
        } else {
            RsaKeyPair::from_der(&first("RSA PRIVATE KEY")?)
        };
        key.ok().map(Key)
    }

    /// True if a certificate (in DER) is this key's.
    pub fn is_of(&self, certificate: &[u8]) -> bool {
        let public = self.0.public_key().as_ref();
        certificate.windows(public.len()).any(|part| part == public)
    }

    /// Signed claims: valid from now on for `lasts` seconds, each with its own unique number. `head` names the algorithm, `RS256` or
    /// `PS256`. `None` if the machine supplies no random numbers.
    pub fn signed(&self, mut head: Value, mut claims: Value, lasts: i64) -> Option<String> {
        let now = Timestamp::now().as_second();
        (claims["iat"], claims["exp"]) = (now.into(), (now + lasts).into());
        let (mut number, random) = ([0; 16], SystemRandom::new());
        random.fill(&mut number).ok()?;
        (claims["jti"], head["typ"]) = (to_hex(&number).into(), json!("JWT"));
        let algorithm = if head["alg"] == "PS256" { &RSA_PSS_SHA256 } else { &RSA_PKCS1_SHA256 };
        let encode = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", encode(&head), encode(&claims));
        let mut signature = vec![0; self.0.public_modulus_len()];
        self.0.sign(algorithm, &random, text.as_bytes(), &mut signature).ok()?;
        Some(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }
}
