//! The handshake: after anything that a login shell may print, each end identifies itself, and the lower of the two versions is used.

use crate::{compression::Packing, frame::Frame, message};
use haul_core::{Error, ErrorKind, Result, attributes::Rights};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The version of the messages that this build speaks best. A change that an older end can't read takes a new one.
pub const VERSION: u32 = 2;

/// The oldest version that it still speaks.
pub const OLDEST: u32 = 1;

/// First bytes of each end, followed by the asker's nonce: no prompt, message of the day or shell error contains them.
const MAGIC: &[u8; 8] = b"\x00haulfar";

/// Bytes of a nonce.
const NONCE: usize = 16;

/// A login shell prints no more before the far end is heard.
const NOISE: usize = 64 << 10;

/// The near end's greeting.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Hello {
    /// The oldest version of the messages that it speaks.
    pub oldest: u32,
    /// The newest.
    pub newest: u32,
    /// The version of its program, for messages to people.
    pub build: String,
    /// Its preferred compression, in both directions.
    #[serde(default)]
    pub packing: Packing,
    /// The far end that it is connected to already, by what that said of itself ([`About::joins`]): this is a further pipe to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub joins: Option<String>,
}

/// A far end's facts about itself. One of version 1 reports none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct About {
    /// Its rights over attributes of files; `None` where it keeps none.
    pub rights: Option<Rights>,
    /// It serves one folder alone, and follows no symlinks.
    pub confined: bool,
    /// It reads and writes compressed frames.
    pub packs: bool,
    /// It sets the attributes that come along with a small file.
    pub keeps: bool,
    /// Token for further pipes; `None` where it takes none.
    pub joins: Option<String>,
    /// It opens a port for pipes over TCP, if it is asked to.
    pub listens: bool,
    /// It compresses frames of content with what went before as a prefix, and reads them.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub history: bool,
    /// It takes and gives many small files with one request.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bundles: bool,
    /// It cuts files into blocks of [`haul_core::delta::SMALLEST_BLOCK`] too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub small_blocks: bool,
    /// It opens a folder with the first request for what is in it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub opens_along: bool,
}

impl About {
    /// It takes many small files with one request, with their attributes.
    pub fn takes_bundles(&self) -> bool {
        self.bundles && self.keeps
    }

    /// Compression on this end's first pipe, if the near end prefers `wished`.
    pub fn agreed(&self, wished: Packing) -> Packing {
        if self.packs { self.agreed_further(wished) } else { Packing::default() }
    }

    /// As [`About::agreed`], on a further pipe that prefers the first one's compression: a far end of another build may report fewer
    /// abilities.
    pub fn agreed_further(&self, wished: Packing) -> Packing {
        Packing { history: wished.history && self.history, ..wished }
    }
}

/// The far end's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum HelloResponse {
    /// It serves.
    Serves {
        /// The version of the messages.
        version: u32,
        /// The version of its program.
        build: String,
        /// Further facts about it.
        #[serde(default)]
        about: About,
    },
    /// It doesn't, and why.
    Refuses(String),
}

/// The version that two ends take of which one speaks `oldest` to `newest`; `None` where they have none in common.
pub fn common(oldest: u32, newest: u32) -> Option<u32> {
    let version = newest.min(VERSION);
    (version >= oldest.max(OLDEST)).then_some(version)
}

fn lost(error: std::io::Error) -> Error {
    Error::from_io("connect", error)
}

/// A near end's greeting, as received.
#[derive(Debug)]
pub struct ReceivedHello {
    /// The mark it expects.
    pub mark: [u8; MAGIC.len() + NONCE],
    hello: Result<Hello>,
}

impl ReceivedHello {
    /// The far end that is to be joined, and not this one.
    pub fn joins(&self) -> Option<&str> {
        self.hello.as_ref().ok()?.joins.as_deref()
    }

    /// The version of the messages that both speak.
    pub fn version(&self) -> Option<u32> {
        self.hello.as_ref().ok().and_then(|hello| common(hello.oldest, hello.newest))
    }

    /// Which frames are compressed.
    pub fn packing(&self) -> Packing {
        self.hello.as_ref().map(|hello| hello.packing).unwrap_or_default()
    }
}

/// The near end's half: says `hello`, waits for the far end behind what its shell prints, and gives what that says of itself.
///
/// Errors: `Unreachable` with what was printed instead, or with what the far end refuses for.
pub async fn greet(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    nonce: [u8; NONCE],
    hello: &Hello,
) -> Result<About> {
    let mark = [&MAGIC[..], &nonce].concat();
    // On a pipe that the other end no longer reads, its output gives the reason.
    let greeting = async {
        to.write_all(&mark).await?;
        message::frame(crate::frame::Kind::Request, 0, hello)?.write(to).await?;
        to.flush().await
    };
    let greeting = greeting.await;
    let noise = skip(from, &mark).await?;
    if let Some(noise) = noise {
        return Err(Error::new(ErrorKind::Unreachable, "connect", instead(&noise)));
    }
    greeting.map_err(lost)?;
    let answer = Frame::read_plain(from).await.map_err(lost)?;
    match answer.as_ref().map(message::read::<HelloResponse>) {
        Some(Ok(HelloResponse::Serves { version, about, .. })) if common(version, version) == Some(version) => {
            Ok(about)
        }
        Some(Ok(HelloResponse::Serves { build, .. })) => {
            let why =
                format!("haul there ({build}) speaks no version of the messages that this one ({}) knows", hello.build);
            Err(Error::new(ErrorKind::Unreachable, "connect", why))
        }
        Some(Ok(HelloResponse::Refuses(why))) => Err(Error::new(ErrorKind::Denied, "connect", why)),
        Some(Err(error)) => Err(error),
        None => Err(Error::new(ErrorKind::Unreachable, "connect", "the far end closed before it answered")),
    }
}

