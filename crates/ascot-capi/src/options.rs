//! Options as text: `scheme=ranks memory=256MiB`, separated by spaces or commas.

use std::time::Duration;

use ascot_index::rank_writer::RankOptions;
use ascot_index::read::USUAL_MEMORY_BYTES as READER_MEMORY_BYTES;
use ascot_index::routing::{Route, RoutingSettings};
use ascot_index::{Attribute, AuxiliaryKind, Named, NumberKind, OpenMode, Opening, PartitionBy, Scheme};

use ascot_io::DEFAULT_DEPTH;
use ascot_io::elements::StreamKind;

use crate::fault::Fault;

/// Default memory of a writer, bytes.
const USUAL_MEMORY_BYTES: usize = 64 << 20;

/// All option names of a writer, for an error message.
const WRITER_NAMES: &str = "scheme, key, value, memory, partitions, partition_by, attribute, open, rollback, append, \
                            seed, auxiliary, route, batch, max_message, spare, ranks_per_node, patience";

/// The options of a writer.
pub fn writer_options(text: &str) -> Result<RankOptions, Fault> {
    let mut options = RankOptions {
        opening: Opening::default(),
        memory_bytes: USUAL_MEMORY_BYTES,
        routing: RoutingSettings::default(),
    };
    let words = words(text)?;
    if ["open", "append"].iter().all(|name| words.iter().any(|(given, _)| given == name)) {
        return Err(Fault::invalid("open= and append= say the same thing: keep open="));
    }
    for (name, value) in words {
        set(&mut options, name, value)?;
    }
    let Opening { mode, rollback, .. } = &options.opening;
    if *mode == OpenMode::Create && rollback.is_some() {
        return Err(Fault::invalid(
            "rollback= is for a directory that is gone on with: open=append or open=auto",
        ));
    }
    Ok(options)
}

/// The memory of a reader, bytes.
pub fn reader_memory(text: &str) -> Result<usize, Fault> {
    let mut memory = READER_MEMORY_BYTES;
    for (name, value) in words(text)? {
        match name {
            "memory" => memory = size(name, value)?,
            _ => return Err(unknown(name, "memory")),
        }
    }
    Ok(memory)
}

/// The kind of a stream of elements of `element_bytes`.
pub fn stream_kind(text: &str, element_bytes: usize) -> Result<StreamKind, Fault> {
    let mut kind = "buffered";
    let mut block = None;
    let mut depth = None;
    for (name, value) in words(text)? {
        match name {
            "kind" => kind = value,
            "block" => block = Some(size(name, value)?),
            "depth" => depth = Some(number(name, value)?),
            _ => return Err(unknown(name, "kind, block, depth")),
        }
    }
    let needed =
        || block.ok_or_else(|| Fault::invalid(format!("kind={kind} needs block=BYTES, such as block=64KiB")));
    let made = match kind {
        // The elements of C have a size of their own: blocks of one element.
        "plain" => StreamKind::Sized { block_bytes: element_bytes },
        "buffered" => StreamKind::Buffered,
        "sized" => StreamKind::Sized { block_bytes: needed()? },
        "mapped" => StreamKind::Mapped { window_bytes: needed()? },
        "direct" => StreamKind::Direct { block_bytes: needed()?, depth: depth.unwrap_or(DEFAULT_DEPTH) },
        _ => {
            return Err(Fault::invalid(format!(
                "kind={kind}: it can be plain, buffered, sized, mapped, direct"
            )));
        }
    };
    match (kind, block, depth) {
        ("plain" | "buffered", Some(_), _) => Err(Fault::invalid(format!("kind={kind} has no block="))),
        ("direct", ..) | (_, _, None) => Ok(made),
        _ => Err(Fault::invalid(format!("kind={kind} has no depth="))),
    }
}

fn set(options: &mut RankOptions, name: &str, value: &str) -> Result<(), Fault> {
    let RankOptions { opening: Opening { mode, rollback, request }, memory_bytes, routing } = options;
    match name {
        "scheme" => request.scheme = Some(choice(name, value, Scheme::NAMED)?),
        "auxiliary" => request.auxiliary = Some(choice(name, value, AuxiliaryKind::NAMED)?),
        "partition_by" => request.partition_by = Some(choice(name, value, PartitionBy::NAMED)?),
        "attribute" => request.attribute = Some(attribute(name, value)?),
        "route" => {
            routing.route =
                choice(name, value, &[("direct", Route::Direct), ("three-hop", Route::ThreeHop)])?;
        }
        "open" => *mode = choice(name, value, OpenMode::NAMED)?,
        "append" => *mode = choice(name, value, &[("yes", OpenMode::Append), ("no", OpenMode::Create)])?,
        "rollback" => *rollback = Some(number(name, value)?),
        "key" => request.key_bytes = Some(at_least_one(name, number(name, value)?)?),
        "value" => request.value_bytes = Some(number(name, value)?),
        "partitions" => request.partitions = Some(at_least_one(name, number(name, value)?)?),
        "seed" => request.seed = Some(number(name, value)?),
        "memory" => *memory_bytes = size(name, value)?,
        "batch" => routing.batch_bytes = size(name, value)?,
        "max_message" => routing.max_message_bytes = size(name, value)?,
        "spare" => routing.spare_batches = number(name, value)?,
        "ranks_per_node" => routing.ranks_per_node = Some(number(name, value)?),
        "patience" => routing.patience = Duration::from_secs(number(name, value)?),
        _ => return Err(unknown(name, WRITER_NAMES)),
    }
    Ok(())
}

