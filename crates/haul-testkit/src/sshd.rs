//! OpenSSH's server without a port: each connection is an `sshd -i` of its own, which ssh starts as its ProxyCommand; or one that
//! listens on loopback. Its user is who runs the test.

use crate::{
    lab::{temporary, until},
    peers::{self, ssh_key},
    ports,
};
use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const PROGRAM: &str = "/usr/sbin/sshd";

/// How the server is set up.
#[derive(Clone, Debug, Default)]
pub struct Setup {
    /// Further lines of its configuration; a `Subsystem` among them takes the place of the usual one.
    pub lines: Vec<String>,
    /// The user's key has this passphrase.
    pub passphrase: Option<String>,
    /// It listens on a port of loopback.
    pub listens: bool,
    /// A command that the connection goes through, as a prefix of the ProxyCommand.
    pub through: Option<String>,
    /// The server is nobody that the user knows.
    pub stranger: bool,
}

/// A server with its user's ssh config.
#[derive(Debug)]
pub struct Sshd {
    dir: tempfile::TempDir,
    listener: Option<Child>,
    port: Option<u16>,
}

impl Sshd {
    /// Starts one; `None` (said on standard output) where there is no sshd.
    ///
    /// # Panics
    /// When it can't be set up.
    pub fn start(setup: &Setup) -> Option<Sshd> {
        if !Path::new(PROGRAM).exists() {
            peers::skip("sshd is not installed");
            return None;
        }
        // It gives up being root in an empty folder of this name.
        if rustix::process::geteuid().is_root() {
            fs::create_dir_all("/run/sshd").expect("a folder for sshd");
        }
        let dir = temporary("haul-sshd-").expect("a folder");
        let at = |name: &str| dir.path().join(name);
        ssh_key(&at("host"), "");
        ssh_key(&at("id"), setup.passphrase.as_deref().unwrap_or_default());
        fs::create_dir(at("data")).expect("a folder");
        let root = dir.path().display().to_string();
        let own = setup.lines.iter().any(|line| line.trim_start().starts_with("Subsystem"));
        let subsystem = if own { "" } else { "Subsystem sftp internal-sftp\n" };
        let text = format!(
            "HostKey {root}/host\nAuthorizedKeysFile {root}/id.pub\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin yes\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\nAcceptEnv HAUL_*\n{subsystem}{}\n",
            setup.lines.join("\n")
        );
        fs::write(at("sshd_config"), text).expect("written");
        let public = fs::read_to_string(at("host.pub")).expect("a key");
        let public = public.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        let known = if setup.stranger { String::new() } else { format!("far {public}\n") };
        fs::write(at("known_hosts"), known).expect("written");
        let mut server = Sshd { dir, listener: None, port: None };
        let command = match setup.listens {
            true => {
                let port = server.listen();
                format!("HostName 127.0.0.1\n Port {port}\n HostKeyAlias far")
            }
            false => {
                let through = setup.through.as_ref().map(|command| format!("{command} ")).unwrap_or_default();
                format!("ProxyCommand {through}{PROGRAM} -i -f {root}/sshd_config -E {root}/log")
            }
        };
        let root = server.dir.path().display();
        let config = format!(
            "Host far\n {command}\n IdentityFile {root}/id\n IdentitiesOnly yes\n UserKnownHostsFile {root}/known_hosts\n\
             IdentityAgent none\n"
        );
        fs::write(server.dir.path().join("config"), config).expect("written");
        Some(server)
    }

    fn listen(&mut self) -> u16 {
        let port = ports::free().expect("a free port");
        let mut command = Command::new(PROGRAM);
        command.args(["-D", "-o", &format!("ListenAddress=127.0.0.1:{port}"), "-f"]);
        command.arg(self.dir.path().join("sshd_config")).arg("-E").arg(self.dir.path().join("log"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.listener = Some(command.spawn().expect("sshd starts"));
        self.port = Some(port);
        let listens = until(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        assert!(listens, "sshd doesn't listen: {}", self.log());
        port
    }

    /// The command that leads there, as the option `ssh` of a remote has it.
    pub fn command(&self) -> String {
        format!("ssh -F {} far", self.config().display())
    }

    /// The user's ssh config, with the host `far`.
    pub fn config(&self) -> PathBuf {
        self.dir.path().join("config")
    }

    /// A section of a config file for a remote that is reached by SFTP.
    pub fn section(&self, name: &str) -> String {
        format!("[{name}]\ntype = sftp\nprotocol = sftp\nssh = {}\n", self.command())
    }

    /// The user's private key.
    pub fn key(&self) -> PathBuf {
        self.dir.path().join("id")
    }

    /// The port that it listens on.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// A folder there, which is here too.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What it has written down.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// How often somebody logged in.
    pub fn logins(&self) -> usize {
        self.log().lines().filter(|line| line.contains("Accepted ")).count()
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if let Some(mut listener) = self.listener.take() {
            let _ = listener.kill();
            let _ = listener.wait();
        }
    }
}
