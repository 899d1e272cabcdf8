//! The evaluator over the CPU backend, on models that the tests make.

mod closed_form;
mod contract;
mod features;
mod invariance;
mod kld;
mod model_errors;
mod not_finite;
mod prefixes;
mod reference;
mod teacher_forced;
