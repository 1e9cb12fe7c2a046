//! Contexts: what it takes to compute; and the memory all of it takes.

use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::call::{self, call, guard, Handle};
use crate::callback::{stop, Log};
use crate::{sys, Cells, CpuLevel, LogLevel, Model, ModelOptions, Precision, Result, Session};

/// One stage of parallel work, for a [`ContextOptions::parallel`] closure to run.
pub struct Parallel<'a> {
    n_workers: u32,
    task: sys::afmoe_task_fn,
    data: *mut c_void,
    stage: PhantomData<&'a ()>,
}

// SAFETY: the header lets the task run on any threads, side by side; it takes a task called twice or too late, or with
// a number that is none, for nothing to do.
unsafe impl Send for Parallel<'_> {}
unsafe impl Sync for Parallel<'_> {}

impl Parallel<'_> {
    /// [`run`](Parallel::run) is to be called once with every number below this.
    pub fn n_workers(&self) -> u32 {
        self.n_workers
    }

    /// Do the work of one worker, on any thread.
    pub fn run(&self, worker: u32) {
        if let Some(task) = self.task {
            // SAFETY: the stage lasts as long as the borrow, see above.
            unsafe { task(self.data, worker) }
        }
    }
}

impl fmt::Debug for Parallel<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parallel").field("n_workers", &self.n_workers).finish_non_exhaustive()
    }
}

type HostClosure = dyn Fn(&Parallel<'_>) -> ControlFlow<()> + Send + Sync;

/// The host's parallel-for; the context calls it for as long as it lives.
struct Host(Box<HostClosure>);

impl Host {
    unsafe extern "C" fn call(host: *mut c_void, n_workers: u32, task: sys::afmoe_task_fn, data: *mut c_void) -> i32 {
        // SAFETY: host is the Arc's content that the context's owner keeps.
        let host = unsafe { &*(host as *const Host) };
        guard(1, || stop((host.0)(&Parallel { n_workers, task, data, stage: PhantomData })))
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a closure")
    }
}

/// How a context computes.
#[derive(Debug)]
pub struct ContextOptions<'a> {
    raw: sys::afmoe_context_options,
    log: Option<Log<'a>>,
    cpus: Vec<i32>,
    host: Option<Arc<Host>>,
    prefix_folder: Option<PathBuf>,
}

impl Default for ContextOptions<'_> {
    fn default() -> Self {
        ContextOptions {
            raw: call::init(sys::afmoe_context_options_init),
            log: None,
            cpus: Vec::new(),
            host: None,
            prefix_folder: None,
        }
    }
}

impl<'a> ContextOptions<'a> {
    /// The library's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Threads that compute, the calling one included, 1 to 256. Unless said: one for each usable core.
    pub fn n_threads(mut self, n: u32) -> Self {
        self.raw.n_threads = i32::try_from(n).unwrap_or(i32::MAX); // out of range either way
        self
    }

    /// The level of the kernels, [`CpuLevel::Auto`] unless said. One the CPU lacks is
    /// [`Unsupported`](crate::ErrorKind::Unsupported).
    pub fn cpu_level(mut self, level: CpuLevel) -> Self {
        self.raw.cpu_level = level.raw();
        self
    }

    /// The arithmetic, [`Precision::Fast`] unless said.
    pub fn precision(mut self, precision: Precision) -> Self {
        self.raw.precision = precision.raw();
        self
    }

    /// How keys and values are kept, [`Cells::Auto`] unless said.
    pub fn cells(mut self, cells: Cells) -> Self {
        self.raw.cells = cells.raw();
        self
    }

    /// Tokens computed together while a prompt is read, 1 to 4096.
    pub fn chunk_tokens(mut self, n: u32) -> Self {
        self.raw.chunk_tokens = n;
        self
    }

    /// The longest timeline of a session, what a shift dropped not counted; 1 to the model's `max_positions`, 4096
    /// unless said. Memory grows only as tokens come.
    pub fn max_tokens(mut self, n: u64) -> Self {
        self.raw.max_tokens = n;
        self
    }

