//! The commands as a user types them, and the tables that they write.

mod commands;
mod results;
mod support;
