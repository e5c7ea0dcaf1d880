//! Options of mpiFileUtils that are not supported, and what to do instead. Pure.

use clap::error::{ContextKind, ContextValue, Error, ErrorKind};

/// Command, option and its short form, what to do.
type RefusedOption = (&'static str, &'static str, &'static str, &'static str);

const NOATIME: &str = "mount the source with noatime, where access times matter";
const DAOS: &str = "copy from a mount of it (dfuse)";
const USER: &str = "start all ranks as that user instead (srun --uid, sudo -u)";
const GROUP: &str = "start all ranks with that group instead (srun --gid, sg)";
const FOUND: &str = "each difference is printed as a line; --log FILE keeps what each rank did";
const FILTER: &str = "whole trees are deleted: haul delete has filters, on one node";

/// All of them.
pub const REFUSED: &[RefusedOption] = &[
    ("dcp", "--open-noatime", "", NOATIME),
    ("dcp", "--uid", "-U", USER),
    ("dcp", "--gid", "-G", GROUP),
    ("dcp", "--daos-api", "", DAOS),
    ("dcp", "--daos-preserve", "", DAOS),
    ("sync", "--open-noatime", "", NOATIME),
    ("sync", "--daos-api", "", DAOS),
    ("check", "--output", "-o", FOUND),
    ("check", "--text", "-t", FOUND),
    ("check", "--base", "-b", "the counts are printed in any case"),
    ("check", "--direct", "-s", "files are read through the page cache"),
    ("check", "--open-noatime", "", NOATIME),
    ("check", "--daos-api", "", DAOS),
    ("delete", "--input", "-i", "name the trees on the command line"),
    ("delete", "--output", "-o", "--verbose prints each name, and --log FILE keeps them"),
    ("delete", "--text", "-t", "--verbose prints each name, and --log FILE keeps them"),
    ("delete", "--exclude", "", FILTER),
    ("delete", "--match", "", FILTER),
    ("delete", "--name", "", FILTER),
    ("delete", "--traceless", "-T", "times of directories above change as with rm: haul touch sets one"),
];

/// The line about an option of theirs that was typed after this command, if it is one.
pub fn line(command: &str, error: &Error) -> Option<String> {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(typed))) =
        (error.kind(), error.get(ContextKind::InvalidArg))
    else {
        return None;
    };
    let typed = typed.split('=').next()?;
    let mut all = REFUSED.iter().filter(|(of, ..)| *of == command);
    let (_, long, short, why) = all.find(|(_, long, short, _)| typed == *long || typed == *short)?;
    let both = if short.is_empty() { String::new() } else { format!(" ({short})") };
    Some(format!("haul-mpi {command}: {long}{both} isn't there: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn each_option_that_is_not_there_says_what_to_do() {
        let refusal = |command: &str, option: &str| {
            let error = crate::args::Cli::try_parse_from(["haul-mpi", command, option, "a", "b"]).unwrap_err();
            line(command, &error)
        };
        for (command, long, short, why) in REFUSED {
            for option in [*long, *short].iter().filter(|option| !option.is_empty()) {
                assert!(refusal(command, option).is_some_and(|line| line.ends_with(why)), "{command} {option}");
            }
        }
        assert_eq!(
            refusal("dcp", "--uid=7").as_deref(),
            Some("haul-mpi dcp: --uid (-U) isn't there: start all ranks as that user instead (srun --uid, sudo -u)")
        );
        assert_eq!(refusal("dcp", "--unknown"), None);
        assert_eq!(refusal("sync", "--uid"), None, "dsync hasn't got it either");
    }
}
