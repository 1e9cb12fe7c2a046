"""generate, stream and their asynchronous forms."""
import asyncio
import threading

import afmoe
import pytest
from conftest import samples


def test_answers_of_the_reference(session):
    for sample in samples()[:6]:
        answer = session.generate(sample['prompt_ids'], max_new_tokens=200)
        assert answer.text == sample['answer'] == str(answer)
        assert answer.tokens + [answer.stop_token] == sample['answer_ids']
        assert (answer.finish_reason, answer.stop_string) == ('stop_token', None)
        assert answer.prompt_tokens == len(sample['prompt_ids'])
        assert answer.generation_tokens == len(answer.tokens) == len(answer.logprobs)
        assert answer.generation_tps > 0


def test_pieces(session, question):
    pieces = list(session.stream(question, top_logprobs=3))
    answer = session.generate(question, top_logprobs=3)
    assert ''.join(piece.text for piece in pieces) == answer.text
    assert [piece.token for piece in pieces[:-1]] == answer.tokens
    assert [piece.logprob for piece in pieces[:-1]] == answer.logprobs
    assert [piece.top_logprobs for piece in pieces[:-1]] == answer.top_logprobs
    for n, piece in enumerate(pieces[:-1]):
        assert len(piece.top_logprobs) == 3 and piece.top_logprobs[0] == (piece.token, piece.logprob)
        assert piece.position == len(question) + n and piece.finish_reason is None
        assert piece.generation_tokens == n + 1 and piece.generation_tps > 0
    assert (pieces[-1].token, pieces[-1].finish_reason) == (None, 'stop_token')
    assert pieces[0].prompt_tokens == len(question) and pieces[0].prompt_tps > 0
    assert 'Paris' in repr(pieces[5])


def seen_by_callback(session, prompt, **keywords):
    pieces = []
    answer = session.generate(prompt, on_piece=pieces.append, **keywords)
    return answer, pieces


STOPS = [['Paris'], ['is Par', 'ris'], ['.'], ['The'], [' '], ['nowhere'], ['France is', 'is P', 'ance'], ['s.', '.'],
         ['capital of France is Paris.'], ['aris.', 'is.'], 'capital']


@pytest.mark.parametrize('stops', STOPS, ids=str)
def test_stop_strings(session, question, stops):
    """Called back and asked for, the answer stops at the same place with the same text in each piece."""
    answer, called = seen_by_callback(session, question, stop_strings=stops)
    timeline = session.tokens
    pieces = list(session.stream(question, stop_strings=stops))
    assert [piece.text for piece in pieces[:len(called)]] == [piece.text for piece in called]
    assert ''.join(piece.text for piece in pieces) == answer.text
    assert pieces[-1].finish_reason == answer.finish_reason
    assert session.tokens == timeline
    whole = 'The capital of France is Paris.'
    strings = [stops] if isinstance(stops, str) else stops
    ends = [(whole.find(string) + len(string), -len(string)) for string in strings if string in whole]
    if ends:
        end, length = min(ends)
        assert (answer.text, answer.finish_reason) == (whole[:end + length], 'stop_string')
        assert answer.stop_string in strings
    else:
        assert (answer.text, answer.finish_reason) == (whole, 'stop_token')


def test_stop_strings_everywhere(session, model):
    """Every part of a story with characters of several bytes around it, as a stop string."""
    prompt = model.tokenizer.encode('Once upon a time')
    text = session.generate(prompt, max_new_tokens=24).text
    for begin in range(0, len(text), 9):
        for length in (1, 7, 19):
            stop = text[begin:begin + length]
            answer = session.generate(prompt, max_new_tokens=24, stop_strings=[stop, 'é🙂'])
            assert ''.join(piece.text for piece in session.stream(prompt, max_new_tokens=24,
                                                                  stop_strings=[stop, 'é🙂'])) == answer.text


def test_half_characters(session, model):
    """Tokens forced by a bias to be bytes of a character: both ways give it whole, and its stump as U+FFFD."""
    smile = model.tokenizer.tokenize('🙂')
    assert len(smile) > 1
    for token in smile[:2]:
        bias = {token: 1e9}
        answer, called = seen_by_callback(session, [1], max_new_tokens=3, logit_bias=bias)
        assert answer.tokens == [token] * 3
        pieces = list(session.stream([1], max_new_tokens=3, logit_bias=bias))
        assert ''.join(piece.text for piece in pieces) == answer.text == ''.join(piece.text for piece in called)
        stopped = session.generate([1], max_new_tokens=3, logit_bias=bias, stop_strings='\ufffd')
        streamed = list(session.stream([1], max_new_tokens=3, logit_bias=bias, stop_strings='\ufffd'))
        assert (streamed[-1].finish_reason, ''.join(piece.text for piece in streamed)) == \
            (stopped.finish_reason, stopped.text) == ('stop_string', '')


def test_wrong_stops(session, question):
    for wrong in ([''], ['a'] * 65):
        with pytest.raises(afmoe.InvalidError):
            session.generate(question, stop_strings=wrong)
        with pytest.raises(afmoe.InvalidError):
            list(session.stream(question, stop_strings=wrong))
    with pytest.raises(afmoe.InvalidError):
        session.generate(question, eos_token_id=[99999])


