"""Scheduler: many answers side by side, each the one that generate gives."""
import contextlib
import gc
import os
import signal
import threading
import weakref

import afmoe
import pytest
from conftest import python, samples

PARIS = 'The capital of France is Paris.'


@pytest.fixture
def scheduler(context):
    with context.scheduler() as made:
        yield made


@pytest.fixture
def sessions(context):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(context.session()) for _ in range(6)]


def test_answers_are_those_of_generate(context, session, sessions):
    configs = [{}, {'top_logprobs': 2}, {'stop_strings': ['a', 'b']}, {'max_new_tokens': 3},
               {'do_sample': True, 'seed': 3, 'temperature': 1.5, 'max_new_tokens': 20}, {'max_draft': 4}]
    ended, pieces = [], [[] for _ in configs]
    with context.scheduler(max_running=4) as scheduler:
        requests = [scheduler.submit(one, sample['prompt_ids'], on_piece=got.append, on_done=ended.append, **config)
                    for one, sample, config, got in zip(sessions, samples(), configs, pieces)]
        assert (scheduler.info.n_waiting, scheduler.info.n_running) == (6, 0)
        assert scheduler.step() and scheduler.info.n_running == 4
        scheduler.run()
        assert scheduler.info.to_dict() == {'n_waiting': 0, 'n_running': 0, 'n_done': 6}
        assert not scheduler.step()
    assert sorted(map(id, ended)) == sorted(map(id, requests))
    for one, sample, config, request, got in zip(sessions, samples(), configs, requests, pieces):
        answer, alone = request.result(), session.generate(sample['prompt_ids'], **config)
        for name in ('text', 'tokens', 'logprobs', 'top_logprobs', 'finish_reason', 'stop_token', 'stop_string',
                     'prompt_tokens', 'generation_tokens'):
            assert getattr(answer, name) == getattr(alone, name), name
        assert ''.join(piece.text for piece in got) == answer.text and request.done and request.session is one
        assert one.tokens == session.tokens and one.logits().tobytes() == session.logits().tobytes()


def test_going_on(scheduler, session, question):
    session.append(question)
    request = scheduler.submit(session)
    with pytest.raises(afmoe.StateError, match='not done'):
        request.result()
    assert not request.done and not request.wait(0)
    scheduler.run()
    assert request.result().text == PARIS


def test_in_use_until_done(scheduler, session, question, model):
    with model.sampler() as sampler:
        request = scheduler.submit(session, question, sampler=sampler)
        for call in (lambda: session.n_tokens, lambda: session.append([1]), lambda: session.fork(),
                     lambda: scheduler.submit(session, question),
                     lambda: sampler.sample_logits([0.0] * 2112)):
            with pytest.raises(afmoe.BusyError):
                call()
        scheduler.run()
        assert request.result().text == PARIS
        assert session.n_tokens == len(question) + 7 and sampler.sample_logits([0.0] * 2112)


def test_refused(context, scheduler, sessions, question, model):
    done = []
    for prompt, keywords, error in ((question, {'max_draft': 65}, afmoe.InvalidError),
                                    (None, {}, afmoe.StateError), (question, {'priority': 2**40}, afmoe.InvalidError),
                                    ([2**40], {}, afmoe.InvalidError), (question, {'n': 1}, TypeError)):
        with pytest.raises(error):
            scheduler.submit(sessions[0], prompt, on_done=done.append, **keywords)
    with model.session(n_threads=1) as foreign, pytest.raises(afmoe.InvalidError, match='another context'):
        scheduler.submit(foreign, question)
    with context.scheduler(max_waiting=1) as small:
        small.submit(sessions[1], question)
        with pytest.raises(afmoe.LimitError):
            small.submit(sessions[2], question)
        assert sessions[2].n_tokens == 0
    for wrong in ({'max_running': 0}, {'max_running': -1}, {'max_waiting': 0}, {'max_prompt_tokens': 0}):
        with pytest.raises(afmoe.InvalidError):
            context.scheduler(**wrong)
    assert not done and sessions[0].n_tokens == 0
    scheduler.run()


