//! Whether a row is of a measurement: what can move its figures is the same.

use super::row::{ModelSize, Provenance};
use crate::eval::Geometry;

/// What is measured, and by whom, as far as it is known before a corpus is read.
/// What is not known is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    /// Name of the model.
    pub model: String,
    /// Of its bytes, in hexadecimal.
    pub model_sha256: String,
    /// The block type that holds most of the weights.
    pub model_type: String,
    /// How large it is.
    pub size: ModelSize,
    /// What computes, e.g. `llama`.
    pub architecture: String,
    /// Name of the corpus.
    pub corpus: String,
    /// Of its bytes, in hexadecimal.
    pub corpus_sha256: String,
    /// Whether special tokens in the corpus are parsed.
    pub parse_special: bool,
    /// As the experiment asks for it.
    pub placement: String,
    /// As it was resolved, e.g. `cpu[0,30)`.
    pub layer_placement: String,
    /// The arithmetic, by name.
    pub numerics: String,
    /// Name and version, e.g. `pplx 0.1.0, arithmetic 1`.
    pub engine: String,
}

impl Identity {
    /// What is known of a run whose tokens are not.
    pub fn unread(self, geometry: Geometry) -> Provenance {
        Provenance {
            model: self.model,
            model_sha256: self.model_sha256,
            model_type: self.model_type,
            size: self.size,
            architecture: self.architecture,
            corpus: self.corpus,
            corpus_sha256: self.corpus_sha256,
            tokens: None,
            tokens_sha256: String::new(),
            geometry,
            bos: None,
            parse_special: self.parse_special,
            windows: None,
            scored_tokens: None,
            placement: self.placement,
            layer_placement: self.layer_placement,
            numerics: self.numerics,
            engine: self.engine,
        }
    }
}

impl Provenance {
    /// Whether both are of the same run: all of it is equal, but for the commit that
    /// the engine was built from. The arithmetic has a version of its own.
    pub fn is_same_run(&self, other: &Provenance) -> bool {
        let plain = |p: &Provenance| Provenance {
            engine: arithmetic_of(&p.engine),
            size: ModelSize::default(),
            ..p.clone()
        };
        plain(self) == plain(other)
    }
}

/// An engine's name without its commit: `pplx 0.1.0, arithmetic 1, commit 7413ec0f1a`
/// becomes `pplx 0.1.0, arithmetic 1`. A build of changed sources
/// (`commit 7413ec0f1a+12ab34cd`) keeps it: what it computes, nobody has named.
pub fn arithmetic_of(engine: &str) -> String {
    let moves = |part: &&str| match part.strip_prefix("commit ") {
        Some(commit) => commit.contains('+'),
        None => true,
    };
    let parts: Vec<&str> = engine.split(", ").filter(moves).collect();
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_no_part_of_the_arithmetic_unless_it_was_changed() {
        let plain = "pplx 0.1.0, arithmetic 1";
        assert_eq!(arithmetic_of(plain), plain);
        assert_eq!(arithmetic_of(&format!("{plain}, commit 7413ec0f1a")), plain);
        let gpu = format!("{plain}, commit 7413ec0f1a, NVIDIA H200");
        assert_eq!(arithmetic_of(&gpu), format!("{plain}, NVIDIA H200"));
        let changed = format!("{plain}, commit 7413ec0f1a+12ab34cd");
        assert_eq!(arithmetic_of(&changed), changed);
    }
}
