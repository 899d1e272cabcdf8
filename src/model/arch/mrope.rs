//! RoPE with an axis of its own for some pairs (Qwen 2 VL and its kin). On text
//! the first three axes are the position in the sequence. The fourth is 0 in
//! llama.cpp, so its pairs do not turn.

use super::Context;
use crate::model::ModelError;
use crate::model::rope::Rope;

const SECTIONS: &str = "rope.dimension_sections";

/// How pairs are dealt out to the axes.
#[derive(Clone, Copy)]
pub(super) enum Axes {
    /// In runs, as long as the sections say.
    Runs,
    /// In turns of three for as long as an axis has pairs left.
    Turns,
}

impl Context<'_> {
    /// Whether the file deals pairs out to axes at all.
    pub(super) fn has_mrope(&self) -> Result<bool, ModelError> {
        Ok(self.hp.has(SECTIONS) && self.sections()?[..2].iter().all(|&n| n > 0))
    }

    /// Stills the pairs of the fourth axis.
    pub(super) fn with_axes(&self, rope: Rope, axes: Axes) -> Result<Rope, ModelError> {
        let sections = self.sections()?;
        let all = sections.iter().sum::<usize>().max(1);
        let is_fourth = |pair: usize| {
            let pair = pair % all;
            match axes {
                Axes::Runs => pair >= sections[..3].iter().sum(),
                Axes::Turns => pair >= 3 * sections[pair % 3],
            }
        };
        Ok(rope.with_stilled(is_fourth))
    }

    fn sections(&self) -> Result<[usize; 4], ModelError> {
        self.hp.array(SECTIONS)
    }
}
