//! Layer windows: however the layers are cut and whatever is kept where, the
//! numbers are those of the whole device.

mod corruption;
mod interruption;
mod partitions;
mod probe;
mod registry;
