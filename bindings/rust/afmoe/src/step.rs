//! Appending to several sessions together.

use std::cell::RefCell;
use std::ffi::c_void;
use std::fmt;
use std::ops::ControlFlow;
use std::ptr;

use crate::call::{self, call, guard};
use crate::callback::stop;
use crate::session::AppendCall;
use crate::{sys, AppendOptions, AppendOutput, Appended, Cancel, Context, Error, Result, Session, Token};

/// One session's part of a step: what [`Session::append`] is for one session.
pub struct StepItem<'a> {
    session: &'a mut Session,
    tokens: &'a [Token],
    append: Option<Result<AppendCall<'a>>>,
}

impl<'a> StepItem<'a> {
    /// These tokens for this session, which is of the context that makes the step.
    pub fn new(session: &'a mut Session, tokens: &'a [Token]) -> StepItem<'a> {
        StepItem { session, tokens, append: None }
    }

    /// What is to be given besides; their [`Cancel`] stops this item only.
    pub fn options(mut self, options: &'a AppendOptions<'_>) -> Self {
        self.append = Some(AppendCall::new(self.session, options, self.tokens.len() as u64));
        self
    }
}

impl fmt::Debug for StepItem<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { session, tokens, .. } = self;
        f.debug_struct("StepItem").field("session", session).field("tokens", tokens).finish_non_exhaustive()
    }
}

type ItemClosure<'a> = dyn FnMut(usize, Result<Appended>) -> ControlFlow<()> + 'a;

/// How a step runs.
#[derive(Default)]
pub struct StepOptions<'a> {
    cancel: Option<Cancel>,
    on_item: Option<RefCell<Box<ItemClosure<'a>>>>,
}

impl<'a> StepOptions<'a> {
    /// All items, to their end.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stops all items.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// Hears of each item by its index as soon as it is done, while the others go on. `Break` stops the others.
    pub fn on_item(mut self, on_item: impl FnMut(usize, Result<Appended>) -> ControlFlow<()> + 'a) -> Self {
        self.on_item = Some(RefCell::new(Box::new(on_item)));
        self
    }
}

impl fmt::Debug for StepOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepOptions").field("cancel", &self.cancel).finish_non_exhaustive()
    }
}

/// Everything of an item that C writes to.
struct Part<'a> {
    session: *mut sys::afmoe_session,
    tokens: &'a [Token],
    append: AppendCall<'a>,
    result: sys::afmoe_append_result,
    error: sys::afmoe_error,
}

impl Part<'_> {
    fn raw(&mut self) -> sys::afmoe_step_item {
        let mut raw = call::init(sys::afmoe_step_item_init);
        raw.status = UNTOUCHED;
        raw.session = self.session;
        raw.tokens = self.tokens.as_ptr().cast();
        raw.n_tokens = self.tokens.len() as u64;
        raw.options = &self.append.raw;
        raw.result = &mut self.result;
        raw.error = &mut self.error;
        raw
    }

    fn finish(self, status: sys::afmoe_status) -> Result<AppendOutput> {
        if status < 0 {
            return Err(Error::from_raw(status, &self.error));
        }
        Ok(self.append.finish(&self.result))
    }
}

/// No status of the library: the call failed before it came to the items.
const UNTOUCHED: sys::afmoe_status = sys::afmoe_status::MIN;

/// The closure of one call, and where to look up what it is to hear.
struct Listener<'l, 'a> {
    closure: &'l RefCell<Box<ItemClosure<'a>>>,
    items: *const sys::afmoe_step_item,
}

impl Listener<'_, '_> {
    unsafe extern "C" fn call(this: *mut c_void, i: u64) -> i32 {
        guard(1, || {
            // SAFETY: this is the listener of the call that runs; item i is done, its result and error are written.
            let (this, outcome) = unsafe {
                let this = &*(this as *const Self);
                let item = &*this.items.add(i as usize);
                let failed = item.status < 0;
                let appended = || Ok(Appended::from_raw(&*item.result));
                (this, if failed { Err(Error::from_raw(item.status, &*item.error)) } else { appended() })
            };
            stop((this.closure.borrow_mut())(i as usize, outcome))
        })
    }
}

impl Context {
    /// Append to several sessions of this context together: prompts, single tokens, any mix. The weights are read once
    /// for all, and every session gets the bits it would get alone. Each item is an append of its own: one that fails
    /// leaves, and the others are computed as if it had not been there.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// use afmoe::{Context, Model, StepItem};
    ///
    /// let model = Model::open("pico-q8_0.gguf")?;
    /// let context = Context::new(&model)?;
    /// let (mut owl, mut fox) = (context.session()?, context.session()?);
    /// let (of_owl, of_fox) = (model.tokenize("The owl sat")?, model.tokenize("The quick brown fox")?);
    /// for done in context.step([StepItem::new(&mut owl, &of_owl), StepItem::new(&mut fox, &of_fox)])? {
    ///     println!("{} tokens", done?.appended.n_tokens);
    /// }
    /// println!("{:?}, {:?}", owl.top_logprobs(1)?, fox.top_logprobs(1)?);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn step<'a>(&self, items: impl IntoIterator<Item = StepItem<'a>>) -> Result<Vec<Result<AppendOutput>>> {
        self.step_with(items, &StepOptions::new())
    }

    /// The same with options.
    pub fn step_with<'a>(
        &self,
        items: impl IntoIterator<Item = StepItem<'a>>,
        options: &StepOptions<'_>,
    ) -> Result<Vec<Result<AppendOutput>>> {
        let none = AppendOptions::new();
        let mut parts = Vec::new();
        for StepItem { session, tokens, append } in items {
            let append = append.unwrap_or_else(|| AppendCall::new(session, &none, tokens.len() as u64))?;
            parts.push(Part {
                session: session.as_ptr(),
                tokens,
                append,
                result: call::init(sys::afmoe_append_result_init),
                error: call::init(sys::afmoe_error_init),
            });
        }
        let mut raw: Vec<_> = parts.iter_mut().map(Part::raw).collect();
        let (first, n_items) = (raw.as_mut_ptr(), raw.len() as u64);
        let mut raw_options = call::init(sys::afmoe_step_options_init);
        raw_options.cancel = Cancel::raw(options.cancel.as_ref());
        let listener = options.on_item.as_ref().map(|closure| Listener { closure, items: first });
        if let Some(listener) = &listener {
            raw_options.on_item = Some(Listener::call);
            raw_options.on_item_data = listener as *const Listener<'_, '_> as *mut c_void;
        }
        let first = if n_items == 0 { ptr::null_mut() } else { first };
        // SAFETY: items, what they point to, and options live for the call; nobody else has a session of these, which
        // are borrowed for 'a.
        let result =
            call(|error| unsafe { sys::afmoe_context_step(self.as_ptr(), first, n_items, &raw_options, error) });
        match result {
            Err(error) if raw.iter().all(|item| item.status == UNTOUCHED) => Err(error),
            _ => Ok(parts.into_iter().zip(raw).map(|(part, item)| part.finish(item.status)).collect()),
        }
    }
}
