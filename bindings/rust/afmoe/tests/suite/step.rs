//! A step is appends, side by side.

use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};

use afmoe::{AppendOptions, Cancel, ErrorKind, StepItem, StepOptions, Token};

use super::{pico, session_of};

fn tokens(n: u32, by: u32) -> Vec<Token> {
    (0..n).map(|i| i * by % 500 + 10).collect()
}

#[test]
fn equals_append() {
    let mut one = session_of(&pico());
    let context = one.context().clone();
    let mut other = context.session().unwrap();
    let (of_one, of_other) = (tokens(90, 7), tokens(1, 11));
    let told = std::cell::Cell::new(0);
    let options = AppendOptions::new().logprobs(1..90).progress(|done, _| {
        told.set(done);
        ControlFlow::Continue(())
    });
    let items = [StepItem::new(&mut one, &of_one).options(&options), StepItem::new(&mut other, &of_other)];
    let done = context.step(items).unwrap();
    assert_eq!(told.get(), 90);

    let mut alone = context.session().unwrap();
    let expected = alone.append_with(&of_one, &AppendOptions::new().logprobs(1..90)).unwrap();
    assert_eq!(done[0].as_ref().unwrap(), &expected);
    assert_eq!(one.logits(), alone.logits());
    let mut alone = context.session().unwrap();
    assert_eq!(done[1].as_ref().unwrap().appended, alone.append(&of_other).unwrap());
    assert_eq!(other.logits(), alone.logits());
    assert_eq!(context.step([]).unwrap(), []);
}

#[test]
fn failures_are_their_own() {
    let mut good = session_of(&pico());
    let context = good.context().clone();
    let (mut bad, mut foreign, mut stopped) =
        (context.session().unwrap(), session_of(&pico()), context.session().unwrap());
    let cancel = Cancel::new().unwrap();
    cancel.set();
    let cancelled = AppendOptions::new().cancel(&cancel);
    let mut heard = Vec::new();
    let options = StepOptions::new().on_item(|i, done| {
        heard.push((i, done.map(|done| done.n_tokens).map_err(|error| error.kind())));
        ControlFlow::Continue(())
    });
    let items = [
        StepItem::new(&mut bad, &[Token::MAX]),
        StepItem::new(&mut good, &[1, 2, 3]),
        StepItem::new(&mut foreign, &[1]),
        StepItem::new(&mut stopped, &[1]).options(&cancelled),
    ];
    let done = context.step_with(items, &options).unwrap();
    drop(options);
    let kinds: Vec<_> =
        done.into_iter().map(|done| done.map(|done| done.appended.n_tokens).map_err(|error| error.kind())).collect();
    let expected = [Err(ErrorKind::Invalid), Ok(3), Err(ErrorKind::Invalid), Err(ErrorKind::Cancelled)];
    assert_eq!(kinds, expected);
    heard.sort_by_key(|(i, _)| *i);
    assert_eq!(heard, expected.into_iter().enumerate().collect::<Vec<_>>());

    let options = StepOptions::new().cancel(&cancel);
    let done = context.step_with([StepItem::new(&mut good, &[4])], &options).unwrap();
    assert_eq!(done[0].as_ref().unwrap_err().kind(), ErrorKind::Cancelled);
}

#[test]
fn closures_that_stop() {
    let mut one = session_of(&pico());
    let context = one.context().clone();
    let mut other = context.session().unwrap();
    let long = tokens(2000, 7);
    let options = StepOptions::new().on_item(|_, _| ControlFlow::Break(()));
    let items = [StepItem::new(&mut one, &[1]), StepItem::new(&mut other, &long)];
    let done = context.step_with(items, &options).unwrap();
    assert!(done[0].is_ok());
    assert_eq!(done[1].as_ref().unwrap_err().kind(), ErrorKind::Cancelled);

    // The second closure is called after the first has panicked: its own calls do not meet that panic.
    let mut n_heard = 0;
    let options = StepOptions::new().on_item(|i, _| {
        context.session().unwrap().append(&[1]).unwrap();
        n_heard += 1;
        assert!(i == 1, "in on_item");
        ControlFlow::Continue(())
    });
    let items = [StepItem::new(&mut one, &[1]), StepItem::new(&mut other, &long)];
    let panic = catch_unwind(AssertUnwindSafe(|| context.step_with(items, &options))).unwrap_err();
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"in on_item"));
    drop(options);
    assert_eq!(n_heard, 2);
    one.append(&[2]).unwrap();
    other.append(&[2]).unwrap();
}
