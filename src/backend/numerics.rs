//! The arithmetic of products, as experiments name it.

use std::fmt;

/// The arithmetic of products with weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Numerics {
    /// Weights decoded to f32, products and sums in f32.
    Exact,
    /// Activations quantized to 8 bits as in ggml's CPU backend, products in
    /// integers.
    Q8,
    /// Weights and activations narrowed to half precision where they meet in
    /// products, sums in f32.
    F16,
    /// The same in bfloat16.
    Bf16,
}

impl Numerics {
    /// All of them, in the order in which messages list them.
    pub const ALL: [Numerics; 4] = [Numerics::Exact, Numerics::Q8, Numerics::F16, Numerics::Bf16];

    /// As in experiment files and result tables.
    pub fn name(self) -> &'static str {
        match self {
            Numerics::Exact => "exact",
            Numerics::Q8 => "q8",
            Numerics::F16 => "f16",
            Numerics::Bf16 => "bf16",
        }
    }

    /// What it is, for the help of the command line.
    pub fn summary(self) -> &'static str {
        match self {
            Numerics::Exact => "f32 throughout",
            Numerics::Q8 => "activations in 8 bits, as in ggml's CPU backend; on the CPU",
            Numerics::F16 => "16-bit inputs of products, sums in f32; on a GPU",
            Numerics::Bf16 => "the same in bfloat16",
        }
    }

    /// The one of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|n| n.name() == name)
    }
}

impl fmt::Display for Numerics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
