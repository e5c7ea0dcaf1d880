//! Real servers over a folder: index pages and WebDAV, as several makes serve them, and emulators of clouds. Each listens on loopback, ends with the test,
//! and keeps nothing.

use crate::{folder::temporary, peers, ports, servers::KEEPER, tls::Certificate};
use std::{
    ffi::OsStr,
    fs, io,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::chown,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::Duration,
};

/// What serves a folder, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// nginx with WebDAV and index pages.
    Nginx,
    /// nginx with index pages in JSON.
    NginxJson,
    /// Apache with WebDAV.
    ApacheDav,
    /// Apache with index pages.
    Apache,
    /// lighttpd with index pages.
    Lighttpd,
    /// Python's `http.server`, which sends no parts of files.
    Python,
    /// `rclone serve http`.
    RcloneHttp,
    /// `rclone serve webdav`.
    RcloneDav,
    /// The same, at [`USER_FILES`].
    RcloneUser,
    /// Azurite, which speaks Azure Blob.
    Azurite,
    /// fake-gcs-server, which speaks Google Cloud Storage.
    FakeGcs,
    /// gcp-storage-emulator, another one.
    GcsEmulator,
}

impl Make {
    fn program(self) -> &'static str {
        match self {
            Make::Nginx | Make::NginxJson => "nginx",
            Make::Apache | Make::ApacheDav => "apache2",
            Make::Lighttpd => "lighttpd",
            Make::Python => "python3",
            Make::RcloneHttp | Make::RcloneDav | Make::RcloneUser => "rclone",
            Make::Azurite => "azurite-blob",
            Make::FakeGcs => "fake-gcs-server",
            Make::GcsEmulator => "gcp-storage-emulator",
        }
    }

    /// The command that serves `root/data`; `None` when a module is missing.
    fn command(self, program: &Path, at: SocketAddr, root: &Path) -> io::Result<Option<Command>> {
        let (data, conf) = (root.join("data"), root.join("conf"));
        let (shown, folder) = (data.display(), root.display());
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(root).arg(program);
        match self {
            Make::Nginx | Make::NginxJson => {
                let module = "/usr/lib/nginx/modules/ngx_http_dav_ext_module.so";
                if !Path::new(module).exists() {
                    return Ok(None);
                }
                let format = if self == Make::NginxJson { "autoindex_format json;" } else { "" };
                let text = format!(
                    "load_module {module}; user root; daemon off; pid {folder}/pid; error_log {folder}/errors;\n\
                     events {{}}\nhttp {{ access_log {folder}/log; client_body_temp_path {folder}/body; client_max_body_size 0;\n\
                     types {{}} default_type application/octet-stream;\n\
                     server {{ listen {at}; root {shown}; location / {{ autoindex on; {format}\n\
                     dav_methods PUT DELETE MKCOL COPY MOVE; dav_ext_methods PROPFIND OPTIONS; }} }} }}\n"
                );
                fs::write(&conf, text)?;
                command.arg("-c").arg(conf).arg("-e").arg(root.join("errors"));
            }
            Make::Apache | Make::ApacheDav => {
                let modules = Path::new("/usr/lib/apache2/modules");
                if !modules.join("mod_dav_fs.so").exists() {
                    return Ok(None);
                }
                // It gives up being root for a user that must reach the folder.
                for path in [root, &data] {
                    chown(path, Some(WWW_DATA), Some(WWW_DATA)).ok();
                }
                let names = ["mpm_event", "authz_core", "dir", "autoindex", "alias", "dav", "dav_fs", "mime"];
                let load = |name| format!("LoadModule {name}_module {}/mod_{name}.so\n", modules.display());
                let dav = if self == Make::ApacheDav {
                    "Dav On"
                } else {
                    "Options +Indexes\nIndexOptions FancyIndexing NameWidth=20"
                };
                let text = format!(
                    "{}ServerName localhost\nServerRoot {folder}\nPidFile {folder}/pid\nListen {at}\nErrorLog {folder}/errors\nUser www-data\n\
                     Group www-data\nMutex file:{folder} default\nTypesConfig /dev/null\nDavLockDB {folder}/locks\nDocumentRoot {shown}\n\
                     DirectoryIndex disabled\nAllowEncodedSlashes On\n<Directory {shown}>\n{dav}\nRequire all granted\n</Directory>\n",
                    names.map(load).concat()
                );
                fs::write(&conf, text)?;
                command.args(["-D", "FOREGROUND", "-f"]).arg(conf);
            }
            Make::Lighttpd => {
                let text = format!(
                    "server.modules = (\"mod_dirlisting\")\nserver.document-root = \"{shown}\"\nserver.bind = \"{}\"\nserver.port = {}\n\
                     dir-listing.activate = \"enable\"\ndir-listing.hide-dotfiles = \"disable\"\n\
                     server.stat-cache-engine = \"disable\"\nmimetype.assign = (\"\" => \"application/octet-stream\")\n",
                    at.ip(),
                    at.port()
                );
                fs::write(&conf, text)?;
                command.arg("-D").arg("-f").arg(conf);
            }
            Make::Python => {
                command
                    .args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"])
                    .arg(data)
                    .arg(at.port().to_string());
            }
            Make::RcloneHttp | Make::RcloneDav | Make::RcloneUser => {
                let kind = if self == Make::RcloneHttp { "http" } else { "webdav" };
                command.args(["serve", kind, "--addr", &at.to_string()]).arg(data);
                if self == Make::RcloneUser {
                    command.args(["--baseurl", USER_FILES]);
                }
                if self == Make::RcloneHttp {
                    // Files don't come through it: with its cache it would go on showing the empty folder that the first look found.
                    command.args(["--dir-cache-time", "0s"]);
                }
                if self == Make::RcloneDav {
                    command.args(["--etag-hash", "auto"]);
                }
                command.env("RCLONE_CONFIG", "/dev/null");
            }
            Make::Azurite => {
                // Clients may speak newer versions of the service than it knows.
                command.args([
                    "--skipApiVersionCheck",
                    "--disableTelemetry",
                    "--silent",
                    "--blobPort",
                    &at.port().to_string(),
                ]);
                command.arg("--location").arg(data);
            }
            Make::FakeGcs => {
                let url = format!("http://{at}");
                command.args(["-scheme", "http", "-host", "127.0.0.1", "-backend", "memory"]);
                command.args(["-port", &at.port().to_string(), "-public-host", &at.to_string(), "-external-url", &url]);
            }
            Make::GcsEmulator => {
                command.args(["start", "--quiet", "--in-memory", "--host", "127.0.0.1"]);
                command.args(["--port", &at.port().to_string()]);
            }
        }
        Ok(Some(command))
    }
}

