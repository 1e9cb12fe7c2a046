//! Run Arcee Trinity (AFMoE) language models inside your program.
//!
//! This is the safe interface of libafmoe, a C library; every call is one of its functions, and
//! the rules of its header that a compiler can check are types here. Three nouns:
//!
//! - [`Model`]: weights, configuration and tokenizer of one checkpoint; immutable, shared by any number of threads
//! - [`Context`]: what it takes to compute: worker threads, working memory, keys and values
//! - [`Session`]: one timeline of tokens with its keys and values; its calls take `&mut self`, one caller at a time
//!
//! ```
//! # std::env::set_current_dir("../../../models").unwrap();
//! use afmoe::{Context, GenerateOptions, Message, Model};
//!
//! let model = Model::open("pico-q8_0.gguf")?;
//! let mut session = Context::new(&model)?.session()?;
//! session.append(&model.chat_tokenize(&[Message::user("What is the capital of France?")])?)?;
//!
//! let mut answer = String::new();
//! for piece in session.pieces(None, &GenerateOptions::new().max_tokens(200))? {
//!     answer += &piece?.text;
//! }
//! assert_eq!(answer, "The capital of France is Paris.");
//! # Ok::<(), afmoe::Error>(())
//! ```
//!
//! **Lifetimes.** A session holds its context, a context its model, and all are reference counted: drop them in any
//! order. What borrows from the library (logits, texts of tokens, pieces) has the lifetime of what it borrows from.
//!
//! **Threads.** [`Model`], [`Context`] and [`Cancel`] are `Send`, `Sync` and cheap to clone. [`Session`], [`Sampler`]
//! and [`StreamDecoder`] are `Send`: they move between threads, and are used by one at a time. A [`Scheduler`] is
//! `Send` and `Sync`: requests come from any thread.
//!
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<afmoe::Session>();
//! ```
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<afmoe::Sampler>();
//! ```
//! ```compile_fail,E0277
//! fn shared<T: Sync>() {}
//! shared::<afmoe::StreamDecoder>();
//! ```
//! ```
//! fn shared<T: Send + Sync + Clone>() {}
//! fn sent<T: Send>() {}
//! shared::<afmoe::Model>();
//! shared::<afmoe::Context>();
//! shared::<afmoe::Cancel>();
//! fn both<T: Send + Sync>() {}
//! both::<afmoe::Scheduler>();
//! sent::<afmoe::Request>();
//! sent::<afmoe::Session>();
//! sent::<afmoe::Sampler>();
//! sent::<afmoe::StreamDecoder>();
//! ```
//!
//! **Callbacks** are closures, called on the calling thread before the call returns. One that panics stops the call,
//! and the panic goes on as soon as the library has returned; it never crosses C. What a stopped call leaves behind is
//! defined: the session can be used again.
//!
//! **Failures** are an [`Error`] with a [kind](ErrorKind) and the library's own sentence, which names the file, the
//! numbers and the range.
//!
//! **Versions.** `afmoe-sys` says how the library is found. A library of another minor version than this crate's
//! (before
//! 1.0; of another major one after) is refused when a model is opened, with both versions in the message.
#![warn(missing_docs, rust_2018_idioms, missing_debug_implementations)]
#![deny(unsafe_op_in_unsafe_fn)]

mod call;
mod callback;
mod cancel;
#[cfg(doctest)]
mod compile_fail;
mod context;
mod enums;
mod error;
mod generate;
mod info;
mod model;
mod sampler;
mod scheduler;
mod session;
mod step;
mod text;

use std::borrow::Cow;
use std::ffi::CStr;
use std::os::raw::c_char;

pub use afmoe_sys as sys;

pub use cancel::Cancel;
pub use context::{cpu_level, estimate, Context, ContextInfo, ContextOptions, Memory, Parallel};
pub use enums::{
    Cells, Container, CpuLevel, Finish, Layout, Load, LogLevel, Pooling, Precision, RopeKind, ScoreFunction, TokenKind,
};
pub use error::{Error, ErrorKind, Result};
pub use generate::{GenerateOptions, Generated, Piece, Pieces};
pub use info::{ModelInfo, TensorInfo, Tensors};
pub use model::{Model, ModelOptions};
pub use sampler::{Sampled, Sampler, SamplerOptions};
pub use scheduler::{Answer, Refused, Request, Scheduler, SchedulerInfo, SchedulerOptions};
pub use session::{AppendOptions, AppendOutput, Appended, ExpertTrace, Session, SessionStats};
pub use step::{StepItem, StepOptions};
pub use text::{ChatOptions, Message, Special, StreamDecoder, TokenizeOptions};

/// A token id: below the model's `vocab_size`.
pub type Token = u32;

/// Version of the library that runs, e.g. `"0.1.0"`.
pub fn version() -> &'static str {
    // SAFETY: the text is static.
    static_text(unsafe { sys::afmoe_version_string() })
}

/// What the library was built with, as words separated by spaces, e.g. `"c avx2 formats:F32,F16,BF16,Q8_0"`.
pub fn build_features() -> &'static str {
    // SAFETY: the text is static.
    static_text(unsafe { sys::afmoe_build_features() })
}

/// The part of a version, major * 1000000 + minor * 1000 + patch, that must agree.
fn interface_of(version: u32) -> (u32, u32) {
    match version / 1_000_000 {
        0 => (0, version / 1000),
        major => (major, 0),
    }
}

/// UNSUPPORTED where the library that runs is not of the version that this crate was written for.
fn check_version() -> Result<()> {
    let ours =
        (sys::AFMOE_VERSION_MAJOR * 1_000_000 + sys::AFMOE_VERSION_MINOR * 1000 + sys::AFMOE_VERSION_PATCH) as u32;
    // SAFETY: it has no arguments.
    let theirs = unsafe { sys::afmoe_version() };
    if interface_of(theirs) == interface_of(ours) {
        return Ok(());
    }
    let message = format!("libafmoe {} was found, this crate is for {}", version(), env!("CARGO_PKG_VERSION"));
    Err(Error::new(sys::AFMOE_UNSUPPORTED, &message))
}

/// A static text of the library.
fn static_text(text: *const c_char) -> &'static str {
    // SAFETY: the header says these are static; they end with NUL.
    unsafe { CStr::from_ptr(text) }.to_str().unwrap_or("?")
}

/// A text that ends with NUL.
///
/// # Safety
/// It lives and does not change for as long as 'a.
unsafe fn text_of<'a>(text: *const c_char) -> Cow<'a, str> {
    // SAFETY: as the caller promises.
    unsafe { CStr::from_ptr(text) }.to_string_lossy()
}

/// NOT_FOUND as None.
fn found<T>(result: Result<T>) -> Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}
