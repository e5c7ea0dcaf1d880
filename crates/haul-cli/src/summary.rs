//! The summary at the end.
