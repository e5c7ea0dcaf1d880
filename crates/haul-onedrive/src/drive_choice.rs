//! Which drive a remote is: asked once somebody is logged in, by rclone's questions, and written down as rclone wants it.

use crate::options;
use futures::FutureExt as _;
use haul_core::{Error, ErrorKind, Result};
use haul_oauth::setup::{FollowUpQuestion, NextStep, Question, QuestionContext, RemoteOptions};
use haul_store::web::encoded;
use serde_json::Value;

pub const FURTHER: FollowUpQuestion = FollowUpQuestion { begin: TYPE, step: |context| step(context).boxed() };

const TYPE: &str = "choose_type";
const CHOSEN: &str = "driveid_final";
const FINAL: &str = "driveid_final_end";

async fn step(context: QuestionContext<'_>) -> Result<NextStep> {
    let (state, carried) = context.state.split_once(',').unwrap_or((context.state, ""));
    let answer = context.answer.trim();
    let question = match (state, answer) {
        (TYPE, _) => kind(),
        ("choose_type_done", "onedrive") => drives(&context, &["/me/drives", "/me/drive"]).await?,
        ("choose_type_done", "sharepoint") => drives(&context, &["/sites/root/drives"]).await?,
        ("choose_type_done", "url") => {
            let help = "Address of the site, or its name: https://contoso.sharepoint.com/sites/mysite, or mysite";
            Question::open("url_end", "config_site_url", help)
        }
        ("choose_type_done", "search") => Question::open("search_end", "config_search_term", "What to search for"),
        ("choose_type_done", "driveid") => Question::open("driveid_end", "config_driveid_fixed", "Id of the drive"),
        ("choose_type_done", "siteid") => Question::open("siteid_end", "config_siteid", "Id of the site"),
        ("choose_type_done", "path") => {
            Question::open("path_end", "config_sharepoint_url", "Path of the site below the server: /teams/hr")
        }
        ("choose_type_done", other) => kind().again(&invalid(format!("{other:?} is none of them"))),
        ("url_end", site) => of_site(&context, &site_path(site)).await?,
        ("path_end", path) => of_site(&context, &format!("root:/{}", escaped(path.trim_start_matches('/')))).await?,
        ("siteid_end" | "search_sites", id) => drives(&context, &[&format!("/sites/{}/drives", escaped(id))]).await?,
        ("search_end", word) => found(&context, word).await?,
        (CHOSEN | "driveid_end", id) => confirmed(&context, id).await?,
        (FINAL, "true") => {
            let (kind, id) = carried.split_once(',').unwrap_or_default();
            let set = [("drive_id", id), ("drive_type", kind)].map(|(name, value)| (name.to_owned(), value.to_owned()));
            return Ok(NextStep::Done(RemoteOptions::from(set)));
        }
        (FINAL, _) => kind(),
        _ => return Err(invalid(format!("{state:?} is no state of a log-in"))),
    };
    Ok(NextStep::Ask(question))
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::Invalid, "config", message)
}

fn kind() -> Question {
    let choices = [
        ("onedrive", "OneDrive, personal or of an organization"),
        ("sharepoint", "SharePoint: the root site"),
        ("url", "SharePoint: a site by its address or name"),
        ("search", "SharePoint: search for a site"),
        ("driveid", "A drive by its id"),
        ("siteid", "SharePoint: a site by its id"),
        ("path", "SharePoint: a site by its path"),
    ];
    let choices = choices.map(|(value, help)| (value.to_owned(), help.to_owned())).to_vec();
    Question::choice("choose_type_done", "config_type", "What is it?", choices)
}

/// As it stands in an address; the commas of ids stay.
fn escaped(path: &str) -> String {
    encoded(path.as_bytes()).replace("%2C", ",")
}

/// Where Graph has a site that was named by its address, or by its name alone.
fn site_path(typed: &str) -> String {
    match typed.strip_prefix("https://").map(|rest| rest.split_once('/').unwrap_or((rest, ""))) {
        Some((host, path)) => format!("{host}:/{}", escaped(path.trim_matches('/'))),
        None => format!("root:/sites/{}", escaped(typed.trim_matches('/'))),
    }
}