def both(session, prompt, **keywords):
    """What both ways say alike."""
    answer = session.generate(prompt, **keywords)
    pieces = list(session.stream(prompt, **keywords))
    assert [piece.token for piece in pieces[:-1]] == answer.tokens
    assert ''.join(piece.text for piece in pieces) == answer.text
    assert pieces[-1].finish_reason == answer.finish_reason
    return answer


def test_ends(session, question, model):
    assert both(session, question, max_new_tokens=3).finish_reason == 'length'
    assert both(session, question, max_new_tokens=0).text == ''
    paris = model.tokenizer.find(' Paris')
    answer = both(session, question, eos_token_id=paris)
    assert (answer.text, answer.finish_reason) == ('The capital of France is', 'stop_token')
    assert both(session, question, eos_token_id=[paris, 45]).text == 'The capital of France is'
    answer = both(session, question, ignore_eos=True, max_new_tokens=12, skip_special_tokens=False)
    assert 3 in answer.tokens and '<|im_end|>' in answer.text
    assert '<|im_end|>' not in both(session, question, ignore_eos=True, max_new_tokens=12).text


def test_going_on(session, question):
    whole = session.generate(question).text
    first = session.generate(question, max_new_tokens=3)
    assert session.tokens == question + first.tokens
    rest = session.generate()
    assert first.text + rest.text == whole
    stream = session.stream(question)
    first = next(stream)
    assert session.tokens == question + [first.token]  # nothing ahead of what was asked for
    stream.close()
    assert first.text + session.generate().text == whole
    session.rewind(0)
    with pytest.raises(afmoe.StateError):
        session.generate()
    with pytest.raises(afmoe.StateError):
        list(session.stream())


def test_between_two_pieces(session, question, context):
    """A session may be looked at; one that is changed is no longer the stream's."""
    text = ''
    for piece in session.stream(question):
        assert len(session.logits()) == session.model_info.vocab_size
        with session.fork() as other:
            assert other.tokens == session.tokens
            other.append([1])
        text += piece.text
    assert text == session.generate(question).text
    for change in (lambda: session.append([1]), lambda: session.generate(max_new_tokens=1), lambda: session.rewind(0),
                   lambda: next(session.stream(question))):
        stream = session.stream(question)
        next(stream)
        change()
        with pytest.raises(afmoe.StateError, match='changed'):
            next(stream)
        assert next(stream, None) is None
    with context.session() as closed:
        stream = closed.stream(question)
        next(stream)
    with pytest.raises(afmoe.StateError, match='closed'):
        next(stream)


def test_drawing(session, question, model):
    keywords = {'do_sample': True, 'temperature': 1.5, 'max_new_tokens': 20, 'ignore_eos': True}
    one = both(session, question, seed=1, **keywords)
    assert one.tokens == both(session, question, seed=1, **keywords).tokens
    assert any(both(session, question, seed=seed, **keywords).tokens != one.tokens for seed in range(2, 6))
    assert both(session, question, seed=9, do_sample=True, temperature=2, top_k=1).text == \
        'The capital of France is Paris.'
    assert both(session, question, do_sample=True, top_p=0.1, min_p=0.5).text == 'The capital of France is Paris.'
    assert both(session, question, do_sample=True, top_k=0, seed=2, max_new_tokens=5).generation_tokens <= 5
    with model.sampler(temperature=1.5, seed=1) as sampler:
        assert both(session, question, sampler=sampler, max_new_tokens=20, ignore_eos=True).tokens == one.tokens
    paris = model.tokenizer.find(' Paris')
    assert 'Paris' not in both(session, question, logit_bias={paris: float('-inf')}).text
    assert both(session, question, repetition_penalty=1.3, presence_penalty=0.5, frequency_penalty=0.5,
                max_new_tokens=9).tokens
    config = afmoe.GenerationConfig(do_sample=True, temperature=1.5, seed=1, ignore_eos=True)
    assert session.generate(question, config, max_new_tokens=20).tokens == one.tokens


def test_sampler(session, question, model):
    session.append(question)
    with model.sampler() as greedy, model.sampler(recommended=True, temperature=0) as other:
        token, logprob = greedy.sample(session)
        assert (token, logprob) == session.top_logprobs(1)[0]
        assert other.sample(session, len(question))[0] == token
        assert greedy.sample_logits(session.logits(), question)[0] == token
        assert greedy.sample_logits([0.0] * 5 + [1.0] + [0.0] * 2106) == (5, pytest.approx(-6.65, abs=0.1))
        with pytest.raises(afmoe.NumericError) as failure:
            greedy.sample_logits([float('nan')] * 2112)
        assert isinstance(failure.value, ArithmeticError)
        with pytest.raises(afmoe.InvalidError):
            greedy.sample_logits([0.0])
    for wrong in ({'temperature': -1}, {'top_k': -1}, {'top_p': 2}, {'seed': -1}, {'logit_bias': {99999: 1}}):
        with pytest.raises(afmoe.InvalidError):
            model.sampler(**wrong)


