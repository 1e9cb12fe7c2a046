//! The functions, structs and constants of `afmoe.h` as they are, without any check of its rules. The crate `afmoe` is
//! the safe layer over them.
//!
//! The declarations are made from the header by bindgen (`bindings/rust/bindings.sh` in the repository) and come with
//! the header's own comments, which are their documentation. Constants are `i32`, like the fields and arguments they
//! are for.
//!
//! The build script looks for the library in this order:
//!
//! 1. `AFMOE_LIB_DIR`, the folder of `libafmoe.so`, or of `libafmoe.a` together with `AFMOE_STATIC=1`.
//!    `AFMOE_INCLUDE_DIR`, the folder of its `afmoe.h`, may stand beside it; its version is checked then.
//! 2. The feature `vendored`: meson builds it, without optional parts, from the repository this crate lies in, or from
//!    the one that `AFMOE_SOURCE_DIR` names, and it is linked statically.
//! 3. `pkg-config` (or what `PKG_CONFIG` names), as the archive with `AFMOE_STATIC=1`.
//!
//! Crates that compile C against the header find its folder, where it is known, in `DEP_AFMOE_INCLUDE`. On docs.rs
//! (`DOCS_RS` is set) nothing is looked for.
#![allow(non_camel_case_types)]
#![allow(rustdoc::broken_intra_doc_links)] // the comments are C's: items[0] is an element

#[rustfmt::skip]
mod bindings;
pub use bindings::*;
