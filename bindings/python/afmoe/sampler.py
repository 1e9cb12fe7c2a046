"""From logits to a token."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Iterable, Mapping, Optional, Tuple

if TYPE_CHECKING:
    from .model import Model
    from .session import Session

from . import _ffi
from ._library import lib
from ._native import Handle, call, create, integer, make, tokens_in


class Sampler(Handle):
    """Chooses tokens: greedy unless the options say otherwise. One caller at a time; a draw depends on seed and
    position only, so a sampler can be used for many sessions.

    `recommended`: begin with what the checkpoint's generation_config.json says. The other options are those of
    afmoe_sampler_options; top_k 0 is off."""

    def __init__(self, model: Model, *, recommended: bool = False, temperature: Optional[float] = None,
                 top_k: Optional[int] = None, top_p: Optional[float] = None, min_p: Optional[float] = None,
                 repetition_penalty: Optional[float] = None, presence_penalty: Optional[float] = None,
                 frequency_penalty: Optional[float] = None, seed: Optional[int] = None,
                 logit_bias: Optional[Mapping[int, float]] = None) -> None:
        options = recommended_options(model) if recommended else make(_ffi.afmoe_sampler_options)
        given = make(_ffi.afmoe_sampler_options, temperature=temperature, top_k=2**32 if top_k == 0 else top_k,
                     top_p=top_p, min_p=min_p, repetition_penalty=repetition_penalty,
                     presence_penalty=presence_penalty, frequency_penalty=frequency_penalty, seed=seed)
        for name, value in (('temperature', temperature), ('top_k', top_k), ('top_p', top_p), ('min_p', min_p),
                            ('repetition_penalty', repetition_penalty), ('presence_penalty', presence_penalty),
                            ('frequency_penalty', frequency_penalty), ('seed', seed)):
            if value is not None:
                setattr(options, name, getattr(given, name))
        if logit_bias:
            tokens, n = tokens_in(logit_bias, 'logit_bias')
            options.bias_tokens = tokens
            options.bias_values = (ctypes.c_float * n)(*logit_bias.values())
            options.n_bias = n
        with model._borrow as pointer:
            self._own(create(_ffi.afmoe_sampler, lib.afmoe_sampler_create, pointer, options), lib.afmoe_sampler_free)

    def sample(self, session: Session, n_prompt: int = 0) -> Tuple[int, float]:
        """The next token of a session and its natural log-probability in the raw distribution. The first n_prompt
        tokens of the timeline count as prompt for the penalties."""
        token, logprob = ctypes.c_int32(), ctypes.c_float()
        with self._borrow as pointer, session._borrow as timeline:
            call(lib.afmoe_sampler_sample, pointer, timeline, integer(n_prompt, ctypes.c_uint64, 'n_prompt'), token,
                 logprob)
        return token.value, logprob.value

    def sample_logits(self, logits: Any, history: Iterable[int] = (), n_prompt: int = 0) -> Tuple[int, float]:
        """The same on the caller's logits, an array or sequence of vocab_size floats, behind these tokens."""
        import array
        values = array.array('f', logits)
        n = len(values)
        tokens, n_history = tokens_in(history, 'history')
        token, logprob = ctypes.c_int32(), ctypes.c_float()
        with self._borrow as pointer:
            call(lib.afmoe_sampler_sample_logits, pointer, (ctypes.c_float * n).from_buffer(values) if n else None, n,
                 tokens, n_history, integer(n_prompt, ctypes.c_uint64, 'n_prompt'), token, logprob)
        return token.value, logprob.value


def recommended_options(model: Model) -> _ffi.afmoe_sampler_options:
    """The library's defaults, then what the checkpoint recommends."""
    options = make(_ffi.afmoe_sampler_options)
    with model._borrow as pointer:
        call(lib.afmoe_model_sampler_options, pointer, options)
    return options
