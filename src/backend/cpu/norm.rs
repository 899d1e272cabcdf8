//! Norms with their weights.

use super::math;
use crate::isa::Isa;
use crate::model::{Norm, NormKind};

/// `out ← norm(xs)`, for every run of the norm's width; the bits of [`apply`].
pub(super) fn apply_to(isa: Isa, norm: &Norm, xs: &[f32], out: &mut [f32]) {
    match (norm.kind, &norm.weight, &norm.bias) {
        (NormKind::Rms, Some(weight), None) if weight.values.len() == norm.width => {
            math::rms_norm(isa, out, xs, &weight.values, norm.eps);
        }
        _ => {
            out.copy_from_slice(xs);
            apply(isa, norm, out);
        }
    }
}

/// `xs ← norm(xs)`, for every run of the norm's width.
pub(super) fn apply(isa: Isa, norm: &Norm, xs: &mut [f32]) {
    match norm.kind {
        NormKind::Rms => math::rms_normalize(isa, xs, norm.width, norm.eps),
        NormKind::Layer => math::layer_normalize(isa, xs, norm.width, norm.eps),
    }
    if let Some(weight) = &norm.weight {
        math::mul_rows(isa, xs, &weight.values);
    }
    if let Some(bias) = &norm.bias {
        math::add_bias(isa, xs, &bias.values);
    }
}
