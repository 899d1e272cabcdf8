//! Every architecture, on models that the tests make, against llama.cpp.

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
mod variation;
