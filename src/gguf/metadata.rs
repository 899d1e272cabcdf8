//! The typed key-value part of a GGUF file.

use std::collections::HashMap;
use std::path::PathBuf;

use super::error::{GgufError, Problem};

/// A metadata value, in the type that the file stores.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An unsigned byte.
    U8(u8),
    /// A signed byte.
    I8(i8),
    /// 16 bits, unsigned.
    U16(u16),
    /// 16 bits, signed.
    I16(i16),
    /// 32 bits, unsigned.
    U32(u32),
    /// 32 bits, signed.
    I32(i32),
    /// Single precision.
    F32(f32),
    /// A byte that is 0 or 1.
    Bool(bool),
    /// UTF-8.
    String(String),
    /// Several values of one type.
    Array(Array),
    /// 64 bits, unsigned.
    U64(u64),
    /// 64 bits, signed.
    I64(i64),
    /// Double precision.
    F64(f64),
}

/// A metadata array; all elements have one type.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// An unsigned byte..
    U8(Vec<u8>),
    /// A signed byte..
    I8(Vec<i8>),
    /// 16 bits, unsigned..
    U16(Vec<u16>),
    /// 16 bits, signed..
    I16(Vec<i16>),
    /// 32 bits, unsigned..
    U32(Vec<u32>),
    /// 32 bits, signed..
    I32(Vec<i32>),
    /// Single precision..
    F32(Vec<f32>),
    /// A byte that is 0 or 1..
    Bool(Vec<bool>),
    /// UTF-8..
    String(Vec<String>),
    /// 64 bits, unsigned..
    U64(Vec<u64>),
    /// 64 bits, signed..
    I64(Vec<i64>),
    /// Double precision..
    F64(Vec<f64>),
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(v) => v.len(),
            Array::I8(v) => v.len(),
            Array::U16(v) => v.len(),
            Array::I16(v) => v.len(),
            Array::U32(v) => v.len(),
            Array::I32(v) => v.len(),
            Array::F32(v) => v.len(),
            Array::Bool(v) => v.len(),
            Array::String(v) => v.len(),
            Array::U64(v) => v.len(),
            Array::I64(v) => v.len(),
            Array::F64(v) => v.len(),
        }
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements as `i64`, or `None` where they are not integers or too large.
    pub fn to_i64(&self) -> Option<Vec<i64>> {
        fn wide<T: Copy + Into<i64>>(v: &[T]) -> Option<Vec<i64>> {
            Some(v.iter().map(|&x| x.into()).collect())
        }
        match self {
            Array::U8(v) => wide(v),
            Array::I8(v) => wide(v),
            Array::U16(v) => wide(v),
            Array::I16(v) => wide(v),
            Array::U32(v) => wide(v),
            Array::I32(v) => wide(v),
            Array::I64(v) => Some(v.clone()),
            Array::U64(v) => v.iter().map(|&x| i64::try_from(x).ok()).collect(),
            _ => None,
        }
    }

    /// The elements as `f32`, or `None` where they are not floats.
    pub fn to_f32(&self) -> Option<Vec<f32>> {
        match self {
            Array::F32(v) => Some(v.clone()),
            Array::F64(v) => Some(v.iter().map(|&x| x as f32).collect()),
            _ => None,
        }
    }
}

impl Value {
    /// What the value is, for messages: its type and, if short, the value.
    pub fn describe(&self) -> String {
        match self {
            Value::String(s) if s.len() <= 40 => format!("the string \"{s}\""),
            Value::String(s) => format!("a string of {} bytes", s.len()),
            Value::Array(a) => {
                let kind = match a {
                    Array::U8(_) => "u8",
                    Array::I8(_) => "i8",
                    Array::U16(_) => "u16",
                    Array::I16(_) => "i16",
                    Array::U32(_) => "u32",
                    Array::I32(_) => "i32",
                    Array::F32(_) => "f32",
                    Array::Bool(_) => "bool",
                    Array::String(_) => "string",
                    Array::U64(_) => "u64",
                    Array::I64(_) => "i64",
                    Array::F64(_) => "f64",
                };
                format!("an array of {} {kind}", a.len())
            }
            Value::Bool(b) => format!("the bool {b}"),
            Value::F32(x) => format!("the number {x}"),
            Value::F64(x) => format!("the number {x}"),
            Value::U8(x) => format!("the number {x}"),
            Value::I8(x) => format!("the number {x}"),
            Value::U16(x) => format!("the number {x}"),
            Value::I16(x) => format!("the number {x}"),
            Value::U32(x) => format!("the number {x}"),
            Value::I32(x) => format!("the number {x}"),
            Value::U64(x) => format!("the number {x}"),
            Value::I64(x) => format!("the number {x}"),
        }
    }

    /// The value as one number, bools as 0 and 1; `None` of strings and arrays.
    pub fn to_number(&self) -> Option<f64> {
        match *self {
            Value::F32(x) => Some(x.into()),
            Value::F64(x) => Some(x),
            Value::Bool(b) => Some(u8::from(b).into()),
            Value::I8(n) => Some(n.into()),
            Value::I16(n) => Some(n.into()),
            Value::I32(n) => Some(n.into()),
            Value::I64(n) => Some(n as f64),
            _ => self.to_u64().map(|n| n as f64),
        }
    }

