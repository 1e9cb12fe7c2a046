//! A chat: what you type is the user's message, the model answers, both know what was said before. An empty line or the
//! end of the input ends it.
//!
//!     cargo run --example chat -- MODEL [SEED]

use std::error::Error;
use std::io::{self, BufRead, Write};

use afmoe::{Context, GenerateOptions, Message, Model, Sampler, Session};

/// Print an answer while it is made, and give it back whole.
fn answer(session: &mut Session, sampler: &mut Sampler) -> Result<String, Box<dyn Error>> {
    let mut text = String::new();
    let mut out = io::stdout().lock();
    for piece in session.pieces(Some(sampler), &GenerateOptions::new().max_tokens(300))? {
        let piece = piece?;
        out.write_all(piece.text.as_bytes())?;
        out.flush()?;
        text += &piece.text;
    }
    writeln!(out)?;
    Ok(text)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or("usage: chat MODEL [SEED]")?;
    let seed = arguments.next().map_or(Ok(0), |seed| seed.parse())?;

    let model = Model::open(path)?;
    let mut session = Context::new(&model)?.session()?;
    let mut sampler = Sampler::new(&model, &model.sampler_options()?.seed(seed))?;

    let mut said: Vec<(&str, String)> = Vec::new();
    for line in io::stdin().lock().lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        said.push(("user", line));
        let messages: Vec<_> = said.iter().map(|(role, text)| Message::new(role, text)).collect();
        // What was said before is in the session already: sync reads only what is new.
        session.sync(&model.chat_tokenize(&messages)?)?;
        let text = answer(&mut session, &mut sampler)?;
        said.push(("assistant", text));
    }
    Ok(())
}
