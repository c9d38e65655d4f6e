//! The C structures of Arrow's PyCapsule interface, moved out of capsules and into capsules.
//!
//! Invariants: a structure that is taken from a capsule is owned here and released once. Schemas and arrays of other
//! libraries are checked before their import, and arrays also afterwards, so that missing and released parts, and
//! lengths and offsets that contradict each other, are errors. Memory that is shorter than all of them say cannot be
//! recognised.

use std::ffi::{CStr, CString, c_char, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

use arrow_array::ffi::{FFI_ArrowArray, FFI_ArrowSchema, from_ffi_and_data_type, to_ffi};
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{Array, RecordBatch, RecordBatchOptions, RecordBatchReader, StructArray};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef, UnionMode};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyCapsuleMethods};

use crate::errors::{Failure, Result};

const STREAM: &CStr = c"arrow_array_stream";
const SCHEMA: &CStr = c"arrow_schema";
const ARRAY: &CStr = c"arrow_array";

/// The pointer in a capsule of this name, or TypeError.
fn pointer<T>(capsule: &Bound<'_, PyAny>, name: &CStr) -> PyResult<NonNull<T>> {
    let found = capsule.cast::<PyCapsule>().ok().and_then(|found| found.pointer_checked(Some(name)).ok());
    found.map(NonNull::cast).ok_or_else(|| {
        let name = name.to_string_lossy();
        PyTypeError::new_err(format!("the source gives no capsule '{name}', but {}", type_name(capsule)))
    })
}

/// The name of an object's type.
pub fn type_name(object: &Bound<'_, PyAny>) -> String {
    object.get_type().name().map_or_else(|_| "an object".to_owned(), |name| name.to_string())
}

/// A stream of batches of another library. It needs no interpreter.
pub struct ForeignStream {
    stream: FFI_ArrowArrayStream,
    schema: SchemaRef,
}

impl ForeignStream {
    /// The stream in a capsule, which is empty afterwards.
    ///
    /// # Errors
    /// No such capsule, a stream that was read before, or one of arrays that are no batches.
    #[expect(unsafe_code, reason = "the stream lies behind a pointer")]
    pub fn from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<ForeignStream> {
        let stream = pointer::<FFI_ArrowArrayStream>(capsule, STREAM)?;
        // SAFETY: a capsule of this name holds such a structure, which is moved out.
        let mut stream = unsafe { FFI_ArrowArrayStream::from_raw(stream.as_ptr()) };
        if stream.release().is_none() {
            return Err(Failure::Request("the Arrow stream was read before".into()).into());
        }
        let (Some(get_schema), Some(_)) = (stream.get_schema(), stream.get_next()) else {
            return Err(Failure::Batch("the Arrow stream has no functions".into()).into());
        };
        let mut schema = FFI_ArrowSchema::empty();
        // SAFETY: the function belongs to this stream, which is not released.
        let code = unsafe { get_schema(&raw mut stream, &raw mut schema) };
        if code != 0 {
            return Err(last_error(&mut stream, code).into());
        }
        Ok(ForeignStream { stream, schema: schema_of(&schema)? })
    }

    /// The schema of the batches.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// The next batch; none at the end. It may wait as long as the other library does.
    ///
    /// # Errors
    /// The error of the other library, or a batch that contradicts itself.
    #[expect(unsafe_code, reason = "the functions of the stream are those of another library")]
    pub fn next(&mut self) -> Result<Option<RecordBatch>> {
        let Some(get_next) = self.stream.get_next() else { return Ok(None) };
        let mut array = FFI_ArrowArray::empty();
        // SAFETY: the function belongs to this stream, which is not released; one thread calls it at a time.
        let code = unsafe { get_next(&raw mut self.stream, &raw mut array) };
        if code != 0 {
            return Err(last_error(&mut self.stream, code));
        }
        if array.is_released() {
            return Ok(None);
        }
        record_batch(array, &self.schema).map(Some).map_err(Failure::Batch)
    }
}

