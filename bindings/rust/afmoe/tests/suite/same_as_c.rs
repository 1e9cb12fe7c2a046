//! The same bits as a C program, which meson builds from bindings/rust/logits.c.

use std::process::Command;

use afmoe::{Context, GenerateOptions, Model, Token};

const N_GENERATED: usize = 24;

/// Logits, tokens and their log-probabilities; floats as bits.
#[derive(Debug, PartialEq, Eq)]
struct Values {
    logits: Vec<u32>,
    tokens: Vec<Token>,
    logprobs: Vec<u32>,
}

fn from_c(path: &str, tokens: &[Token]) -> Values {
    let program = std::env::var("AFMOE_LOGITS_PROGRAM")
        .expect("AFMOE_LOGITS_PROGRAM names the program made from bindings/rust/logits.c; meson sets it");
    let ids = tokens.iter().map(|token| token.to_string());
    let output = Command::new(program).arg(path).arg(N_GENERATED.to_string()).args(ids).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let words: Vec<u32> = output.stdout.chunks(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
    let (logits, rest) = words.split_at(words.len() - 2 * N_GENERATED);
    let (tokens, logprobs) = rest.split_at(N_GENERATED);
    Values { logits: logits.to_vec(), tokens: tokens.to_vec(), logprobs: logprobs.to_vec() }
}

fn from_rust(path: &str, tokens: &[Token]) -> Values {
    let model = Model::open(path).unwrap();
    let mut session = Context::new(&model).unwrap().session().unwrap();
    session.append(tokens).unwrap();
    let logits = session.logits().unwrap().iter().map(|logit| logit.to_bits()).collect();
    let options = GenerateOptions::new().ignore_eos(true).max_tokens(N_GENERATED as u64);
    let pieces: Vec<_> = session.pieces(None, &options).unwrap().map(Result::unwrap).collect();
    let given = pieces.iter().filter_map(|piece| piece.token.map(|token| (token, piece.logprob.to_bits())));
    let (tokens, logprobs) = given.unzip();
    Values { logits, tokens, logprobs }
}

fn compare(path: &str, n: u32) {
    let vocab_size = Model::open(path).unwrap().info().vocab_size as u32;
    let tokens: Vec<Token> = (0..n).map(|i| (i * 31 + 7) % vocab_size).collect();
    let expected = from_c(path, &tokens);
    assert_eq!(expected.logits.len(), vocab_size as usize);
    assert_eq!(from_rust(path, &tokens), expected);
}

#[test]
fn text_model() {
    compare(&super::pico_path(), 50);
}

#[test]
fn fixture() {
    compare(&super::repository("tests/data/nano"), 40);
}
