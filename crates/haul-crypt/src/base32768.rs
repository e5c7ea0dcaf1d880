//! Base 32768: 15 bits in each character of the Basic Multilingual Plane, for stores that count a name's length in UTF-16. The
//! alphabet is that of rclone (`SafeEncoding` of Max-Sum/base32768).

/// The alphabet: runs of Unicode blocks of 32 characters each, as the number of the first (its code point / 32) and how many. The
/// first four hold the 128 characters of a tail of 7 bits, the others those of 15 bits.
const RUNS: [(u16, u16); 54] = [
    (12, 1),
    (18, 3),
    (37, 1),
    (40, 1),
    (52, 2),
    (59, 2),
    (62, 1),
    (128, 1),
    (133, 1),
    (136, 3),
    (140, 1),
    (143, 3),
    (147, 1),
    (151, 1),
    (153, 1),
    (157, 2),
    (161, 18),
    (181, 2),
    (188, 1),
    (193, 2),
    (198, 1),
    (204, 1),
    (207, 1),
    (209, 1),
    (222, 1),
    (224, 1),
    (232, 1),
    (271, 1),
    (278, 1),
    (282, 5),
    (288, 1),
    (296, 19),
    (316, 2),
    (320, 12),
    (333, 1),
    (337, 2),
    (340, 2),
    (343, 4),
    (352, 1),
    (356, 3),
    (360, 1),
    (362, 1),
    (373, 2),
    (398, 1),
    (416, 205),
    (622, 656),
    (1280, 36),
    (1317, 1),
    (1320, 8),
    (1330, 1),
    (1333, 2),
    (1336, 3),
    (1340, 1),
    (1346, 1),
];
/// Blocks of the characters that hold a tail.
const TAIL_BLOCKS: u16 = 4;

/// The character of a number below 1028 × 32.
fn character(number: u16) -> Option<char> {
    let mut block = number / 32;
    for (first, count) in RUNS {
        if block < count {
            return char::from_u32(u32::from((first + block) * 32 + number % 32));
        }
        block -= count;
    }
    None
}

/// The number of a character; `None` for one that isn't of the alphabet.
fn number(character: char) -> Option<u16> {
    let code = u16::try_from(u32::from(character)).ok()?;
    let mut before = 0;
    for (first, count) in RUNS {
        if (first..first + count).contains(&(code / 32)) {
            return Some((before + code / 32 - first) * 32 + code % 32);
        }
        before += count;
    }
    None
}

/// The bytes as characters.
pub fn encode(bytes: &[u8]) -> String {
    let (mut held, mut bits, mut text) = (0u32, 0u32, String::new());
    let mut put = |number: u32| text.extend(u16::try_from(number).ok().and_then(character));
    let of_15 = u32::from(TAIL_BLOCKS) * 32;
    for byte in bytes {
        (held, bits) = (held << 8 | u32::from(*byte), bits + 8);
        if bits >= 15 {
            bits -= 15;
            put(of_15 + (held >> bits));
            held &= (1 << bits) - 1;
        }
    }
    // The remaining bits are padded with ones.
    let filled = |width: u32| held << (width - bits) | ((1 << (width - bits)) - 1);
    match bits {
        0 => {}
        1..=7 => put(filled(7)),
        _ => put(of_15 + filled(15)),
    }
    text
}

/// The bytes behind the characters; `None` for text that [`encode`] doesn't make.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let (mut held, mut bits, mut bytes) = (0u32, 0u32, Vec::new());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        let number = u32::from(number(character)?);
        let (value, width) = match number.checked_sub(u32::from(TAIL_BLOCKS) * 32) {
            Some(value) => (value, 15),
            None if characters.as_str().is_empty() => (number, 7),
            None => return None,
        };
        (held, bits) = (held << width | value, bits + width);
        while bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
            held &= (1 << bits) - 1;
        }
    }
    (encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_alphabet_has_as_many_characters_as_it_needs() {
        assert_eq!(RUNS.iter().map(|(_, count)| count).sum::<u16>(), 1028);
        for n in 0..1028 * 32 {
            assert_eq!(character(n).and_then(number), Some(n));
        }
        assert_eq!(character(1028 * 32), None);
    }

    proptest! {
        #[test]
        fn bytes_come_back(bytes: Vec<u8>) {
            let text = encode(&bytes);
            prop_assert_eq!(text.chars().count(), (8 * bytes.len()).div_ceil(15));
            prop_assert_eq!(decode(&text), Some(bytes));
        }

        #[test]
        fn any_text_is_decoded_or_refused(text: String) {
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
