//! `mamba` (also FalconMamba) and `mamba2`: nothing but state spaces. Their layer
//! kinds, as the metadata and tensors describe them, serve the hybrids too.

use super::{Context, Parts, block, layer};
use crate::model::{CausalConv, Linear, Mamba1, Mamba2, Mixer, ModelError, Norm, NormKind};

pub(super) fn mamba(c: &mut Context) -> Result<Parts, ModelError> {
    stack(c, |c, i| c.mamba1(i).map(Mixer::Mamba1))
}

pub(super) fn mamba2(c: &mut Context) -> Result<Parts, ModelError> {
    stack(c, |c, i| c.mamba2(i).map(Mixer::Mamba2))
}

fn stack(
    c: &mut Context,
    mixer: impl Fn(&mut Context, usize) -> Result<Mixer, ModelError>,
) -> Result<Parts, ModelError> {
    let mut layers = Vec::with_capacity(c.n_layer);
    for i in 0..c.n_layer {
        let norm = c.norm(&format!("blk.{i}.attn_norm"))?;
        layers.push(layer(vec![block(Some(norm), mixer(c, i)?, None)]));
    }
    c.parts(layers)
}

impl Context<'_> {
    /// The convolution `NAME.weight` with `NAME.bias` where the file has one.
    pub(super) fn causal_conv(
        &mut self,
        name: &str,
        width: usize,
        n_channels: usize,
    ) -> Result<CausalConv, ModelError> {
        Ok(CausalConv {
            n_channels,
            width,
            weight: self
                .tensors
                .shaped(&format!("{name}.weight"), &[width, n_channels])?,
            bias: self
                .tensors
                .optional_vector(&format!("{name}.bias"), n_channels)?,
        })
    }

    /// The Mamba-1 of layer `i`, with norms where the file has their weights or a
    /// key asks for them without.
    pub(super) fn mamba1(&mut self, i: usize) -> Result<Mamba1, ModelError> {
        let n_inner = self.hp.count("ssm.inner_size")?;
        let n_state = self.hp.count("ssm.state_size")?;
        let rank = self.hp.count("ssm.time_step_rank")?;
        let width = self.hp.count("ssm.conv_kernel")?;
        let name = |part: &str| format!("blk.{i}.ssm_{part}");
        let conv = self.causal_conv(&name("conv1d"), width, n_inner)?;
        let (d, eps, t) = (self.n_embd, self.norm.1, &mut self.tensors);
        let conv = CausalConv {
            bias: Some(t.vector(&name("conv1d.bias"), n_inner)?),
            ..conv
        };
        let both = t.linear(&name("in"), d, 2 * n_inner)?;
        let selected = t.linear(&name("x"), n_inner, rank + 2 * n_state)?;

        let has_weights = t.offers(&name("dt_norm.weight"));
        let mut norm = |part: &str, width: usize| match has_weights {
            true => t.norm(&name(part), NormKind::Rms, width, 1, eps),
            false => Ok(Norm {
                kind: NormKind::Rms,
                width,
                weight: None,
                bias: None,
                eps,
            }),
        };
        let norms = match has_weights || self.hp.bool("ssm.dt_b_c_rms", false)? {
            true => Some([
                norm("dt_norm", rank)?,
                norm("b_norm", n_state)?,
                norm("c_norm", n_state)?,
            ]),
            false => None,
        };
        Ok(Mamba1 {
            n_inner,
            n_state,
            input: both.rows(0, n_inner),
            gate: both.rows(n_inner, n_inner),
            conv,
            dt_low: selected.rows(0, rank),
            b: selected.rows(rank, n_state),
            c: selected.rows(rank + n_state, n_state),
            norms,
            dt: Linear {
                bias: Some(t.vector(&name("dt.bias"), n_inner)?),
                ..t.linear(&name("dt"), rank, n_inner)?
            },
            a: t.shaped(&name("a"), &[n_state, n_inner])?,
            d: t.vector(&name("d"), n_inner)?,
            output: t.linear(&name("out"), n_inner, d)?,
        })
    }

    /// The Mamba-2 of layer `i`.
    pub(super) fn mamba2(&mut self, i: usize) -> Result<Mamba2, ModelError> {
        let mamba = self.mamba2_without_norm(i)?;
        Ok(Mamba2 {
            norm: Some(self.mamba2_norm(i, &mamba)?),
            ..mamba
        })
    }

    /// The norm of a Mamba-2 in layer `i`: each group has weights of its own.
    pub(super) fn mamba2_norm(&mut self, i: usize, m: &Mamba2) -> Result<Norm, ModelError> {
        let width = m.n_head * m.head_dim / m.n_group;
        let name = format!("blk.{i}.ssm_norm");
        self.tensors
            .norm(&name, NormKind::Rms, width, m.n_group, self.norm.1)
    }

    pub(super) fn mamba2_without_norm(&mut self, i: usize) -> Result<Mamba2, ModelError> {
        const HEADS: &str = "ssm.time_step_rank";
        const GROUPS: &str = "ssm.group_count";
        let n_inner = self.hp.count("ssm.inner_size")?;
        let n_state = self.hp.count("ssm.state_size")?;
        let (n_head, n_group) = (self.hp.count(HEADS)?, self.hp.count(GROUPS)?);
        let width = self.hp.count("ssm.conv_kernel")?;
        if !n_inner.is_multiple_of(n_head) {
            let problem = format!("does not divide the inner width {n_inner}");
            return Err(self.hp.bad(HEADS, n_head, problem));
        }
        if !n_head.is_multiple_of(n_group) {
            let problem = format!("does not divide the {n_head} heads");
            return Err(self.hp.bad(GROUPS, n_group, problem));
        }
        let n_conv = n_inner + 2 * n_group * n_state;
        let name = |part: &str| format!("blk.{i}.ssm_{part}");
        let conv = self.causal_conv(&name("conv1d"), width, n_conv)?;
        let (d, t) = (self.n_embd, &mut self.tensors);
        let all = t.linear(&name("in"), d, n_inner + n_conv + n_head)?;
        Ok(Mamba2 {
            n_head,
            head_dim: n_inner / n_head,
            n_group,
            n_state,
            gate: all.rows(0, n_inner),
            input: all.rows(n_inner, n_conv),
            dt: Linear {
                bias: Some(t.vector(&name("dt.bias"), n_head)?),
                ..all.rows(n_inner + n_conv, n_head)
            },
            conv,
            a: t.shaped(&name("a"), &[1, n_head])?,
            d: t.shaped(&name("d"), &[1, n_head])?,
            norm: None,
            output: t.linear(&name("out"), n_inner, d)?,
        })
    }
}