async fn get(context: &QuestionContext<'_>, path: &str) -> Result<Value> {
    context.get(&format!("{}{path}", options::endpoint(context.options)?)).await
}

/// Asks which of the drives it is that the service has at these addresses; another that is there besides doesn't matter.
async fn drives(context: &QuestionContext<'_>, paths: &[&str]) -> Result<Question> {
    let mut choices: Vec<(String, String)> = Vec::new();
    let mut refused = None;
    for path in paths {
        let answer = match get(context, path).await {
            Ok(answer) => answer,
            Err(error) => {
                refused = Some(error);
                continue;
            }
        };
        let several = answer["value"].as_array();
        for drive in several.map_or(std::slice::from_ref(&answer), |all| &all[..]) {
            let of = |name: &str| drive[name].as_str().unwrap_or_default();
            let (id, text) = (of("id").to_owned(), format!("{} ({})", of("name"), of("driveType")));
            if !id.is_empty() && choices.iter().all(|(known, _)| *known != id) {
                choices.push((id, text));
            }
        }
    }
    if choices.is_empty() {
        let none = refused.unwrap_or_else(|| invalid("there is no drive".into()));
        return Ok(kind().again(&none));
    }
    Ok(Question::choice(CHOSEN, "config_driveid", "Which drive?", choices))
}

async fn of_site(context: &QuestionContext<'_>, site: &str) -> Result<Question> {
    let answer = match get(context, &format!("/sites/{site}")).await {
        Ok(answer) => answer,
        Err(error) => return Ok(kind().again(&error)),
    };
    match answer["id"].as_str() {
        Some(id) => drives(context, &[&format!("/sites/{}/drives", escaped(id))]).await,
        None => Ok(kind().again(&invalid("the service doesn't tell the site's id".into()))),
    }
}

async fn found(context: &QuestionContext<'_>, word: &str) -> Result<Question> {
    let answer = match get(context, &format!("/sites?search={}", encoded(word.as_bytes()))).await {
        Ok(answer) => answer,
        Err(error) => return Ok(kind().again(&error)),
    };
    let sites = answer["value"].as_array().map_or(&[][..], |sites| &sites[..]);
    let of = |site: &Value, name: &str| site[name].as_str().unwrap_or_default().to_owned();
    let choices: Vec<(String, String)> = sites
        .iter()
        .map(|site| (of(site, "id"), format!("{} ({})", of(site, "displayName"), of(site, "webUrl"))))
        .filter(|(id, _)| !id.is_empty())
        .collect();
    if choices.is_empty() {
        return Ok(kind().again(&invalid(format!("no site is found by {word:?}"))));
    }
    Ok(Question::choice("search_sites", "config_site", "Which site?", choices))
}

/// Shows the drive, so that nobody has to know its kind by heart.
async fn confirmed(context: &QuestionContext<'_>, id: &str) -> Result<Question> {
    let root = match get(context, &format!("/drives/{}/root", escaped(id))).await {
        Ok(root) => root,
        Err(error) => return Ok(kind().again(&error)),
    };
    let drive_type = root["parentReference"]["driveType"].as_str().unwrap_or_default();
    if drive_type.is_empty() {
        return Ok(kind().again(&invalid("the service doesn't tell what kind of drive it is".into())));
    }
    let of = |name: &str| root[name].as_str().unwrap_or_default();
    let help = format!("Drive {:?} of type {drive_type}, {}\nIs that right?", of("name"), of("webUrl"));
    Ok(Question::yes_or_no(format!("{FINAL},{drive_type},{id}"), "config_drive_ok", help, true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_by_address_and_by_name() {
        assert_eq!(site_path("mysite"), "root:/sites/mysite");
        assert_eq!(site_path("https://contoso.sharepoint.com/teams/a b/"), "contoso.sharepoint.com:/teams/a%20b");
    }
}
