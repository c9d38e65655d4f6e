//! Run files: what is written is read, nothing else ever is.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may fail loudly")]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ascot_io::{Backend, BlockPool, Buf, ChooseCodec, Codec, Disk, IoError, RunId, RunIndex, RunReader};
use ascot_io::{RunWriter, SpillCodec, read_index};
use ascot_model::codec::StoredBlock;
use common::*;
use proptest::prelude::*;

/// Text-like bytes that compress, then bytes that do not.
fn block(number: usize, len: usize) -> Vec<u8> {
    if number.is_multiple_of(2) {
        (0..len).map(|at| b"the same words again and again "[(at + number) % 31]).collect()
    } else {
        data(len)
    }
}

/// Runs are created where there is nothing.
fn remove(path: &Path) {
    let _ = std::fs::remove_file(path);
}

fn write_run(
    disk: &Disk,
    path: &Path,
    lens: &[usize],
    codec: impl Into<SpillCodec>,
) -> Result<RunIndex, IoError> {
    remove(path);
    let mut writer = RunWriter::create(disk, path, RunId(0x1122_3344_5566_7788), codec)?;
    for (number, len) in lens.iter().enumerate() {
        let bytes = block(number, *len);
        writer.write_block(buf_of(&bytes), *len, (*len / 3) as u32)?;
    }
    writer.finish()
}

fn read_run(disk: &Disk, path: &Path, from: usize, depth: usize) -> Result<Vec<Vec<u8>>, IoError> {
    let index = Arc::new(read_index(disk, path)?);
    let mut reader = RunReader::open(disk, path, Arc::clone(&index), from)?;
    let mut blocks = Vec::new();
    loop {
        while reader.in_flight() < depth && reader.remaining_to_begin() > 0 {
            let next = index.blocks.len() - reader.remaining_to_begin();
            let bytes = index.blocks[next].buffer_bytes();
            reader.begin(Buf::heap(bytes + 4096))?;
        }
        if reader.in_flight() == 0 {
            return Ok(blocks);
        }
        let filled = reader.complete()?;
        assert_eq!(filled.len(), index.blocks[from + blocks.len()].raw as usize);
        blocks.push(filled.bytes().to_vec());
    }
}

/// Each codec in turn.
#[derive(Default)]
struct InTurn(AtomicUsize);

impl ChooseCodec for InTurn {
    fn choose(&self, _: &[u8]) -> Codec {
        Codec::ALL[self.0.load(Relaxed) % Codec::ALL.len()]
    }

    fn note(&self, _: StoredBlock) {
        self.0.fetch_add(1, Relaxed);
    }
}

fn codecs() -> Vec<SpillCodec> {
    let in_turn = SpillCodec::new(Arc::new(InTurn::default()));
    Codec::ALL.into_iter().map(SpillCodec::from).chain([in_turn]).collect()
}

#[test]
fn runs_read_back_from_any_block() {
    let directory = directory();
    let lens = [10_000, 1, 4096, 70_000, 4095, 65536, 5];
    let expected: Vec<_> = lens.iter().enumerate().map(|(number, len)| block(number, *len)).collect();
    for disk in disks() {
        for (number, codec) in codecs().into_iter().enumerate() {
            let path = directory.path().join("run");
            let index = write_run(&disk, &path, &lens, codec).unwrap();
            assert_eq!(index.bytes, lens.iter().sum::<usize>() as u64);
            assert_eq!(read_index(&disk, &path).unwrap(), index);
            for from in 0..=lens.len() {
                let blocks = read_run(&disk, &path, from, 1 + from % 3).unwrap();
                assert!(blocks == expected[from..], "codec {number} from {from}");
            }
        }
    }
}

#[test]
fn blocks_of_one_run_have_codecs_of_their_own() {
    let directory = directory();
    let path = directory.path().join("run");
    let disk = disk(Backend::Direct, None);
    let index = write_run(&disk, &path, &[65536; 12], codecs().remove(3)).unwrap();
    let stored: Vec<Codec> = index.blocks.iter().map(|block| block.codec).collect();
    // Every second block does not shrink and is stored as it is.
    let turn = [Codec::None, Codec::None, Codec::Zstd, Codec::None, Codec::Lz4, Codec::None];
    assert_eq!(stored, [turn, turn].concat());
    let blocks = read_run(&disk, &path, 0, 3).unwrap();
    assert!((0..12).all(|number| blocks[number] == block(number, 65536)));
}

#[test]
fn compression_saves_pages_or_is_not_used() {
    let directory = directory();
    let path = directory.path().join("run");
    let disk = disk(Backend::Direct, None);
    for codec in Codec::COMPRESSING {
        let index = write_run(&disk, &path, &[65536, 65536], codec).unwrap();
        assert!(index.blocks[0].stored < 8192, "{:?}", index.blocks[0]);
        assert_eq!(index.blocks[1].stored, 65536);
    }
    let index = write_run(&disk, &path, &[], Codec::None).unwrap();
    assert_eq!((index.blocks.len(), index.data_end()), (0, 0));
    assert!(read_run(&disk, &path, 0, 2).unwrap().is_empty());
}

