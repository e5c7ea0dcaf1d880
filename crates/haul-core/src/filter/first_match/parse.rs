//! Reading rules: options, lines of rule files, and the lists that CVS knows. Follows rsync(1), "FILTER RULES IN DEPTH".

use super::{Item, Pattern, PerDir, Rule, RuleFiles, RuleSet};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// Patterns that CVS ignores, from rsync(1), `--cvs-exclude`.
const CVS: &str = "RCS SCCS CVS CVS.adm RCSLOG cvslog.* tags TAGS .make.state .nse_depinfo *~ #* .#* ,* _$* *$ *.old *.bak \
                   *.BAK *.orig *.rej .del-* *.a *.olb *.o *.obj *.so *.exe *.Z *.elc *.ln core .svn/ .git/ .hg/ .bzr/";

/// Rule files in rule files.
const MAX_DEPTH: usize = 16;

/// Modifiers of a rule that has none of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Defaults {
    /// Each line is a pattern of this sign.
    sign: Option<bool>,
    /// Words are rules, not lines.
    words: bool,
    /// `#` begins no comment, `!` alone clears: the file is one of CVS's.
    cvs: bool,
    hide_only: bool,
    protect_only: bool,
    perishable: bool,
    negated: bool,
    absolute: bool,
    /// Root that absolute patterns assume for the path that names are relative to.
    root: Arc<[u8]>,
    /// Unqualified rules hide only (`--delete-excluded`).
    pub delete_excluded: bool,
    /// Names end in NUL, not in line breaks (`--from0`).
    pub from0: bool,
}

/// Why rules can't be taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// A rule is none; the line names it.
    Rule(String),
    /// A file of rules can't be read; the line names it.
    File(String),
}

impl From<String> for RuleError {
    fn from(line: String) -> RuleError {
        RuleError::Rule(line)
    }
}

/// One rule as read.
enum Read {
    Rule(Box<Rule>),
    PerDir(Box<PerDir>, bool),
    File(Vec<u8>, Defaults),
    Cvs(Defaults),
    Clear,
}

/// Gathers rules in the order in which options give them.
#[derive(Debug)]
pub struct Builder {
    items: Vec<Item>,
    texts: Vec<String>,
    root: Arc<[u8]>,
    bare_root: bool,
    files: Arc<dyn RuleFiles>,
    defaults: Defaults,
    /// How many `dir-merge` rules there were.
    per_dirs: usize,
    cvs_words: Vec<Vec<u8>>,
}

impl Builder {
    /// No rules yet. `root`: the absolute path that names are relative to, ending in `/`. `delete_excluded`: excluded
    /// files may be deleted. `from0`: entries of files end in NUL.
    pub fn new(root: Vec<u8>, files: Arc<dyn RuleFiles>, delete_excluded: bool, from0: bool) -> Builder {
        let root: Arc<[u8]> = root.into();
        let defaults = Defaults { delete_excluded, from0, root: root.clone(), ..Defaults::default() };
        let (items, texts, cvs_words) = (Vec::new(), Vec::new(), Vec::new());
        Builder { items, texts, root, bare_root: false, files, defaults, per_dirs: 0, cvs_words }
    }

    /// Rules that are given with absolute patterns speak of this path instead of the root's; it ends in `/`.
    pub fn with_absolute(mut self, root: Vec<u8>) -> Builder {
        self.defaults.root = root.into();
        self
    }

    /// The root only holds what arguments name: its own files of rules say nothing of them.
    pub fn with_bare_root(self, bare_root: bool) -> Builder {
        Builder { bare_root, ..self }
    }

    /// Words that the home folder and the environment add to CVS's list, wherever a rule uses that list.
    pub fn with_cvs_words(self, cvs_words: Vec<Vec<u8>>) -> Builder {
        Builder { cvs_words, ..self }
    }

    /// `--filter`.
    ///
    /// Errors: the problem with the rule, naming it.
    pub fn filter(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        self.texts.push(format!("rsync filter {}", String::from_utf8_lossy(rule)));
        self.line(rule, &self.defaults.clone(), 0)
    }

    /// `--include` and `--exclude`.
    ///
    /// Errors: as [`Builder::filter`].
    pub fn pattern(&mut self, include: bool, pattern: &[u8]) -> Result<(), RuleError> {
        self.texts.push(format!("rsync {include} {}", String::from_utf8_lossy(pattern)));
        self.old(include, pattern)
    }

