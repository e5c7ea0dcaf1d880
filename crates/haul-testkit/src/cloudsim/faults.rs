//! What goes wrong on purpose, and how often.

use super::{delay::Random, operation::Op};
use std::{fmt, str::FromStr};

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Status 500 `InternalError`; nothing was done.
    Error500,
    /// The connection is reset before an answer; nothing was done.
    Reset,
    /// A body that was asked for ends in its middle, the connection with it.
    Cut,
    /// A body that was asked for stops in its middle for a time, then ends as if cut.
    Stall,
    /// A write is done, and its answer tells another ETag.
    WrongEtag,
    /// CompleteMultipartUpload answers 200 with an `<Error>` as body; the upload is still there.
    CompleteError,
    /// A write is done, and the connection is reset instead of the answer.
    LostAnswer,
    /// Status 409, as if another request were at work on the same: `ConditionalRequestConflict` for a write with a condition,
    /// `OperationAborted` for a bucket; nothing was done.
    Conflict,
}

impl Fault {
    /// All, in the order in which they are drawn.
    pub const ALL: [Fault; 8] = [
        Fault::Error500,
        Fault::Reset,
        Fault::Cut,
        Fault::Stall,
        Fault::WrongEtag,
        Fault::CompleteError,
        Fault::LostAnswer,
        Fault::Conflict,
    ];

    /// Its name in settings and reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Error500 => "error500",
            Fault::Reset => "reset",
            Fault::Cut => "cut",
            Fault::Stall => "stall",
            Fault::WrongEtag => "wrong-etag",
            Fault::CompleteError => "complete-error",
            Fault::LostAnswer => "lost-answer",
            Fault::Conflict => "conflict",
        }
    }

    /// The requests that it can happen to.
    fn applies(self, op: Op, conditional: bool) -> bool {
        match self {
            Fault::Error500 | Fault::Reset => true,
            Fault::Cut | Fault::Stall => op == Op::GetObject,
            Fault::WrongEtag => matches!(op, Op::PutObject | Op::UploadPart),
            Fault::CompleteError => op == Op::CompleteMultipartUpload,
            Fault::LostAnswer => !op.reads(),
            Fault::Conflict => match op {
                Op::PutObject | Op::CompleteMultipartUpload => conditional,
                _ => matches!(op, Op::CreateBucket | Op::DeleteBucket),
            },
        }
    }
}

/// How often each happens, of the requests that it can happen to: 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Faults([f64; Fault::ALL.len()]);

impl Faults {
    /// What happens to a request, which may have a condition.
    pub fn draw(&self, op: Op, conditional: bool, random: &Random) -> Option<Fault> {
        let applies = |fault: Fault| fault.applies(op, conditional);
        let likely = Fault::ALL.into_iter().zip(self.0).filter(|(fault, rate)| *rate > 0.0 && applies(*fault));
        likely.into_iter().find(|(_, rate)| random.draw() < *rate).map(|(fault, _)| fault)
    }
}

impl FromStr for Faults {
    type Err = String;

    /// `KIND=RATE[,…]`; empty or `off` for none.
    fn from_str(text: &str) -> Result<Faults, String> {
        let text = if matches!(text, "off" | "none") { "" } else { text };
        let mut faults = Faults::default();
        for pair in text.split(',').filter(|p| !p.trim().is_empty()) {
            let (name, rate) = pair.split_once('=').ok_or_else(|| format!("want KIND=RATE, not {pair:?}"))?;
            let at = Fault::ALL.iter().position(|f| f.name() == name.trim());
            let names = Fault::ALL.map(Fault::name).join(", ");
            let at = at.ok_or_else(|| format!("no fault is called {name:?}: want one of {names}"))?;
            let rate = rate.trim().parse().ok().filter(|r: &f64| (0.0..=1.0).contains(r));
            faults.0[at] = rate.ok_or_else(|| format!("want a rate from 0 to 1 for {name}"))?;
        }
        Ok(faults)
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set: Vec<_> = Fault::ALL.iter().zip(self.0).filter(|(_, rate)| *rate > 0.0).collect();
        for (at, (fault, rate)) in set.into_iter().enumerate() {
            write!(f, "{}{}={rate}", if at > 0 { "," } else { "" }, fault.name())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_read_and_shown() {
        let faults: Faults = "error500=0.01,lost-answer=1".parse().unwrap();
        assert_eq!(faults.to_string(), "error500=0.01,lost-answer=1");
        assert_eq!("".parse(), Ok(Faults::default()));
        assert_eq!("off".parse(), Ok(Faults::default()));
        for bad in ["error500", "error500=2", "error500=-1", "flood=0.1"] {
            assert!(bad.parse::<Faults>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_rate_spoils_about_its_share_and_only_what_it_can() {
        let faults: Faults = "cut=0.1,lost-answer=0.5".parse().unwrap();
        let random = Random::new(5);
        let drawn = |op, fault| (0..10_000).filter(|_| faults.draw(op, true, &random) == Some(fault)).count();
        assert!((800..1_200).contains(&drawn(Op::GetObject, Fault::Cut)));
        assert_eq!(drawn(Op::PutObject, Fault::Cut), 0);
        assert_eq!(drawn(Op::GetObject, Fault::LostAnswer), 0);
        assert!((4_700..5_300).contains(&drawn(Op::DeleteObject, Fault::LostAnswer)));
        let conflict: Faults = "conflict=1".parse().unwrap();
        assert_eq!(conflict.draw(Op::PutObject, true, &random), Some(Fault::Conflict));
        assert_eq!(conflict.draw(Op::PutObject, false, &random), None);
        assert_eq!(conflict.draw(Op::CreateBucket, false, &random), Some(Fault::Conflict));
    }
}
