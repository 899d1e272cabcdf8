//! `pplx run`, `score` and `inspect` as a user types them, on models that the
//! tests make: files, figures, messages and exit codes.

mod arguments;
mod inspect;
mod kld;
mod noise;
mod project;
mod run;
mod score;
mod split;
#[path = "../support/mod.rs"]
mod support;
