//! Closures that options hold, and the C functions that call them.

use std::cell::RefCell;
use std::ffi::{c_void, CStr};
use std::fmt;
use std::ops::ControlFlow;
use std::os::raw::c_char;
use std::ptr;

use crate::call::guard;
use crate::{sys, LogLevel};

/// 1 for stop.
pub(crate) fn stop(flow: ControlFlow<()>) -> i32 {
    match flow {
        ControlFlow::Continue(()) => 0,
        ControlFlow::Break(()) => 1,
    }
}

type ProgressClosure<'a> = dyn FnMut(u64, u64) -> ControlFlow<()> + 'a;

/// Hears of `done` of `total` units; Break stops the call.
pub(crate) struct Progress<'a>(RefCell<Box<ProgressClosure<'a>>>);

impl<'a> Progress<'a> {
    pub(crate) fn new(closure: impl FnMut(u64, u64) -> ControlFlow<()> + 'a) -> Self {
        Progress(RefCell::new(Box::new(closure)))
    }

    /// Function and data for the options of a call; good while `this` is borrowed.
    pub(crate) fn raw(this: Option<&Self>) -> (sys::afmoe_progress_fn, *mut c_void) {
        match this {
            None => (None, ptr::null_mut()),
            Some(this) => (Some(Self::call), this as *const Self as *mut c_void),
        }
    }

    unsafe extern "C" fn call(data: *mut c_void, done: u64, total: u64) -> i32 {
        // SAFETY: data is what raw gave out.
        let this = unsafe { &*(data as *const Self) };
        guard(1, || stop((this.0.borrow_mut())(done, total)))
    }
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a closure")
    }
}

type LogClosure<'a> = dyn FnMut(LogLevel, &str) + 'a;

/// Hears one line of text.
pub(crate) struct Log<'a>(RefCell<Box<LogClosure<'a>>>);

impl<'a> Log<'a> {
    pub(crate) fn new(closure: impl FnMut(LogLevel, &str) + 'a) -> Self {
        Log(RefCell::new(Box::new(closure)))
    }

    /// As [`Progress::raw`].
    pub(crate) fn raw(this: Option<&Self>) -> (sys::afmoe_log_fn, *mut c_void) {
        match this {
            None => (None, ptr::null_mut()),
            Some(this) => (Some(Self::call), this as *const Self as *mut c_void),
        }
    }

    unsafe extern "C" fn call(data: *mut c_void, level: i32, message: *const c_char) {
        // SAFETY: data is what raw gave out, the message ends with NUL.
        let (this, message) = unsafe { (&*(data as *const Self), CStr::from_ptr(message)) };
        guard((), || (this.0.borrow_mut())(LogLevel::from_raw(level), &message.to_string_lossy()))
    }
}

impl fmt::Debug for Log<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a closure")
    }
}
