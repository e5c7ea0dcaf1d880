//! The simulator as a program: arguments in, one line out, then it serves until it is told to end.

use clap::{Arg, ArgAction, Command};
use haul_testkit::cloudsim::{
    Cloudsim, Settings,
    settings::{FLAGS, Flag},
};
use std::{
    io::{Write as _, copy, sink, stdin, stdout},
    process::ExitCode,
    thread,
};
use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

const ABOUT: &str = "An S3 endpoint on this machine that behaves like a cloud";

const MORE: &str = "\
When it accepts connections it prints one line: cloudsim http://127.0.0.1:PORT
Buckets are in the path. The access key is haul-test, the secret key haul-test-secret; requests
without a signature are let through, and with --trusting any signature will do. It ends on SIGINT, SIGTERM, or as
--until-stdin-closes says; everything is gone then.

While it runs (curl; neither signed nor counted):
  GET    /_cloudsim/report                counts of requests, bytes, connections, faults; cost
  POST   /_cloudsim/reset                 zeroes counts and log
  GET    /_cloudsim/log                   requests as JSON lines (with --log)
  PUT    /_cloudsim/settings[?bucket=B]   {\"latency\":\"50ms\",\"fault\":\"error500=0.01\"}: by the names above
  PUT    /_cloudsim/bucket/NAME           makes a bucket anew; body empty or {\"keys\":1000,\"shape\":\"dvc\",\"size\":10}
  DELETE /_cloudsim/bucket/NAME           drops it with all that it holds
  GET    /_cloudsim/bucket/NAME/keys      SIZE CRC64NVME KEY of what was stored
  PUT    /_cloudsim/bucket/NAME/make?key=K&size=N&seed=S[&mtime=SECONDS][&md5=1]
                                          makes a key whose bytes are computed

Examples:
  cloudsim --preset aws-like --bucket data
  cloudsim --latency lognormal:50ms,0.4 --connection-rate 25M --fault error500=0.01,cut=0.01 --bucket b
  cloudsim --keep sizes --bucket big:keys=10000000,shape=dvc,size=1M --log";

fn argument(flag: &'static Flag) -> Arg {
    let arg = Arg::new(flag.name).long(flag.name).help(flag.help);
    match (flag.value, flag.name) {
        ("", _) => arg.action(ArgAction::SetTrue),
        (value, "bucket") => arg.value_name(value).action(ArgAction::Append),
        (value, _) => arg.value_name(value),
    }
}

fn command() -> Command {
    Command::new("cloudsim")
        .about(ABOUT)
        .after_help(MORE)
        .args(FLAGS.iter().map(argument))
        .arg(
            Arg::new("until-stdin-closes")
                .long("until-stdin-closes")
                .help("End when standard input is closed: with the program that started it, however that ends")
                .action(ArgAction::SetTrue),
        )
        .max_term_width(120)
}

fn main() -> ExitCode {
    let matches = command().get_matches();
    let mut settings = Settings::default();
    // The table has the preset first, so that the others override it.
    for flag in FLAGS {
        let set = if flag.value.is_empty() {
            if matches.get_flag(flag.name) { settings.set(flag.name, "true") } else { Ok(()) }
        } else {
            let values = matches.get_many::<String>(flag.name).into_iter().flatten();
            values.into_iter().try_for_each(|value| settings.set(flag.name, value))
        };
        if let Err(why) = set {
            eprintln!("cloudsim: --{why}");
            return ExitCode::from(2);
        }
    }
    match run(settings, matches.get_flag("until-stdin-closes")) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("cloudsim: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(settings: Settings, until_stdin_closes: bool) -> std::io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (mut interrupt, mut terminate) = {
        let _context = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    let server = Cloudsim::start(settings)?;
    println!("cloudsim {}", server.endpoint());
    stdout().flush()?;
    let (closed, closes) = oneshot::channel::<()>();
    if until_stdin_closes {
        thread::spawn(move || {
            // An error means the end of standard input, too.
            let _ = copy(&mut stdin(), &mut sink());
            closed.send(())
        });
    }
    runtime.block_on(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            Ok(()) = closes => {}
        }
    });
    server.stop();
    Ok(())
}
