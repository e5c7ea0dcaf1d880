//! The loaded files together: lookups through both, changes to one.

// The config file is read and written here and nowhere else.
#![allow(clippy::disallowed_methods)]

use super::{
    crypt,
    crypt::Secret,
    file::{Ini, Malformed},
    paths::ConfigPaths,
};
use crate::{Environment, Error, Result};
use haul_core::text;
use std::{
    ffi::OsString,
    fmt, fs,
    io::{self, ErrorKind, Write as _},
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Once},
    thread,
    time::Duration,
};

/// Another process changes the file for milliseconds, or while it asks a service for a token.
const LOCK_WAIT: Duration = Duration::from_millis(50);
const LOCK_TRIES: usize = 2400;
/// So often a file that was there is looked for.
const GONE_TRIES: usize = 20;

/// That a file system has no locks is said once.
static UNLOCKED: Once = Once::new();

/// Asks a person for the password of a file; the flag says that the last answer was wrong.
pub type AskPassword = Arc<dyn Fn(&Path, bool) -> Result<String> + Send + Sync>;

/// Where the password of an encrypted file comes from.
#[derive(Clone, Default)]
pub struct Password {
    /// `--password-command`.
    pub command: Option<String>,
    /// `HAUL_CONFIG_PASS` or `RCLONE_CONFIG_PASS`.
    pub env: Option<OsString>,
    /// A person, if one may be asked (`--ask-password`).
    pub ask: Option<AskPassword>,
}

/// Without the password.
impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Password").finish_non_exhaustive()
    }
}

/// One loaded file.
#[derive(Debug)]
pub struct Source {
    /// Where it is.
    pub path: PathBuf,
    /// Its contents.
    pub ini: Ini,
    /// Its key, when it is encrypted.
    pub secret: Option<Secret>,
    /// It was there when it was read.
    pub exists: bool,
}

/// All loaded files; earlier ones count first. The first is the one that new remotes go to.
#[derive(Debug)]
pub struct Config {
    sources: Vec<Source>,
    password: Password,
}

impl Config {
    /// Reads the files. One that isn't there is an empty one.
    ///
    /// Errors: a file that can't be read, a malformed line (file and line are named), a wrong password.
    pub fn load(places: &ConfigPaths, password: Password) -> Result<Config> {
        let paths = match places {
            ConfigPaths::Nowhere => vec![],
            ConfigPaths::Only(path) => vec![path],
            ConfigPaths::Both { own, rclone } if own == rclone => vec![own],
            ConfigPaths::Both { own, rclone } => vec![own, rclone],
        };
        let sources = paths.into_iter().map(|path| load(path, &password)).collect::<Result<_>>()?;
        Ok(Config { sources, password })
    }

