//! stub
mod draft;
pub use draft::*;
