//! Answers of a scheduler are those of generate, and what requests own comes back.

use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::mpsc;
use std::sync::Arc;
use std::thread;

use afmoe::{
    Answer, Cancel, Context, ContextOptions, ErrorKind, Finish, GenerateOptions, Message, Model, Request, Sampler,
    Scheduler, SchedulerOptions, Token,
};

use super::pico;

fn context() -> Context {
    Context::with_options(&pico(), &ContextOptions::new().n_threads(2)).unwrap()
}

fn prompt(model: &Model, i: usize) -> Vec<Token> {
    let place = ["France", "Italy", "Spain", "Poland"][i % 4];
    model.chat_tokenize(&[Message::user(&*format!("What is the capital of {place}?"))]).unwrap()
}

fn sampler(model: &Model, i: usize) -> Sampler {
    let options = model.sampler_options().unwrap().temperature(0.8).seed(i as u64);
    Sampler::new(model, &options).unwrap()
}

fn options() -> GenerateOptions {
    GenerateOptions::new().max_tokens(30).stop_strings(["\n\n", "Rome"]).max_draft(4)
}

/// Submit, and receive the answer here.
fn submit(scheduler: &Scheduler, request: Request) -> mpsc::Receiver<Answer> {
    let (done, answer) = mpsc::channel();
    scheduler.submit(request, move |answer| done.send(answer).unwrap()).unwrap();
    answer
}

#[test]
fn equals_generate() {
    let context = context();
    let model = context.model().clone();
    let scheduler = Scheduler::with_options(&context, &SchedulerOptions::new().max_running(3)).unwrap();
    let mut answers = Vec::new();
    for i in 0..8 {
        let (text, pieces) = mpsc::channel();
        let request = Request::new(context.session().unwrap(), prompt(&model, i)).options(options());
        let request = request.on_piece(move |piece| {
            text.send(piece.text.into_owned()).unwrap();
            ControlFlow::Continue(())
        });
        let request = if i % 2 == 0 { request } else { request.sampler(sampler(&model, i)) };
        answers.push((submit(&scheduler, request), pieces));
    }
    assert_eq!(scheduler.info().unwrap().n_waiting, 8);
    scheduler.run().unwrap();
    assert_eq!(scheduler.info().unwrap().n_done, 8);
    assert!(!scheduler.step().unwrap());

    for (i, (answer, pieces)) in answers.into_iter().enumerate() {
        let answer = answer.try_recv().unwrap();
        let mut alone = context.session().unwrap();
        alone.append(&prompt(&model, i)).unwrap();
        let mut sampler = if i % 2 == 0 { None } else { Some(sampler(&model, i)) };
        assert_eq!(answer.sampler.is_some(), sampler.is_some());
        let mut text = String::new();
        let end = alone.generate(sampler.as_mut(), &options(), |piece| {
            text += &piece.text;
            ControlFlow::Continue(())
        });
        let (end, found) = (end.unwrap(), answer.generated.unwrap());
        assert_eq!(
            (found.finish, found.n_generated, found.stop_string),
            (end.finish, end.n_generated, end.stop_string)
        );
        assert_eq!(pieces.iter().collect::<String>(), text);
        assert_eq!(answer.session.tokens(), alone.tokens());
        assert_eq!(answer.session.logits(), alone.logits());
    }
}

