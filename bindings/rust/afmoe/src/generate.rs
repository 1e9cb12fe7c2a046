//! The loop: sample, append, decode text, stop.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ops::ControlFlow;
use std::os::raw::c_char;
use std::time::Duration;

use crate::call::{self, call, guard, slice, Handle};
use crate::callback::stop;
use crate::{sys, Cancel, Error, ErrorKind, Finish, Result, Sampler, Session, Token};

/// What is generated and where it stops.
#[derive(Clone, Debug, Default)]
pub struct GenerateOptions {
    ignore_eos: bool,
    max_tokens: Option<u64>,
    n_prompt: Option<u64>,
    stop_tokens: Vec<Token>,
    stop_strings: Vec<String>,
    n_top_logprobs: u64,
    keep_special: bool,
    cancel: Option<Cancel>,
    max_draft: u64,
}

impl GenerateOptions {
    /// Until something stops.
    pub fn new() -> Self {
        Self::default()
    }

    /// The model's stop set does not stop.
    pub fn ignore_eos(mut self, yes: bool) -> Self {
        self.ignore_eos = yes;
        self
    }

    /// Most tokens to generate.
    pub fn max_tokens(mut self, n: u64) -> Self {
        self.max_tokens = Some(n);
        self
    }

    /// Tokens of the timeline that count as prompt for the penalties. Unless said: all that are there at the start.
    pub fn n_prompt(mut self, n: u64) -> Self {
        self.n_prompt = Some(n);
        self
    }

    /// Further tokens that stop.
    pub fn stop_tokens(mut self, tokens: impl Into<Vec<Token>>) -> Self {
        self.stop_tokens = tokens.into();
        self
    }

    /// Texts that stop, also across tokens, and are not given out; at most 64.
    pub fn stop_strings<S: Into<String>>(mut self, strings: impl IntoIterator<Item = S>) -> Self {
        self.stop_strings = strings.into_iter().map(Into::into).collect();
        self
    }

    /// Alternatives in each piece, 0 to 1024.
    pub fn n_top_logprobs(mut self, n: u64) -> Self {
        self.n_top_logprobs = n;
        self
    }

    /// The text of control tokens appears in pieces.
    pub fn keep_special(mut self, yes: bool) -> Self {
        self.keep_special = yes;
        self
    }

    /// Stops the generation: what was generated is kept.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Most tokens to guess ahead, 0 to 64: where the last tokens occurred before, what followed them is computed
    /// together with the next token, and counts where it is what the sampler chooses. The same tokens come out, sooner
    /// where text repeats.
    pub fn max_draft(mut self, n: u64) -> Self {
        self.max_draft = n;
        self
    }

    /// For a call while self and the arrays are borrowed.
    pub(crate) fn raw_with(&self, arrays: &StopArrays) -> sys::afmoe_generate_options {
        let mut raw = call::init(sys::afmoe_generate_options_init);
        raw.ignore_eos = self.ignore_eos.into();
        raw.max_tokens = self.max_tokens.unwrap_or(raw.max_tokens);
        raw.n_prompt = self.n_prompt.unwrap_or(raw.n_prompt);
        raw.stop_tokens = self.stop_tokens.as_ptr().cast();
        raw.n_stop_tokens = self.stop_tokens.len() as u64;
        raw.n_top_logprobs = self.n_top_logprobs;
        raw.keep_special = self.keep_special.into();
        raw.cancel = Cancel::raw(self.cancel.as_ref());
        raw.max_draft = self.max_draft;
        raw.stop_strings = arrays.strings.as_ptr();
        raw.stop_string_bytes = arrays.bytes.as_ptr();
        raw.n_stop_strings = arrays.strings.len() as u64;
        raw
    }
}

/// Where the stop strings of options lie.
pub(crate) struct StopArrays {
    strings: Vec<*const c_char>,
    bytes: Vec<u64>,
}

impl StopArrays {
    /// Good while the options are not changed; they may be moved.
    pub(crate) fn of(options: &GenerateOptions) -> StopArrays {
        let strings = &options.stop_strings;
        StopArrays {
            strings: strings.iter().map(|string| string.as_ptr() as *const c_char).collect(),
            bytes: strings.iter().map(|string| string.len() as u64).collect(),
        }
    }
}

/// One step of a generation.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct Piece<'a> {
    /// `None` in a last piece that only brings text held back.
    pub token: Option<Token>,
    /// Whole characters that are final now; may be empty.
    pub text: Cow<'a, str>,
    /// Of the token in the timeline.
    pub position: u64,
    /// Natural log-probability of the token in the raw distribution; 0 without one.
    pub logprob: f32,
    /// The most likely tokens at this position with their log-probabilities, as many as were asked for.
    pub top: Vec<(Token, f32)>,
}

