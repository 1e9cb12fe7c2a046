"""The C object of a handle while calls run in it, and what becomes of those calls when the interpreter ends.

CPython stops the threads that are left (daemon threads) when they next ask for the interpreter's lock. A callback that C
makes asks for more: a thread state, which is made from an interpreter that is freed by then; and what a call has
borrowed goes with the modules. So before that begins (atexit) no further call is let in, every cancel flag is raised,
and calls are waited for. One that does not come back in CALL_SECONDS is left behind, as CPython leaves daemon threads:
should it call back just then, the process may crash.
"""
from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from threading import get_ident
from types import TracebackType
from typing import Any, Callable, Dict, List, NoReturn, Optional, Set, Type, TypeVar

from . import _ffi
from .errors import AfmoeError, StateError

T = TypeVar('T')

CALL_SECONDS = 10.0
"""how long the end of the interpreter waits for calls"""
CALLBACK_SECONDS = 1.0
"""and for those that are in a callback of the host, which may wait for what never comes"""

_NOBODY = 0
_borrows: Dict[int, Borrow] = {}  # those not freed, by id
_called_back: Set[int] = set()  # threads in a callback
_ending: Optional[int] = None  # the thread that ends the interpreter


def _is_cut_off() -> bool:
    """Whether the interpreter is being ended by another thread."""
    return _ending is not None and _ending != get_ident()


class Borrow:
    """The C object of a handle. `with borrow as pointer` keeps it while a call runs: closed meanwhile, by this thread
    or another, it is freed when the last call ends. raise_flag: for a flag that stops calls."""

    __slots__ = ('kind', 'pointer', 'free', 'raise_flag', 'lock', 'callers', 'closed')

    def __init__(self, kind: str, pointer: Any, free: Callable[[Any], None],
                 raise_flag: Optional[Callable[[Any], None]] = None) -> None:
        self.kind = kind
        self.pointer = pointer
        self.free = free
        self.raise_flag = raise_flag
        self.lock = threading.RLock()  # a signal handler may come in between
        self.callers: List[int] = []  # the thread of each call
        self.closed = False
        _borrows[id(self)] = self
        if _ending is not None:
            self.close()

    def __enter__(self) -> Any:
        with self.lock:
            if not self.closed:
                self.callers.append(get_ident())
                return self.pointer
        self.refuse()

    def refuse(self) -> NoReturn:
        """It is closed."""
        if _is_cut_off():
            raise SystemExit
        raise StateError(_ffi.AFMOE_STATE, f'this {self.kind} is closed')

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        with self.lock:
            is_last = self.closed and len(self.callers) == 1
            if not is_last:
                self.callers.remove(get_ident())
        if is_last:
            self._free()
        if kind is not None and issubclass(kind, AfmoeError) and _is_cut_off():
            raise SystemExit from value

    def kept(self) -> Kept:
        """The same for longer than a call."""
        return Kept(self)

    def rename(self, caller: int, new: int) -> None:
        with self.lock:
            self.callers[self.callers.index(caller)] = new

    def close(self) -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
            is_idle = not self.callers
            if is_idle:
                self.callers.append(get_ident())
        if is_idle:
            self._free()

    def _free(self) -> None:
        """The one caller left is inside until this is done: what is freed may call back."""
        with self.lock:
            pointer, self.pointer = self.pointer, None
        try:
            self.free(pointer)
        finally:
            del _borrows[id(self)]

    def stop(self) -> None:
        """Raise it, when it is a flag."""
        if self.raise_flag is not None:
            with self.lock:
                if self.pointer is not None:
                    self.raise_flag(self.pointer)

    def forked(self) -> None:
        """In the child: the other threads are not there, and never leave."""
        self.lock = threading.RLock()
        self.callers = [caller if caller == get_ident() else _NOBODY for caller in self.callers]


class Kept:
    """A borrow that no thread is said to be inside of."""

    def __init__(self, borrow: Borrow) -> None:
        self._borrow = borrow

    def __enter__(self) -> Any:
        pointer = self._borrow.__enter__()
        self._borrow.rename(get_ident(), _NOBODY)
        return pointer

    def __exit__(self, *_: object) -> None:
        self._borrow.rename(_NOBODY, get_ident())
        self._borrow.__exit__(None, None, None)


def called_back(function: Callable[..., T], *arguments: Any) -> T:
    """What the host does in a callback."""
    me = get_ident()
    if me in _called_back:
        return function(*arguments)
    _called_back.add(me)
    try:
        return function(*arguments)
    finally:
        _called_back.discard(me)


def _end() -> None:
    """No call begins from here on. Those that run are stopped and waited for."""
    global _ending
    _ending = get_ident()
    for borrow in list(_borrows.values()):
        borrow.stop()  # first: what is freed may wait for a call
    for borrow in list(_borrows.values()):
        try:
            borrow.close()
        except BaseException:
            sys.excepthook(*sys.exc_info())  # what a callback raised
    _wait()


def _wait() -> None:
    began = time.monotonic()
    while True:
        borrows = list(_borrows.values())
        inside = {caller for borrow in borrows for caller in tuple(borrow.callers)} - {_ending, _NOBODY}
        waited = time.monotonic() - began
        if waited > CALLBACK_SECONDS:
            inside -= _called_back
        if not inside or waited > CALL_SECONDS:
            return
        for borrow in borrows:
            borrow.stop()  # again: a thread may have begun with a flag of its own, or taken one down
        time.sleep(0.001)


def _forked() -> None:
    _called_back.intersection_update({get_ident()})
    for borrow in list(_borrows.values()):
        borrow.forked()


weakref.finalize(Borrow, lambda: None).detach()  # the first one registers what closes the rest: after us
atexit.register(_end)
os.register_at_fork(after_in_child=_forked)
