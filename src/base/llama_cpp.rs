//! llama.cpp's base files, as `llama-perplexity --kl-divergence-base` writes and
//! `--kl-divergence` reads them; little-endian:
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | `_logits_` |
//! | 4 each | context C, vocabulary V, windows W |
//! | 4·C·W | token ids |
//! | W · (C − 1 − C/2) rows | of each scored target: f32 scale, f32 least ln p, V codes of 16 bits, one more where V is odd |
//!
//! `ln p = scale · code + least`. Log-probabilities of more than 16 below the
//! largest are raised to that, so the base's perplexity is too low. Nothing in the
//! file tells whether its bytes are those that were written.

use std::path::Path;

use super::{BaseInfo, Source, Target, error, u32s};
use crate::eval::{BaseSink, Geometry, GridRow, StoredBase, StoredError, StoredRow, Window};

/// What files begin with.
pub const MAGIC: &[u8] = b"_logits_";

/// What a reader of the figures must know.
pub const NOTE: &str = "llama.cpp's format has no checksum: a byte that changed is not \
    noticed. Its log-probabilities end 16 nats below the largest, so PPL(base) is too low where \
    targets are less likely than that";

/// How far below the largest logit the grid reaches.
const REACH: f32 = 16.0;
/// Bytes of rows that are in memory together, if a window allows.
const AT_ONCE: u64 = 256 << 20;

/// Bytes of a row.
fn row_len(n_vocab: usize) -> u64 {
    8 + 2 * (n_vocab as u64).next_multiple_of(2)
}

/// Whether the format can tell this geometry.
fn covers(geometry: Geometry) -> bool {
    geometry == Geometry::llama_cpp(geometry.n_ctx)
}

/// Reads a base window by window.
pub struct GridReader {
    source: Source,
    info: BaseInfo,
}

impl GridReader {
    /// # Errors
    /// A file that is malformed, cut short or too long.
    pub fn open(path: &Path) -> Result<Self, StoredError> {
        let mut source = Source::open(path)?;
        let what = "llama.cpp's header";
        if source.take(8, what)? != MAGIC {
            return Err(error(path, "does not begin with _logits_"));
        }
        let n_ctx = source.take_u32(what)? as usize;
        let n_vocab = source.take_u32(what)? as usize;
        let windows = source.take_u32(what)? as usize;
        let geometry = Geometry::llama_cpp(n_ctx);
        if geometry.check().is_err() || n_vocab == 0 || windows == 0 {
            let problem = format!(
                "is malformed: {windows} windows of {n_ctx} tokens of a vocabulary of {n_vocab}"
            );
            return Err(error(path, problem));
        }
        let n_tokens = n_ctx as u64 * windows as u64;
        let ids = source.take(n_tokens.saturating_mul(4), "the list of token ids")?;
        let tokens = u32s(&ids);
        if let Some(at) = tokens.iter().position(|&id| id as usize >= n_vocab) {
            let problem = format!(
                "is malformed: token {at} has the id {}, the vocabulary has {n_vocab}",
                tokens[at]
            );
            return Err(error(path, problem));
        }
        let rows = windows as u64 * (n_ctx - n_ctx / 2 - 1) as u64;
        let need = u128::from(rows) * u128::from(row_len(n_vocab));
        if need != u128::from(source.left) {
            let problem = format!(
                "holds {} bytes of log-probabilities where {rows} scored tokens need {need}",
                source.left
            );
            return Err(error(path, problem));
        }
        Ok(Self {
            source,
            info: BaseInfo {
                geometry,
                n_vocab,
                bos: None,
                windows,
                tokens,
                model: String::new(),
                numerics: String::new(),
                placement: String::new(),
                engine: String::new(),
            },
        })
    }

    /// What the file says of itself.
    pub fn info(&self) -> &BaseInfo {
        &self.info
    }
}