impl<'a> Piece<'a> {
    /// # Safety
    /// raw is a piece that lives for 'a.
    pub(crate) unsafe fn from_raw(raw: &sys::afmoe_piece) -> Piece<'a> {
        // SAFETY: the arrays have these lengths and live as long as the piece; no id among the best is negative.
        let (text, tokens, logprobs): (&[u8], &[Token], &[f32]) = unsafe {
            (
                slice(raw.text.cast(), raw.text_bytes),
                slice(raw.top_tokens.cast(), raw.n_top),
                slice(raw.top_logprobs, raw.n_top),
            )
        };
        Piece {
            token: Token::try_from(raw.token).ok(),
            text: String::from_utf8_lossy(text), // borrows: whole code points
            position: raw.position,
            logprob: raw.logprob,
            top: tokens.iter().copied().zip(logprobs.iter().copied()).collect(),
        }
    }
}

impl Piece<'_> {
    /// A copy to keep after the callback.
    pub fn into_owned(self) -> Piece<'static> {
        let Piece { token, text, position, logprob, top } = self;
        Piece { token, text: Cow::Owned(text.into_owned()), position, logprob, top }
    }
}

/// How a generation ended.
#[must_use = "it says whether the text is complete"]
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Why.
    pub finish: Finish,
    /// Tokens added to the timeline.
    pub n_generated: u64,
    /// The token that stopped, which is not in the timeline.
    pub stop_token: Option<Token>,
    /// Index of the stop string that stopped.
    pub stop_string: Option<usize>,
    /// Time it took.
    pub elapsed: Duration,
    /// Tokens guessed ahead and computed, see [`GenerateOptions::max_draft`].
    pub n_drafted: u64,
    /// Of them, those that were right.
    pub n_draft_accepted: u64,
}

impl Generated {
    fn from_raw(raw: &sys::afmoe_generate_result) -> Generated {
        Generated {
            finish: Finish::from_raw(raw.finish_reason),
            n_generated: raw.n_generated,
            stop_token: Token::try_from(raw.stop_token).ok(),
            stop_string: usize::try_from(raw.stop_string).ok(),
            elapsed: Duration::from_nanos(raw.elapsed_ns),
            n_drafted: raw.n_drafted,
            n_draft_accepted: raw.n_draft_accepted,
        }
    }

    /// What a generation that returned this came to.
    pub(crate) fn of(result: Result<()>, raw: &sys::afmoe_generate_result) -> Result<Generated> {
        match result {
            Err(error) if !is_an_end(&error) => Err(error),
            _ => Ok(Generated::from_raw(raw)),
        }
    }
}

/// A generation that was cancelled or met a full context has ended, and kept its tokens: that is no error.
fn is_an_end(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Cancelled | ErrorKind::ContextFull)
}

