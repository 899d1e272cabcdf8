//! The width of what products multiply.

use crate::backend::{BackendError, Numerics};

/// The width of what products multiply. They add up in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// f32, and no TF32.
    F32,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
}

impl Precision {
    /// That of `numerics`.
    ///
    /// # Errors
    /// Numerics that are not for CUDA.
    pub fn of(numerics: Numerics) -> Result<Self, BackendError> {
        match numerics {
            Numerics::Exact => Ok(Precision::F32),
            Numerics::F16 => Ok(Precision::F16),
            Numerics::Bf16 => Ok(Precision::Bf16),
            Numerics::Q8 => Err(BackendError::Numerics {
                numerics,
                device: super::NAME,
            }),
        }
    }

    /// Bytes of an input.
    pub(super) fn bytes(self) -> usize {
        match self {
            Precision::F32 => 4,
            Precision::F16 | Precision::Bf16 => 2,
        }
    }

    /// Its number in `head.cu`.
    pub(super) fn number(self) -> i32 {
        match self {
            Precision::F32 => 0,
            Precision::F16 => 1,
            Precision::Bf16 => 2,
        }
    }

    /// Whether inputs are narrower than activations.
    pub(super) fn narrow(self) -> bool {
        self.bytes() < 4
    }
}
