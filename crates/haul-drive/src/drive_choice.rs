//! Whether a remote is a shared drive, and which: asked once somebody is logged in, by rclone's questions.

use crate::options;
use futures::FutureExt as _;
use haul_core::{Error, ErrorKind, Result};
use haul_net::Pages;
use haul_oauth::setup::{FollowUpQuestion, NextStep, Question, QuestionContext, RemoteOptions};

pub const FURTHER: FollowUpQuestion = FollowUpQuestion { begin: "teamdrive", step: |context| step(context).boxed() };

const WHETHER: &str = "config_change_team_drive";

async fn step(context: QuestionContext<'_>) -> Result<NextStep> {
    let now = context.options.get("team_drive").filter(|id| !id.is_empty());
    let ask = |question| Ok(NextStep::Ask(question));
    match (context.state, context.answer.trim()) {
        ("teamdrive", _) => match now {
            None => ask(Question::yes_or_no("teamdrive_ok", WHETHER, "Is it a shared drive (Team Drive)?", false)),
            Some(id) => {
                let help = format!("It is the shared drive {id}. Is it to be another one?");
                ask(Question::yes_or_no("teamdrive_change", WHETHER, help, false))
            }
        },
        ("teamdrive_ok" | "teamdrive_change", "true") => {
            let choices = drives(&context).await?;
            if choices.is_empty() {
                let message = "this account has no shared drive";
                return Err(Error::new(ErrorKind::NotFound, "config", message));
            }
            ask(Question::choice("teamdrive_final", "config_team_drive", "Which shared drive?", choices))
        }
        ("teamdrive_ok" | "teamdrive_change", _) => Ok(NextStep::Done(RemoteOptions::new())),
        ("teamdrive_final", id) if !id.is_empty() => {
            let set = [("team_drive", id), ("root_folder_id", "")];
            Ok(NextStep::Done(set.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()))
        }
        (state, _) => {
            let message = format!("{state:?} is no state of a log-in");
            Err(Error::new(ErrorKind::Invalid, "config", message))
        }
    }
}

/// All shared drives of the account: id and name.
async fn drives(context: &QuestionContext<'_>) -> Result<Vec<(String, String)>> {
    let endpoint = options::endpoint(context.options)?;
    let (mut found, mut page, mut pages) = (Vec::new(), String::new(), Pages::default());
    loop {
        let answer = context.get(&format!("{endpoint}/drive/v3/drives?pageSize=100{page}")).await?;
        let broken = || Error::new(ErrorKind::Io, "config", "the service's answer names no shared drives");
        for drive in answer["drives"].as_array().ok_or_else(broken)? {
            let of = |name: &str| drive[name].as_str().unwrap_or_default().to_owned();
            pages.is_new(&of("id"));
            found.push((of("id"), of("name")));
        }
        match answer["nextPageToken"].as_str() {
            Some(token) if !token.is_empty() => {
                pages.next(token).map_err(|fault| fault.error("config"))?;
                page = format!("&pageToken={}", haul_store::web::encoded(token.as_bytes()));
            }
            _ => return Ok(found),
        }
    }
}