impl Hello {
    /// This build's.
    pub fn of_this(packing: Packing) -> Hello {
        Hello { oldest: OLDEST, newest: VERSION, build: env!("CARGO_PKG_VERSION").to_owned(), packing, joins: None }
    }
}

/// The far end's half: waits for a near end. `None` if none came.
///
/// Errors: the pipe's; `InvalidData` when the other end isn't haul.
pub async fn hear(from: &mut (impl AsyncRead + Unpin)) -> std::io::Result<Option<ReceivedHello>> {
    let mut mark = [0; MAGIC.len() + NONCE];
    for (at, byte) in mark.iter_mut().enumerate() {
        *byte = from.read_u8().await?;
        // Early: an end that speaks another protocol sends little before it waits for an answer.
        if MAGIC.get(at).is_some_and(|own| own != byte) {
            return Err(std::io::Error::new(std::io::ErrorKind::InvalidData, "what calls is no haul"));
        }
    }
    let Some(frame) = Frame::read_plain(from).await? else { return Ok(None) };
    Ok(Some(ReceivedHello { mark, hello: message::read(&frame) }))
}

/// Answers what was heard. False where both have no version in common.
///
/// Errors: the pipe's.
pub async fn answer(heard: ReceivedHello, to: &mut (impl AsyncWrite + Unpin), about: About) -> std::io::Result<bool> {
    let build = env!("CARGO_PKG_VERSION").to_owned();
    let welcome = match heard.hello {
        Err(error) => HelloResponse::Refuses(error.message().to_owned()),
        Ok(hello) => match common(hello.oldest, hello.newest) {
            Some(version) => HelloResponse::Serves { version, build, about },
            None => {
                let why = format!("haul there ({build}) is too far from version {} to understand it", hello.build);
                HelloResponse::Refuses(why)
            }
        },
    };
    let serves = matches!(welcome, HelloResponse::Serves { .. });
    say(&heard.mark, &welcome, to).await?;
    Ok(serves)
}

/// Answers a pipe that joins a far end that has answered before.
///
/// Errors: the pipe's.
pub async fn answer_again(
    mark: &[u8],
    version: u32,
    packing: Packing,
    to: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let build = env!("CARGO_PKG_VERSION").to_owned();
    let about = About { history: packing.history, ..About::default() };
    say(mark, &HelloResponse::Serves { version, build, about }, to).await
}

async fn say(mark: &[u8], welcome: &HelloResponse, to: &mut (impl AsyncWrite + Unpin)) -> std::io::Result<()> {
    to.write_all(mark).await?;
    message::frame(crate::frame::Kind::Answer, 0, welcome)?.write(to).await?;
    to.flush().await
}

/// Reads up to the end of `mark`; what came in its place, when it doesn't come.
///
/// Errors: the pipe's.
async fn skip(from: &mut (impl AsyncRead + Unpin), mark: &[u8]) -> Result<Option<Vec<u8>>> {
    let mut seen = Vec::new();
    while !seen.ends_with(mark) {
        // Byte by byte: what follows the mark is somebody else's. The pipe is read through a buffer.
        match from.read_u8().await {
            Ok(byte) if seen.len() < NOISE => seen.push(byte),
            Ok(_) => return Ok(Some(seen)),
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(Some(seen)),
            Err(error) => return Err(lost(error)),
        }
    }
    Ok(None)
}

