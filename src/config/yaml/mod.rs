//! Reads YAML into typed values that remember their position, and collects every problem instead of
//! stopping at the first.
//!
//! The other parts of `config` and the check of rule files (`bundle`) call this module. In reading
//! order:
//!
//! * `document`: a YAML text as nodes with positions
//! * `fields`: reads typed fields from a mapping and reports unknown ones
//! * `problem`: one problem with its position and its help text, and the list of all problems
//! * `suggest`: the allowed word that is closest to a misspelled one

pub(crate) mod document;
pub(crate) mod fields;
pub(crate) mod problem;
pub(crate) mod suggest;
