//! Result tables and `pplx diff`, through the public interface.

mod browser;
mod diff;
mod report;
mod support;
mod tables;