fn words(text: &str) -> Result<Vec<(&str, &str)>, Fault> {
    let mut words: Vec<(&str, &str)> = Vec::new();
    for word in text.split([' ', ',', '\t', '\n']).filter(|word| !word.is_empty()) {
        let wrong = || Fault::invalid(format!("option {word:?} is not name=value"));
        let (name, value) = word.split_once('=').ok_or_else(wrong)?;
        if words.iter().any(|(before, _)| *before == name) {
            return Err(Fault::invalid(format!("option {name:?} is given twice: keep one")));
        }
        words.push((name, value));
    }
    Ok(words)
}

fn unknown(name: &str, known: &str) -> Fault {
    Fault::invalid(format!("there is no option {name:?}; there are {known}"))
}

fn choice<C: Copy>(name: &str, value: &str, choices: &[(&str, C)]) -> Result<C, Fault> {
    let found = choices.iter().find(|(choice, _)| *choice == value).map(|(_, meaning)| *meaning);
    found.ok_or_else(|| {
        let known: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
        Fault::invalid(format!("{name}={value}: it can be {}", known.join(", ")))
    })
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> Result<N, Fault> {
    value.parse().map_err(|_| Fault::invalid(format!("{name}={value}: a whole number is wanted")))
}

fn at_least_one(name: &str, number: u32) -> Result<u32, Fault> {
    if number == 0 { Err(Fault::invalid(format!("{name}=0: there is one at least"))) } else { Ok(number) }
}

/// An attribute in values: `name:byte:kind`.
fn attribute(option: &str, value: &str) -> Result<Attribute, Fault> {
    let wrong = || {
        let text = "name:byte:kind is wanted, such as energy:40:f64; kinds are f64, f32, i64, u64, i32, u32";
        Fault::invalid(format!("{option}={value}: {text}"))
    };
    let parts: Vec<&str> = value.split(':').collect();
    let [name, offset, kind] = parts[..] else { return Err(wrong()) };
    match (offset.parse(), NumberKind::named(kind)) {
        (Ok(offset), Some(kind)) if !name.is_empty() => Ok(Attribute { name: name.to_owned(), offset, kind }),
        _ => Err(wrong()),
    }
}

/// A size in bytes: a number, or one followed by `KiB`, `MiB` or `GiB`.
fn size(name: &str, value: &str) -> Result<usize, Fault> {
    let wrong =
        || Fault::invalid(format!("{name}={value}: bytes are wanted, such as 65536, 64KiB, 256MiB or 2GiB"));
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = value.split_at(digits);
    let unit: usize = match unit {
        "" | "B" => 1,
        "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        _ => return Err(wrong()),
    };
    count.parse::<usize>().ok().and_then(|count| count.checked_mul(unit)).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let text =
            "scheme=ranks,key=8 value=48  memory=256MiB route=direct batch=4096 ranks_per_node=2 append=yes";
        let options = writer_options(text).unwrap();
        let request = &options.opening.request;
        assert_eq!((request.scheme, request.key_bytes), (Some(Scheme::Ranks), Some(8)));
        assert_eq!((request.seed, request.partitions), (None, None), "what is not said is not asked for");
        assert_eq!((options.memory_bytes, options.opening.mode), (256 << 20, OpenMode::Append));
        let opening = writer_options("open=auto rollback=3").unwrap().opening;
        assert_eq!((opening.mode, opening.rollback), (OpenMode::Auto, Some(3)));
        assert_eq!((options.routing.route, options.routing.batch_bytes), (Route::Direct, 4096));
        assert_eq!(options.routing.ranks_per_node, Some(2));
        let layout = writer_options("partition_by=range attribute=energy:40:f64").unwrap().opening.request;
        assert_eq!(layout.partition_by, Some(PartitionBy::Range));
        assert_eq!(
            layout.attribute,
            Some(Attribute { name: "energy".into(), offset: 40, kind: NumberKind::F64 })
        );
        assert_eq!(reader_memory("memory=1GiB").unwrap(), 1 << 30);
    }

    #[test]
    fn wrong_options_are_named() {
        for (text, wanted) in [
            ("shceme=ranks", "there are scheme"),
            ("scheme=lossy", "records, pointers, ranks"),
            ("memory=lots", "such as"),
            ("memory=5PiB", "such as"),
            ("key", "name=value"),
            ("key=-8", "whole number"),
            ("partitions=0", "one at least"),
            ("key=0", "one at least"),
            ("key=8 scheme=ranks key=8", "\"key\" is given twice"),
            ("partition_by=luck", "hash, range"),
            ("open=maybe", "create, append, auto"),
            ("open=auto append=yes", "keep open="),
            ("rollback=2", "open=append or open=auto"),
            ("open=auto rollback=-1", "whole number"),
            ("attribute=energy", "name:byte:kind"),
            ("attribute=energy:x:f64", "name:byte:kind"),
            ("memory=99999999999999999999GiB", "such as"),
        ] {
            let fault = writer_options(text).unwrap_err();
            assert!(fault.text.contains(wanted), "{text}: {}", fault.text);
        }
    }
}
