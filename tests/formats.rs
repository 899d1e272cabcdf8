//! What is read: models, whole, split and damaged; vocabularies; and the source itself.
//! The allocator of `gguf` counts for all of them.

mod gguf;
mod gguf_split;
mod house;
mod model_fuzz;
mod support;
mod tokenizer;
