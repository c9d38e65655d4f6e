//! The names of Arrow's types in messages.

use arrow_schema::{DataType, IntervalUnit, TimeUnit};

/// The name of a type, as pyarrow writes it.
pub fn type_name(data_type: &DataType) -> String {
    use DataType as T;
    match data_type {
        T::Float16 => "halffloat".into(),
        T::Float32 => "float".into(),
        T::Float64 => "double".into(),
        T::Boolean => "bool".into(),
        T::Utf8 => "string".into(),
        T::LargeUtf8 => "large_string".into(),
        T::Utf8View => "string_view".into(),
        T::LargeBinary => "large_binary".into(),
        T::BinaryView => "binary_view".into(),
        T::FixedSizeBinary(bytes) => format!("fixed_size_binary[{bytes}]"),
        T::Date32 => "date32[day]".into(),
        T::Date64 => "date64[ms]".into(),
        T::Time32(unit) => format!("time32[{}]", unit_name(*unit)),
        T::Time64(unit) => format!("time64[{}]", unit_name(*unit)),
        T::Duration(unit) => format!("duration[{}]", unit_name(*unit)),
        T::Timestamp(unit, None) => format!("timestamp[{}]", unit_name(*unit)),
        T::Timestamp(unit, Some(zone)) => format!("timestamp[{}, tz={zone}]", unit_name(*unit)),
        T::Interval(IntervalUnit::MonthDayNano) => "month_day_nano_interval".into(),
        T::Decimal32(precision, scale) => format!("decimal32({precision}, {scale})"),
        T::Decimal64(precision, scale) => format!("decimal64({precision}, {scale})"),
        T::Decimal128(precision, scale) => format!("decimal128({precision}, {scale})"),
        T::Decimal256(precision, scale) => format!("decimal256({precision}, {scale})"),
        T::List(field) => format!("list<{}: {}>", field.name(), type_name(field.data_type())),
        T::LargeList(field) => format!("large_list<{}: {}>", field.name(), type_name(field.data_type())),
        T::Struct(fields) => {
            let fields =
                fields.iter().map(|field| format!("{}: {}", field.name(), type_name(field.data_type())));
            format!("struct<{}>", fields.collect::<Vec<_>>().join(", "))
        }
        T::Dictionary(keys, values) => {
            format!("dictionary<values={}, indices={}>", type_name(values), type_name(keys))
        }
        // Integers, binary and null; the names of rarer types are those of the library.
        other => other.to_string().to_lowercase(),
    }
}

fn unit_name(unit: TimeUnit) -> &'static str {
    match unit {
        TimeUnit::Second => "s",
        TimeUnit::Millisecond => "ms",
        TimeUnit::Microsecond => "us",
        TimeUnit::Nanosecond => "ns",
    }
}
