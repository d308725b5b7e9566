//! A small generator of pseudo-random numbers and UUIDs. The same seed gives the same run. The
//! simulated workers and the log generator use it. Not for secrets.

use std::fmt;
use std::time::Duration;

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// From 0 to `limit - 1`.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.number() % limit.max(1) as u64) as usize
    }

    /// From 0 up to but not including 1.
    pub fn unit(&mut self) -> f64 {
        (self.number() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        shortest + longest.saturating_sub(shortest).mul_f64(self.unit())
    }

    pub fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// Returns one of the choices. There must be at least one.
    pub fn pick<'a>(&mut self, choices: &[&'a str]) -> &'a str {
        choices[self.below(choices.len())]
    }

    pub fn uuid(&mut self) -> Uuid {
        Uuid(self.number(), self.number())
    }
}

/// A version 4 UUID. Jobs and runs have such names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(u64, u64);

impl Uuid {
    pub fn write(self, out: &mut Vec<u8>) {
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

impl fmt::Display for Uuid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(36);
        self.write(&mut text);
        formatter.write_str(&String::from_utf8_lossy(&text))
    }
}
