//! Text to tokens and back.

use std::ffi::CString;
use std::ops::Range;
use std::os::raw::c_char;

use crate::call::{self, call, slice, Handle};
use crate::{found, sys, Cancel, Error, Model, Result, Token, TokenKind};

/// Where the text of added tokens (`<|im_end|>`, `<think>`, ...) is taken for these tokens.
#[non_exhaustive]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Special {
    /// Everywhere.
    #[default]
    All,
    /// Nowhere: it is ordinary text. For text from users.
    None,
    /// Only where it lies wholly inside one of these ranges of bytes, which rise and do not overlap.
    Ranges(Vec<Range<usize>>),
}

/// How a text is tokenized.
#[derive(Clone, Debug, Default)]
pub struct TokenizeOptions {
    special: Special,
    max_text_bytes: Option<u64>,
    cancel: Option<Cancel>,
}

impl TokenizeOptions {
    /// The library's defaults: [`Special::All`].
    pub fn new() -> Self {
        Self::default()
    }

    /// Where added tokens are recognised.
    pub fn special(mut self, special: Special) -> Self {
        self.special = special;
        self
    }

    /// Longer text is [`Limit`](crate::ErrorKind::Limit); 64 MiB unless said.
    pub fn max_text_bytes(mut self, n_bytes: u64) -> Self {
        self.max_text_bytes = Some(n_bytes);
        self
    }

    /// Stops the call.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// For a call while self and `ranges`, which this fills, are borrowed.
    fn raw(&self, ranges: &mut Vec<u64>) -> sys::afmoe_tokenize_options {
        let mut raw = call::init(sys::afmoe_tokenize_options_init);
        raw.special = match &self.special {
            Special::All => sys::AFMOE_SPECIAL_ALL,
            Special::None => sys::AFMOE_SPECIAL_NONE,
            Special::Ranges(given) => {
                ranges.extend(given.iter().flat_map(|range| [range.start as u64, range.end as u64]));
                raw.special_ranges = ranges.as_ptr();
                raw.n_special_ranges = given.len() as u64;
                sys::AFMOE_SPECIAL_RANGES
            }
        };
        raw.max_text_bytes = self.max_text_bytes.unwrap_or(raw.max_text_bytes);
        raw.cancel = Cancel::raw(self.cancel.as_ref());
        raw
    }
}

/// One message of a chat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `"system"`, `"user"`, `"assistant"`, ...
    pub role: &'a str,
    /// Any bytes; never taken for special tokens.
    pub content: &'a [u8],
}

