//! The MD5 of DVC 2 and before (`md5-dos2unix`): of text, `\r\n` is made `\n` first. Pure.

use crate::md5::Md5;

/// DVC reads this many bytes at a time, and converts each piece separately: a line end across two pieces stays as it is.
const PIECE: usize = 1 << 20;
/// Bytes at the beginning of a piece that decide whether it is text.
const HEAD: usize = 512;

/// Hashes bytes as they pass.
#[derive(Default)]
pub(crate) struct Dos2Unix {
    md5: Md5,
    /// The beginning of the next piece.
    waiting: Vec<u8>,
}

impl Dos2Unix {
    /// Takes in the next bytes.
    pub fn update(&mut self, mut bytes: &[u8]) {
        while self.waiting.len() + bytes.len() >= PIECE {
            let (now, later) = bytes.split_at(PIECE - self.waiting.len());
            bytes = later;
            if self.waiting.is_empty() {
                piece(&mut self.md5, now);
                continue;
            }
            self.waiting.extend_from_slice(now);
            piece(&mut self.md5, &self.waiting);
            self.waiting.clear();
        }
        self.waiting.extend_from_slice(bytes);
    }

    /// The hash of all bytes.
    pub fn finish(mut self) -> [u8; 16] {
        piece(&mut self.md5, &self.waiting);
        self.md5.finish()
    }
}

fn piece(md5: &mut Md5, piece: &[u8]) {
    if !is_text(piece) {
        return md5.update(piece);
    }
    let mut rest = piece;
    while let Some(at) = rest.windows(2).position(|pair| pair == b"\r\n") {
        md5.update(&rest[..at]);
        rest = &rest[at + 1..];
    }
    md5.update(rest);
}

/// Text has no zero byte and at most 30 % unusual ones in its head; nothing at all is text.
fn is_text(piece: &[u8]) -> bool {
    let head = &piece[..piece.len().min(HEAD)];
    let usual = |b: &u8| matches!(b, 32..=126 | b'\n' | b'\r' | b'\t' | 0x0c | 0x08);
    let unusual = head.iter().filter(|b| !usual(b)).count();
    !head.contains(&0) && unusual * 10 <= head.len() * 3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::{Algo, hash_bytes, to_hex};

    fn of(bytes: &[u8]) -> String {
        let at_once = |size: usize| {
            let mut hasher = Dos2Unix::default();
            bytes.chunks(size).for_each(|some| hasher.update(some));
            to_hex(&hasher.finish())
        };
        let whole = at_once(bytes.len().max(1));
        assert!([1, 1000, PIECE - 1, PIECE, PIECE + 1].iter().all(|size| at_once(*size) == whole));
        whole
    }

    // All hashes here were computed by DVC 2.58.2 or 3.67.1.
    #[test]
    fn hashes_as_dvc_computes_them() {
        assert_eq!(of(b"hello\r\nworld\r\n"), "0f723ae7f9bf07744445e93ac5595156");
        assert_eq!(of(b"hello\n"), "b1946ac92492d2347c6235b4d2611184");
        assert_eq!(of(b""), "d41d8cd98f00b204e9800998ecf8427e");
    }

    #[test]
    fn a_line_end_across_two_pieces_stays() {
        let bytes = [&vec![b'a'; PIECE - 1][..], b"\r\n", &[b'b'; 10], b"\r\n"].concat();
        assert_eq!(of(&bytes), "4e12b1c1f8f47986bedcae4147ecf91b");
    }

    #[test]
    fn data_is_hashed_as_it_is() {
        let plain = |bytes: &[u8]| hash_bytes(&[Algo::Md5], bytes).hex(Algo::Md5).unwrap();
        let zero = b"a\0\r\nb";
        assert_eq!(of(zero), plain(zero));
        let unusual = [&[0xff; 31][..], &[b'a'; 67], b"\r\n"].concat();
        assert_eq!(of(&unusual), plain(&unusual), "31 of 100 are too many");
        let usual = [&[0xff; 30][..], &[b'a'; 68], b"\r\n"].concat();
        assert_ne!(of(&usual), plain(&usual), "30 of 100 are not");
    }
}
