//! Token ids against llama.cpp's, whole and streamed.

mod cli;
mod corpus;
mod errors;
mod oracle;
mod streaming;
mod support;
mod vectors;
mod wikitext;
