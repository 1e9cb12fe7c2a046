//! Models: opening them.

use std::ffi::{c_void, CString};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::io::{AsFd, AsRawFd};
use std::path::Path;

use crate::call::{self, Handle};
use crate::callback::{Log, Progress};
use crate::{sys, Cancel, Error, Load, LogLevel, Result};

/// Weights, configuration and tokenizer of one checkpoint; immutable. Clones share it, on any threads.
///
/// ```
/// # std::env::set_current_dir("../../../models").unwrap();
/// use afmoe::Model;
///
/// let model = Model::open("pico-q8_0.gguf")?;
/// let info = model.info();
/// println!("{} layers, {} parameters", info.n_layers, info.n_parameters);
///
/// let tokens = model.tokenize("Once upon a time")?;
/// assert_eq!(model.detokenize(&tokens, true)?, b"Once upon a time");
///
/// let failure = Model::open("no-such-file.gguf").unwrap_err();
/// assert_eq!(failure.kind(), afmoe::ErrorKind::NotFound);
/// # Ok::<(), afmoe::Error>(())
/// ```
#[derive(Debug)]
pub struct Model {
    handle: Handle<sys::afmoe_model>,
}

// SAFETY: the library allows any number of threads at once on a model, and counts references atomically. Memory that a
// model was opened from is Send + Sync as well.
unsafe impl Send for Model {}
unsafe impl Sync for Model {}

impl Clone for Model {
    fn clone(&self) -> Model {
        Model { handle: self.handle.retained(sys::afmoe_model_retain) }
    }
}

/// How to open a model. Unless said, weights stay in the mapped file, which must not change while the model is open.
#[derive(Debug)]
pub struct ModelOptions<'a> {
    raw: sys::afmoe_model_options,
    log: Option<Log<'a>>,
    progress: Option<Progress<'a>>,
    cancel: Option<Cancel>,
}

impl Default for ModelOptions<'_> {
    fn default() -> Self {
        ModelOptions { raw: call::init(sys::afmoe_model_options_init), log: None, progress: None, cancel: None }
    }
}

impl<'a> ModelOptions<'a> {
    /// The library's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Open the tokenizer and no weights; calls that compute then answer [`State`](crate::ErrorKind::State).
    pub fn tokenizer_only(mut self, yes: bool) -> Self {
        self.raw.tokenizer_only = yes.into();
        self
    }

    /// Read the configuration, the list of tensors and the tokenizer, but use no weights: tensors may have any format,
    /// be missing or surplus. Not together with [`tokenizer_only`](Self::tokenizer_only).
    pub fn inspect_only(mut self, yes: bool) -> Self {
        self.raw.inspect_only = yes.into();
        self
    }

    /// Take surplus tensors for an error instead of a warning.
    pub fn strict(mut self, yes: bool) -> Self {
        self.raw.strict = yes.into();
        self
    }

    /// Cap for one JSON document in bytes, 1 to 2^30; 32 MiB unless said.
    pub fn max_json_bytes(mut self, n_bytes: u64) -> Self {
        self.raw.max_json_bytes = n_bytes;
        self
    }

    /// Where weights are: [`Load::Map`] unless said.
    pub fn load(mut self, load: Load) -> Self {
        self.raw.load = load.raw();
        self
    }

    /// Keep the weights in memory (mlock). Where the system does not allow it: [`Io`](crate::ErrorKind::Io).
    pub fn lock(mut self, yes: bool) -> Self {
        self.raw.lock = yes.into();
        self
    }

    /// Hears warnings while opening.
    pub fn log(mut self, log: impl FnMut(LogLevel, &str) + 'a) -> Self {
        self.log = Some(Log::new(log));
        self
    }

    /// Hears how many bytes of weights of how many were read or locked, every few MiB. `Break` stops the call, which
    /// then answers [`Cancelled`](crate::ErrorKind::Cancelled).
    pub fn progress(mut self, progress: impl FnMut(u64, u64) -> ControlFlow<()> + 'a) -> Self {
        self.progress = Some(Progress::new(progress));
        self
    }

    /// Stops the opening; looked at as often as progress is told.
    pub fn cancel(mut self, cancel: &Cancel) -> Self {
        self.cancel = Some(cancel.clone());
        self
    }

    /// For a call while self is borrowed.
    pub(crate) fn raw(&self) -> sys::afmoe_model_options {
        let mut raw = self.raw;
        (raw.log, raw.log_data) = Log::raw(self.log.as_ref());
        (raw.progress, raw.progress_data) = Progress::raw(self.progress.as_ref());
        raw.cancel = Cancel::raw(self.cancel.as_ref());
        raw
    }
}

