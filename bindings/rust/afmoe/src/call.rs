//! One call into the library: the error it fills, the objects it hands out, the panics of the callbacks it ran.
//!
//! A panic must not cross C. Every callback runs its closure under [`guard`], which keeps the panic for this thread and
//! answers "stop"; callbacks run on the calling thread before the call returns, so [`call`] finds it there afterwards
//! and lets it go on. Closures are then in the state that any panic leaves them in.

use std::any::Any;
use std::cell::Cell;
use std::mem::{forget, size_of, MaybeUninit};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::ptr::{self, NonNull};
use std::thread;

use crate::{sys, Error, ErrorKind, Result};

type Panic = Box<dyn Any + Send>;

thread_local! {
    static PANIC: Cell<Option<Panic>> = const { Cell::new(None) };
}

/// Run a closure that C called. `on_panic` is what C gets to hear when it panics.
pub(crate) fn guard<R>(on_panic: R, closure: impl FnOnce() -> R) -> R {
    // One kept from an earlier callback of the same call is not for the calls that this closure makes.
    let earlier = take_panic();
    let (kept, answer) = match (earlier, catch_unwind(AssertUnwindSafe(closure))) {
        (earlier, Ok(answer)) => (earlier, answer),
        (None, Err(panic)) => (Some(panic), on_panic),
        (Some(first), Err(panic)) => {
            forget(panic); // its drop could panic again
            (Some(first), on_panic)
        }
    };
    if kept.is_some() {
        // A thread that has already lost its locals goes on without it.
        let _ = PANIC.try_with(|slot| slot.set(kept));
    }
    answer
}

fn take_panic() -> Option<Panic> {
    PANIC.try_with(Cell::take).unwrap_or(None)
}

fn resume() {
    if let Some(panic) = take_panic() {
        resume_unwind(panic);
    }
}

/// A call whose last argument is an error. Panics of its callbacks stay where they are.
fn call_only(function: impl FnOnce(*mut sys::afmoe_error) -> sys::afmoe_status) -> Result<sys::afmoe_status> {
    let mut error = init(sys::afmoe_error_init);
    let status = function(&mut error);
    if status < 0 {
        return Err(Error::from_raw(status, &error));
    }
    Ok(status)
}

/// A call whose last argument is an error: the status, when it is no failure.
pub(crate) fn call(function: impl FnOnce(*mut sys::afmoe_error) -> sys::afmoe_status) -> Result<sys::afmoe_status> {
    let result = call_only(function);
    resume();
    result
}

/// A struct with its defaults.
pub(crate) fn init<T>(function: unsafe extern "C" fn(*mut T, u32)) -> T {
    let mut out = MaybeUninit::uninit();
    // SAFETY: every X_init of the header fills all the bytes it is told of, and integers, floats and NULL pointers make
    // a valid T.
    unsafe {
        function(out.as_mut_ptr(), size_of::<T>() as u32);
        out.assume_init()
    }
}

/// An object of the library, owned.
#[derive(Debug)]
pub(crate) struct Handle<T> {
    raw: NonNull<T>,
    free: unsafe extern "C" fn(*mut T),
}

impl<T> Handle<T> {
    /// Through a call that hands out a new object.
    pub(crate) fn create(
        free: unsafe extern "C" fn(*mut T),
        function: impl FnOnce(*mut *mut T, *mut sys::afmoe_error) -> sys::afmoe_status,
    ) -> Result<Handle<T>> {
        let mut out = ptr::null_mut();
        let result = call_only(|error| function(&mut out, error));
        let handle = NonNull::new(out).map(|raw| Handle { raw, free });
        resume(); // what was made goes with it
        result?;
        handle.ok_or_else(|| Error::new(sys::AFMOE_INTERNAL, "the library gave no object"))
    }

    /// One more reference, taken through `retain`.
    pub(crate) fn retained(&self, retain: unsafe extern "C" fn(*mut T)) -> Handle<T> {
        // SAFETY: self holds a reference.
        unsafe { retain(self.raw.as_ptr()) };
        Handle { raw: self.raw, free: self.free }
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.raw.as_ptr()
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        // SAFETY: this is the reference that create or retained took.
        unsafe { (self.free)(self.raw.as_ptr()) };
        // The memory a model was opened from is dropped here, and may panic.
        match take_panic() {
            Some(panic) if thread::panicking() => forget(panic),
            Some(panic) => resume_unwind(panic),
            None => {}
        }
    }
}

/// A vector, through a call that fills a buffer (pointer, capacity, needed count). `guess`: capacity to try first.
pub(crate) fn collect<T: Copy>(
    guess: usize,
    mut function: impl FnMut(*mut T, u64, *mut u64, *mut sys::afmoe_error) -> sys::afmoe_status,
) -> Result<Vec<T>> {
    let mut out = Vec::new();
    let mut needed = guess;
    loop {
        out.try_reserve_exact(needed).map_err(|error| Error::new(sys::AFMOE_NO_MEMORY, &error.to_string()))?;
        let mut n = 0;
        match call(|error| function(out.as_mut_ptr(), out.capacity() as u64, &mut n, error)) {
            Ok(_) => {
                // SAFETY: the call wrote n elements, which is at most the capacity.
                unsafe { out.set_len(n as usize) };
                return Ok(out);
            }
            Err(error) if error.kind() == ErrorKind::Capacity && n > out.capacity() as u64 => needed = n as usize,
            Err(error) => return Err(error),
        }
    }
}

/// Borrowed bytes of the library as a slice; an empty one may come as NULL.
///
/// # Safety
/// `n` elements at `data` live and do not change for as long as 'a.
pub(crate) unsafe fn slice<'a, T>(data: *const T, n: u64) -> &'a [T] {
    if n == 0 {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(data, n as usize) }
}

/// As much memory as a call will fill, or NO_MEMORY.
pub(crate) fn zeroed<T: Clone + Default>(n: u64) -> Result<Vec<T>> {
    let mut out = Vec::new();
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    out.try_reserve_exact(n).map_err(|error| Error::new(sys::AFMOE_NO_MEMORY, &error.to_string()))?;
    out.resize(n, T::default());
    Ok(out)
}
