//! Objects end in any order, on any thread, and what they were lent is let go once.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{mpsc, Arc};
use std::thread;
use std::time::Duration;

use afmoe::{
    AppendOptions, Cancel, Context, ContextOptions, ErrorKind, Finish, GenerateOptions, Load, Model, ModelOptions,
    Sampler, SamplerOptions, StreamDecoder,
};

use super::{nano, pico, pico_path, session_of};

/// The k-th order of n things.
fn order(mut k: usize, n: usize) -> Vec<usize> {
    let mut left: Vec<_> = (0..n).collect();
    let mut out = Vec::new();
    while !left.is_empty() {
        out.push(left.remove(k % left.len()));
        k /= left.len() + 1;
    }
    out
}

/// Bytes that count when they are dropped.
struct Counted(Vec<u8>, Arc<AtomicU32>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn any_order() {
    let bytes = std::fs::read(pico_path()).unwrap();
    for k in 0..24 {
        let dropped = Arc::new(AtomicU32::new(0));
        let model = Model::open_memory(Counted(bytes.clone(), dropped.clone()), &ModelOptions::new()).unwrap();
        let context = Context::with_options(&model, &ContextOptions::new().n_threads(1)).unwrap();
        let mut session = context.session().unwrap();
        session.append(&[1, 2, 3]).unwrap();
        let sampler = Sampler::new(&model, &SamplerOptions::new()).unwrap();
        let mut things: Vec<Option<Box<dyn Send>>> =
            vec![Some(Box::new(model)), Some(Box::new(context)), Some(Box::new(session)), Some(Box::new(sampler))];
        for i in order(k, things.len()) {
            assert_eq!(dropped.load(Ordering::SeqCst), 0);
            things[i] = None;
        }
        assert_eq!(dropped.load(Ordering::SeqCst), 1);
    }
}

#[test]
fn what_a_session_holds_is_enough() {
    let mut session = {
        let model = pico();
        let context = Context::new(&model).unwrap();
        context.session().unwrap()
    };
    let tokens = session.context().model().tokenize("Once upon").unwrap();
    session.append(&tokens).unwrap();
    let mut decoder = {
        let model = session.context().model().clone();
        drop(session);
        StreamDecoder::new(&model, true).unwrap()
    };
    assert_eq!(decoder.push(tokens[0]).unwrap(), "Once");
}

#[test]
fn memory_of_a_model() {
    let dropped = Arc::new(AtomicU32::new(0));
    let count = || dropped.load(Ordering::SeqCst);
    let bytes = std::fs::read(pico_path()).unwrap();

    let failure = Model::open_memory(Counted(b"GGUF".to_vec(), dropped.clone()), &ModelOptions::new()).unwrap_err();
    assert_eq!((failure.kind(), count()), (ErrorKind::Truncated, 1));

    // Dropped on the thread that has the last reference.
    let model = Model::open_memory(Counted(bytes.clone(), dropped.clone()), &ModelOptions::new()).unwrap();
    let other = model.clone();
    drop(model);
    assert_eq!(count(), 1);
    thread::spawn(move || assert!(other.info().has_weights)).join().unwrap();
    assert_eq!(count(), 2);

    // A panic while opening: dropped, whether the model had taken it or not.
    let options = ModelOptions::new().load(Load::Read).progress(|_, _| panic!("stop"));
    let memory = Counted(bytes, dropped.clone());
    assert!(catch_unwind(AssertUnwindSafe(|| Model::open_memory(memory, &options))).is_err());
    assert_eq!(count(), 3);
}

/// Memory whose drop panics: the panic comes out of the drop of the last that held it.
#[test]
fn memory_that_panics() {
    struct Bad(Vec<u8>);
    impl AsRef<[u8]> for Bad {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }
    impl Drop for Bad {
        fn drop(&mut self) {
            if !thread::panicking() {
                panic!("bad");
            }
        }
    }
    let model = Model::open_memory(Bad(std::fs::read(pico_path()).unwrap()), &ModelOptions::new()).unwrap();
    let session = session_of(&model);
    drop(model);
    assert!(catch_unwind(AssertUnwindSafe(|| drop(session))).is_err());
    assert!(pico().info().has_weights); // nothing is left over for the next call
}

#[test]
fn part_of_a_file() {
    use std::io::Write;
    let path = std::env::temp_dir().join(format!("afmoe-rust-{}", std::process::id()));
    let mut file = std::fs::File::create(&path).unwrap();
    let bytes = std::fs::read(pico_path()).unwrap();
    file.write_all(b"before").unwrap();
    file.write_all(&bytes).unwrap();
    file.write_all(b"behind").unwrap();
    let file = std::fs::File::open(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let model = Model::open_file(&file, 6, Some(bytes.len() as u64), &ModelOptions::new()).unwrap();
    drop(file);
    assert_eq!(model.info(), pico().info());
}

#[test]
fn sessions_on_threads() {
    let model = nano();
    let context = Context::with_options(&model, &ContextOptions::new().n_threads(2)).unwrap();
    let expected = {
        let mut session = context.session().unwrap();
        session.append(&[1, 2, 3, 4]).unwrap();
        session.logits().unwrap().to_vec()
    };
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let context = context.clone();
            thread::spawn(move || {
                let mut session = context.session().unwrap();
                session.append(&[1, 2, 3, 4]).unwrap();
                session // to another thread
            })
        })
        .collect();
    for worker in workers {
        assert_eq!(worker.join().unwrap().logits().unwrap(), expected);
    }
}

#[test]
fn cancel_from_another_thread() {
    let model = pico();
    let mut session = session_of(&model);
    session.append(&model.tokenize("Once upon a time").unwrap()).unwrap();
    let cancel = Cancel::new().unwrap();
    let (begun, wait) = mpsc::channel();
    let setter = {
        let cancel = cancel.clone();
        thread::spawn(move || {
            wait.recv_timeout(Duration::from_secs(60)).unwrap();
            cancel.set();
        })
    };
    let endless = GenerateOptions::new().ignore_eos(true).cancel(&cancel);
    let end = session
        .generate(None, &endless, |_| {
            let _ = begun.send(());
            std::ops::ControlFlow::Continue(())
        })
        .unwrap();
    setter.join().unwrap();
    assert_eq!(end.finish, Finish::Cancelled);

    // The flag stays up, also for a prompt; afterwards the session goes on.
    let options = AppendOptions::new().cancel(&cancel);
    assert_eq!(session.append_with(&[1, 2], &options).unwrap_err().kind(), ErrorKind::Cancelled);
    cancel.clear();
    session.append_with(&[1, 2], &options).unwrap();
}
