//! Numbers as they are typed.

/// A number of bytes as it is typed, with decimal `k`, `M`, `G`, `T`.
///
/// Errors: what was wanted.
pub fn bytes(text: &str) -> Result<u64, String> {
    let want = "want bytes as a number with k, M, G or T, such as 25M";
    let text = text.trim();
    let (digits, factor) = match text.chars().last().ok_or(want)? {
        'k' | 'K' => (&text[..text.len() - 1], 1e3),
        'M' => (&text[..text.len() - 1], 1e6),
        'G' => (&text[..text.len() - 1], 1e9),
        'T' => (&text[..text.len() - 1], 1e12),
        _ => (text, 1.0),
    };
    let number = digits.parse::<f64>().ok().filter(|n| *n >= 0.0 && n.is_finite()).ok_or(want)?;
    Ok((number * factor) as u64)
}
