//! One line of comma-separated values, quoted as Go's encoding/csv does.

/// Appends the fields to `line`, parted by `comma`. A field is quoted when it holds the comma, a quote or a line break,
/// or starts with a space.
pub fn push_line(line: &mut Vec<u8>, fields: &[Vec<u8>], comma: char) {
    let mut buffer = [0; 4];
    let comma = comma.encode_utf8(&mut buffer).as_bytes();
    for (at, field) in fields.iter().enumerate() {
        if at > 0 {
            line.extend_from_slice(comma);
        }
        if !needs_quotes(field, comma) {
            line.extend_from_slice(field);
            continue;
        }
        line.push(b'"');
        for byte in field {
            if *byte == b'"' {
                line.push(b'"');
            }
            line.push(*byte);
        }
        line.push(b'"');
    }
}

fn needs_quotes(field: &[u8], comma: &[u8]) -> bool {
    if field == br"\." {
        return true;
    }
    field.first().is_some_and(|b| b" \t\x0B\x0C".contains(b))
        || field.iter().any(|b| b"\"\r\n".contains(b))
        || field.windows(comma.len()).any(|w| w == comma)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_only_where_needed() {
        let mut line = Vec::new();
        let fields = ["a", "b,c", "d\"e", " f", "", "g;h", "x\ny"].map(|f| f.as_bytes().to_vec());
        push_line(&mut line, &fields, ',');
        assert_eq!(String::from_utf8(line).unwrap(), "a,\"b,c\",\"d\"\"e\",\" f\",,g;h,\"x\ny\"");
    }
}
