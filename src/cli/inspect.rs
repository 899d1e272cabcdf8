//! `pplx inspect`

use super::Failure;

#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::failed("'inspect' is not built yet"))
}