    /// How far back rewind and sync are free of computing anything again, 0 to 2^32.
    pub fn rewind_tokens(mut self, n: u64) -> Self {
        self.raw.rewind_tokens = n;
        self
    }

    /// Cap on key/value memory of all sessions together.
    pub fn max_page_bytes(mut self, n: u64) -> Self {
        self.raw.max_page_bytes = n;
        self
    }

    /// Going back further than `rewind_tokens` starts from the last snapshot before: one every so many tokens, 64 to
    /// 2^32. There are none without [`snapshot_bytes`](Self::snapshot_bytes).
    pub fn snapshot_tokens(mut self, n: u64) -> Self {
        self.raw.snapshot_tokens = n;
        self
    }

    /// Key/value memory for the snapshots of one session: as many as fit, on longer timelines at larger distances.
    /// None unless said.
    pub fn snapshot_bytes(mut self, n: u64) -> Self {
        self.raw.snapshot_bytes = n;
        self
    }

    /// Key/value memory that dropped sessions may leave behind, so that a new one with the same beginning starts from
    /// there: [`Appended::n_reused`](crate::Appended::n_reused) tells it. Whoever shares the context can tell by time
    /// and that number what others have read. None unless said.
    pub fn prefix_bytes(mut self, n: u64) -> Self {
        self.raw.prefix_bytes = n;
        self
    }

    /// The same on disk, for later processes too: what a session holds when it is dropped is written into this folder,
    /// before the drop returns, and a new session starts from the file with the longest beginning it can go on from.
    /// The folder is made where it is missing, for its owner alone; one that others may look into is
    /// [`Invalid`](crate::ErrorKind::Invalid), for the conversations lie there in the clear. None unless said.
    pub fn prefix_folder(mut self, path: impl Into<PathBuf>) -> Self {
        self.prefix_folder = Some(path.into());
        self
    }

    /// The most that may lie in [`prefix_folder`](Self::prefix_folder) for this model, precision and cells; 8 GiB unless
    /// said. What was used longest ago goes first.
    pub fn prefix_folder_bytes(mut self, n: u64) -> Self {
        self.raw.prefix_folder_bytes = n;
        self
    }

    /// Hears what was chosen.
    pub fn log(mut self, log: impl FnMut(LogLevel, &str) + 'a) -> Self {
        self.log = Some(Log::new(log));
        self
    }

    /// Worker thread i runs on CPU `cpus[i % cpus.len()]` only; the calling thread, which is worker 0, is left alone. A
    /// CPU that this process may not use is [`Invalid`](crate::ErrorKind::Invalid).
    pub fn cpus(mut self, cpus: impl Into<Vec<i32>>) -> Self {
        self.cpus = cpus.into();
        self
    }

