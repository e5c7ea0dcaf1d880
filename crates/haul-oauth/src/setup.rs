//! The questions of a log-in, as steps: a dialogue asks them one after another, a program gets them one a call. Names of questions and
//! their meaning are rclone's, so that scripts made for it work.

use crate::{Browser, Consent, Provider, Token, blob, login};
use futures::future::BoxFuture;
use haul_core::{Error, ErrorKind, Result};
use haul_net::Http;
use haul_store::body::Pieces;
use serde_json::Value;
use std::collections::BTreeMap;

/// Options of a remote by name.
pub type Options = BTreeMap<String, String>;

/// What comes next.
#[derive(Debug)]
pub enum Step {
    /// Somebody must answer this.
    Ask(Question),
    /// These options are set, and it goes on from this state, without an answer.
    Set(Options, String),
    /// These options are set; none when all stays. Nothing more is asked.
    Done(Options),
}

/// What has to be asked of a service once somebody is logged in: which drive it is, say.
#[derive(Clone, Copy, Debug)]
pub struct Further {
    /// The first state. States of a log-in begin with `*`, those of a service don't.
    pub begin: &'static str,
    /// Does what follows from an answer.
    pub step: for<'a> fn(Asked<'a>) -> BoxFuture<'a, Result<Step>>,
}

/// Where the questions of a service are.
pub struct Asked<'a> {
    /// The remote's options, with the token.
    pub options: &'a Options,
    http: &'a Http<Pieces>,
    /// The state that the answer is to.
    pub state: &'a str,
    /// The answer.
    pub answer: &'a str,
}