/// The error of a call that returned `code`.
#[expect(unsafe_code, reason = "the text of the error lies behind a pointer")]
fn last_error(stream: &mut FFI_ArrowArrayStream, code: i32) -> Failure {
    let text = match stream.get_last_error() {
        // SAFETY: the function belongs to this stream; its text is valid until the next call, and copied.
        Some(get_last_error) => unsafe {
            NonNull::new(get_last_error(&raw mut *stream).cast_mut())
                .map(|text| CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
        },
        None => None,
    };
    let text = text.unwrap_or_else(|| std::io::Error::from_raw_os_error(code).to_string());
    Failure::Source(format!("the Arrow stream failed: {text}"))
}

/// The schema of batches.
fn schema_of(schema: &FFI_ArrowSchema) -> Result<SchemaRef> {
    let wrong = |text: String| Failure::Batch(format!("the schema of the source is malformed: {text}"));
    check_schema(RawSchema::of(schema), 0).map_err(wrong)?;
    // The library asserts parts of the format.
    let found = catch_unwind(AssertUnwindSafe(|| DataType::try_from(schema)));
    match found
        .map_err(|_| wrong("it contradicts itself".into()))?
        .map_err(|error| wrong(error.to_string()))?
    {
        DataType::Struct(fields) => {
            let metadata = schema.metadata().map_err(|error| wrong(error.to_string()))?;
            Ok(Arc::new(Schema::new_with_metadata(fields, metadata)))
        }
        other => Err(Failure::Request(format!(
            "the source has arrays of type {}, which have no columns\n  give a table or batches",
            ascot_columns::type_name(&other)
        ))),
    }
}

/// The schema in a capsule.
#[expect(unsafe_code, reason = "the schema lies behind a pointer")]
pub fn schema_from_capsule(capsule: &Bound<'_, PyAny>) -> PyResult<SchemaRef> {
    let schema = pointer::<FFI_ArrowSchema>(capsule, SCHEMA)?;
    // SAFETY: a capsule of this name holds such a structure, which the capsule keeps.
    Ok(schema_of(unsafe { schema.as_ref() })?)
}

/// The batch in a pair of capsules, of a schema and an array.
#[expect(unsafe_code, reason = "the array lies behind a pointer")]
pub fn batch_from_capsules(capsules: &Bound<'_, PyAny>) -> PyResult<RecordBatch> {
    let (schema, array): (Bound<'_, PyAny>, Bound<'_, PyAny>) = capsules.extract().map_err(|_| {
        let given = type_name(capsules);
        PyTypeError::new_err(format!("__arrow_c_array__ of the source gives no two capsules, but {given}"))
    })?;
    let schema = schema_from_capsule(&schema)?;
    let array = pointer::<FFI_ArrowArray>(&array, ARRAY)?;
    // SAFETY: a capsule of this name holds such a structure, which is moved out.
    let array = unsafe { FFI_ArrowArray::from_raw(array.as_ptr()) };
    if array.is_released() {
        return Err(Failure::Batch("the batch was read before".into()).into());
    }
    Ok(record_batch(array, &schema).map_err(Failure::Batch)?)
}

/// The batch of an array that is not released; the error tells how it contradicts itself.
#[expect(unsafe_code, reason = "the buffers lie behind pointers")]
fn record_batch(mut array: FFI_ArrowArray, schema: &SchemaRef) -> Result<RecordBatch, String> {
    let wrong = |text: String| format!("a batch of the source contradicts itself: {text}");
    let data_type = DataType::Struct(schema.fields().clone());
    check(RawArray::of(&array), &data_type).map_err(wrong)?;
    forget_buffers_of_nulls((&raw mut array).cast(), &data_type);
    // The library asserts what its validation does not find.
    let imported = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the numbers of buffers and children were checked; the source answers for the sizes of its buffers.
        let data = unsafe { from_ffi_and_data_type(array, data_type) }?;
        data.validate_full()?;
        Ok::<_, ArrowError>((data.len(), StructArray::from(data).into_parts()))
    }));
    let imported = imported.map_err(|_| wrong("its parts do not fit together".into()))?;
    let (rows, (_, columns, nulls)) = imported.map_err(|error| wrong(error.to_string()))?;
    if nulls.is_some_and(|nulls| nulls.null_count() > 0) {
        return Err("the source has rows that are null as a whole, which are not rows of a table".into());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(Arc::clone(schema), columns, &options)
        .map_err(|error| wrong(error.to_string()))
}

