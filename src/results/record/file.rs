//! The file of a record: safetensors, with the columns as its tensors and a
//! checksum over all of it. `docs/results.md` says how to read it.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde_json::json;
use sha2::{Digest, Sha256};

use super::{Pieces, Record, RecordWindow, TokenColumns};
use crate::results::csv_file::{CsvError, write_atomic};

/// What the files call themselves; another number for another meaning.
const FORMAT: &str = "pplx record 1";

/// Stands where the checksum will; the checksum is made with it in place.
const NO_SHA256: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// Why a record could not be read or written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum RecordError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("cannot write {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("{}: {problem}", path.display())]
    Malformed { path: PathBuf, problem: String },
}

impl Record {
    /// Writes the file at `path`, replacing it at once.
    ///
    /// # Errors
    /// What the system says.
    pub fn write(&self, path: &Path) -> Result<(), RecordError> {
        let result = write_atomic(path, &self.to_bytes());
        result.map_err(|e| RecordError::Write {
            path: path.to_owned(),
            source: match e {
                CsvError::Read { source, .. } | CsvError::Write { source, .. } => source,
                other => io::Error::other(other),
            },
        })
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// A file that is missing, damaged, or of another format.
    pub fn read(path: &Path) -> Result<Self, RecordError> {
        let bytes = std::fs::read(path).map_err(|source| RecordError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::from_bytes(&bytes).map_err(|problem| RecordError::Malformed {
            path: path.to_owned(),
            problem,
        })
    }

    /// [`Self::read`], or `None` where there is no such file.
    pub(super) fn read_if_exists(path: &Path) -> Result<Option<Self>, RecordError> {
        match Self::read(path) {
            Err(RecordError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// The bytes of the file: the same for the same record.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let (windows, t, p) = (&self.windows, &self.tokens, &self.pieces);
        let mut out = Writer::default();
        // The widest come first, so that each begins at a multiple of its width.
        out.column(
            "window_nll_sum",
            "F64",
            windows.iter().map(|w| w.nll_sum.to_le_bytes()),
        );
        out.column(
            "window_first_target",
            "U64",
            windows.iter().map(|w| w.first_target.to_le_bytes()),
        );
        let u32_of = |n: usize| (n as u32).to_le_bytes();
        out.column("window", "U32", windows.iter().map(|w| u32_of(w.window)));
        out.column(
            "window_scored",
            "U32",
            windows.iter().map(|w| u32_of(w.scored)),
        );
        for (name, column) in [
            ("target", &t.target),
            ("rank", &t.rank),
            ("top_id", &t.top_id),
            ("piece_id", &p.ids),
            ("piece_end", &p.ends),
        ] {
            out.column(name, "U32", column.iter().map(|x| x.to_le_bytes()));
        }
        for (name, column) in [
            ("nll", &t.nll),
            ("top_p", &t.top_p),
            ("entropy", &t.entropy),
        ] {
            out.column(name, "F32", column.iter().map(|x| x.to_le_bytes()));
        }
        out.column("piece_text", "U8", p.text.iter().map(|x| [*x]));
        out.finish(&self.identity)
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Self, String> {
        let malformed = |e: safetensors::SafeTensorError| format!("is not a record: {e}");
        let (header_len, metadata) = SafeTensors::read_metadata(bytes).map_err(malformed)?;
        let identity = check_metadata(bytes, header_len, metadata.metadata().as_ref())?;
        let columns = Columns(SafeTensors::deserialize(bytes).map_err(malformed)?);
        let nll_sum = columns.read("window_nll_sum", Dtype::F64, f64::from_le_bytes)?;
        let first = columns.read("window_first_target", Dtype::U64, u64::from_le_bytes)?;
        let u32s = |name| columns.read(name, Dtype::U32, u32::from_le_bytes);
        let f32s = |name| columns.read(name, Dtype::F32, f32::from_le_bytes);
        let (window, scored) = (u32s("window")?, u32s("window_scored")?);
        let tokens = TokenColumns {
            target: u32s("target")?,
            nll: f32s("nll")?,
            rank: u32s("rank")?,
            top_id: u32s("top_id")?,
            top_p: f32s("top_p")?,
            entropy: f32s("entropy")?,
        };
        let pieces = Pieces {
            ids: u32s("piece_id")?,
            ends: u32s("piece_end")?,
            text: columns.read("piece_text", Dtype::U8, |[x]: [u8; 1]| x)?,
        };
        let n_windows = window.len();
        if [nll_sum.len(), first.len(), scored.len()] != [n_windows; 3] {
            return Err("the columns of its windows differ in length".to_owned());
        }
        let windows = (0..n_windows).map(|i| RecordWindow {
            window: window[i] as usize,
            first_target: first[i],
            scored: scored[i] as usize,
            nll_sum: nll_sum[i],
        });
        let record = Record {
            identity,
            windows: windows.collect(),
            tokens,
            pieces,
        };
        record.check_columns()?;
        Ok(record)
    }

    /// What every record fulfils, whatever run it is of.
    fn check_columns(&self) -> Result<(), String> {
        let (t, p) = (&self.tokens, &self.pieces);
        let n = t.len();
        if [
            t.nll.len(),
            t.rank.len(),
            t.top_id.len(),
            t.top_p.len(),
            t.entropy.len(),
        ] != [n; 5]
        {
            return Err("the columns of its tokens differ in length".to_owned());
        }
        let scored: usize = self.windows.iter().map(|w| w.scored).sum();
        if scored != n {
            return Err(format!(
                "its windows count {scored} tokens, its columns {n}"
            ));
        }
        for (w, span) in self.spans() {
            let nll = t.nll[span].iter().map(|&x| f64::from(x));
            let (sum, size) = nll.fold((0.0, 0.0), |(sum, size), x| (sum + x, size + x.abs()));
            // Half an ulp of each f32.
            let rounding = 6e-8 * size + 1e-30;
            let agrees = (sum - w.nll_sum).abs() <= rounding;
            if !agrees {
                return Err(format!(
                    "the NLLs of window {} sum to {sum}, not to {}",
                    w.window, w.nll_sum
                ));
            }
        }
        let finite = |column: &[f32]| column.iter().all(|x| x.is_finite());
        if !(finite(&t.top_p) && finite(&t.entropy)) {
            return Err("a value in it is not finite".to_owned());
        }
        let pieces_fit = p.ids.len() == p.ends.len()
            && p.ids.is_sorted_by(|a, b| a < b)
            && p.ends.is_sorted()
            && p.ends.last().map_or(0, |&end| end as usize) == p.text.len();
        match pieces_fit {
            true => Ok(()),
            false => Err("the texts of its tokens are not in order".to_owned()),
        }
    }
}

/// Checks format and checksum; returns what else the metadata say.
fn check_metadata(
    bytes: &[u8],
    header_len: usize,
    metadata: Option<&HashMap<String, String>>,
) -> Result<BTreeMap<String, String>, String> {
    let mut identity: BTreeMap<String, String> = metadata
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let format = identity.remove("format").unwrap_or_default();
    if format != FORMAT {
        return Err(format!(
            "its format is '{format}', this build reads '{FORMAT}'"
        ));
    }
    let sha256 = identity.remove("sha256").unwrap_or_default();
    let place = sha256_place(bytes, header_len, &sha256);
    match place.is_some_and(|at| sha256_without(bytes, at) == sha256) {
        true => Ok(identity),
        false => Err("its checksum does not fit: the file is damaged".to_owned()),
    }
}

/// Where the header has the digits of the checksum `value`.
fn sha256_place(bytes: &[u8], header_len: usize, value: &str) -> Option<usize> {
    if value.len() != NO_SHA256.len() {
        return None;
    }
    // Within strings quotes are escaped, so this is the field and nothing else.
    let field = format!("\"sha256\":\"{value}\"");
    let header = bytes.get(..8usize.checked_add(header_len)?)?;
    let at = header
        .windows(field.len())
        .position(|w| w == field.as_bytes())?;
    Some(at + "\"sha256\":\"".len())
}

/// The checksum of a file whose digits begin at `at`: zeros stand in for them.
fn sha256_without(bytes: &[u8], at: usize) -> String {
    let hash = Sha256::new()
        .chain_update(&bytes[..at])
        .chain_update(NO_SHA256)
        .chain_update(&bytes[at + NO_SHA256.len()..]);
    format!("{:x}", hash.finalize())
}

/// The columns of a file.
struct Columns<'a>(SafeTensors<'a>);

impl Columns<'_> {
    /// A column with `N` bytes a value.
    fn read<const N: usize, T>(
        &self,
        name: &str,
        dtype: Dtype,
        value: impl Fn([u8; N]) -> T,
    ) -> Result<Vec<T>, String> {
        let Ok(column) = self.0.tensor(name) else {
            return Err(format!("the column '{name}' is missing"));
        };
        if column.dtype() != dtype || column.shape().len() != 1 {
            return Err(format!("the column '{name}' is not a list of {dtype}"));
        }
        let (values, _) = column.data().as_chunks::<N>();
        Ok(values.iter().map(|bytes| value(*bytes)).collect())
    }
}

/// Puts a file together.
#[derive(Default)]
struct Writer {
    header: BTreeMap<String, serde_json::Value>,
    data: Vec<u8>,
}

impl Writer {
    fn column<const N: usize>(
        &mut self,
        name: &str,
        dtype: &str,
        values: impl ExactSizeIterator<Item = [u8; N]>,
    ) {
        let (start, n) = (self.data.len(), values.len());
        self.data.extend(values.flatten());
        self.header.insert(
            name.to_owned(),
            json!({"dtype": dtype, "shape": [n], "data_offsets": [start, self.data.len()]}),
        );
    }

    fn finish(mut self, identity: &BTreeMap<String, String>) -> Vec<u8> {
        let mut metadata = identity.clone();
        metadata.insert("format".to_owned(), FORMAT.to_owned());
        metadata.insert("sha256".to_owned(), NO_SHA256.to_owned());
        self.header
            .insert("__metadata__".to_owned(), json!(metadata));
        let mut header = json!(self.header).to_string();
        while !header.len().is_multiple_of(8) {
            header.push(' ');
        }
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend(&self.data);
        if let Some(at) = sha256_place(&bytes, header.len(), NO_SHA256) {
            let sha256 = sha256_without(&bytes, at);
            bytes[at..at + sha256.len()].copy_from_slice(sha256.as_bytes());
        }
        bytes
    }
}
