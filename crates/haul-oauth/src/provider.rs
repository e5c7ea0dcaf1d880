//! Facts about a service's login, as data.

use crate::questions::FollowUpQuestion;
use haul_store::{OptionKind, OptionSpec};
use std::collections::BTreeMap;

/// How to revoke a token at a service.
#[derive(Clone, Copy, Debug)]
pub enum Revoke {
    /// It has no request for it.
    Nowhere,
    /// The refresh token goes to this address in a form (RFC 7009).
    Form(&'static str),
    /// As `Form`, with the client's id and secret.
    FormOfClient(&'static str),
    /// Sending an access token to this address revokes it and its refresh token.
    Bearer(&'static str),
}

/// A service that gives out tokens (RFC 6749).
#[derive(Clone, Copy, Debug)]
pub struct Provider {
    /// The kind of store, as in a config section: `drive`.
    pub kind: &'static str,
    /// As people call it.
    pub title: &'static str,
    /// Where people say yes, unless `auth_url` is set.
    pub auth_url: &'static str,
    /// Where tokens come from, unless `token_url` is set.
    pub token_url: &'static str,
    /// Scopes to request if the section doesn't set them.
    pub scopes: &'static [&'static str],
    /// Where the options of a remote change the addresses or what is asked for.
    pub adapt: Option<Adapt>,
    /// Further parameters of the first request.
    pub extra: &'static [(&'static str, &'static str)],
    /// Where the browser is sent afterwards: what people register with the service.
    pub redirect: &'static str,
    /// The service shows a code to copy to whoever names no place to be sent to: no other machine with haul or rclone is needed.
    pub shows_code: bool,
    /// Where a code to type in elsewhere is asked for (RFC 8628), unless `device_url` says it or the options of a remote change it; empty for
    /// services without.
    pub device_url: &'static str,
    /// It proves that who asks for a token is who asked for the code (RFC 7636).
    pub pkce: bool,
    /// Each refresh token is good once.
    pub rotates: bool,
    /// How a log-in is ended.
    pub revoke: Revoke,
    /// Questions after the login.
    pub further: Option<FollowUpQuestion>,
    /// In one line, where people make a client id of their own.
    pub own_id: &'static str,
}

/// The addresses for a remote with these options.
pub type Adapt = fn(&BTreeMap<String, String>) -> Addresses;

/// Where a log-in goes, and what it asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// Where people say yes.
    pub auth_url: String,
    /// Where tokens come from.
    pub token_url: String,
    /// Where codes to type in elsewhere come from; empty for services without.
    pub device_url: String,
    /// The requested scopes, separated by spaces.
    pub scope: String,
}

impl Provider {
    /// The addresses for a remote with these options.
    pub fn addresses(&self, options: &BTreeMap<String, String>) -> Addresses {
        match self.adapt {
            Some(adapt) => adapt(options),
            None => Addresses {
                auth_url: self.auth_url.to_owned(),
                token_url: self.token_url.to_owned(),
                device_url: self.device_url.to_owned(),
                scope: self.scopes.join(" "),
            },
        }
    }
}

const TEXT: OptionSpec = OptionSpec {
    name: "client_id",
    help: "Client id of your own application, registered with the service. Empty for rclone's, whose tokens only rclone can renew.",
    default: "",
    kind: OptionKind::Text,
    advanced: false,
    secret: false,
    examples: &[],
};

/// The options that all log-ins share; a store puts them first into its own.
pub const OPTIONS: [OptionSpec; 6] = [
    TEXT,
    OptionSpec { name: "client_secret", help: "Client secret of that application.", secret: true, ..TEXT },
    OptionSpec {
        name: "token",
        help: "The token, as JSON. haul config and haul config reconnect write it.",
        advanced: true,
        secret: true,
        ..TEXT
    },
    OptionSpec {
        name: "auth_url",
        help: "Address of the login page. Empty for the service's own.",
        advanced: true,
        ..TEXT
    },
    OptionSpec {
        name: "token_url",
        help: "Address that issues tokens. Empty for the service's own.",
        advanced: true,
        ..TEXT
    },
    OptionSpec {
        name: "client_credentials",
        help: "Log in as the application itself, without a person (RFC 6749, section 4.4).",
        default: "false",
        kind: OptionKind::Bool,
        advanced: true,
        ..TEXT
    },
];
