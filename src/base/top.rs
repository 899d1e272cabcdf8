//! pplx's base files: of each scored target's distribution the entries of at
//! least a given probability exactly, and a sample of the others. Little-endian:
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | `pplxbase` |
//! | 4 each | version (2; 1 has no numerics and no placement), length H of the header |
//! | H | the header, JSON: `Header` |
//! | 8 | f64: ln of the step, the least probability that is stored for sure |
//! | 4·tokens | token ids |
//! | 32 | SHA-256 of all of the above |
//! | a block for each window | 8 bytes: length N; N bytes: rows; 32: SHA-256 of the rows |
//!
//! A row: f64 `ln Σ e^l`, f64 `−ln p` of the target, f64 `Σ p` of the tail, u32
//! number K of entries, K gaps between ascending ids less one (LEB128; the first is
//! the id itself), K logits (f32). [`TopRow`] says which entries there are.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{BaseInfo, Bos, Source, Target, error, u32s};
use crate::eval::{BaseSink, Geometry, Mode, StoredBase, StoredError, StoredRow, TopRow, Window};

/// What files begin with.
pub const MAGIC: &[u8] = b"pplxbase";
const VERSION: u32 = 2;
/// The first version; it is read as well.
const FIRST: u32 = 1;
/// Far above any header, far below any memory.
const LONGEST_HEADER: u32 = 1 << 20;
const DIGEST: u64 = 32;
/// Windows that are read together: their rows are small.
const AT_ONCE: usize = 16;

/// What a file says of itself.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    n_ctx: usize,
    mode: Mode,
    n_vocab: usize,
    bos: Bos,
    windows: usize,
    tokens: usize,
    model: String,
    #[serde(default)]
    numerics: String,
    #[serde(default)]
    placement: String,
    engine: String,
}

fn digest(parts: &[&[u8]]) -> Vec<u8> {
    let mut hash = Sha256::new();
    parts.iter().for_each(|part| hash.update(part));
    hash.finalize().to_vec()
}

/// Reads a base window by window.
pub struct TopReader {
    source: Source,
    info: BaseInfo,
    ln_step: f64,
    next_window: usize,
}

impl TopReader {
    /// # Errors
    /// A file that is malformed or of another version, a checksum that does not
    /// fit.
    pub fn open(path: &Path) -> Result<Self, StoredError> {
        let mut source = Source::open(path)?;
        let magic = source.take(8, "the beginning")?;
        if magic != MAGIC {
            return Err(error(path, "does not begin with pplxbase"));
        }
        let version = source.take_u32("the version")?;
        if !(FIRST..=VERSION).contains(&version) {
            let problem = format!("is of version {version}; this pplx reads {FIRST} to {VERSION}");
            return Err(error(path, problem));
        }
        let len = source.take_u32("the header's length")?;
        if len > LONGEST_HEADER {
            return Err(error(
                path,
                format!("is malformed: a header of {len} bytes"),
            ));
        }
        let json = source.take(len.into(), "the header")?;
        let header: Header = serde_json::from_slice(&json)
            .map_err(|e| error(path, format!("is malformed: its header: {e}")))?;
        let step = source.take(8, "the step")?;
        let ids = source.take((header.tokens as u64).saturating_mul(4), "the token ids")?;
        let sum = source.take(DIGEST, "the header's checksum")?;
        let (version, len) = (version.to_le_bytes(), len.to_le_bytes());
        if sum != digest(&[MAGIC, &version, &len, &json, &step, &ids]) {
            return Err(error(
                path,
                "is damaged: the checksum of its header does not fit",
            ));
        }
        let geometry = Geometry {
            n_ctx: header.n_ctx,
            mode: header.mode,
        };
        if let Err(e) = geometry.check() {
            return Err(error(path, format!("is malformed: {e}")));
        }
        let step = step.as_chunks::<8>().0.first().copied();
        let ln_step = step.map_or(f64::NAN, f64::from_le_bytes);
        if !(ln_step.is_finite() && ln_step <= 0.0) {
            return Err(error(
                path,
                format!("is malformed: ln of the step is {ln_step}"),
            ));
        }
        Ok(Self {
            source,
            ln_step,
            info: BaseInfo {
                geometry,
                n_vocab: header.n_vocab,
                bos: Some(header.bos),
                windows: header.windows,
                tokens: u32s(&ids),
                model: header.model,
                numerics: header.numerics,
                placement: header.placement,
                engine: header.engine,
            },
            next_window: 0,
        })
    }

