"""The two ways to go on from a prompt: `generate`, the library's loop with a callback, and `stream`, where it is asked
for piece by piece, so that a consumer who stops asking leaves nothing in the timeline that was not given out."""
from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import time
from typing import (TYPE_CHECKING, Any, AsyncIterator, Callable, Dict, Iterator, List, Mapping, Optional, Sequence,
                    Tuple, TypeVar, Union)

if TYPE_CHECKING:
    from .model import Model
    from .session import Prompt, Session

from . import _ffi
from ._callbacks import Calls, Progress
from ._cancel import Cancel
from ._ffi import Finish
from ._library import lib
from ._native import Handle, call, create, make, new_error, raise_for, tokens_in
from .errors import InvalidError
from .sampler import Sampler, recommended_options

T = TypeVar('T')

FINISH_REASONS: Dict[int, str] = {reason: reason.name.lower() for reason in Finish}
"""length, stop_token, stop_string, cancelled, context (no room left), error"""


@dataclasses.dataclass(frozen=True)
class GenerationConfig:
    """What to generate; names as in transformers where it has one."""

    max_new_tokens: Optional[int] = None
    """most tokens to generate; None: until something stops"""
    do_sample: bool = False
    """draw, beginning with what the checkpoint recommends (temperature 1 where it says nothing); else greedy"""
    temperature: Optional[float] = None
    top_k: Optional[int] = None
    """0: off"""
    top_p: Optional[float] = None
    min_p: Optional[float] = None
    seed: Optional[int] = None
    """a draw depends on this and the position only; None: 0"""
    repetition_penalty: Optional[float] = None
    presence_penalty: Optional[float] = None
    frequency_penalty: Optional[float] = None
    logit_bias: Optional[Mapping[int, float]] = None
    """added to the logits of these tokens; -inf: never"""
    sampler: Optional[Sampler] = None
    """used instead of all of the above but max_new_tokens"""
    eos_token_id: Union[int, Sequence[int], None] = None
    """tokens that stop, instead of the model's stop set"""
    ignore_eos: bool = False
    """the model's stop set does not stop"""
    stop_strings: Union[str, Sequence[str], None] = None
    """text that stops, also across tokens, and is not given out; at most 64"""
    skip_special_tokens: bool = True
    """control tokens have no text"""
    top_logprobs: int = 0
    """how many alternatives each piece has, up to 1024"""
    max_draft: Optional[int] = None
    """most tokens to guess ahead, up to 64, where text repeats: the same tokens, sooner. None: 0"""


_DRAWING = ('temperature', 'top_k', 'top_p', 'min_p', 'seed')
_CHANGING = ('repetition_penalty', 'presence_penalty', 'frequency_penalty', 'logit_bias')


def configure(config: Optional[GenerationConfig], keywords: Dict[str, Any]) -> GenerationConfig:
    """The configuration with these fields changed, checked where nothing below would."""
    made = dataclasses.replace(config or GenerationConfig(), **keywords)
    given = [name for name in _DRAWING + _CHANGING if getattr(made, name) is not None]
    if made.sampler is not None and (given or made.do_sample):
        raise InvalidError(_ffi.AFMOE_INVALID, f'{(given or ["do_sample"])[0]} is given beside a sampler, which has '
                                               f'its own')
    drawing = [name for name in given if name in _DRAWING]
    if drawing and not made.do_sample:
        raise InvalidError(_ffi.AFMOE_INVALID, f'{drawing[0]} is given, but do_sample is not set: greedy generation '
                                               f'has no use for it')
    for name in ('max_new_tokens', 'top_logprobs'):
        value = getattr(made, name)
        if value is not None and value < 0:
            raise InvalidError(_ffi.AFMOE_INVALID, f'{name} is {value}, less than 0')
    return made


def make_sampler(model: Model, config: GenerationConfig) -> Sampler:
    options = {name: getattr(config, name) for name in _DRAWING + _CHANGING}
    if config.do_sample and config.temperature is None:
        options['temperature'] = recommended_options(model).temperature or 1.0
    return Sampler(model, recommended=config.do_sample, **options)


@contextlib.contextmanager
def sampler_for(session: Session, config: GenerationConfig) -> Iterator[Sampler]:
    if config.sampler is not None:
        yield config.sampler
        return
    with make_sampler(session.context.model, config) as made:
        yield made