/// In one line, what the other end said that isn't haul.
fn instead(noise: &[u8]) -> String {
    let text = String::from_utf8_lossy(noise);
    let last = text.lines().map(str::trim).rfind(|line| !line.is_empty());
    match last {
        Some(line) => {
            let line: String = line.chars().filter(|c| !c.is_control()).take(200).collect();
            format!("no haul answered there, but: {line}")
        }
        None => "no haul answered there".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALWAYS: Packing = Packing { when: crate::compression::Compression::Always, level: None, history: true };

    #[test]
    fn the_older_of_the_newest_versions_is_taken() {
        assert_eq!(common(VERSION, VERSION + 3), Some(VERSION));
        assert_eq!(common(OLDEST, OLDEST), Some(OLDEST));
        assert_eq!(common(VERSION + 1, VERSION + 1), None);
    }

    #[tokio::test]
    async fn both_ends_find_each_other_after_a_shells_greeting() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (mut near_from, mut near_to) = tokio::io::split(near);
        let far = async move {
            let (mut from, mut to) = tokio::io::split(far);
            to.write_all(b"Welcome to node 7\r\n\x00haulfa \x00haulfar no\n").await.unwrap();
            let heard = hear(&mut from).await.unwrap().unwrap();
            assert_eq!((heard.packing(), heard.joins()), (ALWAYS, None));
            assert!(answer(heard, &mut to, sample_about()).await.unwrap());
            (from, to)
        };
        let hello = Hello::of_this(ALWAYS);
        let (about, _far) = tokio::join!(greet(&mut near_from, &mut near_to, [7; 16], &hello), far);
        assert_eq!(about.unwrap(), sample_about());
    }

    fn sample_about() -> About {
        let rights = Rights { any_owner: true, groups: [7, 8].into(), ..Rights::default() };
        let joins = Some("x".into());
        About {
            rights: Some(rights),
            confined: true,
            packs: true,
            keeps: true,
            joins,
            listens: true,
            history: true,
            bundles: true,
            small_blocks: true,
            opens_along: true,
        }
    }

    #[test]
    fn both_ends_agree_only_on_what_both_know() {
        let alone = Packing { history: false, ..ALWAYS };
        assert_eq!(sample_about().agreed(ALWAYS), ALWAYS);
        assert_eq!(sample_about().agreed(alone), alone);
        let old = About { history: false, ..sample_about() };
        assert_eq!(old.agreed(ALWAYS), alone);
        assert_eq!(About::default().agreed(ALWAYS), Packing::default());
        assert_eq!(About::default().agreed_further(ALWAYS), alone, "an older one took a further pipe in");
    }

    /// Greeting of a version 1 end, byte by byte: its hello as recorded, with a nonce of sevens.
    const OLD_HELLO: &[u8] = b"\x00haulfar\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\
        \x00\x00\x00\x22\x01\x00\x00\x00\x00\x83\xa6oldest\x01\xa6newest\x01\xa5build\xa50.1.0";

    /// And its answer to one.
    const OLD_WELCOME: &[u8] = b"\x00haulfar\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\x07\
        \x00\x00\x00\x23\x02\x00\x00\x00\x00\x81\xa6Serves\x82\xa7version\x01\xa5build\xa50.1.0";

    #[tokio::test]
    async fn an_end_of_an_older_version_is_understood() {
        let about =
            greet(&mut &OLD_WELCOME[..], &mut tokio::io::sink(), [7; 16], &Hello::of_this(ALWAYS)).await.unwrap();
        assert_eq!(about, About::default(), "it keeps no attributes, and reads no compressed frames");
        let mut greeting = Vec::new();
        let heard = hear(&mut &OLD_HELLO[..]).await.unwrap().unwrap();
        assert_eq!((heard.packing(), heard.joins()), (Packing::default(), None));
        assert!(answer(heard, &mut greeting, sample_about()).await.unwrap());
        // It reads the answer as its own kind with one more field.
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename = "Welcome")]
        enum Old {
            Serves { version: u32, build: String },
        }
        let frame = Frame::read_plain(&mut &greeting[MAGIC.len() + NONCE..]).await.unwrap().unwrap();
        let Old::Serves { version, build } = message::read(&frame).unwrap();
        assert_eq!((version, build.as_str()), (1, env!("CARGO_PKG_VERSION")));
    }

    #[tokio::test]
    async fn a_far_end_of_other_times_is_refused() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (mut near_from, mut near_to) = tokio::io::split(near);
        let far = async move {
            let (mut from, mut to) = tokio::io::split(far);
            let heard = hear(&mut from).await.unwrap().unwrap();
            (answer(heard, &mut to, sample_about()).await.unwrap(), from, to)
        };
        let newer = Hello { oldest: VERSION + 1, newest: VERSION + 2, build: "99".into(), ..Hello::of_this(ALWAYS) };
        let (refused, far) = tokio::join!(greet(&mut near_from, &mut near_to, [7; 16], &newer), far);
        assert!(!far.0);
        let expected =
            format!("haul there ({}) is too far from version 99 to understand it", env!("CARGO_PKG_VERSION"));
        let error = refused.unwrap_err();
        assert_eq!((error.kind(), error.message()), (ErrorKind::Denied, expected.as_str()));
    }

    #[tokio::test]
    async fn what_is_no_haul_is_told_by_its_last_line() {
        for (printed, told) in [
            (
                &b"motd\nbash: line 1: haul: command not found\n\n"[..],
                "no haul answered there, but: bash: line 1: haul: command not found",
            ),
            (b"", "no haul answered there"),
        ] {
            let mut to = tokio::io::sink();
            let error = greet(&mut &printed[..], &mut to, [7; 16], &Hello::of_this(ALWAYS)).await.unwrap_err();
            assert_eq!((error.kind(), error.message()), (ErrorKind::Unreachable, told));
        }
        let endless = vec![b'x'; 2 * NOISE];
        assert!(
            greet(&mut endless.as_slice(), &mut tokio::io::sink(), [7; 16], &Hello::of_this(ALWAYS)).await.is_err()
        );
    }
}
