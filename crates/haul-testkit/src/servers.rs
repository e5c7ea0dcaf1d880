//! Real S3 servers of several makes: one of each for each test program, a bucket for each test. They listen on loopback, end
//! with the program, and keep nothing. What haul does with one make it must do with all: see `haul-cli/tests/servers`.

use crate::{folder::temporary, peers, ports, seaweed::Gateways};
use std::{
    collections::BTreeMap,
    fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Mutex, OnceLock, PoisonError,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// The access key that the servers accept.
pub const ACCESS_KEY: &str = "haul-test";
/// The secret key that the servers accept.
pub const SECRET_KEY: &str = "haul-test-secret";

/// Runs the server until its input ends (this process is gone, however it went), then removes its folder. A signal to the
/// whole group ends it alike; the server, which `timeout` puts into a group of its own, would outlive it otherwise.
/// `timeout` bounds it in any case.
pub(crate) const KEEPER: &str = r#"
trap : HUP INT TERM
root="$1"; shift
timeout -k 3 1800 "$@" >"$root/log" 2>&1 &
read -r _
kill $!
wait $!
rm -rf "$root"
"#;

/// Buckets that rclone's server begins with.
const POOL: u32 = 300;

/// A make of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Make {
    /// MinIO on a single drive.
    Minio,
    /// versitygw over a folder, which is as strict as AWS about checksums.
    Versity,
    /// `rclone serve s3` over a folder.
    Rclone,
    /// moto's server, in memory.
    Moto,
    /// S3Proxy over a folder.
    S3Proxy,
    /// SeaweedFS with all its gateways.
    Seaweed,
}

impl Make {
    /// All of them.
    pub const ALL: [Make; 6] = [Make::Minio, Make::Versity, Make::Rclone, Make::Moto, Make::S3Proxy, Make::Seaweed];

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Make::Minio => "MinIO",
            Make::Versity => "versitygw",
            Make::Rclone => "rclone serve s3",
            Make::Moto => "moto",
            Make::S3Proxy => "S3Proxy",
            Make::Seaweed => "SeaweedFS",
        }
    }

    /// The program that must be installed.
    fn program(self) -> &'static str {
        match self {
            Make::Minio => "minio",
            Make::Versity => "versitygw",
            Make::Rclone => "rclone",
            Make::Moto => "moto_server",
            Make::S3Proxy => "s3proxy",
            Make::Seaweed => "weed",
        }
    }

    /// The command that serves `root/data` at this address, and where else it serves.
    fn command(self, program: &Path, address: SocketAddr, root: &Path) -> io::Result<(Command, Option<Gateways>)> {
        let (at, data) = (address.to_string(), root.join("data"));
        let mut command = Command::new("sh");
        command.args(["-c", KEEPER, "keeper"]).arg(root);
        if self != Make::Seaweed {
            command.arg(program);
        }
        match self {
            Make::Minio => {
                command.args(["server", "--quiet", "--address", &at]).arg(data);
                command.env("MINIO_ROOT_USER", ACCESS_KEY).env("MINIO_ROOT_PASSWORD", SECRET_KEY);
                command.env("MINIO_BROWSER", "off").env("MINIO_UPDATE", "off");
            }
            Make::Versity => {
                // Metadata goes into a folder of its own: not every file system has extended attributes for users.
                let beside = root.join("meta");
                fs::create_dir(&beside)?;
                command.args(["--access", ACCESS_KEY, "--secret", SECRET_KEY, "--port", &at]);
                command.args(["--quiet", "posix", "--sidecar"]).args([beside, data]);
            }
            Make::Rclone => {
                // It looks once what buckets there are (told to look each time it never comes to an end).
                (0..POOL).try_for_each(|number| fs::create_dir(data.join(format!("bucket-{number}"))))?;
                let key = format!("{ACCESS_KEY},{SECRET_KEY}");
                command.args(["serve", "s3", "--addr", &at, "--auth-key", &key]).arg(data);
                command.env("RCLONE_CONFIG", "/dev/null");
            }
            Make::Moto => {
                let port = address.port().to_string();
                command.args(["-H", "127.0.0.1", "-p", &port]);
            }
            Make::S3Proxy => {
                let properties = root.join("properties");
                let text = format!(
                    "s3proxy.endpoint=http://{at}\ns3proxy.authorization=aws-v2-or-v4\n\
                     s3proxy.identity={ACCESS_KEY}\ns3proxy.credential={SECRET_KEY}\n\
                     jclouds.provider=filesystem-nio2\njclouds.filesystem.basedir={}\n\
                     jclouds.identity=local\njclouds.credential=local\n",
                    data.display()
                );
                fs::write(&properties, text)?;
                command.arg("--properties").arg(properties);
            }
            Make::Seaweed => {
                let gateways = Gateways::new(root, ACCESS_KEY, SECRET_KEY)?;
                gateways.run(program, address, &mut command);
                return Ok((command, Some(gateways)));
            }
        }
        Ok((command, None))
    }

    /// Whether an answer to a stranger's request for `/` means that it serves S3 now.
    fn is_ready(self, status: &[u8]) -> bool {
        match self {
            // Its health page says "ready" before it serves S3: then a stranger is refused, until then everybody is.
            Make::Minio => status == b"403",
            _ => matches!(status.first(), Some(b'2' | b'4')),
        }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    /// Its make.
    pub make: Make,
    /// Where it listens: 127.0.0.1 and its port.
    pub address: SocketAddr,
    /// SeaweedFS's other gateways.
    pub gateways: Option<Gateways>,
    root: PathBuf,
    keeper: Child,
    life: Option<ChildStdin>,
    buckets: AtomicU32,
}

