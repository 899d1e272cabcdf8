//! A file's header. Nothing in it is believed before it is checked against the
//! bytes that are there: no count sizes an allocation beyond the file's length.

use std::collections::HashSet;

use super::block_type::BlockType;
use super::error::Problem;
use super::metadata::{Array, Metadata, Value};
use super::tensor_info::TensorInfo;

const DEFAULT_ALIGNMENT: u64 = 32;
/// Shortest possible encodings, to bound counts by the bytes that are left.
const MIN_PAIR_BYTES: u64 = 8 + 4 + 1;
const MIN_TENSOR_BYTES: u64 = 8 + 4 + 8 + 4 + 8;

/// Reads the header: adds to the metadata, returns the tensors in file order.
pub(super) fn parse_header(
    bytes: &[u8],
    metadata: &mut Metadata,
) -> Result<Vec<TensorInfo>, Problem> {
    let mut r = Cursor { bytes, at: 0 };
    let magic = &bytes[..bytes.len().min(4)];
    if magic != b"GGUF" {
        return Err(Problem::BadMagic {
            found: magic.to_vec(),
        });
    }
    r.at = 4;
    let version = r.u32("the version")?;
    match version {
        2 | 3 => {}
        v if matches!(v.swap_bytes(), 1..=3) => return Err(Problem::BigEndian),
        v => return Err(Problem::Version(v)),
    }
    let n_tensors = r.u64("the tensor count")?;
    let n_pairs = r.u64("the metadata count")?;
    r.plausible("metadata keys", n_pairs, MIN_PAIR_BYTES)?;
    for i in 0..n_pairs {
        let key = r.string(|| format!("metadata key {i}"))?;
        let ty = r.u32("a value type")?;
        let value = r.value(&key, ty)?;
        if metadata.contains(&key) {
            return Err(Problem::DuplicateKey(key));
        }
        metadata.insert(key, value);
    }
    let alignment = match metadata.get("general.alignment") {
        None => DEFAULT_ALIGNMENT,
        Some(v) => match v.to_u64() {
            Some(a) if a.is_power_of_two() && (8..=65536).contains(&a) => a,
            _ => return Err(Problem::Alignment(v.describe())),
        },
    };

    r.plausible("tensors", n_tensors, MIN_TENSOR_BYTES)?;
    let mut tensors = Vec::with_capacity(n_tensors as usize);
    let mut names = HashSet::new();
    for i in 0..n_tensors {
        let tensor = r.tensor_info(i, alignment)?;
        if !names.insert(tensor.name.clone()) {
            return Err(Problem::DuplicateTensor(tensor.name));
        }
        tensors.push(tensor);
    }
    place(bytes.len(), r.at, alignment, &mut tensors)?;
    Ok(tensors)
}

