//! `sbatch`: the script that runs a command as a Slurm job. Pure text: Slurm isn't asked.

use crate::{
    cli::{Parsed, parse},
    colour::Choice,
    context::Context,
    error::{CommandResult, usage},
    print,
};
use anyhow::Result;
use std::ffi::OsString;

/// The job's size, and what it runs.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// Number of nodes
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nodes: u32,
    /// Cores of each node; haul uses all of them
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    cores: u32,
    /// Time limit, as Slurm reads it: 12:00:00, 2-00:00:00
    #[arg(long, value_name = "TIME", default_value = "12:00:00", value_parser = slurm_time)]
    time: String,
    /// Partition of the cluster
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Account to charge
    #[arg(long, value_name = "NAME")]
    account: Option<String>,
    /// Memory of each node, as Slurm reads it: 8G
    #[arg(long, alias = "mem", value_name = "SIZE", default_value = "8G", value_parser = slurm_memory)]
    memory: String,
    /// A haul command and its arguments, without the word haul; or haul-mpi, its command and arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, allow_hyphen_values = true, required = true, num_args = 1..)]
    words: Vec<OsString>,
}

/// Prints the script.
pub async fn run(args: Args, _: &Context) -> Result<CommandResult> {
    let words: Option<Vec<&str>> = args.words.iter().map(|word| word.to_str()).collect();
    let words = words.ok_or_else(|| usage("names that aren't UTF-8 can't be written into a script"))?;
    // As people write it all the same.
    let words = if words.len() > 1 { words.strip_prefix(&["haul"]).unwrap_or(&words) } else { &words };
    let text = script(&args, words, &check(words)?).map_err(usage)?;
    print::text(&text)?;
    Ok(CommandResult::Done)
}

/// A job that waits for hours must not fail for a word. The answer is the command without the flags before it, whether they were typed
/// before its first word or its second.
///
/// Errors: haul has no such command, or the command no such arguments. haul-mpi reads its own.
fn check(words: &[&str]) -> Result<Vec<String>> {
    let as_typed = || words.iter().map(|word| (*word).to_owned()).collect();
    match words {
        ["haul-mpi", ..] => return Ok(as_typed()),
        [flag, ..] if flag.starts_with('-') => {
            return Err(usage(format!(
                "{flag} is no option of haul sbatch: name the command first, and its flags after it"
            )));
        }
        _ => {}
    }
    let line = std::iter::once("haul").chain(words.iter().copied()).map(OsString::from).collect();
    let parsed =
        parse(line, Choice::Never).map_err(|refused| usage(format!("haul {}: {}", words.join(" "), refused.0)))?;
    let Parsed::Run(given) = parsed else { return Ok(as_typed()) };
    let line = given.line.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
    Ok(line.skip_while(|word| word.starts_with('-')).collect())
}

/// A time limit as Slurm reads it: minutes, or days, hours, minutes and seconds.
fn slurm_time(text: &str) -> Result<String, String> {
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days), rest),
        None => (None, text),
    };
    let numbers: Vec<&str> = days.into_iter().chain(rest.split(':')).collect();
    let fits =
        rest.split(':').count() <= 3 && numbers.iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
    match fits {
        true => Ok(text.to_owned()),
        false => Err("Slurm reads 90 (minutes), 12:00:00 or 2-00:00:00".into()),
    }
}

/// An amount of memory as Slurm reads it: megabytes, or a number with a unit.
fn slurm_memory(text: &str) -> Result<String, String> {
    let number = text.strip_suffix(['K', 'M', 'G', 'T']).unwrap_or(text);
    match !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()) {
        true => Ok(text.to_owned()),
        false => Err("Slurm reads 8G, or 8000 for megabytes".into()),
    }
}

/// True for a command that goes on where it was stopped. All others would begin again each time, without end where their time is too
/// short.
fn goes_on(words: &[&str]) -> bool {
    match words {
        ["snapshot", verb, ..] => matches!(*verb, "push" | "pull" | "rm" | "forget" | "gc"),
        ["dvc", verb, ..] => matches!(*verb, "add" | "push" | "pull" | "fetch" | "checkout" | "gc"),
        [verb, ..] => ["copy", "copyto", "sync", "move", "moveto", "delete", "purge", "cleanup", "rmdirs", "resume"]
            .contains(verb),
        [] => false,
    }
}

