//! The options of a store: those of the way to the host, and what is SFTP's own. Names and meanings are rclone's.

use haul_core::{
    Algo, Error, ErrorKind, Result,
    units::{Size, parse_size},
};
use haul_ssh::{
    Remote,
    options::{HOST, flag, number, text, value},
};
use haul_store::{OpenRequest, OptionKind, OptionSpec, joined};
use std::collections::BTreeMap;

/// Every option, in the order in which they are asked for.
pub const OPTIONS: &[OptionSpec] = &joined::<40>(
    &HOST,
    &[
        text("subsystem", "Name of the server's SFTP subsystem. Blank means sftp.", true),
        text(
            "server_command",
            "Command that runs an SFTP server on the host, such as `sudo /usr/lib/openssh/sftp-server`.",
            true,
        ),
        OptionSpec {
            name: "chunk_size",
            help: "Maximum bytes per request. Blank means the server's own limit.",
            default: "",
            kind: OptionKind::Size,
            advanced: true,
            secret: false,
            examples: &[],
        },
        number(
            "connections",
            "Maximum number of sessions at once; 0 means as many as there is work for and the server accepts.",
            "0",
        ),
        flag("set_modtime", "Set the times of files.", "true"),
        flag("skip_links", "Leave symbolic links out instead of following them.", "false"),
        flag("copy_is_hardlink", "Make copies inside the server hard links to the same file.", "false"),
        flag("disable_hashcheck", "Don't ask the host for hashes.", "false"),
        text(
            "hashes",
            "Hashes to ask the host for, separated by commas. Blank means those that it has commands for.",
            true,
        ),
        text(
            "md5sum_command",
            "Command on the host that prints the MD5 of the file given as its last argument; none for no command.",
            true,
        ),
        text("sha1sum_command", "Like md5sum_command, for SHA-1.", true),
        text("sha256sum_command", "Like md5sum_command, for SHA-256.", true),
        text("crc32sum_command", "Like md5sum_command, for CRC-32.", true),
        text("blake3sum_command", "Like md5sum_command, for BLAKE3.", true),
        text("xxh3sum_command", "Like md5sum_command, for XXH3-64.", true),
        text("xxh128sum_command", "Like md5sum_command, for XXH3-128.", true),
        text(
            "path_override",
            "Path by which commands on the host find the remote's path; with @ before it, the path by which they find SFTP's root.",
            true,
        ),
        text("shell_type", "Shell on the host: unix, or none to run no commands. Blank means detect it.", true),
    ],
);

/// Options that name commands which compute hashes.
const COMMANDS: [(Algo, &str); 7] = [
    (Algo::Md5, "md5sum_command"),
    (Algo::Sha1, "sha1sum_command"),
    (Algo::Sha256, "sha256sum_command"),
    (Algo::Crc32, "crc32sum_command"),
    (Algo::Blake3, "blake3sum_command"),
    (Algo::Xxh3, "xxh3sum_command"),
    (Algo::Xxh128, "xxh128sum_command"),
];

/// Hash commands on the server, as far as the user sets them.
#[derive(Debug, Default)]
pub struct Commands {
    /// The user's own commands; `None` where there is to be none.
    pub own: BTreeMap<Algo, Option<String>>,
    /// These hashes alone.
    pub only: Option<Vec<Algo>>,
    /// No hashes are asked for.
    pub none: bool,
    /// See the option `path_override`.
    pub place: Option<String>,
}

/// SFTP options of a remote.
#[derive(Debug)]
pub struct Config {
    /// The server program.
    pub remote: Remote,
    /// Bytes of a request at most.
    pub chunk: Option<u32>,
    /// Sessions at most.
    pub connections: Option<usize>,
    /// See the option.
    pub set_times: bool,
    /// See the option.
    pub skip_links: bool,
    /// See the option.
    pub copy_is_hardlink: bool,
    /// Hash commands.
    pub commands: Commands,
    /// There is no shell for commands.
    pub no_shell: bool,
}

