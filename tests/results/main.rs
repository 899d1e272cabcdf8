//! Result tables and `pplx diff`, through the public interface.

mod diff;
mod records;
mod support;
mod tables;
