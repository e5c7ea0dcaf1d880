//! Google's credentials that point to others: a token of another identity provider is exchanged for one of Google's
//! (<https://google.aip.dev/auth/4117>), and whoever has one may get that of a service account
//! (<https://cloud.google.com/iam/docs/reference/credentials/rest/v1/projects.serviceAccounts/generateAccessToken>).

use crate::{
    Token,
    credentials::{invalid, text_of},
    requests::{fetch, post_form, post_json},
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use haul_core::{ErrorKind, Result, Retry};
use haul_net::{Fault, FaultResult, Http};
use haul_store::{body::Pieces, disk};
use http::{HeaderValue, Uri};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::{collections::BTreeMap, net::IpAddr};

/// The scope with which a token may be exchanged for that of a service account: the least, as in Google's own client.
pub const IAM: &str = "https://www.googleapis.com/auth/iam";
/// An impersonated account's token lasts for so many seconds, if nothing else is said.
const LASTS: u64 = 3600;
const GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// What a credentials file of the type `external_account` has beside its addresses.
#[derive(Deserialize)]
pub struct External {
    audience: String,
    subject_token_type: String,
    credential_source: Source,
    #[serde(default)]
    client_id: String,
    #[serde(default)]
    client_secret: String,
    #[serde(default)]
    workforce_pool_user_project: String,
}

/// Where the other provider's token comes from.
#[derive(Deserialize)]
struct Source {
    #[serde(default)]
    file: String,
    #[serde(default)]
    url: String,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default)]
    format: Format,
    #[serde(flatten)]
    others: BTreeMap<String, Value>,
}

#[derive(Default, Deserialize)]
struct Format {
    #[serde(default, rename = "type")]
    kind: String,
    #[serde(default)]
    subject_token_field_name: String,
}

impl External {
    /// From such a file.
    ///
    /// Errors: `Invalid` for what is no such file, or has its token from elsewhere than a file or an address.
    pub fn parse(file: &Value) -> Result<External> {
        let broken = |e| invalid(format!("the credentials of the type \"external_account\" can't be understood: {e}"));
        let external = External::deserialize(file).map_err(broken)?;
        let source = &external.credential_source;
        if let Some(other) =
            ["environment_id", "executable", "certificate"].iter().find(|n| source.others.contains_key(**n))
        {
            let message = format!(
                "credentials whose token comes by {other:?} can't be used: use those with a \"file\" or a \"url\""
            );
            return Err(invalid(message));
        }
        if source.file.is_empty() == source.url.is_empty() {
            return Err(invalid("the credentials' \"credential_source\" must have either a \"file\" or a \"url\""));
        }
        match (&*source.format.kind, &*source.format.subject_token_field_name) {
            ("" | "text", _) => {}
            ("json", field) if !field.is_empty() => {}
            ("json", _) => return Err(invalid("the credentials' \"format\" has no \"subject_token_field_name\"")),
            (other, _) => {
                return Err(invalid(format!("the credentials' \"format\" {other:?} is neither \"text\" nor \"json\"")));
            }
        }
        Ok(external)
    }

    /// A token for `scope`, from Google's exchange at `url`: its answer.
    ///
    /// Errors: the other provider's token can't be had, or Google refuses it.
    pub async fn exchanged(&self, http: &Http<Pieces>, url: &str, scope: &str) -> FaultResult<bytes::Bytes> {
        let subject = self.subject(http).await?;
        let mut form = vec![
            ("grant_type", GRANT),
            ("audience", &*self.audience),
            ("scope", scope),
            ("requested_token_type", ACCESS_TOKEN),
            ("subject_token", &*subject),
            ("subject_token_type", &*self.subject_token_type),
        ];
        let has_client = !self.client_id.is_empty();
        let options = json!({ "userProject": self.workforce_pool_user_project }).to_string();
        // A client has a project of its own.
        if !has_client && !self.workforce_pool_user_project.is_empty() {
            form.push(("options", &options));
        }
        let client = STANDARD.encode(format!("{}:{}", self.client_id, self.client_secret));
        let client = has_client.then(|| header(&format!("Basic {client}"))).transpose()?;
        post_form(http, url, &form, client).await
    }

