//! A real MinIO server: one for each test program, a bucket for each test.

use crate::peers;
use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

/// The access key that the servers accept.
pub const ACCESS_KEY: &str = "haul-test";
/// The secret key that the servers accept.
pub const SECRET_KEY: &str = "haul-test-secret";

/// Runs the server until its input ends (this process is gone, however it went), then removes its folder.
/// `timeout` bounds it in any case.
const KEEPER: &str = r#"
timeout 1800 "$1" server --quiet --address "$2" "$3/data" >"$3/log" 2>&1 &
read -r _
kill $!
wait $!
rm -rf "$3"
"#;

/// A running server.
#[derive(Debug)]
pub struct Minio {
    /// Where it listens: 127.0.0.1 and its port.
    pub address: SocketAddr,
    root: PathBuf,
    keeper: Child,
    life: Option<ChildStdin>,
    buckets: AtomicU32,
}

impl Minio {
    /// The server of this test program, started at the first call. `None` after saying that the test is skipped.
    pub fn shared() -> Option<&'static Minio> {
        static SERVER: OnceLock<Result<Minio, String>> = OnceLock::new();
        let server = SERVER.get_or_init(|| {
            let program = peers::find("minio").ok_or("minio is not installed")?;
            // Another process may take the free port first.
            (0..3).find_map(|_| Minio::start(&program).ok()).ok_or_else(|| "minio does not start".to_owned())
        });
        server.as_ref().map_err(|why| peers::skip(why)).ok()
    }

    /// Starts a server of its own on a free port and waits until it answers.
    ///
    /// Errors: it can't be started, or isn't ready within a minute.
    pub fn start(program: &Path) -> io::Result<Minio> {
        let root = tempfile::Builder::new().prefix("haul-minio-").tempdir()?.keep();
        fs::create_dir(root.join("data"))?;
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
        let mut keeper = Command::new("sh")
            .args(["-c", KEEPER, "minio-keeper"])
            .arg(program)
            .arg(address.to_string())
            .arg(&root)
            .env("MINIO_ROOT_USER", ACCESS_KEY)
            .env("MINIO_ROOT_PASSWORD", SECRET_KEY)
            .env("MINIO_BROWSER", "off")
            .env("MINIO_UPDATE", "off")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let life = keeper.stdin.take();
        let server = Minio { address, root, keeper, life, buckets: AtomicU32::new(0) };
        for _ in 0..600 {
            if server.is_ready().unwrap_or(false) {
                return Ok(server);
            }
            thread::sleep(Duration::from_millis(100));
        }
        Err(io::Error::other(format!("minio on {address} is not ready")))
    }

    fn is_ready(&self) -> io::Result<bool> {
        let mut socket = TcpStream::connect(self.address)?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        // Its health page says "ready" before it serves S3: then a stranger is refused, until then everybody is.
        write!(socket, "GET / HTTP/1.0\r\nHost: {}\r\n\r\n", self.address)?;
        let mut head = [0; 12];
        socket.read_exact(&mut head)?;
        Ok(head.ends_with(b"403"))
    }

    /// `http://127.0.0.1:PORT`.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A new, empty bucket; its name starts with the hint.
    ///
    /// Panics if it can't be made.
    pub fn bucket(&self, hint: &str) -> String {
        let name = format!("{hint}-{}", self.buckets.fetch_add(1, Relaxed));
        // A folder in the root of a single drive is a bucket.
        fs::create_dir(self.root.join("data").join(&name)).expect("bucket");
        name
    }
}

impl Drop for Minio {
    fn drop(&mut self) {
        drop(self.life.take());
        // It has removed its folder when it is gone; a failure to wait leaves only a zombie until we end.
        let _ = self.keeper.wait();
    }
}
