//! A command line that is being typed, as its shell gives it, and candidates as the shell takes them.

/// Its words so far.
#[derive(Debug, PartialEq, Eq)]
pub struct PartialLine {
    /// Those before the one to complete, without the program's name.
    pub before: Vec<String>,
    /// The one to complete, without quotes.
    pub current: String,
    /// Of that, how many bytes the shell takes for words of their own: bash breaks words at colons, too.
    cut: usize,
    /// Candidates go back as a shell's words.
    quotes: bool,
}

/// Characters that need a backslash in a word of bash.
const SPECIAL: &str = " \t\"'\\$`&|;<>()*?[]{}!#";

impl PartialLine {
    /// From words; the last is the one to complete.
    pub fn of_words(words: &[String]) -> PartialLine {
        let (current, before) =
            words.split_last().map_or((String::new(), &[][..]), |(last, rest)| (last.clone(), rest));
        PartialLine { before: before.to_vec(), current, cut: 0, quotes: false }
    }

    /// From bash's line up to the cursor, and `COMP_WORDBREAKS`.
    pub fn of_bash(line: &str, breaks: &str) -> PartialLine {
        let mut words: Vec<String> = vec![String::new()];
        let (mut quote, mut cut, mut begun, mut escaped) = (None, 0, false, false);
        for c in line.chars() {
            let last = words.len() - 1;
            let word = &mut words[last];
            if std::mem::take(&mut escaped) {
                word.push(c);
                continue;
            }
            match (quote, c) {
                (None | Some('"'), '\\') => (escaped, begun) = (true, true),
                (Some(open), c) if c == open => quote = None,
                (None, '"' | '\'') => {
                    // Within quotes nothing breaks a word.
                    (quote, begun, cut) = (Some(c), true, word.len());
                }
                (None, ' ' | '\t') => {
                    if begun {
                        words.push(String::new());
                    }
                    (begun, cut) = (false, 0);
                }
                (_, c) => {
                    word.push(c);
                    begun = true;
                    if quote.is_none() && matches!(c, ':' | '=') && breaks.contains(c) {
                        cut = word.len();
                    }
                }
            }
        }
        let current = words.pop().unwrap_or_default();
        let before = words.into_iter().skip(1).collect();
        PartialLine { before, current, cut, quotes: quote.is_none() }
    }

    /// A candidate as the shell takes it.
    pub fn shown(&self, candidate: &str) -> String {
        let rest = &candidate[self.cut..];
        if !self.quotes {
            return rest.to_owned();
        }
        let mut shown = String::new();
        for c in rest.chars() {
            if SPECIAL.contains(c) {
                shown.push('\\');
            }
            shown.push(c);
        }
        shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BREAKS: &str = " \t\n\"'><=;|&(:";

    fn of(line: &str, candidate: &str) -> (Vec<String>, String, String) {
        let typed = PartialLine::of_bash(line, BREAKS);
        (typed.before.clone(), typed.current.clone(), typed.shown(candidate))
    }

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn words_end_at_spaces_and_bash_gets_what_follows_a_colon() {
        assert_eq!(of("haul ls mi", "minio:"), (words(&["ls"]), "mi".into(), "minio:".into()));
        assert_eq!(of("haul  ls minio:b", "minio:bucket/"), (words(&["ls"]), "minio:b".into(), "bucket/".into()));
        assert_eq!(
            of("haul --config=a\\ b ls ", "x y"),
            (words(&["--config=a b", "ls"]), String::new(), "x\\ y".into())
        );
        assert_eq!(of("haul ls my\\ fi", "my file"), (words(&["ls"]), "my fi".into(), "my\\ file".into()));
        assert_eq!(of("haul ls 'my fi", "my file"), (words(&["ls"]), "my fi".into(), "my file".into()));
        assert_eq!(of("haul ls minio:\"b", "minio:bucket/"), (words(&["ls"]), "minio:b".into(), "bucket/".into()));
    }

    #[test]
    fn without_a_colon_among_the_breaks_the_whole_word_goes_back() {
        assert_eq!(PartialLine::of_bash("haul ls minio:b", " ").shown("minio:bucket/"), "minio:bucket/");
        assert_eq!(PartialLine::of_words(&words(&["ls", "minio:b"])).shown("minio:my bucket/"), "minio:my bucket/");
    }
}
