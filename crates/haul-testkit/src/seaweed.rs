//! SeaweedFS: one process with a master, a volume server, a filer and gateways for S3, WebDAV and SFTP, all of them on loopback. Files of
//! all gateways are in one tree: a bucket is a directory of `/buckets`.

use crate::{peers::ssh_key, ports};
use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::Command,
};

/// Runs it, and removes the sockets that it leaves in `/tmp`, which have its ports in their names.
const TIDY: &str = r#"
trap : HUP INT TERM
sockets="$1"; shift
"$@"
rm -f $sockets
"#;

/// Addresses of the gateways other than S3's, and the users that SFTP accepts.
#[derive(Debug)]
pub struct Gateways {
    /// The filer, which creates directories on request.
    pub filer: SocketAddr,
    webdav: SocketAddr,
    sftp: SocketAddr,
    /// The other ports that it needs.
    more: [u16; 6],
    root: PathBuf,
}

impl Gateways {
    /// On free ports, with its settings in this folder; whoever has these keys may do everything by S3.
    ///
    /// Errors: the folder can't be written, or there are no ports.
    pub fn new(root: &Path, access_key: &str, secret_key: &str) -> io::Result<Gateways> {
        let ports: Vec<u16> = (0..9).map(|_| ports::free()).collect::<io::Result<_>>()?;
        let at = |number: usize| SocketAddr::from((Ipv4Addr::LOCALHOST, ports[number]));
        let more = std::array::from_fn(|number| ports[3 + number]);
        let gateways = Gateways { filer: at(0), webdav: at(1), sftp: at(2), more, root: root.to_owned() };
        gateways.write_settings(access_key, secret_key)?;
        Ok(gateways)
    }

    fn write_settings(&self, access: &str, secret: &str) -> io::Result<()> {
        let at = |name: &str| self.root.join(name);
        let keys = format!(
            r#"{{"identities":[{{"name":"haul","credentials":[{{"accessKey":"{access}","secretKey":"{secret}"}}],"actions":["Admin","Read","List","Tagging","Write"]}}]}}"#
        );
        fs::write(at("s3.json"), keys)?;
        ssh_key(&at("host"), "");
        ssh_key(&at("id"), "");
        let public = |name: &str| -> io::Result<String> {
            Ok(fs::read_to_string(at(name))?.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
        };
        let users = format!(
            r#"[{{"Username":"anna","PublicKeys":["{}"],"HomeDir":"/home/anna","Permissions":{{"/":["*"]}},"Uid":1000,"Gid":1000}}]"#,
            public("id.pub")?
        );
        fs::write(at("users.json"), users)?;
        fs::write(at("known_hosts"), format!("far {}\n", public("host.pub")?))?;
        let root = self.root.display();
        let config = format!(
            "Host far\n HostName 127.0.0.1\n Port {}\n HostKeyAlias far\n User anna\n IdentityFile {root}/id\n\
             IdentitiesOnly yes\n IdentityAgent none\n UserKnownHostsFile {root}/known_hosts\n",
            self.sftp.port()
        );
        fs::write(at("config"), config)
    }

    /// Adds to a command that runs another what runs the program.
    pub fn run(&self, program: &Path, s3: SocketAddr, command: &mut Command) {
        command.args(["sh", "-c", TIDY, "tidy"]);
        let [_, master, _, volume, filer, s3_grpc] = self.more;
        let sockets = [("master", master), ("volume", volume), ("filer", filer), ("s3", s3_grpc)];
        command.arg(sockets.map(|(of, port)| format!("/tmp/seaweedfs-{of}-grpc-{port}.sock")).join(" ")).arg(program);
        self.arguments(s3, command);
    }

    fn arguments(&self, s3: SocketAddr, command: &mut Command) {
        let at = |name: &str| self.root.join(name).display().to_string();
        let [master, master_grpc, volume, volume_grpc, filer_grpc, s3_grpc] = self.more;
        command.args(["-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]);
        // It would report to its makers.
        command.arg("-master.telemetry=false").arg(format!("-dir={}", at("data")));
        command.args([format!("-master.port={master}"), format!("-master.port.grpc={master_grpc}")]);
        // Each bucket has volumes of its own: one at first.
        command.env("WEED_MASTER_VOLUME_GROWTH_COPY_1", "1");
        command.args(["-master.volumeSizeLimitMB=64", "-volume.max=2000", "-volume.preStopSeconds=0"]);
        command.args([format!("-volume.port={volume}"), format!("-volume.port.grpc={volume_grpc}")]);
        command.args(["-filer".to_owned(), format!("-filer.port={}", self.filer.port())]);
        command.args([format!("-filer.port.grpc={filer_grpc}"), format!("-filer.localSocket={}", at("filer.sock"))]);
        command.args(["-s3", "-s3.port.iceberg=0", "-s3.port.lance=0"]);
        command.args([format!("-s3.port={}", s3.port()), format!("-s3.port.grpc={s3_grpc}")]);
        command.args([format!("-s3.config={}", at("s3.json")), format!("-s3.localSocket={}", at("s3.sock"))]);
        command.args(["-webdav".to_owned(), format!("-webdav.port={}", self.webdav.port())]);
        command.arg(format!("-webdav.cacheDir={}", self.root.display()));
        command.args(["-sftp".to_owned(), format!("-sftp.port={}", self.sftp.port())]);
        command
            .args([format!("-sftp.sshPrivateKey={}", at("host")), format!("-sftp.userStoreFile={}", at("users.json"))]);
        command.arg(format!("-sftp.localSocket={}", at("sftp.sock")));
        command.env("HOME", &self.root).current_dir(&self.root);
    }

    /// Whether all of them listen.
    pub fn listen(&self) -> bool {
        [self.filer, self.webdav, self.sftp].iter().all(|at| TcpStream::connect(at).is_ok())
    }

    /// The URL of its WebDAV.
    pub fn webdav(&self) -> String {
        format!("http://{}", self.webdav)
    }

    /// The command that leads to its SFTP, as the option `ssh` of a remote has it.
    pub fn ssh(&self) -> String {
        format!("ssh -F {} far", self.root.join("config").display())
    }
}
