//! Tokens: one access token is good at a time, each refresh token once; or for the signed claim of an application.

use crate::{lab::Lab, peers};
use aws_lc_rs::{
    encoding::{AsDer, Pkcs8V1Der},
    rsa::{KeySize, PrivateDecryptingKey},
    signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey},
};
use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
};

/// Audience of claims, wherever the service is.
const AUDIENCE: &str = "https://api.box.com/oauth2/token";
const KEY_ID: &str = "key1";
const ENTERPRISE: &str = "4711";

#[derive(Debug, Default)]
pub struct Auth {
    number: u64,
    expired: bool,
    pub renewals: usize,
    /// Public keys of applications.
    keys: Vec<Vec<u8>>,
    /// A claim is good once.
    claims: BTreeSet<String>,
}

impl Auth {
    pub fn number(&self) -> u64 {
        self.number
    }

    pub fn expire(&mut self) {
        self.expired = true;
    }

    pub fn is_good(&self, header: &str) -> bool {
        !self.expired && header == format!("Bearer access-{}", self.number)
    }

    /// A new application.
    pub fn application(&mut self, lab: &Lab, cipher: Option<&str>, passphrase: &str) -> Option<String> {
        let key = PrivateDecryptingKey::generate(KeySize::Rsa2048).expect("a key");
        let der: Pkcs8V1Der<'_> = key.as_der().expect("a key");
        let pair = RsaKeyPair::from_pkcs8(der.as_ref()).expect("a key");
        self.keys.push(pair.public_key().as_ref().to_vec());
        let mut pem =
            format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", STANDARD.encode(der.as_ref()));
        if let Some(cipher) = cipher {
            let openssl = peers::need("openssl")?;
            let (plain, sealed) = (lab.path("application.key"), lab.path("application.sealed"));
            fs::write(&plain, &pem).expect("written");
            let (plain, out) = (plain.display().to_string(), sealed.display().to_string());
            let pass = format!("pass:{passphrase}");
            let mut args = vec!["pkcs8", "-topk8", "-in", &plain, "-out", &out, "-passout", &pass];
            args.extend(cipher.split(' '));
            lab.run(&openssl, &args).ok();
            pem = fs::read_to_string(&sealed).expect("a key");
        }
        let app = json!({"clientID": "app", "clientSecret": "secret",
            "appAuth": {"publicKeyID": KEY_ID, "privateKey": pem, "passphrase": passphrase}});
        Some(json!({"boxAppSettings": app, "enterpriseID": ENTERPRISE}).to_string())
    }

    /// Answers a request for a token.
    ///
    /// Errors: what RFC 6749 calls them.
    pub fn grant(&mut self, form: &BTreeMap<String, String>) -> Result<Value, &'static str> {
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        if (field("client_id"), field("client_secret")) != ("app", "secret") {
            return Err("invalid_client");
        }
        let refreshes = match field("grant_type") {
            "refresh_token" if field("refresh_token") == format!("refresh-{}", self.number) => true,
            "urn:ietf:params:oauth:grant-type:jwt-bearer" if self.is_signed(field("assertion")) => false,
            "client_credentials"
                if (field("box_subject_type"), field("box_subject_id")) == ("enterprise", ENTERPRISE) =>
            {
                false
            }
            "refresh_token" | "client_credentials" | "urn:ietf:params:oauth:grant-type:jwt-bearer" => {
                return Err("invalid_grant");
            }
            _ => return Err("unsupported_grant_type"),
        };
        self.number += 1;
        self.renewals += 1;
        self.expired = false;
        let mut answer = json!({
            "access_token": format!("access-{}", self.number), "expires_in": 3600, "token_type": "bearer",
            "restricted_to": [],
        });
        // An application signs anew.
        if refreshes {
            answer["refresh_token"] = format!("refresh-{}", self.number).into();
        }
        Ok(answer)
    }

    /// Ends a log-in by its access token or its refresh token, if that is still good.
    ///
    /// Errors: what RFC 6749 calls them.
    pub fn revoke(&mut self, form: &BTreeMap<String, String>) -> Result<(), &'static str> {
        let field = |name: &str| form.get(name).map_or("", String::as_str);
        if (field("client_id"), field("client_secret")) != ("app", "secret") {
            return Err("invalid_client");
        }
        if [format!("access-{}", self.number), format!("refresh-{}", self.number)]
            .iter()
            .any(|own| own == field("token"))
        {
            // Whoever logs in next gets other tokens.
            self.number += 1;
        }
        Ok(())
    }

    fn is_signed(&mut self, assertion: &str) -> bool {
        let Some((text, signature)) = assertion.rsplit_once('.') else { return false };
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
        let part = |number: usize| -> Option<Value> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(text.split('.').nth(number)?).ok()?).ok()
        };
        let (Some(head), Some(claims)) = (part(0), part(1)) else { return false };
        let signed = self.keys.iter().any(|key| {
            UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key).verify(text.as_bytes(), &signature).is_ok()
        });
        let now = jiff::Timestamp::now().as_second();
        let ends = claims["exp"].as_i64().unwrap_or(0) - now;
        let number = claims["jti"].as_str().unwrap_or_default();
        signed
            && head["kid"] == KEY_ID
            && head["alg"] == "RS256"
            && claims["iss"] == "app"
            && claims["aud"] == AUDIENCE
            && claims["sub"] == ENTERPRISE
            && matches!(claims["box_sub_type"].as_str(), Some("user" | "enterprise"))
            && (1..=60).contains(&ends)
            && (16..=128).contains(&number.len())
            && self.claims.insert(number.to_owned())
    }
}
