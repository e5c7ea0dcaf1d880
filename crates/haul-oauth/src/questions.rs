//! Questions before a remote of a service can be used, and the results of their answers.

use crate::{Token, requests};
use futures::future::BoxFuture;
use haul_core::{Error, ErrorKind, Result};
use haul_net::Http;
use haul_store::body::Pieces;
use serde_json::Value;
use std::collections::BTreeMap;

/// Options of a remote by name.
pub type RemoteOptions = BTreeMap<String, String>;

/// The next step.
#[derive(Debug)]
pub enum NextStep {
    /// Somebody must answer this.
    Ask(Question),
    /// These options are set, and it goes on from this state, without an answer.
    Set(RemoteOptions, String),
    /// These options are set; none when all stays. Nothing more is asked.
    Done(RemoteOptions),
}

/// A question to the service after the login: which drive it is, say.
#[derive(Clone, Copy, Debug)]
pub struct FollowUpQuestion {
    /// The first state. States of a log-in begin with `*`, those of a service don't.
    pub begin: &'static str,
    /// Does what follows from an answer.
    pub step: for<'a> fn(QuestionContext<'a>) -> BoxFuture<'a, Result<NextStep>>,
}

/// Where the questions of a service are.
pub struct QuestionContext<'a> {
    /// The remote's options, with the token.
    pub options: &'a RemoteOptions,
    pub(crate) http: &'a Http<Pieces>,
    /// The state that the answer is to.
    pub state: &'a str,
    /// The answer.
    pub answer: &'a str,
}

impl QuestionContext<'_> {
    /// The service's answer at this address.
    ///
    /// Errors: `Unauthenticated` when nobody is logged in; its refusal.
    pub async fn get(&self, url: &str) -> Result<Value> {
        let token = self.options.get("token").and_then(|token| Token::parse(token).ok());
        let none = || Error::new(ErrorKind::Unauthenticated, "config", "nobody is logged in");
        let header = token.and_then(|token| token.header()).ok_or_else(none)?;
        let body = requests::get(self.http, url, header).await.map_err(|fault| fault.error("config"))?;
        let broken = |e| Error::new(ErrorKind::Io, "config", format!("the service's answer can't be read: {e}"));
        serde_json::from_slice(&body).map_err(broken)
    }
}

/// A question.
#[derive(Debug)]
pub struct Question {
    /// Goes back with the answer.
    pub state: String,
    /// Its name: an answer may be given ahead by it.
    pub name: &'static str,
    /// The question, and how to find the answer.
    pub help: String,
    /// The value without an answer.
    pub default: String,
    /// It is answered with `true` or `false`.
    pub is_bool: bool,
    /// It is answered with the first of one of these; the second says what it is. Anything, when there are none.
    pub choices: Vec<(String, String)>,
    /// Why the last answer wouldn't do.
    pub error: Option<String>,
}

impl Question {
    /// One that anything may be answered to.
    pub fn open(state: impl Into<String>, name: &'static str, help: impl Into<String>) -> Question {
        let (state, help) = (state.into(), help.into());
        Question { state, name, help, default: String::new(), is_bool: false, choices: Vec::new(), error: None }
    }

    /// One of yes and no.
    pub fn yes_or_no(state: impl Into<String>, name: &'static str, help: impl Into<String>, default: bool) -> Question {
        Question { is_bool: true, default: default.to_string(), ..Question::open(state, name, help) }
    }

    /// One of these, as a rule the first.
    pub fn choice(
        state: impl Into<String>,
        name: &'static str,
        help: impl Into<String>,
        choices: Vec<(String, String)>,
    ) -> Question {
        let default = choices.first().map(|(value, _)| value.clone()).unwrap_or_default();
        Question { default, choices, ..Question::open(state, name, help) }
    }

    /// Asked again, for this reason.
    pub fn again(self, error: &Error) -> Question {
        Question { error: Some(error.message().to_owned()), ..self }
    }
}
