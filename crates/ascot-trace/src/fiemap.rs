//! The extents of a file on its device (FIEMAP).
//!
//! Invariant: extents come in the order of their offsets in the file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Extents that one call returns.
const EXTENTS: usize = 128;
/// `_IOWR('f', 11, struct fiemap)`.
const FS_IOC_FIEMAP: libc::c_ulong = 0xC020_660B;
/// Write dirty pages first, so that every byte has its place.
const FIEMAP_FLAG_SYNC: u32 = 1;
/// The last extent of a file.
const FIEMAP_EXTENT_LAST: u32 = 1;
/// The place on the device is chosen when the bytes are written.
const FIEMAP_EXTENT_DELALLOC: u32 = 4;
/// The place on the device is not known, not yet allocated, encoded, or inside another block.
const FIEMAP_EXTENT_ELSEWHERE: u32 = 2 | 4 | 8 | 0x200;

/// A contiguous piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappedExtent {
    /// Its first byte in the file.
    pub logical: u64,
    /// Its first byte on the device; none if it has no place of its own.
    pub physical: Option<u64>,
    /// Its bytes.
    pub length: u64,
    /// Whether its place is chosen when its bytes are written.
    pub delayed: bool,
}

/// The extents of a file. `sync`: after its dirty pages were written.
pub fn extents(file: &File, sync: bool) -> io::Result<Vec<MappedExtent>> {
    let mut found = Vec::new();
    let mut logical = 0;
    loop {
        let map = map_from(file, logical, if sync { FIEMAP_FLAG_SYNC } else { 0 })?;
        let mapped = &map.extents[..(map.header.mapped as usize).min(EXTENTS)];
        for extent in mapped {
            let known = extent.flags & FIEMAP_EXTENT_ELSEWHERE == 0;
            found.push(MappedExtent {
                logical: extent.logical,
                physical: known.then_some(extent.physical),
                length: extent.length,
                delayed: extent.flags & FIEMAP_EXTENT_DELALLOC != 0,
            });
            logical = extent.logical.saturating_add(extent.length);
        }
        let ended = mapped.last().is_none_or(|extent| extent.flags & FIEMAP_EXTENT_LAST != 0);
        if ended || mapped.iter().all(|extent| extent.length == 0) {
            return Ok(found);
        }
    }
}

/// `struct fiemap`.
#[repr(C)]
struct MapHeader {
    start: u64,
    length: u64,
    flags: u32,
    mapped: u32,
    count: u32,
    reserved: u32,
}

/// `struct fiemap_extent`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct MapExtent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved: [u64; 2],
    flags: u32,
    more: [u32; 3],
}

#[repr(C)]
struct Map {
    header: MapHeader,
    extents: [MapExtent; EXTENTS],
}

/// The extents of a file from an offset on.
#[expect(unsafe_code, reason = "the request has no safe wrapper")]
fn map_from(file: &File, start: u64, flags: u32) -> io::Result<Map> {
    let length = u64::MAX - start;
    let header = MapHeader { start, length, flags, mapped: 0, count: EXTENTS as u32, reserved: 0 };
    let mut map = Map { header, extents: [MapExtent::default(); EXTENTS] };
    // SAFETY: the request writes at most `count` extents after the header, which is the size of the array.
    let failed = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &raw mut map) };
    if failed < 0 { Err(io::Error::last_os_error()) } else { Ok(map) }
}