#[test]
fn refused() {
    let context = context();
    let scheduler = Scheduler::with_options(&context, &SchedulerOptions::new().max_waiting(1)).unwrap();
    let refused = |request| {
        let refused = scheduler.submit(request, |_| panic!("it was not taken")).unwrap_err();
        let kind = refused.error.kind();
        let mut session = refused.request.into_session();
        session.append(&[1]).unwrap(); // and is free
        kind
    };
    let session = || context.session().unwrap();
    assert_eq!(refused(Request::new(session(), [])), ErrorKind::State);
    assert_eq!(refused(Request::new(self::context().session().unwrap(), [1])), ErrorKind::Invalid);
    let too_many = GenerateOptions::new().n_top_logprobs(1025);
    assert_eq!(refused(Request::new(session(), [1]).options(too_many)), ErrorKind::Invalid);
    let answer = submit(&scheduler, Request::new(session(), [1]));
    assert_eq!(refused(Request::new(session(), [1])), ErrorKind::Limit);
    drop(scheduler); // ends what waits
    let answer = answer.try_recv().unwrap();
    assert_eq!(answer.generated.unwrap().finish, Finish::Cancelled);
    let refused = Scheduler::with_options(&context, &SchedulerOptions::new().max_prompt_tokens(0)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
}

#[test]
fn failures_and_cancel() {
    let context = context();
    let scheduler = Scheduler::new(&context).unwrap();
    let cancel = Cancel::new().unwrap();
    let session = || context.session().unwrap();
    let stopped = submit(&scheduler, Request::new(session(), [1]).options(GenerateOptions::new().cancel(&cancel)));
    let bad = submit(&scheduler, Request::new(session(), [Token::MAX]));
    let broken = submit(&scheduler, Request::new(session(), [1]).on_piece(|_| ControlFlow::Break(())));
    cancel.set();
    scheduler.run().unwrap();
    assert_eq!(stopped.try_recv().unwrap().generated.unwrap().finish, Finish::Cancelled);
    assert_eq!(bad.try_recv().unwrap().generated.unwrap_err().kind(), ErrorKind::Invalid);
    let end = broken.try_recv().unwrap().generated.unwrap();
    assert_eq!((end.finish, end.n_generated), (Finish::Cancelled, 1));
}

/// A panic ends its own request and comes out of the step; the other answers lose nothing.
#[test]
fn panics() {
    let context = context();
    let model = context.model().clone();
    let scheduler = Scheduler::new(&context).unwrap();
    let request = || Request::new(context.session().unwrap(), prompt(&model, 0)).options(options());
    let panicked = submit(&scheduler, request().on_piece(|_| panic!("in on_piece")));
    let whole = submit(&scheduler, request());
    scheduler.submit(request().priority(1), |_| panic!("in on_done")).unwrap();
    let mut texts = Vec::new();
    loop {
        match catch_unwind(AssertUnwindSafe(|| scheduler.run())) {
            Ok(end) => break end.unwrap(),
            Err(panic) => texts.push(*panic.downcast_ref::<&str>().unwrap()),
        }
    }
    texts.sort_unstable();
    assert_eq!(texts, ["in on_done", "in on_piece"]);
    assert_eq!(panicked.try_recv().unwrap().generated.unwrap().n_generated, 1);
    assert_ne!(whole.try_recv().unwrap().generated.unwrap().finish, Finish::Cancelled);
}

/// Requests from other threads and from inside closures, while one thread steps.
#[test]
fn threads() {
    let context = context();
    let model = context.model().clone();
    let scheduler = Arc::new(Scheduler::new(&context).unwrap());
    let (done, answers) = mpsc::channel();
    let workers: Vec<_> = (0..3)
        .map(|i| {
            let (scheduler, context, model, done) = (scheduler.clone(), context.clone(), model.clone(), done.clone());
            thread::spawn(move || {
                let again = scheduler.clone();
                let request = Request::new(context.session().unwrap(), prompt(&model, i)).options(options());
                let first = move |answer: Answer| {
                    assert_eq!(again.step().unwrap_err().kind(), ErrorKind::Busy);
                    let mut session = answer.session;
                    session.append(&[1]).unwrap();
                    again.submit(Request::new(session, []).options(options()), move |a| done.send(a).unwrap()).unwrap();
                };
                scheduler.submit(request, first).unwrap();
            })
        })
        .collect();
    let mut n_answers = 0;
    while n_answers < 3 {
        scheduler.run().unwrap();
        for answer in answers.try_iter() {
            assert_ne!(answer.generated.unwrap().finish, Finish::Cancelled);
            n_answers += 1;
        }
    }
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let scheduler = Arc::try_unwrap(scheduler).expect("the closures are gone");
    assert_eq!(scheduler.info().unwrap().n_done, 6);
}
