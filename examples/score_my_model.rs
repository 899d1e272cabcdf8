//! A model of your own, measured like any other: perplexity with its error, a record of
//! every token and a table that `pplx diff` and `pplx report` read, and KL divergences
//! from another model.
//!
//!     cargo run --release --example score_my_model -- corpora/on-measuring.txt results
//!
//! The model predicts a byte from the one before it, by counting pairs in the first
//! half of the text; the second half is scored.

use std::error::Error;
use std::path::Path;

use pplx::corpus::ids_sha256;
use pplx::fetch::sha256_of;
use pplx::results::KldFigures;
use pplx::{
    BackendError, BaseInput, Control, Finished, FromLogits, Geometry, Identity, Limits,
    LogitsModel, Measurable, Pieces, Settings, Tables, Text, identify, measure, measure_against,
};

/// `ln (count + weight)` of every byte after every other.
struct Bigram {
    logits: Vec<f32>,
}

impl Bigram {
    fn count(bytes: &[u32], weight: f32) -> Self {
        let mut counts = vec![weight; 256 * 256];
        for pair in bytes.windows(2) {
            counts[pair[0] as usize * 256 + pair[1] as usize] += 1.0;
        }
        let logits = counts.iter().map(|n| n.ln()).collect();
        Self { logits }
    }
}

impl LogitsModel for Bigram {
    fn n_vocab(&self) -> usize {
        256
    }

    fn returns_all_rows(&self) -> bool {
        true
    }

    /// The logits of the byte after each of `tokens`. A neural network would look at
    /// all that come before.
    fn forward(&mut self, tokens: &[u32]) -> Result<Vec<f32>, BackendError> {
        let row = |&byte: &u32| self.logits[byte as usize * 256..][..256].to_vec();
        Ok(tokens.iter().flat_map(row).collect())
    }
}

/// A token is a byte of text.
struct Bytes;

impl Pieces for Bytes {
    fn piece(&self, id: u32) -> Vec<u8> {
        vec![id as u8]
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [corpus, results] = arguments.as_slice() else {
        return Err("usage: score_my_model CORPUS RESULTS".into());
    };
    let bytes = std::fs::read(corpus)?;
    let ids: Vec<u32> = bytes.iter().map(|&b| b.into()).collect();
    let (seen, unseen) = ids.split_at(ids.len() / 2);
    let mut model = FromLogits(Bigram::count(seen, 0.01));
    let mut smoother = FromLogits(Bigram::count(seen, 1.0));

    // Windows of 128 tokens, the second half of each scored, as llama-perplexity does.
    let text = Text {
        ids: unseen,
        pieces: &Bytes,
    };
    let settings = Settings {
        geometry: Geometry::llama_cpp(128),
        limits: Limits::default(),
        bos: None,
        batch: None,
    };
    let control = Control::default();
    let m = measure(
        Measurable::new(&mut model),
        text,
        &settings,
        &control,
        &mut |_| (),
    )?;
    println!("{} tokens in {} windows", m.scored, m.windows.len());
    println!(
        "PPL = {:.4} +/- {:.5}, {:.4} bits per byte",
        m.figures.ppl,
        m.figures.ppl_err.unwrap_or(f64::NAN),
        m.figures.bits_per_byte.unwrap_or(f64::NAN)
    );

    // The row says what was measured: two tables are compared by it.
    let identity = Identity {
        model: "bigram".to_owned(),
        model_sha256: ids_sha256(seen),
        architecture: "bigram".to_owned(),
        corpus: "second-half".to_owned(),
        corpus_sha256: sha256_of(&mut &bytes[seen.len()..])?,
        engine: concat!("score_my_model ", env!("CARGO_PKG_VERSION")).to_owned(),
        ..Identity::default()
    };
    let provenance = identify(identity, unseen, &settings)?;
    let mut tables = Tables::load_or_new(Path::new(results), "my_model")?;
    Finished::new("bigram/second-half/128", provenance, text, m).save(&mut tables)?;
    println!("{results}/my_model.csv");

    // How far the smoother model is from it.
    let base = BaseInput::Model(Measurable::new(&mut model));
    let smoother = Measurable::new(&mut smoother);
    let (m, klds) = measure_against(smoother, base, text, &settings, &control, &mut |_| ())?;
    let kld = KldFigures::new(&klds)?;
    println!(
        "smoothed by 1: PPL = {:.4}, mean KLD {:.6} +/- {:.6} nats",
        m.figures.ppl,
        kld.kld.mean.value,
        kld.kld.mean.se.unwrap_or(f64::NAN)
    );
    Ok(())
}
