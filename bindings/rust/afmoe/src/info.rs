//! What a model is and what its files hold.

use std::borrow::Cow;

use crate::call::{self, call, slice};
use crate::{sys, text_of, Container, Layout, Model, Result, RopeKind, ScoreFunction, Token};

/// What a checkpoint is: read at open, never changes. What concerns layers is 0 with `tokenizer_only`.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq)]
pub struct ModelInfo {
    /// The kind of files.
    pub container: Container,
    /// How tensors are named.
    pub layout: Layout,
    /// Whether it can compute.
    pub has_weights: bool,
    /// Whether it has text.
    pub has_tokenizer: bool,
    /// The file asks for `bos_token` before raw text; [`Model::tokenize`] itself never adds it.
    pub add_bos: bool,
    /// The token that begins a text.
    pub bos_token: Option<Token>,
    /// The token that ends one.
    pub eos_token: Option<Token>,
    /// The token that fills batches.
    pub pad_token: Option<Token>,
    /// Layers.
    pub n_layers: u32,
    /// The first of them, without experts.
    pub n_dense_layers: u32,
    /// Layers with full attention.
    pub n_full_layers: u32,
    /// Heads of queries.
    pub n_heads: u32,
    /// Heads of keys and values.
    pub n_kv_heads: u32,
    /// Width of a head.
    pub head_dim: u32,
    /// Routed experts of a layer.
    pub n_experts: u32,
    /// Those chosen for a token.
    pub n_experts_per_token: u32,
    /// Experts that every token passes.
    pub n_shared_experts: u32,
    /// Keys seen in sliding layers, the query's own included.
    pub sliding_window: u32,
    /// Rows of the output, also the number of logits; without weights: tokens.
    pub vocab_size: u64,
    /// Tokens the tokenizer has; 0 without one.
    pub n_tokens: u64,
    /// Width of the residual stream.
    pub hidden_size: u64,
    /// The longest timeline the model was made for.
    pub max_positions: u64,
    /// Elements of all tensors used; with `inspect_only`: of all.
    pub n_parameters: u64,
    /// Bytes of the same.
    pub weight_bytes: u64,
    /// Width of the feed-forward half of dense layers.
    pub intermediate_size: u64,
    /// Width of one expert.
    pub moe_intermediate_size: u64,
    /// Experts are chosen in two steps when more than 1: groups, then experts in them.
    pub n_groups: u32,
    /// Groups chosen.
    pub n_groups_chosen: u32,
    /// Of the router.
    pub score_function: ScoreFunction,
    /// The weights of the chosen experts are made to sum to 1.
    pub route_norm: bool,
    /// Factor on them.
    pub route_scale: f32,
    /// Added under the root in norms.
    pub rms_norm_eps: f32,
    /// Embeddings are scaled by the root of `hidden_size`.
    pub mup_enabled: bool,
    /// The output uses the embedding's weights.
    pub tied_embeddings: bool,
    /// Projections of attention have a bias.
    pub attention_bias: bool,
    /// How positions are scaled; only sliding layers rotate.
    pub rope_kind: RopeKind,
    /// Base of the frequencies.
    pub rope_theta: f32,
    /// 1 for [`RopeKind::Default`].
    pub rope_factor: f32,
    /// `Llama3` and `Yarn`: what the model was trained for first; else 0.
    pub rope_original_positions: u64,
}

/// -1 is none.
fn token(raw: sys::afmoe_token) -> Option<Token> {
    Token::try_from(raw).ok()
}

impl ModelInfo {
    fn from_raw(raw: &sys::afmoe_model_info) -> ModelInfo {
        ModelInfo {
            container: Container::from_raw(raw.container),
            layout: Layout::from_raw(raw.layout),
            has_weights: raw.has_weights != 0,
            has_tokenizer: raw.has_tokenizer != 0,
            add_bos: raw.add_bos != 0,
            bos_token: token(raw.bos_token),
            eos_token: token(raw.eos_token),
            pad_token: token(raw.pad_token),
            n_layers: raw.n_layers,
            n_dense_layers: raw.n_dense_layers,
            n_full_layers: raw.n_full_layers,
            n_heads: raw.n_heads,
            n_kv_heads: raw.n_kv_heads,
            head_dim: raw.head_dim,
            n_experts: raw.n_experts,
            n_experts_per_token: raw.n_experts_per_token,
            n_shared_experts: raw.n_shared_experts,
            sliding_window: raw.sliding_window,
            vocab_size: raw.vocab_size,
            n_tokens: raw.n_tokens,
            hidden_size: raw.hidden_size,
            max_positions: raw.max_positions,
            n_parameters: raw.n_parameters,
            weight_bytes: raw.weight_bytes,
            intermediate_size: raw.intermediate_size,
            moe_intermediate_size: raw.moe_intermediate_size,
            n_groups: raw.n_groups,
            n_groups_chosen: raw.n_groups_chosen,
            score_function: ScoreFunction::from_raw(raw.score_function),
            route_norm: raw.route_norm != 0,
            route_scale: raw.route_scale,
            rms_norm_eps: raw.rms_norm_eps,
            mup_enabled: raw.mup_enabled != 0,
            tied_embeddings: raw.tied_embeddings != 0,
            attention_bias: raw.attention_bias != 0,
            rope_kind: RopeKind::from_raw(raw.rope_kind),
            rope_theta: raw.rope_theta,
            rope_factor: raw.rope_factor,
            rope_original_positions: raw.rope_original_positions,
        }
    }
}

