//! Where the files of the tests are; what is missing is said aloud.

use std::path::{Path, PathBuf};

use pplx::gguf::Gguf;
use pplx::tokenizer::{Options, Tokenizer};

fn folder(variable: &str, default: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join(default),
    }
}

fn existing(path: PathBuf) -> Option<PathBuf> {
    if path.exists() {
        return Some(path);
    }
    println!("SKIPPED: {} is missing", path.display());
    None
}

/// A file of the shared folder (`PPLX_SHARED`, or `../shared`).
pub fn shared(name: &str) -> Option<PathBuf> {
    existing(folder("PPLX_SHARED", "../shared").join(name))
}

/// A model file (`PPLX_MODELS`, or `models`).
pub fn model(name: &str) -> Option<PathBuf> {
    existing(folder("PPLX_MODELS", "models").join(name))
}

pub const SMOLLM2: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
pub const GEMMA3: &str = "gemma-3-270m-q4_k_m.gguf";

pub fn tokenizer(path: &Path) -> Tokenizer {
    let gguf = Gguf::open(path).unwrap();
    Tokenizer::from_gguf(gguf.metadata(), &Options::default()).unwrap()
}
