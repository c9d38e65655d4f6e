//! Keys and values of indexed directories, as the program gives them.

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyMemoryView, PyTuple};

use crate::errors::Failure;

/// Maximum number of records, and of bytes of keys or of values, appended between two looks at signals.
const APPENDED_AT_ONCE: usize = 1 << 16;
const APPENDED_BYTES: usize = 4 << 20;

/// Keys or values.
pub enum Column<'py> {
    /// Rows of an array.
    Array {
        /// The array.
        buffer: PyUntypedBuffer,
        /// Number of rows.
        rows: usize,
        /// Length of a row.
        row_bytes: usize,
    },
    /// A list of bytes.
    List {
        /// Its elements.
        items: Vec<Bound<'py, PyAny>>,
        /// Bytes of all elements.
        bytes: usize,
        /// Lengths of the shortest and of the longest.
        lengths: (usize, usize),
    },
}

/// Some rows of a column.
pub enum Rows {
    /// One after the other.
    Array {
        /// All of them.
        bytes: Vec<u8>,
        /// Length of a row.
        row_bytes: usize,
        /// Their number.
        rows: usize,
    },
    /// One by one.
    List(Vec<Vec<u8>>),
}

impl Rows {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Rows::Array { rows, .. } => *rows,
            Rows::List(rows) => rows.len(),
        }
    }

    /// Bytes of all rows.
    pub fn bytes(&self) -> usize {
        match self {
            Rows::Array { bytes, .. } => bytes.len(),
            Rows::List(rows) => rows.iter().map(Vec::len).sum(),
        }
    }

    /// The rows.
    pub fn iter(&self) -> Box<dyn Iterator<Item = &[u8]> + '_> {
        match self {
            Rows::Array { row_bytes: 0, rows, .. } => Box::new(std::iter::repeat_n(&[][..], *rows)),
            Rows::Array { bytes, row_bytes, .. } => Box::new(bytes.chunks_exact(*row_bytes)),
            Rows::List(rows) => Box::new(rows.iter().map(Vec::as_slice)),
        }
    }
}