    /// What the file says of itself.
    pub fn info(&self) -> &BaseInfo {
        &self.info
    }

    fn window(&mut self, window: &Window) -> Result<Vec<StoredRow>, StoredError> {
        let (index, path) = (self.next_window, self.source.path.clone());
        self.next_window += 1;
        let what = format!("window {index}");
        let len = self.source.take(8, &what)?;
        let len = len.as_chunks::<8>().0.first().copied().unwrap_or_default();
        let rows = self.source.take(u64::from_le_bytes(len), &what)?;
        if self.source.take(DIGEST, &what)? != digest(&[&rows]) {
            let problem = format!("is damaged: the checksum of window {index} does not fit");
            return Err(error(&path, problem));
        }
        let mut bytes = Bytes(&rows);
        let parsed: Option<Vec<TopRow>> = (0..window.scored())
            .map(|_| bytes.row(self.info.n_vocab, self.ln_step))
            .collect();
        match parsed {
            Some(rows) if bytes.0.is_empty() => Ok(rows.into_iter().map(StoredRow::Top).collect()),
            _ => {
                let scored = window.scored();
                let problem =
                    format!("is malformed: window {index} does not hold {scored} proper rows");
                Err(error(&path, problem))
            }
        }
    }
}

impl StoredBase for TopReader {
    fn n_vocab(&self) -> usize {
        self.info.n_vocab
    }

    fn windows_at_once(&self) -> usize {
        AT_ONCE
    }

    fn rows(&mut self, windows: &[Window]) -> Result<Vec<StoredRow>, StoredError> {
        let mut rows = Vec::new();
        for window in windows {
            rows.extend(self.window(window)?);
        }
        Ok(rows)
    }
}

/// What is left of a window's rows.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*head)
    }

    fn f64(&mut self) -> Option<f64> {
        self.take().map(f64::from_le_bytes)
    }

    fn leb128(&mut self) -> Option<u32> {
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let [byte] = self.take()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).ok();
            }
        }
        None
    }

    /// A row that could have been written; `None` for any other.
    fn row(&mut self, n_vocab: usize, ln_step: f64) -> Option<TopRow> {
        let (lse, nll, tail_mass) = (self.f64()?, self.f64()?, self.f64()?);
        let k = u32::from_le_bytes(self.take()?) as usize;
        // An entry takes five bytes at least.
        if k == 0 || k > n_vocab || k > self.0.len() / 5 {
            return None;
        }
        let mut ids = Vec::with_capacity(k);
        let mut next = 0u32;
        for _ in 0..k {
            let id = next.checked_add(self.leb128()?)?;
            if id as usize >= n_vocab {
                return None;
            }
            ids.push(id);
            next = id + 1;
        }
        let logits: Option<Vec<f32>> = (0..k)
            .map(|_| self.take().map(f32::from_le_bytes))
            .collect();
        let row = TopRow {
            ids,
            logits: logits?,
            lse,
            nll,
            tail_mass,
            step: ln_step.exp(),
            ln_step,
        };
        is_distribution(&row, n_vocab).then_some(row)
    }
}

/// Whether entries and tail add up to 1, and the sample to the tail.
fn is_distribution(row: &TopRow, n_vocab: usize) -> bool {
    let (mut known, mut sampled) = (0.0, 0);
    for (&logit, is_known) in row.logits.iter().zip(row.known()) {
        match is_known {
            true => known += (f64::from(logit) - row.lse).exp(),
            false => sampled += 1,
        }
    }
    let has_tail = row.ids.len() < n_vocab || sampled > 0;
    let sample_mass = f64::from(sampled) * row.step;
    row.nll.is_finite()
        && row.tail_mass >= 0.0
        && (has_tail || row.tail_mass == 0.0)
        && (known + row.tail_mass - 1.0).abs() < 1e-6
        // A systematic sample has the size that it should have, but for rounding.
        && (sample_mass - row.tail_mass).abs() <= 1.001 * row.step
}

