"""Tokenizer, chat form, stream decoder."""
import json
import os

import afmoe
import pytest
from conftest import NANO, PARIS, ROOT, samples

VECTORS = os.path.join(ROOT, 'tests', 'data', 'tokenizer', 'pico.jsonl')


def test_vectors():
    with afmoe.Model.open(os.path.join(os.path.dirname(VECTORS), 'pico-tokenizer.json'), tokenizer_only=True) as model:
        with open(VECTORS, encoding='utf-8') as file:
            vectors = [json.loads(line) for line in file]
        assert len(vectors) > 10
        for vector in vectors:
            assert model.tokenizer.tokenize(vector['text']) == vector['ids'], vector
            assert model.tokenizer.decode(vector['ids']) == vector['decoded']


def test_special(model):
    tokenizer = model.tokenizer
    assert tokenizer.tokenize('<|im_end|>') == [3] == [tokenizer.find('<|im_end|>')]
    assert 3 not in tokenizer.tokenize('<|im_end|>', special='none')
    text = '<|im_end|><|im_end|>'
    assert tokenizer.tokenize(text, special_ranges=[(0, 10)])[0] == 3
    assert tokenizer.tokenize(text, special_ranges=[(0, 10)]).count(3) == 1
    assert tokenizer.token_text(3) == (b'<|im_end|>', afmoe.TokenKind.CONTROL)
    assert tokenizer.find('no such token, surely') is None
    assert tokenizer.decode([3, 654]) == '<|im_end|>The'
    assert tokenizer.decode([3, 654], skip_special_tokens=True) == 'The'
    assert tokenizer.decode(654) == 'The'


def test_any_bytes(model):
    tokenizer = model.tokenizer
    for data in (b'', b'\xff\x00\xfe', b'a\x00b', bytes(range(256)), 'é'.encode()[:1]):
        assert tokenizer.detokenize(tokenizer.tokenize(data, special='none')) == data
    assert tokenizer.tokenize('\udcff') == tokenizer.tokenize(b'\xff')
    with pytest.raises(afmoe.LimitError):
        tokenizer.tokenize('abc', max_text_bytes=2)
    long = 'one two three ' * 20000
    assert tokenizer.decode(tokenizer.tokenize(long)) == long


def test_wrong_ids(model):
    with pytest.raises(afmoe.InvalidError):
        model.tokenizer.decode([10**6])
    with pytest.raises(afmoe.InvalidError):
        model.tokenizer.decode([2**40])
    with pytest.raises(afmoe.InvalidError):
        model.tokenizer.decode([-1])
    with pytest.raises(TypeError):
        model.tokenizer.decode([1.5])


def test_chat_is_that_of_the_reference(model):
    for sample in samples():
        assert model.tokenizer.apply_chat_template(sample['messages'], add_generation_prompt=True) == \
            sample['prompt_ids']


def test_chat(model):
    tokenizer = model.tokenizer
    text = tokenizer.apply_chat_template(PARIS, tokenize=False)
    assert text == '<|im_start|>user\nWhat is the capital of France?<|im_end|>\n'
    assert tokenizer.apply_chat_template(PARIS, tokenize=False, add_generation_prompt=True) == \
        text + '<|im_start|>assistant\n'
    hostile = tokenizer.apply_chat_template([{'role': 'user', 'content': '<|im_end|>'}])
    assert hostile.count(3) == 1
    with pytest.raises(afmoe.UnsupportedError, match='tools'):
        tokenizer.apply_chat_template(PARIS, tools=[{'type': 'function'}])
    with pytest.raises(afmoe.UnsupportedError, match='documents'):
        tokenizer.apply_chat_template(PARIS, documents=[{}])
    with pytest.raises(afmoe.UnsupportedError, match='tool_calls'):
        tokenizer.apply_chat_template([{'role': 'assistant', 'content': '', 'tool_calls': [1]}])
    with pytest.raises(afmoe.InvalidError, match='message 0'):
        tokenizer.apply_chat_template([{'role': 'user'}])


def test_stream_decoder(model):
    tokens = model.tokenizer.tokenize('naïve — 日本 🙂')
    with model.tokenizer.stream_decoder() as decoder:
        pieces = [decoder.push(token) for token in tokens] + [decoder.finish()]
        assert ''.join(pieces) == 'naïve — 日本 🙂'
        assert '\ufffd' not in ''.join(pieces)
        byte = model.tokenizer.tokenize('🙂'.encode()[:2])
        assert ''.join(decoder.push(token) for token in byte) == ''
        assert '\ufffd' in decoder.finish()
        with pytest.raises(afmoe.InvalidError):
            decoder.push(2**31)


def test_without_a_tokenizer():
    with afmoe.Model.open(NANO) as model:
        with pytest.raises(afmoe.UnsupportedError):
            model.tokenizer.encode('a')
        with model.session() as session:
            pieces = list(session.stream([1, 2, 3], max_new_tokens=4))
            assert [piece.token for piece in pieces[:-1]] == session.tokens[3:]
            assert session.generate(max_new_tokens=2).text == ''
