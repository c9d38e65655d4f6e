//! Values of a fixed size that a stream can carry.

/// A value of a fixed number of bytes. Numbers are little-endian.
pub trait Element: Copy + Send {
    /// Bytes of one element, at least 1.
    const BYTES: usize;

    /// The element stored in `bytes`, which has [`BYTES`](Self::BYTES) of them.
    fn load(bytes: &[u8]) -> Self;

    /// Stores the element in `bytes`, which has [`BYTES`](Self::BYTES) of them.
    fn store(self, bytes: &mut [u8]);
}

macro_rules! numbers {
    ($($number:ty)*) => {$(
        impl Element for $number {
            const BYTES: usize = size_of::<$number>();

            #[inline]
            fn load(bytes: &[u8]) -> Self {
                let mut value = [0; size_of::<$number>()];
                value.copy_from_slice(bytes);
                Self::from_le_bytes(value)
            }

            #[inline]
            fn store(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

/// A record of `N` bytes, at least 1.
impl<const N: usize> Element for [u8; N] {
    const BYTES: usize = {
        assert!(N > 0, "an element needs at least one byte");
        N
    };

    #[inline]
    fn load(bytes: &[u8]) -> Self {
        let mut value = [0; N];
        value.copy_from_slice(bytes);
        value
    }

    #[inline]
    fn store(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self);
    }
}
