//! Closures that stop a call, and that panic: the panic comes out of the call, and all can be used afterwards.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::Arc;
use std::thread;

use afmoe::{
    AppendOptions, Context, ContextOptions, ErrorKind, GenerateOptions, Load, LogLevel, Message, Model, ModelOptions,
    Token,
};

use super::{after, pico, pico_path, session_of};

/// What a panic says that comes out of a closure.
fn panic_of<R>(closure: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(closure)).err().expect("it returned");
    panic.downcast_ref::<&str>().map(|text| text.to_string()).expect("the panic's own text")
}

fn tokens(n: u32) -> Vec<Token> {
    (0..n).map(|i| i * 7 % 500 + 10).collect()
}

#[test]
fn piece() {
    let mut session = after("Once upon a time");
    let n = session.n_tokens().unwrap();
    let options = GenerateOptions::new().max_tokens(5);
    assert_eq!(panic_of(|| session.generate(None, &options, |_| panic!("in on_piece"))), "in on_piece");
    assert_eq!(session.n_tokens().unwrap(), n + 1);
    let end = session.generate(None, &options, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(end.n_generated, 5);
}

#[test]
fn progress_of_append() {
    let model = pico();
    let context = Context::with_options(&model, &ContextOptions::new().chunk_tokens(8)).unwrap();
    let mut session = context.session().unwrap();
    let tokens = tokens(32);

    let options = AppendOptions::new().progress(|_, _| panic!("in progress"));
    assert_eq!(panic_of(|| session.append_with(&tokens, &options)), "in progress");
    assert_eq!(session.n_tokens().unwrap(), 8);

    let mut told = Vec::new();
    let options = AppendOptions::new().progress(|done, total| {
        told.push((done, total));
        if done < 16 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    let error = session.sync_with(&tokens, &options).unwrap_err();
    drop(options);
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert_eq!(told, [(8, 24), (16, 24)]);
    assert_eq!(session.sync(&tokens).unwrap().n_computed, 8);
}

#[test]
fn progress_of_open() {
    let options = ModelOptions::new().load(Load::Read).progress(|_, _| panic!("in progress"));
    assert_eq!(panic_of(|| Model::open_with(pico_path(), &options)), "in progress");

    let options = ModelOptions::new().load(Load::Read).progress(|_, _| ControlFlow::Break(()));
    assert_eq!(Model::open_with(pico_path(), &options).unwrap_err().kind(), ErrorKind::Cancelled);

    let most = Cell::new((0, 0));
    let options = ModelOptions::new().load(Load::Read).progress(|done, total| {
        most.set((done, total));
        ControlFlow::Continue(())
    });
    Model::open_with(pico_path(), &options).unwrap();
    assert!(most.get().0 > 8_000_000 && most.get().0 == most.get().1, "{most:?}");
}

/// A log cannot stop a call: what was made is taken back, and the panic goes on.
#[test]
fn log() {
    let model = pico();
    let mut lines = Vec::new();
    let options = ContextOptions::new().n_threads(2).log(|level, line| lines.push((level, line.to_string())));
    Context::with_options(&model, &options).unwrap();
    drop(options);
    assert_eq!((lines.len(), lines[0].0), (1, LogLevel::Info));
    assert!(lines[0].1.contains("2 threads"), "{lines:?}");

    let options = ContextOptions::new().log(|_, _| panic!("in log"));
    assert_eq!(panic_of(|| Context::with_options(&model, &options)), "in log");
}

#[test]
fn host_threads() {
    let model = pico();
    let n_stages = Arc::new(AtomicU32::new(0));
    let seen = n_stages.clone();
    let options = ContextOptions::new().n_threads(3).parallel(move |stage| {
        seen.fetch_add(1, Ordering::Relaxed);
        thread::scope(|scope| {
            for worker in 0..stage.n_workers() {
                scope.spawn(move || stage.run(worker));
            }
        });
        stage.run(0); // twice, and one that is none: no harm
        stage.run(u32::MAX);
        ControlFlow::Continue(())
    });
    let context = Context::with_options(&model, &options).unwrap();
    drop(options); // the context keeps the closure
    let mut session = context.session().unwrap();
    drop(context);
    session.append(&tokens(4)).unwrap();
    assert!(n_stages.load(Ordering::Relaxed) > 0);

    let mut ours = session_of(&model);
    ours.append(&tokens(4)).unwrap();
    assert_eq!(session.logits().unwrap(), ours.logits().unwrap());
    drop(session);
    assert_eq!(Arc::strong_count(&n_stages), 1); // and lets go of it
}

#[test]
fn host_threads_that_fail() {
    let model = pico();
    let fail = Arc::new(AtomicU32::new(0));
    let how = fail.clone();
    let options = ContextOptions::new().n_threads(2).parallel(move |stage| match how.load(Ordering::Relaxed) {
        0 => panic!("in parallel"),
        1 => ControlFlow::Break(()),
        _ => {
            (0..stage.n_workers()).for_each(|worker| stage.run(worker));
            ControlFlow::Continue(())
        }
    });
    let mut session = Context::with_options(&model, &options).unwrap().session().unwrap();
    assert_eq!(panic_of(|| session.append(&tokens(4))), "in parallel");
    fail.store(1, Ordering::Relaxed);
    assert_eq!(session.append(&tokens(4)).unwrap_err().kind(), ErrorKind::Cancelled);
    fail.store(2, Ordering::Relaxed);
    session.append(&tokens(4)).unwrap();
}

/// Calls on other objects from inside a callback; their panics stay apart.
#[test]
fn nested() {
    let mut session = after("Once upon a time");
    let context = session.context().clone();
    let mut inner_tokens = 0;
    let options = GenerateOptions::new().max_tokens(2);
    let end = session.generate(None, &options, |_| {
        let mut inner = context.session().unwrap();
        let prompt = context.model().chat_tokenize(&[Message::user("Hello")]).unwrap();
        inner.append(&prompt).unwrap();
        assert_eq!(panic_of(|| inner.generate(None, &GenerateOptions::new(), |_| panic!("inner"))), "inner");
        inner_tokens += inner.n_tokens().unwrap();
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap().n_generated, 2);
    assert!(inner_tokens > 0);
}

/// Options that call themselves from their own closure: a panic of the cell, not a second borrow.
#[test]
fn closure_within_itself() {
    let options: std::rc::Rc<std::cell::RefCell<Option<ModelOptions<'_>>>> = Default::default();
    let again = options.clone();
    *options.borrow_mut() = Some(ModelOptions::new().load(Load::Read).progress(move |_, _| {
        let options = again.borrow();
        let _ = Model::open_with(pico_path(), options.as_ref().unwrap());
        ControlFlow::Continue(())
    }));
    {
        let lent = options.borrow();
        let open = || Model::open_with(pico_path(), lent.as_ref().unwrap());
        assert!(catch_unwind(AssertUnwindSafe(open)).is_err());
    }
    options.take(); // it held itself
}
