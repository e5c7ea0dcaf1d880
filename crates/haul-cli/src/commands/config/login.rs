//! Logging in to services: the questions of `config`, asked of a person or of a program.

use super::{
    put,
    show::{known, pretty},
};
use crate::{
    context::Context,
    error::{CommandResult, usage},
    print, prompt,
};
use anyhow::{Result, anyhow, bail};
use haul_core::{Error, ErrorKind, text::wrap};
use haul_net::Http;
use haul_oauth::{
    Provider,
    setup::{self, NextStep, Question, RemoteOptions},
};
use haul_remotes::{config::Config, registry};
use haul_store::body::Pieces;
use serde_json::{Value, json};
use std::{
    io::{self, IsTerminal as _},
    process::{Command, Stdio},
};

/// Width of what is asked.
const COLUMNS: usize = 80;

/// A remote that people log in to.
#[derive(clap::Args, Debug)]
pub struct RemoteArgs {
    /// The remote
    #[arg(value_name = "REMOTE:")]
    name: String,
}

/// A remote, and how it is told whose it is.
#[derive(clap::Args, Debug)]
pub struct UserArgs {
    /// The remote
    #[arg(value_name = "REMOTE:")]
    name: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// How a program asks for one question at a time.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Machine {
    /// Ask nothing: print the next question as JSON
    #[arg(long)]
    non_interactive: bool,
    /// Continue with the answer in --state and --result
    #[arg(long, requires = "state")]
    r#continue: bool,
    /// The state that came with the question
    #[arg(long, value_name = "TEXT")]
    pub state: Option<String>,
    /// The answer to the question
    #[arg(long, value_name = "TEXT")]
    pub result: Option<String>,
    /// With --non-interactive: ask for every option too
    #[arg(long)]
    pub all: bool,
}

impl Machine {
    /// True when no question was answered yet.
    pub fn begins(&self) -> bool {
        self.state.is_none()
    }

    /// As it is once all options were asked: the log-in begins.
    pub fn log_in(&self) -> Machine {
        Machine { state: None, result: None, ..self.clone() }
    }

    /// True when a program asks.
    pub fn is_used(&self) -> bool {
        self.non_interactive || self.r#continue
    }
}

/// Shows people the page to open.
pub struct TerminalLogin {
    /// Opens it in a browser, too.
    pub opens: bool,
    /// Says how to go on where there is no browser.
    pub advises: bool,
}

impl setup::LoginDisplay for TerminalLogin {
    fn page(&self, link: &str) {
        let opener = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        let mut command = Command::new(opener);
        command.arg(link).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let opened = self.opens && command.spawn().is_ok();
        let how = if opened { "If no browser opens, open this page:" } else { "Open this page in a browser:" };
        eprintln!("{how} {link}\nWaiting for you to log in …");
        if self.advises {
            eprintln!(
                "No browser on this machine? Stop this with Ctrl-C, and add config_is_local=false; or answer no to the first question of haul config reconnect REMOTE:."
            );
        }
    }

    fn code(&self, page: &str, code: &str) {
        eprintln!("Open {page} in any browser, and type in {code}\nWaiting for you to log in …");
    }
}

/// The login provider of a type.
///
/// Errors: there is none, or no such type.
pub fn provider(kind: &str) -> Result<&'static Provider> {
    registry::kind(kind)?;
    registry::login(kind)
        .ok_or_else(|| usage(format!("nobody logs in to a remote of type {kind}: it has keys, or none")))
}

/// A client for requests of a log-in.
pub fn client(context: &Context) -> Result<Http<Pieces>> {
    Ok(Http::new(&context.session.net(), true)?)
}

/// Writes down what a step of a log-in has set.
pub type Keep<'a> = dyn FnMut(&RemoteOptions) -> Result<()> + Send + 'a;