#[test]
fn a_run_goes_on_after_a_checkpoint() {
    let directory = directory();
    let path = directory.path().join("run");
    for disk in disks() {
        remove(&path);
        let mut writer = RunWriter::create(&disk, &path, RunId(9), Codec::Lz4).unwrap();
        writer.write_block(buf_of(&block(0, 9000)), 9000, 0).unwrap();
        let kept = writer.checkpoint().unwrap();
        writer.write_block(buf_of(&block(5, 9000)), 9000, 0).unwrap();
        drop(writer);
        assert!(read_index(&disk, &path).is_err());
        let kept = RunIndex::from_bytes(&kept.to_bytes()).unwrap();
        let mut writer = RunWriter::resume(&disk, &path, kept, Codec::Zstd).unwrap();
        writer.write_block(buf_of(&block(1, 5000)), 5000, 0).unwrap();
        writer.finish().unwrap();
        assert!(read_run(&disk, &path, 0, 2).unwrap() == [block(0, 9000), block(1, 5000)]);
    }
}

#[test]
fn any_damage_is_found() {
    let directory = directory();
    let path = directory.path().join("run");
    let disk = disk(Backend::Sized(65536), None);
    let lens = [5000, 4096, 9000];
    let expected: Vec<_> = lens.iter().enumerate().map(|(number, len)| block(number, *len)).collect();
    for codec in Codec::ALL {
        let index = write_run(&disk, &path, &lens, codec).unwrap();
        let good = std::fs::read(&path).unwrap();
        let padding = |at: u64| {
            index
                .blocks
                .iter()
                .any(|it| (it.offset + u64::from(it.stored)..it.offset + it.padded()).contains(&at))
        };
        for at in (0..good.len()).filter(|at| *at as u64 >= index.data_end() || at.is_multiple_of(61)) {
            let mut bad = good.clone();
            bad[at] ^= 1 << (at % 8);
            std::fs::write(&path, &bad).unwrap();
            match read_run(&disk, &path, 0, 2) {
                Ok(blocks) => assert!(padding(at as u64) && blocks == expected, "byte {at}"),
                Err(error) => assert!(is_corrupt(&error) && !padding(at as u64), "byte {at}: {error}"),
            }
        }
        for len in (0..good.len()).step_by(97).chain(good.len() - 70..good.len()) {
            std::fs::write(&path, &good[..len]).unwrap();
            assert!(is_corrupt(&read_run(&disk, &path, 0, 2).unwrap_err()), "cut to {len}");
        }
    }
}

#[test]
fn blocks_in_the_wrong_place_or_of_another_run_are_found() {
    let directory = directory();
    let (path, other) = (directory.path().join("run"), directory.path().join("other"));
    let disk = disk(Backend::Direct, None);
    let index = write_run(&disk, &path, &[4096; 4], Codec::None).unwrap();
    let mut swapped = std::fs::read(&path).unwrap();
    let (first, second) = swapped.split_at_mut(2 * 4096);
    first[..4096].swap_with_slice(&mut second[..4096]);
    std::fs::write(&other, &swapped).unwrap();
    match read_run(&disk, &other, 0, 1).unwrap_err() {
        IoError::Corrupt { offset, block, .. } => assert_eq!((offset, block), (0, 0)),
        error => panic!("{error}"),
    }
    let mut foreign = index.clone();
    foreign.id = RunId(1);
    let mut reader = RunReader::open(&disk, &path, Arc::new(foreign), 0).unwrap();
    reader.begin(Buf::heap(4096)).unwrap();
    assert!(is_corrupt(&reader.complete().unwrap_err()));
}

#[test]
fn readers_want_room_and_writers_want_sense() {
    let directory = directory();
    let path = directory.path().join("run");
    let disk = disk(Backend::Direct, None);
    write_run(&disk, &path, &[5000], Codec::None).unwrap();
    let mut reader = RunReader::open(&disk, &path, Arc::new(read_index(&disk, &path).unwrap()), 0).unwrap();
    assert!(reader.complete().is_err());
    assert!(reader.begin(Buf::heap(4096)).is_err());
    reader.begin(Buf::heap(8192)).unwrap();
    assert!(reader.begin(Buf::heap(8192)).is_err());
    assert!(reader.complete().is_ok());
    remove(&path);
    let mut writer = RunWriter::create(&disk, &path, RunId(1), Codec::None).unwrap();
    assert!(writer.write_block(Buf::heap(10), 11, 0).is_err());
    assert!(writer.write_block(Buf::heap(10), 10, 11).is_err());
    writer.write_block(Buf::heap(10), 0, 0).unwrap();
    assert_eq!(writer.index().blocks.len(), 0);
}