impl StoredBase for GridReader {
    fn n_vocab(&self) -> usize {
        self.info.n_vocab
    }

    fn windows_at_once(&self) -> usize {
        let n_ctx = self.info.geometry.n_ctx as u64;
        let window = (n_ctx / 2).max(1) * row_len(self.info.n_vocab);
        (AT_ONCE / window).max(1) as usize
    }

    fn rows(&mut self, windows: &[Window]) -> Result<Vec<StoredRow>, StoredError> {
        let n: usize = windows.iter().map(Window::scored).sum();
        let n_vocab = self.info.n_vocab;
        (0..n)
            .map(|_| {
                let bytes = self.source.take(row_len(n_vocab), "a row")?;
                let [scale, min] = [&bytes[..4], &bytes[4..8]]
                    .map(|b| f32::from_bits(u32s(b).first().copied().unwrap_or(0)));
                if !(scale.is_finite() && scale >= 0.0 && min.is_finite()) {
                    let problem = format!(
                        "is malformed: a row has the scale {scale} and the least ln p {min}"
                    );
                    return Err(error(&self.source.path, problem));
                }
                let codes = bytes[8..].as_chunks::<2>().0[..n_vocab].iter();
                Ok(StoredRow::Grid(GridRow {
                    scale,
                    min,
                    codes: codes.map(|b| u16::from_le_bytes(*b)).collect(),
                }))
            })
            .collect()
    }
}

/// Writes a base.
pub struct GridWriter {
    target: Target,
}

impl GridWriter {
    /// Begins a file for `windows` windows, of which `tokens` are the ids.
    ///
    /// # Errors
    /// A geometry that the format cannot tell, a file that cannot be written.
    pub fn create(path: &Path, info: &BaseInfo) -> Result<Self, StoredError> {
        let BaseInfo {
            geometry,
            n_vocab,
            windows,
            tokens,
            ..
        } = info;
        if !covers(*geometry) {
            let problem = format!(
                "llama.cpp's format is for its own geometry, not for {}: use pplx's format",
                geometry.mode
            );
            return Err(error(path, problem));
        }
        let mut header = MAGIC.to_vec();
        for count in [geometry.n_ctx, *n_vocab, *windows] {
            let count = i32::try_from(count)
                .map_err(|_| error(path, format!("llama.cpp's format cannot count {count}")))?;
            header.extend(count.to_le_bytes());
        }
        let used = &tokens[..tokens.len().min(geometry.n_ctx * windows)];
        header.extend(used.iter().flat_map(|id| id.to_le_bytes()));
        let mut target = Target::create(path)?;
        target.write(&header)?;
        Ok(Self { target })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(self) -> Result<(), StoredError> {
        self.target.finish()
    }
}

impl BaseSink for GridWriter {
    fn encode(&self, logits: &[f32], _target: u32, _at: usize) -> Vec<u8> {
        let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let min = logits.iter().copied().fold(f32::INFINITY, f32::min);
        let min = min.max(max - REACH);
        let sum: f64 = logits.iter().map(|&l| f64::from(l - max).exp()).sum();
        let least = (f64::from(min - max) - sum.ln()) as f32;
        let scale = (max - min) / f32::from(u16::MAX);
        let mut row = Vec::with_capacity(row_len(logits.len()) as usize);
        row.extend(scale.to_le_bytes());
        row.extend(least.to_le_bytes());
        let code = |l: f32| match scale > 0.0 && l > min {
            // A cast to an integer type stops at its limits.
            true => ((l - min) / scale).round_ties_even() as u16,
            false => 0,
        };
        row.extend(logits.iter().flat_map(|&l| code(l).to_le_bytes()));
        row.resize(row_len(logits.len()) as usize, 0);
        row
    }

    fn put(&mut self, _window: &Window, rows: &[Vec<u8>]) -> Result<(), StoredError> {
        rows.iter().try_for_each(|row| self.target.write(row))
    }
}
