//! Options of a crypt remote, as rclone names them.

use crate::{
    keys::Keys,
    names::{Encoding, Mode, Names},
};
use haul_core::{Error, ErrorKind, Result};
use haul_store::{OptionKind, OptionSpec};
use std::collections::BTreeMap;

const fn option(name: &'static str, kind: OptionKind, default: &'static str, help: &'static str) -> OptionSpec {
    OptionSpec { name, help, default, kind, advanced: false, secret: false, examples: &[] }
}

const fn advanced(option: OptionSpec) -> OptionSpec {
    OptionSpec { advanced: true, ..option }
}

/// Every option.
pub const OPTIONS: &[OptionSpec] = &[
    option(
        "remote",
        OptionKind::Remote,
        "",
        "The remote and path that hold the encrypted files, such as minio:bucket/secret. Give crypt a directory of its own.",
    ),
    OptionSpec {
        examples: &[
            ("standard", "encrypt names"),
            ("obfuscate", "exchange letters: hides names from a glance only"),
            ("off", "keep names, with a suffix"),
        ],
        ..option("filename_encryption", OptionKind::Text, "standard", "How to encrypt the names of files.")
    },
    option(
        "directory_name_encryption",
        OptionKind::Bool,
        "true",
        "Treat names of directories like those of files. With false they stay as they are.",
    ),
    OptionSpec {
        secret: true,
        ..option(
            "password",
            OptionKind::Obscured,
            "",
            "The password. Without it nobody can ever read the files again: keep it in a second place.",
        )
    },
    OptionSpec {
        secret: true,
        ..option(
            "password2",
            OptionKind::Obscured,
            "",
            "A second password (salt). Recommended; it should differ from the first. Without it, rclone's salt is used.",
        )
    },
    advanced(OptionSpec {
        examples: &[
            ("base32", "for every store"),
            ("base64", "shorter; for stores that tell upper and lower case apart"),
            ("base32768", "for stores that count a name's length in UTF-16 characters, such as OneDrive"),
        ],
        ..option("filename_encoding", OptionKind::Text, "base32", "How encrypted names are written.")
    }),
    advanced(option(
        "suffix",
        OptionKind::Text,
        ".bin",
        "Suffix of names that aren't encrypted (filename_encryption off); none for no suffix.",
    )),
    advanced(option("no_data_encryption", OptionKind::Bool, "false", "Encrypt only names, not content.")),
    advanced(option(
        "strict_names",
        OptionKind::Bool,
        "",
        "What to do with a name that can't be decrypted: true makes its directory an error, false leaves the name out with a notice. By default the name is an error, and nothing is deleted.",
    )),
];

/// Treatment of a name that can't be decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strict {
    /// An error beside the others of its directory: what it is called is unknown, so that nothing counts as missing there.
    Counted,
    /// The end of its directory.
    Refused,
    /// Nothing.
    LeftOut,
}

/// Settings from the options.
pub struct Settings {
    /// How names go.
    pub names: Names,
    /// The key of content; `None` where content stays as it is.
    pub data: Option<[u8; 32]>,
    /// Treatment of foreign names.
    pub strict: Strict,
    /// Equal for two remotes that encrypt alike, and useless for decrypting.
    pub alike: String,
}

/// Reads the options of a remote, in which passwords are revealed already.
///
/// Errors: `Invalid`, naming the option.
pub fn settings(options: &BTreeMap<String, String>) -> Result<Settings> {
    let text = |name: &str| options.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let is = |name: &str, default: bool| text(name).map_or(default, |value| value == "true");
    let invalid = |message: String| Error::new(ErrorKind::Invalid, "open", message);
    let choice = |name: &str, of: &str| invalid(format!("the option {name} of a crypt remote is one of {of}"));
    let mode = match text("filename_encryption").unwrap_or("standard").to_ascii_lowercase().as_str() {
        "standard" => Mode::Standard,
        "obfuscate" => Mode::Obfuscate,
        "off" => Mode::Off,
        _ => return Err(choice("filename_encryption", "standard, obfuscate, off")),
    };
    let encoding = match text("filename_encoding").unwrap_or("base32").to_ascii_lowercase().as_str() {
        "base32" => Encoding::Base32,
        "base64" => Encoding::Base64,
        "base32768" => Encoding::Base32768,
        _ => return Err(choice("filename_encoding", "base32, base64, base32768")),
    };
    let suffix = match text("suffix").unwrap_or(".bin") {
        none if none.eq_ignore_ascii_case("none") => String::new(),
        dotted if dotted.starts_with('.') => dotted.to_owned(),
        bare => format!(".{bare}"),
    };
    let Some(password) = text("password") else {
        return Err(invalid("a crypt remote needs a password: set it with haul config".into()));
    };
    let keys = Keys::new(password, text("password2").unwrap_or_default())?;
    let plain = is("no_data_encryption", false);
    let dirs = is("directory_name_encryption", true);
    let mut print = aws_lc_rs::digest::Context::new(&aws_lc_rs::digest::SHA256);
    for part in [&b"haul crypt"[..], &keys.data, &keys.name, &keys.tweak] {
        print.update(part);
    }
    let print =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD_NO_PAD, &print.finish().as_ref()[..12]);
    let alike = format!("{print} {mode:?} {encoding:?} {dirs} {plain} {suffix}");
    Ok(Settings {
        data: (!plain).then_some(keys.data),
        names: Names::new(&keys, mode, dirs, encoding, suffix.into_bytes()),
        strict: match text("strict_names") {
            None => Strict::Counted,
            Some(_) if is("strict_names", false) => Strict::Refused,
            Some(_) => Strict::LeftOut,
        },
        alike,
    })
}