/// Reads them.
///
/// Errors: `Invalid` for what can't be meant.
pub fn read(request: &OpenRequest) -> Result<Config> {
    let option = |name: &str| value(request, name);
    let invalid = |message: String| Error::new(ErrorKind::Invalid, "open", format!("{}: {message}", request.remote));
    let set = |name: &str| Some(option(name).to_owned()).filter(|value| !value.is_empty());
    let remote = match set("server_command") {
        Some(command) => Remote::Command(command),
        None => Remote::Subsystem(set("subsystem").unwrap_or_else(|| "sftp".into())),
    };
    let chunk = match set("chunk_size") {
        None => None,
        Some(text) => match parse_size(&text).map_err(invalid)? {
            Size::Off => None,
            Size::Bytes(bytes) => Some(u32::try_from(bytes).unwrap_or(u32::MAX).max(4 << 10)),
        },
    };
    let no_shell = match option("shell_type") {
        "" | "unix" => false,
        // The shells of Windows, which rclone knows.
        "none" | "powershell" | "cmd" => true,
        other => return Err(invalid(format!("shell_type = {other:?}: use unix or none"))),
    };
    let connections = option("connections").parse::<usize>().ok().filter(|most| *most > 0);
    Ok(Config {
        remote,
        chunk,
        connections,
        set_times: option("set_modtime") != "false",
        skip_links: option("skip_links") == "true",
        copy_is_hardlink: option("copy_is_hardlink") == "true",
        commands: commands(request, no_shell)?,
        no_shell,
    })
}

/// The options about hashes.
///
/// Errors: `Invalid` for an unknown hash.
fn commands(request: &OpenRequest, no_shell: bool) -> Result<Commands> {
    let option = |name: &str| Some(value(request, name).trim()).filter(|text| !text.is_empty());
    let own = COMMANDS.iter().filter_map(|(algo, name)| {
        let command = option(name)?;
        Some((*algo, Some(command.to_owned()).filter(|command| command != "none")))
    });
    let invalid = |why: String| Error::new(ErrorKind::Invalid, "open", format!("{}: hashes: {why}", request.remote));
    let named = option("hashes").map(|names| {
        names.split(',').map(|name| name.trim().parse::<Algo>().map_err(|e| invalid(e.to_string()))).collect()
    });
    let (only, place) = (named.transpose()?, option("path_override").map(str::to_owned));
    let none = no_shell || option("disable_hashcheck") == Some("true");
    Ok(Commands { own: own.collect(), only, none, place })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sftps_own_is_read() {
        let read = |options: &[(&str, &str)]| {
            let options = options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            read(&OpenRequest { remote: "r".into(), options, ..OpenRequest::default() })
        };
        let config = read(&[("host", "h"), ("chunk_size", "32k"), ("skip_links", "true")]).unwrap();
        assert_eq!((config.chunk, config.connections, config.set_times), (Some(32 << 10), None, true));
        assert_eq!((config.remote, config.skip_links), (Remote::Subsystem("sftp".into()), true));
        assert!(!config.no_shell && !config.commands.none && config.commands.only.is_none());
        let hashes = [("hashes", "sha1, md5"), ("md5sum_command", "md5 -r"), ("sha256sum_command", "none")];
        let commands = read(&hashes).unwrap().commands;
        assert_eq!(commands.only, Some(vec![Algo::Sha1, Algo::Md5]));
        assert_eq!(commands.own, [(Algo::Md5, Some("md5 -r".to_owned())), (Algo::Sha256, None)].into());
        assert!(read(&[("shell_type", "cmd")]).unwrap().commands.none);
        assert!(read(&[("disable_hashcheck", "true")]).unwrap().commands.none);
        for wrong in [("hashes", "md9"), ("shell_type", "fish")] {
            assert_eq!(read(&[wrong]).unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
