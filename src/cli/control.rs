//! What measuring verbs share: where hidden states are kept, and what ends them.

use std::path::PathBuf;

use super::{Failure, signals};
use crate::eval::{CheckpointOptions, MIB};
use crate::fetch::FetchOptions;
use crate::run::Control;

#[derive(clap::Args)]
pub struct ControlArgs {
    /// Memory for the hidden states that a cycle keeps between its passes, in MiB;
    /// the rest goes to a temporary file. Never changes a number.
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    checkpoint_memory: u64,

    /// Directory of that file, which never has a name there [default: the system's,
    /// TMPDIR].
    #[arg(long, value_name = "DIR")]
    checkpoint_dir: Option<PathBuf>,
}

impl ControlArgs {
    /// Whoever takes it ends when its interrupt is raised.
    pub fn control(&self) -> Result<Control, Failure> {
        let mut checkpoints = CheckpointOptions {
            memory: self.checkpoint_memory.saturating_mul(MIB),
            ..CheckpointOptions::default()
        };
        if let Some(dir) = &self.checkpoint_dir {
            if !dir.is_dir() {
                let dir = dir.display();
                return Err(Failure::usage(format!(
                    "--checkpoint-dir {dir} is not a directory"
                )));
            }
            checkpoints.dir.clone_from(dir);
        }
        Ok(Control {
            checkpoints,
            // Without a cache kernels are compiled anew.
            kernels: FetchOptions::from_env().cache_dir,
            interrupt: signals::interrupt(),
        })
    }
}