/// How the questions of a dialogue are answered.
#[derive(Clone, Copy)]
pub struct Answers<'a> {
    /// Answers by name.
    pub given: &'a RemoteOptions,
    /// Takes the default where nothing is given and there is one.
    pub defaults: bool,
}

/// Asks all questions of a log-in, or takes what is given or the default. What a step sets goes to `keep` at once: what is asked after it
/// may fail.
pub async fn dialogue(
    provider: &'static Provider,
    options: &RemoteOptions,
    answers: Answers<'_>,
    context: &Context,
    keep: &mut Keep<'_>,
) -> Result<()> {
    let http = client(context)?;
    let mut dialogue = Dialogue::new(provider, options, (setup::BEGIN, ""), !may_open_browser(context));
    // Nobody should wait for a browser that can't come, if a person can be asked.
    let elsewhere = dialogue.advises && std::io::stdin().is_terminal() && !context.flags.config.auto_confirm;
    while let Some(mut question) = dialogue.next(&http, keep).await? {
        let first = question.error.is_none();
        let asks = elsewhere && question.state == setup::HERE.0;
        if asks {
            question.default = "false".into();
        }
        let answer = match answers.given.get(question.name) {
            Some(answer) if first => answer.clone(),
            _ if answers.defaults && first && !asks && !question.default.is_empty() => question.default.clone(),
            _ => ask(&question)?,
        };
        dialogue.answer(question.state, answer);
    }
    Ok(())
}

/// False on a machine without a display, and for who came by ssh.
fn may_open_browser(context: &Context) -> bool {
    let set = |name: &str| context.session.environment().get(name).is_some_and(|value| !value.is_empty());
    let display = cfg!(target_os = "macos") || set("DISPLAY") || set("WAYLAND_DISPLAY");
    display && !set("SSH_CONNECTION")
}

/// The questions of a log-in, with what it has set so far.
struct Dialogue {
    provider: &'static Provider,
    options: RemoteOptions,
    /// People are told how to log in without a browser here.
    advises: bool,
    state: String,
    answer: String,
}

impl Dialogue {
    fn new(
        provider: &'static Provider,
        options: &RemoteOptions,
        (state, answer): (&str, &str),
        advises: bool,
    ) -> Dialogue {
        let options = options.clone();
        Dialogue { provider, options, advises, state: state.into(), answer: answer.into() }
    }

    fn answer(&mut self, state: String, answer: String) {
        (self.state, self.answer) = (state, answer);
    }

    /// The next question; `None` when nothing more is asked.
    async fn next(&mut self, http: &Http<Pieces>, keep: &mut Keep<'_>) -> Result<Option<Question>> {
        loop {
            let (at, show) = ((&*self.state, &*self.answer), TerminalLogin { opens: true, advises: self.advises });
            let (set, next) = match setup::step(self.provider, &self.options, http, &show, at).await? {
                NextStep::Ask(question) => return Ok(Some(question)),
                NextStep::Set(set, next) => (set, Some(next)),
                NextStep::Done(set) => (set, None),
            };
            if !set.is_empty() {
                keep(&set)?;
            }
            self.options.extend(set);
            match next {
                Some(next) => self.answer(next, String::new()),
                None => return Ok(None),
            }
        }
    }
}

