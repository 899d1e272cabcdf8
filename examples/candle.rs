//! A GGUF of the llama family through candle's quantized model, on the windows that
//! pplx scores, and where the two differ.
//!
//!     cargo run --release --features candle --example candle -- MODEL CORPUS [WINDOWS]
//!
//! Candle multiplies in 8 bits (it quantizes activations, as llama.cpp does); pplx is
//! measured in `exact` and in `q8`, so that it shows which of the differences are that.

use std::error::Error;
use std::fs::File;
use std::path::Path;

use candle_core::quantized::gguf_file::Content;
use candle_core::{Device, Tensor};
use candle_transformers::models::quantized_llama::ModelWeights;
use pplx::backend::{Numerics, Placement};
use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::results::KldFigures;
use pplx::run::Measurement;
use pplx::tokenizer::Options;
use pplx::{
    BackendError, BaseInput, Control, FromLogits, Geometry, Limits, LoadedModel, LogitsModel,
    Measurable, Settings, measure, measure_against,
};

const N_CTX: usize = 256;

/// Candle returns logits of the last position only, and keeps keys and values.
struct Candle {
    weights: ModelWeights,
    n_vocab: usize,
    /// The ids whose keys and values it has.
    kept: Vec<u32>,
}

impl Candle {
    fn open(path: &Path, n_vocab: usize) -> candle_core::Result<Self> {
        let mut file = File::open(path)?;
        let content = Content::read(&mut file)?;
        Ok(Self {
            weights: ModelWeights::from_gguf(content, &mut file, &Device::Cpu)?,
            n_vocab,
            kept: Vec::new(),
        })
    }

    fn last_row(&mut self, tokens: &[u32]) -> candle_core::Result<Vec<f32>> {
        // A longer prefix of the same window goes on; another window begins anew.
        let goes_on = tokens.len() > self.kept.len() && tokens.starts_with(&self.kept);
        let first = if goes_on { self.kept.len() } else { 0 };
        let new = Tensor::new(&tokens[first..], &Device::Cpu)?.unsqueeze(0)?;
        let logits = self.weights.forward(&new, first)?;
        self.kept = tokens.to_vec();
        logits.squeeze(0)?.to_vec1()
    }
}

impl LogitsModel for Candle {
    fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    fn returns_all_rows(&self) -> bool {
        false
    }

    fn forward(&mut self, tokens: &[u32]) -> Result<Vec<f32>, BackendError> {
        self.last_row(tokens).map_err(BackendError::other)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (model, corpus, windows) = match arguments.as_slice() {
        [model, corpus] => (Path::new(model), Path::new(corpus), 4),
        [model, corpus, windows] => (Path::new(model), Path::new(corpus), windows.parse()?),
        _ => return Err("usage: candle MODEL CORPUS [WINDOWS]".into()),
    };
    let exact = LoadedModel::open(model, &Options::default(), 0)?;
    let q8 = LoadedModel::open(model, &Options::default(), 0)?.with_numerics(Numerics::Q8)?;
    let tokenizer = exact.tokenizer()?;
    let ids = tokenize_file(Path::new(corpus), tokenizer, DEFAULT_CHUNK)?.ids;
    let text = exact.text(&ids);
    let settings = Settings {
        geometry: Geometry::llama_cpp(N_CTX),
        limits: Limits {
            windows: Some(windows),
            max_tokens: None,
        },
        bos: tokenizer.bos().filter(|_| tokenizer.add_bos()),
        batch: None,
    };
    let control = Control::default();
    let on = Placement::CPU;

    let ours = exact.placed(on, &control, |model| {
        measure(model, text, &settings, &control, &mut |_| ())
    })?;
    println!("{} tokens in {windows} windows of {N_CTX}", ours.scored);
    println!("pplx exact   {}", figures(&ours));
    let quantized = q8.placed(on, &control, |model| {
        exact.placed(on, &control, |base| {
            let base = BaseInput::Model(base);
            measure_against(model, base, text, &settings, &control, &mut |_| ())
        })
    })?;
    println!("pplx q8      {}", figures(&quantized.0));
    println!(
        "             {}",
        divergence(&KldFigures::new(&quantized.1)?)
    );
    let mut candle = FromLogits(Candle::open(model, exact.model.n_vocab)?);
    let candle = exact.placed(on, &control, |base| {
        let (model, base) = (Measurable::new(&mut candle), BaseInput::Model(base));
        measure_against(model, base, text, &settings, &control, &mut |_| ())
    })?;
    println!("candle       {}", figures(&candle.0));
    println!("             {}", divergence(&KldFigures::new(&candle.1)?));

    println!("where candle differs most from pplx exact:");
    let mut tokens: Vec<(f64, usize, f64)> = Vec::new();
    for (a, b) in candle.0.scores.iter().zip(&ours.scores) {
        let nll = a.nll().zip(b.nll()).zip(a.window.targets());
        tokens.extend(nll.map(|((a, b), at)| (a - b, at, b)));
    }
    tokens.sort_by(|a, b| b.0.abs().total_cmp(&a.0.abs()));
    for (difference, at, nll) in tokens.into_iter().take(5) {
        let piece = tokenizer.piece(ids[at]);
        println!(
            "  token {at:6} {:12} NLL {nll:.4}, candle {difference:+.4}",
            format!("{:?}", String::from_utf8_lossy(&piece))
        );
    }
    Ok(())
}

fn figures(m: &Measurement) -> String {
    let f = &m.figures;
    let err = f.ppl_err.unwrap_or(f64::NAN);
    let speed = m.evaluated as f64 / m.seconds;
    format!("PPL {:.4} +/- {err:.5}  {speed:.0} tokens/s", f.ppl)
}

fn divergence(f: &KldFigures) -> String {
    format!(
        "ln PPL {:+.6}, mean KLD {:.6} nats, same top {:.2} %",
        f.ln_ratio.value,
        f.kld.mean.value,
        100.0 * f.same_top.value
    )
}
