//! Result tables and `pplx diff`, through the public interface.

mod diff;
mod support;
mod tables;
