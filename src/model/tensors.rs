//! References to tensors: checked for presence, shape and type when the model is
//! built, so that a backend can rely on them.

use std::collections::{BTreeMap, HashSet};

use super::error::ModelError;
use super::{Linear, Norm, NormKind};
use crate::gguf::{BlockType, Gguf, TensorInfo};
use crate::quant;

/// Rows of a tensor: `n_out` rows of `n_in` elements. Parts of fused matrices
/// and single experts are such rows too: runs of `run` rows, `step` rows from one
/// run's start to the next, beginning with `first`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Name of the tensor in the file.
    pub tensor: String,
    /// How its values are stored.
    pub ty: BlockType,
    /// Values of a row that it maps.
    pub n_in: usize,
    /// Values that it maps it to.
    pub n_out: usize,
    first: usize,
    run: usize,
    step: usize,
}

impl Matrix {
    /// The rows `[first, first + n)`.
    pub fn rows(&self, first: usize, n: usize) -> Matrix {
        self.runs(first, n, n, n)
    }

    /// `n` rows: runs of `run` rows, `step` from start to start. Only of rows
    /// that adjoin.
    pub fn runs(&self, first: usize, n: usize, run: usize, step: usize) -> Matrix {
        debug_assert!(self.run == self.n_out, "runs of runs");
        debug_assert!(n == 0 || first + (n - 1) / run * step + (n - 1) % run < self.n_out);
        Matrix {
            n_out: n,
            first: self.first + first,
            run,
            step,
            ..self.clone()
        }
    }

    /// Bytes of one row of blocks.
    pub fn row_bytes(&self) -> usize {
        self.n_in / self.ty.block_elements() * self.ty.block_bytes()
    }

    /// Releases what has been read of the rows: see [`Gguf::release`].
    pub fn release(&self, gguf: &Gguf) {
        let (Some(tensor), Some(last)) = (gguf.tensor(&self.tensor), self.n_out.checked_sub(1))
        else {
            return;
        };
        let last = self.first + last / self.run * self.step + last % self.run;
        let row_bytes = self.row_bytes();
        gguf.release(tensor, self.first * row_bytes..(last + 1) * row_bytes);
    }

    /// The blocks of the tensor's rows, by row.
    pub fn data<'a>(&self, gguf: &'a Gguf) -> Rows<'a> {
        Rows {
            // The builder has found the tensor in this file.
            blocks: gguf.tensor(&self.tensor).map_or(&[], |t| gguf.data(t)),
            row_bytes: self.row_bytes(),
            first: self.first,
            run: self.run.max(1),
            step: self.step,
        }
    }
}

/// The rows of a [`Matrix`] as they are stored.
#[derive(Clone, Copy)]
pub struct Rows<'a> {
    blocks: &'a [u8],
    row_bytes: usize,
    first: usize,
    run: usize,
    step: usize,
}

impl<'a> Rows<'a> {
    /// The blocks of row `i`.
    pub fn row(&self, i: usize) -> &'a [u8] {
        let row = self.first + i / self.run * self.step + i % self.run;
        &self.blocks[row * self.row_bytes..][..self.row_bytes]
    }

    /// The blocks of the first `n` rows, in as few pieces as they are stored in.
    pub fn contiguous(self, n: usize) -> impl Iterator<Item = &'a [u8]> {
        (0..n).step_by(self.run).map(move |i| {
            let (start, n_rows) = (self.first + i / self.run * self.step, self.run.min(n - i));
            &self.blocks[start * self.row_bytes..][..n_rows * self.row_bytes]
        })
    }
}

/// A small tensor, decoded: norm weights, biases, factors.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    /// Name of its tensor.
    pub tensor: String,
    /// Decoded.
    pub values: Vec<f32>,
}

/// The layer that a tensor's name (`blk.N.…`) puts it in.
pub(super) fn layer_of(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split('.').next()?.parse().ok()
}

/// A tensor's name without its layer: `blk.N.PART` → `PART`.
fn part_of_layer(name: &str) -> Option<&str> {
    let (_, part) = name.strip_prefix("blk.")?.split_once('.')?;
    Some(part)
}

