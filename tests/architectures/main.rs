//! Every architecture, on models that the tests make, against llama.cpp.

#[path = "../support/cases/mod.rs"]
mod cases;
mod declarations;
mod documentation;
mod features;
mod fixtures;
mod golden;
mod invariance;
mod off;
mod reference;
mod refusals;
mod relatives;
#[path = "../support/mod.rs"]
mod support;
mod variation;
