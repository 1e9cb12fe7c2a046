"""What goes wrong: one class for each status of the C interface, all under AfmoeError."""
from __future__ import annotations

from typing import Any, Dict, Tuple, Type

from . import _ffi


class AfmoeError(Exception):
    """`code` is the status (afmoe.Status), `message` one sentence that names the culprit."""

    code: int
    message: str

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.code, self.message)


class InvalidError(AfmoeError, ValueError):
    """An argument outside its range."""


class NoMemoryError(AfmoeError, MemoryError):
    """Out of memory."""


class IoError(AfmoeError, OSError):
    """The system reported a failure."""


class NotFoundError(AfmoeError, FileNotFoundError):
    """No such file, token or template."""


class FormatError(AfmoeError, ValueError):
    """Malformed input."""


class TruncatedError(AfmoeError, ValueError):
    """Input ends early."""


class LimitError(AfmoeError, ValueError):
    """Over a stated cap."""


class CorruptError(AfmoeError, ValueError):
    """A checksum does not match."""


class UnsupportedError(AfmoeError, NotImplementedError):
    """Well formed, but not supported."""


class BusyError(AfmoeError, RuntimeError):
    """Another caller is using this object."""


class CancelledError(AfmoeError, RuntimeError):
    """Stopped by a Cancel."""


class ContextFullError(AfmoeError, RuntimeError):
    """A session or page limit is reached."""


class CapacityError(AfmoeError, ValueError):
    """A buffer is too small."""


class StateError(AfmoeError, RuntimeError):
    """The object does not fit this use: it is closed, has no weights, no logits yet."""


class NumericError(AfmoeError, ArithmeticError):
    """NaN or infinity where a number is needed."""


class InternalError(AfmoeError, RuntimeError):
    """A broken invariant; please report it."""


class AbiError(AfmoeError, ImportError):
    """No library, or one that does not fit this package; the message names both versions."""


CLASSES: Dict[int, Type[AfmoeError]] = {
    _ffi.AFMOE_INVALID: InvalidError,
    _ffi.AFMOE_NO_MEMORY: NoMemoryError,
    _ffi.AFMOE_IO: IoError,
    _ffi.AFMOE_NOT_FOUND: NotFoundError,
    _ffi.AFMOE_FORMAT: FormatError,
    _ffi.AFMOE_TRUNCATED: TruncatedError,
    _ffi.AFMOE_LIMIT: LimitError,
    _ffi.AFMOE_CORRUPT: CorruptError,
    _ffi.AFMOE_UNSUPPORTED: UnsupportedError,
    _ffi.AFMOE_BUSY: BusyError,
    _ffi.AFMOE_CANCELLED: CancelledError,
    _ffi.AFMOE_CONTEXT_FULL: ContextFullError,
    _ffi.AFMOE_CAPACITY: CapacityError,
    _ffi.AFMOE_STATE: StateError,
    _ffi.AFMOE_NUMERIC: NumericError,
    _ffi.AFMOE_INTERNAL: InternalError,
}
"""The class of each failing status."""


def error_of(code: int, message: str) -> AfmoeError:
    """The exception for a status; AfmoeError itself for one this version does not know."""
    return CLASSES.get(code, AfmoeError)(code, message)
