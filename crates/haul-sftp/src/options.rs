//! The options of a store: those of the way to the host, and what is SFTP's own. Names and meanings are rclone's.

use haul_core::{
    Error, ErrorKind, Result,
    units::{Size, parse_size},
};
use haul_ssh::{
    Remote,
    options::{HOST, flag, number, text, value},
};
use haul_store::{OpenRequest, OptionKind, OptionSpec, joined};

/// Every option, in the order in which they are asked for.
pub const OPTIONS: &[OptionSpec] = &joined::<29>(
    &HOST,
    &[
        text("subsystem", "Name of the server's SFTP subsystem. Blank means sftp.", true),
        text(
            "server_command",
            "Command that runs an SFTP server there, such as `sudo /usr/lib/openssh/sftp-server`.",
            true,
        ),
        OptionSpec {
            name: "chunk_size",
            help: "Bytes of a request at most. Blank means as many as the server says that it takes.",
            default: "",
            kind: OptionKind::Size,
            advanced: true,
            secret: false,
            examples: &[],
        },
        number(
            "connections",
            "Sessions at once at most; 0 means as many as there is work for and the server takes.",
            "0",
        ),
        flag("set_modtime", "Set the times of files.", "true"),
        flag("skip_links", "Leave symbolic links out instead of following them.", "false"),
        flag("copy_is_hardlink", "A copy inside the server is another name of the same file.", "false"),
    ],
);

/// What a remote's options say of SFTP.
#[derive(Debug)]
pub struct Config {
    /// What runs there.
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
    let connections = option("connections").parse::<usize>().ok().filter(|most| *most > 0);
    Ok(Config {
        remote,
        chunk,
        connections,
        set_times: option("set_modtime") != "false",
        skip_links: option("skip_links") == "true",
        copy_is_hardlink: option("copy_is_hardlink") == "true",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sftps_own_is_read() {
        let options = [("host", "h"), ("chunk_size", "32k"), ("skip_links", "true")];
        let config = read(&OpenRequest {
            remote: "r".into(),
            options: options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect(),
            ..OpenRequest::default()
        })
        .unwrap();
        assert_eq!((config.chunk, config.connections, config.set_times), (Some(32 << 10), None, true));
        assert_eq!((config.remote, config.skip_links), (Remote::Subsystem("sftp".into()), true));
    }
}
