//! A GGUF writer, for fixtures and tests.

use std::io;
use std::path::Path;

use super::block_type::BlockType;
use super::metadata::{Array, Value};

const ALIGNMENT: usize = 32;

/// Collects metadata and tensors, then writes a version-3 file. It checks
/// nothing: tests use it to write malformed files too.
#[derive(Default)]
pub struct GgufWriter {
    pairs: Vec<(String, Value)>,
    tensors: Vec<(String, Vec<u64>, BlockType, Vec<u8>)>,
}

impl GgufWriter {
    /// A writer for a model of the given architecture.
    pub fn new(architecture: &str) -> Self {
        let mut w = Self::default();
        w.meta(
            "general.architecture",
            Value::String(architecture.to_owned()),
        );
        w
    }

    /// Adds a key.
    pub fn meta(&mut self, key: &str, value: Value) -> &mut Self {
        self.pairs.push((key.to_owned(), value));
        self
    }

    /// Adds a tensor of raw blocks; `dims[0]` is the contiguous dimension.
    pub fn tensor(&mut self, name: &str, dims: &[u64], ty: BlockType, data: Vec<u8>) -> &mut Self {
        self.tensors
            .push((name.to_owned(), dims.to_vec(), ty, data));
        self
    }

    /// Adds a tensor of F32 values.
    pub fn f32_tensor(&mut self, name: &str, dims: &[u64], data: &[f32]) -> &mut Self {
        let bytes = data.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.tensor(name, dims, BlockType::F32, bytes)
    }

    /// The file as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.pairs.len() as u64).to_le_bytes());
        for (key, value) in &self.pairs {
            put_string(&mut out, key);
            put_value(&mut out, value);
        }
        let mut offset = 0;
        for (name, dims, ty, data) in &self.tensors {
            put_string(&mut out, name);
            out.extend((dims.len() as u32).to_le_bytes());
            for d in dims {
                out.extend(d.to_le_bytes());
            }
            out.extend(ty.id().to_le_bytes());
            out.extend((offset as u64).to_le_bytes());
            offset = (offset + data.len()).next_multiple_of(ALIGNMENT);
        }
        for (_, _, _, data) in &self.tensors {
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            out.extend(data);
        }
        out
    }

    /// Writes the file.
    pub fn write(&self, path: impl AsRef<Path>) -> io::Result<()> {
        std::fs::write(path, self.to_bytes())
    }
}

fn put_string(out: &mut Vec<u8>, s: &str) {
    out.extend((s.len() as u64).to_le_bytes());
    out.extend(s.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Value) {
    macro_rules! scalar {
        ($id:literal, $x:expr) => {{
            out.extend(($id as u32).to_le_bytes());
            out.extend($x.to_le_bytes());
        }};
    }
    match value {
        Value::U8(x) => scalar!(0, x),
        Value::I8(x) => scalar!(1, x),
        Value::U16(x) => scalar!(2, x),
        Value::I16(x) => scalar!(3, x),
        Value::U32(x) => scalar!(4, x),
        Value::I32(x) => scalar!(5, x),
        Value::F32(x) => scalar!(6, x),
        Value::Bool(x) => scalar!(7, u8::from(*x)),
        Value::String(s) => {
            out.extend(8u32.to_le_bytes());
            put_string(out, s);
        }
        Value::Array(a) => {
            out.extend(9u32.to_le_bytes());
            put_array(out, a);
        }
        Value::U64(x) => scalar!(10, x),
        Value::I64(x) => scalar!(11, x),
        Value::F64(x) => scalar!(12, x),
    }
}

fn put_array(out: &mut Vec<u8>, array: &Array) {
    macro_rules! elements {
        ($id:literal, $v:expr) => {{
            out.extend(($id as u32).to_le_bytes());
            out.extend(($v.len() as u64).to_le_bytes());
            for x in $v {
                out.extend(x.to_le_bytes());
            }
        }};
    }
    match array {
        Array::U8(v) => elements!(0, v),
        Array::I8(v) => elements!(1, v),
        Array::U16(v) => elements!(2, v),
        Array::I16(v) => elements!(3, v),
        Array::U32(v) => elements!(4, v),
        Array::I32(v) => elements!(5, v),
        Array::F32(v) => elements!(6, v),
        Array::Bool(v) => elements!(7, v.iter().map(|&b| u8::from(b)).collect::<Vec<_>>()),
        Array::String(v) => {
            out.extend(8u32.to_le_bytes());
            out.extend((v.len() as u64).to_le_bytes());
            for s in v {
                put_string(out, s);
            }
        }
        Array::U64(v) => elements!(10, v),
        Array::I64(v) => elements!(11, v),
        Array::F64(v) => elements!(12, v),
    }
}
