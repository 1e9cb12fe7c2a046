//! What must not compile, beside what the documentation shows. Each example differs from one that compiles in the one
//! thing it is about.
//!
//! Two threads on a session:
//! ```compile_fail,E0277
//! fn f(session: &afmoe::Session) {
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| session.n_tokens());
//!         scope.spawn(|| session.n_tokens());
//!     });
//! }
//! ```
//! ```
//! fn f(model: &afmoe::Model) {
//!     std::thread::scope(|scope| {
//!         scope.spawn(|| model.info());
//!         scope.spawn(|| model.info());
//!     });
//! }
//! ```
//!
//! Calls on a session that is in a call:
//! ```compile_fail,E0499
//! fn f(session: &mut afmoe::Session) -> afmoe::Result<()> {
//!     let mut pieces = session.pieces(None, &afmoe::GenerateOptions::new())?;
//!     session.append(&[1])?;
//!     pieces.next();
//!     Ok(())
//! }
//! ```
//! ```compile_fail,E0500
//! use std::ops::ControlFlow;
//! fn f(session: &mut afmoe::Session) -> afmoe::Result<()> {
//!     let _ = session.generate(None, &afmoe::GenerateOptions::new(), |_| {
//!         session.append(&[1]).unwrap();
//!         ControlFlow::Continue(())
//!     })?;
//!     Ok(())
//! }
//! ```
//!
//! One session twice in a step, and a session that a scheduler has:
//! ```compile_fail,E0499
//! use afmoe::StepItem;
//! fn f(context: &afmoe::Context, one: &mut afmoe::Session) {
//!     let _ = context.step([StepItem::new(one, &[1]), StepItem::new(one, &[2])]);
//! }
//! ```
//! ```
//! use afmoe::StepItem;
//! fn f(context: &afmoe::Context, one: &mut afmoe::Session, other: &mut afmoe::Session) {
//!     let _ = context.step([StepItem::new(one, &[1]), StepItem::new(other, &[2])]);
//! }
//! ```
//! ```compile_fail,E0382
//! fn f(scheduler: &afmoe::Scheduler, session: afmoe::Session) {
//!     let _ = scheduler.submit(afmoe::Request::new(session, [1]), |_| {});
//!     let _ = session.n_tokens();
//! }
//! ```
//! A callback of a scheduler that is not for any thread:
//! ```compile_fail,E0277
//! fn f(scheduler: &afmoe::Scheduler, session: afmoe::Session) {
//!     let here = std::rc::Rc::new(());
//!     let _ = scheduler.submit(afmoe::Request::new(session, [1]), move |_| drop(here));
//! }
//! ```
//!
//! What is lent, when its owner is gone:
//! ```compile_fail,E0505
//! fn f(model: afmoe::Model) -> afmoe::Result<()> {
//!     let (bytes, _) = model.token_text(1)?;
//!     drop(model);
//!     println!("{}", bytes[0]);
//!     Ok(())
//! }
//! ```
//! ```compile_fail,E0505
//! fn f(session: afmoe::Session) -> afmoe::Result<()> {
//!     let logits = session.logits()?;
//!     drop(session);
//!     println!("{}", logits[0]);
//!     Ok(())
//! }
//! ```
//! ```compile_fail,E0499
//! fn f(decoder: &mut afmoe::StreamDecoder) -> afmoe::Result<()> {
//!     let first = decoder.push(1)?;
//!     let second = decoder.push(2)?;
//!     println!("{first}{second}");
//!     Ok(())
//! }
//! ```
//! ```compile_fail,E0382
//! fn f(session: afmoe::Session) {
//!     drop(session);
//!     drop(session);
//! }
//! ```
//!
//! A piece that outlives the callback, and memory that does not live as long as the model:
//! ```compile_fail,E0521
//! use std::ops::ControlFlow;
//! fn f(session: &mut afmoe::Session) -> afmoe::Result<()> {
//!     let mut kept = Vec::new();
//!     let _ = session.generate(None, &afmoe::GenerateOptions::new(), |piece| {
//!         kept.push(piece);
//!         ControlFlow::Continue(())
//!     })?;
//!     Ok(())
//! }
//! ```
//! ```compile_fail,E0597
//! fn f() -> afmoe::Result<afmoe::Model> {
//!     let bytes = vec![0u8; 10];
//!     let lent: &[u8] = &bytes;
//!     afmoe::Model::open_memory(lent, &afmoe::ModelOptions::new())
//! }
//! ```
//!
//! A parallel stage that outlives its closure:
//! ```compile_fail,E0521
//! use std::ops::ControlFlow;
//! let options = afmoe::ContextOptions::new().parallel(|stage| {
//!     std::thread::spawn(move || stage.run(0));
//!     ControlFlow::Continue(())
//! });
//! ```