    /// The files, in the order in which they count.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Names of all remotes, in the files' order, each once.
    pub fn remotes(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for name in self.sources.iter().flat_map(|s| s.ini.sections()) {
            if name != "DEFAULT" && !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    /// The file that defines a remote.
    pub fn source(&self, remote: &str) -> Option<&Source> {
        self.sources.iter().find(|s| s.ini.has(remote))
    }

    /// A remote's option.
    pub fn get(&self, remote: &str, key: &str) -> Option<String> {
        self.source(remote)?.ini.get(remote, key)
    }

    /// All options of a remote, in order.
    pub fn options(&self, remote: &str) -> Vec<(String, String)> {
        let Some(source) = self.source(remote) else { return Vec::new() };
        let value = |key: &str| source.ini.get(remote, key).unwrap_or_default();
        source.ini.keys(remote).into_iter().map(|key| (key.to_string(), value(key))).collect()
    }

    /// Changes the file that defines `remote` (the first file, when none does), and writes it. Says which file it was.
    ///
    /// Errors: `edit` fails; there is no file to write to, or it can't be written.
    pub fn change<T, E: From<Error>>(
        &mut self,
        remote: &str,
        edit: impl FnOnce(&mut Ini) -> Result<T, E>,
    ) -> Result<(T, PathBuf), E> {
        let at = self.sources.iter().position(|s| s.ini.has(remote)).unwrap_or(0);
        // A new file is as closed as the one in use.
        let in_use = self.file().and_then(|file| file.secret.clone());
        let source = self.main_at(at)?;
        if !source.exists {
            source.secret = in_use;
        }
        // Changes that others wrote meanwhile, such as a token, stay.
        let _lock = FileLock::take(&source.path)?;
        let mut ini = source.again()?;
        let answer = edit(&mut ini)?;
        save(&source.path, &ini, source.secret.as_ref())?;
        source.ini = ini;
        source.exists = true;
        Ok((answer, source.path.clone()))
    }

    /// Gives the file in use another password, or none.
    pub fn set_secret(&mut self, secret: Option<Secret>) -> Result<PathBuf> {
        let at = self.in_use();
        let source = self.main_at(at)?;
        let _lock = FileLock::take(&source.path)?;
        source.ini = source.again()?;
        save(&source.path, &source.ini, secret.as_ref())?;
        source.secret = secret;
        source.exists = true;
        Ok(source.path.clone())
    }

    /// The file that people mean by "the config file": the first that exists, else the first.
    pub fn file(&self) -> Option<&Source> {
        self.sources.get(self.in_use())
    }

    /// The password's ways.
    pub fn password(&self) -> &Password {
        &self.password
    }

    fn in_use(&self) -> usize {
        self.sources.iter().position(|s| s.exists).unwrap_or(0)
    }

    fn main_at(&mut self, at: usize) -> Result<&mut Source> {
        self.sources.get_mut(at).ok_or_else(|| Error::config("can't save: --config \"\" names no file"))
    }
}

impl Password {
    /// The one that the environment gives.
    pub fn from_environment(environment: &Environment) -> Password {
        let env = environment.get("HAUL_CONFIG_PASS").or_else(|| environment.get("RCLONE_CONFIG_PASS"));
        Password { env, ..Password::default() }
    }

    /// The password that the command or the environment gives.
    pub fn without_asking(&self) -> Result<Option<String>> {
        match &self.command {
            Some(command) => run(command).map(Some),
            None => Ok(self.env.as_ref().map(|t| t.to_string_lossy().into_owned())),
        }
    }

    /// The key to a file, by command, environment or question; `open` tells whether a key fits.
    fn find(&self, path: &Path, fits: impl Fn(&Secret) -> Result<bool>) -> Result<Secret> {
        if let Some(text) = self.without_asking()? {
            let secret = Secret::new(&text)?;
            let from =
                if self.command.is_some() { "--password-command" } else { "HAUL_CONFIG_PASS or RCLONE_CONFIG_PASS" };
            return match fits(&secret)? {
                true => Ok(secret),
                false => {
                    let path = path.display();
                    Err(Error::config(format!("can't decrypt {path}: the password from {from} is wrong")))
                }
            };
        }
        let Some(ask) = &self.ask else {
            let path = path.display();
            let why =
                format!("{path} is encrypted: set HAUL_CONFIG_PASS or --password-command, or allow --ask-password");
            return Err(Error::Config(why));
        };
        let mut again = false;
        loop {
            match Secret::new(&ask(path, again)?) {
                Ok(secret) if fits(&secret)? => return Ok(secret),
                _ => again = true,
            }
        }
    }
}

/// Runs a command (words apart by space, double quotes around a word with spaces) and takes its output as password.
fn run(command: &str) -> Result<String> {
    let words = text::words(command);
    let Some((program, args)) = words.split_first() else { return Err(Error::config("--password-command is empty")) };
    let output = Command::new(program).args(args).stderr(std::process::Stdio::inherit()).output();
    let output = output.map_err(|e| Error::system(format!("can't run --password-command {program}"), e))?;
    if !output.status.success() {
        return Err(Error::config(format!("--password-command {program} failed: {}", output.status)));
    }
    let text = String::from_utf8(output.stdout).map_err(|_| Error::config("--password-command gave no UTF-8 text"))?;
    Ok(text.trim_matches(['\r', '\n']).to_string())
}

/// A config file that nobody else of us changes. It is the file itself that is locked, so nothing is left beside it.
pub struct FileLock {
    _file: fs::File,
}

impl FileLock {
    /// Waits for its turn, a bounded time. A file that isn't there yet is made, empty: two who begin one must not each believe to be alone.
    /// `None` where there is nothing to lock: a file that can't be written, or a file system without locks.
    ///
    /// Errors: somebody else doesn't let go of it.
    pub fn take(path: &Path) -> Result<Option<FileLock>> {
        if let Some(folder) = path.parent() {
            // Where that fails, so does what comes next.
            let _ = fs::create_dir_all(folder);
        }
        for _ in 0..LOCK_TRIES {
            let mut options = fs::OpenOptions::new();
            let made = options.read(true).write(true).create(true).truncate(false).mode(0o600).open(path);
            let Ok(file) = made else { return Ok(None) };
            match file.try_lock() {
                // The previous holder may have put another file in its place.
                Ok(()) if is_at(&file, path) => return Ok(Some(FileLock { _file: file })),
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => thread::sleep(LOCK_WAIT),
                Err(fs::TryLockError::Error(error)) => {
                    UNLOCKED.call_once(|| tracing::warn!("{}", unlocked(path, &error)));
                    return Ok(None);
                }
            }
        }
        Err(Error::config(format!("another process keeps config file {} locked", path.display())))
    }
}

fn unlocked(path: &Path, error: &io::Error) -> String {
    let path = path.display();
    format!("config file {path} can't be locked ({error}): don't let two programs use its log-ins at the same time")
}

fn is_at(file: &fs::File, path: &Path) -> bool {
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

/// The text of a file; `None` when it isn't there.
fn text_of(path: &Path) -> Result<Option<String>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(e) => return Err(Error::system(format!("can't read config file {}", path.display()), e)),
    };
    let not_text = |_| Error::config(format!("config file {} isn't UTF-8", path.display()));
    String::from_utf8(bytes).map(Some).map_err(not_text)
}

fn parsed(path: &Path, text: &str) -> Result<Ini> {
    let malformed = |e: Malformed| Error::config(format!("config file {}:{}: {}", path.display(), e.line, e.why));
    Ini::parse(text).map_err(malformed)
}

fn load(path: &Path, password: &Password) -> Result<Source> {
    let Some(text) = text_of(path)? else {
        return Ok(Source { path: path.into(), ini: Ini::default(), secret: None, exists: false });
    };
    let (text, secret) = opened(path, text, password)?;
    Ok(Source { path: path.into(), ini: parsed(path, &text)?, secret, exists: true })
}

impl Source {
    /// Current contents. A program that rewrites the file may remove it for a moment, as rclone does: an existing file isn't taken for
    /// missing.
    fn again(&self) -> Result<Ini> {
        for _ in 0..GONE_TRIES {
            let ini = read_again(&self.path, self.secret.as_ref())?;
            if !self.exists || !ini.sections().is_empty() || self.path.exists() {
                return Ok(ini);
            }
            thread::sleep(LOCK_WAIT);
        }
        let path = self.path.display();
        Err(Error::config(format!("config file {path} was there and is gone: run this again if that is right")))
    }
}

/// Current contents of a file with a known key.
///
/// Errors: as for [`Config::load`]; it was given another password meanwhile.
pub fn read_again(path: &Path, secret: Option<&Secret>) -> Result<Ini> {
    let Some(text) = text_of(path)? else { return Ok(Ini::default()) };
    if !crypt::is_encrypted(&text) {
        return parsed(path, &text);
    }
    let decrypted = secret.map(|secret| crypt::decrypt(&text, secret)).transpose()?.flatten();
    let changed = || Error::config(format!("config file {} got another password meanwhile", path.display()));
    parsed(path, &decrypted.ok_or_else(changed)?)
}

/// Writes a file, encrypted if there is a key.
pub fn save(path: &Path, ini: &Ini, secret: Option<&Secret>) -> Result<()> {
    write(path, &sealed(&ini.to_string(), secret)?)
}

fn opened(path: &Path, text: String, password: &Password) -> Result<(String, Option<Secret>)> {
    if !crypt::is_encrypted(&text) {
        return Ok((text, None));
    }
    let of_file = |e: Error| e.within(format!("config file {}", path.display()));
    let decrypt = |secret: &Secret| crypt::decrypt(&text, secret).map_err(of_file);
    let secret = password.find(path, |secret| Ok(decrypt(secret)?.is_some()))?;
    let plain = decrypt(&secret)?.unwrap_or_default();
    Ok((plain, Some(secret)))
}

fn sealed(text: &str, secret: Option<&Secret>) -> Result<String> {
    match secret {
        Some(secret) => crypt::encrypt(text, secret),
        None => Ok(text.to_string()),
    }
}

/// Writes beside and renames, for nobody else to read; a symlink goes on pointing to the file.
fn write(path: &Path, text: &str) -> Result<()> {
    let target = match fs::canonicalize(path) {
        Ok(target) => target,
        Err(_) if fs::symlink_metadata(path).is_ok_and(|it| it.is_symlink()) => {
            let path = path.display();
            return Err(Error::config(format!(
                "config file {path} is a symbolic link to what isn't there: is a disk missing?"
            )));
        }
        Err(_) => path.into(),
    };
    write_to(&target, text).map_err(|e| Error::system(format!("can't write config file {}", path.display()), e))
}

fn write_to(target: &Path, text: &str) -> io::Result<()> {
    let dir = target.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(dir)?;
    let name = target.file_name().ok_or_else(|| io::Error::other("it names no file"))?;
    let mut hidden = OsString::from(".");
    hidden.push(name);
    hidden.push(format!(".{}.new", std::process::id()));
    let beside = dir.join(hidden);
    let done = write_new(&beside, text, fs::metadata(target).ok()).and_then(|()| fs::rename(&beside, target));
    if done.is_err() {
        // The error that counts is the first; a file that isn't there needs no removing.
        let _ = fs::remove_file(&beside);
    }
    done
}

/// For nobody else, or for the group that what it replaces is for. What the world may read is so by chance.
fn write_new(path: &Path, text: &str, old: Option<fs::Metadata>) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    // A leftover of that name might have had another mode.
    file.set_permissions(fs::Permissions::from_mode(0o600))?;
    file.write_all(text.as_bytes())?;
    if let Some(old) = old.filter(|old| old.mode() & 0o007 == 0)
        && std::os::unix::fs::fchown(&file, Some(old.uid()), Some(old.gid())).is_ok()
    {
        file.set_permissions(fs::Permissions::from_mode(0o600 | old.mode() & 0o060))?;
    }
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(dir: &Path) -> ConfigPaths {
        ConfigPaths::Both { own: dir.join("haul.conf"), rclone: dir.join("rclone.conf") }
    }

