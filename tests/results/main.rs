//! Result tables and `pplx diff`, through the public interface.

mod diff;
mod noise;
mod records;
mod support;
mod tables;
mod verdicts;
