//! Checksums of bytes and their address, so that a misplaced block has a wrong checksum.

use pleach_env::FileId;

/// CRC32C over file id, offset and `bytes`.
pub(crate) fn address_crc(file_id: FileId, offset: u64, bytes: &[u8]) -> u32 {
    let mut address = [0; 16];
    address[..8].copy_from_slice(&file_id.0.to_le_bytes());
    address[8..].copy_from_slice(&offset.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&address), bytes)
}