    #[test]
    fn what_can_not_be_locked_is_said() {
        let message = unlocked(Path::new("/c"), &io::Error::other("no locks"));
        let wanted =
            "config file /c can't be locked (no locks): don't let two programs use its log-ins at the same time";
        assert_eq!(message, wanted);
    }

    #[test]
    fn hauls_own_file_counts_first_and_takes_what_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::write(dir.join("rclone.conf"), "# r\n[a]\ntype = s3\n[b]\ntype = local\n").unwrap();
        fs::write(dir.join("haul.conf"), "[b]\ntype = memory\n").unwrap();
        let mut config = Config::load(&both(dir), Password::default()).unwrap();
        assert_eq!(config.remotes(), ["b", "a"]);
        assert_eq!(config.get("b", "type").as_deref(), Some("memory"));
        let set = |ini: &mut Ini, name: &str| ini.set(name, "x", "1").map_err(Error::Config);
        assert_eq!(config.change("a", |ini| set(ini, "a")).unwrap().1, dir.join("rclone.conf"));
        assert_eq!(config.change("c", |ini| set(ini, "c")).unwrap().1, dir.join("haul.conf"));
        let text = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(text("rclone.conf"), "# r\n[a]\ntype = s3\nx = 1\n[b]\ntype = local\n");
        assert_eq!(text("haul.conf"), "[b]\ntype = memory\n\n[c]\nx = 1\n");
        let mode = fs::metadata(dir.join("rclone.conf")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir).unwrap().count(), 2, "nothing is left beside");
    }

    #[test]
    fn a_symlinked_file_stays_one() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let mut config = Config::load(&ConfigPaths::Only(link.clone()), Password::default()).unwrap();
        config.change("a", |ini| ini.set("a", "type", "local").map_err(Error::Config)).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "[a]\ntype = local\n");
    }

    #[test]
    fn a_link_to_what_is_not_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path().join("disk/conf"), &link).unwrap();
        let mut config = Config::load(&ConfigPaths::Only(link.clone()), Password::default()).unwrap();
        let error = config.change("a", |ini| ini.set("a", "type", "local").map_err(Error::Config)).unwrap_err();
        assert!(error.to_string().contains("a symbolic link to what isn't there"), "{error}");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn a_file_for_a_group_stays_so() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        for (mode, kept) in [(0o640, 0o640), (0o660, 0o660), (0o600, 0o600), (0o644, 0o600), (0o777, 0o600)] {
            fs::write(&path, "").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let mut config = Config::load(&ConfigPaths::Only(path.clone()), Password::default()).unwrap();
            config.change("a", |ini| ini.set("a", "type", "local").map_err(Error::Config)).unwrap();
            assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, kept, "{mode:o}");
        }
    }

    #[test]
    fn two_that_begin_a_file_both_write_into_it() {
        let dir = tempfile::tempdir().unwrap();
        let place = ConfigPaths::Only(dir.path().join("new/c"));
        thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let place = place.clone();
                scope.spawn(move || {
                    let mut config = Config::load(&place, Password::default()).unwrap();
                    config.change(name, |ini| ini.set(name, "type", "local").map_err(Error::Config)).unwrap();
                });
            }
        });
        assert_eq!(Config::load(&place, Password::default()).unwrap().remotes().len(), 4);
    }

    #[test]
    fn an_encrypted_file_opens_with_its_password_and_stays_encrypted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        fs::write(&path, include_str!("../../tests/data/encrypted.conf")).unwrap();
        let load = |env: Option<&str>| {
            let password = Password { env: env.map(OsString::from), ..Default::default() };
            Config::load(&ConfigPaths::Only(path.clone()), password)
        };
        let shown = path.display();
        assert_eq!(
            load(None).unwrap_err().to_string(),
            format!("{shown} is encrypted: set HAUL_CONFIG_PASS or --password-command, or allow --ask-password")
        );
        assert_eq!(
            load(Some("no")).unwrap_err().to_string(),
            format!("can't decrypt {shown}: the password from HAUL_CONFIG_PASS or RCLONE_CONFIG_PASS is wrong")
        );
        let mut config = load(Some("correct horse é ")).unwrap();
        config.change("enc", |ini| ini.set("enc", "x", "1").map_err(Error::Config)).unwrap();
        assert!(crypt::is_encrypted(&fs::read_to_string(&path).unwrap()));
        assert_eq!(load(Some("correct horse é ")).unwrap().get("enc", "x").as_deref(), Some("1"));
        // A new file beside it has the same permissions.
        let own = dir.path().join("own");
        let both = ConfigPaths::Both { own: own.clone(), rclone: path.clone() };
        let password = Password { env: Some(OsString::from("correct horse é ")), ..Default::default() };
        let mut config = Config::load(&both, password).unwrap();
        config.change("new", |ini| ini.set("new", "x", "1").map_err(Error::Config)).unwrap();
        assert!(crypt::is_encrypted(&fs::read_to_string(&own).unwrap()));
    }

    #[test]
    fn a_malformed_file_is_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("c");
        fs::write(&path, "[a]\ntype = local\nbad line\n").unwrap();
        let error = Config::load(&ConfigPaths::Only(path.clone()), Password::default()).unwrap_err();
        let path = path.display();
        assert_eq!(error.to_string(), format!("config file {path}:3: expected [section], a comment or key = value"));
    }
}
