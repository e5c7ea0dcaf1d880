//! Services that people log in to: OAuth 2 tokens as rclone keeps them, renewed in time and written back, and the client with which
//! stores on such services send their requests.

mod api;
mod blob;
mod consent;
mod credentials;
mod federation;
pub mod google;
mod key;
mod login;
mod page;
mod provider;
mod questions;
mod requests;
mod revoke;
mod service_account;
pub mod setup;
mod token;

pub use api::{Api, Call, Judge, ServiceError, ServiceResult, plain};
pub use blob::{decode, encode};
pub use consent::{Browser, ConsentRequest, DeviceCode};
pub use credentials::text_of;
pub use key::{Key, pem};
pub use login::{Login, Tokens, account};
pub use page::few;
pub use provider::{Adapt, Addresses, OPTIONS, Provider, Revoke};
pub use revoke::revoke;
pub use service_account::{App, ServiceAccount};
pub use token::Token;
