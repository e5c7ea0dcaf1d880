//! `ncdu` with the real binary on a terminal of its own, which `script` of util-linux makes; and without one.

use haul_testkit::{
    lab::{Lab, until},
    peers,
};
use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Child, Command, Stdio},
};

const HAUL: &str = env!("CARGO_BIN_EXE_haul");

/// haul on a terminal of 80 columns and 24 lines: what it draws goes to a file.
struct Drawn {
    lab: Lab,
    child: Child,
}

impl Drawn {
    /// `None` where there is no `script`.
    fn start(args: &str) -> Option<Drawn> {
        let script = peers::need("script")?;
        let lab = Lab::new(HAUL);
        for (name, size) in [("d/large", 70_000), ("d/small", 10), ("top", 1000)] {
            let path = lab.path("data").join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![b'x'; size]).unwrap();
        }
        let data = lab.path("data");
        let line = format!("stty rows 24 cols 80; {HAUL} ncdu {args} {}; echo code=$?; stty -a", data.display());
        let mut command: Command = lab.command(Path::new(&script));
        command.args(["-qfec", &line]).arg(lab.path("screen")).env("TERM", "xterm").env_remove("NO_COLOR");
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Some(Drawn { lab, child })
    }

    fn written(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.lab.path("screen")).unwrap_or_default()).into_owned()
    }

    /// The terminal's lines as a person sees them: only what changes is written.
    fn screen(&self) -> String {
        let mut cells = vec![vec![' '; 80]; 24];
        let (mut row, mut column) = (0, 0);
        let written = self.written();
        let mut letters = written.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '\x1b' if letters.next() == Some('[') => {
                    let rest: String = letters.as_str().chars().take_while(|c| !c.is_ascii_alphabetic()).collect();
                    let end = letters.nth(rest.chars().count());
                    if let (Some('H'), Some((r, c))) = (end, rest.split_once(';')) {
                        (row, column) = (r.parse::<usize>().unwrap() - 1, c.parse::<usize>().unwrap() - 1);
                    }
                }
                '\n' => (row, column) = (row + 1, 0),
                '\r' => column = 0,
                letter => {
                    if let Some(cell) = cells.get_mut(row).and_then(|row| row.get_mut(column)) {
                        *cell = letter;
                    }
                    column += 1;
                }
            }
        }
        cells.into_iter().map(|row| row.into_iter().collect::<String>() + "\n").collect()
    }

    #[track_caller]
    fn shows(&mut self, text: &str) {
        assert!(until(|| self.screen().contains(text)), "{text:?} isn't shown:\n{}", self.screen());
    }

    fn press(&mut self, keys: &str) {
        self.child.stdin.as_mut().unwrap().write_all(keys.as_bytes()).unwrap();
    }

    /// Ended in order: the terminal is as it was.
    #[track_caller]
    fn ends(mut self, code: i32) -> String {
        let end = format!("code={code}\r");
        let ended = until(|| self.written().contains(&end) && self.written().contains("echoctl"));
        assert!(ended, "{:?}", self.written());
        let screen = self.written();
        self.child.kill().ok();
        self.child.wait().unwrap();
        assert!(screen.contains("\x1b[?1049l") && screen.contains("\x1b[?25h"), "{screen:?}");
        let after = screen.rsplit("code=").next().unwrap();
        let modes: Vec<&str> = after.split_whitespace().collect();
        assert!(modes.contains(&"icanon") && modes.contains(&"echo"), "{after}");
        screen
    }
}

#[test]
fn one_looks_deletes_after_a_yes_and_quits() {
    let Some(mut drawn) = Drawn::start("") else { return };
    let path = |drawn: &Drawn, name: &str| drawn.lab.path("data").join(name);
    drawn.shows("3 files");
    // Anything but y is a no.
    drawn.press("d");
    drawn.shows("Delete d/ with all that is in it (2 files, 68.369 KiB)? [y/N]");
    drawn.press("\r");
    drawn.shows("Nothing deleted.");
    assert!(path(&drawn, "d/large").exists());
    drawn.press("\r");
    drawn.shows("] small");
    drawn.press("dy");
    drawn.shows("Deleted ");
    assert!(!path(&drawn, "d/large").exists() && path(&drawn, "d/small").exists());
    // Back out, to the first by name, which is the directory.
    drawn.press("hnd");
    drawn.shows("Delete d/ with all that is in it (1 file, 10 B)? [y/N]");
    drawn.press("y");
    assert!(until(|| !path(&drawn, "d").exists()));
    assert!(path(&drawn, "top").exists());
    drawn.press("q");
    drawn.ends(0);
}

#[test]
fn ctrl_c_gives_the_terminal_back_and_a_dry_run_deletes_nothing() {
    let Some(mut drawn) = Drawn::start("--dry-run") else { return };
    drawn.shows("3 files");
    drawn.press("dy");
    drawn.shows("as --dry-run is set");
    assert!(drawn.lab.path("data/d/large").exists());
    drawn.press("\x03");
    drawn.ends(0);
}

#[test]
fn there_are_no_colours_where_nobody_wants_them() {
    for (flag, colours) in [("--color=never", false), ("--color=always", true)] {
        let Some(mut drawn) = Drawn::start(flag) else { return };
        drawn.shows("3 files");
        // So that the directory isn't the selected line.
        drawn.press("j");
        drawn.press("q");
        let screen = drawn.ends(0);
        // Blue, as crossterm writes it.
        assert_eq!(screen.contains("\x1b[38;5;4;"), colours, "{screen:?}");
    }
}

#[test]
fn without_a_terminal_it_says_what_to_use() {
    let lab = Lab::new(HAUL);
    let ran = lab.haul(&["ncdu", "/"]).code(2);
    assert_eq!(ran.err, "haul: ncdu needs a terminal: use haul size or haul tree --size\n");
}
