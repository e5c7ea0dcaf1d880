//! The date that rclone puts into a name of an older version (`file-v2001-02-03-040506-123.txt`): it stays readable when the name is
//! hidden.

/// Bytes of the date with its dash and `v`.
const LENGTH: usize = 23;
/// Shape of a version suffix: `0` for a digit.
const FORM: &[u8; LENGTH] = b"-v0000-00-00-000000-000";

/// A name without the date, and the date; `None` for a name that has none before its extension.
pub fn split(name: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let (base, extension) = name.split_at(extension(name));
    let (rest, date) = base.split_at(base.len().checked_sub(LENGTH)?);
    is_date(date).then(|| ([rest, extension].concat(), date.to_vec()))
}

/// A name with the date before its extension.
pub fn join(name: &[u8], date: &[u8]) -> Vec<u8> {
    let (base, extension) = name.split_at(extension(name));
    [base, date, extension].concat()
}

/// Where the last dot is, or the end.
fn extension(name: &[u8]) -> usize {
    name.iter().rposition(|byte| *byte == b'.').unwrap_or(name.len())
}

fn is_date(date: &[u8]) -> bool {
    let fits = |(byte, form): (&u8, &u8)| if *form == b'0' { byte.is_ascii_digit() } else { byte == form };
    if date.len() != LENGTH || !date.iter().zip(FORM).all(fits) {
        return false;
    }
    let number =
        |at: usize, len: usize| date[at..at + len].iter().fold(0u32, |n, digit| n * 10 + u32::from(digit - b'0'));
    let (year, month, day) = (number(2, 4), number(7, 2), number(10, 2));
    let days = match month {
        2 if year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400)) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return false,
    };
    (1..=days).contains(&day) && number(13, 2) < 24 && number(15, 2) < 60 && number(17, 2) < 60
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_found_before_the_extension() {
        for (name, rest) in [
            ("a-v2001-02-03-040506-123", Some("a")),
            ("a-v2001-02-03-040506-123.txt", Some("a.txt")),
            ("a.tar-v2001-02-03-040506-123.gz", Some("a.tar.gz")),
            ("-v2001-02-03-040506-123", Some("")),
            ("a-v2001-02-30-040506-123", None),
            ("a-v2000-02-29-040506-123", Some("a")),
            ("a-v1900-02-29-040506-123", None),
            ("a-v2001-13-03-040506-123", None),
            ("a-v2001-02-03-240506-123", None),
            ("a-v2001-02-03-040506-12", None),
            ("a-v2001-02-03-040506-123x", None),
            ("a", None),
        ] {
            let found = split(name.as_bytes());
            assert_eq!(found.as_ref().map(|(found, _)| &found[..]), rest.map(str::as_bytes), "{name}");
            if let Some((rest, date)) = found {
                assert_eq!(join(&rest, &date), name.as_bytes());
            }
        }
    }
}
