"""What a user's type checker is told; never run. Each line fails `mypy --strict` where a type gets lost."""
from __future__ import annotations

from typing import Any, Dict, Iterator, List

import afmoe
from afmoe.compat import Llama


def use(path: str) -> None:
    with afmoe.Model.open(path) as model, model.session(cells='f16') as session:
        ids: List[int] = model.tokenizer.apply_chat_template([{'role': 'user', 'content': 'x'}])
        text: str = model.tokenizer.apply_chat_template([{'role': 'user', 'content': 'x'}], tokenize=False)
        for piece in session.stream(ids, max_new_tokens=1):
            text += piece.text
        rate: float = session.generate(text).generation_tps
        top: float = float(session.logits()[0]) + rate
        layers: int = model.info.n_layers
        state: bytes = session.fork().state()
        assert top and layers and state


def use_together(context: afmoe.Context) -> str:
    with context.session() as one, context.session() as two, context.scheduler(max_running=2) as scheduler:
        for outcome in context.step([(one, [1]), afmoe.StepItem(two, [1, 2], logits=True)]):
            if isinstance(outcome, afmoe.AfmoeError):
                raise outcome
            n: int = outcome.n_computed
            assert n
        request: afmoe.Request = scheduler.submit(one, 'x', max_draft=4, on_done=lambda ended: print(ended.result()))
        scheduler.run()
        waiting: int = scheduler.info.n_waiting
        return '' if waiting else request.result().text


def use_compat(path: str) -> None:
    with Llama(path) as llama:
        whole: Dict[str, Any] = llama.create_completion('x')
        chunks: Iterator[Dict[str, Any]] = llama.create_chat_completion([], stream=True)
        vector: List[float] = llama.embed('x')
        assert whole and chunks and vector


async def use_async(session: afmoe.Session) -> str:
    text = (await session.agenerate('x')).text
    async for piece in session.astream('x'):
        text += piece.text
    return text
