//! The questions of a log-in, as steps: a dialogue asks them one after another, a program gets them one a call. Names of questions and
//! their meaning are rclone's, so that scripts made for it work.

pub use crate::questions::{FollowUpQuestion, NextStep, Question, QuestionContext, RemoteOptions};
use crate::{Browser, ConsentRequest, Provider, Token, blob};
use haul_core::{Error, ErrorKind, Result};
use haul_net::Http;
use haul_store::body::Pieces;

/// Shows people what to do while we wait for them.
pub trait LoginDisplay: Send + Sync {
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
/// State and answer that have somebody log in on another machine, by no way but rclone's.
pub const ELSEWHERE: (&str, &str) = (DEVICE, "false");
const TYPED: &str = "*oauth-authorize";
const CODE: &str = "*oauth-do";
const DEVICE: &str = "*oauth-device";

/// Does what follows from an answer, up to the next question.
///
/// Errors: the service or the person refuses; the state is none of ours.
pub async fn step(
    provider: &'static Provider,
    options: &RemoteOptions,
    http: &Http<Pieces>,
    show: &dyn LoginDisplay,
    (state, answer): (&str, &str),
) -> Result<NextStep> {
    if !state.starts_with('*') {
        let unknown = || Error::new(ErrorKind::Invalid, "config", format!("{state:?} is no state of a log-in"));
        let further = provider.further.as_ref().ok_or_else(unknown)?;
        return (further.step)(QuestionContext { options, http, state, answer }).await;
    }
    let set = |name: &str| options.get(name).is_some_and(|value| !value.is_empty() && value != "false");
    let (state, verifier) = state.split_once(',').unwrap_or((state, ""));
    let mut answer = answer;
    let mut state = state;
    if state == BEGIN {
        if set("token") {
            let help = "There is a token already. Replace it?";
            return Ok(NextStep::Ask(Question::yes_or_no(CONFIRM, "config_refresh_token", help, true)));
        }
        (state, answer) = (CONFIRM, "true");
    }
    if state == CONFIRM {
        if answer == "false" {
            return Ok(goes_on(provider, RemoteOptions::new()));
        }
        if set("client_credentials") {
            let token =
                ConsentRequest::new(provider, options)?.own(http).await.map_err(|fault| fault.error("config"))?;
            return Ok(logged_in(provider, &token));
        }
        // Nobody but rclone may ask in rclone's name.
        if !set("client_id") {
            return Ok(typed(provider, options, None));
        }
        let help = "Log in with a web browser on this machine? Answer no on a machine that you reach by ssh.";
        return Ok(NextStep::Ask(Question::yes_or_no(LOCAL, "config_is_local", help, true)));
    }
    match state {
        LOCAL if answer == "true" => {
            let browser = Browser::expect(ConsentRequest::new(provider, options)?).await?;
            show.page(&browser.link());
            let (code, consent) = browser.code().await?;
            let token = consent.exchange(http, &code, true).await.map_err(|fault| fault.error("config"))?;
            Ok(logged_in(provider, &token))
        }
        LOCAL if provider.shows_code => {
            let consent = ConsentRequest::new(provider, options)?;
            let help =
                format!("Open this page, log in, and type the code that it shows:\n\n{}\n", consent.page(false)?);
            let state = format!("{CODE},{}", consent.verifier());
            Ok(NextStep::Ask(Question::open(state, "config_verification_code", help)))
        }
        LOCAL if ConsentRequest::new(provider, options)?.has_device_codes() => {
            let help = "Log in with a code that you type in in any browser, on a phone too? Answer no to log in with haul or rclone on another machine.";
            Ok(NextStep::Ask(Question::yes_or_no(DEVICE, "config_device_code", help, true)))
        }
        DEVICE if answer == "true" => {
            let consent = ConsentRequest::new(provider, options)?;
            let code = consent.device(http).await.map_err(|fault| fault.error("config"))?;
            show.code(&code.verification_uri, &code.user_code);
            let token = consent.wait_for_device(http, &code).await.map_err(|fault| fault.error("config"))?;
            Ok(logged_in(provider, &token))
        }
        LOCAL | DEVICE => Ok(typed(provider, options, None)),
        CODE => {
            let consent = ConsentRequest::new(provider, options)?.asked_with(verifier);
            let token = consent.exchange(http, answer, false).await.map_err(|fault| fault.error("config"))?;
            Ok(logged_in(provider, &token))
        }
        TYPED => Ok(match parse_options(answer) {
            Ok(options) => goes_on(provider, options),
            Err(error) => typed(provider, options, Some(error.message().to_owned())),
        }),
        other => Err(Error::new(ErrorKind::Invalid, "config", format!("{other:?} is no state of a log-in"))),
    }
}

fn logged_in(provider: &Provider, token: &Token) -> NextStep {
    goes_on(provider, [("token".to_owned(), token.text())].into())
}

/// The log-in is over: what it set, and what is asked of the service.
fn goes_on(provider: &Provider, set: RemoteOptions) -> NextStep {
    match &provider.further {
        Some(further) => NextStep::Set(set, further.begin.to_owned()),
        None => NextStep::Done(set),
    }
}

/// Parses text from another machine: a token, or options with one.
fn parse_options(text: &str) -> Result<RemoteOptions> {
    if text.trim_start().starts_with('{') {
        return Token::parse(text).map(|token| [("token".to_owned(), token.text())].into());
    }
    let options = blob::decode(text)?;
    Token::parse(options.get("token").map_or("", |token| token))?;
    Ok(options)
}

fn typed(provider: &Provider, options: &RemoteOptions, error: Option<String>) -> NextStep {
    let carried: RemoteOptions = options
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
    NextStep::Ask(Question { error, ..Question::open(TYPED, "config_token", help) })
}
