"""One timeline of tokens with its keys and values."""
from __future__ import annotations

import ctypes
import dataclasses
import time
from typing import (TYPE_CHECKING, Any, AsyncIterator, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple,
                    Union)

if TYPE_CHECKING:
    from ._arrays import Floats, Ints
    from .context import Context

from . import _arrays, _ffi, generation
from ._callbacks import Calls, Progress
from ._cancel import Cancel
from ._ffi import Pool
from ._library import lib
from ._native import (Handle, Path, call, choice, create, fill, integer, make, memory_of, new_error, path_in,
                      positions_in, raise_for, tokens_in)
from .generation import Generation, GenerationConfig, Piece

Prompt = Union[str, Iterable[int]]


@dataclasses.dataclass(frozen=True)
class AppendResult:
    """What a computing call did; arrays are there where they were asked for."""

    n_tokens: int
    """length of the timeline now"""
    n_reused: int
    """tokens of the request that were there already"""
    n_computed: int
    """tokens that went through the layers"""
    logprobs: Optional[Floats] = None
    """[end - begin]"""
    logits: Optional[Floats] = None
    """[positions, vocab_size]"""
    hidden: Optional[Floats] = None
    """[positions, hidden_size]"""
    expert_ids: Optional[Ints] = None
    """[n_computed, mixture layers, n_experts_per_token]"""
    expert_weights: Optional[Floats] = None


class Wanted:
    """The buffers of one computing call."""

    def __init__(self, session: Session, n_tokens: int, logprobs: Optional[Tuple[int, int]],
                 positions: Optional[Iterable[int]], logits: bool, hidden: bool, experts: bool) -> None:
        info = session.model_info
        self.begin, self.end = logprobs if logprobs is not None else (0, 0)
        at, n = positions_in(positions if positions is not None else ())
        self.positions = at
        self.n_positions = n
        # A range that ends before it begins is for the library to refuse.
        self.logprobs = _arrays.floats(max(0, self.end - self.begin)) if logprobs is not None else None
        self.logits = _arrays.floats(n, info.vocab_size) if logits else None
        self.hidden = _arrays.floats(n, info.hidden_size) if hidden else None
        shape = (n_tokens, info.n_layers - info.n_dense_layers, info.n_experts_per_token)
        self.expert_ids = _arrays.ints(*shape) if experts else None
        self.expert_weights = _arrays.floats(*shape) if experts else None

    def options(self, **others: Any) -> _ffi.afmoe_append_options:
        def size(array: Any) -> Optional[int]:
            return None if array is None else int(array.size)
        return make(
            _ffi.afmoe_append_options, logprob_begin=self.begin, logprob_end=self.end,
            out_logprobs=_arrays.pointer(self.logprobs), positions=self.positions, n_positions=self.n_positions,
            out_logits=_arrays.pointer(self.logits), logits_capacity=size(self.logits),
            out_hidden=_arrays.pointer(self.hidden), hidden_capacity=size(self.hidden),
            out_expert_ids=_arrays.pointer(self.expert_ids), out_expert_weights=_arrays.pointer(self.expert_weights),
            expert_capacity=size(self.expert_ids), **others)

    def result(self, did: _ffi.afmoe_append_result) -> AppendResult:
        def computed(array: Any) -> Any:
            return None if array is None else array[:did.n_computed]
        return AppendResult(did.n_tokens, did.n_reused, did.n_computed, self.logprobs, self.logits, self.hidden,
                            computed(self.expert_ids), computed(self.expert_weights))