/// Calls a closure with each piece.
unsafe extern "C" fn on_piece<F>(closure: *mut c_void, piece: *const sys::afmoe_piece) -> i32
where
    F: FnMut(Piece<'_>) -> ControlFlow<()>,
{
    // SAFETY: closure is the one that run was given, and is not used meanwhile; the piece lives for the call.
    guard(1, || stop(unsafe { (*(closure as *mut F))(Piece::from_raw(&*piece)) }))
}

/// afmoe_generate with a closure.
fn run<F>(
    session: *mut sys::afmoe_session,
    sampler: *mut sys::afmoe_sampler,
    mut raw: sys::afmoe_generate_options,
    mut closure: F,
) -> Result<Generated>
where
    F: FnMut(Piece<'_>) -> ControlFlow<()>,
{
    let mut result = call::init(sys::afmoe_generate_result_init);
    raw.on_piece = Some(on_piece::<F>);
    raw.on_piece_data = &mut closure as *mut F as *mut c_void;
    // SAFETY: the callers give pointers that are good for the call.
    let status = call(|error| unsafe { sys::afmoe_generate(session, sampler, &raw, &mut result, error) });
    Generated::of(status.map(|_| ()), &result)
}

impl Session {
    /// Sample, append and give out text until something stops, starting from the session's logits. `sampler` None:
    /// greedy. Every token given out is in the timeline, and the logits of the last one are there, so the next call
    /// goes on. `Break` ends it as a [`Cancel`] does.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// use afmoe::{Context, Finish, GenerateOptions, Message, Model};
    /// use std::ops::ControlFlow;
    ///
    /// let model = Model::open("pico-q8_0.gguf")?;
    /// let mut session = Context::new(&model)?.session()?;
    /// session.append(&model.chat_tokenize(&[Message::user("What is the capital of France?")])?)?;
    /// let end = session.generate(None, &GenerateOptions::new().max_tokens(200), |piece| {
    ///     print!("{}", piece.text);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(end.finish, Finish::StopToken);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn generate(
        &mut self,
        sampler: Option<&mut Sampler>,
        options: &GenerateOptions,
        on_piece: impl FnMut(Piece<'_>) -> ControlFlow<()>,
    ) -> Result<Generated> {
        let arrays = StopArrays::of(options);
        let raw = options.raw_with(&arrays);
        run(self.as_ptr(), sampler.map_or(std::ptr::null_mut(), Sampler::as_ptr), raw, on_piece)
    }

    /// The same as an iterator, which gives the pieces one by one. Nothing is computed before a piece is asked for, the
    /// timeline holds the tokens given out and no more, and nothing is lost when it is dropped half way: a later call
    /// goes on from there.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// use afmoe::{Context, GenerateOptions, Model, Sampler};
    /// use std::io::Write;
    ///
    /// let model = Model::open("pico-q8_0.gguf")?;
    /// let mut session = Context::new(&model)?.session()?;
    /// session.append(&model.tokenize("Once upon a time")?)?;
    ///
    /// let mut sampler = Sampler::new(&model, &model.sampler_options()?.temperature(0.7).seed(1))?;
    /// let options = GenerateOptions::new().max_tokens(50).stop_strings(["\n\n"]);
    /// let mut pieces = session.pieces(Some(&mut sampler), &options)?;
    /// for piece in &mut pieces {
    ///     print!("{}", piece?.text);
    ///     std::io::stdout().flush().unwrap();
    /// }
    /// println!("\n[{:?}]", pieces.generated().finish);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn pieces<'a>(&'a mut self, sampler: Option<&'a mut Sampler>, options: &GenerateOptions) -> Result<Pieces<'a>> {
        let arrays = StopArrays::of(options);
        let raw = options.raw_with(&arrays);
        let (session, sampler) = (self.as_ptr(), sampler.map_or(std::ptr::null_mut(), Sampler::as_ptr));
        // SAFETY: all pointers are good for the call; what the options point to is copied or referenced.
        let create = |out, error| unsafe { sys::afmoe_generation_create(out, session, sampler, &raw, error) };
        let handle = Handle::create(sys::afmoe_generation_free, create)?;
        Ok(Pieces { handle, session: self, has_ended: false })
    }
}

/// The pieces of a generation, from [`Session::pieces`]. It gives what [`Session::generate`] would: after a failure
/// that failure, as its last item.
#[derive(Debug)]
pub struct Pieces<'a> {
    handle: Handle<sys::afmoe_generation>, // it holds references on session and sampler
    session: &'a mut Session,
    has_ended: bool,
}

// SAFETY: a generation belongs to no thread, and &self does not change it; session and sampler are Send themselves.
unsafe impl Send for Pieces<'_> {}

impl Pieces<'_> {
    /// How it ended; [`Finish::None`] while it has not.
    pub fn generated(&self) -> Generated {
        let mut raw = call::init(sys::afmoe_generate_result_init);
        // SAFETY: raw has its size set. There is no other caller whom it could find BUSY.
        unsafe { sys::afmoe_generation_get_result(self.handle.as_ptr(), &mut raw, std::ptr::null_mut()) };
        Generated::from_raw(&raw)
    }

    /// The session, to look at between pieces.
    pub fn session(&self) -> &Session {
        self.session
    }
}

impl Iterator for Pieces<'_> {
    type Item = Result<Piece<'static>>;

    fn next(&mut self) -> Option<Result<Piece<'static>>> {
        if self.has_ended {
            return None;
        }
        let mut raw = call::init(sys::afmoe_piece_init);
        // SAFETY: raw has its size set.
        let status = call(|error| unsafe { sys::afmoe_generation_next(self.handle.as_ptr(), &mut raw, error) });
        self.has_ended = !matches!(status, Ok(status) if status != sys::AFMOE_END);
        match status {
            Ok(_) if self.has_ended => None,
            // SAFETY: the piece lives until the next call.
            Ok(_) => Some(Ok(unsafe { Piece::from_raw(&raw) }.into_owned())),
            Err(error) if is_an_end(&error) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

impl std::iter::FusedIterator for Pieces<'_> {}