fn ask(question: &Question) -> Result<String> {
    // Commands are to be copied as they are.
    let wrapped = |line: &str| if line.starts_with(' ') { line.to_owned() } else { wrap(line, COLUMNS, "") };
    let help: Vec<String> = question.help.trim_end().lines().map(wrapped).collect();
    print::line(&format!("\n{}", help.join("\n")))?;
    if let Some(error) = &question.error {
        print::line(&format!("That didn't do: {}.", error.trim_end_matches('.')))?;
    }
    let width = question.choices.len().to_string().len();
    for (n, (value, help)) in question.choices.iter().enumerate() {
        print::line(&format!("{:>width$}  {help} ({value})", n + 1))?;
    }
    let hint = match (question.is_bool, &*question.default) {
        (true, "false") => " [y/N]",
        (true, _) => " [Y/n]",
        _ => "",
    };
    let chosen = |typed: &str| {
        let by_number = typed.parse::<usize>().ok().and_then(|n| question.choices.get(n.checked_sub(1)?));
        question.choices.iter().find(|(value, _)| value == typed).or(by_number).map(|(value, _)| value.clone())
    };
    loop {
        let line =
            prompt::line(&format!("{}{hint}> ", question.name), question.name == "config_token").map_err(|error| {
                match error.kind() {
                    io::ErrorKind::Interrupted => {
                        Error::new(ErrorKind::Cancelled, "log in", "stopped at the question").into()
                    }
                    _ => anyhow::Error::from(error).context("can't read the answer"),
                }
            })?;
        let Some(line) = line else {
            bail!("the input ended before the log-in was done");
        };
        match (line.trim(), question.is_bool) {
            ("", _) if !question.default.is_empty() => return Ok(question.default.clone()),
            ("", _) => {}
            ("y" | "Y" | "yes" | "true", true) => return Ok("true".into()),
            ("n" | "N" | "no" | "false", true) => return Ok("false".into()),
            (_, true) => print::line("Answer y or n.")?,
            (answer, false) if question.choices.is_empty() => return Ok(answer.into()),
            (answer, false) => match chosen(answer) {
                Some(value) => return Ok(value),
                None => print::line(&format!("Answer with a number from 1 to {}.", question.choices.len()))?,
            },
        }
    }
}

/// The next question of a log-in for a program, as rclone's `config create --non-interactive` has it; `None` at the end.
pub async fn answered(
    provider: &'static Provider,
    options: &RemoteOptions,
    given: &RemoteOptions,
    context: &Context,
    machine: &Machine,
    keep: &mut Keep<'_>,
) -> Result<Option<Value>> {
    let http = client(context)?;
    let begin = (machine.state.as_deref().unwrap_or(setup::BEGIN), machine.result.as_deref().unwrap_or_default());
    let mut dialogue = Dialogue::new(provider, options, elsewhere(begin), false);
    while let Some(question) = dialogue.next(&http, keep).await? {
        match given.get(question.name) {
            Some(known) if question.error.is_none() => {
                let (state, known) = elsewhere((&question.state, known));
                dialogue.answer(state.to_owned(), known.to_owned());
            }
            _ => return Ok(Some(as_json(&question))),
        }
    }
    Ok(None)
}

/// The question for another program: rclone's, about a machine without a browser, for the output of `authorize` on another. haul's further
/// choices for people would answer another question, or wait for somebody who sees nothing.
fn elsewhere<'a>(at: (&'a str, &'a str)) -> (&'a str, &'a str) {
    if at == (setup::HERE.0, "false") { setup::ELSEWHERE } else { at }
}

fn as_json(question: &Question) -> Value {
    let kind = if question.is_bool { "bool" } else { "string" };
    let example = |(value, help): (&str, &str)| json!({ "Value": value, "Help": help });
    let examples: Vec<Value> = match question.is_bool {
        true => [("true", "Yes"), ("false", "No")].into_iter().map(example).collect(),
        false => question.choices.iter().map(|(value, help)| example((value, help))).collect(),
    };
    let default = if question.is_bool { json!(question.default == "true") } else { json!(question.default) };
    let mut option = json!({
        "Name": question.name,
        "FieldName": "",
        "Help": question.help,
        "Default": default,
        "Value": null,
        "Hide": 0,
        "Required": question.default.is_empty(),
        "IsPassword": false,
        "NoPrefix": false,
        "Advanced": false,
        "Exclusive": question.is_bool || !question.choices.is_empty(),
        "Sensitive": false,
        "DefaultStr": question.default,
        "ValueStr": question.default,
        "Type": kind,
    });
    if !examples.is_empty() {
        option["Examples"] = examples.into();
    }
    json!({
        "State": question.state,
        "Option": option,
        "Error": question.error.clone().unwrap_or_default(),
        "Result": "",
    })
}