class Session(Handle):
    """One timeline of tokens. One caller at a time: a second one gets BusyError.

    Prompts are text (encoded with `Tokenizer.encode`) or token ids. Arrays that come out are copies, but for
    logits_view. Ctrl-C stops a call on the main thread with KeyboardInterrupt, and the session can be used on: what
    was computed is kept."""

    def __init__(self, context: Context) -> None:
        with context._borrow as pointer:
            self._begin(context, create(_ffi.afmoe_session, lib.afmoe_session_create, pointer))

    def _begin(self, context: Context, pointer: Any) -> None:
        self._own(pointer, lib.afmoe_session_free)
        self.context = context
        self.model_info: _ffi.afmoe_model_info = context.model.info
        self.tokenizer = context.model.tokenizer

    def fork(self) -> Session:
        """A second session with the same timeline and logits. Nothing is computed, and memory is shared until one of
        the two goes on."""
        made = Session.__new__(Session)
        with self._borrow as pointer:
            made._begin(self.context, create(_ffi.afmoe_session, lib.afmoe_session_fork, pointer))
        return made

    # ---- State: what goes on to the same bits, also in another process ----

    def save(self, path: Path) -> None:
        """Write tokens, keys and values, and the last logits to a file, which only its owner may read. It replaces an
        old one as a whole."""
        with self._borrow as session:
            call(lib.afmoe_session_save, session, path_in(path))

    def load(self, path: Path) -> None:
        """Become the session that was saved, of the same model, precision and cells. On failure nothing has changed."""
        with self._borrow as session:
            call(lib.afmoe_session_load, session, path_in(path))

    def state(self) -> bytes:
        """What save writes."""
        with self._borrow as session:
            out, n = fill(ctypes.c_char, 0, lib.afmoe_session_save_memory, session)
        return bytes(memoryview(out)[:n])

    def restore(self, state: Any) -> None:
        """load from bytes, a bytearray, an mmap or any other buffer."""
        memory, n_bytes = memory_of(state)
        with self._borrow as session:
            call(lib.afmoe_session_load_memory, session, memory, n_bytes)

    # ---- Calls that compute ----

    def _compute(self, function: Callable[..., int], tokens: Iterable[int], cancel: Optional[Cancel],
                 progress: Optional[Progress], logprobs: Optional[Tuple[int, int]],
                 positions: Optional[Iterable[int]], logits: bool, hidden: bool, experts: bool) -> AppendResult:
        array, n = tokens_in(tokens)
        wanted = Wanted(self, n, logprobs, positions, logits, hidden, experts)
        did = _ffi.afmoe_append_result(ctypes.sizeof(_ffi.afmoe_append_result))
        self._run(Calls(cancel), progress, n > 1, wanted.options, lambda session, options, error:
                  function(session, array, n, options, did, error))
        return wanted.result(did)

    def _run(self, calls: Calls, progress: Optional[Progress], is_long: bool, options: Callable[..., Any],
             function: Callable[..., int]) -> None:
        """One call with append options, where signals and the host's callbacks have their say."""
        if is_long and progress is None:
            progress = nothing  # between chunks, handlers of signals can run
        error = new_error()
        with self._borrow as session, self.context._host.running():
            with calls.on_main() if is_long else calls.running() as flag:
                filled = options(cancel=flag, progress=calls.progress(progress))
                if function(session, filled, error) < 0:
                    raise_for(error)

    def append(self, tokens: Iterable[int], *, logprobs: Optional[Tuple[int, int]] = None,
               positions: Optional[Iterable[int]] = None, logits: bool = False, hidden: bool = False,
               experts: bool = False, progress: Optional[Progress] = None,
               cancel: Optional[Cancel] = None) -> AppendResult:
        """Extend the timeline, and leave the logits of the last token.

        `logprobs` (begin, end): the log-probabilities the model gave to the tokens at these positions of the timeline.
        `positions`: where `logits` and `hidden` (final hidden states) are wanted. `experts`: which were chosen for
        each token, in every mixture layer, and their weights. CancelledError keeps whole chunks: see `n_tokens`."""
        return self._compute(lib.afmoe_session_append, tokens, cancel, progress, logprobs, positions, logits, hidden,
                             experts)

    def sync(self, tokens: Iterable[int], *, logprobs: Optional[Tuple[int, int]] = None,
             positions: Optional[Iterable[int]] = None, logits: bool = False, hidden: bool = False,
             experts: bool = False, progress: Optional[Progress] = None,
             cancel: Optional[Cancel] = None) -> AppendResult:
        """Make the timeline equal these tokens, keeping the common prefix, and leave the logits of the last one. As in
        append, but positions may lie anywhere in the tokens."""
        return self._compute(lib.afmoe_session_sync, tokens, cancel, progress, logprobs, positions, logits, hidden,
                             experts)

    def rewind(self, n_tokens: int, *, progress: Optional[Progress] = None,
               cancel: Optional[Cancel] = None) -> AppendResult:
        """Drop all tokens from position n_tokens on."""
        did = _ffi.afmoe_append_result(ctypes.sizeof(_ffi.afmoe_append_result))
        n = integer(n_tokens, ctypes.c_uint64, 'n_tokens')

        def options(**others: Any) -> _ffi.afmoe_append_options:
            return make(_ffi.afmoe_append_options, **others)
        self._run(Calls(cancel), progress, True, options, lambda session, filled, error:
                  lib.afmoe_session_rewind(session, n, filled, did, error))
        return AppendResult(did.n_tokens, did.n_reused, did.n_computed)

    def shift(self, n_keep: int, n_drop: int) -> int:
        """Make room in a session that is full: of the tokens that the full layers see, keep the first n_keep and drop the
        n_drop oldest after them, both rounded up to whole pages of 64. How many were dropped. Positions and tokens stay;
        what comes next is computed with less to look at (docs/model.md)."""
        keep, drop = integer(n_keep, ctypes.c_uint64, 'n_keep'), integer(n_drop, ctypes.c_uint64, 'n_drop')
        n_dropped = ctypes.c_uint64()
        with self._borrow as session:
            call(lib.afmoe_session_shift, session, keep, drop, n_dropped)
        return n_dropped.value

    def score(self, prompt: Prompt, *, progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> Floats:
        """The natural log-probability of every token but the first, given those before it. Makes the timeline equal
        the prompt."""
        tokens = self.tokens_of(prompt)
        whole = (min(1, len(tokens)), len(tokens))
        scores = self.sync(tokens, logprobs=whole, progress=progress, cancel=cancel).logprobs
        assert scores is not None
        return scores

    def embed(self, prompt: Prompt, *, pooling: Union[Pool, str] = Pool.MEAN, normalize: bool = True,
              cancel: Optional[Cancel] = None) -> Floats:
        """A text as one vector: its final hidden states, pooled over all positions ("mean") or at the "last". Leaves no
        logits."""
        array, n = tokens_in(self.tokens_of(prompt))
        out = _arrays.floats(self.model_info.hidden_size)
        kind = choice(Pool, pooling, 'pooling')
        calls = Calls(cancel)
        with self._borrow as session, self.context._host.running(), calls.on_main() as flag:
            call(lib.afmoe_session_embed, session, array, n, kind, bool(normalize), flag, _arrays.pointer(out),
                 out.size, None)
        return out

    # ---- Calls that look ----

    @property
    def tokens(self) -> List[int]:
        """The timeline."""
        with self._borrow as session:
            out, n = fill(ctypes.c_int32, 256, lib.afmoe_session_tokens, session)
        return [int(token) for token in out[:n]]

    @property
    def stats(self) -> _ffi.afmoe_session_stats:
        """Counted since the session was created."""
        out = _ffi.afmoe_session_stats(ctypes.sizeof(_ffi.afmoe_session_stats))
        with self._borrow as session:
            call(lib.afmoe_session_get_stats, session, out)
        return out

    @property
    def n_tokens(self) -> int:
        return self.stats.n_tokens

    def __len__(self) -> int:
        return self.n_tokens

    def __bool__(self) -> bool:
        return True

    def _vector(self, function: Callable[..., int], n: int) -> Floats:
        out = _arrays.floats(n)
        with self._borrow as session:
            call(function, session, _arrays.pointer(out), out.size, None)
        return out

    def logits(self) -> Floats:
        """Of the last position: a copy of vocab_size floats. StateError when there are none."""
        return self._vector(lib.afmoe_session_logits, self.model_info.vocab_size)

    def logits_view(self) -> Floats:
        """The same where they lie, without a copy, not to be written to. DANGER: good only until the next call on this
        session that computes, or its close; then the memory is used for something else or gone."""
        out, n = ctypes.POINTER(ctypes.c_float)(), ctypes.c_uint64()
        with self._borrow as session:
            call(lib.afmoe_session_logits_view, session, out, n)
            return _arrays.view(out, (n.value,))

    def logprobs(self) -> Floats:
        """Natural log-probabilities of the last position: a copy of vocab_size floats."""
        return self._vector(lib.afmoe_session_logprobs, self.model_info.vocab_size)

    def hidden(self) -> Floats:
        """Final hidden state of the last position: a copy of hidden_size floats."""
        return self._vector(lib.afmoe_session_hidden, self.model_info.hidden_size)

    def top_logprobs(self, k: int) -> List[Tuple[int, float]]:
        """The k most likely next tokens with their log-probabilities, falling."""
        integer(k, ctypes.c_uint64, 'k')
        k = min(k, self.model_info.vocab_size)
        tokens, logprobs, n = (ctypes.c_int32 * k)(), (ctypes.c_float * k)(), ctypes.c_uint64()
        with self._borrow as session:
            call(lib.afmoe_session_top_logprobs, session, tokens, logprobs, k, n)
        return list(zip(tokens[:n.value], logprobs[:n.value]))

    # ---- Generation: see generation.py ----

    def tokens_of(self, prompt: Prompt) -> Sequence[int]:
        return self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)

    def _read(self, prompt: Optional[Prompt], progress: Optional[Progress],
              cancel: Optional[Cancel]) -> Tuple[int, float]:
        """Prompt into the timeline: how many tokens it has then, and tokens per second."""
        if prompt is None:
            return self.n_tokens, 0.0
        began = time.perf_counter()
        did = self.sync(self.tokens_of(prompt), progress=progress, cancel=cancel)
        return did.n_tokens, did.n_computed / max(time.perf_counter() - began, 1e-9)

    def generate(self, prompt: Optional[Prompt] = None, generation_config: Optional[GenerationConfig] = None, *,
                 on_piece: Optional[Callable[[Piece], object]] = None, progress: Optional[Progress] = None,
                 cancel: Optional[Cancel] = None, **keywords: Any) -> Generation:
        """Read the prompt (None: go on from where the timeline is) and go on until something stops.

        Keywords are the fields of GenerationConfig. `on_piece` is called with every piece as it comes; what it raises
        comes out of here, and the tokens so far are kept."""
        config = generation.configure(generation_config, keywords)
        return generation.generate(self, prompt, config, on_piece, progress, cancel)

    def stream(self, prompt: Optional[Prompt] = None, generation_config: Optional[GenerationConfig] = None, *,
               progress: Optional[Progress] = None, cancel: Optional[Cancel] = None,
               **keywords: Any) -> Iterator[Piece]:
        """The same piece by piece: nothing is computed until a piece is asked for, and the timeline holds the tokens
        given out and no more. The last piece has no token but the finish_reason, and text that was held back. Between
        two pieces the session may be looked at, forked and saved; when a call changes it, the stream raises
        StateError."""
        config = generation.configure(generation_config, keywords)
        return generation.stream(self, prompt, config, progress, cancel)

    async def agenerate(self, prompt: Optional[Prompt] = None, generation_config: Optional[GenerationConfig] = None, *,
                        on_piece: Optional[Callable[[Piece], object]] = None, progress: Optional[Progress] = None,
                        cancel: Optional[Cancel] = None, **keywords: Any) -> Generation:
        """generate in a thread. Callbacks run there. When the task is cancelled, so is the call."""
        config = generation.configure(generation_config, keywords)
        return await generation.in_thread(
            lambda flag: generation.generate(self, prompt, config, on_piece, progress, flag), cancel)

    async def astream(self, prompt: Optional[Prompt] = None, generation_config: Optional[GenerationConfig] = None, *,
                      progress: Optional[Progress] = None, cancel: Optional[Cancel] = None,
                      **keywords: Any) -> AsyncIterator[Piece]:
        """stream, each step in a thread."""
        config = generation.configure(generation_config, keywords)
        async for piece in generation.stream_in_thread(
                lambda flag: generation.stream(self, prompt, config, progress, flag), cancel):
            yield piece


def nothing(_done: int, _total: int) -> None:
    pass