impl<'py> Column<'py> {
    /// The column that an object is.
    ///
    /// # Errors
    /// An object that is neither a list of bytes nor a contiguous array.
    pub fn new(name: &str, given: &Bound<'py, PyAny>) -> PyResult<Column<'py>> {
        if given.is_instance_of::<PyList>() || given.is_instance_of::<PyTuple>() {
            return Self::of_list(name, given);
        }
        let buffer = match PyUntypedBuffer::get(given) {
            Ok(buffer) if !given.is_instance_of::<PyBytes>() && !given.is_instance_of::<PyByteArray>() => {
                buffer
            }
            _ => {
                let remedy = if given.hasattr("to_numpy")? {
                    ", such as its to_numpy()"
                } else if given.hasattr("dtype")? {
                    ", of a type with a buffer, such as its view('i8') if it has dates"
                } else {
                    ""
                };
                let accepted = format!("a list of bytes, or an array with a row for each{remedy}");
                return Err(Self::wrong(name, given, &accepted));
            }
        };
        if !buffer.is_c_contiguous() {
            let text = "the array is not contiguous; numpy.ascontiguousarray makes a contiguous copy";
            return Err(Failure::Request(format!("{name}: {text}")).into());
        }
        let rows = buffer.shape().first().copied().unwrap_or(0);
        let row_bytes = buffer.len_bytes().checked_div(rows).unwrap_or(0);
        Ok(Column::Array { buffer, rows, row_bytes })
    }

    /// TypeError for the argument `name`, in the words of the package.
    fn wrong(name: &str, given: &Bound<'_, PyAny>, accepted: &str) -> PyErr {
        let shown = given
            .py()
            .import("ascot.arguments")
            .and_then(|arguments| arguments.call_method1("shown", (given,))?.extract::<String>());
        shown.map_or_else(
            |error| error,
            |shown| PyTypeError::new_err(format!("{name} is {accepted}, not {shown}")),
        )
    }

    /// The column of a list, whose elements are looked at. It looks at signals.
    fn of_list(name: &str, list: &Bound<'py, PyAny>) -> PyResult<Column<'py>> {
        let mut items = Vec::new();
        let mut bytes = 0;
        let mut shortest = usize::MAX;
        let mut longest = 0;
        // Its length may not be that of the list.
        for item in list.try_iter()? {
            let item = item?;
            let length = length_of(&item)?;
            let length =
                length.ok_or_else(|| Self::wrong(&format!("an element of {name}"), &item, "bytes"))?;
            bytes += length;
            shortest = length.min(shortest);
            longest = length.max(longest);
            items.push(item);
            if items.len() % APPENDED_AT_ONCE == 0 {
                list.py().check_signals()?;
            }
        }
        Ok(Column::List { items, bytes, lengths: (shortest.min(longest), longest) })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Column::Array { rows, .. } => *rows,
            Column::List { items, .. } => items.len(),
        }
    }

    /// Length of the shortest row, bytes.
    pub fn shortest(&self) -> usize {
        match self {
            Column::Array { row_bytes, .. } => *row_bytes,
            Column::List { lengths, .. } => lengths.0,
        }
    }

    /// Length of the longest row, bytes.
    pub fn longest(&self) -> usize {
        match self {
            Column::Array { row_bytes, .. } => *row_bytes,
            Column::List { lengths, .. } => lengths.1,
        }
    }

    /// The number of rows that are appended at once.
    pub fn rows_at_once(&self) -> usize {
        let row_bytes = match self {
            Column::Array { row_bytes, .. } => *row_bytes,
            Column::List { items, bytes, .. } => bytes / items.len().max(1),
        };
        (APPENDED_BYTES / row_bytes.max(1)).clamp(1, APPENDED_AT_ONCE)
    }

    /// A copy of the rows from `first` to `last`, which may be used without the interpreter. It looks at signals.
    #[expect(unsafe_code, reason = "the buffer protocol gives a pointer")]
    pub fn rows(&self, py: Python<'_>, first: usize, last: usize) -> PyResult<Rows> {
        match self {
            Column::Array { buffer, row_bytes, .. } => {
                let len = (last - first) * row_bytes;
                let start = first * row_bytes;
                let whole = buffer.len_bytes();
                if start.checked_add(len).is_none_or(|end| end > whole)
                    || (len > 0 && buffer.buf_ptr().is_null())
                {
                    return Err(Failure::Request("the array is shorter than its shape says".into()).into());
                }
                let mut bytes = Vec::with_capacity(len);
                if len > 0 {
                    // SAFETY: the buffer is contiguous, holds `whole` bytes, and is not released while `self` lives;
                    // the range was checked. The bytes are copied while this thread holds the interpreter.
                    let part =
                        unsafe { std::slice::from_raw_parts(buffer.buf_ptr().cast::<u8>().add(start), len) };
                    bytes.extend_from_slice(part);
                }
                Ok(Rows::Array { bytes, row_bytes: *row_bytes, rows: last - first })
            }
            Column::List { items, .. } => {
                let mut rows = Vec::with_capacity(last - first);
                for item in items.get(first..last).unwrap_or_default() {
                    rows.push(bytes_of(item)?);
                    if rows.len() % APPENDED_AT_ONCE == 0 {
                        py.check_signals()?;
                    }
                }
                Ok(Rows::List(rows))
            }
        }
    }
}

/// The length of bytes, none if an object is something else.
fn length_of(object: &Bound<'_, PyAny>) -> PyResult<Option<usize>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(Some(bytes.as_bytes().len()));
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(Some(bytes.len()));
    }
    object.cast::<PyMemoryView>().ok().map(|view| view.getattr("nbytes")?.extract()).transpose()
}

/// The bytes of an object that has them.
fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(bytes.as_bytes().to_vec());
    }
    if let Ok(bytes) = object.cast::<PyByteArray>() {
        return Ok(bytes.to_vec());
    }
    object.call_method0("tobytes")?.extract()
}
