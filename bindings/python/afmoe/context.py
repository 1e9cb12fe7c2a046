"""What it takes to compute."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Callable, Iterable, List, Optional, Tuple, Union

if TYPE_CHECKING:
    from .model import Model

from . import _ffi
from ._callbacks import Calls, Logger
from ._cancel import Cancel
from ._ffi import Cells, Cpu, Precision
from ._library import lib
from ._native import Handle, Path, call, choice, create, integer, make, path_in
from .scheduler import Scheduler
from .session import Session
from .step import Outcome, StepItem, step

Parallel = Callable[[int, Callable[[int], None]], object]
"""The host's parallel-for: parallel(n, task) calls task(w) once for each w < n, on any threads, and returns when all
have returned."""


class Context(Handle):
    """Worker threads, scratch memory, key/value pages and precision. Any number of threads may use its sessions; calls
    that compute take turns.

    The options are those of afmoe_context_options. cells, precision and cpu_level are constants or their names."""

    def __init__(self, model: Model, *, n_threads: Optional[int] = None, cpu_level: Union[Cpu, str, None] = None,
                 precision: Union[Precision, str, None] = None, cells: Union[Cells, str, None] = None,
                 chunk_tokens: Optional[int] = None, max_tokens: Optional[int] = None,
                 rewind_tokens: Optional[int] = None, max_page_bytes: Optional[int] = None,
                 snapshot_tokens: Optional[int] = None, snapshot_bytes: Optional[int] = None,
                 prefix_bytes: Optional[int] = None, prefix_folder: Optional[Path] = None,
                 prefix_folder_bytes: Optional[int] = None,
                 log: Optional[Logger] = None, cpus: Optional[Iterable[int]] = None,
                 parallel: Optional[Parallel] = None) -> None:
        self.model = model
        self._host = Calls()  # what the host's callbacks raise
        numbers = None
        if cpus is not None:
            values = [integer(cpu, ctypes.c_int32, 'cpus') for cpu in cpus]
            numbers = (ctypes.c_int32 * len(values))(*values)
        # They live as long as the context.
        self._log, self._parallel = self._host.log(log), self._parallel_for(parallel)
        options = make(
            _ffi.afmoe_context_options, n_threads=n_threads, chunk_tokens=chunk_tokens, max_tokens=max_tokens,
            rewind_tokens=rewind_tokens, max_page_bytes=max_page_bytes, log=self._log, parallel=self._parallel,
            snapshot_tokens=snapshot_tokens, snapshot_bytes=snapshot_bytes, prefix_bytes=prefix_bytes,
            prefix_folder=None if prefix_folder is None else ctypes.create_string_buffer(path_in(prefix_folder)),
            prefix_folder_bytes=prefix_folder_bytes, cpus=numbers, n_cpus=None if numbers is None else len(numbers),
            cpu_level=None if cpu_level is None else choice(Cpu, cpu_level, 'cpu_level'),
            precision=None if precision is None else choice(Precision, precision, 'precision'),
            cells=None if cells is None else choice(Cells, cells, 'cells'))
        with self._host.running(), model._borrow as pointer:
            self._own(create(_ffi.afmoe_context, lib.afmoe_context_create, pointer, options), lib.afmoe_context_free)

    def _parallel_for(self, function: Optional[Parallel]) -> Any:
        if function is None:
            return None
        wanted, host = function, self._host

        def run(_: Any, n_workers: int, task: Any, task_data: Optional[int]) -> int:
            return host.guard(wanted, n_workers, lambda worker: task(task_data, worker))
        return _ffi.afmoe_parallel_fn(run)

    @property
    def info(self) -> _ffi.afmoe_context_info:
        """What was chosen, and the memory held now."""
        out = _ffi.afmoe_context_info(ctypes.sizeof(_ffi.afmoe_context_info))
        with self._borrow as pointer:
            call(lib.afmoe_context_get_info, pointer, out)
        return out

    @property
    def memory(self) -> _ffi.afmoe_memory:
        """What the context, its model and its sessions take now."""
        out = _ffi.afmoe_memory(ctypes.sizeof(_ffi.afmoe_memory))
        with self._borrow as pointer:
            call(lib.afmoe_context_get_memory, pointer, out)
        return out

    def session(self) -> Session:
        """A new, empty timeline."""
        return Session(self)

    def scheduler(self, **options: Any) -> Scheduler:
        """A scheduler for sessions of this context: see Scheduler for the options."""
        return Scheduler(self, **options)

    def step(self, items: Iterable[Union[StepItem, Tuple[Session, Iterable[int]]]], *,
             on_item: Optional[Callable[[int, Outcome], object]] = None,
             cancel: Optional[Cancel] = None) -> List[Outcome]:
        """Append to several sessions together: the weights are read once for all, and every session gets the bits that
        append would give it alone.

        An item is (session, tokens), or a StepItem with the options of append. What comes back is for each, in order,
        the AppendResult or the AfmoeError it failed with (BusyError, ContextFullError, CancelledError, ...); one that
        fails does not disturb the others. `on_item` is called with index and outcome as soon as each is done. `cancel`
        stops all; so does what a callback raises, which comes out of here."""
        return step(self, items, on_item, cancel)
