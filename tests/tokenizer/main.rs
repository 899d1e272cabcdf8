//! Token ids against llama.cpp's, whole and streamed.

mod support;
mod vectors;
mod wikitext;