    /// The value as an unsigned integer, whatever integer type stores it.
    pub fn to_u64(&self) -> Option<u64> {
        match *self {
            Value::U8(x) => Some(x.into()),
            Value::U16(x) => Some(x.into()),
            Value::U32(x) => Some(x.into()),
            Value::U64(x) => Some(x),
            Value::I8(x) => x.try_into().ok(),
            Value::I16(x) => x.try_into().ok(),
            Value::I32(x) => x.try_into().ok(),
            Value::I64(x) => x.try_into().ok(),
            _ => None,
        }
    }
}

/// All key-value pairs of a file, in file order, with typed access.
///
/// The typed getters return `Ok(None)` for a missing key and an error for a key
/// of the wrong type; the `require_` forms make the missing key an error too.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    path: PathBuf,
    entries: Vec<(String, Value)>,
    index: HashMap<String, usize>,
}

impl Metadata {
    pub(super) fn new(path: PathBuf) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }

    /// Adds a pair; false if the key is there already.
    pub(super) fn insert(&mut self, key: String, value: Value) -> bool {
        if self.index.contains_key(&key) {
            return false;
        }
        self.index.insert(key.clone(), self.entries.len());
        self.entries.push((key, value));
        true
    }

    /// The file the metadata came from (for messages).
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// All keys with their values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.entries.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&i| &self.entries[i].1)
    }

    /// Whether the file has a key.
    pub fn contains(&self, key: &str) -> bool {
        self.index.contains_key(key)
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &'static str,
        convert: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, GgufError> {
        let Some(value) = self.get(key) else {
            return Ok(None);
        };
        match convert(value) {
            Some(x) => Ok(Some(x)),
            None => Err(GgufError::new(
                &self.path,
                Problem::KeyType {
                    key: key.to_owned(),
                    expected,
                    found: value.describe(),
                },
            )),
        }
    }

    fn required<T>(&self, key: &str, value: Option<T>) -> Result<T, GgufError> {
        value.ok_or_else(|| GgufError::new(&self.path, Problem::MissingKey(key.to_owned())))
    }

    /// A string.
    pub fn string(&self, key: &str) -> Result<Option<&str>, GgufError> {
        self.typed(key, "a string", |v| match v {
            Value::String(s) => Some(s.as_str()),
            _ => None,
        })
    }

    /// A string that must be there.
    pub fn require_string(&self, key: &str) -> Result<&str, GgufError> {
        self.required(key, self.string(key)?)
    }

    /// A bool.
    pub fn bool(&self, key: &str) -> Result<Option<bool>, GgufError> {
        self.typed(key, "a bool", |v| match v {
            Value::Bool(b) => Some(*b),
            _ => None,
        })
    }

    /// An unsigned integer of any width.
    pub fn u64(&self, key: &str) -> Result<Option<u64>, GgufError> {
        self.typed(key, "an unsigned integer", Value::to_u64)
    }

    /// An integer that must be there.
    pub fn require_u64(&self, key: &str) -> Result<u64, GgufError> {
        self.required(key, self.u64(key)?)
    }

    /// An unsigned integer that fits `u32`: token ids, counts.
    pub fn u32(&self, key: &str) -> Result<Option<u32>, GgufError> {
        self.typed(key, "an unsigned 32-bit integer", |v| {
            v.to_u64().and_then(|x| u32::try_from(x).ok())
        })
    }

    /// A float.
    pub fn f32(&self, key: &str) -> Result<Option<f32>, GgufError> {
        self.typed(key, "a float", |v| match *v {
            Value::F32(x) => Some(x),
            Value::F64(x) => Some(x as f32),
            _ => None,
        })
    }

    /// A float that must be there.
    pub fn require_f32(&self, key: &str) -> Result<f32, GgufError> {
        self.required(key, self.f32(key)?)
    }

    /// An array of strings.
    pub fn strings(&self, key: &str) -> Result<Option<&[String]>, GgufError> {
        self.typed(key, "an array of strings", |v| match v {
            Value::Array(Array::String(s)) => Some(s.as_slice()),
            _ => None,
        })
    }

    /// An array of strings that must be there.
    pub fn require_strings(&self, key: &str) -> Result<&[String], GgufError> {
        self.required(key, self.strings(key)?)
    }

    /// An array of floats.
    pub fn f32s(&self, key: &str) -> Result<Option<Vec<f32>>, GgufError> {
        self.typed(key, "an array of floats", |v| match v {
            Value::Array(a) => a.to_f32(),
            _ => None,
        })
    }

    /// An array of integers.
    pub fn i64s(&self, key: &str) -> Result<Option<Vec<i64>>, GgufError> {
        self.typed(key, "an array of integers", |v| match v {
            Value::Array(a) => a.to_i64(),
            _ => None,
        })
    }

    /// An array of bools (stored as bools or as integers).
    pub fn bools(&self, key: &str) -> Result<Option<Vec<bool>>, GgufError> {
        self.typed(key, "an array of bools", |v| match v {
            Value::Array(Array::Bool(b)) => Some(b.clone()),
            Value::Array(a) => a.to_i64().map(|v| v.into_iter().map(|x| x != 0).collect()),
            _ => None,
        })
    }
}