    /// `--include-from` and `--exclude-from`.
    ///
    /// Errors: as [`Builder::filter`], and those of reading the file.
    pub fn patterns_from(&mut self, include: bool, path: &[u8]) -> Result<(), RuleError> {
        let text = self.files.named(path).map_err(RuleError::File)?;
        for line in lines(&text, self.defaults.from0) {
            self.pattern(include, line)?;
        }
        Ok(())
    }

    /// `--cvs-exclude`: CVS's list with additions, and a `.cvsignore` in each directory.
    ///
    /// Errors: as [`Builder::filter`].
    pub fn cvs(&mut self) -> Result<(), RuleError> {
        self.filter(b":C")?;
        self.filter(b"-C")
    }

    /// The rules.
    pub fn build(self) -> RuleSet {
        let Builder { items, texts, root, bare_root, files, per_dirs, .. } = self;
        RuleSet {
            next_id: AtomicUsize::new(per_dirs),
            items,
            root,
            bare_root,
            files,
            texts,
            of_dirs: Mutex::default(),
            is_broken: AtomicBool::new(false),
            broken: Mutex::default(),
        }
    }

    /// `--include` and `--exclude` take a sign of their own, as they did before there was `--filter`.
    fn old(&mut self, include: bool, text: &[u8]) -> Result<(), RuleError> {
        let (include, pattern) = match text {
            b"!" => {
                self.items.clear();
                return Ok(());
            }
            [b'+', b' ', rest @ ..] => (true, rest),
            [b'-', b' ', rest @ ..] => (false, rest),
            whole => (include, whole),
        };
        let rule = rule(include, pattern, &self.defaults).map_err(|why| bad(text, &why))?;
        self.items.push(Item::Rule(rule));
        Ok(())
    }

    fn text(&mut self, text: &[u8], defaults: &Defaults, depth: usize) -> Result<(), RuleError> {
        entries(text, defaults).try_for_each(|line| self.line(line, defaults, depth))
    }

    fn line(&mut self, text: &[u8], defaults: &Defaults, depth: usize) -> Result<(), RuleError> {
        match read(text, defaults).map_err(|why| bad(text, &why))? {
            Read::Rule(rule) => self.items.push(Item::Rule(*rule)),
            Read::PerDir(mut per_dir, leave_out) => {
                per_dir.id = self.per_dirs;
                self.per_dirs += 1;
                if leave_out {
                    let name = crate::key::name(&per_dir.name).to_vec();
                    self.items.push(Item::Rule(rule(false, &name, &self.defaults)?));
                }
                self.items.push(Item::PerDir(per_dir.into()));
            }
            Read::File(..) if depth >= MAX_DEPTH => {
                return Err(bad(text, &too_deep()).into());
            }
            Read::File(path, inner) => {
                let content = self.files.named(&path).map_err(RuleError::File)?;
                self.texts.push(format!("rsync rules {}", String::from_utf8_lossy(&content)));
                self.text(&content, &inner, depth + 1)?;
            }
            Read::Cvs(inner) => {
                self.text(CVS.as_bytes(), &inner.clone().perishing(), depth)?;
                for words in self.cvs_words.clone() {
                    self.texts.push(format!("rsync cvs {}", String::from_utf8_lossy(&words)));
                    self.text(&words, &inner, depth)?;
                }
            }
            Read::Clear => self.items.clear(),
        }
        Ok(())
    }
}

impl Defaults {
    /// Modifiers for rsync's own CVS list: in a directory that is deleted these rules protect nothing. Users' additions do.
    fn perishing(self) -> Defaults {
        Defaults { perishable: true, ..self }
    }
}

/// The directory whose file is read.
pub(super) struct RuleFileContext<'a> {
    /// Its absolute path, ending in `/`.
    pub path: &'a [u8],
    /// Absolute path of the directory that names are relative to, ending in `/`.
    pub root: &'a Arc<[u8]>,
    /// Directory that patterns with a leading slash are relative to.
    pub dir: &'a [u8],
    /// It is above the transfer's root, so that such patterns are absolute.
    pub absolute: bool,
    pub files: &'a dyn RuleFiles,
    pub next_id: &'a AtomicUsize,
}

/// The rules in a directory's file, and whether it drops those that the directory would inherit.
///
/// Errors: the problem with a rule, naming it; a file that a rule names and that can't be read.
pub(super) fn of_dir(
    text: &[u8],
    per_dir: &PerDir,
    place: &RuleFileContext<'_>,
) -> Result<(Vec<Item>, bool), RuleError> {
    let mut found = (Vec::new(), false);
    let mut defaults = per_dir.defaults.clone();
    defaults.absolute |= place.absolute;
    defaults.root = place.root.clone();
    let mut named = [&per_dir.within[..], std::slice::from_ref(&per_dir.name)].concat();
    lines_of_dir(text, &defaults, place, &mut named, 0, &mut found)?;
    Ok(found)
}