/// The fields of a schema as Arrow's C data interface lays them out.
#[repr(C)]
struct RawSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *const *const RawSchema,
    dictionary: *const RawSchema,
    release: *const c_void,
    private_data: *const c_void,
}

/// Maximum depth of types within types. A schema that contains itself has no end.
const MAX_DEPTH: usize = 64;

impl RawSchema {
    #[expect(unsafe_code, reason = "the fields of the library's structure are private")]
    fn of(schema: &FFI_ArrowSchema) -> &RawSchema {
        // SAFETY: both have the layout of the C data interface, and all bit patterns are valid for this one.
        unsafe { &*std::ptr::from_ref(schema).cast::<RawSchema>() }
    }
}

/// Checks what the import of a schema assumes: that its texts, children and dictionary are there and not released.
#[expect(unsafe_code, reason = "the parts of a schema lie behind pointers")]
fn check_schema(raw: &RawSchema, depth: usize) -> Result<(), String> {
    if raw.release.is_null() {
        return Err("it was read before".into());
    }
    if depth > MAX_DEPTH {
        return Err(format!("more than {MAX_DEPTH} types within each other"));
    }
    if raw.format.is_null() {
        return Err("a type has no format".into());
    }
    // SAFETY: the format of a schema that is not released is a text, and its name as well if there is one.
    let (format, name) = unsafe {
        let name = NonNull::new(raw.name.cast_mut()).map(|name| CStr::from_ptr(name.as_ptr()));
        (CStr::from_ptr(raw.format).to_bytes(), name)
    };
    if std::str::from_utf8(format).is_err() {
        return Err("a format is not UTF-8".into());
    }
    if name.is_some_and(|name| name.to_str().is_err()) {
        return Err("the name of a column is not UTF-8".into());
    }
    let min_children = match format {
        b"+l" | b"+L" | b"+vl" | b"+vL" | b"+m" => 1,
        b"+r" => 2,
        format => usize::from(format.starts_with(b"+w:")),
    };
    let children = usize::try_from(raw.n_children).ok().filter(|count| *count >= min_children);
    let children = children.ok_or_else(|| {
        format!("a type '{}' with {} children", String::from_utf8_lossy(format), raw.n_children)
    })?;
    if children > 0 && raw.children.is_null() {
        return Err("its children are missing".into());
    }
    for at in 0..children {
        // SAFETY: the schema has `children` pointers to children, which live as long as the schema.
        let child = unsafe { (*raw.children.add(at)).as_ref() };
        check_schema(child.ok_or_else(|| format!("child {} is missing", at + 1))?, depth + 1)?;
    }
    // SAFETY: the dictionary, if there is one, lives as long as the schema.
    unsafe { raw.dictionary.as_ref() }.map_or(Ok(()), |dictionary| check_schema(dictionary, depth + 1))
}

/// The fields of an array as Arrow's C data interface lays them out.
#[repr(C)]
struct RawArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *const *const c_void,
    children: *const *const RawArray,
    dictionary: *const RawArray,
    release: *const c_void,
    private_data: *const c_void,
}

impl RawArray {
    #[expect(unsafe_code, reason = "the fields of the library's structure are private")]
    fn of(array: &FFI_ArrowArray) -> &RawArray {
        // SAFETY: both have the layout of the C data interface, and all bit patterns are valid for this one.
        unsafe { &*std::ptr::from_ref(array).cast::<RawArray>() }
    }

    /// Buffer number `at`, null if there is none.
    #[expect(unsafe_code, reason = "the buffers lie behind a pointer")]
    fn buffer(&self, at: usize) -> *const c_void {
        if self.buffers.is_null() || at as i64 >= self.n_buffers {
            return std::ptr::null();
        }
        // SAFETY: the array has more than `at` buffers.
        unsafe { *self.buffers.add(at) }
    }

