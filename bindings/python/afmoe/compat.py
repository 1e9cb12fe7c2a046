"""Llama: the names that programs for llama-cpp-python use, on libafmoe.

The subset that makes sense here, with OpenAI-shaped dictionaries. What this library cannot do raises
UnsupportedError; nothing is quietly left out. Two differences: repeat_penalty looks at the whole timeline, not at the
last 64 tokens, and a seed gives other draws.
"""
from __future__ import annotations

import dataclasses
import os
import time
import uuid
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union, overload

if TYPE_CHECKING:
    from typing import Literal

from . import _ffi
from ._native import Path
from .context import Context
from .errors import ContextFullError, UnsupportedError
from .generation import GenerationConfig, Piece, make_sampler
from .model import Model
from .session import Prompt

Response = Dict[str, Any]
Chunks = Iterator[Response]

RANDOM_SEED = 0xFFFFFFFF
# Values that ask for nothing, of parameters this library has no counterpart for.
_NEUTRAL: Dict[str, Tuple[Any, ...]] = {
    'typical_p': (1.0,), 'tfs_z': (1.0,), 'mirostat_mode': (0,), 'mirostat_tau': (5.0,), 'mirostat_eta': (0.1,),
    'tool_choice': ('none',), 'n_gpu_layers': (0,), 'n': (1,), 'best_of': (1,), 'response_format': ({'type': 'text'},),
    'chat_format': ('chatml',), 'penalize_nl': (True,), 'offload_kqv': (True,), 'use_mmap': (True,), 'model': (),
}
_FINISH = {'length': 'length', 'context': 'length'}


def _refuse(given: Mapping[str, Any]) -> None:
    for name, value in given.items():
        if value is None or value is False or value == [] or value in _NEUTRAL.get(name, ()):
            continue
        raise UnsupportedError(_ffi.AFMOE_UNSUPPORTED, f'{name}={value!r}: libafmoe has nothing like it')


def _new_seed() -> int:
    return int.from_bytes(os.urandom(8), 'little')


@dataclasses.dataclass(frozen=True)
class LlamaState:
    """A session that was saved; it can be pickled."""

    input_ids: List[int]
    n_tokens: int
    llama_state: bytes
    llama_state_size: int


