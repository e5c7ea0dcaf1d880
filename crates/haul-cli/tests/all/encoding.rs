//! Names as services take them, beside rclone's: it writes each name to a disk in each encoding, and what is there is what we would
//! have made of it.

use haul_core::encoding::Encoding;
use haul_testkit::lab::Lab;
use std::{collections::BTreeMap, ffi::OsString, fs, os::unix::ffi::OsStringExt};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// What rclone's remotes use, and all at once.
const MASKS: [&str; 8] = [
    // Drive; on a disk a slash must be replaced too.
    "Slash,InvalidUtf8",
    // Dropbox.
    "Slash,BackSlash,Del,RightSpace,InvalidUtf8,Dot",
    // OneDrive.
    "Slash,LtGt,DoubleQuote,Colon,Question,Asterisk,Pipe,BackSlash,Del,Ctl,LeftSpace,LeftTilde,RightSpace,RightPeriod,InvalidUtf8,Dot",
    // Box.
    "Slash,BackSlash,Del,Ctl,RightSpace,InvalidUtf8,Dot",
    // Azure.
    "Slash,BackSlash,Del,Ctl,RightPeriod,InvalidUtf8",
    // Google Cloud Storage.
    "Slash,CrLf,InvalidUtf8,Dot",
    "Slash,SingleQuote,BackQuote,Dollar,Hash,Percent,SquareBracket,Semicolon,Exclamation,LeftPeriod,LeftCrLfHtVt,RightCrLfHtVt",
    "Slash",
];

/// Every character that is ever replaced, its symbol, the quote before both, at the beginning, within and at the end.
fn names() -> Vec<Vec<u8>> {
    let mut odd: Vec<String> = (1u8..0x80)
        .filter(|byte| !byte.is_ascii_alphanumeric() && *byte != b'/')
        .map(|byte| char::from(byte).to_string())
        .collect();
    let symbols =
        (0x2400..0x2424).chain(0xff01..0xff10).chain(0xff1a..0xff20).chain(0xff3b..0xff41).chain(0xff5b..0xff5f);
    odd.extend(symbols.filter_map(char::from_u32).map(String::from));
    let mut names = Vec::new();
    for odd in odd {
        for quote in ["", "‛"] {
            for (before, after) in [("", "x"), ("x", "x"), ("x", "")] {
                names.push(format!("{before}{quote}{odd}{after}").into_bytes());
            }
        }
    }
    let whole = [
        "．",
        "．．",
        "...",
        "‛．",
        "．x．",
        "‛",
        "x‛",
        "‛‛x",
        "x‛41",
        "．．．",
        " ",
        "~",
        "é",
        "e\u{301}",
        "a\u{2028}b",
    ];
    names.extend(whole.iter().map(|name| name.as_bytes().to_vec()));
    names.extend([&b"a\xff"[..], b"\xc3x", b"x\xe2\x82", b"a\xed\xa0\x80"].map(<[u8]>::to_vec));
    names
}

#[test]
fn names_are_replaced_as_by_rclone() {
    let lab = Lab::new(HAUL);
    if !lab.has_rclone() {
        return;
    }
    fs::write(lab.config(), "").expect("config");
    // By its content each file is known again.
    let mut ours = BTreeMap::new();
    for (number, name) in names().into_iter().enumerate() {
        let path = lab.path("src").join(OsString::from_vec(name.clone()));
        fs::create_dir_all(lab.path("src")).expect("folder");
        fs::write(path, number.to_string()).expect("written");
        ours.insert(number.to_string(), name);
    }
    for (number, mask) in MASKS.iter().enumerate() {
        let encoding = Encoding::parse(mask).expect("known");
        // Names with a quote that quotes nothing it can't read back itself from a disk, and says so, unless it takes them as they are.
        for (from, least) in [("Slash,Dot", 400), ("Raw", 780)] {
            let to = lab.path(&format!("to{number}{from}"));
            let [src, dst] = [(from, &lab.path("src")), (*mask, &to)]
                .map(|(encoding, path)| format!(":local,encoding='{encoding}':{}", path.display()));
            lab.rclone(&["copy", &src, &dst, "--no-unicode-normalization", "--retries=1"]);
            let mut seen = 0;
            for file in fs::read_dir(&to).expect("there") {
                let file = file.expect("read");
                let theirs = file.file_name().into_vec();
                let name = &ours[&fs::read_to_string(file.path()).expect("read")];
                let text = String::from_utf8_lossy(name).into_owned();
                // Where it takes names as they are, a wide slash is no slash.
                let other = from == "Raw" && (text.contains(['／', '␀']) || text.trim_matches(['‛', '．']).is_empty());
                // Two quotes are one to it, so two names are one.
                if other || text == "‛‛x" {
                    continue;
                }
                seen += 1;
                let made = encoding.encode(name);
                // It takes a name that it can't read back itself.
                if let Some(made) = made {
                    assert_eq!(String::from_utf8_lossy(&made), String::from_utf8_lossy(&theirs), "{text} with {mask}");
                } else {
                    assert!(text.contains('‛'), "{text} with {mask}");
                }
            }
            assert!(seen >= least, "{seen} names with {mask}, from {from}");
        }
    }
}