/// Turns offsets within the tensor data into offsets within the file, after
/// checking that every tensor lies inside it and that no two overlap.
fn place(
    file_len: usize,
    header_len: usize,
    alignment: u64,
    tensors: &mut [TensorInfo],
) -> Result<(), Problem> {
    let data_start = (header_len as u64).next_multiple_of(alignment);
    let data_len = (file_len as u64).saturating_sub(data_start);
    for t in tensors.iter_mut() {
        let (offset, bytes) = (t.offset as u64, t.n_bytes as u64);
        if offset.checked_add(bytes).is_none_or(|end| end > data_len) {
            return Err(Problem::PastEnd {
                name: t.name.clone(),
                offset,
                bytes,
                data_len,
            });
        }
        t.offset += data_start as usize;
    }
    let mut order: Vec<&TensorInfo> = tensors.iter().collect();
    order.sort_by_key(|t| t.offset);
    for pair in order.windows(2) {
        if pair[0].offset + pair[0].n_bytes > pair[1].offset {
            return Err(Problem::Overlap {
                first: pair[0].name.clone(),
                second: pair[1].name.clone(),
            });
        }
    }
    Ok(())
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    fn take(&mut self, n: u64, what: impl FnOnce() -> String) -> Result<&'a [u8], Problem> {
        if n > self.left() as u64 {
            return Err(Problem::Truncated {
                what: what(),
                at: self.at,
                need: n,
                left: self.left(),
            });
        }
        let n = n as usize;
        let slice = &self.bytes[self.at..self.at + n];
        self.at += n;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self, what: impl FnOnce() -> String) -> Result<[u8; N], Problem> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N as u64, what)?);
        Ok(out)
    }

    fn u32(&mut self, what: &str) -> Result<u32, Problem> {
        Ok(u32::from_le_bytes(self.array(|| what.to_owned())?))
    }

    fn u64(&mut self, what: &str) -> Result<u64, Problem> {
        Ok(u64::from_le_bytes(self.array(|| what.to_owned())?))
    }

    /// Refuses a count whose shortest encoding does not fit in what is left.
    fn plausible(&self, what: &str, count: u64, min_bytes: u64) -> Result<(), Problem> {
        match count.checked_mul(min_bytes) {
            Some(need) if need <= self.left() as u64 => Ok(()),
            _ => Err(Problem::ImplausibleCount {
                what: what.to_owned(),
                count,
                left: self.left(),
            }),
        }
    }

    fn string(&mut self, what: impl Fn() -> String) -> Result<String, Problem> {
        let len = u64::from_le_bytes(self.array(|| format!("the length of {}", what()))?);
        let at = self.at;
        let raw = self.take(len, &what)?;
        match std::str::from_utf8(raw) {
            Ok(s) => Ok(s.to_owned()),
            Err(e) => Err(Problem::Utf8 {
                what: what(),
                at: at + e.valid_up_to(),
            }),
        }
    }

    fn value(&mut self, key: &str, ty: u32) -> Result<Value, Problem> {
        let what = || format!("the value of '{key}'");
        Ok(match ty {
            0 => Value::U8(self.array::<1>(what)?[0]),
            1 => Value::I8(i8::from_le_bytes(self.array(what)?)),
            2 => Value::U16(u16::from_le_bytes(self.array(what)?)),
            3 => Value::I16(i16::from_le_bytes(self.array(what)?)),
            4 => Value::U32(u32::from_le_bytes(self.array(what)?)),
            5 => Value::I32(i32::from_le_bytes(self.array(what)?)),
            6 => Value::F32(f32::from_le_bytes(self.array(what)?)),
            7 => Value::Bool(bool_of(key, self.array::<1>(what)?[0])?),
            8 => Value::String(self.string(what)?),
            9 => Value::Array(self.value_array(key)?),
            10 => Value::U64(u64::from_le_bytes(self.array(what)?)),
            11 => Value::I64(i64::from_le_bytes(self.array(what)?)),
            12 => Value::F64(f64::from_le_bytes(self.array(what)?)),
            id => {
                return Err(Problem::ValueType {
                    key: key.to_owned(),
                    id,
                });
            }
        })
    }

    fn value_array(&mut self, key: &str) -> Result<Array, Problem> {
        let ty = self.u32("an array's element type")?;
        let count = self.u64("an array's length")?;
        macro_rules! numbers {
            ($variant:ident, $t:ty) => {{
                const N: usize = size_of::<$t>();
                self.plausible(&format!("elements of '{key}'"), count, N as u64)?;
                let raw = self.take(count * N as u64, || format!("the array '{key}'"))?;
                Array::$variant(
                    raw.as_chunks::<N>()
                        .0
                        .iter()
                        .map(|c| <$t>::from_le_bytes(*c))
                        .collect(),
                )
            }};
        }
        Ok(match ty {
            0 => numbers!(U8, u8),
            1 => numbers!(I8, i8),
            2 => numbers!(U16, u16),
            3 => numbers!(I16, i16),
            4 => numbers!(U32, u32),
            5 => numbers!(I32, i32),
            6 => numbers!(F32, f32),
            7 => {
                self.plausible(&format!("elements of '{key}'"), count, 1)?;
                let raw = self.take(count, || format!("the array '{key}'"))?;
                Array::Bool(
                    raw.iter()
                        .map(|&b| bool_of(key, b))
                        .collect::<Result<_, _>>()?,
                )
            }
            8 => {
                self.plausible(&format!("elements of '{key}'"), count, 8)?;
                let mut strings = Vec::with_capacity(count as usize);
                for i in 0..count {
                    strings.push(self.string(|| format!("element {i} of '{key}'"))?);
                }
                Array::String(strings)
            }
            9 => {
                return Err(Problem::NestedArray {
                    key: key.to_owned(),
                });
            }
            10 => numbers!(U64, u64),
            11 => numbers!(I64, i64),
            12 => numbers!(F64, f64),
            id => {
                return Err(Problem::ValueType {
                    key: key.to_owned(),
                    id,
                });
            }
        })
    }

    /// One tensor's entry; `offset` is still relative to the tensor data.
    fn tensor_info(&mut self, i: u64, alignment: u64) -> Result<TensorInfo, Problem> {
        let name = self.string(|| format!("the name of tensor {i}"))?;
        let n_dims = self.u32("a dimension count")?;
        if !(1..=4).contains(&n_dims) {
            return Err(Problem::DimensionCount {
                name,
                found: n_dims,
            });
        }
        let mut dims = Vec::with_capacity(n_dims as usize);
        for _ in 0..n_dims {
            dims.push(self.u64("a dimension")?);
        }
        let elements = dims.iter().try_fold(1u64, |n, &d| n.checked_mul(d));
        let elements = match elements {
            Some(n) if n > 0 && n <= i64::MAX as u64 => n,
            _ => return Err(Problem::Shape { name, dims }),
        };
        let id = self.u32("an element type")?;
        let Some(ty) = BlockType::from_id(id) else {
            return Err(Problem::ElementType { name, id });
        };
        if !dims[0].is_multiple_of(ty.block_elements() as u64) {
            let row = dims[0];
            return Err(Problem::RowLength { name, row, ty });
        }
        let n_bytes = match ty.bytes_for(elements).map(usize::try_from) {
            Some(Ok(n)) => n,
            _ => return Err(Problem::Shape { name, dims }),
        };
        let offset = self.u64("a tensor offset")?;
        if !offset.is_multiple_of(alignment) {
            return Err(Problem::Misaligned {
                name,
                offset,
                alignment,
            });
        }
        let Ok(file_offset) = usize::try_from(offset) else {
            return Err(Problem::PastEnd {
                name,
                offset,
                bytes: n_bytes as u64,
                data_len: self.bytes.len() as u64,
            });
        };
        Ok(TensorInfo {
            name,
            dims,
            ty,
            offset: file_offset,
            n_bytes,
            part: 0,
        })
    }
}

fn bool_of(key: &str, byte: u8) -> Result<bool, Problem> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        found => Err(Problem::Bool {
            key: key.to_owned(),
            found,
        }),
    }
}
