"""Tokenizer, chat form and stream decoder."""
from __future__ import annotations

import ctypes
from typing import (TYPE_CHECKING, Any, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union,
                    cast, overload)

if TYPE_CHECKING:
    from typing import Literal

    from .model import Model

from . import _ffi
from ._callbacks import Calls
from ._cancel import Cancel
from ._ffi import Special, Token
from ._library import lib
from ._native import Handle, call, choice, create, fill, integer, make, positions_in, tokens_in
from .errors import InvalidError, NotFoundError, UnsupportedError

Text = Union[str, bytes]
Messages = Iterable[Mapping[str, Any]]


def bytes_of(text: Text) -> bytes:
    # A lone surrogate is no text; surrogateescape ones are bytes that came from outside.
    return text.encode('utf-8', 'surrogateescape') if isinstance(text, str) else bytes(text)


class TokenText(NamedTuple):
    """One token of the vocabulary."""

    text: bytes
    kind: Token


class Tokenizer:
    """Text to token ids and back. It belongs to a model (`model.tokenizer`) and lives as long."""

    def __init__(self, model: Model) -> None:
        self._model = model

    @property
    def n_tokens(self) -> int:
        return self._model.info.n_tokens

    def tokenize(self, text: Text, *, special: Union[Special, str] = Special.ALL,
                 special_ranges: Optional[Sequence[Tuple[int, int]]] = None, max_text_bytes: Optional[int] = None,
                 cancel: Optional[Cancel] = None) -> List[int]:
        """Text or any bytes to ids; nothing is added before or after.

        `special`: where added tokens such as <|im_end|> are recognised: "all", "none", or "ranges" with pairs (begin,
        end) of bytes. For text from users: "none"."""
        data = bytes_of(text)
        ranges = None
        if special_ranges is not None:
            ranges, _ = positions_in((at for pair in special_ranges for at in pair), 'special_ranges')
            special = Special.RANGES
        calls = Calls(cancel)
        with calls.on_main() if len(data) > 1 << 16 else calls.running() as flag:
            with self._model._borrow as model:
                options = make(_ffi.afmoe_tokenize_options, special=choice(Special, special, 'special'),
                               special_ranges=ranges, max_text_bytes=max_text_bytes, cancel=flag,
                               n_special_ranges=len(ranges) // 2 if ranges is not None else None)
                out, n = fill(ctypes.c_int32, min(len(data), 1 << 16) + 1, lib.afmoe_tokenize, model, data, len(data),
                              options)
        return cast(List[int], out[:n])

    def detokenize(self, tokens: Iterable[int], *, skip_special: bool = False) -> bytes:
        """Ids to bytes, which may be invalid UTF-8: a token can be part of a character."""
        array, n = tokens_in(tokens)
        with self._model._borrow as model:
            out, n_bytes = fill(ctypes.c_char, 8 * n + 16, lib.afmoe_detokenize, model, array, n, bool(skip_special))
        return bytes(out.raw[:n_bytes])

    def encode(self, text: str, add_special_tokens: bool = True) -> List[int]:
        """As in transformers: with bos in front where the checkpoint asks for it."""
        tokens = self.tokenize(text)
        info = self._model.info
        return [info.bos_token] + tokens if add_special_tokens and info.add_bos else tokens

    def decode(self, tokens: Union[int, Iterable[int]], skip_special_tokens: bool = False) -> str:
        """As in transformers: invalid UTF-8 becomes U+FFFD."""
        ids = [tokens] if isinstance(tokens, int) else tokens
        return self.detokenize(ids, skip_special=skip_special_tokens).decode('utf-8', 'replace')

    @overload
    def apply_chat_template(self, conversation: Messages, tools: None = None, *, add_generation_prompt: bool = False,
                            tokenize: Literal[True] = True, **unsupported: Any) -> List[int]: ...

    @overload
    def apply_chat_template(self, conversation: Messages, tools: None = None, *, add_generation_prompt: bool = False,
                            tokenize: Literal[False], **unsupported: Any) -> str: ...

    def apply_chat_template(self, conversation: Messages, tools: Optional[Sequence[Any]] = None, *,
                            add_generation_prompt: bool = False, tokenize: bool = True,
                            **unsupported: Any) -> Union[List[int], str]:
        """Messages with "role" and "content" to ids, or with tokenize=False to text, in the form built into the
        library: ChatML as Trinity has it. Roles and contents never become control tokens.

        Names and defaults are those of transformers; tools and other keywords of its that are set raise
        UnsupportedError."""
        unsupported['tools'] = tools
        for name, value in unsupported.items():
            if value:
                raise UnsupportedError(_ffi.AFMOE_UNSUPPORTED, f'{name}: templates of checkpoints are not run, and the '
                                                               f'built-in ChatML knows no {name}')
        tokens = self._chat(conversation, add_generation_prompt)
        return tokens if tokenize else self.decode(tokens)

    def _chat(self, messages: Messages, add_generation_prompt: bool) -> List[int]:
        roles, contents = [], []
        for index, message in enumerate(messages):
            role, content = message.get('role'), message.get('content')
            if not isinstance(role, str) or '\0' in role or not isinstance(content, (str, bytes)):
                raise InvalidError(_ffi.AFMOE_INVALID, f'message {index}: role and content must be texts')
            extra = [name for name, value in message.items() if name not in ('role', 'content') and value]
            if extra:
                raise UnsupportedError(_ffi.AFMOE_UNSUPPORTED, f'message {index}: the built-in ChatML knows role and '
                                                               f'content, not {extra[0]}')
            roles.append(role.encode())
            contents.append(bytes_of(content))
        n = len(roles)
        lengths, _ = positions_in(map(len, contents))
        options = make(_ffi.afmoe_chat_options, add_generation_prompt=add_generation_prompt, content_bytes=lengths)
        texts = (ctypes.c_char_p * n)(*roles), (ctypes.c_char_p * n)(*contents)
        with self._model._borrow as model:
            out, n_tokens = fill(ctypes.c_int32, min(sum(lengths), 1 << 16) + 16 * n + 16, lib.afmoe_chat_tokenize,
                                 model, *texts, n, options)
        return cast(List[int], out[:n_tokens])

    def token_text(self, token: int) -> TokenText:
        """Bytes and kind of one token."""
        text, n, kind = ctypes.POINTER(ctypes.c_char)(), ctypes.c_uint64(), ctypes.c_int32()
        with self._model._borrow as model:
            call(lib.afmoe_token_text, model, integer(token, ctypes.c_int32, 'token'), text, n, kind)
            return TokenText(ctypes.string_at(text, n.value), Token(kind.value))

    def find(self, text: Text) -> Optional[int]:
        """The id of the token that is exactly this text, or None."""
        data, out = bytes_of(text), ctypes.c_int32()
        try:
            with self._model._borrow as model:
                call(lib.afmoe_token_find, model, data, len(data), out)
        except NotFoundError:
            return None
        return out.value

    def stream_decoder(self, *, skip_special: bool = True) -> StreamDecoder:
        return StreamDecoder(self._model, skip_special=skip_special)


class StreamDecoder(Handle):
    """Turns tokens into text piece by piece, giving whole characters only. One caller at a time."""

    def __init__(self, model: Model, *, skip_special: bool = True) -> None:
        with model._borrow as pointer:
            made = create(_ffi.afmoe_stream_decoder, lib.afmoe_stream_decoder_create, pointer, bool(skip_special))
        self._own(made, lib.afmoe_stream_decoder_free)

    def push(self, token: int) -> str:
        """Add one token; the text that is complete now."""
        text, n = ctypes.POINTER(ctypes.c_char)(), ctypes.c_uint64()
        with self._borrow as pointer:
            call(lib.afmoe_stream_decoder_push, pointer, integer(token, ctypes.c_int32, 'token'), text, n)
            return ctypes.string_at(text, n.value).decode()

    def finish(self) -> str:
        """The end: what was held back, as U+FFFD. The decoder starts afresh."""
        text, n = ctypes.POINTER(ctypes.c_char)(), ctypes.c_uint64()
        with self._borrow as pointer:
            call(lib.afmoe_stream_decoder_finish, pointer, text, n)
            return ctypes.string_at(text, n.value).decode()