    /// The host's threads instead of the library's: none are started, and the results have the same bits. The closure
    /// runs every worker of the stage, on any threads, and returns when all have returned; `Break` stops the computing
    /// call, which answers [`Cancelled`](crate::ErrorKind::Cancelled). It is called on the thread that computes, and
    /// must not call into the same context, where it would wait for itself.
    ///
    /// ```
    /// # std::env::set_current_dir("../../../models").unwrap();
    /// use afmoe::{Context, ContextOptions, Model};
    /// use std::{ops::ControlFlow, thread};
    ///
    /// let options = ContextOptions::new().n_threads(2).parallel(|stage| {
    ///     thread::scope(|scope| {
    ///         for worker in 0..stage.n_workers() {
    ///             scope.spawn(move || stage.run(worker));
    ///         }
    ///     });
    ///     ControlFlow::Continue(())
    /// });
    /// let context = Context::with_options(&Model::open("pico-q8_0.gguf")?, &options)?;
    /// # context.session()?.append(&[1, 2, 3])?;
    /// # Ok::<(), afmoe::Error>(())
    /// ```
    pub fn parallel(mut self, host: impl Fn(&Parallel<'_>) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        self.host = Some(Arc::new(Host(Box::new(host))));
        self
    }

    /// For a call while self is borrowed.
    fn raw(&self) -> sys::afmoe_context_options {
        let mut raw = self.raw;
        (raw.log, raw.log_data) = Log::raw(self.log.as_ref());
        if !self.cpus.is_empty() {
            raw.cpus = self.cpus.as_ptr();
            raw.n_cpus = self.cpus.len() as u64;
        }
        if let Some(host) = &self.host {
            raw.parallel = Some(Host::call);
            raw.parallel_data = Arc::as_ptr(host) as *mut c_void;
        }
        raw
    }
}

/// What a context chose, and the memory it holds now.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextInfo {
    /// Threads that compute.
    pub n_threads: u32,
    /// Level of the kernels used.
    pub cpu_level: CpuLevel,
    /// The arithmetic.
    pub precision: Precision,
    /// How keys and values are kept.
    pub cells: Cells,
    /// Tokens computed together.
    pub chunk_tokens: u32,
    /// The longest timeline of a session.
    pub max_tokens: u64,
    /// Key/value memory held by all sessions and the free list.
    pub page_bytes: u64,
    /// Working memory held.
    pub scratch_bytes: u64,
    /// Files of [`prefix_folder`](ContextOptions::prefix_folder) that sessions began with.
    pub n_prefix_files_read: u64,
    /// Files written there.
    pub n_prefix_files_written: u64,
    /// Files that could not be written, or were damaged and therefore removed.
    pub n_prefix_files_failed: u64,
}

/// Bytes by what they are for. Only `weights_mapped` can be dropped and read again by the system.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Checkpoint files used where they lie.
    pub weights_mapped: u64,
    /// Weights read or converted, tensor lists, tokenizer.
    pub weights_private: u64,
    /// Working memory of the context.
    pub scratch: u64,
    /// Keys and values, recycled pages included.
    pub pages: u64,
    /// Tokens, last logits and page tables.
    pub sessions: u64,
    /// What dropped sessions have left, and is not in `pages`; in an estimate the most they may leave.
    pub prefixes: u64,
    /// Logits of tokens guessed ahead, held while an answer is made with `max_draft`; in an estimate: of all sessions
    /// for a `max_draft` of 1.
    pub drafts: u64,
}

impl Memory {
    fn from_raw(raw: &sys::afmoe_memory) -> Memory {
        Memory {
            weights_mapped: raw.weights_mapped,
            weights_private: raw.weights_private,
            scratch: raw.scratch,
            pages: raw.pages,
            sessions: raw.sessions,
            prefixes: raw.prefixes,
            drafts: raw.drafts,
        }
    }
}

/// What it would take to open `path`, make one context, and have `n_sessions` sessions with `n_tokens` each. Reads
/// headers and tokenizer, no weights; nothing stays open.
///
/// ```
/// # std::env::set_current_dir("../../../models").unwrap();
/// use afmoe::{estimate, ContextOptions, ModelOptions};
/// let memory = estimate("pico-q8_0.gguf", &ModelOptions::new(), &ContextOptions::new(), 4, 1000)?;
/// println!("{} bytes of keys and values", memory.pages);
/// # assert!(memory.pages > 0 && memory.weights_mapped > 8_000_000);
/// # Ok::<(), afmoe::Error>(())
/// ```
pub fn estimate(
    path: impl AsRef<Path>,
    model_options: &ModelOptions<'_>,
    context_options: &ContextOptions<'_>,
    n_sessions: u64,
    n_tokens: u64,
) -> Result<Memory> {
    crate::check_version()?;
    let path = crate::model::c_path(path.as_ref())?;
    let (model, context) = (model_options.raw(), context_options.raw());
    let mut out = call::init(sys::afmoe_memory_init);
    // SAFETY: path, options and out live for the call.
    call(|error| unsafe {
        sys::afmoe_estimate(path.as_ptr(), &model, &context, n_sessions, n_tokens, &mut out, error)
    })?;
    Ok(Memory::from_raw(&out))
}

