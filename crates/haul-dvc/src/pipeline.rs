//! `dvc.yaml`: what it says of the outs that `dvc.lock` names: kept in the cache, pushed, to which remote, in which folder. Pure:
//! the caller reads the files. Templates (`${…}`, `foreach`, `matrix`) are filled in from `vars` and `params.yaml`; of
//! what can't be filled in, the rest of the path decides. It runs nothing.

use crate::{
    dvcfile::{Node, flag, get, list, load, map, scalar},
    paths::{joined, normal_path},
};
use saphyr::{ScalarStyle, YamlData};

/// The file of parameters that DVC reads without being told.
const PARAMS: &str = "params.yaml";
/// Template in template: values that refer to one another are followed no deeper.
const DEPTH: usize = 8;

/// A `dvc.yaml`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pipeline {
    stages: Vec<(String, Template)>,
    vars: Vec<(String, Value)>,
}

/// How an out is to be treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flags {
    /// It is kept in the cache.
    pub cache: bool,
    /// It is pushed.
    pub push: bool,
    /// It has a remote of its own.
    pub remote: Option<String>,
}

/// A stage of `dvc.lock`, as its `dvc.yaml` defines it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The folder that its paths are relative to, itself relative to the file's.
    pub wdir: Option<String>,
    /// Its dependencies are not looked at.
    pub frozen: bool,
    outs: Vec<(Pattern, Flags)>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Template {
    wdir: Option<String>,
    frozen: bool,
    vars: Vec<(String, Value)>,
    /// The values of `foreach`.
    each: Option<Value>,
    /// The lists that `matrix` combines.
    matrix: Option<Value>,
    outs: Vec<(String, Flags)>,
}

/// A value of `vars` or parameters, as it would stand in a path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    Text(String),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
    /// How DVC would write it isn't sure (a float, a date).
    Unsure,
}

/// A path; `None` stands for any text.
type Pattern = Vec<Option<String>>;

