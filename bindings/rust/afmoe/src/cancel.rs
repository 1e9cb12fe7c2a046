//! The flag that stops calls.

use std::ptr;

use crate::call::Handle;
use crate::{sys, Result};

/// A flag that stops the calls it was given to, from any thread. Clones are the same flag.
///
/// ```
/// # std::env::set_current_dir("../../../models").unwrap();
/// use afmoe::{Cancel, Context, Finish, GenerateOptions, Model};
///
/// let model = Model::open("pico-q8_0.gguf")?;
/// let mut session = Context::new(&model)?.session()?;
/// session.append(&model.tokenize("Once upon a time")?)?;
///
/// let cancel = Cancel::new()?;
/// let elsewhere = cancel.clone();
/// std::thread::spawn(move || elsewhere.set());
///
/// let endless = GenerateOptions::new().ignore_eos(true).cancel(&cancel);
/// let mut pieces = session.pieces(None, &endless)?;
/// for piece in &mut pieces {
///     piece?;
/// }
/// assert_eq!(pieces.generated().finish, Finish::Cancelled);
/// # Ok::<(), afmoe::Error>(())
/// ```
#[derive(Debug)]
pub struct Cancel {
    handle: Handle<sys::afmoe_cancel>,
}

// SAFETY: an atomic flag with an atomic reference count; every function may be called from any thread.
unsafe impl Send for Cancel {}
unsafe impl Sync for Cancel {}

impl Cancel {
    /// A new flag, not set.
    pub fn new() -> Result<Cancel> {
        // SAFETY: both pointers are good for the call.
        let create = |out, error| unsafe { sys::afmoe_cancel_create(out, error) };
        Ok(Cancel { handle: Handle::create(sys::afmoe_cancel_free, create)? })
    }

    /// Stop every call this flag was given to, now and later, until [`clear`](Cancel::clear). It may be called in a
    /// signal handler.
    pub fn set(&self) {
        // SAFETY: self holds a reference.
        unsafe { sys::afmoe_cancel_set(self.handle.as_ptr()) }
    }

    /// Take the flag down: calls made from now on run.
    pub fn clear(&self) {
        // SAFETY: self holds a reference.
        unsafe { sys::afmoe_cancel_clear(self.handle.as_ptr()) }
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        // SAFETY: self holds a reference.
        unsafe { sys::afmoe_cancel_is_set(self.handle.as_ptr()) != 0 }
    }

    /// For a call while `this` is borrowed; NULL for none.
    pub(crate) fn raw(this: Option<&Cancel>) -> *const sys::afmoe_cancel {
        this.map_or(ptr::null(), |cancel| cancel.handle.as_ptr())
    }
}

impl Clone for Cancel {
    fn clone(&self) -> Cancel {
        Cancel { handle: self.handle.retained(sys::afmoe_cancel_retain) }
    }
}
