//! How much main memory a run takes on the CPU, from the sizes in a file's header:
//! what is mapped, decoded and computed at the same time.

use super::gemm::PANEL;
use super::head::{ROWS, RUN};
use super::math::LogSumExp;
use super::q8::Support;
use super::weights::LAYER_BYTES;
use crate::backend::{Numerics, TokenScore};
use crate::gguf::TensorInfo;
use crate::isa::Isa;

/// Bytes of a value.
const F32: u64 = size_of::<f32>() as u64;

/// What the program has in memory beside what is counted here: its code, the threads'
/// stacks, what the allocator keeps. Measured.
const PROGRAM: u64 = 20 << 20;

/// What a token of the vocabulary takes, and a merge: texts, bytes, and the tables that
/// find them. Measured: 306 bytes for byte-level BPE (SmolLM2), 237 for SentencePiece
/// (Gemma 3).
const ENTRY: u64 = 270;

/// Sizes of one layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerSizes {
    /// As stored.
    pub bytes: u64,
    /// Weights.
    pub elements: u64,
    /// Its matrices in panels of f32.
    f32_panels: u64,
    /// Those of them that have no products of integers.
    float_panels: u64,
    /// The others in panels of integers.
    integer_panels: u64,
    /// The f32 values of one panel of its widest matrix.
    widest_panel: u64,
    /// Values of scratch for each row of a sequence, beside normed input and sum.
    scratch: u64,
}

/// Sizes of the output matrix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeadSizes {
    n_in: u64,
    integer_bytes: Option<u64>,
}

/// A matrix: bytes of `n_in × n_out` in panels, of f32 and, where its type has products
/// of integers, of those.
fn panels(t: &TensorInfo, n_in: u64, n_out: u64) -> (u64, Option<u64>) {
    let lanes = n_out.next_multiple_of(PANEL as u64) * n_in;
    let integers = match Support::of(t.ty) {
        Support::Integers(kind) => {
            let floats = 1 + u64::from(kind.layout.minima);
            Some(lanes + lanes / kind.layout.group as u64 * floats * F32)
        }
        Support::F32 | Support::None => None,
    };
    (lanes * F32, integers)
}

impl LayerSizes {
    /// Counts a tensor of the layer; `name` is what follows `blk.N.`.
    pub fn add(&mut self, name: &str, t: &TensorInfo) {
        self.bytes += t.n_bytes as u64;
        self.elements += t.elements() as u64;
        let [n_in, n_out, ref more @ ..] = t.dims[..] else {
            return;
        };
        let n_matrices = more.iter().product::<u64>();
        let (f32_panels, integers) = panels(t, n_in, n_out);
        self.f32_panels += n_matrices * f32_panels;
        match integers {
            Some(bytes) => self.integer_panels += n_matrices * bytes,
            None => self.float_panels += n_matrices * f32_panels,
        }
        self.widest_panel = self.widest_panel.max(n_in * PANEL as u64);
        // What a matrix yields is kept for the rows of a sequence; keys and values are
        // packed besides, what heads yield goes into the output matrix, and what a
        // block yields becomes its sum.
        self.scratch += match name.split('.').next().unwrap_or(name) {
            "attn_k" | "attn_v" | "attn_qkv" => 2 * n_out,
            "attn_output" => n_in,
            "ffn_down" | "ffn_down_shexp" => 0,
            // Rows that go to an expert, and what it makes of them.
            "ffn_down_exps" => 2 * n_out,
            _ => n_out,
        };
    }

    /// Decoded weights, for products in `numerics` on `n_threads` threads.
    fn weights(&self, numerics: Numerics, n_threads: u64) -> u64 {
        let by_panel = self.elements * F32 > LAYER_BYTES as u64;
        // A panel, and the rows that it is packed from.
        let panels = 2 * n_threads * self.widest_panel * F32;
        match (numerics, by_panel) {
            (Numerics::Q8, false) => self.integer_panels + self.float_panels,
            (Numerics::Q8, true) => self.integer_panels + panels,
            (_, false) => self.f32_panels,
            (_, true) => panels,
        }
    }