#[test]
fn blocks_read_into_leased_memory_come_back_whole() {
    let directory = directory();
    let path = directory.path().join("run");
    let disk = disk(Backend::Direct, None);
    write_run(&disk, &path, &[5000, 5000], Codec::Lz4).unwrap();
    let blocks = BlockPool::new(Buf::heap(2 * 65536), 65536);
    let mut reader = RunReader::open(&disk, &path, Arc::new(read_index(&disk, &path).unwrap()), 0).unwrap();
    reader.begin(blocks.take(|| false).unwrap()).unwrap();
    reader.begin(blocks.take(|| false).unwrap()).unwrap();
    let first = reader.complete().unwrap();
    assert_eq!((first.buf.len(), blocks.free()), (65536, 0));
    drop(first);
    assert_eq!(blocks.free(), 1);
    drop(reader);
    let (_a, _b) = (blocks.take(|| false).unwrap(), blocks.take(|| false).unwrap());
}

/// The format never changes by accident: these are the bytes of `docs/formats/run.md`.
#[test]
fn the_golden_file_is_written_and_read() {
    let directory = directory();
    let path = directory.path().join("run");
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/two-blocks.run");
    let disk = disk(Backend::Direct, None);
    let mut writer = RunWriter::create(&disk, &path, RunId(42), Codec::None).unwrap();
    writer.write_block(buf_of(&[b'a'; 5000]), 5000, 0).unwrap();
    writer.write_block(buf_of(b"last\n"), 5, 5).unwrap();
    writer.finish().unwrap();
    if std::env::var_os("ASCOT_WRITE_GOLDEN").is_some() {
        std::fs::copy(&path, &golden).unwrap();
    }
    assert!(std::fs::read(&path).unwrap() == std::fs::read(&golden).unwrap());
    // A file of version 1, in which all blocks had one codec, is read as well.
    for golden in [golden.clone(), golden.with_file_name("two-blocks-1.run")] {
        assert!(read_run(&disk, &golden, 0, 1).unwrap() == [vec![b'a'; 5000], b"last\n".to_vec()]);
    }
}

fn small_index() -> impl Strategy<Value = RunIndex> {
    let codec = prop::sample::select(Codec::COMPRESSING.to_vec());
    let entry =
        (1..100_000u32).prop_flat_map(move |raw| (1..=raw, Just(raw), any::<u32>(), 0..=raw, codec.clone()));
    (any::<u64>(), prop::collection::vec(entry, 0..20)).prop_map(|(id, entries)| {
        let mut index = RunIndex { id: RunId(id), blocks: Vec::new(), bytes: 0 };
        for (stored, raw, crc, first_record, codec) in entries {
            let offset = index.data_end();
            let codec = if stored < raw { codec } else { Codec::None };
            index.blocks.push(ascot_io::BlockEntry { offset, stored, raw, crc, first_record, codec });
            index.bytes += u64::from(raw);
        }
        index
    })
}

proptest! {
    #[test]
    fn an_index_reads_back(index in small_index()) {
        prop_assert_eq!(RunIndex::from_bytes(&index.to_bytes()).unwrap(), index);
    }

    #[test]
    fn a_malformed_index_is_an_error(
        index in small_index(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let good = index.to_bytes();
        let mut bad = good.clone();
        for (at, byte) in changes {
            let at = at.index(bad.len());
            bad[at] = byte;
        }
        if let Some(cut) = cut {
            bad.truncate(cut.index(good.len()));
        }
        prop_assert!(bad == good || RunIndex::from_bytes(&bad).is_err());
    }

    #[test]
    fn any_bytes_are_no_index(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(RunIndex::from_bytes(&bytes).is_err());
    }

    /// A footer whose checksums are right but whose numbers are nonsense allocates nothing much:
    /// the file's size bounds what is believed.
    #[test]
    fn a_forged_footer_is_refused(fields in any::<[u64; 3]>(), entries in 0..3usize) {
        let directory = directory();
        let path = directory.path().join("run");
        let mut forged = RunIndex { id: RunId(1), ..RunIndex::default() }.to_bytes();
        for (number, field) in fields.iter().enumerate() {
            forged[24 + 8 * number..32 + 8 * number].copy_from_slice(&field.to_le_bytes());
        }
        let crc = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &forged[..60]) as u32;
        forged[60..].copy_from_slice(&crc.to_le_bytes());
        let mut file = vec![0; 16 * entries];
        file.extend_from_slice(&forged);
        std::fs::write(&path, &file).unwrap();
        prop_assert!(RunIndex::from_bytes(&file).is_err());
        prop_assert!(read_index(&disk(Backend::Sized(4096), None), &path).is_err());
    }
}
