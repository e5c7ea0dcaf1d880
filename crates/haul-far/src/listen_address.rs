//! Where a far end listens for content over TCP, as the two ends tell each other.

use serde::{Deserialize, Serialize};
use std::{fmt, net::IpAddr};

/// Bytes of a token.
pub const TOKEN: usize = 32;

/// Ports that a far end may listen on: from the first to the last. 0 is any port that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

/// Secret that admits a pipe. Shown nowhere.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token(#[serde(with = "haul_core::wire::raw")] pub Vec<u8>);

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Where a far end listens, and how both ends identify each other there. Sent over ssh only.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listening {
    /// The far end's own address, the one that the near end reached by ssh.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// SHA-256 of the far end's public key, as a SubjectPublicKeyInfo.
    #[serde(with = "haul_core::wire::raw")]
    pub fingerprint: Vec<u8>,
    /// First bytes of the near end.
    pub token: Token,
}

impl Ports {
    /// From the text of the option: `auto`, `50000` or `50000-50100`. `None` for what is none of these.
    pub fn parse(text: &str) -> Option<Ports> {
        if text == "auto" {
            return Some(Ports { first: 0, last: 0 });
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        (first > 0 && first <= last).then_some(Ports { first, last })
    }
}

impl Ports {
    /// Whether a far end may listen there. Any port that is free is none of those that the system's own services have.
    pub fn allow(self, port: u16) -> bool {
        match self.first {
            0 => port >= 1024,
            first => (first..=self.last).contains(&port),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.last) {
            (first, last) if first == last => write!(f, "{first}"),
            (first, last) => write!(f, "{first}-{last}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read_as_people_write_them() {
        for (text, ports) in [
            ("auto", Some((0, 0))),
            ("50000", Some((50000, 50000))),
            ("50000-50100", Some((50000, 50100))),
            ("50100-50000", None),
            ("0", None),
            ("70000", None),
            ("on", None),
        ] {
            assert_eq!(Ports::parse(text), ports.map(|(first, last)| Ports { first, last }), "{text}");
        }
    }

    #[test]
    fn a_far_end_listens_only_where_it_was_asked_to() {
        let range = Ports { first: 50000, last: 50100 };
        assert!(range.allow(50000) && range.allow(50100) && !range.allow(49999) && !range.allow(22));
        let any = Ports { first: 0, last: 0 };
        assert!(any.allow(40000) && !any.allow(22) && !any.allow(0));
    }

    #[test]
    fn a_token_is_shown_nowhere() {
        let token = Token(vec![7; TOKEN]);
        let listening =
            Listening { address: std::net::Ipv4Addr::LOCALHOST.into(), port: 1, fingerprint: vec![1], token };
        assert_eq!(
            format!("{listening:?}"),
            "Listening { address: 127.0.0.1, port: 1, fingerprint: [1], token: Token }"
        );
    }
}
