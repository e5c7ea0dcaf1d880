//! The search language of the parameter `q` (`'ID' in parents and trashed = false and name = 'x'`).

use super::space::{File, Space};

/// A question about files.
#[derive(Debug)]
pub enum Query {
    And(Vec<Query>),
    Or(Vec<Query>),
    Not(Box<Query>),
    Parent(String),
    SharedWithMe(bool),
    Trashed(bool),
    Starred(bool),
    Text(Field, String, String),
}

/// A field that is compared.
#[derive(Clone, Copy, Debug)]
pub enum Field {
    Name,
    MimeType,
    ModifiedTime,
}

impl Query {
    /// Reads the parameter; without text it holds for all.
    ///
    /// Errors: it isn't one.
    pub fn parse(text: &str) -> Result<Query, String> {
        let tokens = tokens(text)?;
        if tokens.is_empty() {
            return Ok(Query::And(Vec::new()));
        }
        let mut rest = &tokens[..];
        let query = any(&mut rest)?;
        if rest.is_empty() { Ok(query) } else { Err(format!("Invalid Value: q at {:?}", rest[0])) }
    }

    /// Whether it holds for a file.
    pub fn holds(&self, space: &Space, file: &File) -> bool {
        match self {
            Query::And(all) => all.iter().all(|query| query.holds(space, file)),
            Query::Or(any) => any.iter().any(|query| query.holds(space, file)),
            Query::Not(query) => !query.holds(space, file),
            Query::Parent(id) => file.parents.iter().any(|parent| parent == space.real(id)),
            Query::SharedWithMe(wanted) => file.shared_with_me == *wanted,
            Query::Starred(wanted) => file.starred == *wanted,
            Query::Trashed(wanted) => space.says_trashed(file) == *wanted,
            Query::Text(field, how, text) => {
                let value = match field {
                    // Case doesn't count.
                    Field::Name => file.name.to_lowercase(),
                    Field::MimeType => file.mime.clone(),
                    Field::ModifiedTime => file.modified.to_string(),
                };
                let text = if matches!(field, Field::Name) { text.to_lowercase() } else { text.clone() };
                match &**how {
                    "=" => value == text,
                    "!=" => value != text,
                    "contains" if matches!(field, Field::Name) => value.starts_with(&text),
                    "contains" => value.contains(&text),
                    ">" => value > text,
                    ">=" => value >= text,
                    "<" => value < text,
                    _ => value <= text,
                }
            }
        }
    }

    /// The folders one of which must be the parent; `None` when others may be too.
    pub fn parents(&self) -> Option<Vec<&str>> {
        match self {
            Query::Parent(id) => Some(vec![id]),
            Query::And(all) => all.iter().find_map(Query::parents),
            Query::Or(any) => {
                let each: Option<Vec<_>> = any.iter().map(Query::parents).collect();
                each.map(|each| each.concat())
            }
            _ => None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Text(String),
}

fn tokens(text: &str) -> Result<Vec<Token>, String> {
    let (mut tokens, mut rest) = (Vec::new(), text.chars().peekable());
    while let Some(next) = rest.next() {
        match next {
            ' ' => {}
            '\'' => {
                let mut value = String::new();
                loop {
                    match rest.next().ok_or("Invalid Value: a text isn't closed")? {
                        '\'' => break,
                        '\\' => value.extend(rest.next().filter(|c| matches!(c, '\'' | '\\'))),
                        other => value.push(other),
                    }
                }
                tokens.push(Token::Text(value));
            }
            '(' | ')' => tokens.push(Token::Word(next.into())),
            '=' | '!' | '<' | '>' => {
                let mut sign = String::from(next);
                sign.extend(rest.next_if_eq(&'='));
                tokens.push(Token::Word(sign));
            }
            next if next.is_alphanumeric() => {
                let mut word = String::from(next);
                while let Some(more) = rest.next_if(|c| c.is_alphanumeric()) {
                    word.push(more);
                }
                tokens.push(Token::Word(word));
            }
            other => return Err(format!("Invalid Value: {other:?} in q")),
        }
    }
    Ok(tokens)
}

fn takes(rest: &mut &[Token], word: &str) -> bool {
    let is = matches!(rest.first(), Some(Token::Word(first)) if first == word);
    if is {
        *rest = &rest[1..];
    }
    is
}

fn any(rest: &mut &[Token]) -> Result<Query, String> {
    let mut each = vec![all(rest)?];
    while takes(rest, "or") {
        each.push(all(rest)?);
    }
    Ok(if each.len() == 1 { each.remove(0) } else { Query::Or(each) })
}

fn all(rest: &mut &[Token]) -> Result<Query, String> {
    let mut each = vec![one(rest)?];
    while takes(rest, "and") {
        each.push(one(rest)?);
    }
    Ok(if each.len() == 1 { each.remove(0) } else { Query::And(each) })
}

fn one(rest: &mut &[Token]) -> Result<Query, String> {
    if takes(rest, "not") {
        return Ok(Query::Not(Box::new(one(rest)?)));
    }
    if takes(rest, "(") {
        let inner = any(rest)?;
        return if takes(rest, ")") { Ok(inner) } else { Err("Invalid Value: ) is missing in q".into()) };
    }
    let bad = || "Invalid Value: q".to_owned();
    let (first, more) = rest.split_first().ok_or_else(bad)?;
    *rest = more;
    if let Token::Text(id) = first {
        let is = takes(rest, "in") && takes(rest, "parents");
        return if is { Ok(Query::Parent(id.clone())) } else { Err(bad()) };
    }
    let Token::Word(name) = first else { return Err(bad()) };
    if name == "sharedWithMe" && !matches!(rest.first(), Some(Token::Word(sign)) if sign == "=") {
        return Ok(Query::SharedWithMe(true));
    }
    let [Token::Word(how), value, more @ ..] = *rest else { return Err(bad()) };
    *rest = more;
    let bool = |value: &Token| match value {
        Token::Word(word) if how == "=" || how == "!=" => Ok((word == "true") == (how == "=")),
        _ => Err(bad()),
    };
    let field = match &**name {
        "starred" => return Ok(Query::Starred(bool(value)?)),
        "trashed" => return Ok(Query::Trashed(bool(value)?)),
        "sharedWithMe" => return Ok(Query::SharedWithMe(bool(value)?)),
        "name" => Field::Name,
        "mimeType" => Field::MimeType,
        "modifiedTime" => Field::ModifiedTime,
        _ => return Err(bad()),
    };
    match (value, &**how) {
        (Token::Text(text), "=" | "!=" | "contains" | "<" | "<=" | ">" | ">=") => {
            Ok(Query::Text(field, how.clone(), text.clone()))
        }
        _ => Err(bad()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read() {
        let query = Query::parse("trashed=false and ('a' in parents or 'b' in parents) and (name='it\\'s \\\\')");
        assert_eq!(query.unwrap().parents(), Some(vec!["a", "b"]));
        assert_eq!(Query::parse("'a' in parents or name = 'x'").unwrap().parents(), None);
        assert!(Query::parse("sharedWithMe and not mimeType contains 'x'").is_ok());
        for bad in ["name", "name = ", "'a' in", "(trashed=false", "trashed = false)", "name='x", "size = 5", "&"] {
            assert!(Query::parse(bad).is_err(), "{bad}");
        }
    }
}