/// Where Nextcloud has the files of its user anna.
pub const USER_FILES: &str = "/remote.php/dav/files/anna";

/// Debian's number of the user that web servers become.
const WWW_DATA: u32 = 33;

/// A running server.
#[derive(Debug)]
pub struct WebServer {
    /// Where it listens: 127.0.0.1 and its port.
    pub address: SocketAddr,
    root: PathBuf,
    keeper: Child,
    life: Option<ChildStdin>,
}

impl WebServer {
    /// Starts one over an empty folder. `None` after saying that the test is skipped.
    ///
    /// Panics if it is there and doesn't start.
    pub fn start(make: Make) -> Option<WebServer> {
        WebServer::start_with(make, &[])
    }

    /// Starts Azurite with TLS, where it takes tokens too. `None` after saying that the test is skipped.
    ///
    /// Panics if it is there and doesn't start.
    pub fn azurite_for_tokens(certificate: &Certificate) -> Option<WebServer> {
        let Certificate { cert, key } = certificate;
        let args: [&OsStr; 6] =
            ["--oauth".as_ref(), "basic".as_ref(), "--cert".as_ref(), cert.as_ref(), "--key".as_ref(), key.as_ref()];
        WebServer::start_with(Make::Azurite, &args)
    }

    fn start_with(make: Make, more: &[&OsStr]) -> Option<WebServer> {
        let program = peers::find(make.program()).or_else(|| {
            // Not in everybody's PATH.
            Some(Path::new("/usr/sbin").join(make.program())).filter(|path| path.is_file())
        });
        let Some(program) = program else {
            peers::skip(&format!("{} is not installed", make.program()));
            return None;
        };
        let mut last = String::new();
        // Another process may take the free port first.
        for _ in 0..3 {
            match WebServer::try_start(make, &program, more) {
                Ok(Some(server)) => return Some(server),
                Ok(None) => {
                    peers::skip(&format!("{} has no WebDAV here", make.program()));
                    return None;
                }
                Err(error) => last = error.to_string(),
            }
        }
        panic!("{make:?} does not start: {last}");
    }

    fn try_start(make: Make, program: &Path, more: &[&OsStr]) -> io::Result<Option<WebServer>> {
        let root = temporary("haul-web-")?.keep();
        fs::create_dir(root.join("data"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let Some(mut command) = make.command(program, address, &root)? else {
            fs::remove_dir_all(&root)?;
            return Ok(None);
        };
        let mut keeper =
            command.args(more).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let life = keeper.stdin.take();
        let server = WebServer { address, root, keeper, life };
        // A minute: some are slow to begin, and slower beside other tests.
        for _ in 0..600 {
            // A server with TLS only has to accept a connection.
            let there = if more.is_empty() { server.answers() } else { TcpStream::connect(address).map(drop) };
            if there.is_ok() {
                return Ok(Some(server));
            }
            thread::sleep(Duration::from_millis(100));
        }
        Err(io::Error::other(server.log()))
    }

    fn answers(&self) -> io::Result<()> {
        let mut socket = TcpStream::connect(self.address)?;
        socket.set_read_timeout(Some(Duration::from_secs(60)))?;
        write!(socket, "GET / HTTP/1.0\r\nHost: {}\r\n\r\n", self.address)?;
        socket.read_exact(&mut [0; 12])
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The folder that it serves.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// What it wrote to its logs: for messages of tests that fail.
    pub fn log(&self) -> String {
        ["log", "errors"].map(|name| fs::read_to_string(self.root.join(name)).unwrap_or_default()).concat()
    }
}

impl Drop for WebServer {
    fn drop(&mut self) {
        drop(self.life.take());
        // It has removed its folder when it is gone; a failure to wait leaves only a zombie until we end.
        let _ = self.keeper.wait();
    }
}
