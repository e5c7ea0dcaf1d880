//! EME, the wide-block mode that names are encrypted with: one changed bit of a name changes all of it. As in "A Parallelizable
//! Enciphering Mode" by Halevi and Rogaway (2003), with AES-256.

use aes::{
    Aes256, Block,
    cipher::{BlockCipherDecrypt, BlockCipherEncrypt},
};

/// Bytes of a block.
pub const BLOCK: usize = 16;
/// The most bytes that the mode is defined for.
pub const MOST: usize = 128 * BLOCK;

type Bytes16 = [u8; BLOCK];

/// Which way.
#[derive(Clone, Copy)]
pub enum Direction {
    /// From plain to encrypted.
    Encrypt,
    /// Back.
    Decrypt,
}

/// Encrypts or decrypts `data` in place, whose length is a multiple of [`BLOCK`], at least one and at most [`MOST`] bytes: callers
/// see to that.
pub fn transform(cipher: &Aes256, tweak: &Bytes16, data: &mut [u8], way: Direction) {
    let one = |block: &mut Bytes16| apply(cipher, block, way);
    let (blocks, rest) = data.as_chunks_mut::<BLOCK>();
    debug_assert!(rest.is_empty() && !blocks.is_empty() && blocks.len() <= MOST / BLOCK);

    let mut mask = [0; BLOCK];
    apply(cipher, &mut mask, Direction::Encrypt);
    let mut masks = Vec::with_capacity(blocks.len());
    let mut sum = *tweak;
    for block in blocks.iter_mut() {
        mask = doubled(mask);
        masks.push(mask);
        xor(block, &mask);
        one(block);
        xor(&mut sum, block);
    }

    let middle = sum;
    let mut mixed = sum;
    one(&mut mixed);
    let mut factor = middle;
    xor(&mut factor, &mixed);
    let mut first = *tweak;
    xor(&mut first, &mixed);
    for block in blocks.iter_mut().skip(1) {
        factor = doubled(factor);
        xor(block, &factor);
        xor(&mut first, block);
    }
    blocks[0] = first;

    for (block, mask) in blocks.iter_mut().zip(&masks) {
        one(block);
        xor(block, mask);
    }
}

fn apply(cipher: &Aes256, bytes: &mut Bytes16, way: Direction) {
    let mut block = Block::from(*bytes);
    match way {
        Direction::Encrypt => cipher.encrypt_block(&mut block),
        Direction::Decrypt => cipher.decrypt_block(&mut block),
    }
    *bytes = block.into();
}

fn xor(into: &mut Bytes16, other: &Bytes16) {
    into.iter_mut().zip(other).for_each(|(a, b)| *a ^= b);
}

/// Times two in GF(2¹²⁸), of little-endian numbers, by the polynomial x¹²⁸ + x⁷ + x² + x + 1.
fn doubled(bytes: Bytes16) -> Bytes16 {
    let number = u128::from_le_bytes(bytes);
    let carry = if number >> 127 == 1 { 0x87 } else { 0 };
    (number << 1 ^ carry).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aes::cipher::KeyInit;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_encrypted_comes_back(key: [u8; 32], tweak: Bytes16, blocks in 1..=128usize, seed: u8) {
            let cipher = Aes256::new(&key.into());
            let plain: Vec<u8> = (0..blocks * BLOCK).map(|n| (n as u8).wrapping_mul(31) ^ seed).collect();
            let mut data = plain.clone();
            transform(&cipher, &tweak, &mut data, Direction::Encrypt);
            prop_assert_ne!(&data, &plain);
            transform(&cipher, &tweak, &mut data, Direction::Decrypt);
            prop_assert_eq!(data, plain);
        }
    }
}