class Llama:
    """One model with one session, as in llama-cpp-python."""

    def __init__(self, model_path: Path, *, n_ctx: int = 512, n_batch: int = 512, n_threads: Optional[int] = None,
                 seed: int = RANDOM_SEED, use_mlock: bool = False, logits_all: bool = False, embedding: bool = False,
                 verbose: bool = True, **others: Any) -> None:
        # logits_all, embedding and verbose change nothing: log-probabilities and embeddings need no preparation, and
        # the library does not print.
        _refuse(others)
        self.model_path = os.fsdecode(model_path)
        self._seed = seed
        self._model = Model.open(model_path, lock=use_mlock)
        try:
            limit = self._model.info.max_positions
            self._context = Context(self._model, max_tokens=min(n_ctx, limit) if n_ctx else limit,
                                    chunk_tokens=max(1, min(n_batch, 4096)), n_threads=n_threads)
            self._session = self._context.session()
        except BaseException:
            self._model.close()
            raise

    def close(self) -> None:
        for handle in (self._session, self._context, self._model):
            handle.close()

    def __enter__(self) -> Llama:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ---- The model ----

    def n_ctx(self) -> int:
        return self._context.info.max_tokens

    def n_vocab(self) -> int:
        return self._model.info.vocab_size

    def n_embd(self) -> int:
        return self._model.info.hidden_size

    def token_bos(self) -> int:
        return self._model.info.bos_token

    def token_eos(self) -> int:
        return self._model.info.eos_token

    # ---- Text ----

    def tokenize(self, text: bytes, add_bos: bool = True, special: bool = False) -> List[int]:
        tokens = self._model.tokenizer.tokenize(text, special='all' if special else 'none')
        info = self._model.info
        return [info.bos_token] + tokens if add_bos and info.add_bos else tokens

    def detokenize(self, tokens: Sequence[int], prev_tokens: Optional[Sequence[int]] = None,
                   special: bool = False) -> bytes:
        return self._model.tokenizer.detokenize(tokens, skip_special=not special)

    # ---- The session ----

    @property
    def n_tokens(self) -> int:
        return self._session.n_tokens

    def reset(self) -> None:
        self._session.rewind(0)

    def eval(self, tokens: Sequence[int]) -> None:
        self._session.append(tokens)

    def _config(self, temperature: float, top_k: int, top_p: float, min_p: float, repeat_penalty: float,
                frequency_penalty: float, presence_penalty: float, seed: Optional[int],
                logit_bias: Optional[Mapping[Any, float]]) -> GenerationConfig:
        bias = {int(token): value for token, value in logit_bias.items()} if logit_bias else None
        greedy = GenerationConfig(repetition_penalty=repeat_penalty, frequency_penalty=frequency_penalty,
                                  presence_penalty=presence_penalty, logit_bias=bias)
        if temperature <= 0:
            return greedy
        chosen = self._seed if seed is None else seed
        return dataclasses.replace(greedy, do_sample=True, temperature=temperature, top_k=max(0, top_k), top_p=top_p,
                                   min_p=min_p, seed=_new_seed() if chosen == RANDOM_SEED else chosen)

    def sample(self, top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05, temp: float = 0.80,
               repeat_penalty: float = 1.0, frequency_penalty: float = 0.0, presence_penalty: float = 0.0,
               seed: Optional[int] = None, logit_bias: Optional[Mapping[Any, float]] = None, **others: Any) -> int:
        _refuse(others)
        config = self._config(temp, top_k, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty, seed,
                              logit_bias)
        with make_sampler(self._model, config) as sampler:
            return sampler.sample(self._session)[0]

    def generate(self, tokens: Sequence[int], top_k: int = 40, top_p: float = 0.95, min_p: float = 0.05,
                 temp: float = 0.80, repeat_penalty: float = 1.0, reset: bool = True, frequency_penalty: float = 0.0,
                 presence_penalty: float = 0.0, seed: Optional[int] = None,
                 logit_bias: Optional[Mapping[Any, float]] = None, **others: Any) -> Iterator[int]:
        """Tokens without an end, until the consumer stops asking or the context is full."""
        _refuse(others)
        config = self._config(temp, top_k, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty, seed,
                              logit_bias)
        with make_sampler(self._model, config) as sampler:
            (self._session.sync if reset else self._session.append)(tokens)
            n_prompt = self._session.n_tokens
            while True:
                token, _ = sampler.sample(self._session, n_prompt)
                yield token
                try:
                    self._session.append([token])
                except ContextFullError:
                    return

    def save_state(self) -> LlamaState:
        state = self._session.state()
        return LlamaState(self._session.tokens, self._session.n_tokens, state, len(state))

    def load_state(self, state: LlamaState) -> None:
        """Of the same model, precision and cells."""
        self._session.restore(state.llama_state)

    # ---- Embeddings ----

    @overload
    def embed(self, input: str, normalize: bool = False) -> List[float]: ...

    @overload
    def embed(self, input: List[str], normalize: bool = False) -> List[List[float]]: ...

    def embed(self, input: Union[str, List[str]], normalize: bool = False) -> Union[List[float], List[List[float]]]:
        """The mean of the final hidden states."""
        if isinstance(input, str):
            vector: List[float] = self._session.embed(input, normalize=normalize).tolist()
            return vector
        return [self.embed(text, normalize) for text in input]

    def create_embedding(self, input: Union[str, List[str]], model: Optional[str] = None) -> Response:
        texts = [input] if isinstance(input, str) else input
        n_tokens = sum(len(self._session.tokens_of(text)) for text in texts)
        return {'object': 'list', 'model': model or self.model_path,
                'data': [{'object': 'embedding', 'index': index, 'embedding': self.embed(text)}
                         for index, text in enumerate(texts)],
                'usage': {'prompt_tokens': n_tokens, 'total_tokens': n_tokens}}

    # ---- Completions ----

    def _pieces(self, prompt: Prompt, config: GenerationConfig, max_tokens: Optional[int], stop: Any,
                n_top: Optional[int]) -> Iterator[Piece]:
        limit = max_tokens if max_tokens is not None and max_tokens > 0 else None
        return self._session.stream(prompt, config, max_new_tokens=limit, stop_strings=stop or None,
                                    top_logprobs=n_top or 0)

    def _head(self, kind: str, what: str) -> Response:
        return {'id': f'{kind}-{uuid.uuid4()}', 'object': what, 'created': int(time.time()), 'model': self.model_path}

    @overload
    def create_completion(self, prompt: Union[str, List[int]], *, max_tokens: Optional[int] = 16,
                          temperature: float = 0.8, top_p: float = 0.95, min_p: float = 0.05,
                          logprobs: Optional[int] = None, echo: bool = False,
                          stop: Union[str, List[str], None] = None, frequency_penalty: float = 0.0,
                          presence_penalty: float = 0.0, repeat_penalty: float = 1.0, top_k: int = 40,
                          stream: Literal[False] = False, seed: Optional[int] = None,
                          logit_bias: Optional[Mapping[Any, float]] = None, **others: Any) -> Response: ...

    @overload
    def create_completion(self, prompt: Union[str, List[int]], *, max_tokens: Optional[int] = 16,
                          temperature: float = 0.8, top_p: float = 0.95, min_p: float = 0.05,
                          logprobs: Optional[int] = None, echo: bool = False,
                          stop: Union[str, List[str], None] = None, frequency_penalty: float = 0.0,
                          presence_penalty: float = 0.0, repeat_penalty: float = 1.0, top_k: int = 40,
                          stream: Literal[True], seed: Optional[int] = None,
                          logit_bias: Optional[Mapping[Any, float]] = None, **others: Any) -> Chunks: ...

    def create_completion(self, prompt: Union[str, List[int]], *, max_tokens: Optional[int] = 16,
                          temperature: float = 0.8, top_p: float = 0.95, min_p: float = 0.05,
                          logprobs: Optional[int] = None, echo: bool = False,
                          stop: Union[str, List[str], None] = None, frequency_penalty: float = 0.0,
                          presence_penalty: float = 0.0, repeat_penalty: float = 1.0, top_k: int = 40,
                          stream: bool = False, seed: Optional[int] = None,
                          logit_bias: Optional[Mapping[Any, float]] = None,
                          **others: Any) -> Union[Response, Chunks]:
        _refuse(others)
        config = self._config(temperature, top_k, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty,
                              seed, logit_bias)
        pieces = self._pieces(prompt, config, max_tokens, stop, logprobs)
        before = (prompt if isinstance(prompt, str) else self._model.tokenizer.decode(prompt)) if echo else ''
        head = self._head('cmpl', 'text_completion')
        chunks = self._completion_chunks(pieces, head, before, logprobs is not None)
        return chunks if stream else _joined(chunks)

    __call__ = create_completion

    def _completion_chunks(self, pieces: Iterator[Piece], head: Response, before: str, with_logprobs: bool) -> Chunks:
        offset = len(before)
        if before:
            yield {**head, 'choices': [_text_choice(before, None, None)]}
        for piece in pieces:
            logprobs = None
            if with_logprobs and piece.token is not None:
                logprobs = {'tokens': [self._name(piece.token)], 'text_offset': [offset],
                            'token_logprobs': [piece.logprob],
                            'top_logprobs': [{self._name(token): value for token, value in piece.top_logprobs}]}
            offset += len(piece.text)
            chunk: Response = {**head, 'choices': [_text_choice(piece.text, logprobs, _finish(piece))]}
            if piece.finish_reason:
                chunk['usage'] = _usage(piece)
            yield chunk

    def _name(self, token: int) -> str:
        return self._model.tokenizer.decode(token)

    @overload
    def create_chat_completion(self, messages: Sequence[Mapping[str, Any]], *, temperature: float = 0.2,
                               top_p: float = 0.95, top_k: int = 40, min_p: float = 0.05,
                               stream: Literal[False] = False,
                               stop: Union[str, List[str], None] = None, seed: Optional[int] = None,
                               max_tokens: Optional[int] = None, presence_penalty: float = 0.0,
                               frequency_penalty: float = 0.0, repeat_penalty: float = 1.0,
                               logit_bias: Optional[Mapping[Any, float]] = None, logprobs: Optional[bool] = None,
                               top_logprobs: Optional[int] = None, **others: Any) -> Response: ...

    @overload
    def create_chat_completion(self, messages: Sequence[Mapping[str, Any]], *, temperature: float = 0.2,
                               top_p: float = 0.95, top_k: int = 40, min_p: float = 0.05, stream: Literal[True],
                               stop: Union[str, List[str], None] = None, seed: Optional[int] = None,
                               max_tokens: Optional[int] = None, presence_penalty: float = 0.0,
                               frequency_penalty: float = 0.0, repeat_penalty: float = 1.0,
                               logit_bias: Optional[Mapping[Any, float]] = None, logprobs: Optional[bool] = None,
                               top_logprobs: Optional[int] = None, **others: Any) -> Chunks: ...

    def create_chat_completion(self, messages: Sequence[Mapping[str, Any]], *, temperature: float = 0.2,
                               top_p: float = 0.95, top_k: int = 40, min_p: float = 0.05, stream: bool = False,
                               stop: Union[str, List[str], None] = None, seed: Optional[int] = None,
                               max_tokens: Optional[int] = None, presence_penalty: float = 0.0,
                               frequency_penalty: float = 0.0, repeat_penalty: float = 1.0,
                               logit_bias: Optional[Mapping[Any, float]] = None, logprobs: Optional[bool] = None,
                               top_logprobs: Optional[int] = None, **others: Any) -> Union[Response, Chunks]:
        _refuse(others)
        config = self._config(temperature, top_k, top_p, min_p, repeat_penalty, frequency_penalty, presence_penalty,
                              seed, logit_bias)
        prompt = self._model.tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        pieces = self._pieces(prompt, config, max_tokens, stop, top_logprobs)
        if stream:
            return self._chat_chunks(pieces, self._head('chatcmpl', 'chat.completion.chunk'), bool(logprobs))
        return self._chat_answer(list(pieces), self._head('chatcmpl', 'chat.completion'), bool(logprobs))

    def _content(self, piece: Piece) -> List[Response]:
        """Log-probabilities in the form of chats."""
        def one(token: int, logprob: float) -> Response:
            data = self._model.tokenizer.detokenize([token])
            return {'token': data.decode('utf-8', 'replace'), 'logprob': logprob, 'bytes': list(data)}
        if piece.token is None:
            return []
        return [{**one(piece.token, piece.logprob), 'top_logprobs': [one(*pair) for pair in piece.top_logprobs]}]

    def _chat_chunks(self, pieces: Iterator[Piece], head: Response, with_logprobs: bool) -> Chunks:
        def chunk(delta: Response, logprobs: Optional[Response], reason: Optional[str]) -> Response:
            return {**head, 'choices': [{'index': 0, 'delta': delta, 'logprobs': logprobs, 'finish_reason': reason}]}
        yield chunk({'role': 'assistant'}, None, None)
        for piece in pieces:
            content = {'content': self._content(piece), 'refusal': None} if with_logprobs else None
            if piece.text or (content and content['content']):
                yield chunk({'content': piece.text}, content, None)
            if piece.finish_reason:
                yield chunk({}, None, _finish(piece))

    def _chat_answer(self, pieces: List[Piece], head: Response, with_logprobs: bool) -> Response:
        text = ''.join(piece.text for piece in pieces)
        content = [entry for piece in pieces for entry in self._content(piece)] if with_logprobs else None
        return {**head, 'usage': _usage(pieces[-1]), 'choices': [{
            'index': 0, 'message': {'role': 'assistant', 'content': text}, 'finish_reason': _finish(pieces[-1]),
            'logprobs': None if content is None else {'content': content, 'refusal': None}}]}


def _finish(piece: Piece) -> Optional[str]:
    return _FINISH.get(piece.finish_reason, 'stop') if piece.finish_reason else None


def _usage(last: Piece) -> Response:
    return {'prompt_tokens': last.prompt_tokens, 'completion_tokens': last.generation_tokens,
            'total_tokens': last.prompt_tokens + last.generation_tokens}


def _text_choice(text: str, logprobs: Optional[Response], reason: Optional[str]) -> Response:
    return {'text': text, 'index': 0, 'logprobs': logprobs, 'finish_reason': reason}


def _joined(chunks: Chunks) -> Response:
    """The chunks of a completion as one."""
    made = list(chunks)
    choices = [chunk['choices'][0] for chunk in made]
    logprobs: Optional[Response] = None
    for choice in choices:
        for name, values in (choice['logprobs'] or {}).items():
            logprobs = logprobs or {}
            logprobs[name] = logprobs.get(name, []) + values
    return {**made[-1], 'choices': [_text_choice(''.join(choice['text'] for choice in choices), logprobs,
                                                 choices[-1]['finish_reason'])]}
