//! `pplx run`, `score` and `inspect` as a user types them, on models that the
//! tests make: files, figures, messages and exit codes.

mod arguments;
mod cacheless;
mod changed;
mod compare;
#[cfg(unix)]
mod endings;
mod faults;
mod inspect;
mod kept;
mod kld;
mod layers;
mod noise;
mod plan;
mod project;
mod remarks;
mod run;
mod score;
mod split;
mod tables;
mod terminal;
