//! pplx's base files: of each scored target's distribution the likeliest entries
//! exactly, as many as leave no more than a given mass, and the sums of the rest.
//! Little-endian:
//!
//! | bytes | |
//! | --- | --- |
//! | 8 | `pplxbase` |
//! | 4 each | version (1), length H of the header |
//! | H | the header, JSON: [`Header`] |
//! | 4·tokens | token ids |
//! | 32 | SHA-256 of all of the above |
//! | a block for each window | 8 bytes: length N; N bytes: rows; 32: SHA-256 of the rows |
//!
//! A row: f64 `ln Σ e^l`, f64 `−ln p` of the target, f64 `Σ p` and f64 `Σ p ln p`
//! of the tail, u32 number K of entries, K gaps between ascending ids less one
//! (LEB128; the first is the id itself), K logits (f32).

use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::{BaseInfo, Bos, Source, Target, error, u32s};
use crate::eval::{
    BaseSink, Geometry, Mode, StoredBase, StoredError, StoredRow, TopRow, Window,
};

pub const MAGIC: &[u8] = b"pplxbase";
const VERSION: u32 = 1;
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
    engine: String,
    /// The most that the tail of a row may weigh.
    tail_mass: f64,
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
        if version != VERSION {
            let problem = format!("is of version {version}; this pplx reads {VERSION}");
            return Err(error(path, problem));
        }
        let len = source.take_u32("the header's length")?;
        if len > LONGEST_HEADER {
            return Err(error(path, format!("is malformed: a header of {len} bytes")));
        }
        let json = source.take(len.into(), "the header")?;
        let header: Header = serde_json::from_slice(&json)
            .map_err(|e| error(path, format!("is malformed: its header: {e}")))?;
        let ids = source.take((header.tokens as u64).saturating_mul(4), "the token ids")?;
        let sum = source.take(DIGEST, "the header's checksum")?;
        let (version, len) = (version.to_le_bytes(), len.to_le_bytes());
        if sum != digest(&[MAGIC, &version, &len, &json, &ids]) {
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
        Ok(Self {
            source,
            info: BaseInfo {
                geometry,
                n_vocab: header.n_vocab,
                bos: Some(header.bos),
                windows: header.windows,
                tokens: u32s(&ids),
                model: header.model,
                engine: header.engine,
            },
            next_window: 0,
        })
    }

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
            .map(|_| bytes.row(self.info.n_vocab))
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
    fn row(&mut self, n_vocab: usize) -> Option<TopRow> {
        let (lse, nll) = (self.f64()?, self.f64()?);
        let (tail_mass, tail_plnp) = (self.f64()?, self.f64()?);
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
        let logits: Option<Vec<f32>> = (0..k).map(|_| self.take().map(f32::from_le_bytes)).collect();
        let row = TopRow {
            ids,
            logits: logits?,
            lse,
            nll,
            tail_mass,
            tail_plnp,
        };
        is_distribution(&row, n_vocab).then_some(row)
    }
}

/// Whether entries and tail add up to 1.
fn is_distribution(row: &TopRow, n_vocab: usize) -> bool {
    let p = |l: &f32| (f64::from(*l) - row.lse).exp();
    let mass = row.logits.iter().map(p).sum::<f64>() + row.tail_mass;
    let has_tail = row.ids.len() < n_vocab;
    (mass - 1.0).abs() < 1e-6
        && row.nll.is_finite()
        && row.tail_mass >= 0.0
        && (has_tail || row.tail_mass == 0.0)
        && row.tail_plnp.is_finite()
        && row.tail_plnp <= 0.0
}

/// Writes a base.
pub struct TopWriter {
    target: Target,
    tail_mass: f64,
}

impl TopWriter {
    /// Begins a file whose rows leave at most `tail_mass` to the tail.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn create(path: &Path, info: &BaseInfo, tail_mass: f64) -> Result<Self, StoredError> {
        let header = Header {
            n_ctx: info.geometry.n_ctx,
            mode: info.geometry.mode,
            n_vocab: info.n_vocab,
            bos: info.bos.unwrap_or(Bos::None),
            windows: info.windows,
            tokens: info.tokens.len(),
            model: info.model.clone(),
            engine: info.engine.clone(),
            tail_mass,
        };
        let json = serde_json::to_vec(&header)
            .map_err(|e| error(path, format!("its header cannot be written: {e}")))?;
        let mut bytes = MAGIC.to_vec();
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((json.len() as u32).to_le_bytes());
        bytes.extend(&json);
        bytes.extend(info.tokens.iter().flat_map(|id| id.to_le_bytes()));
        let sum = digest(&[&bytes]);
        let mut target = Target::create(path)?;
        target.write(&bytes)?;
        target.write(&sum)?;
        Ok(Self { target, tail_mass })
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
    fn encode(&self, logits: &[f32], target: u32) -> Vec<u8> {
        let row = likeliest(logits, target, self.tail_mass);
        let mut bytes = Vec::with_capacity(36 + 6 * row.ids.len());
        for x in [row.lse, row.nll, row.tail_mass, row.tail_plnp] {
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

/// The fewest likeliest entries that leave at most `most_tail`.
fn likeliest(logits: &[f32], target: u32, most_tail: f64) -> TopRow {
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let max = f64::from(max);
    let sum: f64 = logits.iter().map(|&l| (f64::from(l) - max).exp()).sum();
    let lse = max + sum.ln();
    // All that are less likely weigh less than half of what the tail may: they
    // need no sorting.
    let least = lse + (0.5 * most_tail / logits.len() as f64).ln();
    let mut order: Vec<u32> = (0..logits.len() as u32)
        .filter(|&id| f64::from(logits[id as usize]) >= least)
        .collect();
    let logit = |id: &u32| logits[*id as usize];
    order.sort_unstable_by(|a, b| logit(b).total_cmp(&logit(a)).then(a.cmp(b)));
    let mut left = 1.0;
    let mut k = 0;
    for id in &order {
        if k > 0 && left <= most_tail {
            break;
        }
        left -= (f64::from(logit(id)) - lse).exp();
        k += 1;
    }
    order.truncate(k);
    order.sort_unstable();
    // Not `left`, which cancels.
    let (mut tail_mass, mut tail_plnp) = (0.0, 0.0);
    let mut kept = order.iter().peekable();
    for (id, &l) in logits.iter().enumerate() {
        if kept.next_if(|k| **k as usize == id).is_none() {
            let ln_p = f64::from(l) - lse;
            tail_mass += ln_p.exp();
            tail_plnp += ln_p * ln_p.exp();
        }
    }
    TopRow {
        logits: order.iter().map(logit).collect(),
        ids: order,
        lse,
        nll: logits
            .get(target as usize)
            .map_or(f64::NAN, |&l| lse - f64::from(l)),
        tail_mass,
        tail_plnp,
    }
}
