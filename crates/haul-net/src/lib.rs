//! The ground that network stores stand on: one HTTP client with TLS, proxies and bounds on every wait, limits of requests, lanes,
//! buffers and counters. It knows no store, and asks neither the environment nor the clock of the day.

mod buffers;
mod clock;
pub mod connect;
mod cookies;
pub mod fault;
pub mod gate;
mod http;
pub mod lanes;
pub mod meters;
mod net;
mod pages;
mod processors;
mod proxies;
pub mod reach;
mod tls;

pub use buffers::Buffers;
pub use clock::Clock;
pub use cookies::Cookies;
pub use fault::{Fault, FaultResult, at};
pub use gate::Gate;
pub use http::{Http, Reply, Watch, WatchedBody};
pub use lanes::{Direction, EndpointLanes, Lanes, ReadAheadPermit};
pub use meters::Meters;
pub use net::{ClientCert, Header, Headers, Net, patience};
pub use pages::Pages;
pub use proxies::Proxies;
