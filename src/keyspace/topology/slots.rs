//! Computes which of the 16 384 hash slots of a cluster a key belongs to. The supervisor uses it to
//! route reads.

const N_SLOTS: u16 = 16_384;

/// Keys with the same `{hash tag}` are in the same slot.
pub(in crate::keyspace) fn slot_of(key: &[u8]) -> u16 {
    crc16(hash_tag(key)) % N_SLOTS
}

/// The text between the first `{` and the next `}`, if it is not empty; otherwise the complete key.
fn hash_tag(key: &[u8]) -> &[u8] {
    let Some(open) = memchr::memchr(b'{', key) else { return key };
    let after = &key[open + 1..];
    match memchr::memchr(b'}', after) {
        Some(length) if length > 0 => &after[..length],
        _ => key,
    }
}

/// CRC-16/XMODEM, as the cluster specification defines it.
fn crc16(bytes: &[u8]) -> u16 {
    let mut crc: u16 = 0;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(crc16(b"123456789"), 0x31C3);
        // The answers of `CLUSTER KEYSLOT`.
        for (key, slot) in [("123456789", 12_739), ("foo", 12_182), ("", 0), ("{user1000}.following", 3_443)] {
            assert_eq!(slot_of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn hash_tags() {
        for (key, tag) in [
            ("{user1000}.following", "user1000"),
            ("a{user1000}b{other}", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar", "foo{bar"),
        ] {
            assert_eq!(hash_tag(key.as_bytes()), tag.as_bytes(), "{key}");
        }
        assert_eq!(slot_of(b"{user1000}.following"), slot_of(b"user1000"));
    }
}
