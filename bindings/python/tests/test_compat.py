"""afmoe.compat.Llama: names of llama-cpp-python, dictionaries of OpenAI."""
import pickle

import afmoe
import pytest
from afmoe.compat import Llama
from conftest import MODEL, PARIS

ANSWER = 'The capital of France is Paris.'


@pytest.fixture(scope='module')
def llama():
    with Llama(model_path=MODEL, n_ctx=1024, verbose=False) as made:
        yield made


def test_chat(llama):
    answer = llama.create_chat_completion(PARIS, temperature=0, logprobs=True, top_logprobs=2)
    assert set(answer) == {'id', 'object', 'created', 'model', 'choices', 'usage'}
    assert answer['object'] == 'chat.completion' and answer['id'].startswith('chatcmpl-')
    choice, = answer['choices']
    assert choice['message'] == {'role': 'assistant', 'content': ANSWER}
    assert (choice['index'], choice['finish_reason']) == (0, 'stop')
    content = choice['logprobs']['content']
    assert ''.join(entry['token'] for entry in content) == ANSWER
    assert bytes(byte for entry in content for byte in entry['bytes']) == ANSWER.encode()
    assert all(len(entry['top_logprobs']) == 2 and entry['logprob'] <= 0 for entry in content)
    assert answer['usage'] == {'prompt_tokens': 15, 'completion_tokens': 7, 'total_tokens': 22}


def test_chat_stream(llama):
    chunks = list(llama.create_chat_completion(PARIS, temperature=0, stream=True))
    assert {chunk['object'] for chunk in chunks} == {'chat.completion.chunk'}
    assert len({chunk['id'] for chunk in chunks}) == 1
    deltas = [chunk['choices'][0]['delta'] for chunk in chunks]
    assert deltas[0] == {'role': 'assistant'} and deltas[-1] == {}
    assert ''.join(delta.get('content', '') for delta in deltas) == ANSWER
    assert [chunk['choices'][0]['finish_reason'] for chunk in chunks] == [None] * (len(chunks) - 1) + ['stop']


def test_completion(llama):
    answer = llama('Once upon a time', max_tokens=5, temperature=0, logprobs=2, echo=True)
    assert answer['object'] == 'text_completion'
    choice, = answer['choices']
    assert choice['text'].startswith('Once upon a time,') and choice['finish_reason'] == 'length'
    logprobs = choice['logprobs']
    assert {len(values) for values in logprobs.values()} == {5}
    for token, offset in zip(logprobs['tokens'], logprobs['text_offset']):
        assert choice['text'][offset:].startswith(token)
    plain = llama.create_completion('Once upon a time', max_tokens=5, temperature=0)
    assert 'Once upon a time' + plain['choices'][0]['text'] == choice['text']
    chunks = list(llama.create_completion('Once upon a time', max_tokens=5, temperature=0, stream=True))
    assert ''.join(chunk['choices'][0]['text'] for chunk in chunks) == plain['choices'][0]['text']
    assert chunks[-1]['usage'] == plain['usage'] == {'prompt_tokens': 4, 'completion_tokens': 5, 'total_tokens': 9}
    stopped = llama.create_completion('Once upon a time', max_tokens=50, temperature=0, stop=['.'])
    assert stopped['choices'][0]['finish_reason'] == 'stop' and '.' not in stopped['choices'][0]['text']


def test_seed(llama):
    def text(**keywords):
        return llama('Once', max_tokens=20, temperature=2.0, **keywords)['choices'][0]['text']
    assert text(seed=3) == text(seed=3)
    assert len({text() for _ in range(5)}) > 1


def test_tokens(llama):
    tokens = llama.tokenize(b'Hello <|im_end|>')
    assert llama.token_eos() not in tokens and llama.detokenize(tokens) == b'Hello <|im_end|>'
    assert llama.tokenize(b'<|im_end|>', special=True) == [3]
    assert llama.detokenize([3]) == b'' and llama.detokenize([3], special=True) == b'<|im_end|>'
    assert (llama.n_ctx(), llama.n_vocab(), llama.n_embd(), llama.token_bos()) == (1024, 2112, 256, 0)


def test_low_level(llama):
    llama.reset()
    llama.eval([1, 2, 3])
    assert llama.n_tokens == 3
    token = llama.sample(temp=0)
    generator = llama.generate([1, 2, 3], temp=0)
    assert next(generator) == token
    next(generator)
    assert llama.n_tokens == 4
    generator.close()


@pytest.mark.skipif('state' not in afmoe.build_features().split(), reason='this build has no state')
def test_state(llama):
    llama.reset()
    llama.eval([1, 2, 3])
    state = pickle.loads(pickle.dumps(llama.save_state()))
    assert (state.input_ids, state.n_tokens, state.llama_state_size) == ([1, 2, 3], 3, len(state.llama_state))
    token = llama.sample(temp=0)
    llama.eval([4, 5])
    llama.load_state(state)
    assert llama.n_tokens == 3 and llama.sample(temp=0) == token


def test_embed(llama):
    one, two = llama.embed(['a fox', 'a wolf'], normalize=True)
    assert len(one) == 256 and abs(sum(value * value for value in one) - 1) < 1e-5 and one != two
    assert llama.embed('a fox', normalize=True) == one
    answer = llama.create_embedding(['a fox', 'a wolf'])
    assert [entry['index'] for entry in answer['data']] == [0, 1]


def test_refused(llama):
    for call in (lambda: llama.create_completion('a', suffix='b'), lambda: llama.create_completion('a', grammar='b'),
                 lambda: llama.create_chat_completion(PARIS, tools=[{}]),
                 lambda: llama.create_chat_completion(PARIS, response_format={'type': 'json_object'}),
                 lambda: Llama(MODEL, n_gpu_layers=-1)):
        with pytest.raises(afmoe.UnsupportedError):
            call()
    llama.create_completion('a', max_tokens=1, typical_p=1.0, grammar=None, response_format={'type': 'text'})
    with pytest.raises(afmoe.NotFoundError):
        Llama('/nowhere.gguf')