    /// The other provider's token. It is renewed where it comes from, so it is asked for each time.
    async fn subject(&self, http: &Http<Pieces>) -> FaultResult<String> {
        let source = &self.credential_source;
        let text = if source.file.is_empty() {
            let headers: Vec<_> = source.headers.iter().map(|(name, value)| (&**name, &**value)).collect();
            let body = fetch(http, &source.url, &headers).await.map_err(|fault| {
                let message = format!("{} gave no token: {}", without_query(&source.url), fault.message);
                Box::new(Fault { message, ..*fault })
            })?;
            String::from_utf8_lossy(&body).into_owned()
        } else {
            let path = source.file.clone();
            let read = disk::run(move || text_of(&path, "the token"));
            read.await.map_err(|error| denied(error.message()))?
        };
        let token = match &*source.format.kind {
            "json" => {
                let field = &*source.format.subject_token_field_name;
                let told: Value = serde_json::from_str(&text).unwrap_or_default();
                told[field].as_str().map(str::to_owned)
            }
            _ => Some(text.trim().to_owned()),
        };
        let place = if source.file.is_empty() { without_query(&source.url) } else { &source.file };
        token.filter(|token| !token.is_empty()).ok_or_else(|| denied(&format!("there is no token in {place}")))
    }
}

/// How a service account is impersonated.
pub struct Impersonation {
    /// Other accounts by which it goes.
    delegates: Vec<String>,
    /// Seconds that a token is to last.
    lasts: u64,
}

impl Impersonation {
    /// As a credentials file says it.
    pub fn parse(file: &Value) -> Impersonation {
        let delegates = file["delegates"].as_array().into_iter().flatten();
        let delegates = delegates.filter_map(|delegate| delegate.as_str().map(str::to_owned)).collect();
        let lasts = file["service_account_impersonation"]["token_lifetime_seconds"].as_u64().unwrap_or(LASTS);
        Impersonation { delegates, lasts }
    }

    /// The account's token for `scope`, from `url`, asked for with the token of whoever may ask.
    ///
    /// Errors: Google refuses, or its answer has no token.
    pub async fn token(&self, http: &Http<Pieces>, url: &str, scope: &str, asks: HeaderValue) -> FaultResult<Token> {
        let scopes: Vec<&str> = scope.split(' ').collect();
        let mut body = json!({ "scope": scopes, "lifetime": format!("{}s", self.lasts) });
        if !self.delegates.is_empty() {
            body["delegates"] = json!(self.delegates);
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer {
            access_token: String,
            expire_time: String,
        }
        let told = post_json(http, url, asks, &body).await?;
        let told: Option<Answer> = serde_json::from_slice(&told).ok();
        // A token whose end can't be read would count as one that has ended.
        let told = told.filter(|told| told.expire_time.parse::<Timestamp>().is_ok());
        let told = told.ok_or_else(|| denied("the answer for the impersonated account has no token"))?;
        Ok(Token {
            access_token: told.access_token,
            token_type: "Bearer".into(),
            refresh_token: String::new(),
            expiry: told.expire_time,
        })
    }
}

/// An address that tokens may be sent to: nobody reads along.
///
/// Errors: `Invalid` for another.
pub fn secure(url: &str) -> Result<&str> {
    let parsed: Option<Uri> = url.parse().ok();
    let secure = parsed.is_some_and(|uri| match (uri.scheme_str(), uri.authority()) {
        // Before an @ stands a name to log in with, which looks like a host.
        (_, None) => false,
        (_, Some(authority)) if authority.as_str().contains('@') => false,
        (Some("https"), _) => true,
        (Some("http"), Some(authority)) => {
            let host = authority.host().trim_start_matches('[').trim_end_matches(']');
            host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        _ => false,
    });
    match secure {
        true => Ok(url),
        false => {
            let shown = without_query(url);
            Err(invalid(format!("the credentials name {shown:?} for tokens, which is no address with https")))
        }
    }
}

/// An address as it may be shown: its query may hold a secret.
fn without_query(url: &str) -> &str {
    url.split('?').next().unwrap_or_default()
}

fn header(text: &str) -> FaultResult<HeaderValue> {
    let mut header = HeaderValue::from_str(text).map_err(|_| denied("the client's secret can't be sent"))?;
    header.set_sensitive(true);
    Ok(header)
}

fn denied(why: &str) -> Box<Fault> {
    Fault::new(ErrorKind::Unauthenticated, Retry::Never, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_go_where_nobody_reads_along() {
        for url in
            ["https://sts.googleapis.com/v1/token", "http://127.0.0.1:8080/x", "http://localhost/x", "http://[::1]:1/"]
        {
            assert!(secure(url).is_ok(), "{url}");
        }
        for url in [
            "http://sts.googleapis.com/v1/token",
            "http://127.0.0.1.evil.example/x",
            "http://localhost:x@evil.example/x",
            "https://localhost@evil.example/x",
            "/x",
            "",
        ] {
            assert!(secure(url).is_err(), "{url}");
        }
        let error = secure("http://idp.example/token?code=s3cret").unwrap_err().to_string();
        assert!(error.contains("idp.example") && !error.contains("s3cret"), "{error}");
    }
}
