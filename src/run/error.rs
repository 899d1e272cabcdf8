//! Why a run has no figures, and why a sweep could not go on.

use std::path::PathBuf;

use super::against::AgainstError;
use super::input::InputError;
use super::measure::MeasureError;
use crate::backend::Device;
use crate::corpus::CorpusError;
use crate::eval::EvalError;
use crate::fetch::FetchError;
use crate::results::{CsvError, LockError, ResultsError};

/// Why a sweep could not go on. What concerns one run only is in its row.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum SweepError {
    #[error(transparent)]
    Results(#[from] ResultsError),
    #[error(transparent)]
    Reference(#[from] CsvError),
    #[error(transparent)]
    Lock(#[from] LockError),
    #[error(
        "{} holds {}, such as '{example}', that the experiment does not ask for (any more). Take \
         another --results directory or another 'name', measure a part with --only, or drop them with \
         --prune",
        table.display(), runs(*count)
    )]
    Foreign {
        table: PathBuf,
        count: usize,
        example: String,
    },
    #[error("no run of the experiment matches --only {0}; 'pplx plan' lists them")]
    NothingSelected(String),
    /// What `[compare]` asks for cannot be had of the experiment's runs.
    #[error("[compare]: {0}")]
    Compare(String),
    #[error("interrupted before the first run")]
    Interrupted,
}

impl SweepError {
    /// Whether a signal is why.
    pub fn is_interruption(&self) -> bool {
        matches!(
            self,
            SweepError::Interrupted | SweepError::Lock(LockError::Interrupted { .. })
        )
    }

    /// Whether the files or options that the user gave are why.
    pub fn is_of_input(&self) -> bool {
        match self {
            SweepError::Foreign { .. }
            | SweepError::NothingSelected(_)
            | SweepError::Compare(_) => true,
            SweepError::Lock(e) => matches!(e, LockError::Held { .. }),
            SweepError::Reference(e) | SweepError::Results(ResultsError::Csv(e)) => {
                !matches!(e, CsvError::Write { .. })
            }
            SweepError::Results(ResultsError::Windows { .. } | ResultsError::Newer { .. }) => true,
            SweepError::Results(_) | SweepError::Interrupted => false,
        }
    }
}

fn runs(n: usize) -> String {
    match n {
        1 => "the row of 1 run".to_owned(),
        n => format!("the rows of {n} runs"),
    }
}

/// Why one run has no figures.
#[derive(Debug, thiserror::Error)]
pub(super) enum RunError {
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    #[error(transparent)]
    Measure(#[from] MeasureError),
    #[error(transparent)]
    Against(#[from] AgainstError),
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("{} changed after its hash was taken; run again when it is no longer written to", path.display())]
    Changed { path: PathBuf },
    #[error("{}: its sha256 is {found}, the experiment asks for {wanted}", path.display())]
    OtherHash {
        path: PathBuf,
        found: String,
        wanted: String,
    },
    #[error("the model asks for BOS, but its metadata names none")]
    NoBos,
    #[error("the arithmetic of {0} cannot be varied, that of the CPU can: take placement 'cpu'")]
    NotVaried(Device),
    /// A panic: [`crate::fault`] has its words.
    #[error("{0}")]
    Internal(String),
}

impl RunError {
    /// Whether a signal is why.
    pub fn is_interruption(&self) -> bool {
        matches!(
            self,
            RunError::Measure(MeasureError::Eval(EvalError::Interrupted { .. }))
                | RunError::Corpus(CorpusError::Interrupted)
                | RunError::Fetch(FetchError::Interrupted)
        )
    }

    /// Whether what ended a comparison with a base would have ended the run without
    /// one, too.
    pub fn is_of_run(&self) -> bool {
        match self {
            RunError::Measure(MeasureError::Eval(e)) => !matches!(
                e,
                EvalError::Base(_) | EvalError::Vocabulary { .. } | EvalError::Stored(_)
            ),
            _ => false,
        }
    }

    /// In the words of the status column.
    pub fn status(&self) -> String {
        let text = match self {
            RunError::Measure(MeasureError::Eval(EvalError::NotFinite {
                window,
                position,
                stage,
            })) => format!("not finite: {stage}, window {window}, position {position}"),
            e => e.to_string(),
        };
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}