impl Pipeline {
    /// Reads a `dvc.yaml`; `read` gives the text of a file whose path is relative to the `dvc.yaml`'s folder, if it is there.
    ///
    /// Errors: no YAML.
    pub fn parse(text: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<Pipeline, String> {
        let mut pipeline = Pipeline::default();
        load_params(PARAMS, read, &mut pipeline.vars);
        let Some(node) = load(text)? else { return Ok(pipeline) };
        pipeline.vars.extend(vars(get(&node, "vars"), read));
        for (name, stage) in get(&node, "stages").into_iter().flat_map(map) {
            let own = get(stage, "do").unwrap_or(stage);
            let is_many = get(stage, "foreach").or_else(|| get(stage, "matrix")).is_some();
            pipeline.stages.push((
                name.into(),
                Template {
                    wdir: get(own, "wdir").and_then(scalar).map(str::to_string),
                    frozen: flag(own, "frozen", false),
                    vars: stage_vars(own, is_many, &pipeline.vars, read),
                    each: get(stage, "foreach").map(value),
                    matrix: get(stage, "matrix").map(value),
                    outs: outs(own),
                },
            ));
        }
        Ok(pipeline)
    }

    /// The definition of a stage, named as in `dvc.lock`; `None` when it has no such stage.
    ///
    /// Errors: the stage's folder can't be found out.
    pub fn stage(&self, name: &str) -> Result<Option<Stage>, String> {
        let (plain, key) = name.split_once('@').map_or((name, None), |(plain, key)| (plain, Some(key)));
        let Some((_, template)) = self.stages.iter().find(|(known, _)| known == plain) else { return Ok(None) };
        let mut scope: Vec<(String, Value)> = self.vars.iter().chain(&template.vars).cloned().collect();
        if let Some(key) = key {
            let item = template.item(key, &scope);
            scope.push(("key".into(), Value::Text(key.into())));
            scope.push(("item".into(), item));
        }
        let wdir = template.wdir.as_ref().map(|wdir| {
            plain_text(&filled(wdir, &scope, 0))
                .ok_or_else(|| format!("stage {name}: haul can't tell what its wdir {wdir} is: use dvc for it"))
        });
        let outs = template.outs.iter().map(|(path, flags)| (filled(path, &scope, 0), flags.clone())).collect();
        Ok(Some(Stage { wdir: wdir.transpose()?, frozen: template.frozen, outs }))
    }
}

impl Flags {
    /// Kept and pushed if one of the two is.
    pub fn or(self, other: Flags) -> Flags {
        let remote = self.remote.or(other.remote);
        Flags { cache: self.cache || other.cache, push: self.push || other.push, remote }
    }
}

impl Stage {
    /// The flags of an out of this path, as `dvc.lock` has it; `None` when the stage has no such out, as far as all its paths are
    /// known. If templates leave it open which of several it is, it is kept and pushed if one of them is; its remote is that of
    /// the one that fits best. A path that fits none of them is kept and pushed.
    pub fn flags(&self, path: &str) -> Option<Flags> {
        let known = |pattern: &Pattern| pattern.iter().all(Option::is_some);
        let mut fitting: Vec<_> = self.outs.iter().filter(|(pattern, _)| fits(pattern, path)).collect();
        if fitting.iter().any(|(pattern, _)| known(pattern)) {
            fitting.retain(|(pattern, _)| known(pattern));
        }
        fitting.sort_by_key(|(pattern, _)| std::cmp::Reverse(literals(pattern)));
        let best = fitting.first().map_or(0, |(pattern, _)| literals(pattern));
        let remote = fitting.iter().take_while(|(pattern, _)| literals(pattern) == best);
        let remote = remote.filter_map(|(_, flags)| flags.remote.clone()).next();
        match fitting.into_iter().map(|(_, flags)| flags.clone()).reduce(Flags::or) {
            Some(flags) => Some(Flags { remote, ..flags }),
            None if self.outs.iter().all(|(pattern, _)| known(pattern)) => None,
            None => Some(Flags { cache: true, push: true, remote: None }),
        }
    }
}

impl Template {
    /// Value of `item` in the stage that `foreach` or `matrix` made with this key.
    fn item(&self, key: &str, scope: &[(String, Value)]) -> Value {
        match (&self.each, &self.matrix) {
            (Some(each), _) => each_item(resolved(each, scope), key),
            (None, Some(matrix)) => combination(matrix, key, scope),
            (None, None) => Value::Unsure,
        }
    }
}

fn each_item(each: Value, key: &str) -> Value {
    match each {
        Value::Map(all) => all.into_iter().find(|(name, _)| name == key).map_or(Value::Unsure, |(_, value)| value),
        Value::List(all) if all.iter().any(|v| matches!(v, Value::List(_) | Value::Map(_))) => {
            key.parse().ok().and_then(|n: usize| all.into_iter().nth(n)).unwrap_or(Value::Unsure)
        }
        // A list of plain values: the key is the value.
        _ => Value::Text(key.into()),
    }
}

/// The values that a key of `matrix` joins with `-`, by their names.
fn combination(matrix: &Value, key: &str, scope: &[(String, Value)]) -> Value {
    let Value::Map(axes) = resolved(matrix, scope) else { return Value::Unsure };
    let mut all: Vec<(Vec<(String, Value)>, String)> = vec![(Vec::new(), String::new())];
    for (name, values) in axes {
        let Value::List(values) = resolved(&values, scope) else { return Value::Unsure };
        let (name, values) = (&name, &values);
        let next = all.iter().flat_map(|(chosen, text)| {
            values.iter().enumerate().filter_map(move |(n, value)| {
                let part = match value {
                    Value::Text(text) => text.clone(),
                    Value::Unsure => return None,
                    _ => format!("{name}{n}"),
                };
                let text = if chosen.is_empty() { part } else { format!("{text}-{part}") };
                let chosen = chosen.iter().cloned().chain([(name.clone(), value.clone())]).collect();
                Some((chosen, text))
            })
        });
        // Only what the key can still begin with, so that large matrices stay small.
        all = next.filter(|(_, text): &(Vec<_>, String)| key.starts_with(text.as_str())).collect();
    }
    all.into_iter().find(|(_, text)| text == key).map_or(Value::Unsure, |(chosen, _)| Value::Map(chosen))
}

fn outs(stage: &Node<'_>) -> Vec<(String, Flags)> {
    let mut all = Vec::new();
    for entry in ["outs", "metrics", "plots"].into_iter().flat_map(|key| list(get(stage, key))) {
        if let Some(path) = scalar(entry) {
            all.push((path.into(), Flags { cache: true, push: true, remote: None }));
        }
        for (path, of) in map(entry) {
            let remote = get(of, "remote").and_then(scalar).map(str::to_string);
            all.push((path.into(), Flags { cache: flag(of, "cache", true), push: flag(of, "push", true), remote }));
        }
    }
    all
}

fn vars(node: Option<&Node<'_>>, read: &dyn Fn(&str) -> Option<String>) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for entry in list(node) {
        match scalar(entry) {
            Some(file) => load_params(file, read, &mut all),
            None => all.extend(map(entry).map(|(name, of)| (name.to_string(), value(of)))),
        }
    }
    all
}