fn lines_of_dir(
    text: &[u8],
    defaults: &Defaults,
    place: &RuleFileContext<'_>,
    named: &mut Vec<Vec<u8>>,
    depth: usize,
    found: &mut (Vec<Item>, bool),
) -> Result<(), RuleError> {
    for line in entries(text, defaults) {
        match read_in(line, defaults, Some(place.dir)).map_err(|why| bad(line, &why))? {
            Read::Rule(rule) => found.0.push(Item::Rule(*rule)),
            Read::Clear => *found = (Vec::new(), true),
            Read::Cvs(inner) => {
                let own = inner.perishing();
                for word in entries(CVS.as_bytes(), &own) {
                    found.0.push(Item::Rule(rule(false, word, &own)?));
                }
            }
            Read::PerDir(..) if place.absolute => {
                return Err(bad(line, "above the source a file can't name further files of directories").into());
            }
            Read::PerDir(per_dir, leave_out) => {
                if leave_out {
                    found.0.push(Item::Rule(rule(false, &per_dir.name, &Defaults::default())?));
                }
                if !named.contains(&per_dir.name) {
                    let within = named.clone();
                    named.push(per_dir.name.clone());
                    let id = place.next_id.fetch_add(1, Ordering::Relaxed);
                    let since = if per_dir.from_above { Vec::new() } else { place.dir.to_vec() };
                    found.0.push(Item::PerDir(Arc::new(PerDir { id, since, within, ..*per_dir })));
                }
            }
            Read::File(..) if depth >= MAX_DEPTH => return Err(bad(line, &too_deep()).into()),
            Read::File(path, inner) => {
                // As rsync looks for it: a name where the transfer begins, a path beside the file.
                let dir = match path.iter().position(|b| *b == b'/') {
                    Some(0) => b"",
                    Some(_) => place.path,
                    None => &place.root[..],
                };
                let content = place.files.of_dir(dir, &path).and_then(|text| text.ok_or("no such file".into()));
                let content = content.map_err(|why| RuleError::File(bad(line, &why)))?;
                lines_of_dir(&content, &inner, place, named, depth + 1, found)?;
            }
        }
    }
    Ok(())
}

fn too_deep() -> String {
    format!("rule files in rule files, {MAX_DEPTH} deep")
}

fn bad(text: &[u8], why: &str) -> String {
    format!("bad filter rule \"{}\": {why}", String::from_utf8_lossy(text))
}

/// Lines that say something.
fn lines(text: &[u8], from0: bool) -> impl Iterator<Item = &[u8]> {
    let lines = text.split(move |b| if from0 { *b == 0 } else { matches!(b, b'\n' | b'\r') });
    lines.filter(|line| !line.is_empty() && !matches!(line[0], b'#' | b';'))
}

fn entries<'a>(text: &'a [u8], defaults: &Defaults) -> Box<dyn Iterator<Item = &'a [u8]> + 'a> {
    match defaults.words {
        true => Box::new(text.split(|b| b.is_ascii_whitespace() || *b == 0).filter(|w| !w.is_empty())),
        false => Box::new(lines(text, defaults.from0)),
    }
}

fn read(text: &[u8], defaults: &Defaults) -> Result<Read, String> {
    read_in(text, defaults, None)
}

