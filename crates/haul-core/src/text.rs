//! Small rules about text that a person writes: nearest names, words, lists with commas.

/// The candidate most like `word`, if any is near enough to be meant.
pub fn nearest<'a>(word: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.chars().count() / 3).clamp(1, 3);
    let near = candidates.into_iter().map(|c| (distance(word, c), c)).filter(|(d, _)| *d <= limit);
    near.min_by_key(|(d, c)| (*d, c.len())).map(|(_, c)| c)
}

/// Letters to insert, drop, change or swap with a neighbour to make `a` into `b`.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<usize>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let change = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = change.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// Words apart by white space; double quotes keep a word together, `""` inside them is one quote.
pub fn words(text: &str) -> Vec<String> {
    split(text, char::is_whitespace).into_iter().filter(|w| !w.is_empty()).collect()
}

/// The fields of one CSV line.
pub fn csv(text: &str) -> Vec<String> {
    split(text, |c| c == ',')
}

fn split(text: &str, ends: impl Fn(char) -> bool) -> Vec<String> {
    let (mut fields, mut field, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                field.push('"');
                chars.next();
            }
            '"' if quoted || field.is_empty() => quoted = !quoted,
            c if !quoted && ends(c) => fields.push(std::mem::take(&mut field)),
            c => field.push(c),
        }
    }
    fields.push(field);
    fields
}

/// Wraps a text at spaces to lines of at most `width` columns; all but the first begin with `indent`.
pub fn wrap(text: &str, width: usize, indent: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split_whitespace() {
            if !line.is_empty() && columns(&line) + 1 + columns(word) >= width {
                lines.push(std::mem::take(&mut line));
            }
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.join(&format!("\n{indent}"))
}

/// The longest beginning that fits into `width` columns.
pub fn cut(characters: impl Iterator<Item = char>, width: usize) -> impl Iterator<Item = char> {
    let mut used = 0;
    characters.take_while(move |c| {
        used += column_of(*c);
        used <= width
    })
}

/// Columns that a text takes on a terminal.
pub fn columns(text: &str) -> usize {
    text.chars().map(column_of).sum()
}

/// Columns of a character: 2 for East Asian wide ones and emoji, 0 for marks that join the one before.
pub fn column_of(c: char) -> usize {
    match u32::from(c) {
        0x300..=0x36F | 0x200B..=0x200F | 0xFE00..=0xFE0F => 0,
        0x1100..=0x115F | 0x2E80..=0x303E | 0x3041..=0xA4CF | 0xAC00..=0xD7A3 | 0xF900..=0xFAFF => 2,
        0xFE30..=0xFE6F | 0xFF00..=0xFF60 | 0xFFE0..=0xFFE6 | 0x1F300..=0x1FAFF | 0x20000..=0x3FFFD => 2,
        _ => 1,
    }
}

/// `true`, `false`, `1`, `0`, `t`, `f` in any usual case.
pub fn boolean(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "t" | "true" => Some(true),
        "0" | "f" | "false" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_one_a_person_may_have_meant() {
        let names = ["transfers", "checkers", "track-renames", "max-age"];
        for (word, near) in [
            ("transferz", Some("transfers")),
            ("tranfsers", Some("transfers")),
            ("max-aeg", Some("max-age")),
            ("trak-rename", Some("track-renames")),
            ("nosuch", None),
            ("x", None),
        ] {
            assert_eq!(nearest(word, names), near, "{word}");
        }
    }

    #[test]
    fn lines_are_wrapped_at_words() {
        assert_eq!(wrap("one two three four", 10, "  "), "one two\n  three\n  four");
        assert_eq!(wrap("a\nb averylongword", 5, ""), "a\nb\naverylongword");
    }

    #[test]
    fn words_and_fields_keep_quotes_together() {
        assert_eq!(words(r#" a "b c"  "d""e" "#), ["a", "b c", "d\"e"]);
        assert_eq!(csv(r#"a,"b,c",,d "e""#), ["a", "b,c", "", "d \"e\""]);
    }
}
