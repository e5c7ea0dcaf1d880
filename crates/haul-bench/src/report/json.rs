//! A bench as JSON: the same as the table and the sentences, in bytes and seconds.

use super::{Findings, sentences};
use crate::{Point, Sweep, SweepEnd, analysis, analysis::Limit};
use serde_json::{Result, Value, json};

/// One JSON object and a line break.
///
/// Errors: none that a bench can have.
pub fn text(found: &Findings) -> Result<String> {
    Ok(serde_json::to_string_pretty(&value(found))? + "\n")
}

/// The object.
pub fn value(found: &Findings) -> Value {
    let sweeps: Vec<Value> = found.measured.sweeps.iter().map(|s| sweep(s, found)).collect();
    let choice = |choice: &analysis::BestSettings| {
        json!({
            "direction": sentences::direction(choice.direction),
            "transfers": choice.transfers,
            "multi_thread_streams": choice.streams,
        })
    };
    let lone = |lone: &analysis::SingleConnection| {
        json!({
            "direction": sentences::direction(lone.direction),
            "seconds_per_file": lone.per_file.map(|time| time.as_secs_f64()),
            "stream_bytes_per_second": lone.stream,
        })
    };
    json!({
        "remote": found.remote,
        "to": found.across.as_ref().map(|across| &across.to),
        "at_once_per_rank": found.across.as_ref().map(|across| across.alone),
        "folder": found.folder,
        "ended_at": found.at,
        "seconds": found.measured.elapsed.as_secs_f64(),
        "bytes_sent": found.measured.sent,
        "bytes_verified": found.measured.verified,
        "throttled": found.measured.throttled,
        "cores": found.cores,
        "sweeps": sweeps,
        "one_at_a_time": found.lone.iter().map(lone).collect::<Vec<_>>(),
        "settings": found.choices.iter().map(choice).collect::<Vec<_>>(),
        "sentences": sentences::sentences(found),
    })
}

fn sweep(sweep: &Sweep, found: &Findings) -> Value {
    let mine = |f: &&analysis::SweepResult| {
        f.direction == sweep.direction && f.size == sweep.size && f.in_parts == sweep.in_parts
    };
    let finding = found.findings.iter().find(mine);
    json!({
        "direction": sentences::direction(sweep.direction),
        "size": sweep.size,
        "in_parts": sweep.in_parts,
        "ended": ended(sweep.ended),
        "knee": finding.map(|f| f.knee.at_once),
        "knee_bytes_per_second": finding.map(|f| f.knee.bytes_per_second),
        "still_rising": finding.map(|f| f.knee.rising),
        "limit": finding.map(|f| limit(f.limit)),
        "points": sweep.points.iter().map(|p| point(sweep, p)).collect::<Vec<_>>(),
        "auto": sweep.auto.as_ref().map(|p| point(sweep, p)),
    })
}

fn point(sweep: &Sweep, point: &Point) -> Value {
    json!({
        "at_once": point.at_once,
        "found": point.found,
        "files": point.files,
        "bytes": point.bytes(),
        "seconds": point.elapsed.as_secs_f64(),
        "bytes_per_second": point.bytes_per_second(),
        "files_per_second": point.files_per_second(),
        "speed_up": analysis::speed_up(sweep, point),
        "efficiency": analysis::efficiency(sweep, point),
        "cores_busy": point.cores,
        "requests": point.requests,
        "throttled": point.throttled,
    })
}

fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::NotReached => "not reached",
        Limit::Cpu { .. } => "cpu",
        Limit::RequestRate { .. } => "request rate",
        Limit::TotalBandwidth { .. } => "total bandwidth",
        Limit::Unclear { .. } => "unclear",
    }
}

fn ended(ended: SweepEnd) -> &'static str {
    match ended {
        SweepEnd::Flat => "flat",
        SweepEnd::Bytes => "bytes",
        SweepEnd::Time => "time",
        SweepEnd::Most => "most",
        SweepEnd::Parts => "parts",
        SweepEnd::Refused => "refused",
    }
}