/// Writes a base.
pub struct TopWriter {
    target: Target,
    ln_step: f64,
}

impl TopWriter {
    /// Begins a file with rows of at most about `max_entries` entries: the step is
    /// its inverse.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(path: &Path, info: &BaseInfo, max_entries: u32) -> Result<Self, StoredError> {
        let ln_step = -f64::from(max_entries.max(1)).ln();
        let header = Header {
            n_ctx: info.geometry.n_ctx,
            mode: info.geometry.mode,
            n_vocab: info.n_vocab,
            bos: info.bos.unwrap_or(Bos::None),
            windows: info.windows,
            tokens: info.tokens.len(),
            model: info.model.clone(),
            numerics: info.numerics.clone(),
            placement: info.placement.clone(),
            engine: info.engine.clone(),
        };
        let json = serde_json::to_vec(&header)
            .map_err(|e| error(path, format!("its header cannot be written: {e}")))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((json.len() as u32).to_le_bytes());
        bytes.extend(&json);
        bytes.extend(ln_step.to_le_bytes());
        bytes.extend(info.tokens.iter().flat_map(|id| id.to_le_bytes()));
        let sum = digest(&[&bytes]);
        let mut target = Target::create(path)?;
        target.write(&bytes)?;
        target.write(&sum)?;
        Ok(Self { target, ln_step })
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn finish(self) -> Result<(), StoredError> {
        self.target.finish()
    }
}

impl BaseSink for TopWriter {
    fn encode(&self, logits: &[f32], target: u32, at: usize) -> Vec<u8> {
        let row = entries(logits, target, at, self.ln_step);
        let mut bytes = Vec::with_capacity(28 + 6 * row.ids.len());
        for x in [row.lse, row.nll, row.tail_mass] {
            bytes.extend(x.to_le_bytes());
        }
        bytes.extend((row.ids.len() as u32).to_le_bytes());
        let mut next = 0;
        for &id in &row.ids {
            push_leb128(&mut bytes, id - next);
            next = id + 1;
        }
        bytes.extend(row.logits.iter().flat_map(|l| l.to_le_bytes()));
        bytes
    }

    fn put(&mut self, _window: &Window, rows: &[Vec<u8>]) -> Result<(), StoredError> {
        let rows = rows.concat();
        self.target.write(&(rows.len() as u64).to_le_bytes())?;
        self.target.write(&rows)?;
        self.target.write(&digest(&[&rows]))
    }
}

fn push_leb128(bytes: &mut Vec<u8>, mut x: u32) {
    while x >= 0x80 {
        bytes.push(x as u8 | 0x80);
        x >>= 7;
    }
    bytes.push(x as u8);
}

/// The entries that are stored of a distribution.
fn entries(logits: &[f32], target: u32, at: usize, ln_step: f64) -> TopRow {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let top = logits.iter().position(|&l| l == best);
    let max = f64::from(best);
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - max).exp()).sum();
    let lse = max + sum.ln();
    let step = ln_step.exp();
    let mut row = TopRow {
        ids: Vec::new(),
        logits: Vec::new(),
        lse,
        nll: logits
            .get(target as usize)
            .map_or(f64::NAN, |&l| lse - f64::from(l)),
        tail_mass: 0.0,
        step,
        ln_step,
    };
    // Where the tail's mass next passes a point of the grid, that is at
    // `(i + start) · step`; no entry of the tail is wider than a step.
    let mut next = uniform(at as u64) * step;
    for (id, &l) in logits.iter().enumerate() {
        let ln_p = f64::from(l) - lse;
        let mut stored = ln_p >= ln_step || top == Some(id);
        if !stored {
            row.tail_mass += ln_p.exp();
            if row.tail_mass > next {
                next += step;
                stored = true;
            }
        }
        if stored {
            row.ids.push(id as u32);
            row.logits.push(l);
        }
    }
    row
}

/// A number in `[0, 1)` that looks random: SplitMix64.
fn uniform(seed: u64) -> f64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
}