def test_drafts(session, model):
    """Guesses change how much is computed together, and no token."""
    prompt = model.tokenizer.encode('one two three one two three one two three one two')
    for keywords in ({}, {'do_sample': True, 'temperature': 0.7, 'seed': 5}):
        plain = session.generate(prompt, max_new_tokens=40, ignore_eos=True, **keywords)
        before = session.stats
        drafted = session.generate(prompt, max_new_tokens=40, ignore_eos=True, max_draft=8, **keywords)
        assert (plain.n_drafted, plain.n_draft_accepted) == (0, 0)
        assert drafted.tokens == plain.tokens and drafted.text == plain.text
        assert 0 <= drafted.n_draft_accepted <= drafted.n_drafted
        after = session.stats
        assert after.n_drafted - before.n_drafted == drafted.n_drafted > 0
        assert after.n_draft_accepted - before.n_draft_accepted == drafted.n_draft_accepted
        pieces = session.stream(prompt, max_new_tokens=40, ignore_eos=True, max_draft=8, **keywords)
        for n, piece in enumerate(pieces):
            assert len(session) == len(prompt) + min(n + 1, 40)  # guesses are not in the timeline
        assert session.tokens == prompt + plain.tokens and piece.finish_reason == 'length'
        assert session.stats.n_draft_accepted - after.n_draft_accepted == drafted.n_draft_accepted
    for wrong in (-1, 65):
        with pytest.raises(afmoe.InvalidError):
            session.generate(prompt, max_draft=wrong)
        with pytest.raises(afmoe.InvalidError):
            list(session.stream(prompt, max_draft=wrong))


def test_wrong_keywords(session, question, model):
    with pytest.raises(afmoe.InvalidError, match='do_sample'):
        session.generate(question, temperature=0.5)
    with pytest.raises(afmoe.InvalidError, match='max_new_tokens is -1'):
        session.stream(question, max_new_tokens=-1)
    with pytest.raises(TypeError):
        session.generate(question, num_beams=2)
    with model.sampler() as sampler, pytest.raises(afmoe.InvalidError, match='beside a sampler'):
        session.generate(question, sampler=sampler, repetition_penalty=2)
    with pytest.raises(afmoe.InvalidError):
        session.generate(question, top_logprobs=1025)


class Mine(Exception):
    pass


def test_a_callback_that_raises(session, question):
    def on_piece(piece):
        if piece.text == ' France':
            raise Mine(piece.text)
    with pytest.raises(Mine) as raised:
        session.generate(question, on_piece=on_piece)
    assert raised.traceback[-1].name == 'on_piece' and raised.value.__context__ is None
    assert session.generate().text == ' is Paris.'  # the tokens so far were kept


def test_a_call_from_a_callback(session, question):
    with pytest.raises(afmoe.BusyError):
        session.generate(question, on_piece=lambda piece: session.append([1]))


def test_a_callback_may_say_anything(session, question):
    assert session.generate(question, on_piece=lambda piece: True).text == 'The capital of France is Paris.'


def test_cancel(session, question):
    with afmoe.Cancel() as cancel:
        def on_piece(piece):
            if piece.text == ' France':
                cancel.set()
        answer = session.generate(question, on_piece=on_piece, cancel=cancel)
        assert (answer.text, answer.finish_reason) == ('The capital of France', 'cancelled')
        with pytest.raises(afmoe.CancelledError):
            session.generate([1, 2, 3], cancel=cancel)
        cancel.clear()
        pieces = []
        for piece in session.stream(question, cancel=cancel):
            pieces.append(piece)
            on_piece(piece)
        assert (''.join(piece.text for piece in pieces), pieces[-1].finish_reason) == \
            ('The capital of France', 'cancelled')


def test_asynchronous(context, question):
    async def run():
        with context.session() as one, context.session() as two:
            async def stream():
                return ''.join([piece.text async for piece in one.astream(question)])
            return await asyncio.gather(stream(), two.agenerate(question))
    text, answer = asyncio.run(run())
    assert text == answer.text == 'The capital of France is Paris.'


def test_cancelled_task(context, question):
    async def run(session):
        started = asyncio.Event()
        loop = asyncio.get_running_loop()

        def on_piece(piece):
            loop.call_soon_threadsafe(started.set)
        task = asyncio.create_task(session.agenerate(question, ignore_eos=True, on_piece=on_piece))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await session.agenerate(question)).text
    with context.session() as session:
        assert asyncio.run(run(session)) == 'The capital of France is Paris.'


def test_abandoned_stream(context, question):
    async def run(session):
        async for piece in session.astream(question):
            if piece.text == ' capital':
                break
        async for piece in session.astream(question):
            pass
        return piece.finish_reason
    with context.session() as session:
        assert asyncio.run(run(session)) == 'stop_token'


def test_from_another_thread(session, question):
    """Where there are no signals to care for."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(session.generate(question).text))
    thread.start()
    thread.join()
    assert answers == ['The capital of France is Paris.']
