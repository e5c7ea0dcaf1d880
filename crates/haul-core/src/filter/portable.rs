//! A filter as data that may cross a wire, so that the store at its other end prunes listings by it: for `#[serde(with)]` on a
//! field of a request. Some filters are bound to their machine: rules in its directories, names that other sources
//! of the same transfer show, and lists of names that are too long for a message. A request is sent without them then, and the caller
//! filters the answer.

use super::{Filter, FilterSpec, first_match::Portable};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser};
use std::{borrow::Cow, sync::Arc};

/// Names of `--files-from` that go along at most, in bytes: a longer list costs more than it saves.
const MOST_NAMES: usize = 1 << 20;

#[derive(Serialize, Deserialize)]
struct Wire<'a> {
    spec: Cow<'a, FilterSpec>,
    selection: Option<Portable>,
    destination: bool,
    renamed: bool,
}

impl Filter {
    /// True when it is data alone, which means the same on any machine.
    pub fn is_portable(&self) -> bool {
        let names = self.spec.files_from.iter().flatten().map(Vec::len).sum::<usize>();
        names <= MOST_NAMES && self.selection.as_ref().is_none_or(|selection| selection.portable().is_some())
    }
}

/// True when nothing of the filter can be serialised.
pub fn is_none(filter: &Option<Arc<Filter>>) -> bool {
    filter.as_ref().is_none_or(|filter| !filter.is_portable())
}

/// Writes a filter.
///
/// Errors: it isn't portable.
pub fn serialize<S: Serializer>(filter: &Option<Arc<Filter>>, to: S) -> Result<S::Ok, S::Error> {
    let Some(filter) = filter else { return to.serialize_none() };
    let selection = match &filter.selection {
        Some(selection) => {
            let portable = selection.portable();
            Some(portable.ok_or_else(|| ser::Error::custom("the filter's rules depend on this machine"))?)
        }
        None => None,
    };
    let (spec, destination, renamed) = (Cow::Borrowed(&filter.spec), filter.destination, filter.renamed);
    to.serialize_some(&Wire { spec, selection, destination, renamed })
}

/// Reads a filter, and compiles it.
///
/// Errors: a rule that can't be compiled.
pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Arc<Filter>>, D::Error> {
    let Some(Wire { spec, selection, destination, renamed }) = Option::<Wire>::deserialize(from)? else {
        return Ok(None);
    };
    let spec = spec.into_owned();
    let filter = match selection {
        // Its rules aren't in the form of the others; their texts stand there only to be compared.
        Some(selection) => Filter { spec, selection: Some(Arc::new(selection.into())), ..Filter::default() },
        None => Filter::new(spec).map_err(de::Error::custom)?,
    };
    Ok(Some(Arc::new(Filter { destination, renamed, ..filter })))
}