/// A path for C.
pub(crate) fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::new(sys::AFMOE_INVALID, &format!("the path {} has a NUL byte", path.display())))
}

/// Memory that no model has taken yet.
struct Lent<T>(Option<*mut T>);

impl<T> Drop for Lent<T> {
    fn drop(&mut self) {
        if let Some(owner) = self.0 {
            // SAFETY: it came from a box, and no model took it.
            drop(unsafe { Box::from_raw(owner) });
        }
    }
}

/// Drops the memory that a model was opened from.
unsafe extern "C" fn release<T>(data: *mut c_void) {
    // SAFETY: data is the box that the model took, and this is called once.
    call::guard((), || drop(unsafe { Box::from_raw(data as *mut T) }))
}

impl Model {
    /// Open a checkpoint: a GGUF file, or a folder with `config.json` and safetensors.
    pub fn open(path: impl AsRef<Path>) -> Result<Model> {
        Model::open_with(path, &ModelOptions::new())
    }

    /// The same with options. With [`tokenizer_only`](ModelOptions::tokenizer_only) the path may also be that of a
    /// `tokenizer.json`.
    pub fn open_with(path: impl AsRef<Path>, options: &ModelOptions<'_>) -> Result<Model> {
        let (path, raw) = (c_path(path.as_ref())?, options.raw());
        // SAFETY: path and options live for the call.
        Model::create(|out, error| unsafe { sys::afmoe_model_open(out, path.as_ptr(), &raw, error) })
    }

    /// Open a GGUF file (with `tokenizer_only` also a `tokenizer.json`) that is a part of a larger file: `length` bytes
    /// from `offset` on; `None`: all up to the end. The file may be closed afterwards.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// use afmoe::{Model, ModelOptions};
    /// let file = std::fs::File::open("pico-q8_0.gguf").unwrap();
    /// let model = Model::open_file(&file, 0, None, &ModelOptions::new())?;
    /// # assert!(model.info().has_weights);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn open_file(file: &impl AsFd, offset: u64, length: Option<u64>, options: &ModelOptions<'_>) -> Result<Model> {
        let (fd, raw) = (file.as_fd().as_raw_fd(), options.raw());
        let length = length.unwrap_or(u64::MAX);
        // SAFETY: the descriptor is open and the options live for the call.
        Model::create(|out, error| unsafe { sys::afmoe_model_open_fd(out, fd, offset, length, &raw, error) })
    }

    /// The same from memory, which the model owns from now on and drops with its last reference, on the thread that
    /// has it. `Vec<u8>`, `&'static [u8]`, `Arc<[u8]>` or a mapped file of another crate will do.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// use afmoe::{Model, ModelOptions};
    /// let bytes = std::fs::read("pico-q8_0.gguf").unwrap();
    /// let model = Model::open_memory(bytes, &ModelOptions::new())?;
    /// # assert!(model.info().has_weights);
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn open_memory<T>(memory: T, options: &ModelOptions<'_>) -> Result<Model>
    where
        T: AsRef<[u8]> + Send + Sync + 'static,
    {
        let raw = options.raw();
        let owner = Box::into_raw(Box::new(memory));
        let mut lent = Lent(Some(owner));
        // SAFETY: nothing moves or changes the box until it is dropped, so the bytes it lends stay.
        let bytes = unsafe { (*owner).as_ref() };
        let (data, n_bytes) = (bytes.as_ptr() as *const c_void, bytes.len() as u64);
        let release: sys::afmoe_release_fn = Some(release::<T>);
        Model::create(|out, error| {
            // SAFETY: the options live for the call, the data until release.
            let status =
                unsafe { sys::afmoe_model_open_memory(out, data, n_bytes, release, owner as *mut c_void, &raw, error) };
            if status >= 0 {
                lent.0 = None; // the model's now
            }
            status
        })
    }

    fn create(
        function: impl FnOnce(*mut *mut sys::afmoe_model, *mut sys::afmoe_error) -> sys::afmoe_status,
    ) -> Result<Model> {
        crate::check_version()?;
        Ok(Model { handle: Handle::create(sys::afmoe_model_free, function)? })
    }

    /// Mutable for C's sake: only reference counts change.
    pub(crate) fn as_ptr(&self) -> *mut sys::afmoe_model {
        self.handle.as_ptr()
    }
}
