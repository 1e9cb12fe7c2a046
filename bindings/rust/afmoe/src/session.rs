//! Sessions: timelines of tokens.

use std::marker::PhantomData;
use std::ops::{ControlFlow, Range};
use std::path::Path;
use std::ptr;
use std::time::Duration;

use crate::call::{self, call, slice, zeroed, Handle};
use crate::callback::Progress;
use crate::{sys, Cancel, Context, Pooling, Result, Token};

/// One timeline of tokens with its keys and values.
///
/// ```
/// # std::env::set_current_dir("../../../models").unwrap();
/// use afmoe::{AppendOptions, Context, Model};
///
/// let model = Model::open("pico-q8_0.gguf")?;
/// let mut session = Context::new(&model)?.session()?;
/// let tokens = model.tokenize("Once upon a time")?;
///
/// // How likely the text is: the first token has none before it.
/// let scored = session.append_with(&tokens, &AppendOptions::new().logprobs(1..tokens.len() as u64))?;
/// println!("mean log-probability {}", scored.logprobs.iter().sum::<f32>() / scored.logprobs.len() as f32);
///
/// // What comes next.
/// let (token, logprob) = session.top_logprobs(1)?[0];
/// println!("{token}: {logprob}");
/// # assert!(logprob < 0.0);
/// # Ok::<(), afmoe::Error>(())
/// ```
///
/// Logits are lent, so what would change them cannot be called meanwhile:
///
/// ```compile_fail,E0502
/// # fn f(session: &mut afmoe::Session) -> afmoe::Result<()> {
/// let logits = session.logits()?;
/// session.append(&[1])?;
/// println!("{}", logits[0]);
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Session {
    handle: Handle<sys::afmoe_session>, // goes before the context does
    context: Context,
}

// SAFETY: it may be used from any thread, by one at a time.
unsafe impl Send for Session {}

/// How a call that computes runs, and what it gives besides.
#[derive(Debug, Default)]
pub struct AppendOptions<'a> {
    cancel: Option<Cancel>,
    progress: Option<Progress<'a>>,
    logprobs: Range<u64>,
    positions: Vec<u64>,
    logits: bool,
    hidden: bool,
    experts: bool,
}

impl<'a> AppendOptions<'a> {
    /// Nothing but the logits of the last token, which the session keeps.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops the call; checked in every layer.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Hears how many tokens of how many are done, after every chunk. `Break` stops the call, which then answers
    /// [`Cancelled`](crate::ErrorKind::Cancelled); whole chunks are kept.
    pub fn progress(mut self, progress: impl FnMut(u64, u64) -> ControlFlow<()> + 'a) -> Self {
        self.progress = Some(Progress::new(progress));
        self
    }

    /// For every position in this range the log-probability the model gave to the token there, from the tokens before
    /// it. Positions are absolute; the range lies inside the tokens the call adds, and begins at 1 or later.
    pub fn logprobs(mut self, positions: Range<u64>) -> Self {
        self.logprobs = positions;
        self
    }

    /// Logits at these absolute positions, which rise and are all among the tokens the call adds. They are the same
    /// ones as for [`hidden_at`](Self::hidden_at): the last list given counts.
    pub fn logits_at(mut self, positions: impl Into<Vec<u64>>) -> Self {
        self.positions = positions.into();
        self.logits = true;
        self
    }

    /// Final hidden states (after the last norm), likewise.
    pub fn hidden_at(mut self, positions: impl Into<Vec<u64>>) -> Self {
        self.positions = positions.into();
        self.hidden = true;
        self
    }

    /// The experts chosen for every token the call computes.
    pub fn experts(mut self, yes: bool) -> Self {
        self.experts = yes;
        self
    }
}

/// What a computing call did.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Length of the timeline now.
    pub n_tokens: u64,
    /// Tokens of the request that were there already.
    pub n_reused: u64,
    /// Tokens that went through the layers.
    pub n_computed: u64,
}

impl Appended {
    pub(crate) fn from_raw(raw: &sys::afmoe_append_result) -> Appended {
        Appended { n_tokens: raw.n_tokens, n_reused: raw.n_reused, n_computed: raw.n_computed }
    }
}