/// Worker threads, working memory and key/value pages for one model. Clones are the same context; sessions hold one, so
/// any order of dropping is right. It may be used from any number of threads: its sessions take turns.
#[derive(Clone, Debug)]
pub struct Context {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    handle: Handle<sys::afmoe_context>, // first to go: it may call the host until then
    model: Model,
    _host: Option<Arc<Host>>,
}

// SAFETY: the library allows any number of threads at once on a context, and the host's closure is Send and Sync.
unsafe impl Send for Shared {}
unsafe impl Sync for Shared {}

impl Context {
    /// A context with the library's defaults. Worker threads start here.
    pub fn new(model: &Model) -> Result<Context> {
        Context::with_options(model, &ContextOptions::new())
    }

    /// The same with options. [`State`](crate::ErrorKind::State) when the model was opened without weights.
    pub fn with_options(model: &Model, options: &ContextOptions<'_>) -> Result<Context> {
        let folder = options.prefix_folder.as_deref().map(crate::model::c_path).transpose()?;
        let mut raw = options.raw();
        if let Some(folder) = &folder {
            raw.prefix_folder = folder.as_ptr();
        }
        // SAFETY: the options and the folder's name live for the call; the context takes its own reference on the model.
        let create = |out: *mut *mut sys::afmoe_context, error| unsafe {
            sys::afmoe_context_create(out, model.as_ptr(), &raw, error)
        };
        let handle = Handle::create(sys::afmoe_context_free, create)?;
        Ok(Context { shared: Arc::new(Shared { handle, model: model.clone(), _host: options.host.clone() }) })
    }

    /// The model it was made for.
    pub fn model(&self) -> &Model {
        &self.shared.model
    }

    /// An empty session in this context.
    pub fn session(&self) -> Result<Session> {
        Session::new(self)
    }

    /// What was chosen, and the memory held now.
    pub fn info(&self) -> Result<ContextInfo> {
        let mut raw = call::init(sys::afmoe_context_info_init);
        // SAFETY: raw has its size set.
        call(|error| unsafe { sys::afmoe_context_get_info(self.as_ptr(), &mut raw, error) })?;
        Ok(ContextInfo {
            n_threads: raw.n_threads.unsigned_abs(),
            cpu_level: CpuLevel::from_raw(raw.cpu_level),
            precision: Precision::from_raw(raw.precision),
            cells: Cells::from_raw(raw.cells),
            chunk_tokens: raw.chunk_tokens,
            max_tokens: raw.max_tokens,
            page_bytes: raw.page_bytes,
            scratch_bytes: raw.scratch_bytes,
            n_prefix_files_read: raw.n_prefix_files_read,
            n_prefix_files_written: raw.n_prefix_files_written,
            n_prefix_files_failed: raw.n_prefix_files_failed,
        })
    }

    /// What the context, its model and its sessions take now. A model shared by contexts is counted in each.
    pub fn memory(&self) -> Result<Memory> {
        let mut raw = call::init(sys::afmoe_memory_init);
        // SAFETY: raw has its size set.
        call(|error| unsafe { sys::afmoe_context_get_memory(self.as_ptr(), &mut raw, error) })?;
        Ok(Memory::from_raw(&raw))
    }

    pub(crate) fn as_ptr(&self) -> *mut sys::afmoe_context {
        self.shared.handle.as_ptr()
    }
}

/// The highest level this CPU and operating system allow.
pub fn cpu_level() -> CpuLevel {
    // SAFETY: it has no arguments.
    CpuLevel::from_raw(unsafe { sys::afmoe_cpu_level() })
}

impl fmt::Display for CpuLevel {
    /// `"c"`, `"avx2"`, ...
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // SAFETY: names are static.
        f.write_str(crate::static_text(unsafe { sys::afmoe_cpu_level_name(self.raw()) }))
    }
}