/// Command to start on `nodes` nodes, as it is typed, and the exit code after which it can be resumed, if it can. `command` is what
/// [`check`] answers.
fn launch(nodes: u32, typed: &[&str], command: &[&str]) -> Result<(String, Option<u8>), String> {
    let typed = typed.iter().map(|word| shell(word)).collect::<Vec<_>>().join(" ");
    match command {
        ["fleet", "work", ..] => Ok((format!("srun haul {typed}"), Some(130))),
        ["dcp", ..] if nodes > 1 => Ok((format!("srun haul-mpi {typed}"), Some(20))),
        // Comparisons aren't kept: queued again it would begin again without end.
        ["haul-mpi", "check", ..] => Ok((format!("srun {typed}"), None)),
        ["haul-mpi", "dcp" | "sync" | "delete", ..] => Ok((format!("srun {typed}"), Some(20))),
        ["haul-mpi", ..] => Err("name the command of haul-mpi: dcp, sync, check or delete".into()),
        ["rsync", ..] if nodes == 1 => Ok((format!("srun haul {typed}"), Some(20))),
        [_, ..] if nodes == 1 => Ok((format!("srun haul {typed}"), goes_on(command).then_some(130))),
        [verb @ ("sync" | "check" | "delete"), ..] => Err(format!(
            "haul {verb} runs on one node: leave --nodes out, name haul-mpi {verb} for file systems that all nodes see, or spread the job \
             with haul fleet (docs/clusters.md)"
        )),
        [verb, ..] => Err(format!(
            "haul {verb} runs on one node: leave --nodes out, or spread the job with haul fleet (docs/clusters.md)"
        )),
        [] => Err("name the command that the job runs".into()),
    }
}

fn script(args: &Args, words: &[&str], command: &[String]) -> Result<String, String> {
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let (line, again) = launch(args.nodes, words, &command)?;
    let mut text = String::from("#!/bin/bash\n");
    let name = command.iter().find(|word| **word != "haul-mpi").copied().unwrap_or_default();
    text.push_str(&format!("#SBATCH --job-name=haul-{name}\n"));
    for (option, value) in [("partition", &args.partition), ("account", &args.account)] {
        if let Some(value) = value {
            text.push_str(&format!("#SBATCH --{option}={value}\n"));
        }
    }
    text.push_str(&format!(
        "#SBATCH --nodes={} --ntasks-per-node=1 --cpus-per-task={}\n#SBATCH --mem={} --time={}\n",
        args.nodes, args.cores, args.memory, args.time
    ));
    text.push_str(match again {
        Some(_) => {
            "# Two minutes before its time is over haul is told, and ends so that it can go on.\n\
             #SBATCH --signal=TERM@120 --requeue --open-mode=append\n\n"
        }
        None => {
            "# Two minutes before its time is over haul is told, and says how far it came.\n\
             #SBATCH --signal=TERM@120 --open-mode=append\n\n"
        }
    });
    text.push_str(&format!(
        "# Slurm hands the number of cores to the job, not to its steps.\n\
         export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK\n\
         # How far it is, in the job's log.\n\
         export HAUL_STATS=5m\n\
         {line}\n"
    ));
    if let Some(again) = again {
        text.push_str(&format!(
            "code=$?\n\
             # It was stopped: the job is queued again, and goes on.\n\
             [ $code = {again} ] && scontrol requeue \"$SLURM_JOB_ID\"\n\
             exit $code\n"
        ));
    }
    Ok(text)
}

