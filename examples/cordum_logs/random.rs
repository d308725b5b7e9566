//! A small seeded random generator (splitmix64): the same seed gives the same log on every machine and release.

pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // The high half of the product: no division on the hot path.
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        (self.next() as f64) < probability * (u64::MAX as f64)
    }

    pub(crate) fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len() as u64) as usize]
    }

    pub(crate) fn uuid(&mut self) -> Uuid {
        Uuid(self.next(), self.next())
    }
}

/// A version 4 UUID; jobs are named by them.
#[derive(Clone, Copy)]
pub(crate) struct Uuid(u64, u64);

impl Uuid {
    pub(crate) fn write(self, out: &mut Vec<u8>) {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let high = (self.0 & !0xF000) | 0x4000;
        let low = (self.1 & (u64::MAX >> 2)) | (1 << 63);
        let value = (u128::from(high) << 64) | u128::from(low);
        let mut text = [b'-'; 36];
        let mut position = 0;
        for nibble in 0..32 {
            if matches!(position, 8 | 13 | 18 | 23) {
                position += 1;
            }
            text[position] = HEX[((value >> (124 - 4 * nibble)) & 15) as usize];
            position += 1;
        }
        out.extend_from_slice(&text);
    }
}

impl std::fmt::Display for Uuid {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = Vec::with_capacity(36);
        self.write(&mut text);
        formatter.write_str(&String::from_utf8_lossy(&text))
    }
}