/// Of a part that layers may have or not: one that is in the file, one that is not.
#[derive(Default)]
struct Sought {
    found: Option<String>,
    lacking: Option<String>,
}

/// Hands out tensors by name, checks them, and remembers which were used.
pub(super) struct Tensors<'a> {
    gguf: &'a Gguf,
    used: HashSet<String>,
    /// By the part's name.
    optional: BTreeMap<String, Sought>,
}

impl<'a> Tensors<'a> {
    pub fn new(gguf: &'a Gguf) -> Self {
        Self {
            gguf,
            used: HashSet::new(),
            optional: BTreeMap::new(),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
    }

    /// Whether the file has a tensor that a model may lack. All layers that may
    /// have it must agree: a bias that one layer lost would else be taken for 0.
    pub fn offers(&mut self, name: &str) -> bool {
        let has = self.has(name);
        if let Some(part) = part_of_layer(name) {
            let sought = self.optional.entry(part.to_owned()).or_default();
            let slot = match has {
                true => &mut sought.found,
                false => &mut sought.lacking,
            };
            slot.get_or_insert_with(|| name.to_owned());
        }
        has
    }

    /// Refuses the file if it lacks `PREFIX.bias`.
    pub fn require_bias(&self, prefix: &str) -> Result<(), ModelError> {
        let name = format!("{prefix}.bias");
        if self.has(&name) {
            return Ok(());
        }
        // A bias has an element for each output; a norm's has one a weight.
        let weight = self.gguf.tensor(&format!("{prefix}.weight"));
        let dims = weight.map_or(&[][..], |t| &t.dims);
        let dims = &dims[usize::from(dims.len() > 1)..];
        Err(ModelError::MissingTensor {
            name,
            expected: dims.iter().map(|&d| d as usize).collect(),
        })
    }

    /// Whether any tensor's name begins with `prefix`.
    pub fn any(&self, prefix: &str) -> bool {
        let mut names = self.gguf.tensors().iter().map(|t| &t.name);
        names.any(|n| n.starts_with(prefix))
    }

    /// The tensor `name` with the shape `shape`, contiguous dimension first.
    fn take(&mut self, name: &str, shape: &[usize]) -> Result<&'a TensorInfo, ModelError> {
        let Some(info) = self.gguf.tensor(name) else {
            return Err(ModelError::MissingTensor {
                name: name.to_owned(),
                expected: shape.to_vec(),
            });
        };
        // Trailing dimensions of 1 are the same shape.
        let trim = |d: &[u64]| {
            let n = d.iter().rposition(|&x| x != 1).map_or(1, |i| i + 1);
            d[..n.min(d.len())].to_vec()
        };
        let expected: Vec<u64> = shape.iter().map(|&d| d as u64).collect();
        if trim(&info.dims) != trim(&expected) {
            return Err(ModelError::Shape {
                name: name.to_owned(),
                expected: shape.to_vec(),
                found: info.dims.clone(),
            });
        }
        if !quant::is_supported(info.ty) {
            return Err(ModelError::BlockType {
                name: name.to_owned(),
                ty: info.ty,
            });
        }
        self.used.insert(name.to_owned());
        Ok(info)
    }

    /// A matrix that maps `n_in` to `n_out` values.
    pub fn matrix(&mut self, name: &str, n_in: usize, n_out: usize) -> Result<Matrix, ModelError> {
        let ty = self.take(name, &[n_in, n_out])?.ty;
        Ok(Matrix {
            tensor: name.to_owned(),
            ty,
            n_in,
            n_out,
            first: 0,
            run: n_out,
            step: n_out,
        })
    }

    /// `n` matrices of one shape, stacked in one tensor.
    pub fn stacked(
        &mut self,
        name: &str,
        n_in: usize,
        n_out: usize,
        n: usize,
    ) -> Result<Vec<Matrix>, ModelError> {
        let ty = self.take(name, &[n_in, n_out, n])?.ty;
        Ok((0..n)
            .map(|i| Matrix {
                tensor: name.to_owned(),
                ty,
                n_in,
                n_out,
                first: i * n_out,
                run: n_out,
                step: n_out,
            })
            .collect())
    }