/// What a computing call did, and gave besides.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct AppendOutput {
    /// Numbers of tokens.
    pub appended: Appended,
    /// One for each position of [`AppendOptions::logprobs`].
    pub logprobs: Vec<f32>,
    /// `vocab_size` for each position of [`AppendOptions::logits_at`].
    pub logits: Vec<f32>,
    /// `hidden_size` for each position of [`AppendOptions::hidden_at`].
    pub hidden: Vec<f32>,
    /// For each token computed, with [`AppendOptions::experts`].
    pub experts: Option<ExpertTrace>,
}

/// Which experts were chosen, in the router's order.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct ExpertTrace {
    /// Layers that have experts: those after the model's `n_dense_layers`.
    pub n_layers: usize,
    /// Experts chosen in each.
    pub n_experts_per_token: usize,
    /// `[token][layer][choice]`, tokens in the order they were computed.
    pub ids: Vec<u32>,
    /// What their outputs are multiplied by, likewise.
    pub weights: Vec<f32>,
}

impl ExpertTrace {
    /// Experts and weights of one token in one of the layers that have experts.
    pub fn chosen(&self, token: usize, layer: usize) -> (&[u32], &[f32]) {
        assert!(layer < self.n_layers, "layer {layer} of {}", self.n_layers);
        let begin = (token * self.n_layers + layer) * self.n_experts_per_token;
        let range = begin..begin + self.n_experts_per_token;
        (&self.ids[range.clone()], &self.weights[range])
    }
}

/// What a session did since it was created.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionStats {
    /// Length of the timeline.
    pub n_tokens: u64,
    /// Tokens computed in chunks of more than one.
    pub n_prompt_computed: u64,
    /// Time in them.
    pub prompt_time: Duration,
    /// Tokens computed one at a time.
    pub n_decode_computed: u64,
    /// Time in them.
    pub decode_time: Duration,
    /// Tokens sync found already there.
    pub n_reused: u64,
    /// Key/value memory of this session.
    pub page_bytes: u64,
    /// Tokens computed ahead as drafts, see [`GenerateOptions::max_draft`](crate::GenerateOptions::max_draft).
    pub n_drafted: u64,
    /// Of them, those that became the next token; in none of the counts above.
    pub n_draft_accepted: u64,
    /// Of `n_tokens`, those that full layers see no more: see [`Session::shift`].
    pub n_dropped: u64,
}

/// Buffers and options of one computing call.
pub(crate) struct AppendCall<'o> {
    pub(crate) raw: sys::afmoe_append_options,
    output: AppendOutput,
    options: PhantomData<&'o ()>,
}

