//! What layers are made of, in the field's words.

use super::{Layer, Mixer, Model, Span};

impl Mixer {
    /// The kind of this part of a layer.
    pub fn kind(&self) -> &'static str {
        match self {
            Mixer::Attention(a) => match a.heads.span {
                Span::All => "attention",
                Span::Window(_) => "sliding-window attention",
                Span::Chunk(_) => "chunked attention",
            },
            Mixer::Mla(_) => "latent attention",
            Mixer::Ffn(_) => "FFN",
            Mixer::Moe(_) => "mixture of experts",
            Mixer::Mamba1(_) => "Mamba-1",
            Mixer::Mamba2(_) => "Mamba-2",
            Mixer::DeltaNet(_) => "gated delta net",
            Mixer::ShortConv(_) => "short convolution",
            Mixer::Rwkv6TimeMix(_) => "RWKV-6 time mix",
            Mixer::Rwkv7TimeMix(_) => "RWKV-7 time mix",
            Mixer::ChannelMix(_) => "channel mix",
        }
    }

    /// Whether a row's output depends on the rows before it.
    pub fn mixes_rows(&self) -> bool {
        match self {
            Mixer::Ffn(_) | Mixer::Moe(_) => false,
            Mixer::Attention(_)
            | Mixer::Mla(_)
            | Mixer::Mamba1(_)
            | Mixer::Mamba2(_)
            | Mixer::DeltaNet(_)
            | Mixer::ShortConv(_)
            | Mixer::Rwkv6TimeMix(_)
            | Mixer::Rwkv7TimeMix(_)
            | Mixer::ChannelMix(_) => true,
        }
    }
}

impl Layer {
    /// The kinds of its parts, in order.
    pub fn kinds(&self) -> Vec<&'static str> {
        let branches = self.blocks.iter().flat_map(|b| &b.branches);
        branches.map(|b| b.mixer.kind()).collect()
    }
}

impl Model {
    /// Which layers there are and how many of each, in order of appearance.
    pub fn layer_kinds(&self) -> Vec<(Vec<&'static str>, usize)> {
        let mut found: Vec<(Vec<&'static str>, usize)> = Vec::new();
        for kinds in self.layers.iter().map(Layer::kinds) {
            match found.iter_mut().find(|(k, _)| *k == kinds) {
                Some((_, n)) => *n += 1,
                None => found.push((kinds, 1)),
            }
        }
        found
    }
}
