//! Tokens: given out for a refresh token or a service account's assertion, good for a while.

use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rand::SystemRandom,
    rsa::{KeySize, PrivateDecryptingKey},
    signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// The refresh token that it takes.
pub const REFRESH: &str = "1//refresh";
const EMAIL: &str = "robot@project.iam.gserviceaccount.com";

/// What was given out.
#[derive(Debug, Default)]
pub struct Auth {
    tokens: BTreeMap<String, Instant>,
    number: u64,
    /// Public keys of service accounts.
    keys: Vec<Vec<u8>>,
}

impl Auth {
    /// A new token.
    pub fn issue(&mut self, lasts: Duration) -> String {
        self.number += 1;
        let token = format!("ya29.{}", self.number);
        self.tokens.insert(token.clone(), Instant::now() + lasts);
        token
    }

    /// None of them is good any more.
    pub fn forget(&mut self) {
        self.tokens.clear();
    }

    /// Whether the header of a request is good.
    pub fn knows(&self, header: Option<&str>) -> bool {
        let token = header.and_then(|header| header.strip_prefix("Bearer "));
        token.and_then(|token| self.tokens.get(token)).is_some_and(|ends| *ends > Instant::now())
    }

    /// A new key of a service account.
    pub fn service_account(&mut self, endpoint: &str) -> String {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).expect("a key");
        let der: Pkcs8V1Der<'_> = key.as_der().expect("a key");
        let pair = RsaKeyPair::from_pkcs8(der.as_ref()).expect("a key");
        self.keys.push(pair.public_key().as_ref().to_vec());
        let _ = SystemRandom::new();
        let pem =
            format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der.as_ref()));
        json!({
            "type": "service_account", "client_email": EMAIL, "private_key_id": "1", "private_key": pem,
            "token_uri": format!("{endpoint}/token"),
        })
        .to_string()
    }

    /// Answers a request for a token.
    ///
    /// Errors: what RFC 6749 calls them.
    pub fn grant(&mut self, form: &BTreeMap<String, String>, lasts: Duration) -> Result<Value, &'static str> {
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        match field("grant_type") {
            "refresh_token" if field("refresh_token") == REFRESH => {}
            "urn:ietf:params:oauth:grant-type:jwt-bearer" if self.is_signed(field("assertion")) => {}
            "refresh_token" | "urn:ietf:params:oauth:grant-type:jwt-bearer" => return Err("invalid_grant"),
            _ => return Err("unsupported_grant_type"),
        }
        Ok(json!({ "access_token": self.issue(lasts), "expires_in": lasts.as_secs(), "token_type": "Bearer" }))
    }

    fn is_signed(&self, assertion: &str) -> bool {
        let Some((text, signature)) = assertion.rsplit_once('.') else { return false };
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
        let claims = text.split_once('.').and_then(|(_, claims)| URL_SAFE_NO_PAD.decode(claims).ok());
        let claims: Option<Value> = claims.and_then(|claims| serde_json::from_slice(&claims).ok());
        let named = claims.is_some_and(|claims| {
            claims["iss"] == EMAIL
                && claims["scope"].as_str().is_some_and(|scope| scope.contains("/auth/drive"))
                && claims["exp"].as_i64().zip(claims["iat"].as_i64()).is_some_and(|(exp, iat)| exp - iat <= 3600)
        });
        let is_by = |key: &Vec<u8>| {
            UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key).verify(text.as_bytes(), &signature).is_ok()
        };
        named && self.keys.iter().any(is_by)
    }
}
