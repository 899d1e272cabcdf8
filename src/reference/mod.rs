//! Figures of other engines, to be set beside ours.
//!
//! A reference row joins a run only if both scored the same targets of the same
//! corpus with the same model file. Anything less is said in the run's note and
//! never compared.

mod tokens;

use std::path::Path;

use serde::Deserialize;

use crate::eval::Geometry;
use crate::results::consistency::check_sha256;
use crate::results::csv_file::{self, Column, Columns};
use crate::results::{Comparison, CsvError, Outcome, ResultRow, formula_character, schema};

pub use tokens::TokenReference;

/// One line of a reference file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
struct Record {
    engine: String,
    build: String,
    backend: String,
    model: String,
    model_sha256: String,
    corpus: String,
    corpus_sha256: String,
    n_ctx: usize,
    windows: usize,
    scored_tokens: usize,
    ppl: f64,
    ppl_err: Option<f64>,
    mode: Option<String>,
    stride: Option<usize>,
    unscored_prefix: Option<usize>,
    bos: Option<bool>,
    note: String,
}

impl Columns for Record {
    const COLUMNS: &'static [Column] = &[
        Column::of::<String>("engine"),
        Column::of::<String>("build"),
        Column::of::<String>("backend"),
        Column::of::<String>("model"),
        Column::of::<String>("model_sha256"),
        Column::of::<String>("corpus"),
        Column::of::<String>("corpus_sha256"),
        Column::of::<usize>("n_ctx"),
        Column::of::<usize>("windows"),
        Column::of::<usize>("scored_tokens"),
        Column::of::<f64>("ppl"),
        Column::of::<Option<f64>>("ppl_err"),
        Column::of::<String>("mode").optional(),
        Column::of::<usize>("stride").optional(),
        Column::of::<usize>("unscored_prefix").optional(),
        Column::of::<bool>("bos").optional(),
        Column::of::<String>("note").optional(),
    ];
}

/// A figure of another engine.
#[derive(Clone, Debug, PartialEq)]
pub struct ReferenceRow {
    /// Engine, build and backend, e.g. `llama.cpp b6700 cpu`.
    pub engine: String,
    /// Name of the model, as the experiment has it.
    pub model: String,
    /// The model file's hash; empty if not stated.
    pub model_sha256: String,
    /// Name of the corpus.
    pub corpus: String,
    /// The corpus's hash; empty if not stated.
    pub corpus_sha256: String,
    /// llama-perplexity's default geometry where the file does not say.
    pub geometry: Geometry,
    /// Windows that were scored, if stated.
    pub windows: usize,
    /// Tokens that were scored, if stated.
    pub scored_tokens: usize,
    /// Perplexity.
    pub ppl: f64,
    /// Its standard error, if stated.
    pub ppl_err: Option<f64>,
    /// Whether BOS replaced the first token of each window, if the file says.
    pub bos: Option<bool>,
    /// What a reader should know of it; may be empty.
    pub note: String,
}

impl ReferenceRow {
    fn new(r: Record) -> Result<Self, String> {
        if !(r.ppl.is_finite() && r.ppl > 0.0) {
            return Err(format!("column 'ppl' holds {}, no perplexity", r.ppl));
        }
        if let Some(e) = r.ppl_err.filter(|e| !(e.is_finite() && *e >= 0.0)) {
            return Err(format!("column 'ppl_err' holds {e}, no standard error"));
        }
        for (column, sha) in [
            ("model_sha256", &r.model_sha256),
            ("corpus_sha256", &r.corpus_sha256),
        ] {
            check_sha256(column, sha)?;
            if sha.is_empty() {
                return Err(format!("column '{column}' is empty"));
            }
        }
        let preset = Geometry::sliding_window(r.n_ctx, r.stride, r.unscored_prefix);
        let geometry = match r.mode {
            Some(mode) if mode != preset.mode.name() => Geometry {
                n_ctx: r.n_ctx,
                mode: schema::mode(&mode, r.stride, r.unscored_prefix)?,
            },
            _ => preset,
        };
        geometry.check().map_err(|e| e.to_string())?;
        let engine = [r.engine, r.build, r.backend];
        let engine = engine.iter().map(|s| s.trim()).filter(|s| !s.is_empty());
        let engine = engine.collect::<Vec<_>>().join(" ");
        // Both become cells of result tables.
        for (column, text) in [("engine", &engine), ("note", &r.note)] {
            if let Some(c) = formula_character(text) {
                return Err(format!(
                    "column '{column}' begins with '{c}', which spreadsheets take for a formula: \
                     begin it with a word"
                ));
            }
        }
        Ok(ReferenceRow {
            engine,
            model: r.model,
            model_sha256: r.model_sha256,
            corpus: r.corpus,
            corpus_sha256: r.corpus_sha256,
            geometry,
            windows: r.windows,
            scored_tokens: r.scored_tokens,
            ppl: r.ppl,
            ppl_err: r.ppl_err,
            bos: r.bos,
            note: r.note,
        })
    }

