//! What arithmetic the CPU has.

use super::q8::Support;
use crate::backend::Numerics;
use crate::gguf::BlockType;
use crate::quant;

/// The device's name.
pub(super) const NAME: &str = "cpu";

/// The arithmetic of its products.
pub(super) const NUMERICS: &[Numerics] = &[Numerics::Exact, Numerics::Q8];

/// The first of the types of weights that `numerics` has no products for.
pub fn no_product(
    numerics: Numerics,
    types: impl IntoIterator<Item = BlockType>,
) -> Option<BlockType> {
    match numerics {
        Numerics::Exact | Numerics::F16 | Numerics::Bf16 => None,
        Numerics::Q8 => types.into_iter().find(|&ty| {
            // What cannot be decoded is no weight, or is refused with the model.
            quant::is_supported(ty) && Support::of(ty) == Support::None
        }),
    }
}
