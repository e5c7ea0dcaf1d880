//! The terminal's sink.
use crate::{flags::Flags, screen::Screen};
use haul::Report;
use haul_core::event::{Event, Sink};
use haul_store::Meters;
use std::sync::Arc;

/// The terminal's sink.
pub struct Progress {}

impl Progress {
    /// Begins.
    pub fn start(_flags: &Flags, _screen: Arc<Screen>, _meters: Arc<Meters>) -> Arc<Progress> {
        Arc::new(Progress {})
    }
    /// Ends.
    pub fn finish(&self, _report: Option<&Report>) {}
}

impl Sink for Progress {
    fn emit(&self, _event: &Event) {}
}