    pub fn vector(&mut self, name: &str, len: usize) -> Result<Vector, ModelError> {
        self.shaped(name, &[len])
    }

    /// A small tensor of any shape, decoded.
    pub fn shaped(&mut self, name: &str, shape: &[usize]) -> Result<Vector, ModelError> {
        let info = self.take(name, shape)?;
        let mut values = vec![0.0; shape.iter().product()];
        quant::dequantize(info.ty, self.gguf.data(info), &mut values).map_err(|_| {
            ModelError::BlockType {
                name: name.to_owned(),
                ty: info.ty,
            }
        })?;
        Ok(Vector {
            tensor: name.to_owned(),
            values,
        })
    }

    pub fn optional_vector(
        &mut self,
        name: &str,
        len: usize,
    ) -> Result<Option<Vector>, ModelError> {
        if !self.offers(name) {
            return Ok(None);
        }
        self.vector(name, len).map(Some)
    }

    /// `PREFIX.weight` with `PREFIX.bias` where the file has one.
    pub fn linear(
        &mut self,
        prefix: &str,
        n_in: usize,
        n_out: usize,
    ) -> Result<Linear, ModelError> {
        Ok(Linear {
            weight: self.matrix(&format!("{prefix}.weight"), n_in, n_out)?,
            bias: self.optional_vector(&format!("{prefix}.bias"), n_out)?,
            scale: 1.0,
        })
    }

    /// The norm over `width` values with the weight `PREFIX.weight`, as long as
    /// `n` runs, and a bias where the file has one.
    pub fn norm(
        &mut self,
        prefix: &str,
        kind: NormKind,
        width: usize,
        n: usize,
        eps: f32,
    ) -> Result<Norm, ModelError> {
        let mut take = |part: &str| self.flat(&format!("{prefix}.{part}"), width, n);
        let weight = take("weight")?;
        let has_bias = self.offers(&format!("{prefix}.bias"));
        let bias = match has_bias {
            true => Some(self.flat(&format!("{prefix}.bias"), width, n)?),
            false => None,
        };
        Ok(Norm {
            kind,
            width,
            weight: Some(weight),
            bias,
            eps,
        })
    }

    /// `width × n` values, stored with one dimension or two.
    fn flat(&mut self, name: &str, width: usize, n: usize) -> Result<Vector, ModelError> {
        let is_flat = self.gguf.tensor(name).is_some_and(|t| t.dims.len() == 1);
        match is_flat || n == 1 {
            true => self.vector(name, width * n),
            false => self.shaped(name, &[width, n]),
        }
    }

    /// Counts the tensor `name` as used where the file has it, with this shape. The
    /// caller says why the score does not depend on it.
    pub fn leave_out(&mut self, name: &str, shape: &[usize]) -> Result<(), ModelError> {
        match self.has(name) {
            true => self.take(name, shape).map(|_| ()),
            false => Ok(()),
        }
    }

    /// Counts all tensors of block `i` as used. The caller says why the score does
    /// not depend on them.
    pub fn leave_out_block(&mut self, i: usize) {
        let prefix = format!("blk.{i}.");
        let names = self.gguf.tensors().iter().map(|t| &t.name);
        self.used
            .extend(names.filter(|n| n.starts_with(&prefix)).cloned());
    }

    /// Refuses the file if a tensor has not been taken, or some layers lack what
    /// others have.
    pub fn finish(self, architecture: &str) -> Result<(), ModelError> {
        const SHOWN: usize = 5;
        for sought in self.optional.into_values() {
            if let (Some(found), Some(lacking)) = (sought.found, sought.lacking) {
                return Err(ModelError::Uneven { found, lacking });
            }
        }
        let unused: Vec<&str> = self
            .gguf
            .tensors()
            .iter()
            .map(|t| t.name.as_str())
            .filter(|n| !self.used.contains(*n))
            .collect();
        if unused.is_empty() {
            return Ok(());
        }
        let mut names = unused[..unused.len().min(SHOWN)].join(", ");
        if unused.len() > SHOWN {
            names += ", …";
        }
        Err(ModelError::UnusedTensors {
            architecture: architecture.to_owned(),
            count: unused.len(),
            names,
        })
    }
}
