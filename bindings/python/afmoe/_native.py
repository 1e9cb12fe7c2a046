"""What every wrapper needs: calls that raise, handles that close once, options by name, buffers of unknown size."""
from __future__ import annotations

import array
import ctypes
import enum
import os
import weakref
from types import TracebackType
from typing import Any, Callable, Dict, Iterable, Optional, Tuple, Type, TypeVar, Union

from . import _ffi
from ._borrow import Borrow
from ._library import lib
from ._struct import Struct
from .errors import InvalidError, error_of

S = TypeVar('S', bound=Struct)
H = TypeVar('H', bound='Handle')
E = TypeVar('E', bound=enum.IntEnum)
Path = Union[str, bytes, 'os.PathLike[str]', 'os.PathLike[bytes]']

UINT64_MAX = 2**64 - 1
_ERROR_BYTES = ctypes.sizeof(_ffi.afmoe_error)
# ctypes cuts integers to their width without a word.
_RANGES: Dict[Any, Tuple[int, int]] = {
    ctypes.c_int32: (-2**31, 2**31 - 1),
    ctypes.c_uint32: (0, 2**32 - 1),
    ctypes.c_uint64: (0, UINT64_MAX),
}


def new_error() -> _ffi.afmoe_error:
    return _ffi.afmoe_error(_ERROR_BYTES)


def raise_for(error: _ffi.afmoe_error) -> None:
    raise error_of(error.code, error.message.decode('utf-8', 'replace'))


def call(function: Callable[..., int], *arguments: Any) -> int:
    """Call a function whose last argument is the error; its status when it is good or a remark."""
    error = new_error()
    status = function(*arguments, error)
    if status < 0:
        raise_for(error)
    return status


def integer(value: int, ctype: Any, name: str) -> int:
    """The value, when the C type holds it."""
    least, most = _RANGES[ctype]
    if not least <= value <= most:
        raise InvalidError(_ffi.AFMOE_INVALID, f'{name} is {value}, allowed are {least}..{most}')
    return value


def choice(kind: Type[E], value: Union[E, int, str], name: str) -> E:
    """A constant given as itself, as its number or by its name in any case."""
    try:
        return kind[value.upper()] if isinstance(value, str) else kind(value)
    except (KeyError, ValueError):
        known = ', '.join(member.name.lower() for member in kind)
        raise InvalidError(_ffi.AFMOE_INVALID, f'{name} is {value!r}, allowed are {known}') from None


def make(struct: Type[S], **members: Any) -> S:
    """The struct with the library's defaults, then the members that are not None."""
    made: S = struct()
    getattr(lib, f'{struct.__name__}_init')(made, ctypes.sizeof(made))
    types = {name: ctype for name, ctype, *_ in struct._fields_}
    for name, value in members.items():
        if value is not None:
            ctype = types[name]
            setattr(made, name, integer(int(value), ctype, name) if ctype in _RANGES else value)
    return made


def fill(ctype: Any, guess: int, function: Callable[..., int], *arguments: Any) -> Tuple[Any, int]:
    """Call with a buffer of `guess` elements, and again with a larger one when that is too small: (buffer, count)."""
    capacity = guess
    while True:
        buffer, n, error = (ctype * capacity)(), ctypes.c_uint64(), new_error()
        status = function(*arguments, buffer, capacity, n, error)
        if status == _ffi.AFMOE_CAPACITY and n.value > capacity:
            capacity = n.value
        elif status < 0:
            raise_for(error)
        else:
            return buffer, n.value


def tokens_in(tokens: Iterable[int], name: str = 'tokens') -> Tuple[Any, int]:
    """Token ids as a C array and their number; the array keeps the memory."""
    try:
        values = array.array('i', tokens)
    except OverflowError:
        raise InvalidError(_ffi.AFMOE_INVALID, f'{name}: an id does not fit 32 bits') from None
    n = len(values)
    return (ctypes.c_int32 * n).from_buffer(values) if n else None, n


def positions_in(positions: Iterable[int], name: str = 'positions') -> Tuple[Any, int]:
    values = [integer(int(value), ctypes.c_uint64, name) for value in positions]
    return (ctypes.c_uint64 * len(values))(*values), len(values)


def memory_of(data: Any) -> Tuple[Any, int]:
    """(address, bytes) of a buffer, with what keeps it there."""
    if isinstance(data, bytes):
        return ctypes.c_char_p(data), len(data)
    memory = memoryview(data).cast('B')
    if not memory.readonly:
        return (ctypes.c_char * memory.nbytes).from_buffer(memory), memory.nbytes
    from ._arrays import numpy
    array = numpy().frombuffer(memory, dtype='uint8')
    return array.ctypes.data_as(ctypes.c_void_p), memory.nbytes


def path_in(path: Path) -> bytes:
    """A path as C takes it."""
    name = os.fsencode(path)
    if b'\0' in name:
        raise InvalidError(_ffi.AFMOE_INVALID, f'the path {name!r} has a zero byte in it')
    return name


class Handle:
    """An object of the library. It is freed by close(), at the end of a `with`, when nothing refers to it any more, or
    when the interpreter ends; in any order with others. After close() every use raises StateError; closing again does
    nothing. Threads that are left when the interpreter ends get SystemExit instead: it ends them without a word."""

    _borrow: Borrow

    def _own(self, pointer: Any, free: Callable[[Any], None],
             raise_flag: Optional[Callable[[Any], None]] = None) -> None:
        self._borrow = Borrow(type(self).__name__, pointer, free, raise_flag)
        self._finalizer = weakref.finalize(self, self._borrow.close)

    @property
    def closed(self) -> bool:
        return self._borrow.closed

    def close(self) -> None:
        """Free it now, or when the call ends that another thread has in it."""
        self._finalizer()

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], value: Optional[BaseException],
                 traceback: Optional[TracebackType]) -> None:
        self.close()

    def __repr__(self) -> str:
        return f'<afmoe.{type(self).__name__}{" closed" if self.closed else ""}>'


def create(ctype: Any, function: Callable[..., int], *arguments: Any) -> Any:
    """The object that a create or open call hands out through its first argument."""
    out = ctypes.POINTER(ctype)()
    call(function, out, *arguments)
    return out