/// A stage's own `vars`. DVC reads their files from the stage's folder; if templates that aren't known decide it, or it differs
/// from one of many stages to the next, their values stay unknown too.
fn stage_vars(
    stage: &Node<'_>,
    is_many: bool,
    scope: &[(String, Value)],
    read: &dyn Fn(&str) -> Option<String>,
) -> Vec<(String, Value)> {
    let wdir = get(stage, "wdir").and_then(scalar).unwrap_or_default();
    let folder = if is_many && wdir.contains("${") { None } else { plain_text(&filled(wdir, scope, 0)) };
    let in_folder = |path: &str| read(&normal_path(&joined(folder.as_deref()?, path)));
    vars(get(stage, "vars"), &in_folder)
}

/// Reads `file` or `file:key,key`. What can't be read as YAML (which JSON is, too) tells nothing.
fn load_params(file: &str, read: &dyn Fn(&str) -> Option<String>, into: &mut Vec<(String, Value)>) {
    let (path, keys) = file.split_once(':').map_or((file, None), |(path, keys)| (path, Some(keys)));
    let Some(text) = read(path) else { return };
    let Ok(Some(node)) = load(&text) else { return };
    let wanted = |name: &str| keys.is_none_or(|keys| keys.split(',').any(|key| key.trim() == name));
    into.extend(map(&node).filter(|(name, _)| wanted(name)).map(|(name, of)| (name.to_string(), value(of))));
}

fn value(node: &Node<'_>) -> Value {
    match &node.data {
        YamlData::Sequence(all) => Value::List(all.iter().map(value).collect()),
        YamlData::Mapping(_) => Value::Map(map(node).map(|(name, of)| (name.to_string(), value(of))).collect()),
        YamlData::Representation(text, ScalarStyle::Plain, _) => plain(text),
        YamlData::Representation(text, ..) => Value::Text(text.to_string()),
        _ => Value::Unsure,
    }
}

/// A scalar without quotes. Numbers are sure only where every reader writes them alike.
fn plain(text: &str) -> Value {
    let lower = text.to_ascii_lowercase();
    if matches!(lower.as_str(), "true" | "false") {
        return Value::Text(lower);
    }
    let whole = text.parse::<i64>().is_ok_and(|n| n.to_string() == text);
    let like_a_number = text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.'));
    match like_a_number && !whole || matches!(lower.as_str(), "" | "~" | "null") {
        true => Value::Unsure,
        false => Value::Text(text.into()),
    }
}

/// The value that a template stands for, where it is nothing but one (`${models}`); any other value as it is.
fn resolved(value: &Value, scope: &[(String, Value)]) -> Value {
    let Value::Text(text) = value else { return value.clone() };
    match text.strip_prefix("${").and_then(|rest| rest.strip_suffix('}')).filter(|inner| !inner.contains('}')) {
        Some(inner) => looked_up(inner, scope),
        None => value.clone(),
    }
}

/// `a.b[0].c`; of two values of one name the later counts, if it has what is looked for.
fn looked_up(expression: &str, scope: &[(String, Value)]) -> Value {
    let mut names = expression.split(['.', '[']).map(|part| part.trim().trim_end_matches(']'));
    let first = names.next().unwrap_or_default();
    let rest: Vec<&str> = names.collect();
    let all = scope.iter().rev().filter(|(name, _)| name == first);
    all.map(|(_, value)| value).find_map(|value| within(value, &rest)).unwrap_or(Value::Unsure)
}

fn within(value: &Value, names: &[&str]) -> Option<Value> {
    let Some((name, rest)) = names.split_first() else { return Some(value.clone()) };
    let next = match value {
        Value::Map(all) => all.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value),
        Value::List(all) => name.parse().ok().and_then(|n: usize| all.get(n)),
        Value::Text(_) | Value::Unsure => None,
    };
    within(next?, rest)
}

