//! Tests against the library that the build found, on the repository's models. One program: linking takes longest.

mod callbacks;
mod chat;
mod coverage;
mod generate;
mod lifetimes;
mod same_as_c;
mod scheduler;
mod state;
mod step;
mod surface;

use afmoe::{Context, ContextOptions, Model, Session};

/// A file of the repository.
fn repository(path: &str) -> String {
    format!("{}/../../../{path}", env!("CARGO_MANIFEST_DIR"))
}

/// The trained text model.
fn pico_path() -> String {
    repository("models/pico-q8_0.gguf")
}

fn pico() -> Model {
    Model::open(pico_path()).unwrap()
}

/// A small model without tokenizer.
fn nano() -> Model {
    Model::open(repository("tests/data/nano")).unwrap()
}

fn session_of(model: &Model) -> Session {
    Context::with_options(model, &ContextOptions::new().n_threads(2)).unwrap().session().unwrap()
}

/// A session of pico that has read a text.
fn after(text: &str) -> Session {
    let model = pico();
    let mut session = session_of(&model);
    session.append(&model.tokenize(text).unwrap()).unwrap();
    session
}
