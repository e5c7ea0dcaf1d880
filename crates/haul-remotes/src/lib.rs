//! From a typed name to an open store.
