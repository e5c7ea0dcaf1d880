//! A token as rclone writes it into a config section: `{"access_token":"…","token_type":"Bearer","refresh_token":"…","expiry":"…"}`.

use haul_core::{Error, ErrorKind, Result};
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp, Zoned};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A token is renewed so long before it expires.
pub(crate) const EARLY: SignedDuration = SignedDuration::from_secs(60);

/// Access token of a login, and the refresh token that gets the next one.
#[derive(Clone, PartialEq, Eq, Deserialize, Serialize)]
pub struct Token {
    /// The token sent with each request.
    #[serde(alias = "AccessToken", default)]
    pub access_token: String,
    /// `Bearer`, in practice.
    #[serde(alias = "TokenType", default)]
    pub token_type: String,
    /// The refresh token; empty if there is none.
    #[serde(alias = "RefreshToken", default, skip_serializing_if = "String::is_empty")]
    pub refresh_token: String,
    /// When it ends, as RFC 3339 has it; empty, or in the year 1, for one that doesn't.
    #[serde(alias = "Expiry", default, skip_serializing_if = "String::is_empty")]
    pub expiry: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expiry", &self.expiry).finish_non_exhaustive()
    }
}

/// A service's answer to a request for a token.
#[derive(Deserialize)]
struct TokenResponse {
    #[serde(default)]
    access_token: String,
    #[serde(default)]
    token_type: String,
    #[serde(default)]
    refresh_token: String,
    /// Seconds; some services write a number, others text.
    expires_in: Option<serde_json::Value>,
}

impl Token {
    /// Reads the option `token`.
    ///
    /// Errors: `Invalid` for what isn't one.
    pub fn parse(text: &str) -> Result<Token> {
        let bad = || Error::new(ErrorKind::Invalid, "open", "the token in the config file is damaged: log in again");
        let token: Token = serde_json::from_str(text.trim()).map_err(|_| bad())?;
        if token.access_token.is_empty() && token.refresh_token.is_empty() {
            return Err(bad());
        }
        Ok(token)
    }

    /// As the option `token` has it: one line.
    pub fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// From the answer of a service that was asked at `asked_at`; `None` for what holds no token. A refresh token that doesn't come is
    /// still the one before.
    pub fn answered(body: &[u8], asked_at: &Zoned, before: Option<&Token>) -> Option<Token> {
        let answer: TokenResponse =
            serde_json::from_slice(body).ok().filter(|answer: &TokenResponse| !answer.access_token.is_empty())?;
        let lasts = match answer.expires_in {
            Some(serde_json::Value::Number(secs)) => secs.as_f64().map(|secs| secs as i64),
            Some(serde_json::Value::String(secs)) => secs.parse().ok(),
            _ => None,
        };
        let ends = lasts.and_then(|secs| asked_at.checked_add(SignedDuration::from_secs(secs)).ok());
        let refresh_token = match answer.refresh_token {
            none if none.is_empty() => before.map(|before| before.refresh_token.clone()).unwrap_or_default(),
            next => next,
        };
        Some(Token {
            access_token: answer.access_token,
            token_type: if answer.token_type.is_empty() { "Bearer".into() } else { answer.token_type },
            refresh_token,
            expiry: ends.map(|ends| ends.strftime("%Y-%m-%dT%H:%M:%S%.f%:z").to_string()).unwrap_or_default(),
        })
    }

    /// True while it may be sent, at `now`, and needn't be renewed yet.
    pub fn is_good(&self, now: Timestamp) -> bool {
        self.lasts(now, EARLY)
    }

    /// True for one that is good at `now`, and for longer than this.
    pub fn lasts(&self, now: Timestamp, margin: SignedDuration) -> bool {
        let never = self.expiry.is_empty() || self.expiry.starts_with("0001-");
        let ends = || self.expiry.parse::<Timestamp>().ok();
        !self.access_token.is_empty() && (never || ends().is_some_and(|ends| ends.duration_since(now) > margin))
    }

    /// The header `Authorization`; `None` for text that no header can hold.
    pub fn header(&self) -> Option<HeaderValue> {
        let kind = if self.token_type.eq_ignore_ascii_case("bearer") || self.token_type.is_empty() {
            "Bearer"
        } else {
            &self.token_type
        };
        let mut header = HeaderValue::from_str(&format!("{kind} {}", self.access_token)).ok()?;
        header.set_sensitive(true);
        Some(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Zoned {
        text.parse::<Timestamp>().unwrap().to_zoned(jiff::tz::TimeZone::fixed(jiff::tz::offset(1)))
    }

    #[test]
    fn rclones_tokens_are_read_and_written() {
        let text = r#"{"access_token":"a","token_type":"Bearer","refresh_token":"r","expiry":"2026-01-02T03:04:05.123456789+01:00"}"#;
        let token = Token::parse(text).unwrap();
        assert_eq!(token.text(), text);
        assert!(token.is_good("2026-01-02T02:03:00Z".parse().unwrap()));
        assert!(!token.is_good("2026-01-02T02:03:06Z".parse().unwrap()), "it is renewed a minute early");
        let old = r#"{"AccessToken":"a","RefreshToken":"r","Expiry":"0001-01-01T00:00:00Z","expires_in":3599}"#;
        let token = Token::parse(old).unwrap();
        assert_eq!((&*token.access_token, &*token.refresh_token), ("a", "r"));
        assert!(token.is_good(Timestamp::MAX - SignedDuration::from_hours(1)));
        for bad in ["", "{}", "null", "[1]", r#"{"token_type":"Bearer"}"#] {
            assert_eq!(Token::parse(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
        let odd = Token { expiry: "soon".into(), ..token };
        assert!(!odd.is_good(Timestamp::UNIX_EPOCH), "what can't be read has expired");
    }

    #[test]
    fn an_answer_keeps_the_refresh_token_that_it_does_not_replace() {
        let before = Token::parse(r#"{"access_token":"a","refresh_token":"r"}"#).unwrap();
        let asked_at = at("2026-01-02T03:00:00.5Z");
        let token = Token::answered(br#"{"access_token":"b","expires_in":"3600"}"#, &asked_at, Some(&before)).unwrap();
        assert_eq!((&*token.access_token, &*token.refresh_token, &*token.token_type), ("b", "r", "Bearer"));
        assert_eq!(token.expiry, "2026-01-02T05:00:00.5+01:00");
        let next = br#"{"access_token":"b","refresh_token":"s","token_type":"bearer"}"#;
        assert_eq!(Token::answered(next, &asked_at, Some(&before)).unwrap().refresh_token, "s");
        for none in ["", "{}", "<html>", r#"{"refresh_token":"s"}"#] {
            assert!(Token::answered(none.as_bytes(), &asked_at, Some(&before)).is_none(), "{none}");
        }
    }
}
