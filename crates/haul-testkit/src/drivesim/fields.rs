//! The parameter `fields`: which parts of an answer are wanted (`nextPageToken,files(id,shortcutDetails/targetId)`).

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A choice of fields; without any, all.
#[derive(Debug, Default)]
pub struct Fields(BTreeMap<String, Fields>);

impl Fields {
    /// Reads the parameter.
    ///
    /// Errors: it isn't one.
    pub fn parse(text: &str) -> Result<Fields, String> {
        let mut rest = text;
        let fields = list(&mut rest)?;
        if rest.is_empty() { Ok(fields) } else { Err(format!("Invalid field selection {text}")) }
    }

    /// What is wanted of an answer.
    pub fn of(&self, value: &Value) -> Value {
        if self.0.is_empty() || self.0.contains_key("*") {
            return value.clone();
        }
        match value {
            Value::Array(all) => all.iter().map(|one| self.of(one)).collect(),
            Value::Object(map) => {
                let chosen = self.0.iter().filter_map(|(name, below)| Some((name.clone(), below.of(map.get(name)?))));
                Value::Object(chosen.collect::<Map<_, _>>())
            }
            other => other.clone(),
        }
    }
}

fn list(rest: &mut &str) -> Result<Fields, String> {
    let mut fields = Fields::default();
    loop {
        item(rest, &mut fields)?;
        match rest.strip_prefix(',') {
            Some(more) => *rest = more.trim_start(),
            None => return Ok(fields),
        }
    }
}

fn item(rest: &mut &str, into: &mut Fields) -> Result<(), String> {
    let end = rest.find([',', '(', ')', '/']).unwrap_or(rest.len());
    let (name, more) = rest.split_at(end);
    if name.trim().is_empty() {
        return Err(format!("Invalid field selection at {rest:?}"));
    }
    *rest = more;
    let below = into.0.entry(name.trim().to_owned()).or_default();
    if let Some(more) = rest.strip_prefix('/') {
        *rest = more;
        item(rest, below)
    } else if let Some(more) = rest.strip_prefix('(') {
        *rest = more;
        below.0.extend(list(rest)?.0);
        *rest = rest.strip_prefix(')').ok_or("Invalid field selection: ) is missing")?;
        Ok(())
    } else {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_is_wanted_is_told() {
        let whole = json!({"a": 1, "files": [{"id": 1, "s": {"t": 2, "u": 3}}, {"id": 4}], "b": 2});
        let chosen = |fields: &str| Fields::parse(fields).map(|fields| fields.of(&whole));
        assert_eq!(
            chosen("a, files(id,s/t)").unwrap(),
            json!({"a": 1, "files": [{"id": 1, "s": {"t": 2}}, {"id": 4}]})
        );
        assert_eq!(chosen("*").unwrap(), whole);
        assert_eq!(chosen("files").unwrap(), json!({"files": whole["files"]}));
        assert!(chosen("files(id").is_err() && chosen("a,,b").is_err());
    }
}