    /// Whether its weights are decoded for each window anew.
    pub fn is_decoded_by_window(&self, numerics: Numerics) -> bool {
        numerics != Numerics::Q8 && self.elements * F32 > LAYER_BYTES as u64
    }
}

impl HeadSizes {
    /// The sizes of a head with this tensor.
    pub fn new(t: &TensorInfo) -> Self {
        let n_in = t.dims.first().copied().unwrap_or(0);
        Self {
            n_in,
            integer_bytes: panels(t, n_in, RUN as u64).1,
        }
    }

    /// A decoded run of the vocabulary.
    fn run(&self, numerics: Numerics) -> u64 {
        match (numerics, self.integer_bytes) {
            (Numerics::Q8, Some(bytes)) => bytes,
            _ => RUN as u64 * self.n_in * F32,
        }
    }
}

/// What is evaluated together.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Rows of a window: its last token is only a target.
    pub rows: u64,
    /// Windows of a batch.
    pub batch: u64,
    /// Scored targets of a batch, and of all windows.
    pub scored_together: u64,
    /// Scored targets.
    pub scored: u64,
    /// Worker threads.
    pub n_threads: u64,
    /// The arithmetic.
    pub numerics: Numerics,
}

/// Bytes of a run that is on the CPU as far as `layers` go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// The program, its vocabulary included.
    pub program: u64,
    /// Pages of the file.
    pub file: u64,
    /// Decoded weights.
    pub weights: u64,
    /// Hidden states of a batch, the rows that are scored, and their scores.
    pub batch: u64,
    /// What the threads compute with.
    pub scratch: u64,
}

impl Footprint {
    /// `file` is what is mapped at a time, `entries` the number of tokens and merges.
    /// Without a head, the last layer is elsewhere.
    pub fn new(
        layers: &[LayerSizes],
        head: Option<&HeadSizes>,
        file: u64,
        entries: u64,
        n_embd: u64,
        load: Load,
    ) -> Self {
        let Load {
            rows, n_threads, ..
        } = load;
        let decoded = layers.iter().map(|l| l.weights(load.numerics, n_threads));
        let run = head.map_or(0, |h| h.run(load.numerics));
        let scored = head.map_or(0, |_| load.scored_together);
        let scores = size_of::<TokenScore>() as u64;
        let in_batch = n_embd * F32 + size_of::<LogSumExp>() as u64 + F32 + scores;
        // One sequence on each thread, or one on all.
        let sequences = match load.batch < n_threads {
            true => 1,
            false => n_threads,
        };
        let a_row = layers.iter().map(|l| l.scratch).max();
        let a_row = a_row.map_or(0, |values| values + 2 * n_embd);
        Self {
            program: PROGRAM + entries * ENTRY,
            file,
            weights: decoded.max().unwrap_or(0).max(run),
            batch: load.batch * rows * n_embd * F32 + scored * in_batch + load.scored * scores,
            scratch: sequences * rows * a_row * F32 + n_threads * (ROWS * RUN) as u64 * F32,
        }
    }

    /// All of it, in bytes.
    pub fn total(&self) -> u64 {
        self.program + self.file + self.weights + self.batch + self.scratch
    }
}

/// Operations a second, in 10⁹ and for one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Products with weights.
    pub products: f64,
    /// Attention's products, and its softmax.
    pub attention: f64,
    /// Bytes of f32 that weights are decoded to and packed.
    pub decoding: f64,
}

impl Speed {
    /// The speed that is assumed of a processor: that of the reference machine (Zen 5,
    /// AVX-512 with VNNI, see `docs/performance.md`), half of it for half as wide
    /// registers, and an eighth for portable code.
    pub fn assumed(isa: Isa, numerics: Numerics) -> Self {
        let part = match isa.name() {
            "avx2" => 0.5,
            "portable" => 0.125,
            _ => 1.0,
        };
        let products = match numerics {
            Numerics::Q8 => 565.0,
            Numerics::Exact | Numerics::F16 | Numerics::Bf16 => 235.0,
        };
        Self {
            products: part * products,
            attention: part * 180.0,
            decoding: part * 4.0,
        }
    }
}
