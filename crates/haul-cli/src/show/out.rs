//! Standard output: buffered, any bytes, and a reader that goes away ends the command quietly.

use crate::error::{CommandResult, code};
use anyhow::Result;
pub use haul_terminal::Output;
use std::io;

/// A command whose reader went away (`| head`) has done all that was wanted of it.
pub fn quiet(result: Result<CommandResult>) -> Result<CommandResult> {
    let gone = |e: &anyhow::Error| {
        e.chain().filter_map(|e| e.downcast_ref::<io::Error>()).any(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    match result {
        Err(e) if gone(&e) => Ok(CommandResult::Exit(code::OK)),
        other => other,
    }
}
