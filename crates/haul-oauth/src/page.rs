//! Limit of a page of a listing: an answer that is small as text is large once each `{}` of it is an entry.

use serde::{
    Deserialize, Deserializer,
    de::{Error, SeqAccess, Visitor},
};
use std::{fmt, marker::PhantomData};

/// Entries of a page: no service gives out more than 10,000 (SharePoint's pages of what a drive holds).
const MOST: usize = 20_000;

struct Few<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Few<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the entries of a page")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut entries: A) -> Result<Vec<T>, A::Error> {
        let mut all = Vec::new();
        while let Some(entry) = entries.next_element()? {
            if all.len() >= MOST {
                return Err(A::Error::custom(format!("more than {MOST} entries in one page")));
            }
            all.push(entry);
        }
        Ok(all)
    }
}

/// The entries of a page, for `deserialize_with`.
///
/// Errors: there are more than a page can have.
pub fn few<'de, D: Deserializer<'de>, T: Deserialize<'de>>(page: D) -> Result<Vec<T>, D::Error> {
    page.deserialize_seq(Few(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct Page {
        #[serde(deserialize_with = "few")]
        entries: Vec<u8>,
    }

    #[test]
    fn a_page_of_too_many_entries_is_an_error() {
        let read =
            |count: usize| serde_json::from_str::<Page>(&format!("{{\"entries\":[{}]}}", vec!["1"; count].join(",")));
        assert_eq!(read(MOST).unwrap().entries.len(), MOST);
        let error = read(MOST + 1).err().unwrap().to_string();
        assert!(error.starts_with("more than 20000 entries in one page"), "{error}");
    }
}
