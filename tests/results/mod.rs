//! Result tables and `pplx diff`, through the public interface.

mod browser;
mod diff;
mod noise;
mod pairs;
mod records;
mod report;
mod support;
mod tables;
mod verdicts;
