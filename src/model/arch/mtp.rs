//! Blocks for multi-token prediction, which come after the layers that make the
//! logits and take no part in them.

use std::ops::Range;

use super::Context;
use crate::model::ModelError;

pub(super) const KEY: &str = "nextn_predict_layers";

/// Architectures whose blocks may lie in a file of their own: llama.cpp scores a
/// file that declares them and holds none of their tensors.
const APART: [&str; 3] = ["cohere2moe", "deepseek2", "glm4moe"];

impl Context<'_> {
    /// Leaves the declared blocks out of account, and yields how many are not in
    /// the file at all. A block that does not hold what every such block holds (in
    /// llama.cpp too, whatever the architecture) is a layer, which a wrong key must
    /// not drop.
    pub(super) fn leave_out_mtp(&mut self, blocks: Range<usize>) -> Result<usize, ModelError> {
        let (d, n) = (self.n_embd, blocks.len());
        let mut apart = 0;
        for i in blocks {
            let refuse = |lacks: String| {
                let problem =
                    format!("block {i} is none for multi-token prediction, since it {lacks}");
                Err(self.hp.bad(KEY, n, problem))
            };
            if !self.tensors.any(&format!("blk.{i}.")) {
                if !APART.contains(&self.hp.architecture()) {
                    return refuse("holds no tensors".to_owned());
                }
                apart += 1;
                continue;
            }
            for (part, shape) in [
                ("eh_proj", &[2 * d, d][..]),
                ("enorm", &[d]),
                ("hnorm", &[d]),
            ] {
                let name = format!("blk.{i}.nextn.{part}.weight");
                if !self.tensors.has(&name) {
                    return refuse(format!("has no tensor '{name}'"));
                }
                self.tensors.leave_out(&name, shape)?;
            }
            self.tensors.leave_out_block(i);
        }
        Ok(apart)
    }
}
