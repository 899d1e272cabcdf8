//! `pplx tokenize`

use super::Failure;

#[derive(clap::Args)]
pub struct Args {}

pub fn run(_args: Args) -> Result<(), Failure> {
    Err(Failure::failed("'tokenize' is not built yet"))
}
