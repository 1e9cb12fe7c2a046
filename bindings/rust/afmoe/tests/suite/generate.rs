//! The iterator gives what the callback gives, whatever ends it.

use std::ops::ControlFlow;

use afmoe::{
    Cancel, Context, ContextOptions, ErrorKind, Finish, GenerateOptions, Generated, Message, Piece, Result, Sampler,
    Session, Token,
};

use super::{after, nano, pico, session_of};

/// Pieces, and how it ended but for the time it took.
type Run = (Vec<Piece<'static>>, Finish, u64, Option<Token>, Option<usize>);

fn run_of(pieces: Vec<Piece<'static>>, end: Generated) -> Run {
    (pieces, end.finish, end.n_generated, end.stop_token, end.stop_string)
}

fn by_callback(session: &mut Session, sampler: Option<&mut Sampler>, options: &GenerateOptions) -> Result<Run> {
    let mut pieces = Vec::new();
    let end = session.generate(sampler, options, |piece| {
        pieces.push(piece.into_owned());
        ControlFlow::Continue(())
    })?;
    Ok(run_of(pieces, end))
}

fn by_iterator(session: &mut Session, sampler: Option<&mut Sampler>, options: &GenerateOptions) -> Result<Run> {
    let mut iterator = session.pieces(sampler, options)?;
    let pieces = iterator.by_ref().collect::<Result<Vec<_>>>()?;
    assert!(iterator.next().is_none());
    Ok(run_of(pieces, iterator.generated()))
}

/// Both ways from the same start; the timelines must be the same afterwards.
fn both(text: &str, options: &GenerateOptions) -> Run {
    let (mut one, mut other) = (after(text), after(text));
    let (expected, found) = (by_callback(&mut one, None, options), by_iterator(&mut other, None, options));
    assert_eq!(found, expected);
    assert_eq!(other.tokens(), one.tokens());
    assert_eq!(other.logits(), one.logits());
    found.unwrap()
}

fn text_of(run: &Run) -> String {
    run.0.iter().map(|piece| &*piece.text).collect()
}

const START: &str = "Once upon a time, Jack walked to the forest.";

#[test]
fn plain() {
    let run = both(START, &GenerateOptions::new().max_tokens(40).n_top_logprobs(3).keep_special(true));
    assert_eq!((run.1, run.2), (Finish::Length, 40));
    assert!(run.0.iter().all(|piece| piece.token.is_none() || piece.top.len() == 3));
}

#[test]
fn nothing() {
    assert_eq!(both(START, &GenerateOptions::new().max_tokens(0)), (vec![], Finish::Length, 0, None, None));
}

#[test]
fn stop_token() {
    let question = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n";
    let run = both(question, &GenerateOptions::new());
    assert_eq!(text_of(&run), "The capital of France is Paris.");
    assert_eq!(run.1, Finish::StopToken);
    assert_eq!(run.3, pico().find_token("<|im_end|>").unwrap());

    let second = run.0[1].token.unwrap();
    let run = both(question, &GenerateOptions::new().stop_tokens([second]));
    assert_eq!((run.1, run.2, run.3), (Finish::StopToken, 1, Some(second)));
}

/// Every string of some characters in the text that comes: each stops at the same place both ways.
#[test]
fn stop_strings() {
    let whole = text_of(&both(START, &GenerateOptions::new().max_tokens(30)));
    let at = |begin: usize, n: usize| whole.chars().skip(begin).take(n).collect::<String>();
    for begin in (0..24).step_by(3) {
        let string = at(begin, 1 + begin % 7);
        let run = both(START, &GenerateOptions::new().max_tokens(30).stop_strings([string.clone()]));
        assert_eq!((run.1, run.4), (Finish::StopString, Some(0)), "{string:?}");
        assert_eq!(text_of(&run), whole[..whole.find(&string).unwrap()]);
    }
    // Several: the first to end counts. What only begins to come is held back and given in the end.
    let (early, late) = (at(8, 2), at(5, 9));
    both(START, &GenerateOptions::new().max_tokens(30).stop_strings([late, early]));
    let end: String = whole.chars().skip(whole.chars().count() - 4).chain("#".chars()).collect();
    let run = both(START, &GenerateOptions::new().max_tokens(30).stop_strings([end]));
    assert_eq!((run.1, text_of(&run)), (Finish::Length, whole));
    assert_eq!(run.0.last().unwrap().token, None);
}

/// Characters of several tokens, also one that is never finished.
#[test]
fn broken_characters() {
    let model = pico();
    let bytes: Vec<Token> = model.tokenize(b"\xf0\x9f\xa6\x89").unwrap();
    assert!(bytes.len() > 1);
    for n in 1..=bytes.len() + 1 {
        let run = |by: fn(&mut Session, Option<&mut Sampler>, &GenerateOptions) -> Result<Run>| {
            let mut session = session_of(&model);
            session.append(&model.tokenize(START).unwrap()).unwrap();
            // One token after the other is the only one allowed: seeds do not matter.
            let mut given = String::new();
            let bias: Vec<_> = bytes.iter().map(|token| (*token, 1e9)).collect();
            let options = afmoe::SamplerOptions::new().bias(bias);
            let mut sampler = Sampler::new(&model, &options).unwrap();
            let limit = GenerateOptions::new().max_tokens(n as u64).stop_strings(["\u{fffd}\u{fffd}\u{fffd}\u{fffd}"]);
            let run = by(&mut session, Some(&mut sampler), &limit).unwrap();
            given += &text_of(&run);
            (run, given)
        };
        assert_eq!(run(by_iterator), run(by_callback));
    }
}

#[test]
fn sampled() {
    let model = pico();
    let options = model.sampler_options().unwrap().temperature(0.9).top_p(0.95).repetition_penalty(1.2).seed(7);
    let generate = GenerateOptions::new().max_tokens(40);
    let (mut one, mut other) = (session_of(&model), session_of(&model));
    let prompt = model.chat_tokenize(&[Message::user("Tell me a story.")]).unwrap();
    one.append(&prompt).unwrap();
    other.append(&prompt).unwrap();
    let mut sampler = Sampler::new(&model, &options).unwrap();
    let expected = by_callback(&mut one, Some(&mut sampler), &generate).unwrap();
    let mut sampler = Sampler::new(&model, &options).unwrap();
    assert_eq!(by_iterator(&mut other, Some(&mut sampler), &generate).unwrap(), expected);
}

#[test]
fn full() {
    let model = pico();
    let context = Context::with_options(&model, &ContextOptions::new().max_tokens(16)).unwrap();
    let run = |by: fn(&mut Session, Option<&mut Sampler>, &GenerateOptions) -> Result<Run>| {
        let mut session = context.session().unwrap();
        session.append(&model.tokenize("Once upon a time").unwrap()).unwrap();
        by(&mut session, None, &GenerateOptions::new().ignore_eos(true)).unwrap()
    };
    let expected = run(by_callback);
    assert_eq!(expected.1, Finish::Context);
    assert_eq!(run(by_iterator), expected);
}

#[test]
fn cancelled_before() {
    let cancel = Cancel::new().unwrap();
    cancel.set();
    assert!(cancel.is_set());
    let options = GenerateOptions::new().cancel(&cancel);
    assert_eq!(both(START, &options), (vec![], Finish::Cancelled, 0, None, None));
    cancel.clear();
    assert_eq!(both(START, &options.max_tokens(3)).2, 3);
}

#[test]
fn break_ends_it() {
    let mut session = after(START);
    let n = session.n_tokens().unwrap();
    let end = session.generate(None, &GenerateOptions::new(), |_| ControlFlow::Break(())).unwrap();
    assert_eq!((end.finish, end.n_generated), (Finish::Cancelled, 1));
    assert_eq!(session.n_tokens().unwrap(), n + 1);
}

#[test]
fn an_iterator_dropped_half_way_loses_nothing() {
    let whole = both(START, &GenerateOptions::new().max_tokens(10));
    let mut session = after(START);
    let mut pieces = session.pieces(None, &GenerateOptions::new()).unwrap();
    let mut tokens: Vec<_> = pieces.by_ref().take(4).map(|piece| piece.unwrap().token).collect();
    assert_eq!(pieces.generated().finish, Finish::None);
    assert_eq!(pieces.session().n_tokens().unwrap(), after(START).n_tokens().unwrap() + 4);
    let rest = by_iterator(&mut session, None, &GenerateOptions::new().max_tokens(6)).unwrap();
    tokens.extend(rest.0.iter().filter(|piece| piece.token.is_some()).map(|piece| piece.token));
    assert_eq!(tokens, whole.0.iter().filter(|p| p.token.is_some()).map(|p| p.token).collect::<Vec<_>>());
}

#[test]
fn without_tokenizer() {
    let model = nano();
    let mut session = session_of(&model);
    let error = session.pieces(None, &GenerateOptions::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::State); // no logits
    session.append(&[1, 2, 3]).unwrap();
    let error = session.pieces(None, &GenerateOptions::new().stop_strings(["x"])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let run = by_iterator(&mut session, None, &GenerateOptions::new().ignore_eos(true).max_tokens(5)).unwrap();
    assert_eq!((run.2, text_of(&run)), (5, String::new()));
}

#[test]
fn refused_options() {
    let mut session = after(START);
    for options in [
        GenerateOptions::new().stop_strings([""]),
        GenerateOptions::new().stop_strings(vec!["x"; 65]),
        GenerateOptions::new().stop_tokens([Token::MAX]),
        GenerateOptions::new().n_top_logprobs(1025),
    ] {
        let expected = by_callback(&mut session, None, &options).unwrap_err();
        assert_eq!(expected.kind(), ErrorKind::Invalid);
        assert_eq!(by_iterator(&mut session, None, &options).unwrap_err(), expected);
    }
    let mut foreign = Sampler::new(&nano(), &afmoe::SamplerOptions::new()).unwrap();
    assert_eq!(session.pieces(Some(&mut foreign), &GenerateOptions::new()).unwrap_err().kind(), ErrorKind::State);
}