class Piece:
    """One step: text that is final now (whole characters, may be empty), and the token it came with.

    `token` is None in the last piece, which has the finish_reason. logprob and top_logprobs are natural logarithms in
    the model's own distribution, whatever the sampler does."""

    __slots__ = ('text', 'token', 'logprob', 'position', 'top_logprobs', 'finish_reason', 'prompt_tokens',
                 'prompt_tps', 'generation_tokens', 'generation_seconds')

    text: str
    token: Optional[int]
    logprob: float
    position: int
    top_logprobs: List[Tuple[int, float]]
    finish_reason: Optional[str]
    prompt_tokens: int
    prompt_tps: float
    generation_tokens: int
    generation_seconds: float

    def __init__(self, text: str, token: Optional[int], logprob: float, position: int,
                 top_logprobs: List[Tuple[int, float]], finish_reason: Optional[str], prompt_tokens: int,
                 prompt_tps: float, generation_tokens: int, generation_seconds: float) -> None:
        self.text = text
        self.token = token
        self.logprob = logprob
        self.position = position
        self.top_logprobs = top_logprobs
        self.finish_reason = finish_reason
        self.prompt_tokens = prompt_tokens
        self.prompt_tps = prompt_tps
        self.generation_tokens = generation_tokens
        self.generation_seconds = generation_seconds

    @property
    def generation_tps(self) -> float:
        """Tokens per second so far."""
        return self.generation_tokens / max(self.generation_seconds, 1e-9)

    def __repr__(self) -> str:
        return f'Piece({self.text!r}, token={self.token}, finish_reason={self.finish_reason!r})'


@dataclasses.dataclass(frozen=True)
class Generation:
    """All of it."""

    text: str
    tokens: List[int]
    logprobs: List[float]
    """of each token"""
    top_logprobs: List[List[Tuple[int, float]]]
    """alternatives at each token"""
    finish_reason: str
    stop_token: Optional[int]
    """the token that stopped; it is not in the timeline"""
    stop_string: Optional[str]
    prompt_tokens: int
    prompt_tps: float
    generation_tokens: int
    generation_tps: float
    n_drafted: int = 0
    """tokens guessed ahead and computed"""
    n_draft_accepted: int = 0
    """of them, those that were right"""

    def __str__(self) -> str:
        return self.text


def _stop_strings(config: GenerationConfig) -> List[bytes]:
    strings = config.stop_strings
    return [text.encode() for text in ([strings] if isinstance(strings, str) else strings or ())]


def _stop_tokens(config: GenerationConfig) -> List[int]:
    given = config.eos_token_id
    return [] if given is None else [given] if isinstance(given, int) else list(given)


def options_of(config: GenerationConfig, flag: Any, on_piece: Any,
               on_piece_data: Optional[int] = None) -> Tuple[_ffi.afmoe_generate_options, List[bytes]]:
    """The options of C, and the stop strings in them."""
    strings = _stop_strings(config)
    stops, n_stops = tokens_in(_stop_tokens(config), 'eos_token_id')
    n = len(strings)
    return make(
        _ffi.afmoe_generate_options, ignore_eos=config.ignore_eos or config.eos_token_id is not None,
        max_tokens=config.max_new_tokens, stop_tokens=stops, n_stop_tokens=n_stops,
        stop_strings=(ctypes.c_char_p * n)(*strings) if n else None,
        stop_string_bytes=(ctypes.c_uint64 * n)(*map(len, strings)) if n else None, n_stop_strings=n,
        n_top_logprobs=config.top_logprobs, keep_special=not config.skip_special_tokens, on_piece=on_piece,
        on_piece_data=on_piece_data, cancel=flag, max_draft=config.max_draft), strings


def _alternatives(piece: Any) -> List[Tuple[int, float]]:
    n = piece.n_top
    return list(zip(piece.top_tokens[:n], piece.top_logprobs[:n])) if n else []


class Collected:
    """The pieces of one answer of the library's loop."""

    def __init__(self, n_prompt: int, prompt_tps: float, on_piece: Optional[Callable[[Piece], object]]) -> None:
        self.n_prompt, self.prompt_tps, self.on_piece = n_prompt, prompt_tps, on_piece
        self.texts: List[str] = []
        self.tokens: List[int] = []
        self.logprobs: List[float] = []
        self.tops: List[List[Tuple[int, float]]] = []
        self.began = time.perf_counter()

    def take(self, given: Any) -> None:
        piece = given.contents
        text = ctypes.string_at(piece.text, piece.text_bytes).decode()
        token: Optional[int] = piece.token
        top = _alternatives(piece)
        self.texts.append(text)
        if token == -1:
            token = None
        else:
            self.tokens.append(piece.token)
            self.logprobs.append(piece.logprob)
            self.tops.append(top)
        if self.on_piece is not None:
            self.on_piece(Piece(text, token, piece.logprob, piece.position, top, None, self.n_prompt, self.prompt_tps,
                                len(self.tokens), time.perf_counter() - self.began))

    def answer(self, result: _ffi.afmoe_generate_result, strings: List[bytes]) -> Generation:
        return Generation(
            ''.join(self.texts), self.tokens, self.logprobs, self.tops, FINISH_REASONS[result.finish_reason],
            result.stop_token if result.stop_token >= 0 else None,
            strings[result.stop_string].decode() if result.stop_string >= 0 else None, self.n_prompt, self.prompt_tps,
            result.n_generated, result.n_generated / max(result.elapsed_ns / 1e9, 1e-9), result.n_drafted,
            result.n_draft_accepted)


