"""One checkpoint, opened."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Tuple, Type, TypeVar, Union

from . import _ffi
from ._callbacks import Calls, Logger, Progress
from ._cancel import Cancel
from ._ffi import Load
from ._library import lib
from ._native import UINT64_MAX, Handle, Path, call, choice, create, fill, integer, make, memory_of, path_in
from .context import Context
from .errors import NotFoundError
from .sampler import Sampler
from .session import Session
from .text import Tokenizer

M = TypeVar('M', bound='Model')


class Tensor(NamedTuple):
    """One tensor of the files."""

    name: str
    shape: Tuple[int, ...]
    format: str
    file: str
    file_offset: int
    n_bytes: int
    n_elements: int
    is_supported: bool
    is_used: Optional[bool]
    """None: not known (inspect_only)"""


# Memory that models were opened from, by the number given to the library, until it gives it back.
_lent: Dict[int, Any] = {}


def _take_back(number: Optional[int]) -> None:
    _lent.pop(number or 0, None)


_release = _ffi.afmoe_release_fn(_take_back)


class Model(Handle):
    """Weights, configuration and tokenizer of one checkpoint: immutable, shared by any number of threads.

    A context, session, sampler or stream decoder keeps the checkpoint open by itself; close() takes only this object
    away."""

    def __init__(self, pointer: Any) -> None:
        self._own(pointer, lib.afmoe_model_free)
        info = _ffi.afmoe_model_info(ctypes.sizeof(_ffi.afmoe_model_info))
        with self._borrow as model:
            call(lib.afmoe_model_get_info, model, info)
        self._info = info

    @classmethod
    def _open(cls: Type[M], function: Callable[..., int], arguments: Tuple[Any, ...], calls: Calls,
              log: Optional[Logger], progress: Optional[Progress], load: Union[Load, str],
              options: Dict[str, Any]) -> M:
        made: Optional[M] = None
        try:
            with calls.on_main() as flag:
                filled = make(_ffi.afmoe_model_options, log=calls.log(log), progress=calls.progress(progress),
                              cancel=flag, load=choice(Load, load, 'load'), **options)
                made = cls(create(_ffi.afmoe_model, function, *arguments, filled))
        except BaseException:
            if made is not None:
                made.close()
            raise
        return made

    @classmethod
    def open(cls: Type[M], path: Path, *, tokenizer_only: bool = False, inspect_only: bool = False,
             strict: bool = False, load: Union[Load, str] = Load.MAP, lock: bool = False,
             max_json_bytes: Optional[int] = None, log: Optional[Logger] = None, progress: Optional[Progress] = None,
             cancel: Optional[Cancel] = None) -> M:
        """Open a GGUF file, a folder with safetensors, or with tokenizer_only also a tokenizer.json. Only headers are
        read; weights stay in the mapped file, or with load="read" come into private memory. `lock` keeps them there."""
        options = dict(tokenizer_only=tokenizer_only, inspect_only=inspect_only, strict=strict, lock=lock,
                       max_json_bytes=max_json_bytes)
        return cls._open(lib.afmoe_model_open, (path_in(path),), Calls(cancel), log, progress, load, options)

    @classmethod
    def open_fd(cls: Type[M], fd: int, offset: int = 0, length: Optional[int] = None, *, tokenizer_only: bool = False,
                inspect_only: bool = False, strict: bool = False, load: Union[Load, str] = Load.MAP,
                lock: bool = False, max_json_bytes: Optional[int] = None, log: Optional[Logger] = None,
                progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> M:
        """Open a GGUF file that is a part of a larger one: `length` bytes (None: up to the end) from `offset` on. The
        descriptor may be closed afterwards."""
        options = dict(tokenizer_only=tokenizer_only, inspect_only=inspect_only, strict=strict, lock=lock,
                       max_json_bytes=max_json_bytes)
        place = (integer(fd, ctypes.c_int32, 'fd'), integer(offset, ctypes.c_uint64, 'offset'),
                 UINT64_MAX if length is None else integer(length, ctypes.c_uint64, 'length'))
        return cls._open(lib.afmoe_model_open_fd, place, Calls(cancel), log, progress, load, options)

    @classmethod
    def open_memory(cls: Type[M], data: Any, *, tokenizer_only: bool = False, inspect_only: bool = False,
                    strict: bool = False, load: Union[Load, str] = Load.MAP, lock: bool = False,
                    max_json_bytes: Optional[int] = None, log: Optional[Logger] = None,
                    progress: Optional[Progress] = None, cancel: Optional[Cancel] = None) -> M:
        """The same from bytes, a bytearray, an mmap or any other buffer. It is used where it lies and kept until the
        checkpoint closes; it must not change meanwhile."""
        options = dict(tokenizer_only=tokenizer_only, inspect_only=inspect_only, strict=strict, lock=lock,
                       max_json_bytes=max_json_bytes)
        memory, n_bytes = memory_of(data)
        number = id(memory)
        _lent[number] = (memory, data)
        taken = ctypes.cast(memory, ctypes.c_void_p), n_bytes, _release, number
        try:
            return cls._open(lib.afmoe_model_open_memory, taken, Calls(cancel), log, progress, load, options)
        except BaseException:
            _lent.pop(number, None)
            raise

    @property
    def info(self) -> _ffi.afmoe_model_info:
        """What the checkpoint is."""
        return self._info

    @property
    def tokenizer(self) -> Tokenizer:
        return Tokenizer(self)

    @property
    def stop_tokens(self) -> List[int]:
        """The ids that end a text."""
        with self._borrow as model:
            out, n = fill(ctypes.c_int32, 16, lib.afmoe_model_stop_tokens, model)
        return [int(token) for token in out[:n]]

    @property
    def chat_template(self) -> Optional[str]:
        """The template (Jinja) the checkpoint brings, to read: the library does not run it."""
        text, n = ctypes.POINTER(ctypes.c_char)(), ctypes.c_uint64()
        try:
            with self._borrow as model:
                call(lib.afmoe_model_chat_template, model, text, n)
                return ctypes.string_at(text, n.value).decode('utf-8', 'replace')
        except NotFoundError:
            return None

    def layer_is_full(self, layer: int) -> bool:
        """Whether the layer sees all positions; else it slides."""
        out = ctypes.c_int32()
        with self._borrow as model:
            call(lib.afmoe_model_layer_is_full, model, integer(layer, ctypes.c_uint32, 'layer'), out)
        return bool(out.value)

    def tensors(self) -> Iterator[Tensor]:
        """The tensors of the files, by name."""
        with self._borrow as model:
            n = lib.afmoe_model_n_tensors(model)
        for index in range(n):
            info = _ffi.afmoe_tensor_info(ctypes.sizeof(_ffi.afmoe_tensor_info))
            with self._borrow as model:
                call(lib.afmoe_model_get_tensor, model, index, info)
                tensor = Tensor(
                    ctypes.string_at(info.name).decode('utf-8', 'replace'), tuple(info.shape[:info.n_dims]),
                    ctypes.string_at(info.format).decode(), os.fsdecode(ctypes.string_at(info.file)),
                    info.file_offset, info.n_bytes, info.n_elements, bool(info.is_supported),
                    None if info.is_used < 0 else bool(info.is_used))
            yield tensor

    def context(self, **options: Any) -> Context:
        """A context on this model: see Context for the options."""
        return Context(self, **options)

    def session(self, **options: Any) -> Session:
        """A session in a context of its own, for which the options are."""
        return Context(self, **options).session()

    def sampler(self, **options: Any) -> Sampler:
        """A sampler for this model: see Sampler for the options."""
        return Sampler(self, **options)


def estimate(path: Path, n_sessions: int = 1, n_tokens: int = 4096, *,
             model_options: Optional[Dict[str, Any]] = None,
             context_options: Optional[Dict[str, Any]] = None) -> _ffi.afmoe_memory:
    """What it would take to open `path`, make one context and have sessions with so many tokens each. Options by the
    names of the C structs; headers are read, no weights."""
    out = _ffi.afmoe_memory(ctypes.sizeof(_ffi.afmoe_memory))
    call(lib.afmoe_estimate, path_in(path), make(_ffi.afmoe_model_options, **(model_options or {})),
         make(_ffi.afmoe_context_options, **(context_options or {})),
         integer(n_sessions, ctypes.c_uint64, 'n_sessions'), integer(n_tokens, ctypes.c_uint64, 'n_tokens'), out)
    return out
