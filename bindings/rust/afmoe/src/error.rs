//! Failures: a kind to match on, and the library's own sentence.

use std::ffi::CStr;
use std::fmt;

use crate::sys;

/// The result of calls that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $status:ident,)+) => {
        /// What kind of failure it is; one for each negative status of `afmoe.h`.
        #[non_exhaustive]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum ErrorKind {
            $($(#[$doc])* $kind,)+
            /// A status that this version of the crate does not know; see [`Error::status`].
            Unknown,
        }

        impl ErrorKind {
            fn of(status: sys::afmoe_status) -> ErrorKind {
                match status {
                    $(sys::$status => ErrorKind::$kind,)+
                    _ => ErrorKind::Unknown,
                }
            }
        }
    };
}

kinds! {
    /// An argument outside its stated range; the message names the range.
    Invalid = AFMOE_INVALID,
    /// Out of memory.
    NoMemory = AFMOE_NO_MEMORY,
    /// The system reported a failure.
    Io = AFMOE_IO,
    /// No such file, or a folder without the file needed.
    NotFound = AFMOE_NOT_FOUND,
    /// Malformed input.
    Format = AFMOE_FORMAT,
    /// Input ends early.
    Truncated = AFMOE_TRUNCATED,
    /// Over a stated cap.
    Limit = AFMOE_LIMIT,
    /// A checksum does not match.
    Corrupt = AFMOE_CORRUPT,
    /// Well formed, but not supported; the message says why.
    Unsupported = AFMOE_UNSUPPORTED,
    /// Another caller is using this object.
    Busy = AFMOE_BUSY,
    /// Stopped by a [`Cancel`](crate::Cancel) or a callback.
    Cancelled = AFMOE_CANCELLED,
    /// A session or page limit is reached.
    ContextFull = AFMOE_CONTEXT_FULL,
    /// The caller's buffer is too small.
    Capacity = AFMOE_CAPACITY,
    /// The object does not fit this use, e.g. it has no weights, or no logits yet.
    State = AFMOE_STATE,
    /// NaN or infinity where a number is needed.
    Numeric = AFMOE_NUMERIC,
    /// A broken invariant; please report it.
    Internal = AFMOE_INTERNAL,
}

/// A failure. It prints as the library's sentence, which names the culprit and the numbers.
#[derive(Clone, PartialEq, Eq)]
pub struct Error {
    status: sys::afmoe_status,
    message: Box<str>,
}

impl Error {
    pub(crate) fn new(status: sys::afmoe_status, message: &str) -> Error {
        Error { status, message: message.into() }
    }

    pub(crate) fn from_raw(status: sys::afmoe_status, error: &sys::afmoe_error) -> Error {
        // SAFETY: the library ends the message within its array, and afmoe_error_init an empty one.
        let message = unsafe { CStr::from_ptr(error.message.as_ptr()) };
        Error { status, message: message.to_string_lossy().into() }
    }

    /// What to match on.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::of(self.status)
    }

    /// The status of `afmoe.h`, a negative number.
    pub fn status(&self) -> i32 {
        self.status
    }

    /// The name of that status, e.g. `"AFMOE_NOT_FOUND"`.
    pub fn status_name(&self) -> &'static str {
        // SAFETY: names are static.
        crate::static_text(unsafe { sys::afmoe_status_name(self.status) })
    }

    /// One line of text.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.status_name(), self.message)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}