/// Reads one rule; `dir`: in a file of this directory.
fn read_in(text: &[u8], defaults: &Defaults, dir: Option<&[u8]>) -> Result<Read, String> {
    if let Some(include) = defaults.sign {
        return match text {
            b"!" if defaults.cvs => Ok(Read::Clear),
            pattern => one(include, pattern, defaults, dir),
        };
    }
    let (sign, rest) = sign(text)?;
    let (mods, rest) = modifiers(rest);
    if sign == b'!' {
        return match (mods, rest) {
            (b"", b"") => Ok(Read::Clear),
            _ => Err("! stands alone".into()),
        };
    }
    let mut inner = defaults.clone();
    let (mut no_inherit, mut leave_out, mut cvs) = (false, false, false);
    let merges = matches!(sign, b'.' | b':');
    for m in mods {
        match m {
            b'/' => inner.absolute = true,
            b'!' if !merges => inner.negated = true,
            b'C' => cvs = true,
            b's' if !matches!(sign, b'H' | b'S' | b'P' | b'R') => inner.hide_only = true,
            b'r' if !matches!(sign, b'H' | b'S' | b'P' | b'R') => inner.protect_only = true,
            b'p' => inner.perishable = true,
            b'-' if merges => inner.sign = Some(false),
            b'+' if merges => inner.sign = Some(true),
            b'e' if merges => leave_out = true,
            b'n' if merges => no_inherit = true,
            b'w' if merges => inner.words = true,
            b'x' => return Err("rules for the names of attributes (x) aren't supported".into()),
            other => return Err(format!("unknown modifier '{}'", char::from(*other))),
        }
    }
    let names_side = matches!(sign, b'H' | b'S' | b'P' | b'R') || mods.iter().any(|m| matches!(m, b's' | b'r'));
    if names_side && (defaults.hide_only || defaults.protect_only) {
        return Err("a rule that names a side can't be in a file whose rules are all for one (s or r)".into());
    }
    if cvs {
        inner = Defaults { sign: Some(false), words: true, cvs: true, ..inner };
        if sign == b'-' && rest.is_empty() {
            return Ok(Read::Cvs(inner));
        }
        if !merges {
            return Err("C stands with - alone, or with a file".into());
        }
        no_inherit = true;
    }
    match sign {
        b'+' | b'-' => one(sign == b'+', rest, &inner, dir),
        b'H' | b'S' => one(sign == b'S', rest, &Defaults { hide_only: true, ..inner }, dir),
        b'P' | b'R' => one(sign == b'R', rest, &Defaults { protect_only: true, ..inner }, dir),
        _ => {
            let name = if rest.is_empty() && cvs { b".cvsignore" } else { rest };
            if name.is_empty() {
                return Err("it names no file".into());
            }
            if sign == b'.' {
                return Ok(Read::File(name.to_vec(), inner));
            }
            let from_above = name.starts_with(b"/");
            let name = name.strip_prefix(b"/").unwrap_or(name);
            if name.contains(&b'/') {
                return Err("a file of each directory is named without its path".into());
            }
            let (name, since, within) = (name.to_vec(), Vec::new(), Vec::new());
            let per_dir = PerDir { id: 0, name, since, within, from_above, no_inherit, defaults: inner };
            Ok(Read::PerDir(Box::new(per_dir), leave_out))
        }
    }
}

/// The rule's letter, and what follows its name.
fn sign(text: &[u8]) -> Result<(u8, &[u8]), String> {
    const NAMES: [(&str, u8); 9] = [
        ("exclude", b'-'),
        ("include", b'+'),
        ("merge", b'.'),
        ("dir-merge", b':'),
        ("hide", b'H'),
        ("show", b'S'),
        ("protect", b'P'),
        ("risk", b'R'),
        ("clear", b'!'),
    ];
    for (name, letter) in NAMES {
        if let Some(rest) = text.strip_prefix(name.as_bytes())
            && matches!(rest.first(), None | Some(b' ' | b'_' | b','))
        {
            return Ok((letter, rest));
        }
    }
    match text.split_first() {
        Some((letter, rest)) if b"-+.:HSPR!".contains(letter) => Ok((*letter, rest)),
        _ => Err("it begins with none of - + . : H S P R !".into()),
    }
}

/// The modifiers, and what follows the one space or underscore after them.
fn modifiers(rest: &[u8]) -> (&[u8], &[u8]) {
    let rest = rest.strip_prefix(b",").unwrap_or(rest);
    match rest.iter().position(|b| matches!(b, b' ' | b'_')) {
        Some(end) => (&rest[..end], &rest[end + 1..]),
        None => (rest, b""),
    }
}

fn one(include: bool, pattern: &[u8], defaults: &Defaults, dir: Option<&[u8]>) -> Result<Read, String> {
    // In a directory's file a slash at the beginning means that directory.
    let anchored = match (dir, pattern) {
        (Some(dir), [b'/', rest @ ..]) => Some([b"/", dir, rest].concat()),
        _ => None,
    };
    let mut defaults = defaults.clone();
    // Above the transfer's root, what isn't anchored reaches down by its name alone.
    defaults.absolute &= anchored.is_some() || dir.is_none() || pattern.starts_with(b"/");
    Ok(Read::Rule(Box::new(rule(include, anchored.as_deref().unwrap_or(pattern), &defaults)?)))
}

fn rule(include: bool, pattern: &[u8], defaults: &Defaults) -> Result<Rule, String> {
    let Defaults { hide_only, protect_only, perishable, negated, absolute, delete_excluded, .. } = *defaults;
    let absolute = absolute.then(|| defaults.root.clone());
    Ok(Rule {
        pattern: Pattern::new(pattern)?,
        include,
        hide: hide_only || !protect_only,
        protect: protect_only || (!hide_only && !delete_excluded),
        negated,
        perishable,
        absolute,
    })
}
