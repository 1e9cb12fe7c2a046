"""Many answers side by side.

A request's callbacks run on the thread that steps. The library keeps what a request points to until the request is
done: so do we, in a table by the number that the library is given.
"""
from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import threading
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional

if TYPE_CHECKING:
    from .context import Context
    from .session import Prompt, Session

from . import _ffi, generation
from ._borrow import called_back
from ._callbacks import Calls
from ._cancel import Cancel
from ._library import lib
from ._native import Handle, call, create, integer, make, new_error, raise_for, tokens_in
from .errors import StateError, error_of
from .generation import Collected, Generation, GenerationConfig, Piece

_numbers = itertools.count(1)
_pending: Dict[int, Request] = {}


def _take_piece(number: int, given: Any) -> int:
    return called_back(_pending[number]._take, given)


def _take_end(number: int, status: int, result: Any, error: Any) -> None:
    called_back(_pending[number]._end, number, status, result.contents, error)


_on_piece = _ffi.afmoe_piece_fn(_take_piece)
_on_done = _ffi.afmoe_request_fn(_take_end)


class Request:
    """What becomes of a request that was submitted. Any thread may ask."""

    def __init__(self, session: Session, on_done: Optional[Callable[[Request], object]],
                 raised: List[BaseException]) -> None:
        self.session = session
        self._on_done = on_done
        self._raised = raised
        self._number = next(_numbers)
        self._kept = contextlib.ExitStack()
        self._cancel = self._kept.enter_context(Cancel())
        self._done = threading.Event()
        self._answer: Optional[Generation] = None
        self._failure: Optional[BaseException] = None

    def _submit(self, scheduler: Any, prompt: Optional[Prompt], config: GenerationConfig,
                on_piece: Optional[Callable[[Piece], object]], priority: int) -> None:
        self._tokens, n = tokens_in(() if prompt is None else self.session.tokens_of(prompt))
        self._collected = Collected(self.session.n_tokens + n, 0.0, on_piece)
        sampler = self._kept.enter_context(generation.sampler_for(self.session, config))
        number = self._number
        self._options, self._strings = generation.options_of(
            config, self._kept.enter_context(self._cancel._borrow.kept()), _on_piece, number)
        request = make(
            _ffi.afmoe_request, priority=priority, session=self._kept.enter_context(self.session._borrow.kept()),
            sampler=self._kept.enter_context(sampler._borrow.kept()), tokens=self._tokens, n_tokens=n,
            options=ctypes.pointer(self._options), on_done=_on_done, on_done_data=number)
        error = new_error()
        _pending[number] = self  # another thread may end it before submit returns
        if lib.afmoe_scheduler_submit(scheduler, request, error) < 0:
            del _pending[number]
            raise_for(error)

    def _take(self, given: Any) -> int:
        try:
            self._collected.take(given)
            return 0
        except BaseException as raised:
            self._failure = raised
            return 1

    def _finish(self, status: int, result: _ffi.afmoe_generate_result, error: Any) -> None:
        if self._failure is not None:
            if not isinstance(self._failure, Exception):  # KeyboardInterrupt and the like are for who steps
                self._raised.append(self._failure)
        elif generation.is_answer(status, result) and not (
                status == _ffi.AFMOE_CONTEXT_FULL and result.elapsed_ns == 0):  # the prompt had no room
            self._answer = self._collected.answer(result, self._strings)
        else:
            self._failure = error_of(status, error.contents.message.decode('utf-8', 'replace'))

    def _end(self, number: int, status: int, result: _ffi.afmoe_generate_result, error: Any) -> None:
        del _pending[number]
        try:
            self._finish(status, result, error)
        except BaseException as raised:
            self._failure = raised
        try:
            self._kept.close()
            self._done.set()
            if self._on_done is not None:
                self._on_done(self)
        except BaseException as raised:
            self._raised.append(raised)

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Until it is done, or so many seconds have passed, while another thread steps: whether it is done."""
        return self._done.wait(timeout)

    def result(self) -> Generation:
        """The answer; or what it failed with, or its on_piece raised, is raised. StateError before it is done."""
        if not self.done:
            raise StateError(_ffi.AFMOE_STATE, 'the request is not done')
        if self._failure is not None:
            raise self._failure
        assert self._answer is not None
        return self._answer

    def cancel(self) -> None:
        """End it, also while it waits: its finish_reason is "cancelled". Nothing when it is done."""
        with contextlib.suppress(StateError):
            self._cancel.set()

    def __repr__(self) -> str:
        return f'<afmoe.Request{" done" if self.done else ""}>'


def _free(raised: List[BaseException], pointer: Any) -> None:
    lib.afmoe_scheduler_free(pointer)
    if raised:
        raise raised.pop(0)


class Scheduler(Handle):
    """Makes the answers to many requests in steps of one context. It has no thread: somebody calls step or run, one
    caller at a time (BusyError for a second, and in callbacks); any thread may submit. Each answer is the one that
    generate would give.

    The options are those of afmoe_scheduler_options. close() ends the requests that are not done as cancelled."""

    def __init__(self, context: Context, *, max_running: Optional[int] = None, max_waiting: Optional[int] = None,
                 max_prompt_tokens: Optional[int] = None) -> None:
        self.context = context
        self._raised: List[BaseException] = []  # by callbacks, for who steps or closes
        options = make(_ffi.afmoe_scheduler_options, max_running=max_running, max_waiting=max_waiting,
                       max_prompt_tokens=max_prompt_tokens)
        with context._borrow as pointer:
            self._own(create(_ffi.afmoe_scheduler, lib.afmoe_scheduler_create, pointer, options),
                      functools.partial(_free, self._raised))

    def submit(self, session: Session, prompt: Optional[Prompt] = None,
               generation_config: Optional[GenerationConfig] = None, *,
               on_piece: Optional[Callable[[Piece], object]] = None,
               on_done: Optional[Callable[[Request], object]] = None, priority: int = 0, **keywords: Any) -> Request:
        """Append the prompt to the session (of this context), then generate, some time later. Until then other calls on
        the session, and on a sampler given, raise BusyError. Of waiting requests the one with the largest `priority`
        begins first. Keywords are the fields of GenerationConfig. LimitError: too many are waiting.

        `on_piece` is called with every piece; what it raises ends this request and comes out of its result().
        `on_done` is called with the request; what it raises comes out of the step or run that called it, after the
        pass. Prompts are read in parts beside others: prompt_tps is 0, and seconds in pieces count from here."""
        config = generation.configure(generation_config, keywords)
        integer(priority, ctypes.c_int32, 'priority')
        request = Request(session, on_done, self._raised)
        try:
            with self._borrow as pointer:
                request._submit(pointer, prompt, config, on_piece, priority)
        except BaseException:
            if request._number not in _pending:  # else the library has it: a signal came behind submit
                request._kept.close()
            raise
        return request

    def _passes(self, just_one: bool) -> bool:
        calls, host = Calls(), self.context._host
        is_more = True
        with self._borrow as pointer, host.running(), calls.on_main(can_stop=False):
            while is_more and not (self._raised or calls.raised or host.raised):
                is_more = call(lib.afmoe_scheduler_step, pointer) != _ffi.AFMOE_END
                if just_one:
                    break
        if self._raised:
            raise self._raised.pop(0)
        return is_more

    def step(self) -> bool:
        """One pass: the next token of every answer, and a part of the prompts that are being read. False when nothing
        is left to do."""
        return self._passes(True)

    def run(self) -> None:
        """Steps until nothing is left to do. Ctrl-C on the main thread stops it after a pass, and run can be called
        again."""
        self._passes(False)

    @property
    def info(self) -> _ffi.afmoe_scheduler_info:
        """How many requests are waiting, running and done."""
        out = _ffi.afmoe_scheduler_info(ctypes.sizeof(_ffi.afmoe_scheduler_info))
        with self._borrow as pointer:
            call(lib.afmoe_scheduler_get_info, pointer, out)
        return out
