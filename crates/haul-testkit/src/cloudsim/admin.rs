//! What is asked of the simulator itself, over HTTP below `/_cloudsim/`. Neither signed nor counted.

use super::{
    answer::Answer, cloud::Cloud, computed_keys, operation::Target, report::json_lines, synthetic::SyntheticContent,
};
use bytes::Bytes;
use hyper::{Method, StatusCode, http::request::Parts};
use serde_json::Value;
use std::{fmt::Write as _, sync::Arc};

/// What all its paths begin with.
pub const PATH: &str = "/_cloudsim/";

/// Answers a request.
pub async fn answer(cloud: &Arc<Cloud>, head: &Parts, body: &[u8]) -> Answer {
    let target = Target::of(&head.uri);
    let words = String::from_utf8_lossy(&target.key).into_owned();
    let words: Vec<&str> = words.split('/').collect();
    let answer = match (&head.method, &words[..]) {
        (&Method::GET, ["report"]) => Ok(text(cloud.report().json().to_string())),
        (&Method::POST, ["reset"]) => {
            cloud.counters.reset();
            Ok(text(String::new()))
        }
        (&Method::GET, ["log"]) => Ok(text(json_lines(&cloud.counters.logged()))),
        (&Method::PUT, ["settings"]) => {
            let bucket = target.bytes("bucket").map(|_| target.text("bucket"));
            changes(body).and_then(|changes| cloud.set(bucket, &changes)).map(|()| text(String::new()))
        }
        (&Method::PUT, ["bucket", name]) if !name.is_empty() => made(body).map(|made| {
            cloud.replace(name, made);
            text(String::new())
        }),
        (&Method::DELETE, ["bucket", name]) => {
            cloud.drop_bucket(name);
            Ok(text(String::new()))
        }
        (&Method::GET, ["bucket", name, "keys"]) => keys(cloud, name),
        (&Method::PUT, ["bucket", name, "make"]) => make_key(cloud, name, &target).await,
        _ => Err(format!("nothing is at {} {}: see docs/cloudsim.md", head.method, head.uri.path())),
    };
    answer.unwrap_or_else(|why| {
        let mut answer = text(why + "\n");
        answer.status = StatusCode::BAD_REQUEST;
        answer
    })
}

fn text(text: String) -> Answer {
    let mut answer = Answer::new(StatusCode::OK);
    answer.pieces.push(super::space::Piece::Bytes(Bytes::from(text)));
    answer
}

fn object(body: &[u8]) -> Result<serde_json::Map<String, Value>, String> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(map)) => Ok(map),
        _ => Err("want a JSON object such as {\"latency\":\"50ms\"}".into()),
    }
}

fn plain(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null => "off".to_owned(),
        other => other.to_string(),
    }
}

fn changes(body: &[u8]) -> Result<Vec<(String, String)>, String> {
    Ok(object(body)?.into_iter().map(|(name, value)| (name, plain(value))).collect())
}

fn made(body: &[u8]) -> Result<Option<SyntheticContent>, String> {
    if body.is_empty() {
        return Ok(None);
    }
    let pairs: Vec<String> =
        object(body)?.into_iter().map(|(name, value)| format!("{name}={}", plain(value))).collect();
    if pairs.is_empty() { Ok(None) } else { SyntheticContent::parse(&pairs.join(",")).map(Some) }
}

fn keys(cloud: &Cloud, name: &str) -> Result<Answer, String> {
    let bucket = cloud.bucket(name).ok_or_else(|| format!("no bucket is called {name:?}"))?;
    let mut lines = String::new();
    for (key, stored) in bucket.space().stored() {
        let crc = stored.crc.map_or_else(|| "?".repeat(16), |crc| format!("{crc:016x}"));
        // Writing to a String can't fail.
        let _ = writeln!(lines, "{} {crc} {}", stored.size, String::from_utf8_lossy(key));
    }
    Ok(text(lines))
}

async fn make_key(cloud: &Arc<Cloud>, name: &str, target: &Target) -> Result<Answer, String> {
    let bucket = cloud.bucket(name).ok_or_else(|| format!("no bucket is called {name:?}"))?;
    let key = target.bytes("key").filter(|key| !key.is_empty()).ok_or("want key=KEY")?.to_vec();
    let number = |name: &str| target.text(name).parse::<u64>().map_err(|_| format!("want {name}=NUMBER"));
    let wanted = computed_keys::ObjectSpec {
        size: number("size")?,
        seed: if target.bytes("seed").is_some() { number("seed")? } else { 0 },
        mtime: target.bytes("mtime").map(|_| target.text("mtime").to_owned()),
        md5: target.text("md5") == "1",
    };
    let stored = if wanted.md5 {
        // It looks at every byte: not on a thread that others' requests wait for.
        tokio::task::spawn_blocking(move || computed_keys::stored(&wanted)).await.map_err(|e| e.to_string())?
    } else {
        computed_keys::stored(&wanted)
    };
    bucket.change().put(&key, stored);
    Ok(text(String::new()))
}