    /// Whether the row is about what the run is about: the same context, and a
    /// model and a corpus that share at least their name.
    fn is_near(&self, run: &ResultRow) -> bool {
        let p = &run.provenance;
        self.geometry.n_ctx == p.geometry.n_ctx
            && (self.model_sha256 == p.model_sha256 || self.model == p.model)
            && (self.corpus_sha256 == p.corpus_sha256
                || file_name(&self.corpus) == file_name(&p.corpus))
    }

    /// What keeps a near row from being compared; empty if it joins.
    fn differences(&self, run: &ResultRow) -> Vec<String> {
        let p = &run.provenance;
        let mut out = Vec::new();
        let mut differ = |same: bool, text: &dyn Fn() -> String| {
            if !same {
                out.push(text());
            }
        };
        differ(self.model_sha256 == p.model_sha256, &|| {
            format!(
                "is of a model with sha256 {}, this run's is {}",
                short(&self.model_sha256),
                short(&p.model_sha256)
            )
        });
        differ(self.corpus_sha256 == p.corpus_sha256, &|| {
            format!(
                "is of a corpus with sha256 {}, this run's is {}",
                short(&self.corpus_sha256),
                short(&p.corpus_sha256)
            )
        });
        differ(self.geometry == p.geometry, &|| {
            format!("is {}, this run {}", self.geometry.mode, p.geometry.mode)
        });
        differ(Some(self.windows) == p.windows, &|| {
            format!(
                "has {} windows, this run {}",
                self.windows,
                count(p.windows)
            )
        });
        // Follows from the windows unless a window is scored otherwise.
        differ(
            Some(self.scored_tokens) == p.scored_tokens || Some(self.windows) != p.windows,
            &|| {
                format!(
                    "has {} scored tokens, this run {}",
                    self.scored_tokens,
                    count(p.scored_tokens)
                )
            },
        );
        differ(self.bos.is_none() || self.bos == p.bos, &|| {
            let with = |bos| if bos == Some(true) { "with" } else { "without" };
            format!(
                "is {} BOS in each window, this run {}",
                with(self.bos),
                with(p.bos)
            )
        });
        differ(!p.parse_special, &|| {
            "takes special tokens as text, this run parses them".to_owned()
        });
        out
    }
}

fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

fn short(sha: &str) -> String {
    match sha.get(..12) {
        Some(head) => format!("{head}…"),
        None => "not known".to_owned(),
    }
}

fn count(n: Option<usize>) -> String {
    n.map_or_else(|| "an unknown number".to_owned(), |n| n.to_string())
}

/// The reference rows of an experiment, in the order of its files.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct References {
    rows: Vec<ReferenceRow>,
}

impl References {
    /// Reads reference files; `docs/results.md` lists their columns.
    ///
    /// # Errors
    /// An unreadable or malformed file, with file, line and column.
    pub fn load<P: AsRef<Path>>(files: &[P]) -> Result<Self, CsvError> {
        let mut rows = Vec::new();
        for file in files {
            let file = file.as_ref();
            for line in csv_file::read::<Record>(file)?.lines {
                let row = ReferenceRow::new(line.record)
                    .map_err(|problem| CsvError::malformed(file, line.line, problem))?;
                rows.push(row);
            }
        }
        Ok(References { rows })
    }

    /// All rows, in the order of their files.
    pub fn rows(&self) -> &[ReferenceRow] {
        &self.rows
    }

    /// Sets the comparison of a finished run, and in `ref_note` what a reader must
    /// know: that several rows match (the first listed is taken), or that one
    /// nearly does. What an earlier call has set is replaced, so a resumed sweep
    /// follows its reference files. Runs without a number are left alone.
    pub fn annotate(&self, run: &mut ResultRow) {
        let near: Vec<(&ReferenceRow, Vec<String>)> = self
            .rows
            .iter()
            .filter(|r| r.is_near(run))
            .map(|r| (r, r.differences(run)))
            .collect();
        let matches: Vec<&ReferenceRow> = near
            .iter()
            .filter(|(_, differences)| differences.is_empty())
            .map(|(r, _)| *r)
            .collect();
        let Outcome::Ok(figures) = &mut run.outcome else {
            return;
        };
        figures.reference = matches
            .first()
            .map(|r| Comparison::new(figures, r.engine.clone(), r.ppl, r.ppl_err));
        run.ref_note = match matches.split_first() {
            Some((first, others)) => match_note(first, others),
            // `min_by_key` takes the first of equals: the note is stable.
            None => near
                .iter()
                .min_by_key(|(_, differences)| differences.len())
                .map_or_else(String::new, |(_, differences)| {
                    format!("reference row {}", differences.join("; "))
                }),
        };
    }
}

fn match_note(taken: &ReferenceRow, others: &[&ReferenceRow]) -> String {
    let mut notes = Vec::new();
    if !taken.note.is_empty() {
        notes.push(taken.note.clone());
    }
    if !others.is_empty() {
        let list: Vec<String> = others
            .iter()
            .map(|r| format!("{} {}", r.engine, r.ppl))
            .collect();
        notes.push(format!(
            "{} reference rows match, the first is taken; also: {}",
            others.len() + 1,
            list.join(", ")
        ));
    }
    notes.join("; ")
}

#[cfg(test)]
mod tests;