/// One tensor of a model's files.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo<'m> {
    /// As in the file.
    pub name: Cow<'m, str>,
    /// Slowest first: rows before columns, whatever the file's own order.
    pub shape: Vec<u64>,
    /// As the file spells it: `"Q8_0"`, `"BF16"`.
    pub format: Cow<'m, str>,
    /// The file's name, without folders.
    pub file: Cow<'m, str>,
    /// Where its first byte is there.
    pub file_offset: u64,
    /// Bytes it takes.
    pub n_bytes: u64,
    /// Numbers it holds.
    pub n_elements: u64,
    /// This version of the library computes with the format, in a matrix at least.
    pub is_supported: bool,
    /// Part of the model, or surplus; `None` where that is not known (`inspect_only`).
    pub is_used: Option<bool>,
}

impl<'m> TensorInfo<'m> {
    /// # Safety
    /// raw is of a model that lives for 'm.
    unsafe fn from_raw(raw: &sys::afmoe_tensor_info) -> TensorInfo<'m> {
        // SAFETY: these texts end with NUL and live as long as the model.
        let (name, format, file) = unsafe { (text_of(raw.name), text_of(raw.format), text_of(raw.file)) };
        TensorInfo {
            name,
            shape: raw.shape.iter().copied().take(raw.n_dims as usize).collect(),
            format,
            file,
            file_offset: raw.file_offset,
            n_bytes: raw.n_bytes,
            n_elements: raw.n_elements,
            is_supported: raw.is_supported != 0,
            is_used: if raw.is_used < 0 { None } else { Some(raw.is_used != 0) },
        }
    }
}

impl Model {
    /// What the checkpoint is.
    pub fn info(&self) -> ModelInfo {
        let mut raw = call::init(sys::afmoe_model_info_init);
        // SAFETY: raw has its size set; the call fails for NULL only.
        let result = call(|error| unsafe { sys::afmoe_model_get_info(self.as_ptr(), &mut raw, error) });
        debug_assert!(result.is_ok(), "{result:?}");
        ModelInfo::from_raw(&raw)
    }

    /// Whether a layer sees all positions; else it slides.
    pub fn layer_is_full(&self, layer: u32) -> Result<bool> {
        let mut out = 0;
        // SAFETY: out lives for the call.
        call(|error| unsafe { sys::afmoe_model_layer_is_full(self.as_ptr(), layer, &mut out, error) })?;
        Ok(out != 0)
    }

    /// The tensors of its files by name; none with `tokenizer_only`.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// use afmoe::{Model, ModelOptions};
    /// let model = Model::open_with("pico-q8_0.gguf", &ModelOptions::new().inspect_only(true))?;
    /// for tensor in model.tensors() {
    ///     println!("{:40} {:6} {:?}", tensor.name, tensor.format, tensor.shape);
    /// }
    /// # assert!(model.tensors().len() > 10);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn tensors(&self) -> Tensors<'_> {
        // SAFETY: self is a model.
        Tensors { model: self, next: 0, end: unsafe { sys::afmoe_model_n_tensors(self.as_ptr()) } }
    }

    /// The chat template the checkpoint brings (Jinja), as its bytes are in the file. The library does not run it.
    pub fn chat_template(&self) -> Result<Option<&[u8]>> {
        let (mut text, mut n) = (std::ptr::null(), 0);
        // SAFETY: the out pointers live for the call.
        let result = call(|error| unsafe { sys::afmoe_model_chat_template(self.as_ptr(), &mut text, &mut n, error) });
        crate::found(result)?;
        // SAFETY: bytes are bytes, and these live as long as the model. NULL and 0 where there is none.
        Ok(if text.is_null() { None } else { Some(unsafe { slice(text as *const u8, n) }) })
    }

    /// The model's stop set: the tokens that end an answer.
    pub fn stop_tokens(&self) -> Result<Vec<Token>> {
        // SAFETY: Token and afmoe_token are both of 32 bits, and no id is negative.
        call::collect(16, |out: *mut Token, capacity, n, error| unsafe {
            sys::afmoe_model_stop_tokens(self.as_ptr(), out.cast(), capacity, n, error)
        })
    }
}

/// The tensors of a model's files, from [`Model::tensors`].
#[derive(Clone, Debug)]
pub struct Tensors<'m> {
    model: &'m Model,
    next: u64,
    end: u64,
}

impl<'m> Iterator for Tensors<'m> {
    type Item = TensorInfo<'m>;

    fn next(&mut self) -> Option<TensorInfo<'m>> {
        if self.next >= self.end {
            return None;
        }
        let mut raw = call::init(sys::afmoe_tensor_info_init);
        let (model, index) = (self.model.as_ptr(), self.next);
        // SAFETY: raw has its size set.
        call(|error| unsafe { sys::afmoe_model_get_tensor(model, index, &mut raw, error) }).ok()?;
        self.next += 1;
        // SAFETY: raw was filled for a model that lives for 'm.
        Some(unsafe { TensorInfo::from_raw(&raw) })
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let n = (self.end - self.next) as usize;
        (n, Some(n))
    }
}

impl ExactSizeIterator for Tensors<'_> {}
impl std::iter::FusedIterator for Tensors<'_> {}