def test_each_fails_alone(scheduler, sessions, question):
    wrong, full, good = (scheduler.submit(one, prompt) for one, prompt in
                         zip(sessions, ([99999], range(5000), question)))
    scheduler.run()
    with pytest.raises(afmoe.InvalidError, match='99999'):
        wrong.result()
    with pytest.raises(afmoe.ContextFullError):
        full.result()
    assert good.result().text == PARIS


def test_room_that_ends(model):
    with model.context(n_threads=1, max_tokens=16) as context, context.session() as session:
        with context.scheduler() as scheduler:
            request = scheduler.submit(session, [1, 2], ignore_eos=True)
            scheduler.run()
        assert request.result().finish_reason == 'context' and session.n_tokens == 16


def test_priority(context, sessions, question):
    order = []
    with context.scheduler(max_running=1) as scheduler:
        for priority, one in zip((0, 5, -5, 5), sessions):
            scheduler.submit(one, question, priority=priority,
                             on_done=lambda request: order.append(sessions.index(request.session)))
        scheduler.run()
    assert order == [1, 3, 0, 2]


def test_cancel(scheduler, sessions, question):
    pieces = []

    def on_piece(piece):
        pieces.append(piece)
        if len(pieces) == 3:
            running.cancel()
    running = scheduler.submit(sessions[0], question, on_piece=on_piece)
    waiting = scheduler.submit(sessions[1], question)
    good = scheduler.submit(sessions[2], question)
    waiting.cancel()
    scheduler.run()
    assert (running.result().finish_reason, running.result().text) == ('cancelled', 'The capital of')
    assert (waiting.result().finish_reason, waiting.result().text) == ('cancelled', '')
    assert good.result().text == PARIS
    good.cancel()
    assert good.result().finish_reason == 'stop_token'


class Mine(Exception):
    pass


def test_a_piece_that_raises(scheduler, sessions, question):
    """It is that request's failure, and no other's."""
    def on_piece(piece):
        raise Mine('piece')
    broken, good = scheduler.submit(sessions[0], question, on_piece=on_piece), scheduler.submit(sessions[1], question)
    scheduler.run()
    with pytest.raises(Mine) as raised:
        broken.result()
    assert raised.traceback[-1].name == 'on_piece' and raised.value.__context__ is None
    assert good.result().text == PARIS and sessions[0].n_tokens == len(question) + 1