impl Asked<'_> {
    /// What the service says at this address.
    ///
    /// Errors: `Unauthenticated` when nobody is logged in; its refusal.
    pub async fn get(&self, url: &str) -> Result<Value> {
        let token = self.options.get("token").and_then(|token| Token::parse(token).ok());
        let none = || Error::new(ErrorKind::Unauthenticated, "config", "nobody is logged in");
        let header = token.and_then(|token| token.header()).ok_or_else(none)?;
        let body = login::get(self.http, url, header).await.map_err(|fault| fault.error("config"))?;
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
    /// What is asked, and how to find the answer.
    pub help: String,
    /// What holds when nothing is answered.
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

/// Shows people what to do while we wait for them.
pub trait Show: Send + Sync {
    /// Opens a page in a browser, or says that it is to be opened.
    fn page(&self, link: &str);

    /// Says that this code is to be typed in on this page, in any browser.
    fn code(&self, page: &str, code: &str);
}

/// The first state.
pub const BEGIN: &str = "*oauth";
const CONFIRM: &str = "*oauth-confirm";
const LOCAL: &str = "*oauth-islocal";
/// State and answer that log in with this machine's browser.
pub const HERE: (&str, &str) = (LOCAL, "true");
const TYPED: &str = "*oauth-authorize";
const CODE: &str = "*oauth-do";
const DEVICE: &str = "*oauth-device";

/// Does what follows from an answer, up to the next question.
///
/// Errors: the service or the person refuses; the state is none of ours.
pub async fn step(
    provider: &'static Provider,
    options: &Options,
    http: &Http<Pieces>,
    show: &dyn Show,
    (state, answer): (&str, &str),
) -> Result<Step> {
    if !state.starts_with('*') {
        let unknown = || Error::new(ErrorKind::Invalid, "config", format!("{state:?} is no state of a log-in"));
        let further = provider.further.as_ref().ok_or_else(unknown)?;
        return (further.step)(Asked { options, http, state, answer }).await;
    }
    let set = |name: &str| options.get(name).is_some_and(|value| !value.is_empty() && value != "false");
    let (state, verifier) = state.split_once(',').unwrap_or((state, ""));
    let mut answer = answer;
    let mut state = state;
    if state == BEGIN {
        if set("token") {
            let help = "There is a token already. Replace it?";
            return Ok(Step::Ask(Question::yes_or_no(CONFIRM, "config_refresh_token", help, true)));
        }
        (state, answer) = (CONFIRM, "true");
    }
    if state == CONFIRM {
        if answer == "false" {
            return Ok(goes_on(provider, Options::new()));
        }
        if set("client_credentials") {
            let token = Consent::new(provider, options)?.own(http).await.map_err(|fault| fault.error("config"))?;
            return Ok(logged_in(provider, &token));
        }
        // Nobody but rclone may ask in rclone's name.
        if !set("client_id") {
            return Ok(typed(provider, options, None));
        }
        let help = "Log in with a web browser on this machine? Answer no on a machine that you reach by ssh.";
        return Ok(Step::Ask(Question::yes_or_no(LOCAL, "config_is_local", help, true)));
    }
    match state {
        LOCAL if answer == "true" => {
            let browser = Browser::expect(Consent::new(provider, options)?).await?;
            show.page(&browser.link());
            let (code, consent) = browser.code().await?;
            let token = consent.exchange(http, &code, true).await.map_err(|fault| fault.error("config"))?;
            Ok(logged_in(provider, &token))
        }
        LOCAL if provider.shows_code => {
            let consent = Consent::new(provider, options)?;
            let help =
                format!("Open this page, log in, and type the code that it shows:\n\n{}\n", consent.page(false)?);
            let state = format!("{CODE},{}", consent.verifier());
            Ok(Step::Ask(Question::open(state, "config_verification_code", help)))
        }
        LOCAL if Consent::new(provider, options)?.has_device_codes() => {
            let help = "Log in with a code that you type in in any browser, on a phone too? Answer no to log in with haul or rclone on another machine.";
            Ok(Step::Ask(Question::yes_or_no(DEVICE, "config_device_code", help, true)))
        }
        DEVICE if answer == "true" => {
            let consent = Consent::new(provider, options)?;
            let code = consent.device(http).await.map_err(|fault| fault.error("config"))?;
            show.code(&code.verification_uri, &code.user_code);
            let token = consent.wait_for_device(http, &code).await.map_err(|fault| fault.error("config"))?;
            Ok(logged_in(provider, &token))
        }
        LOCAL | DEVICE => Ok(typed(provider, options, None)),
        CODE => {
            let consent = Consent::new(provider, options)?.asked_with(verifier);
            let token = consent.exchange(http, answer, false).await.map_err(|fault| fault.error("config"))?;
            Ok(logged_in(provider, &token))
        }
        TYPED => Ok(match given(answer) {
            Ok(options) => goes_on(provider, options),
            Err(error) => typed(provider, options, Some(error.message().to_owned())),
        }),
        other => Err(Error::new(ErrorKind::Invalid, "config", format!("{other:?} is no state of a log-in"))),
    }
}

fn logged_in(provider: &Provider, token: &Token) -> Step {
    goes_on(provider, [("token".to_owned(), token.text())].into())
}

/// The log-in is over: what it set, and what is asked of the service.
fn goes_on(provider: &Provider, set: Options) -> Step {
    match &provider.further {
        Some(further) => Step::Set(set, further.begin.to_owned()),
        None => Step::Done(set),
    }
}

/// What somebody brought from another machine: a token, or options with one.
fn given(text: &str) -> Result<Options> {
    if text.trim_start().starts_with('{') {
        return Token::parse(text).map(|token| [("token".to_owned(), token.text())].into());
    }
    let options = blob::decode(text)?;
    Token::parse(options.get("token").map_or("", |token| token))?;
    Ok(options)
}

fn typed(provider: &Provider, options: &Options, error: Option<String>) -> Step {
    let carried: Options = options
        .iter()
        .filter(|(name, value)| !matches!(&***name, "token" | "type" | "description") && !value.is_empty())
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let word = match blob::encode(&carried) {
        none if none.is_empty() => String::new(),
        word => format!(" \"{word}\""),
    };
    let kind = provider.kind;
    let help = if options.get("client_id").is_some_and(|id| !id.is_empty()) {
        format!(
            "On a machine with a web browser, run one of\n\n  haul authorize \"{kind}\"{word}\n  rclone authorize \"{kind}\"{word}\n\nand paste here what it prints.\n"
        )
    } else {
        format!(
            "Without a client id of your own ({}) only rclone can log in to {}, and renew the token later: it must be installed here too. On a machine with rclone and a web browser, run\n\n  rclone authorize \"{kind}\"{word}\n\nand paste here what it prints.\n",
            provider.own_id, provider.title
        )
    };
    Step::Ask(Question { error, ..Question::open(TYPED, "config_token", help) })
}