    /// The children, `count` of them.
    #[expect(unsafe_code, reason = "the children lie behind pointers")]
    fn children(&self, count: usize) -> Result<Vec<&RawArray>, String> {
        if self.n_children != count as i64 {
            return Err(format!("{} children instead of {count}", self.n_children));
        }
        if count > 0 && self.children.is_null() {
            return Err("its children are missing".into());
        }
        // SAFETY: the array has `count` pointers to children, which live as long as the array.
        let child = |at: usize| unsafe { (*self.children.add(at)).as_ref() };
        (0..count).map(|at| child(at).ok_or_else(|| format!("child {} is missing", at + 1))).collect()
    }
}

/// Checks what the import assumes: the numbers of buffers and children, and that lengths are not negative.
#[expect(unsafe_code, reason = "a dictionary lies behind a pointer")]
fn check(raw: &RawArray, data_type: &DataType) -> Result<(), String> {
    if raw.release.is_null() {
        return Err("a part of it was read before".into());
    }
    let length = usize::try_from(raw.length).map_err(|_| format!("a length of {}", raw.length))?;
    let offset = usize::try_from(raw.offset).map_err(|_| format!("an offset of {}", raw.offset))?;
    // No memory has more elements than this; sizes in bits still fit a number.
    let end = length.checked_add(offset).filter(|end| *end <= isize::MAX as usize >> 9);
    let end = end.ok_or_else(|| format!("a length of {length} and an offset of {offset}"))?;
    if raw.null_count < -1 || raw.null_count > raw.length {
        return Err(format!("{} nulls in {length} values", raw.null_count));
    }
    let wanted = buffers_of(data_type);
    if raw.n_buffers < wanted as i64 || (wanted > 0 && raw.buffers.is_null()) {
        return Err(format!("{} buffers for values of type {data_type} instead of {wanted}", raw.n_buffers));
    }
    match data_type {
        DataType::Utf8View | DataType::BinaryView => check_lengths_of_buffers(raw)?,
        _ => check_end_of_values(raw, data_type, end)?,
    }
    // SAFETY: the dictionary, if there is one, lives as long as the array.
    match (data_type, unsafe { raw.dictionary.as_ref() }) {
        (DataType::Dictionary(keys, _), _) if !keys.is_integer() => {
            return Err(format!("keys of type {keys} of a dictionary"));
        }
        (DataType::Dictionary(_, values), Some(dictionary)) => check(dictionary, values)?,
        (DataType::Dictionary(..), None) => return Err("its dictionary is missing".into()),
        _ => {}
    }
    let types = children_of(data_type);
    let children = raw.children(types.len())?;
    children.iter().zip(types).try_for_each(|(child, data_type)| check(child, data_type))
}

/// Takes empty buffers from arrays of nulls. Polars gives them one, where the format has none, and the import refuses
/// it.
#[expect(unsafe_code, reason = "the parts of an array lie behind pointers")]
fn forget_buffers_of_nulls(raw: *mut RawArray, data_type: &DataType) {
    // SAFETY: the structure was checked, so that it has the children and the dictionary of its type. All of them belong
    // to the consumer, which holds no other reference to them.
    let array = unsafe { &mut *raw };
    if *data_type == DataType::Null && array.buffer(0).is_null() {
        array.n_buffers = 0;
    }
    for (at, child) in children_of(data_type).into_iter().enumerate() {
        // SAFETY: as above.
        forget_buffers_of_nulls(unsafe { *array.children.add(at) }.cast_mut(), child);
    }
    if let DataType::Dictionary(_, values) = data_type {
        forget_buffers_of_nulls(array.dictionary.cast_mut(), values);
    }
}

/// Checks the end of the last value of variable length, which the import takes for the length of all values.
#[expect(unsafe_code, reason = "the offsets lie behind a pointer")]
fn check_end_of_values(raw: &RawArray, data_type: &DataType, end: usize) -> Result<(), String> {
    let wide = match data_type {
        DataType::Utf8 | DataType::Binary => false,
        DataType::LargeUtf8 | DataType::LargeBinary => true,
        _ => return Ok(()),
    };
    if end == 0 {
        return Ok(());
    }
    let offsets = raw.buffer(1);
    if offsets.is_null() {
        return Err("its offsets are missing".into());
    }
    if !offsets.addr().is_multiple_of(if wide { 8 } else { 4 }) {
        return Err("its offsets are not aligned".into());
    }
    // SAFETY: an array of `end` values has one more offset.
    let last = unsafe {
        if wide { *offsets.cast::<i64>().add(end) } else { (*offsets.cast::<i32>().add(end)).into() }
    };
    if (0..MAX_BYTES).contains(&last) { Ok(()) } else { Err(format!("an offset of {last}")) }
}

