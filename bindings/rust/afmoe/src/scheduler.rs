//! Many answers side by side. A request owns its session, sampler, tokens and closures until it is done.

use std::ffi::c_void;
use std::fmt;
use std::ops::ControlFlow;
use std::ptr;

use crate::call::{self, call, guard, Handle};
use crate::callback::stop;
use crate::generate::StopArrays;
use crate::{sys, Context, Error, GenerateOptions, Generated, Piece, Result, Sampler, Session, Token};

/// How many requests a scheduler takes.
#[derive(Clone, Debug)]
pub struct SchedulerOptions {
    raw: sys::afmoe_scheduler_options,
}

impl Default for SchedulerOptions {
    fn default() -> Self {
        SchedulerOptions { raw: call::init(sys::afmoe_scheduler_options_init) }
    }
}

impl SchedulerOptions {
    /// The library's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests computed together, 1 to 4096; the others wait. 8 unless said.
    pub fn max_running(mut self, n: u32) -> Self {
        self.raw.max_running = n;
        self
    }

    /// Requests waiting, 1 to 1048576; [`Scheduler::submit`] answers [`Limit`](crate::ErrorKind::Limit) above. 256
    /// unless said.
    pub fn max_waiting(mut self, n: u32) -> Self {
        self.raw.max_waiting = n;
        self
    }

    /// Tokens of prompts in a step that also computes answers, 1 to 4096: fewer keep answers flowing, more read prompts
    /// sooner. 64 unless said.
    pub fn max_prompt_tokens(mut self, n: u32) -> Self {
        self.raw.max_prompt_tokens = n;
        self
    }
}

type PieceClosure = dyn FnMut(Piece<'_>) -> ControlFlow<()> + Send;
type DoneClosure = dyn FnOnce(Answer) + Send;

/// One request: append these tokens, then generate.
pub struct Request {
    session: Session,
    sampler: Option<Sampler>,
    tokens: Vec<Token>,
    options: GenerateOptions,
    priority: i32,
    on_piece: Option<Box<PieceClosure>>,
}

impl Request {
    /// Append these tokens to this session, which is of the scheduler's context, and answer greedily. Without tokens:
    /// answer from the session's logits.
    pub fn new(session: Session, tokens: impl Into<Vec<Token>>) -> Request {
        let options = GenerateOptions::new();
        Request { session, sampler: None, tokens: tokens.into(), options, priority: 0, on_piece: None }
    }

    /// Chooses the tokens.
    pub fn sampler(mut self, sampler: Sampler) -> Self {
        self.sampler = Some(sampler);
        self
    }

    /// What is generated and where it stops. Their [`Cancel`](crate::Cancel) stops this request, also while it waits.
    pub fn options(mut self, options: GenerateOptions) -> Self {
        self.options = options;
        self
    }

    /// The larger comes first; of the same, who was submitted first. 0 unless said.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Hears each piece of the answer, on the thread that steps. `Break` ends this request.
    pub fn on_piece(mut self, on_piece: impl FnMut(Piece<'_>) -> ControlFlow<()> + Send + 'static) -> Self {
        self.on_piece = Some(Box::new(on_piece));
        self
    }

    /// The session back, for a request that was [`Refused`].
    pub fn into_session(self) -> Session {
        self.session
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("session", &self.session)
            .field("n_tokens", &self.tokens.len())
            .field("options", &self.options)
            .field("priority", &self.priority)
            .finish_non_exhaustive()
    }
}

/// A request at its end.
#[non_exhaustive]
#[derive(Debug)]
pub struct Answer {
    /// The request's own; it has the tokens and the answer, and may be used at once.
    pub session: Session,
    /// The request's own.
    pub sampler: Option<Sampler>,
    /// How it ended. One that was cancelled or found no room is no failure, as in [`Session::generate`].
    pub generated: Result<Generated>,
}

/// A request that was not taken.
#[non_exhaustive]
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub error: Error,
    /// As it was.
    pub request: Box<Request>,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        refused.error
    }
}

/// A request in the library's hands: from submit until its end nothing but the callbacks touches it.
struct Job {
    request: Box<Request>,
    arrays: StopArrays,
    on_done: Box<DoneClosure>,
}

impl Job {
    unsafe extern "C" fn on_piece(job: *mut c_void, piece: *const sys::afmoe_piece) -> i32 {
        // SAFETY: the job is not done, one callback runs at a time, and the piece lives for the call.
        let (closure, piece) = unsafe { (&mut (*(job as *mut Job)).request.on_piece, Piece::from_raw(&*piece)) };
        guard(1, || closure.as_mut().map_or(0, |closure| stop(closure(piece))))
    }

    unsafe extern "C" fn on_done(
        job: *mut c_void,
        status: sys::afmoe_status,
        result: *const sys::afmoe_generate_result,
        error: *const sys::afmoe_error,
    ) {
        guard((), || {
            // SAFETY: this is the box that submit gave away, and the library has let go of all in it; result and error
            // live for the call.
            let (job, result, error) = unsafe { (Box::from_raw(job as *mut Job), &*result, &*error) };
            let Job { request, on_done, .. } = *job;
            let status = if status < 0 { Err(Error::from_raw(status, error)) } else { Ok(()) };
            let generated = Generated::of(status, result);
            let Request { session, sampler, .. } = *request;
            on_done(Answer { session, sampler, generated });
        });
    }
}

/// What a scheduler has to do.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SchedulerInfo {
    /// Requests that wait.
    pub n_waiting: u64,
    /// Requests that are computed.
    pub n_running: u64,
    /// Requests that ended, well or not.
    pub n_done: u64,
}

