//! `bitnet`: norms inside the blocks, and a scale for each matrix.

use super::{Context, Parts};
use crate::model::rope::RopePairs;
use crate::model::{Activation, Linear, Mixer, ModelError};

pub(super) fn bitnet(c: &mut Context) -> Result<Parts, ModelError> {
    let (widths, n_ff) = (c.widths()?, c.n_ff()?);
    let rope = c.rope(RopePairs::Halves, widths.head_dim)?;
    let (kind, eps) = c.norm;
    let layers = c.pre_norm_layers(
        "ffn_norm",
        |c, i| {
            let mut a = c.attention(i, &widths)?;
            for (linear, part) in [
                (&mut a.q, "q"),
                (&mut a.k, "k"),
                (&mut a.v, "v"),
                (&mut a.output, "output"),
            ] {
                scale(c, linear, &format!("blk.{i}.attn_{part}"))?;
            }
            let width = widths.n_head[i] * widths.head_dim_v;
            let name = format!("blk.{i}.attn_sub_norm");
            a.sub_norm = Some(c.tensors.norm(&name, kind, width, 1, eps)?);
            a.rope = Some(rope.clone());
            Ok(Mixer::Attention(a))
        },
        |c, i| {
            let mut f = c.ffn(i, n_ff[i], Activation::Silu)?;
            if let Some(gate) = &mut f.gate {
                scale(c, gate, &format!("blk.{i}.ffn_gate"))?;
            }
            scale(c, &mut f.up, &format!("blk.{i}.ffn_up"))?;
            scale(c, &mut f.down, &format!("blk.{i}.ffn_down"))?;
            let name = format!("blk.{i}.ffn_sub_norm");
            f.sub_norm = Some(c.tensors.norm(&name, kind, n_ff[i], 1, eps)?);
            Ok(Mixer::Ffn(f))
        },
    )?;
    c.parts(layers)
}

/// Takes the factor `PREFIX.scale` into a map, where the file has one.
fn scale(c: &mut Context, linear: &mut Linear, prefix: &str) -> Result<(), ModelError> {
    if let Some(factor) = c.tensors.optional_vector(&format!("{prefix}.scale"), 1)? {
        linear.scale = factor.values[0];
    }
    Ok(())
}
