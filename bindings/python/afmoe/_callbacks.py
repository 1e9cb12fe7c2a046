"""Callbacks and signals during a call.

Nothing may be thrown through C. What a callback raises is kept, the call is stopped, and `Calls.finish` raises it: the
same exception, with its traceback.

Python runs signal handlers between two of its own instructions: while C computes there are none, and an exception that
one raises on the way into a callback would be lost. So for the length of a long call on the main thread (`on_main`)
handlers run inside ours, which keeps what they raise. For Ctrl-C with Python's own handler that would come too late,
after a chunk of a prompt: a thread that reads the signal's wake-up file raises the call's cancel flag at once.
"""
from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType
from typing import Any, Callable, Dict, Iterator, Optional

from . import _ffi
from ._borrow import called_back
from ._cancel import Cancel

Progress = Callable[[int, int], object]
"""Called with what is done and the total. What it returns is ignored; to stop, raise or use a Cancel."""
Logger = Callable[[int, str], object]
"""Called with afmoe.Log and one line."""


class Calls:
    """The callbacks of one call, or of the calls on one context."""

    def __init__(self, cancel: Optional[Cancel] = None) -> None:
        self._given = cancel
        self._own: Optional[Cancel] = None
        self._raised: Dict[int, BaseException] = {}  # by thread: callbacks run on the one that calls
        self._stopped = False

    @property
    def cancel(self) -> Cancel:
        """The caller's flag, or one of ours."""
        if self._given is None and self._own is None:
            self._own = Cancel()
        flag = self._given or self._own
        assert flag is not None
        return flag

    def stop(self) -> None:
        """End the call from outside of it."""
        if not self.cancel.is_set:
            self._stopped = True
            self.cancel.set()

    def guard(self, function: Callable[..., object], *arguments: Any) -> int:
        """Call it; 0, or 1 to stop the library's call."""
        if self.raised:
            return 1
        try:
            called_back(function, *arguments)
            return 0
        except BaseException as raised:
            self._raised[threading.get_ident()] = raised
            return 1

    @property
    def raised(self) -> bool:
        """Whether `finish` on this thread will raise."""
        return threading.get_ident() in self._raised

    def progress(self, function: Optional[Progress]) -> Any:
        if function is None:
            return None
        wanted = function
        return _ffi.afmoe_progress_fn(lambda _, done, total: self.guard(wanted, done, total))

    def log(self, function: Optional[Logger]) -> Any:
        if function is None:
            return None
        wanted = function

        def run(_: Any, level: int, message: bytes) -> None:
            self.guard(wanted, _ffi.Log(level), message.decode('utf-8', 'replace'))
        return _ffi.afmoe_log_fn(run)

    def raise_kept(self) -> None:
        """finish, at no cost where there is nothing to raise."""
        if self._raised:
            self.finish()

    def finish(self) -> None:
        """Raise what was kept."""
        if self._stopped:
            self._stopped = False
            self.cancel.clear()  # the caller's flag is as it was
        if self._own is not None:
            self._own.close()
            self._own = None
        raised = self._raised.pop(threading.get_ident(), None)
        if raised is not None:
            context = raised.__context__
            try:
                raise raised
            finally:
                raised.__context__ = context  # not the failure of the call that it stopped

    @contextlib.contextmanager
    def running(self) -> Iterator[Any]:
        """Around a call, giving the C flag, or None. What callbacks raised comes out, whatever the call says."""
        try:
            if self._given is None:
                yield None
            else:
                with self._given._borrow as flag:
                    yield flag
        finally:
            self.finish()

    @contextlib.contextmanager
    def on_main(self, can_stop: bool = True) -> Iterator[Any]:
        """As running, around a long call: with signals, where this is the main thread. can_stop: the call is given the
        flag, which is always there, for the end of the interpreter stops calls by it."""
        if threading.current_thread() is not threading.main_thread():
            with self.running(), contextlib.ExitStack() as stack:
                yield stack.enter_context(self.cancel._borrow) if can_stop else None
            return
        with self.running(), self.cancel._borrow as flag, _handlers_inside(self) as handlers:
            if can_stop and handlers.get(signal.SIGINT) is signal.default_int_handler:
                with _watching(self):
                    yield flag
            else:
                yield flag


_SIGNALS = tuple(map(int, signal.valid_signals()))
Handlers = Dict[int, Callable[[int, Optional[FrameType]], Any]]


@contextlib.contextmanager
def _handlers_inside(calls: Calls) -> Iterator[Handlers]:
    """Every handler of Python's runs inside one of ours until the end."""
    handlers: Handlers = {}
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler):
            handlers[number] = handler

    def run(number: int, frame: Optional[FrameType]) -> None:
        if calls.guard(handlers[number], number, frame):
            calls.stop()
    try:
        for known in handlers:
            signal.signal(known, run)
        yield handlers
    finally:
        for known, before in handlers.items():
            signal.signal(known, before)


@contextlib.contextmanager
def _watching(calls: Calls) -> Iterator[None]:
    """A thread that stops the call as soon as SIGINT comes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def watch() -> None:
        while True:
            numbers = os.read(reader, 64)
            if signal.SIGINT in numbers:
                calls.stop()
            if before >= 0 and numbers.strip(b'\0'):
                with contextlib.suppress(OSError):
                    os.write(before, numbers.strip(b'\0'))
            if b'\0' in numbers:
                return
    thread = threading.Thread(target=watch, name='afmoe-signals', daemon=True)
    started = False
    try:
        with contextlib.suppress(RuntimeError):  # no thread to be had: Ctrl-C waits for the next chunk
            thread.start()
            started = True
        yield
    finally:
        signal.set_wakeup_fd(before)
        if started:
            os.write(writer, b'\0')
            thread.join()
        os.close(reader)
        os.close(writer)
