"""Tokens for several sessions of one context, computed together."""
from __future__ import annotations

import contextlib
import ctypes
import dataclasses
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, List, Optional, Tuple, Union

if TYPE_CHECKING:
    from .context import Context

from . import _ffi
from ._callbacks import Calls, Progress
from ._cancel import Cancel
from ._library import lib
from ._native import make, new_error, raise_for, tokens_in
from .errors import AfmoeError, error_of
from .session import AppendResult, Session, Wanted, nothing

Outcome = Union[AppendResult, AfmoeError]


@dataclasses.dataclass(frozen=True)
class StepItem:
    """One session's part of a step; the options are those of Session.append, and its cancel stops this item only."""

    session: Session
    tokens: Iterable[int]
    logprobs: Optional[Tuple[int, int]] = None
    positions: Optional[Iterable[int]] = None
    logits: bool = False
    hidden: bool = False
    experts: bool = False
    progress: Optional[Progress] = None
    cancel: Optional[Cancel] = None


class _Part:
    """An item and all it points to."""

    def __init__(self, item: StepItem, calls: Calls, stack: contextlib.ExitStack) -> None:
        tokens, self.n_tokens = tokens_in(item.tokens)
        self.wanted = Wanted(item.session, self.n_tokens, item.logprobs, item.positions, item.logits, item.hidden,
                             item.experts)
        flag = None if item.cancel is None else stack.enter_context(item.cancel._borrow)
        self.did, self.error = make(_ffi.afmoe_append_result), new_error()
        self.options = self.wanted.options(cancel=flag, progress=calls.progress(item.progress or nothing))
        self.item = make(
            _ffi.afmoe_step_item, session=stack.enter_context(item.session._borrow), tokens=tokens,
            n_tokens=self.n_tokens, options=ctypes.pointer(self.options), result=ctypes.pointer(self.did),
            error=ctypes.pointer(self.error))

    def outcome(self, status: int) -> Outcome:
        if status < 0:
            return error_of(status, self.error.message.decode('utf-8', 'replace'))
        return self.wanted.result(self.did)


def step(context: Context, items: Iterable[Union[StepItem, Tuple[Session, Iterable[int]]]],
         on_item: Optional[Callable[[int, Outcome], object]], cancel: Optional[Cancel]) -> List[Outcome]:
    calls = Calls(cancel)
    outcomes: Dict[int, Outcome] = {}
    with contextlib.ExitStack() as stack:
        parts = [_Part(item if isinstance(item, StepItem) else StepItem(*item), calls, stack) for item in items]
        array = (_ffi.afmoe_step_item * len(parts))(*(part.item for part in parts))

        def take(index: int) -> None:
            outcomes[index] = parts[index].outcome(array[index].status)
            if on_item is not None:
                on_item(index, outcomes[index])
        thunk = _ffi.afmoe_step_item_fn(lambda _, index: calls.guard(take, index))
        pointer: Any = stack.enter_context(context._borrow)
        stack.enter_context(context._host.running())
        is_long = any(part.n_tokens > 1 for part in parts)
        flag = stack.enter_context(calls.on_main() if is_long else calls.running())
        options, error = make(_ffi.afmoe_step_options, cancel=flag, on_item=thunk), new_error()
        status = lib.afmoe_context_step(pointer, array, len(parts), options, error)
        # When no item has failed, the call has.
        if status < 0 and all(item.status >= 0 for item in array) and not calls.raised:
            raise_for(error)
    return [outcomes[index] for index in range(len(parts))]
