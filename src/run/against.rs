//! Whether a model and its base read the same text in the same way.

use super::measure::Settings;
use crate::base::{BaseInfo, Bos};
use crate::eval::{Geometry, Mode};

/// Why a model cannot be compared with a base.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum AgainstError {
    #[error(
        "the base reads other tokens: token {at} is {base} for the base and {model} for the model; both \
         need the same tokenizer and corpus"
    )]
    Token { at: usize, base: u32, model: u32 },
    #[error(
        "the base reads {base} tokens of the corpus where the model reads {model}; both need the same \
         tokenizer and corpus"
    )]
    Length { base: usize, model: usize },
    #[error("windows begin {} for the base and {} for the model", bos(*.base), bos(*.model))]
    Bos { base: Bos, model: Bos },
    #[error("the base was made with {}, not with {}", geometry(.base), geometry(.asked))]
    Geometry { base: Geometry, asked: Geometry },
    #[error("the base holds {base} windows, {asked} are asked for")]
    Windows { base: usize, asked: usize },
}

fn bos(bos: Bos) -> String {
    match bos {
        Bos::None => "with no token of their own".to_owned(),
        Bos::Token(id) => format!("with token {id}"),
    }
}

fn geometry(g: &Geometry) -> String {
    match g.mode {
        Mode::SlidingWindow { .. } if *g == Geometry::llama_cpp(g.n_ctx) => {
            format!("context {}", g.n_ctx)
        }
        mode => format!("context {}, {mode}", g.n_ctx),
    }
}

/// Whether two models have the same ids for a corpus and begin windows alike.
///
/// # Errors
/// The first difference.
pub fn check_same_text(
    base: (&[u32], Option<u32>),
    model: (&[u32], Option<u32>),
) -> Result<(), AgainstError> {
    same_tokens(base.0, model.0)?;
    if base.0.len() != model.0.len() {
        return Err(AgainstError::Length {
            base: base.0.len(),
            model: model.0.len(),
        });
    }
    same_bos(base.1.into(), model.1.into())
}

/// Whether a stored base is of this measurement; the windows that they have in
/// common. What is not asked for, the base decides.
///
/// # Errors
/// The first difference; more windows asked for than there are.
pub fn check_stored(
    base: &BaseInfo,
    tokens: &[u32],
    settings: &Settings,
) -> Result<usize, AgainstError> {
    if base.geometry != settings.geometry {
        return Err(AgainstError::Geometry {
            base: base.geometry,
            asked: settings.geometry,
        });
    }
    let asked = settings.limits.windows.unwrap_or(base.windows);
    if asked > base.windows {
        return Err(AgainstError::Windows {
            base: base.windows,
            asked,
        });
    }
    same_tokens(&base.tokens, tokens)?;
    if tokens.len() < base.tokens.len() {
        return Err(AgainstError::Length {
            base: base.tokens.len(),
            model: tokens.len(),
        });
    }
    if let Some(bos) = base.bos {
        same_bos(bos, settings.bos.into())?;
    }
    Ok(asked)
}

/// As far as both go.
fn same_tokens(base: &[u32], model: &[u32]) -> Result<(), AgainstError> {
    let mut pairs = base.iter().zip(model).enumerate();
    match pairs.find(|(_, (base, model))| base != model) {
        None => Ok(()),
        Some((at, (&base, &model))) => Err(AgainstError::Token { at, base, model }),
    }
}

fn same_bos(base: Bos, model: Bos) -> Result<(), AgainstError> {
    match base == model {
        true => Ok(()),
        false => Err(AgainstError::Bos { base, model }),
    }
}
