//! Lines about names, in the order in which it was decided what becomes of them, which a dry run has too. The line of a file waits
//! until something of the file has come, and the lines after it wait with it. Made and asked by the sink.

use haul_core::Key;
use std::collections::{HashMap, VecDeque};

/// A line on standard output, and one in the log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct OutputLine {
    /// On standard output.
    pub line: Option<Vec<u8>>,
    /// In the log.
    pub logged: Option<Vec<u8>>,
}

struct WaitingLines {
    output: OutputLine,
    /// The file that is waited for.
    waits: Option<Key>,
}

/// At most this many lines wait, some 10 MB: a file that stalls must not hold back a million others. Its own line is printed
/// early then.
const MOST: usize = 65_536;

/// Lines that can't be told yet.
#[derive(Default)]
pub struct DelayedLines {
    places: VecDeque<WaitingLines>,
    /// How many places there were before the first of these.
    before: u64,
    /// Files whose lines wait, and the numbers of their places.
    files: HashMap<Key, u64>,
}

impl DelayedLines {
    /// A line that waits for those before it alone.
    pub fn add(&mut self, output: OutputLine) {
        self.push(WaitingLines { output, waits: None });
    }

    /// The line of a file that is yet to come.
    pub fn hold(&mut self, file: Key, output: OutputLine) {
        self.lost(&file);
        self.push(WaitingLines { output, waits: Some(file.clone()) });
        self.files.insert(file, self.before + self.places.len() as u64 - 1);
    }

    fn push(&mut self, place: WaitingLines) {
        if self.places.len() >= MOST
            && let Some(file) = self.places.front_mut().and_then(|first| first.waits.take())
        {
            self.files.remove(&file);
        }
        self.places.push_back(place);
    }

    /// True when no file is waited for.
    pub fn is_over(&self) -> bool {
        self.files.is_empty()
    }

    /// Some file that is waited for.
    pub fn any(&self) -> Option<Key> {
        self.files.keys().next().cloned()
    }

    /// A file has arrived; returns the further text for it, if its line doesn't wait.
    pub fn came(&mut self, file: &Key, more: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let Some(place) = self.settle(file) else { return more };
        place.waits = None;
        let lines = [place.output.line.take(), more].into_iter().flatten().collect::<Vec<_>>();
        place.output.line = (!lines.is_empty()).then(|| lines.join(&b'\n'));
        None
    }

    /// A file failed, and nothing is printed for it.
    pub fn lost(&mut self, file: &Key) {
        if let Some(place) = self.settle(file) {
            *place = WaitingLines { output: OutputLine::default(), waits: None };
        }
    }

    fn settle(&mut self, file: &Key) -> Option<&mut WaitingLines> {
        let number = self.files.remove(file)?;
        self.places.get_mut(usize::try_from(number - self.before).ok()?)
    }

    /// The next line that can be told.
    pub fn next(&mut self) -> Option<OutputLine> {
        self.places.front().filter(|place| place.waits.is_none())?;
        self.before += 1;
        self.places.pop_front().map(|place| place.output)
    }

    /// Drops the lines of files that never came.
    pub fn end(&mut self) {
        for file in self.files.keys().cloned().collect::<Vec<_>>() {
            self.lost(&file);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_come_in_order_and_without_what_never_came() {
        let output_line = |text: &str| OutputLine { line: Some(text.into()), logged: None };
        let mut waiting = DelayedLines::default();
        let all = |waiting: &mut DelayedLines| {
            std::iter::from_fn(|| waiting.next())
                .filter_map(|output_line| output_line.line)
                .map(|line| String::from_utf8(line).unwrap())
                .collect::<Vec<_>>()
        };
        waiting.add(output_line("a"));
        waiting.hold(Key::new("b"), output_line("b"));
        waiting.add(output_line("c"));
        waiting.hold(Key::new("d"), output_line("d"));
        waiting.hold(Key::new("e"), output_line("e"));
        assert_eq!(all(&mut waiting), ["a"]);
        assert_eq!(waiting.came(&Key::new("d"), Some("more".into())), None);
        assert_eq!(waiting.came(&Key::new("x"), Some("more".into())), Some("more".into()));
        assert!(all(&mut waiting).is_empty());
        waiting.lost(&Key::new("b"));
        assert_eq!(all(&mut waiting), ["c", "d\nmore"]);
        assert!(!waiting.is_over());
        waiting.add(output_line("f"));
        // A name that comes twice keeps nothing back.
        waiting.hold(Key::new("e"), output_line("e"));
        waiting.end();
        assert!(waiting.is_over());
        assert_eq!(all(&mut waiting), ["f"]);
    }

    #[test]
    fn a_file_that_stands_still_keeps_back_only_so_many_lines() {
        let mut waiting = DelayedLines::default();
        waiting.hold(Key::new("first"), OutputLine { line: Some("first".into()), logged: None });
        let mut released = 0;
        for number in 0..3 * MOST {
            waiting.hold(Key::new(number.to_string()), OutputLine::default());
            assert_eq!(waiting.came(&Key::new(number.to_string()), None), None);
            released += std::iter::from_fn(|| waiting.next()).count();
            assert!(waiting.places.len() <= MOST);
        }
        assert_eq!(released, 3 * MOST + 1);
        assert!(waiting.is_over() && waiting.came(&Key::new("first"), None).is_none());
    }
}