/// A path with its templates filled in.
fn filled(template: &str, scope: &[(String, Value)], depth: usize) -> Pattern {
    let mut pattern = Pattern::new();
    let mut rest = template;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('\\') {
            pattern.push(Some(format!("{before}${{")));
            rest = &rest[at + 2..];
            continue;
        }
        let Some(end) = rest[at..].find('}') else { break };
        pattern.push(Some(rest[..at].into()));
        match looked_up(&rest[at + 2..at + end], scope) {
            Value::Text(text) if depth < DEPTH => pattern.extend(filled(&text, scope, depth + 1)),
            _ => pattern.push(None),
        }
        rest = &rest[at + end + 1..];
    }
    pattern.push(Some(rest.into()));
    pattern
}

fn literals(pattern: &Pattern) -> usize {
    pattern.iter().flatten().map(String::len).sum()
}

fn plain_text(pattern: &Pattern) -> Option<String> {
    pattern.iter().cloned().collect()
}

fn fits(pattern: &Pattern, path: &str) -> bool {
    match plain_text(pattern) {
        Some(text) => normal_path(&text) == normal_path(path),
        None => continues(pattern, path, false),
    }
}

/// Does the rest of a path fit the rest of a pattern? After a template any text may come first.
fn continues(pattern: &[Option<String>], path: &str, any: bool) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return any || path.is_empty() };
    match first {
        None => continues(rest, path, true),
        Some(text) if !any => path.strip_prefix(text.as_str()).is_some_and(|path| continues(rest, path, false)),
        Some(text) if text.is_empty() => continues(rest, path, true),
        Some(text) => path.match_indices(text.as_str()).any(|(at, _)| continues(rest, &path[at + text.len()..], false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "vars:\n- out: o\n- other.json:a,b\nstages:\n  plain:\n    outs:\n    - x\n    - big: {push: false}\n    - \
                        ./d/../y\n    metrics:\n    - ${out}/m.json:\n        cache: false\n    - ${model.path}:\n        cache: \
                        false\n    plots:\n    - ${a[1].n}\n  train:\n    foreach: ${items}\n    do:\n      wdir: w/${key}\n      \
                        outs:\n      - t/${item}.bin\n      metrics:\n      - t/${item}.json:\n          cache: false\n  named:\n    \
                        foreach:\n      us: {lr: 0.10, dir: u}\n    do:\n      frozen: true\n      outs:\n      - ${item.dir}/${item.lr}\n      - \
                        ${item.dir}/${item.lr}.txt:\n          cache: false\n  mat:\n    matrix:\n      a: [1, 2]\n      b: ${items}\n    \
                        outs:\n    - mm/${item.a}-${item.b}\n    - mm/${item.b}:\n        push: false\n  odd:\n    wdir: ${nothing}\n    outs: [z]\n";

    fn read(path: &str) -> Option<String> {
        Some(match path {
            "params.yaml" => "model:\n  path: models/m.bin\nitems: [p, q]\n".into(),
            "other.json" => r#"{"a": [1, {"n": "plots/n"}], "c": 1}"#.into(),
            _ => return None,
        })
    }

    /// Flags of a stage's out: `c` kept in the cache, `p` pushed; `-` when the stage doesn't have it.
    fn flags_of(pipeline: &Pipeline, stage: &str, path: &str) -> String {
        let stage = pipeline.stage(stage).unwrap().unwrap();
        stage.flags(path).map_or("-".into(), |f| {
            [(f.cache, "c"), (f.push, "p")].into_iter().filter(|(on, _)| *on).map(|(_, letter)| letter).collect()
        })
    }

    #[test]
    fn flags_of_outs_with_and_without_templates() {
        let pipeline = Pipeline::parse(TEXT, &read).unwrap();
        for (stage, path, flags) in [
            ("plain", "x", "cp"),
            ("plain", "big", "c"),
            ("plain", "y", "cp"),
            ("plain", "o/m.json", "p"),
            ("plain", "models/m.bin", "p"),
            ("plain", "plots/n", "cp"),
            ("plain", "gone", "-"),
            ("train@p", "t/p.bin", "cp"),
            ("train@p", "t/p.json", "p"),
            ("train@p", "t/q.json", "-"),
            // How DVC writes 0.10 isn't sure: it may be either, and what is neither isn't left out.
            ("named@us", "u/0.1", "cp"),
            ("named@us", "u/0.1.txt", "cp"),
            ("named@us", "v/0.1.txt", "cp"),
            ("mat@2-q", "mm/2-q", "cp"),
            ("mat@2-q", "mm/q", "c"),
            ("mat@2-q", "mm/1-q", "-"),
        ] {
            assert_eq!(flags_of(&pipeline, stage, path), flags, "{stage} {path}");
        }
        assert_eq!(pipeline.stage("gone").unwrap(), None);
    }

    #[test]
    fn folders_of_stages() {
        let pipeline = Pipeline::parse(TEXT, &read).unwrap();
        let train = pipeline.stage("train@p").unwrap().unwrap();
        assert_eq!((train.wdir.as_deref(), train.frozen), (Some("w/p"), false));
        let named = pipeline.stage("named@us").unwrap().unwrap();
        assert_eq!((named.wdir, named.frozen), (None, true));
        assert_eq!(
            pipeline.stage("odd").unwrap_err(),
            "stage odd: haul can't tell what its wdir ${nothing} is: use dvc for it"
        );
    }

    #[test]
    fn files_of_a_stages_vars_are_read_from_its_folder() {
        let text = "vars:\n- dir: w\nstages:\n  a:\n    wdir: ./w/../w\n    vars: ['v.yaml:n']\n    outs: ['${n}', '${other}x']\n  b:\n    \
                    wdir: ${dir}\n    vars: [v.yaml]\n    outs: ['${n}']\n  c:\n    vars: [v.yaml]\n    outs: ['${n}']\n  d:\n    foreach: \
                    [w]\n    do:\n      wdir: ${item}\n      vars: [v.yaml]\n      outs: ['x/${n}', y: {push: false}]\n";
        let read = |path: &str| match path {
            "v.yaml" => Some("n: of-the-file".to_string()),
            "w/v.yaml" => Some("n: of-the-stage\nother: o".into()),
            _ => None,
        };
        let pipeline = Pipeline::parse(text, &read).unwrap();
        for (stage, path, flags) in [
            ("b", "of-the-stage", "cp"),
            ("b", "of-the-file", "-"),
            ("c", "of-the-file", "cp"),
            ("c", "of-the-stage", "-"),
            ("d@w", "x/anything", "cp"),
            ("d@w", "y", "c"),
        ] {
            assert_eq!(flags_of(&pipeline, stage, path), flags, "{stage} {path}");
        }
        let stage = pipeline.stage("a").unwrap().unwrap();
        let known: Vec<_> = stage.outs.iter().map(|(pattern, _)| plain_text(pattern)).collect();
        assert_eq!(known, [Some("of-the-stage".to_string()), None], "other keys of the file don't count");
    }

    #[test]
    fn what_cannot_be_filled_in_is_kept_and_pushed_if_one_that_fits_is() {
        let text = "stages:\n  s:\n    outs:\n    - ${a}\n    - ${b}:\n        cache: false\n        push: false\n    - ${c}.txt:\n        cache: false\n";
        let pipeline = Pipeline::parse(text, &|_| None).unwrap();
        assert_eq!(flags_of(&pipeline, "s", "anything"), "cp");
        assert_eq!(flags_of(&pipeline, "s", "some.txt"), "cp");
        // A better fit may be another one all the same.
        let text = "stages:\n  s:\n    outs:\n    - ${a}\n    - models/${b}:\n        push: false\n        remote: r\n    - models/c:\n        push: false\n";
        let pipeline = Pipeline::parse(text, &|_| None).unwrap();
        assert_eq!(flags_of(&pipeline, "s", "models/m.bin"), "cp");
        assert_eq!(flags_of(&pipeline, "s", "models/c"), "c", "a path that is known is that one");
        let stage = pipeline.stage("s").unwrap().unwrap();
        assert_eq!(stage.flags("models/m.bin").unwrap().remote.as_deref(), Some("r"));
        assert_eq!(stage.flags("other").unwrap().remote, None);
        let text = "stages:\n  s:\n    outs: ['a/${a}', b]\n  t:\n    outs: [b]\n";
        let pipeline = Pipeline::parse(text, &|_| None).unwrap();
        assert_eq!([flags_of(&pipeline, "s", "other"), flags_of(&pipeline, "t", "other")], ["cp", "-"]);
        // Values that refer to themselves end.
        let round = Pipeline::parse("vars:\n- a: ${a}\nstages:\n  s:\n    outs: ['${a}']\n", &|_| None).unwrap();
        assert_eq!(flags_of(&round, "s", "x"), "cp");
        assert!(Pipeline::parse("stages: [", &|_| None).unwrap_err().starts_with("not valid YAML: "));
    }
}