impl Server {
    /// The server of this make and this test program, started at the first call. `None` after saying that the test is
    /// skipped.
    pub fn shared(make: Make) -> Option<&'static Server> {
        type Started = OnceLock<Result<Server, String>>;
        static SERVERS: Mutex<BTreeMap<Make, &'static Started>> = Mutex::new(BTreeMap::new());
        // Only the place is taken under the lock, so that several makes start at once.
        let place = *SERVERS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(make)
            .or_insert_with(|| Box::leak(Box::default()));
        let server = place.get_or_init(|| {
            let program = peers::find(make.program()).ok_or_else(|| format!("{} is not installed", make.program()))?;
            // Another process may take the free port first.
            let started = (0..3).find_map(|_| Server::start(make, &program).ok());
            started.ok_or_else(|| format!("{} does not start", make.name()))
        });
        server.as_ref().map_err(|why| peers::skip(why)).ok()
    }

    /// Starts one on a free port and waits until it answers.
    ///
    /// Errors: it can't be started, or isn't ready within a minute.
    fn start(make: Make, program: &Path) -> io::Result<Server> {
        let root = temporary("haul-server-")?.keep();
        fs::create_dir(root.join("data"))?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, ports::free()?));
        let (mut command, gateways) = make.command(program, address, &root)?;
        let mut keeper = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let life = keeper.stdin.take();
        let server = Server { make, address, gateways, root, keeper, life, buckets: AtomicU32::new(0) };
        for _ in 0..600 {
            let answered = ask(address, "GET / HTTP/1.0\r\n");
            let all = server.gateways.as_ref().is_none_or(Gateways::listen);
            if all && answered.is_ok_and(|status| make.is_ready(&status)) {
                return Ok(server);
            }
            thread::sleep(Duration::from_millis(100));
        }
        Err(io::Error::other(format!("{} on {address} is not ready", make.name())))
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The name of a bucket that isn't there.
    pub fn no_bucket(&self, hint: &str) -> String {
        format!("{hint}-new-{}", self.buckets.fetch_add(1, Relaxed))
    }

    /// A new, empty bucket; its name starts with the hint where it can.
    ///
    /// Panics if it can't be made.
    pub fn bucket(&self, hint: &str) -> String {
        let number = self.buckets.fetch_add(1, Relaxed);
        let name = if self.make == Make::Rclone { format!("bucket-{number}") } else { format!("{hint}-{number}") };
        if self.make == Make::Rclone {
            assert!(number < POOL, "more than {POOL} buckets");
        } else if self.make == Make::Moto {
            // It asks nobody who he is.
            let made = ask(self.address, &format!("PUT /{name} HTTP/1.0\r\nContent-Length: 0\r\n")).expect("bucket");
            assert_eq!(&made, b"200", "bucket {name}");
        } else if let Some(gateways) = &self.gateways {
            let lines = format!("POST /buckets/{name}/ HTTP/1.0\r\nContent-Length: 0\r\n");
            assert_eq!(&ask(gateways.filer, &lines).expect("bucket"), b"201", "bucket {name}");
        } else {
            // A folder in the root of what it serves is a bucket.
            fs::create_dir(self.root.join("data").join(&name)).expect("bucket");
        }
        name
    }

    /// What it wrote to its log: for messages of tests that fail.
    pub fn log(&self) -> String {
        fs::read(self.root.join("log")).map_or_else(|e| e.to_string(), |log| String::from_utf8_lossy(&log).into_owned())
    }
}

/// Sends a request of these lines without a body and gives the answer's status.
fn ask(address: SocketAddr, lines: &str) -> io::Result<[u8; 3]> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(socket, "{lines}Host: {address}\r\n\r\n")?;
    let mut head = [0; 12];
    socket.read_exact(&mut head)?;
    Ok([head[9], head[10], head[11]])
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.life.take());
        // It has removed its folder when it is gone; a failure to wait leaves only a zombie until we end.
        let _ = self.keeper.wait();
    }
}
