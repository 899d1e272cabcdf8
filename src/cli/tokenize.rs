//! `pplx tokenize`

use std::path::PathBuf;

use super::text::Text;
use super::{Failure, values};
use crate::corpus::DEFAULT_CHUNK;
use crate::gguf::Gguf;
use crate::say;
use crate::tokenizer::{Options, Tokenizer};

#[derive(clap::Args)]
pub struct Args {
    /// GGUF file that holds the vocabulary.
    model: PathBuf,
    /// Text file (UTF-8) to tokenize; - for stdin.
    #[arg(short, long)]
    file: PathBuf,
    /// Print ids only, one a line; without it, each id with its text.
    #[arg(long)]
    ids: bool,
    /// Do not begin with BOS, whatever the model says.
    #[arg(long)]
    no_bos: bool,
    /// Take control tokens that are written out in the text as tokens.
    #[arg(long)]
    parse_special: bool,
    /// Pre-tokenizer of a byte-level vocabulary that does not name its own.
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,
    /// Bytes read at a time; the ids do not depend on it.
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_CHUNK,
        value_parser = values::count
    )]
    chunk_bytes: usize,
}

pub fn run(args: Args) -> Result<(), Failure> {
    let gguf = Gguf::open(&args.model).map_err(Failure::usage)?;
    let options = Options {
        parse_special: args.parse_special,
        pre: args.pre,
        add_bos: args.no_bos.then_some(false),
    };
    let tokenizer = Tokenizer::from_gguf(gguf.metadata(), &options).map_err(Failure::usage)?;
    let tokens = Text::open(&args.file)?.tokenize_in(args.chunk_bytes, &tokenizer)?;

    Ok(say::stream(|out| {
        for &id in &tokens.ids {
            if args.ids {
                writeln!(out, "{id}")?;
            } else {
                writeln!(out, "{id}\t{}", tokenizer.piece(id).escape_ascii())?;
            }
        }
        Ok(())
    })?)
}
