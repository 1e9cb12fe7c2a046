//! From logits to a token.

use crate::call::{self, call, Handle};
use crate::{sys, Model, Result, Session, Token};

/// How tokens are chosen. Filters are applied in this order: bias, repetition, presence and frequency, temperature,
/// top-k, top-p, min-p. Fields can be read and set, or built up with the methods of the same names.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct SamplerOptions {
    /// 0 to 100; 0: greedy, the largest logit (lowest id on a tie).
    pub temperature: f32,
    /// 0 to 1; keeps the most likely tokens up to and with the one that reaches it. 1: off.
    pub top_p: f32,
    /// 0 to 1; drops tokens below this times the best. 0: off.
    pub min_p: f32,
    /// 0.01 to 100; for tokens of prompt and answer the logit is divided by it if positive, else multiplied. 1: off.
    pub repetition_penalty: f32,
    /// -100 to 100; subtracted once for a token generated already.
    pub presence_penalty: f32,
    /// -100 to 100; subtracted for every time it was generated.
    pub frequency_penalty: f32,
    /// Keeps the k most likely, 1 to 2^32; 2^32: off.
    pub top_k: u64,
    /// A draw depends on seed and position only.
    pub seed: u64,
    /// Added to the logits of these tokens, all different: -1e30 to 1e30, or negative infinity for never.
    pub bias: Vec<(Token, f32)>,
}

impl Default for SamplerOptions {
    fn default() -> Self {
        SamplerOptions::from_raw(&call::init(sys::afmoe_sampler_options_init))
    }
}

impl SamplerOptions {
    /// The library's defaults: greedy. What a checkpoint recommends: [`Model::sampler_options`].
    pub fn new() -> Self {
        Self::default()
    }

    /// The library gives defaults and recommendations without biases.
    fn from_raw(raw: &sys::afmoe_sampler_options) -> SamplerOptions {
        SamplerOptions {
            temperature: raw.temperature,
            top_p: raw.top_p,
            min_p: raw.min_p,
            repetition_penalty: raw.repetition_penalty,
            presence_penalty: raw.presence_penalty,
            frequency_penalty: raw.frequency_penalty,
            top_k: raw.top_k,
            seed: raw.seed,
            bias: Vec::new(),
        }
    }

    /// Sets [`temperature`](#structfield.temperature).
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.temperature = temperature;
        self
    }

    /// Sets [`top_p`](#structfield.top_p).
    pub fn top_p(mut self, top_p: f32) -> Self {
        self.top_p = top_p;
        self
    }

    /// Sets [`min_p`](#structfield.min_p).
    pub fn min_p(mut self, min_p: f32) -> Self {
        self.min_p = min_p;
        self
    }

    /// Sets [`repetition_penalty`](#structfield.repetition_penalty).
    pub fn repetition_penalty(mut self, penalty: f32) -> Self {
        self.repetition_penalty = penalty;
        self
    }

    /// Sets [`presence_penalty`](#structfield.presence_penalty).
    pub fn presence_penalty(mut self, penalty: f32) -> Self {
        self.presence_penalty = penalty;
        self
    }

    /// Sets [`frequency_penalty`](#structfield.frequency_penalty).
    pub fn frequency_penalty(mut self, penalty: f32) -> Self {
        self.frequency_penalty = penalty;
        self
    }

    /// Sets [`top_k`](#structfield.top_k).
    pub fn top_k(mut self, k: u64) -> Self {
        self.top_k = k;
        self
    }

    /// Sets [`seed`](#structfield.seed).
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets [`bias`](#structfield.bias).
    pub fn bias(mut self, bias: impl Into<Vec<(Token, f32)>>) -> Self {
        self.bias = bias.into();
        self
    }
}

/// A token that was chosen.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampled {
    /// The token.
    pub token: Token,
    /// Its natural log-probability in the raw distribution.
    pub logprob: f32,
}

impl Sampled {
    fn from_raw(token: sys::afmoe_token, logprob: f32) -> Sampled {
        Sampled { token: token as Token, logprob }
    }
}

