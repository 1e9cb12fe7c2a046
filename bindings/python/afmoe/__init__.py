"""libafmoe: run Arcee Trinity (AFMoE) language models on the CPU.

    import afmoe

    with afmoe.Model.open('trinity.gguf') as model, model.session() as session:
        prompt = model.tokenizer.apply_chat_template([{'role': 'user', 'content': 'Hello'}],
                                                     add_generation_prompt=True)
        for piece in session.stream(prompt, max_new_tokens=200):
            print(piece.text, end='', flush=True)

Model, Context and Session are those of the C library: see include/afmoe.h for what each means, and docs/python.md for
what Python adds. Every failure is a subclass of AfmoeError.
"""
from __future__ import annotations

from . import errors
from ._callbacks import Logger, Progress
from ._cancel import Cancel
from ._ffi import Cells, Cpu, Load, Log, Pool, Precision, Special, Status
from ._ffi import Token as TokenKind
from ._ffi import afmoe_context_info as ContextInfo
from ._ffi import afmoe_memory as Memory
from ._ffi import afmoe_model_info as ModelInfo
from ._ffi import afmoe_scheduler_info as SchedulerInfo
from ._ffi import afmoe_session_stats as SessionStats
from ._library import lib as _lib
from ._library import path as library_path
from .context import Context
from .errors import (AbiError, AfmoeError, BusyError, CancelledError, CapacityError, ContextFullError, CorruptError,
                     FormatError, InternalError, InvalidError, IoError, LimitError, NoMemoryError, NotFoundError,
                     NumericError, StateError, TruncatedError, UnsupportedError)
from .generation import Generation, GenerationConfig, Piece
from .model import Model, Tensor, estimate
from .sampler import Sampler
from .scheduler import Request, Scheduler
from .session import AppendResult, Session
from .step import StepItem
from .text import StreamDecoder, Tokenizer, TokenText

__version__: str = _lib.afmoe_version_string().decode()
"""Of the library, and of this package made from its header."""


def build_features() -> str:
    """What the library was built with, as words."""
    return _lib.afmoe_build_features().decode()


def cpu_level() -> Cpu:
    """The highest level this CPU and operating system allow."""
    return Cpu(_lib.afmoe_cpu_level())


def cpu_level_name(level: Cpu) -> str:
    """As in build_features: "avx2"."""
    return _lib.afmoe_cpu_level_name(level).decode()


def status_name(status: int) -> str:
    """"AFMOE_INVALID"; "AFMOE_UNKNOWN" for a number that is none."""
    return _lib.afmoe_status_name(status).decode()


__all__ = [
    'AbiError', 'AfmoeError', 'AppendResult', 'BusyError', 'Cancel', 'CancelledError', 'CapacityError', 'Cells',
    'Context', 'ContextFullError', 'ContextInfo', 'CorruptError', 'Cpu', 'FormatError', 'Generation',
    'GenerationConfig', 'InternalError', 'InvalidError', 'IoError', 'LimitError', 'Load', 'Log', 'Logger', 'Memory',
    'Model', 'ModelInfo', 'NoMemoryError', 'NotFoundError', 'NumericError', 'Piece', 'Pool', 'Precision', 'Progress',
    'Request', 'Sampler', 'Scheduler', 'SchedulerInfo', 'Session', 'SessionStats', 'Special', 'StateError', 'Status',
    'StepItem', 'StreamDecoder', 'Tensor', 'TokenKind', 'TokenText', 'Tokenizer', 'TruncatedError', 'UnsupportedError',
    '__version__', 'build_features', 'cpu_level', 'cpu_level_name', 'errors', 'estimate', 'library_path', 'status_name',
]