impl<'o> AppendCall<'o> {
    /// A call that computes at most n tokens.
    pub(crate) fn new(session: &Session, options: &'o AppendOptions<'_>, n: u64) -> Result<AppendCall<'o>> {
        let info = session.context.model().info();
        let mut raw = call::init(sys::afmoe_append_options_init);
        raw.cancel = Cancel::raw(options.cancel.as_ref());
        (raw.progress, raw.progress_data) = Progress::raw(options.progress.as_ref());
        (raw.logprob_begin, raw.logprob_end) = (options.logprobs.start, options.logprobs.end);
        let n_logprobs = options.logprobs.end.saturating_sub(options.logprobs.start).min(n); // more is INVALID
        raw.positions = options.positions.as_ptr();
        raw.n_positions = options.positions.len() as u64;
        raw.logits_capacity = if options.logits { raw.n_positions * info.vocab_size } else { 0 };
        raw.hidden_capacity = if options.hidden { raw.n_positions * info.hidden_size } else { 0 };
        let n_layers = info.n_layers - info.n_dense_layers;
        let each = u64::from(n_layers) * u64::from(info.n_experts_per_token);
        raw.expert_capacity = if options.experts { n.saturating_mul(each) } else { 0 };
        let output = AppendOutput {
            appended: Appended { n_tokens: 0, n_reused: 0, n_computed: 0 },
            logprobs: zeroed(n_logprobs)?,
            logits: zeroed(raw.logits_capacity)?,
            hidden: zeroed(raw.hidden_capacity)?,
            experts: None,
        };
        let mut call = AppendCall { raw, output, options: PhantomData };
        if options.experts {
            call.output.experts = Some(ExpertTrace {
                n_layers: n_layers as usize,
                n_experts_per_token: info.n_experts_per_token as usize,
                ids: zeroed(raw.expert_capacity)?,
                weights: zeroed(raw.expert_capacity)?,
            });
        }
        call.point(options);
        Ok(call)
    }

    /// Tell where the buffers are; NULL for what is not wanted.
    fn point(&mut self, options: &AppendOptions<'_>) {
        let (raw, output) = (&mut self.raw, &mut self.output);
        raw.out_logprobs = output.logprobs.as_mut_ptr();
        raw.out_logits = if options.logits { output.logits.as_mut_ptr() } else { ptr::null_mut() };
        raw.out_hidden = if options.hidden { output.hidden.as_mut_ptr() } else { ptr::null_mut() };
        if let Some(experts) = &mut output.experts {
            raw.out_expert_ids = experts.ids.as_mut_ptr().cast(); // none is negative
            raw.out_expert_weights = experts.weights.as_mut_ptr();
        }
    }

    pub(crate) fn finish(mut self, result: &sys::afmoe_append_result) -> AppendOutput {
        self.output.appended = Appended::from_raw(result);
        if let Some(experts) = &mut self.output.experts {
            let n = result.n_computed as usize * experts.n_layers * experts.n_experts_per_token;
            experts.ids.truncate(n);
            experts.weights.truncate(n);
        }
        self.output
    }
}

/// A function that computes, short of its session and tokens.
type Compute<'f> = &'f dyn Fn(
    *const sys::afmoe_append_options,
    *mut sys::afmoe_append_result,
    *mut sys::afmoe_error,
) -> sys::afmoe_status;

impl Session {
    /// An empty timeline. Memory comes with its tokens.
    pub fn new(context: &Context) -> Result<Session> {
        // SAFETY: the session takes its own reference on the context.
        let create = |out: *mut *mut sys::afmoe_session, error| unsafe {
            sys::afmoe_session_create(out, context.as_ptr(), error)
        };
        Ok(Session { handle: Handle::create(sys::afmoe_session_free, create)?, context: context.clone() })
    }

    /// The context it computes in.
    pub fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::afmoe_session {
        self.handle.as_ptr()
    }

    /// A computing call with the library's default options.
    fn compute(&mut self, function: Compute<'_>) -> Result<Appended> {
        let mut result = call::init(sys::afmoe_append_result_init);
        call(|error| function(ptr::null(), &mut result, error))?;
        Ok(Appended::from_raw(&result))
    }

    /// A computing call of at most n tokens.
    fn compute_with(&mut self, n: u64, options: &AppendOptions<'_>, function: Compute<'_>) -> Result<AppendOutput> {
        let request = AppendCall::new(self, options, n)?;
        let mut result = call::init(sys::afmoe_append_result_init);
        call(|error| function(&request.raw, &mut result, error))?;
        Ok(request.finish(&result))
    }

    /// Extend the timeline and leave the logits of the last token.
    ///
    /// [`Invalid`](crate::ErrorKind::Invalid) (an id outside the vocabulary) and
    /// [`ContextFull`](crate::ErrorKind::ContextFull) change nothing.
    pub fn append(&mut self, tokens: &[Token]) -> Result<Appended> {
        let (session, ids, n) = (self.as_ptr(), tokens.as_ptr().cast(), tokens.len() as u64);
        // SAFETY: tokens live for the call, and are of 32 bits as afmoe_token is.
        self.compute(&|options, result, error| unsafe {
            sys::afmoe_session_append(session, ids, n, options, result, error)
        })
    }

    /// The same with options. [`Cancelled`](crate::ErrorKind::Cancelled): whole chunks so far are kept,
    /// [`n_tokens`](Session::n_tokens) says how many tokens that is, and the logits are gone until the next append.
    pub fn append_with(&mut self, tokens: &[Token], options: &AppendOptions<'_>) -> Result<AppendOutput> {
        let (session, ids, n) = (self.as_ptr(), tokens.as_ptr().cast(), tokens.len() as u64);
        // SAFETY: as in append; buffers and options live for the call.
        self.compute_with(n, options, &|options, result, error| unsafe {
            sys::afmoe_session_append(session, ids, n, options, result, error)
        })
    }

