//! The drive store on a simulator of the service.

mod sdk;
mod simulator;
