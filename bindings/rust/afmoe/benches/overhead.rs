//! What a generated token costs in Rust beyond what it costs in C: afmoe_generate with a C callback, and in steps of
//! one token; the same through `Session::generate`, and through `Session::pieces`. Round after round each generates the
//! same tokens; the least CPU time of the thread over all rounds counts.
//!
//!     cargo bench --bench overhead [-- MODEL [ROUNDS]]
//!
//! The smaller the model, the finer the difference can be told from the noise of computing.

use std::ffi::c_void;
use std::ops::ControlFlow;
use std::ptr::{null, null_mut};

use afmoe::{sys, Context, ContextOptions, GenerateOptions, Model, Session, Token};

const N_TOKENS: u64 = 200;

#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

extern "C" {
    fn clock_gettime(clock: i32, out: *mut Timespec) -> i32;
}

/// CPU time of this thread in nanoseconds, on Linux.
fn now() -> u64 {
    const CLOCK_THREAD_CPUTIME_ID: i32 = 3;
    let mut time = Timespec { seconds: 0, nanoseconds: 0 };
    assert_eq!(unsafe { clock_gettime(CLOCK_THREAD_CPUTIME_ID, &mut time) }, 0);
    time.seconds as u64 * 1_000_000_000 + time.nanoseconds as u64
}

unsafe extern "C" fn count(total: *mut c_void, piece: *const sys::afmoe_piece) -> i32 {
    *(total as *mut u64) += (*piece).text_bytes;
    0
}

/// The C loop: as a C program would write it, without the safe layer. It needs its own session.
struct Raw {
    model: *mut sys::afmoe_model,
    context: *mut sys::afmoe_context,
    session: *mut sys::afmoe_session,
    sampler: *mut sys::afmoe_sampler,
}

impl Raw {
    fn new(path: &str) -> Raw {
        let path = std::ffi::CString::new(path).unwrap();
        let mut raw = Raw { model: null_mut(), context: null_mut(), session: null_mut(), sampler: null_mut() };
        unsafe {
            let mut options = std::mem::zeroed();
            sys::afmoe_context_options_init(&mut options, std::mem::size_of_val(&options) as u32);
            options.n_threads = 1;
            assert_eq!(sys::afmoe_model_open(&mut raw.model, path.as_ptr(), null(), null_mut()), 0);
            assert_eq!(sys::afmoe_context_create(&mut raw.context, raw.model, &options, null_mut()), 0);
            assert_eq!(sys::afmoe_session_create(&mut raw.session, raw.context, null_mut()), 0);
            assert_eq!(sys::afmoe_sampler_create(&mut raw.sampler, raw.model, null(), null_mut()), 0);
        }
        raw
    }

    fn start(&mut self, prompt: &[Token]) {
        let status = unsafe {
            sys::afmoe_session_rewind(self.session, 0, null(), null_mut(), null_mut());
            let (ids, n) = (prompt.as_ptr() as *const i32, prompt.len() as u64);
            sys::afmoe_session_append(self.session, ids, n, null(), null_mut(), null_mut())
        };
        assert_eq!(status, 0);
    }

    fn generate(&mut self, n_tokens: u64) -> u64 {
        let mut total = 0u64;
        let status = unsafe {
            let mut options: sys::afmoe_generate_options = std::mem::zeroed();
            sys::afmoe_generate_options_init(&mut options, std::mem::size_of_val(&options) as u32);
            options.ignore_eos = 1;
            options.max_tokens = n_tokens;
            options.on_piece = Some(count);
            options.on_piece_data = &mut total as *mut u64 as *mut c_void;
            sys::afmoe_generate(self.session, self.sampler, &options, null_mut(), null_mut())
        };
        assert_eq!(status, 0);
        total
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        unsafe {
            sys::afmoe_sampler_free(self.sampler);
            sys::afmoe_session_free(self.session);
            sys::afmoe_context_free(self.context);
            sys::afmoe_model_free(self.model);
        }
    }
}

fn by_callback(session: &mut Session, options: &GenerateOptions) -> u64 {
    let mut total = 0;
    let end = session.generate(None, options, |piece| {
        total += piece.text.len() as u64;
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap().n_generated, N_TOKENS);
    total
}

fn by_iterator(session: &mut Session, options: &GenerateOptions) -> u64 {
    session.pieces(None, options).unwrap().map(|piece| piece.unwrap().text.len() as u64).sum()
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    let pico = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../models/pico-q8_0.gguf");
    let path = arguments.next().unwrap_or_else(|| pico.to_string());
    let rounds = arguments.next().map_or(100, |rounds| rounds.parse().unwrap());

    let prompt: Vec<Token> = (1..20).collect();
    let model = Model::open(&path).unwrap();
    let context = Context::with_options(&model, &ContextOptions::new().n_threads(1)).unwrap();
    let (mut raw, mut session) = (Raw::new(&path), context.session().unwrap());
    let options = GenerateOptions::new().ignore_eos(true).max_tokens(N_TOKENS);
    let mut least = [u64::MAX; 4];
    for way in (0..rounds).flat_map(|_| 0..4) {
        raw.start(&prompt);
        session.rewind(0).unwrap();
        session.append(&prompt).unwrap();
        let before = now();
        let _: u64 = match way {
            0 => raw.generate(N_TOKENS),
            1 => (0..N_TOKENS).map(|_| raw.generate(1)).sum(),
            2 => by_callback(&mut session, &options),
            _ => by_iterator(&mut session, &options),
        };
        least[way] = least[way].min(now() - before);
    }
    for (name, time) in ["C", "C, token by token", "Session::generate", "Session::pieces"].into_iter().zip(least) {
        let each = time as f64 / N_TOKENS as f64 / 1e3;
        let more = (time as f64 - least[0] as f64) / N_TOKENS as f64 / 1e3;
        println!("{name:18} {each:9.3} us a token, {more:+.3} us");
    }
}
