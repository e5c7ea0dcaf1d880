//! The MD5 of DVC 2 and before (`md5-dos2unix`): of text, `\r\n` is made `\n` first. Pure.

use crate::address::Md5;
use haul_core::{Algo, hash::Hasher};

/// DVC reads so many bytes at a time, and treats each piece by itself: a line end across two pieces stays as it is.
pub const PIECE: usize = 1 << 20;
/// Bytes at the beginning of a piece that tell text from other data.
const HEAD: usize = 512;

/// Hashes pieces in order, all but the last [`PIECE`] bytes long.
pub struct Dos2Unix(Hasher);

impl Default for Dos2Unix {
    fn default() -> Self {
        Dos2Unix(Hasher::new(&[Algo::Md5]))
    }
}

impl Dos2Unix {
    /// Takes in the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        if !is_text(piece) {
            return self.0.update(piece);
        }
        let mut rest = piece;
        while let Some(at) = rest.windows(2).position(|pair| pair == b"\r\n") {
            self.0.update(&rest[..at]);
            rest = &rest[at + 1..];
        }
        self.0.update(rest);
    }

    /// The hash of all pieces.
    pub fn finish(self) -> Md5 {
        let mut md5 = Md5::default();
        md5.copy_from_slice(self.0.finish().get(Algo::Md5).unwrap_or(&[0; 16]));
        md5
    }
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
    use haul_core::hash::to_hex;

    fn of(bytes: &[u8]) -> String {
        let mut hasher = Dos2Unix::default();
        bytes.chunks(PIECE).for_each(|piece| hasher.update(piece));
        to_hex(&hasher.finish())
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
        let plain = |bytes: &[u8]| to_hex(&crate::manifest::md5(bytes));
        let zero = b"a\0\r\nb";
        assert_eq!(of(zero), plain(zero));
        let unusual = [&[0xff; 31][..], &[b'a'; 67], b"\r\n"].concat();
        assert_eq!(of(&unusual), plain(&unusual), "31 of 100 are too many");
        let usual = [&[0xff; 30][..], &[b'a'; 68], b"\r\n"].concat();
        assert_ne!(of(&usual), plain(&usual), "30 of 100 are not");
    }
}
