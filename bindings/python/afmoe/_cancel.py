"""The flag that stops calls."""
from __future__ import annotations

from . import _ffi
from ._library import lib
from ._native import Handle, create


class Cancel(Handle):
    """A flag that stops every call it is given to, from any thread: those calls raise CancelledError, or end with
    finish_reason "cancelled". It stays up until clear()."""

    def __init__(self) -> None:
        self._own(create(_ffi.afmoe_cancel, lib.afmoe_cancel_create), lib.afmoe_cancel_free, lib.afmoe_cancel_set)

    def set(self) -> None:
        """Stop the calls it was given to, now and later."""
        with self._borrow as pointer:
            lib.afmoe_cancel_set(pointer)

    def clear(self) -> None:
        """Take the flag down: calls made from now on run."""
        with self._borrow as pointer:
            lib.afmoe_cancel_clear(pointer)

    @property
    def is_set(self) -> bool:
        with self._borrow as pointer:
            return bool(lib.afmoe_cancel_is_set(pointer))