/// Makes the answers to many requests in steps of one context, side by side. It has no thread: somebody calls
/// [`step`](Scheduler::step) or [`run`](Scheduler::run), others [`submit`](Scheduler::submit) meanwhile. Each answer is
/// the one [`Session::generate`] would give. Dropped, it ends what is left as cancelled.
///
/// ```
/// # std::env::set_current_dir("../../../models").unwrap();
/// use afmoe::{Context, GenerateOptions, Message, Model, Request, Scheduler};
/// use std::sync::mpsc;
///
/// let model = Model::open("pico-q8_0.gguf")?;
/// let context = Context::new(&model)?;
/// let scheduler = Scheduler::new(&context)?;
/// let (done, answers) = mpsc::channel();
/// for country in ["France", "Italy"] {
///     let question = format!("What is the capital of {country}?");
///     let prompt = model.chat_tokenize(&[Message::user(&*question)])?;
///     let request = Request::new(context.session()?, prompt).options(GenerateOptions::new().max_tokens(100));
///     let done = done.clone();
///     scheduler.submit(request, move |answer| done.send(answer).unwrap())?;
/// }
/// scheduler.run()?;
/// for answer in answers.try_iter() {
///     println!("{} tokens", answer.generated?.n_generated);
/// }
/// # Ok::<(), afmoe::Error>(())
/// ```
#[derive(Debug)]
pub struct Scheduler {
    handle: Handle<sys::afmoe_scheduler>, // goes before the context does
    context: Context,
}

// SAFETY: submit and get_info are for any thread, step for one caller at a time, which the library checks. What
// requests own is Send and comes out on the thread that steps or drops.
unsafe impl Send for Scheduler {}
unsafe impl Sync for Scheduler {}

impl Scheduler {
    /// A scheduler with the library's defaults.
    pub fn new(context: &Context) -> Result<Scheduler> {
        Scheduler::with_options(context, &SchedulerOptions::new())
    }

    /// The same with options.
    pub fn with_options(context: &Context, options: &SchedulerOptions) -> Result<Scheduler> {
        // SAFETY: options live for the call; the scheduler takes its own reference on the context.
        let create = |out: *mut *mut sys::afmoe_scheduler, error| unsafe {
            sys::afmoe_scheduler_create(out, context.as_ptr(), &options.raw, error)
        };
        Ok(Scheduler { handle: Handle::create(sys::afmoe_scheduler_free, create)?, context: context.clone() })
    }

    /// The context it computes in.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// Put a request in line, from any thread, also while another steps or from inside a closure. `on_done` is called
    /// with its end on the thread that steps (or drops the scheduler); there, step and run answer
    /// [`Busy`](crate::ErrorKind::Busy).
    ///
    /// One that is refused comes back: [`Limit`](crate::ErrorKind::Limit) when too many wait,
    /// [`Invalid`](crate::ErrorKind::Invalid), [`State`](crate::ErrorKind::State) and others as
    /// [`Session::generate`] would answer.
    pub fn submit(&self, request: Request, on_done: impl FnOnce(Answer) + Send + 'static) -> Result<(), Refused> {
        let arrays = StopArrays::of(&request.options);
        let mut job = Box::new(Job { request: Box::new(request), arrays, on_done: Box::new(on_done) });
        let Request { session, sampler, tokens, options, priority, on_piece } = &mut *job.request;
        let mut raw_options = options.raw_with(&job.arrays);
        let mut raw = call::init(sys::afmoe_request_init);
        raw.priority = *priority;
        raw.session = session.as_ptr();
        raw.sampler = sampler.as_mut().map_or(ptr::null_mut(), Sampler::as_ptr);
        raw.tokens = tokens.as_ptr().cast();
        raw.n_tokens = tokens.len() as u64;
        let hears = on_piece.is_some();
        let job = Box::into_raw(job);
        if hears {
            raw_options.on_piece = Some(Job::on_piece);
            raw_options.on_piece_data = job.cast();
        }
        raw.options = &raw_options;
        raw.on_done = Some(Job::on_done);
        raw.on_done_data = job.cast();
        // SAFETY: all the options point to is on the heap of the job, which is the library's until on_done; another
        // thread may have dropped it when this returns.
        match call(|error| unsafe { sys::afmoe_scheduler_submit(self.handle.as_ptr(), &raw, error) }) {
            Ok(_) => Ok(()),
            // SAFETY: on failure nothing was kept and on_done is not called.
            Err(error) => Err(Refused { error, request: unsafe { Box::from_raw(job) }.request }),
        }
    }

    /// One pass: the next token of every answer, and a part of the prompts that are being read. False when nothing is
    /// left to do. What happens to a request is told to its closures only; one that panics ends its own request, and
    /// the panic goes on after the pass. [`Busy`](crate::ErrorKind::Busy) when another caller steps.
    pub fn step(&self) -> Result<bool> {
        // SAFETY: self holds the scheduler.
        let status = call(|error| unsafe { sys::afmoe_scheduler_step(self.handle.as_ptr(), error) })?;
        Ok(status != sys::AFMOE_END)
    }

    /// Steps until nothing is left to do.
    pub fn run(&self) -> Result<()> {
        while self.step()? {}
        Ok(())
    }

    /// What there is to do, from any thread.
    pub fn info(&self) -> Result<SchedulerInfo> {
        let mut raw = call::init(sys::afmoe_scheduler_info_init);
        // SAFETY: raw has its size set.
        call(|error| unsafe { sys::afmoe_scheduler_get_info(self.handle.as_ptr(), &mut raw, error) })?;
        Ok(SchedulerInfo { n_waiting: raw.n_waiting, n_running: raw.n_running, n_done: raw.n_done })
    }
}