/// Says to a program that nothing more is asked.
pub fn no_more() -> Result<()> {
    print::line(&pretty(&json!({ "State": "", "Option": null, "Error": "", "Result": "" }))?)
}

/// The options of a remote.
pub fn options_of(config: &Config, name: &str) -> RemoteOptions {
    config.options(name).into_iter().collect()
}

/// Writes what a step of a log-in has set into the section.
pub fn kept(config: &mut Config, name: &str, set: &RemoteOptions) -> Result<()> {
    config.change(name, |ini| set.iter().try_for_each(|(key, value)| put(ini, name, key, value)))?;
    Ok(())
}

/// Logs in anew.
pub async fn reconnect(args: RemoteArgs, context: &Context) -> Result<CommandResult> {
    let mut config = context.session.load_config()?;
    let name = known(&config, args.name.trim_end_matches(':'))?.to_owned();
    let provider = provider(&config.get(&name, "type").unwrap_or_default())?;
    let auto = context.flags.config.auto_confirm;
    let (options, given) = (options_of(&config, &name), RemoteOptions::new());
    let answers = Answers { given: &given, defaults: auto };
    // Only at the end: a token of another account beside the old drive would lead the next sync to the wrong place.
    let mut all = RemoteOptions::new();
    let keep = &mut |set: &RemoteOptions| {
        all.extend(set.clone());
        Ok(())
    };
    dialogue(provider, &options, answers, context, keep).await?;
    if all.is_empty() {
        print::line("Nothing was changed.")?;
    } else {
        kept(&mut config, &name, &all)?;
        print::line(&format!("Logged in to {}.", provider.title))?;
    }
    Ok(CommandResult::Done)
}

/// Says whose account it is.
pub async fn userinfo(args: UserArgs, context: &Context) -> Result<CommandResult> {
    let name = args.name.trim_end_matches(':').to_owned();
    let store = context.open(format!("{name}:").as_ref())?;
    let untold = || anyhow!("{name}: the service doesn't tell whose account it is");
    let facts = store.admin().ok_or_else(untold)?.user().await.map_err(|error| match error.kind() {
        ErrorKind::Unsupported => untold(),
        _ => error.into(),
    })?;
    if args.json {
        let facts = facts.into_iter().map(|(word, fact)| (word.to_owned(), fact.into())).collect();
        print::line(&pretty(&Value::Object(facts))?)?;
        return Ok(CommandResult::Done);
    }
    let width = facts.iter().map(|(word, _)| word.len()).max().unwrap_or(0);
    facts.iter().try_for_each(|(word, fact)| print::line(&format!("{word:>width$}: {fact}")))?;
    Ok(CommandResult::Done)
}

/// Ends the access at the service, where that can be asked for, and forgets the token.
pub async fn disconnect(args: RemoteArgs, context: &Context) -> Result<CommandResult> {
    let mut config = context.session.load_config()?;
    let name = known(&config, args.name.trim_end_matches(':'))?.to_owned();
    let provider = provider(&config.get(&name, "type").unwrap_or_default())?;
    let options = options_of(&config, &name);
    if options.get("token").is_none_or(String::is_empty) {
        bail!("{name}: nobody is logged in");
    }
    let title = provider.title;
    let ended = haul_oauth::revoke(provider, &options, &client(context)?).await.map_err(|error| {
        anyhow!(
            "{name}: {title} didn't end the access ({}), so nothing was changed. To forget the token here alone: haul config unset {name} token",
            error.message()
        )
    })?;
    config.change(&name, |ini| anyhow::Ok(ini.remove(&name, "token")))?;
    print::line(&match ended {
        true => format!("{title} has ended the access, and the token is forgotten here."),
        false => format!(
            "The token is forgotten here. To end the access itself, remove the application in the settings of your account at {title}."
        ),
    })?;
    Ok(CommandResult::Done)
}