/// Chooses tokens of one model.
///
/// ```
/// # std::env::set_current_dir("../../../models").unwrap();
/// use afmoe::{Context, Model, Sampler};
///
/// let model = Model::open("pico-q8_0.gguf")?;
/// let mut session = Context::new(&model)?.session()?;
/// session.append(&model.tokenize("Once upon a")?)?;
///
/// let mut sampler = Sampler::new(&model, &model.sampler_options()?.temperature(0.8).seed(42))?;
/// let n_prompt = session.n_tokens()?;
/// for _ in 0..10 {
///     let sampled = sampler.sample(&session, n_prompt)?;
///     session.append(&[sampled.token])?;
/// }
/// # Ok::<(), afmoe::Error>(())
/// ```
#[derive(Debug)]
pub struct Sampler {
    handle: Handle<sys::afmoe_sampler>,
}

// SAFETY: it may be used from any thread, by one at a time.
unsafe impl Send for Sampler {}

impl Sampler {
    /// A sampler for sessions of this model.
    pub fn new(model: &Model, options: &SamplerOptions) -> Result<Sampler> {
        let (tokens, values): (Vec<Token>, Vec<f32>) = options.bias.iter().copied().unzip();
        let mut raw = call::init(sys::afmoe_sampler_options_init);
        raw.temperature = options.temperature;
        raw.top_p = options.top_p;
        raw.min_p = options.min_p;
        raw.repetition_penalty = options.repetition_penalty;
        raw.presence_penalty = options.presence_penalty;
        raw.frequency_penalty = options.frequency_penalty;
        raw.top_k = options.top_k;
        raw.seed = options.seed;
        raw.bias_tokens = tokens.as_ptr().cast();
        raw.bias_values = values.as_ptr();
        raw.n_bias = options.bias.len() as u64;
        // SAFETY: options and biases live for the call, and the sampler takes its own reference on the model.
        let create = |out: *mut *mut sys::afmoe_sampler, error| unsafe {
            sys::afmoe_sampler_create(out, model.as_ptr(), &raw, error)
        };
        Ok(Sampler { handle: Handle::create(sys::afmoe_sampler_free, create)? })
    }

    /// Choose the next token from the session's logits. The first `n_prompt` tokens of the timeline count as prompt for
    /// the penalties, the rest as generated.
    pub fn sample(&mut self, session: &Session, n_prompt: u64) -> Result<Sampled> {
        let (mut token, mut logprob) = (-1, 0.0);
        // SAFETY: the out pointers live for the call.
        call(|error| unsafe {
            sys::afmoe_sampler_sample(self.as_ptr(), session.as_ptr(), n_prompt, &mut token, &mut logprob, error)
        })?;
        Ok(Sampled::from_raw(token, logprob))
    }

    /// The same on `vocab_size` logits of one's own; `history` is the timeline so far.
    pub fn sample_logits(&mut self, logits: &[f32], history: &[Token], n_prompt: u64) -> Result<Sampled> {
        let (mut token, mut logprob) = (-1, 0.0);
        // SAFETY: all buffers live for the call.
        call(|error| unsafe {
            sys::afmoe_sampler_sample_logits(
                self.as_ptr(),
                logits.as_ptr(),
                logits.len() as u64,
                history.as_ptr().cast(),
                history.len() as u64,
                n_prompt,
                &mut token,
                &mut logprob,
                error,
            )
        })?;
        Ok(Sampled::from_raw(token, logprob))
    }

    pub(crate) fn as_ptr(&mut self) -> *mut sys::afmoe_sampler {
        self.handle.as_ptr()
    }
}

impl Model {
    /// The library's defaults, then what the checkpoint's `generation_config.json` recommends, where it has one.
    pub fn sampler_options(&self) -> Result<SamplerOptions> {
        let mut raw = call::init(sys::afmoe_sampler_options_init);
        // SAFETY: raw has its size set.
        call(|error| unsafe { sys::afmoe_model_sampler_options(self.as_ptr(), &mut raw, error) })?;
        Ok(SamplerOptions::from_raw(&raw))
    }
}