    /// Make the timeline equal these tokens, keeping the common prefix, and leave the logits of the last one. The same
    /// tokens again cost nothing.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// # use afmoe::{Context, Model};
    /// let model = Model::open("pico-q8_0.gguf")?;
    /// let mut session = Context::new(&model)?.session()?;
    /// session.sync(&model.tokenize("The owl sat in the library.")?)?;
    /// let again = session.sync(&model.tokenize("The owl sat in the forest.")?)?;
    /// assert!(again.n_reused >= 4 && again.n_computed <= 4);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn sync(&mut self, tokens: &[Token]) -> Result<Appended> {
        let (session, ids, n) = (self.as_ptr(), tokens.as_ptr().cast(), tokens.len() as u64);
        // SAFETY: as in append.
        self.compute(&|options, result, error| unsafe {
            sys::afmoe_session_sync(session, ids, n, options, result, error)
        })
    }

    /// The same with options; ranges and positions may lie anywhere in the tokens.
    pub fn sync_with(&mut self, tokens: &[Token], options: &AppendOptions<'_>) -> Result<AppendOutput> {
        let (session, ids, n) = (self.as_ptr(), tokens.as_ptr().cast(), tokens.len() as u64);
        // SAFETY: as in append_with.
        self.compute_with(n, options, &|options, result, error| unsafe {
            sys::afmoe_session_sync(session, ids, n, options, result, error)
        })
    }

    /// Drop all tokens from position `n_tokens` on. Free while the pages needed are held; else the kept tokens are
    /// computed again. Logits are gone until the next append, unless nothing was dropped.
    pub fn rewind(&mut self, n_tokens: u64) -> Result<Appended> {
        let session = self.as_ptr();
        // SAFETY: all pointers are good for the call.
        self.compute(&|options, result, error| unsafe {
            sys::afmoe_session_rewind(session, n_tokens, options, result, error)
        })
    }

    /// The same with options.
    pub fn rewind_with(&mut self, n_tokens: u64, options: &AppendOptions<'_>) -> Result<AppendOutput> {
        let (session, most) = (self.as_ptr(), n_tokens.min(self.n_tokens()?));
        // SAFETY: as in append_with.
        self.compute_with(most, options, &|options, result, error| unsafe {
            sys::afmoe_session_rewind(session, n_tokens, options, result, error)
        })
    }

    /// Make room in a session that is full: of the tokens that the full layers see, keep the first `n_keep` and drop the
    /// `n_drop` oldest after them, both rounded up to whole pages of 64. Returns how many were dropped. Tokens and
    /// positions stay; what comes next is computed with less to look at.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// # use afmoe::{Context, ContextOptions, Model};
    /// let model = Model::open("pico-q8_0.gguf")?;
    /// let context = Context::with_options(&model, &ContextOptions::new().max_tokens(256))?;
    /// let mut session = context.session()?;
    /// let story = model.tokenize(&"The owl sat in the library. ".repeat(50))?;
    /// session.append(&story[..256])?;
    /// assert!(session.append(&story[..10]).is_err());
    /// assert_eq!(session.shift(20, 100)?, 128);
    /// session.append(&story[..10])?;
    /// assert_eq!((session.n_tokens()?, session.stats()?.n_dropped), (266, 128));
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn shift(&mut self, n_keep: u64, n_drop: u64) -> Result<u64> {
        let mut n_dropped = 0;
        // SAFETY: all pointers are good for the call.
        call(|error| unsafe { sys::afmoe_session_shift(self.as_ptr(), n_keep, n_drop, &mut n_dropped, error) })?;
        Ok(n_dropped)
    }

    /// A text as one vector of `hidden_size` numbers: make the timeline equal these tokens (at least one) and pool
    /// their final hidden states; `normalize` scales it to length 1. No logits are left.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// # use afmoe::{Context, Model, Pooling};
    /// let model = Model::open("pico-q8_0.gguf")?;
    /// let mut session = Context::new(&model)?.session()?;
    /// let mut embed = |text| session.embed(&model.tokenize(text)?, Pooling::Mean, true, None);
    /// let (owl, fox) = (embed("An owl.")?, embed("A fox.")?);
    /// println!("{}", owl.iter().zip(&fox).map(|(a, b)| a * b).sum::<f32>());
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn embed(
        &mut self,
        tokens: &[Token],
        pooling: Pooling,
        normalize: bool,
        cancel: Option<&Cancel>,
    ) -> Result<Vec<f32>> {
        let (ids, n_tokens) = (tokens.as_ptr().cast(), tokens.len() as u64);
        let (pooling, normalize, cancel) = (pooling.raw(), normalize.into(), Cancel::raw(cancel));
        let hidden_size = self.context.model().info().hidden_size as usize;
        // SAFETY: all pointers are good for the call.
        call::collect(hidden_size, |out, capacity, n, error| unsafe {
            let session = self.as_ptr();
            sys::afmoe_session_embed(session, ids, n_tokens, pooling, normalize, cancel, out, capacity, n, error)
        })
    }

    /// A second session in the same context, with the same timeline and logits; both go on on their own. Nothing is
    /// computed, and they share the keys and values there are. Statistics begin at zero.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// # use afmoe::{Context, Model};
    /// let model = Model::open("pico-q8_0.gguf")?;
    /// let mut one = Context::new(&model)?.session()?;
    /// one.append(&model.tokenize("The owl sat in the")?)?;
    /// let mut other = one.fork()?;
    /// one.append(&model.tokenize(" library")?)?;
    /// other.append(&model.tokenize(" forest")?)?;
    /// assert_ne!(one.logits()?, other.logits()?);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn fork(&self) -> Result<Session> {
        // SAFETY: the new session takes its own reference on the context.
        let create =
            |out: *mut *mut sys::afmoe_session, error| unsafe { sys::afmoe_session_fork(out, self.as_ptr(), error) };
        Ok(Session { handle: Handle::create(sys::afmoe_session_free, create)?, context: self.context.clone() })
    }

    /// Save the session to a file: tokens, keys and values as far as they are still held, and the last logits. Loaded
    /// again, also by another process, it goes on to the same bits. The file replaces an old one as a whole. Only its
    /// owner may read it: a conversation lies in it, in the clear.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = crate::model::c_path(path.as_ref())?;
        // SAFETY: the path lives for the call.
        call(|error| unsafe { sys::afmoe_session_save(self.as_ptr(), path.as_ptr(), error) })?;
        Ok(())
    }

    /// Make the session what was saved; what it was before goes. The state must be of the same model, precision and
    /// cells. The file may come from anywhere: on failure nothing has changed.
    ///
    /// [`Format`](crate::ErrorKind::Format), [`Truncated`](crate::ErrorKind::Truncated),
    /// [`Corrupt`](crate::ErrorKind::Corrupt): the file. [`State`](crate::ErrorKind::State): it is of another model or
    /// other options. [`ContextFull`](crate::ErrorKind::ContextFull): it is longer than `max_tokens`, or there is no
    /// room for old and new together.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = crate::model::c_path(path.as_ref())?;
        // SAFETY: the path lives for the call.
        call(|error| unsafe { sys::afmoe_session_load(self.as_ptr(), path.as_ptr(), error) })?;
        Ok(())
    }

    /// The bytes that [`save`](Session::save) would write.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// # use afmoe::{Context, Model};
    /// let model = Model::open("pico-q8_0.gguf")?;
    /// let mut session = Context::new(&model)?.session()?;
    /// session.append(&model.tokenize("Once upon a time")?)?;
    /// let saved = session.save_to_vec()?;
    ///
    /// let mut restored = Context::new(&model)?.session()?;
    /// restored.load_from_slice(&saved)?;
    /// assert_eq!(restored.logits()?, session.logits()?);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn save_to_vec(&self) -> Result<Vec<u8>> {
        // SAFETY: all pointers are good for the call.
        call::collect(0, |out: *mut u8, capacity, n, error| unsafe {
            sys::afmoe_session_save_memory(self.as_ptr(), out.cast(), capacity, n, error)
        })
    }

    /// [`load`](Session::load) from memory.
    pub fn load_from_slice(&mut self, data: &[u8]) -> Result<()> {
        let (bytes, n_bytes) = (data.as_ptr().cast(), data.len() as u64);
        // SAFETY: the bytes live for the call.
        call(|error| unsafe { sys::afmoe_session_load_memory(self.as_ptr(), bytes, n_bytes, error) })?;
        Ok(())
    }

    /// Tokens of the timeline.
    pub fn tokens(&self) -> Result<Vec<Token>> {
        // SAFETY: Token and afmoe_token are both of 32 bits, and no id is negative.
        call::collect(self.n_tokens()? as usize, |out: *mut Token, capacity, n, error| unsafe {
            sys::afmoe_session_tokens(self.as_ptr(), out.cast(), capacity, n, error)
        })
    }

    /// Length of the timeline.
    pub fn n_tokens(&self) -> Result<u64> {
        Ok(self.stats()?.n_tokens)
    }

    /// Logits of the last position, `vocab_size` of them. [`State`](crate::ErrorKind::State) when there are none.
    pub fn logits(&self) -> Result<&[f32]> {
        let (mut out, mut n) = (ptr::null(), 0);
        // SAFETY: the out pointers live for the call.
        call(|error| unsafe { sys::afmoe_session_logits_view(self.as_ptr(), &mut out, &mut n, error) })?;
        // SAFETY: they stay until a call that takes &mut self, or drop.
        Ok(unsafe { slice(out, n) })
    }

    /// Natural log-probabilities of the last position, `vocab_size` of them.
    pub fn logprobs(&self) -> Result<Vec<f32>> {
        let n = self.logits()?.len();
        // SAFETY: all pointers are good for the call.
        call::collect(n, |out, capacity, n, error| unsafe {
            sys::afmoe_session_logprobs(self.as_ptr(), out, capacity, n, error)
        })
    }

    /// Final hidden state (after the last norm) of the last position, `hidden_size` numbers.
    pub fn hidden(&self) -> Result<Vec<f32>> {
        let hidden_size = self.context.model().info().hidden_size as usize;
        // SAFETY: all pointers are good for the call.
        call::collect(hidden_size, |out, capacity, n, error| unsafe {
            sys::afmoe_session_hidden(self.as_ptr(), out, capacity, n, error)
        })
    }

    /// The k most likely tokens of the last position with their log-probabilities, falling; ties by lower id.
    pub fn top_logprobs(&self, k: usize) -> Result<Vec<(Token, f32)>> {
        let k = (k as u64).min(self.logits()?.len() as u64);
        let (mut tokens, mut logprobs) = (zeroed::<Token>(k)?, zeroed::<f32>(k)?);
        let mut n = 0;
        // SAFETY: the buffers have k elements, and live for the call.
        call(|error| unsafe {
            let ids = tokens.as_mut_ptr().cast();
            sys::afmoe_session_top_logprobs(self.as_ptr(), ids, logprobs.as_mut_ptr(), k, &mut n, error)
        })?;
        Ok(tokens.into_iter().zip(logprobs).take(n as usize).collect())
    }

    /// What it did since it was created.
    pub fn stats(&self) -> Result<SessionStats> {
        let mut raw = call::init(sys::afmoe_session_stats_init);
        // SAFETY: raw has its size set.
        call(|error| unsafe { sys::afmoe_session_get_stats(self.as_ptr(), &mut raw, error) })?;
        Ok(SessionStats {
            n_tokens: raw.n_tokens,
            n_prompt_computed: raw.n_prompt_computed,
            prompt_time: Duration::from_nanos(raw.prompt_ns),
            n_decode_computed: raw.n_decode_computed,
            decode_time: Duration::from_nanos(raw.decode_ns),
            n_reused: raw.n_reused,
            page_bytes: raw.page_bytes,
            n_drafted: raw.n_drafted,
            n_draft_accepted: raw.n_draft_accepted,
            n_dropped: raw.n_dropped,
        })
    }
}
