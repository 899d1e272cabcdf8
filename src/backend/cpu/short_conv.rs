//! Gated short convolutions.

use super::conv::LoadedConv;
use super::exec::Exec;
use super::math;
use super::scratch::{Scratch, room};
use super::weights::{LoadedLinear, Source};
use crate::backend::BackendError;
use crate::model::ShortConv;

pub(super) struct LoadedShortConv<'m> {
    b: LoadedLinear<'m>,
    c: LoadedLinear<'m>,
    input: LoadedLinear<'m>,
    conv: LoadedConv<'m>,
    output: LoadedLinear<'m>,
}

impl<'m> LoadedShortConv<'m> {
    pub fn load(source: Source<'m>, spec: &'m ShortConv) -> Result<Self, BackendError> {
        Ok(Self {
            b: LoadedLinear::load(source, &spec.b)?,
            c: LoadedLinear::load(source, &spec.c)?,
            input: LoadedLinear::load(source, &spec.input)?,
            conv: LoadedConv::load(&spec.conv),
            output: LoadedLinear::load(source, &spec.output)?,
        })
    }

    /// `out ← short_conv(x)` for the rows of one sequence.
    pub fn apply(&self, exec: &Exec, x: &[f32], s: &mut Scratch, out: &mut [f32]) {
        let isa = exec.isa;
        let n = out.len() / self.output.n_out() * self.output.n_in();
        let (gated, factor) = (room(&mut s.raw, n), room(&mut s.gate, n));
        self.input.apply(exec, x, gated);
        self.b.apply(exec, x, factor);
        math::mul(isa, gated, factor);
        let mixed = room(&mut s.mixed, n);
        self.conv.apply(exec, gated, mixed);
        self.c.apply(exec, x, factor);
        math::mul(isa, mixed, factor);
        self.output.apply(exec, mixed, out);
    }
}