/// A word as bash reads it.
fn shell(word: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./:=,@%+".contains(&b);
    match !word.is_empty() && word.bytes().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cant_run_is_refused_before_it_waits_in_a_queue() {
        for words in [
            &["cpy", "a", "b"][..],
            &["copy", "a"],
            &["--mem", "4G", "sync", "a", "b"],
            &["copy", "a", "b", "--colour-of", "x"],
        ] {
            assert!(check(words).is_err(), "{words:?}");
        }
        for words in [&["copy", "a", "b", "-P"][..], &["haul-mpi", "dcp", "a", "b"], &["rsync", "-a", "a", "b"]] {
            assert!(check(words).is_ok(), "{words:?}");
        }
        for (text, fits) in
            [("90", true), ("12:00:00", true), ("2-0", true), ("12h", false), ("1:2:3:4", false), ("", false)]
        {
            assert_eq!(slurm_time(text).is_ok(), fits, "{text}");
        }
        assert!(slurm_memory("8G").is_ok() && slurm_memory("8000").is_ok() && slurm_memory("8GB").is_err());
    }

    #[test]
    fn each_command_is_started_as_it_can_be() {
        let launched = |nodes, words: &[&str]| {
            let command = check(words).unwrap_or_else(|_| words.iter().map(|word| (*word).into()).collect());
            launch(nodes, words, &command.iter().map(String::as_str).collect::<Vec<_>>())
        };
        for (nodes, words, line, again) in [
            // It would copy all again, and to /b/a, as /b is there then.
            (1, &["dcp", "-p", "/a", "/b c"][..], "srun haul dcp -p /a '/b c'", None),
            (1, &["rsync", "-a", "/a", "/b"], "srun haul rsync -a /a /b", Some(20)),
            (1, &["copy", "/a", "/b"], "srun haul copy /a /b", Some(130)),
            (1, &["check", "/a", "/b"], "srun haul check /a /b", None),
            (1, &["snapshot", "push", "/a", "r:b"], "srun haul snapshot push /a r:b", Some(130)),
            (
                1,
                &["snapshot", "--bwlimit", "1M", "push", "a", "r:b"],
                "srun haul snapshot --bwlimit 1M push a r:b",
                Some(130),
            ),
            (1, &["dvc", "-v", "pull"], "srun haul dvc -v pull", Some(130)),
            (1, &["snapshot", "check", "r:b"], "srun haul snapshot check r:b", None),
            (1, &["snapshot", "diff", "r:b", "d"], "srun haul snapshot diff r:b d", None),
            (1, &["dvc", "pull"], "srun haul dvc pull", Some(130)),
            (1, &["dvc", "status", "-c"], "srun haul dvc status -c", None),
            (1, &["fleet", "report", "s3:jobs/x"], "srun haul fleet report s3:jobs/x", None),
            (1, &["haul-mpi", "dcp", "/a", "/b"], "srun haul-mpi dcp /a /b", Some(20)),
            (4, &["dcp", "-p", "/a", "/b"], "srun haul-mpi dcp -p /a /b", Some(20)),
            (4, &["haul-mpi", "sync", "-D", "/a", "/b"], "srun haul-mpi sync -D /a /b", Some(20)),
            (1, &["haul-mpi", "delete", "/a"], "srun haul-mpi delete /a", Some(20)),
            (4, &["haul-mpi", "check", "/a", "/b"], "srun haul-mpi check /a /b", None),
            (8, &["fleet", "work", "s3:jobs/x"], "srun haul fleet work s3:jobs/x", Some(130)),
        ] {
            assert_eq!(launched(nodes, words), Ok((line.into(), again)));
        }
        assert_eq!(
            launched(2, &["sync", "a", "b"]).unwrap_err(),
            "haul sync runs on one node: leave --nodes out, name haul-mpi sync for file systems that all nodes see, or spread the job with \
             haul fleet (docs/clusters.md)"
        );
        assert_eq!(
            launched(2, &["haul-mpi", "copy"]).unwrap_err(),
            "name the command of haul-mpi: dcp, sync, check or delete"
        );
        assert_eq!(
            launched(2, &["copy", "a", "b"]).unwrap_err(),
            "haul copy runs on one node: leave --nodes out, or spread the job with haul fleet (docs/clusters.md)"
        );
    }
}
