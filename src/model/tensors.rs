//! References to tensors: checked for presence, shape and type when the model is
//! built, so that a backend can rely on them.

use std::collections::HashSet;

use super::error::ModelError;
use super::{Linear, Norm};
use crate::gguf::{BlockType, Gguf, TensorInfo};
use crate::quant;

/// Rows of a tensor: `n_out` rows of `n_in` elements, starting at `first_row`.
/// Parts of fused matrices and single experts are row ranges too.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    /// Name of the tensor in the file.
    pub tensor: String,
    pub ty: BlockType,
    pub n_in: usize,
    pub n_out: usize,
    pub first_row: usize,
}

impl Matrix {
    /// The part `[first, first + n)` of the rows.
    pub fn rows(&self, first: usize, n: usize) -> Matrix {
        debug_assert!(first + n <= self.n_out);
        Matrix {
            first_row: self.first_row + first,
            n_out: n,
            ..self.clone()
        }
    }

    /// Bytes of one row of blocks.
    pub fn row_bytes(&self) -> usize {
        self.n_in / self.ty.block_elements() * self.ty.block_bytes()
    }

    /// Bytes of all rows, as they are stored.
    pub fn bytes(&self) -> usize {
        self.n_out * self.row_bytes()
    }

    /// The blocks of all rows.
    pub fn data<'a>(&self, gguf: &'a Gguf) -> &'a [u8] {
        let start = self.first_row * self.row_bytes();
        // The builder has found the tensor in this file.
        match gguf.tensor(&self.tensor) {
            Some(t) => &gguf.data(t)[start..start + self.bytes()],
            None => &[],
        }
    }
}

/// A decoded one-dimensional tensor: norm weights, biases, factors.
#[derive(Clone, Debug, PartialEq)]
pub struct Vector {
    pub tensor: String,
    pub values: Vec<f32>,
}

/// Hands out tensors by name, checks them, and remembers which were used.
pub(super) struct Tensors<'a> {
    gguf: &'a Gguf,
    used: HashSet<String>,
}

impl<'a> Tensors<'a> {
    pub fn new(gguf: &'a Gguf) -> Self {
        Self {
            gguf,
            used: HashSet::new(),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.gguf.tensor(name).is_some()
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
            first_row: 0,
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
                first_row: i * n_out,
            })
            .collect())
    }

    pub fn vector(&mut self, name: &str, len: usize) -> Result<Vector, ModelError> {
        let info = self.take(name, &[len])?;
        let mut values = vec![0.0; len];
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
        if !self.has(name) {
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
        })
    }

    /// The norm with the weight `PREFIX.weight`.
    pub fn norm(&mut self, prefix: &str, len: usize, eps: f32) -> Result<Norm, ModelError> {
        Ok(Norm {
            weight: self.vector(&format!("{prefix}.weight"), len)?,
            eps,
        })
    }

    /// Refuses the file if a tensor has not been taken.
    pub fn finish(self, architecture: &str) -> Result<(), ModelError> {
        const SHOWN: usize = 5;
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