/// No buffer has more bytes than the addresses of a process.
const MAX_BYTES: i64 = 1 << 47;
/// Maximum number of buffers of values in an array of views; their numbers have 32 bits.
const MAX_VALUE_BUFFERS: i64 = 1 << 31;

/// Checks the lengths of the buffers of an array of views, which its last buffer has.
#[expect(unsafe_code, reason = "the lengths lie behind a pointer")]
fn check_lengths_of_buffers(raw: &RawArray) -> Result<(), String> {
    let count = raw.n_buffers - 3;
    if count == 0 {
        return Ok(());
    }
    let at = usize::try_from(count).ok().filter(|_| count < MAX_VALUE_BUFFERS);
    let at = at.ok_or_else(|| format!("{} buffers", raw.n_buffers))? + 2;
    let lengths = raw.buffer(at);
    if lengths.is_null() || !lengths.addr().is_multiple_of(8) {
        return Err("the lengths of its buffers are missing".into());
    }
    // SAFETY: the last buffer has the lengths of all buffers between the views and itself.
    let lengths = unsafe { std::slice::from_raw_parts(lengths.cast::<i64>(), at - 2) };
    let wrong = lengths.iter().find(|length| !(0..MAX_BYTES).contains(*length));
    wrong.map_or(Ok(()), |length| Err(format!("a buffer of {length} bytes")))
}

/// Minimum number of buffers of an array.
fn buffers_of(data_type: &DataType) -> usize {
    use DataType as T;
    match data_type {
        T::Null | T::RunEndEncoded(..) => 0,
        T::Struct(_) | T::FixedSizeList(..) | T::Union(_, UnionMode::Sparse) => 1,
        T::Utf8 | T::LargeUtf8 | T::Binary | T::LargeBinary => 3,
        T::Utf8View | T::BinaryView | T::ListView(_) | T::LargeListView(_) => 3,
        _ => 2,
    }
}

/// The types of the children of an array.
fn children_of(data_type: &DataType) -> Vec<&DataType> {
    use DataType as T;
    match data_type {
        T::List(field) | T::LargeList(field) | T::ListView(field) | T::LargeListView(field) => {
            vec![field.data_type()]
        }
        T::FixedSizeList(field, _) | T::Map(field, _) => vec![field.data_type()],
        T::Struct(fields) => fields.iter().map(|field| field.data_type()).collect(),
        T::Union(fields, _) => fields.iter().map(|(_, field)| field.data_type()).collect(),
        T::RunEndEncoded(ends, values) => vec![ends.data_type(), values.data_type()],
        _ => Vec::new(),
    }
}

/// A capsule with a stream.
pub fn stream_capsule<'py>(
    py: Python<'py>,
    reader: Box<dyn RecordBatchReader + Send>,
) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(reader), STREAM)
}

/// A capsule with a schema.
pub fn schema_capsule<'py>(py: Python<'py>, schema: &Schema) -> PyResult<Bound<'py, PyCapsule>> {
    let schema = FFI_ArrowSchema::try_from(schema).map_err(|error| Failure::Source(error.to_string()))?;
    PyCapsule::new_with_value(py, schema, SCHEMA)
}

/// Two capsules: the schema of a batch, and the batch.
pub fn batch_capsules<'py>(
    py: Python<'py>,
    batch: &RecordBatch,
) -> PyResult<(Bound<'py, PyCapsule>, Bound<'py, PyCapsule>)> {
    let data = StructArray::from(batch.clone()).to_data();
    let (array, _) = to_ffi(&data).map_err(|error| Failure::Source(error.to_string()))?;
    Ok((schema_capsule(py, &batch.schema())?, PyCapsule::new_with_value(py, array, ARRAY)?))
}

/// A text without the bytes that end a text in C.
pub fn c_text(text: &str) -> String {
    CString::new(text).map_or_else(|_| text.replace('\0', "\\0"), |_| text.to_owned())
}
