//! ProFTPD with its `mod_sftp`, another make of SFTP server, on a port of loopback. It runs as root only.

use crate::{
    lab::{temporary, until},
    peers::{self, ssh_key},
    ports,
};
use std::{
    fs,
    net::{Ipv4Addr, TcpStream},
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

const PROGRAM: &str = "/usr/sbin/proftpd";
const MODULE: &str = "/usr/lib/proftpd/mod_sftp.so";
/// A user and group that nobody else is.
const USER: u32 = 1_977;

/// A running server.
#[derive(Debug)]
pub struct ProFtpd {
    dir: tempfile::TempDir,
    child: Child,
}

impl ProFtpd {
    /// Starts one; `None` after saying that the test is skipped.
    ///
    /// # Panics
    /// When it can't be set up.
    pub fn start() -> Option<ProFtpd> {
        if !Path::new(PROGRAM).exists() || !Path::new(MODULE).exists() {
            peers::skip("proftpd with mod_sftp is not installed");
            return None;
        }
        if !rustix::process::geteuid().is_root() {
            peers::skip("proftpd runs as root only");
            return None;
        }
        let dir = temporary("haul-proftpd-").expect("a folder");
        let (at, root) = (|name: &str| dir.path().join(name), dir.path().display().to_string());
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("set");
        ssh_key(&at("host"), "");
        ssh_key(&at("id"), "");
        fs::create_dir(at("data")).expect("a folder");
        chown(at("data"), Some(USER), Some(USER)).expect("root may");
        let public = Command::new("ssh-keygen").args(["-e", "-m", "RFC4716", "-f"]).arg(at("id.pub")).output();
        fs::write(at("keys"), public.expect("ssh-keygen runs").stdout).expect("written");
        fs::write(at("passwd"), format!("anna:x:{USER}:{USER}::{root}/data:/bin/sh\n")).expect("written");
        fs::write(at("group"), format!("anna:x:{USER}:\n")).expect("written");
        for name in ["passwd", "group"] {
            fs::set_permissions(at(name), fs::Permissions::from_mode(0o600)).expect("set");
        }
        let port = ports::free().expect("a free port");
        let text = format!(
            "ServerName far\nServerType standalone\nPort {port}\nDefaultAddress 127.0.0.1\nUser nobody\nGroup nogroup\n\
             PidFile {root}/pid\nScoreboardFile {root}/score\nDelayEngine off\nWtmpLog off\nTransferLog none\nSystemLog {root}/log\n\
             LoadModule mod_sftp.c\nSFTPEngine on\nSFTPLog {root}/sftp.log\nSFTPHostKey {root}/host\n\
             SFTPAuthorizedUserKeys file:{root}/keys\nAuthUserFile {root}/passwd\nAuthGroupFile {root}/group\n\
             AuthOrder mod_auth_file.c\nRequireValidShell off\nAllowOverwrite on\nUseReverseDNS off\nMaxInstances none\n"
        );
        fs::write(at("conf"), text).expect("written");
        let public = fs::read_to_string(at("host.pub")).expect("a key");
        let public = public.split_whitespace().take(2).collect::<Vec<_>>().join(" ");
        fs::write(at("known_hosts"), format!("far {public}\n")).expect("written");
        let config = format!(
            "Host far\n HostName 127.0.0.1\n Port {port}\n HostKeyAlias far\n User anna\n IdentityFile {root}/id\n\
             IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {root}/known_hosts\n"
        );
        fs::write(at("config"), config).expect("written");
        let mut command = Command::new(PROGRAM);
        command.args(["-n", "-c"]).arg(at("conf"));
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let server = ProFtpd { child: child.expect("proftpd starts"), dir };
        let listens = until(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        let log = || fs::read_to_string(server.dir.path().join("log")).unwrap_or_default();
        assert!(listens, "proftpd doesn't listen: {}", log());
        Some(server)
    }

    /// The command that leads there, as the option `ssh` of a remote has it.
    pub fn command(&self) -> String {
        format!("ssh -F {} far", self.dir.path().join("config").display())
    }

    /// A folder there, which is here too.
    pub fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }
}

impl Drop for ProFtpd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