def test_an_end_that_raises(scheduler, sessions, question):
    """It comes out of run, once for each, and nothing is lost."""
    def on_done(request):
        raise Mine(request.result().text)
    requests = [scheduler.submit(one, question, on_done=on_done) for one in sessions[:2]]
    for _ in requests:
        with pytest.raises(Mine, match=PARIS) as raised:
            scheduler.run()
        assert raised.value.__context__ is None
    scheduler.run()
    assert all(request.result().text == PARIS for request in requests)
    scheduler.submit(sessions[0], [1], on_done=lambda request: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scheduler.close()
    assert scheduler.closed


def test_an_interrupt_in_a_callback(scheduler, sessions, question):
    def on_piece(piece):
        raise KeyboardInterrupt
    broken, good = scheduler.submit(sessions[0], question, on_piece=on_piece), scheduler.submit(sessions[1], question)
    with pytest.raises(KeyboardInterrupt):
        scheduler.run()
    scheduler.run()
    assert broken.done and good.result().text == PARIS


def test_ctrl_c(scheduler, session, question):
    """It comes out of run; the request is as it was."""
    def on_piece(piece):
        if piece.text == ' France':
            os.kill(os.getpid(), signal.SIGINT)
    request = scheduler.submit(session, question, on_piece=on_piece)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        scheduler.run()
    assert signal.getsignal(signal.SIGINT) is before and not request.done
    scheduler.run()
    assert request.result().text == PARIS


def test_calls_from_callbacks(scheduler, sessions, question):
    """step and run are busy; submit works, and so does the session of a request that has ended."""
    said, again = [], []

    def on_done(request):
        for call in (scheduler.step, scheduler.run):
            with pytest.raises(afmoe.BusyError):
                call()
        said.append(request.session.n_tokens)
        request.session.rewind(0)
        again.append(scheduler.submit(request.session, question))
    scheduler.submit(sessions[0], question, on_done=on_done)
    scheduler.run()
    assert said == [len(question) + 7] and again[0].result().text == PARIS


def test_two_threads(scheduler, sessions, question):
    """One steps; another is told that it does, submits, and waits."""
    inside, go = threading.Event(), threading.Event()

    def on_piece(piece):
        inside.set()
        assert go.wait(30)
    first = scheduler.submit(sessions[0], question, on_piece=on_piece)
    thread = threading.Thread(target=scheduler.run)
    thread.start()
    assert inside.wait(30)
    with pytest.raises(afmoe.BusyError):
        scheduler.step()
    second = scheduler.submit(sessions[1], question)
    assert scheduler.info.n_waiting == 1
    go.set()
    assert second.wait(30) and first.wait(30)
    thread.join()
    assert first.result().text == second.result().text == PARIS


def test_close(context, sessions, question):
    """What is not done ends as cancelled."""
    ended = []
    scheduler = context.scheduler()
    requests = [scheduler.submit(one, question, on_done=ended.append) for one in sessions[:2]]
    scheduler.step()
    scheduler.close()
    scheduler.close()
    assert set(ended) == set(requests) and {request.result().finish_reason for request in requests} == {'cancelled'}
    for call in (scheduler.step, scheduler.run, lambda: scheduler.submit(sessions[0], question),
                 lambda: scheduler.info):
        with pytest.raises(afmoe.StateError, match='closed'):
            call()
    sessions[0].sync(question)
    assert not afmoe.scheduler._pending


def test_closed_in_a_callback(context, sessions, question):
    scheduler = context.scheduler()
    request = scheduler.submit(sessions[0], question, on_piece=lambda piece: scheduler.close())
    scheduler.run()
    assert scheduler.closed and request.done and not afmoe.scheduler._pending


def test_no_reference_left(context, question):
    """Of scheduler, session and request the last to go frees them."""
    scheduler = context.scheduler()
    request = scheduler.submit(context.session(), question)
    gone = weakref.ref(request.session)
    request.session.close()
    del scheduler
    gc.collect()
    assert request.result().finish_reason == 'cancelled' and not afmoe.scheduler._pending
    del request
    gc.collect()
    assert gone() is None


def test_a_session_that_is_closed(scheduler, context, question):
    session = context.session()
    request = scheduler.submit(session, question)
    session.close()
    context_of_request = request.session.context
    scheduler.run()
    assert request.result().text == PARIS and context_of_request is context


AT_EXIT = '''
import os, afmoe
model = afmoe.Model.open(os.path.join(os.environ['AFMOE_SOURCE_ROOT'], 'models', 'pico-q8_0.gguf'))
context = model.context(n_threads=2)
scheduler = context.scheduler()
request = scheduler.submit(context.session(), 'Once', on_done=lambda request: print(request.result().finish_reason))
scheduler.step()
'''


def test_at_exit():
    answer = python(AT_EXIT)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, 'cancelled\n', '')


def test_a_host_that_raises(model, question):
    def broken(n, task):
        raise ZeroDivisionError('mine')
    with model.context(n_threads=2, parallel=broken) as context, context.session() as session:
        with context.scheduler() as scheduler:
            request = scheduler.submit(session, question)
            with pytest.raises(ZeroDivisionError, match='mine'):
                scheduler.run()
            assert request.done