def is_answer(status: int, result: _ffi.afmoe_generate_result) -> bool:
    """Whether the tokens so far are an answer: a full context and a cancel are ways to end."""
    return status >= 0 or result.finish_reason in (Finish.CONTEXT, Finish.CANCELLED)


def generate(session: Session, prompt: Optional[Prompt], config: GenerationConfig,
             on_piece: Optional[Callable[[Piece], object]], progress: Optional[Progress],
             cancel: Optional[Cancel]) -> Generation:
    """The library's loop."""
    n_prompt, prompt_tps = session._read(prompt, progress, cancel)
    calls = Calls(cancel)
    collected = Collected(n_prompt, prompt_tps, on_piece)
    guard, take = calls.guard, collected.take
    thunk = _ffi.afmoe_piece_fn(lambda _, given: guard(take, given))
    result = make(_ffi.afmoe_generate_result)
    error = new_error()
    with sampler_for(session, config) as sampler, sampler._borrow as chooser, session._borrow as timeline:
        with session.context._host.running(), calls.on_main() as flag:
            options, strings = options_of(config, flag, thunk)
            status = lib.afmoe_generate(timeline, chooser, options, result, error)
    if not is_answer(status, result):
        raise_for(error)
    return collected.answer(result, strings)


class _Pull(Handle):
    """The library's generation, with what its steps share: made once, used in every one."""

    def __init__(self, session: Session, config: GenerationConfig, cancel: Optional[Cancel]) -> None:
        with contextlib.ExitStack() as stack:
            flag = stack.enter_context(cancel._borrow) if cancel is not None else None
            options, _ = options_of(config, flag, None)
            chooser = stack.enter_context(stack.enter_context(sampler_for(session, config))._borrow)
            timeline = stack.enter_context(session._borrow)
            self._own(create(_ffi.afmoe_generation, lib.afmoe_generation_create, timeline, chooser, options),
                      lib.afmoe_generation_free)
        self.piece, self.error = make(_ffi.afmoe_piece), new_error()
        self.by = ctypes.byref(self.piece), ctypes.byref(self.error)

    def step(self) -> bool:
        """Whether there is a piece."""
        piece, error = self.by
        with self._borrow as generation:
            status: int = lib.afmoe_generation_next(generation, piece, error)
        return status == _ffi.AFMOE_OK

    def end(self) -> _ffi.afmoe_generate_result:
        result = make(_ffi.afmoe_generate_result)
        with self._borrow as generation:
            call(lib.afmoe_generation_get_result, generation, result)
        return result


def stream(session: Session, prompt: Optional[Prompt], config: GenerationConfig, progress: Optional[Progress],
           cancel: Optional[Cancel]) -> Iterator[Piece]:
    """The library's loop, a piece for each call."""
    n_prompt, prompt_tps = session._read(prompt, progress, cancel)
    host, now = session.context._host, time.perf_counter
    with _Pull(session, config, cancel) as pull:
        piece, n, rest, began = pull.piece, 0, '', now()
        while True:
            if session.closed:
                session._borrow.refuse()
            try:
                has_piece = pull.step()
            finally:
                host.raise_kept()
            if not has_piece:
                break
            n_bytes = piece.text_bytes
            text = piece.text[:n_bytes].decode() if n_bytes else ''
            token = piece.token
            if token < 0:
                rest = text
                continue
            n += 1
            yield Piece(text, token, piece.logprob, piece.position, _alternatives(piece) if piece.n_top else [], None,
                        n_prompt, prompt_tps, n, now() - began)
        result = pull.end()
        if pull.error.code and not is_answer(pull.error.code, result):
            raise_for(pull.error)
        yield Piece(rest, None, 0.0, n_prompt + n, [], FINISH_REASONS[result.finish_reason], n_prompt, prompt_tps, n,
                    now() - began)


# ---- For asyncio: the same in a thread ----

async def _finish(future: 'asyncio.Future[T]', flag: Cancel, is_own: bool) -> T:
    """Wait; when the waiting task is cancelled, stop the call first, for it uses memory that is ours."""
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        flag.set()
        await asyncio.wait([future])
        if not is_own:
            flag.clear()
        if not future.cancelled():
            future.exception()  # seen: the cancelling is what comes out
        raise


async def in_thread(function: Callable[[Cancel], T], cancel: Optional[Cancel]) -> T:
    flag = cancel or Cancel()
    future = asyncio.get_running_loop().run_in_executor(None, function, flag)
    return await _finish(future, flag, cancel is None)


async def stream_in_thread(start: Callable[[Cancel], Iterator[Piece]],
                           cancel: Optional[Cancel]) -> AsyncIterator[Piece]:
    flag = cancel or Cancel()
    pieces = start(flag)
    loop = asyncio.get_running_loop()
    try:
        while True:
            step = loop.run_in_executor(None, lambda: next(pieces, None))
            piece: Optional[Piece] = await _finish(step, flag, cancel is None)
            if piece is None:
                return
            yield piece
    finally:
        pieces.close()  # type: ignore[attr-defined] # a generator