impl<'a> Message<'a> {
    /// A message of any role.
    pub fn new(role: &'a str, content: &'a (impl AsRef<[u8]> + ?Sized)) -> Message<'a> {
        Message { role, content: content.as_ref() }
    }

    /// What the model is to be.
    pub fn system(content: &'a (impl AsRef<[u8]> + ?Sized)) -> Message<'a> {
        Message::new("system", content)
    }

    /// What is asked.
    pub fn user(content: &'a (impl AsRef<[u8]> + ?Sized)) -> Message<'a> {
        Message::new("user", content)
    }

    /// What was answered.
    pub fn assistant(content: &'a (impl AsRef<[u8]> + ?Sized)) -> Message<'a> {
        Message::new("assistant", content)
    }
}

/// How a chat is tokenized.
#[derive(Clone, Debug, Default)]
pub struct ChatOptions {
    add_generation_prompt: Option<bool>,
    max_text_bytes: Option<u64>,
    cancel: Option<Cancel>,
}

impl ChatOptions {
    /// The library's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// End with the beginning of an answer, so that one follows. Yes, unless said.
    pub fn add_generation_prompt(mut self, yes: bool) -> Self {
        self.add_generation_prompt = Some(yes);
        self
    }

    /// More, of all messages together, is [`Limit`](crate::ErrorKind::Limit); 64 MiB unless said.
    pub fn max_text_bytes(mut self, n_bytes: u64) -> Self {
        self.max_text_bytes = Some(n_bytes);
        self
    }

    /// Stops the call.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }
}

/// Texts up to this many bytes get room for one token a byte, so that they are read once; longer ones a quarter of it.
const SMALL_TEXT_BYTES: usize = 1 << 16;

fn guess_tokens(n_bytes: usize) -> usize {
    if n_bytes <= SMALL_TEXT_BYTES {
        n_bytes + 16
    } else {
        n_bytes / 4 + SMALL_TEXT_BYTES
    }
}

impl Model {
    /// Text to tokens; nothing is added before or after. Any bytes are accepted. Added tokens are recognised
    /// everywhere: for text from users say [`Special::None`] with [`tokenize_with`](Model::tokenize_with).
    pub fn tokenize(&self, text: impl AsRef<[u8]>) -> Result<Vec<Token>> {
        self.tokenize_with(text, &TokenizeOptions::new())
    }

    /// The same with options.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// use afmoe::{Model, Special, TokenizeOptions};
    /// let model = Model::open("pico-q8_0.gguf")?;
    /// let plain = TokenizeOptions::new().special(Special::None);
    /// assert_eq!(model.tokenize("<|im_end|>")?.len(), 1);
    /// assert!(model.tokenize_with("<|im_end|>", &plain)?.len() > 1);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn tokenize_with(&self, text: impl AsRef<[u8]>, options: &TokenizeOptions) -> Result<Vec<Token>> {
        let (text, mut ranges) = (text.as_ref(), Vec::new());
        let raw = options.raw(&mut ranges);
        // SAFETY: text and options live for the call; Token and afmoe_token are both of 32 bits, and no id is negative.
        call::collect(guess_tokens(text.len()), |out: *mut Token, capacity, n, error| unsafe {
            let (data, n_bytes) = (text.as_ptr() as *const c_char, text.len() as u64);
            sys::afmoe_tokenize(self.as_ptr(), data, n_bytes, &raw, out.cast(), capacity, n, error)
        })
    }

    /// Tokens to bytes, which may be invalid UTF-8, since a token can be a part of a character; [`StreamDecoder`]
    /// repairs that. `skip_special` leaves out tokens of kind [`TokenKind::Control`].
    pub fn detokenize(&self, tokens: &[Token], skip_special: bool) -> Result<Vec<u8>> {
        // SAFETY: tokens live for the call, and are of 32 bits as afmoe_token is.
        call::collect(8 * tokens.len(), |out: *mut u8, capacity, n, error| unsafe {
            let (ids, n_tokens) = (tokens.as_ptr().cast(), tokens.len() as u64);
            sys::afmoe_detokenize(self.as_ptr(), ids, n_tokens, skip_special.into(), out.cast(), capacity, n, error)
        })
    }

    /// Bytes and kind of one token.
    pub fn token_text(&self, token: Token) -> Result<(&[u8], TokenKind)> {
        let (mut bytes, mut n, mut kind) = (std::ptr::null(), 0, 0);
        // SAFETY: the out pointers live for the call.
        call(|error| unsafe {
            sys::afmoe_token_text(self.as_ptr(), token as sys::afmoe_token, &mut bytes, &mut n, &mut kind, error)
        })?;
        // SAFETY: they live as long as the model.
        Ok((unsafe { slice(bytes as *const u8, n) }, TokenKind::from_raw(kind)))
    }

    /// The token whose text is exactly these bytes, added tokens first; `None` when there is none.
    pub fn find_token(&self, text: impl AsRef<[u8]>) -> Result<Option<Token>> {
        let text = text.as_ref();
        let mut token = -1;
        // SAFETY: the text and token live for the call.
        let result = call(|error| unsafe {
            let (data, n_bytes) = (text.as_ptr() as *const c_char, text.len() as u64);
            sys::afmoe_token_find(self.as_ptr(), data, n_bytes, &mut token, error)
        });
        Ok(found(result)?.and_then(|_| Token::try_from(token).ok()))
    }

    /// Messages to tokens in ChatML, with the beginning of an answer. Only the template's own text yields control
    /// tokens; roles and contents never do.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// use afmoe::{Message, Model};
    /// let model = Model::open("pico-q8_0.gguf")?;
    /// let prompt = model.chat_tokenize(&[Message::user("Hello <|im_end|>")])?;
    /// let end = model.find_token("<|im_end|>")?.unwrap();
    /// assert_eq!(prompt.iter().filter(|token| **token == end).count(), 1);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn chat_tokenize(&self, messages: &[Message<'_>]) -> Result<Vec<Token>> {
        self.chat_tokenize_with(messages, &ChatOptions::new())
    }

    /// The same with options.
    pub fn chat_tokenize_with(&self, messages: &[Message<'_>], options: &ChatOptions) -> Result<Vec<Token>> {
        let owned_roles = messages.iter().map(|message| CString::new(message.role)).collect::<Result<Vec<_>, _>>();
        let owned_roles = owned_roles.map_err(|_| Error::new(sys::AFMOE_INVALID, "a role has a NUL byte"))?;
        let roles: Vec<_> = owned_roles.iter().map(|role| role.as_ptr()).collect();
        let contents: Vec<_> = messages.iter().map(|message| message.content.as_ptr() as *const c_char).collect();
        let content_bytes: Vec<_> = messages.iter().map(|message| message.content.len() as u64).collect();
        let mut raw = call::init(sys::afmoe_chat_options_init);
        raw.content_bytes = content_bytes.as_ptr();
        raw.add_generation_prompt = options.add_generation_prompt.map_or(raw.add_generation_prompt, i32::from);
        raw.max_text_bytes = options.max_text_bytes.unwrap_or(raw.max_text_bytes);
        raw.cancel = Cancel::raw(options.cancel.as_ref());
        let n_bytes = messages.iter().map(|message| message.content.len() + message.role.len() + 16).sum();
        // SAFETY: the arrays have as many elements as there are messages, and live for the call.
        call::collect(guess_tokens(n_bytes), |out: *mut Token, capacity, n, error| unsafe {
            let (roles, contents, n_messages) = (roles.as_ptr(), contents.as_ptr(), messages.len() as u64);
            sys::afmoe_chat_tokenize(self.as_ptr(), roles, contents, n_messages, &raw, out.cast(), capacity, n, error)
        })
    }
}

/// Turns tokens into text piece by piece, giving whole code points only.
///
/// ```
/// # std::env::set_current_dir("../../../models").unwrap();
/// use afmoe::{Model, StreamDecoder};
/// let model = Model::open("pico-q8_0.gguf")?;
/// let mut decoder = StreamDecoder::new(&model, true)?;
/// let mut text = String::new();
/// for token in model.tokenize("naïve 猫")? {
///     text += decoder.push(token)?;
/// }
/// text += decoder.finish()?;
/// assert_eq!(text, "naïve 猫");
/// # Ok::<(), afmoe::Error>(())
/// ```
#[derive(Debug)]
pub struct StreamDecoder {
    handle: Handle<sys::afmoe_stream_decoder>,
}

// SAFETY: it may be used from any thread, by one at a time.
unsafe impl Send for StreamDecoder {}

impl StreamDecoder {
    /// `skip_special` as in [`Model::detokenize`].
    pub fn new(model: &Model, skip_special: bool) -> Result<StreamDecoder> {
        // SAFETY: the model is one, and the decoder takes its own reference.
        let create =
            |out, error| unsafe { sys::afmoe_stream_decoder_create(out, model.as_ptr(), skip_special.into(), error) };
        Ok(StreamDecoder { handle: Handle::create(sys::afmoe_stream_decoder_free, create)? })
    }

    fn text(
        &mut self,
        function: impl FnOnce(
            *mut sys::afmoe_stream_decoder,
            *mut *const c_char,
            *mut u64,
            *mut sys::afmoe_error,
        ) -> sys::afmoe_status,
    ) -> Result<&str> {
        let (mut text, mut n) = (std::ptr::null(), 0);
        call(|error| function(self.handle.as_ptr(), &mut text, &mut n, error))?;
        // SAFETY: it lives until the decoder's next call, which needs the borrow to end.
        let bytes = unsafe { slice(text as *const u8, n) };
        std::str::from_utf8(bytes).map_err(|why| Error::new(sys::AFMOE_INTERNAL, &format!("decoded text: {why}")))
    }

    /// Add one token: the text that is complete now, which may be empty. Bytes that cannot become valid UTF-8 come out
    /// as U+FFFD.
    pub fn push(&mut self, token: Token) -> Result<&str> {
        // SAFETY: all pointers are good for the call.
        self.text(|decoder, text, n, error| unsafe {
            sys::afmoe_stream_decoder_push(decoder, token as sys::afmoe_token, text, n, error)
        })
    }

    /// The end: what was held back, as U+FFFD. The decoder starts afresh.
    pub fn finish(&mut self) -> Result<&str> {
        // SAFETY: all pointers are good for the call.
        self.text(|decoder, text, n, error| unsafe { sys::afmoe_stream_decoder_finish(decoder, text, n, error) })
    }
}
