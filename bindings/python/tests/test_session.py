"""What is computed: against C bit for bit, against the record, and what two threads, closing and Ctrl-C do to it."""
import json
import os
import signal
import subprocess
import threading
import time

import afmoe
import numpy as np
import pytest
from conftest import MODEL, NANO, ROOT

PROMPTS = {MODEL: [2, 317, 230, 370, 329, 292, 410, 362, 1270, 62, 3, 230, 2, 318, 230],
           NANO: [index * 37 % 320 for index in range(70)],
           os.path.join(ROOT, 'tests', 'data', 'tiny-window-1'): [5, 1, 90, 33, 7]}


def values_from_c(path, n_generate, tokens, info):
    answer = subprocess.run([os.environ['AFMOE_VALUES_FROM_C'], path, str(n_generate), *map(str, tokens)], check=True,
                            capture_output=True).stdout
    n_chosen = len(tokens) * (info.n_layers - info.n_dense_layers) * info.n_experts_per_token
    parts = []
    for n, kind in ((len(tokens) - 1, 'f4'), (info.vocab_size, 'f4'), (info.hidden_size, 'f4'), (n_chosen, 'i4'),
                    (n_chosen, 'f4'), (n_generate, 'i4'), (n_generate, 'f4')):
        parts.append(np.frombuffer(answer[:4 * n], dtype=kind))
        answer = answer[4 * n:]
    assert not answer
    return parts


@pytest.mark.parametrize('path', PROMPTS, ids=os.path.basename)
def test_bits_are_those_of_c(path):
    tokens = PROMPTS[path]
    with afmoe.Model.open(path) as model, model.session() as session:
        logprobs, logits, hidden, ids, weights, generated, generated_logprobs = \
            values_from_c(path, 20, tokens, model.info)
        n = len(tokens)
        did = session.append(tokens, logprobs=(1, n), positions=[0, n - 1], logits=True, hidden=True, experts=True)
        for mine, c in ((did.logprobs, logprobs), (did.logits[1], logits), (session.logits(), logits),
                        (session.logits_view(), logits), (did.hidden[1], hidden), (session.hidden(), hidden),
                        (did.expert_ids.ravel(), ids), (did.expert_weights.ravel(), weights)):
            assert mine.tobytes() == c.tobytes()
        assert did.expert_ids.shape == (n, model.info.n_layers - model.info.n_dense_layers,
                                        model.info.n_experts_per_token)
        answer = session.generate(max_new_tokens=20, ignore_eos=True)
        assert answer.tokens == generated.tolist()
        assert np.float32(answer.logprobs).tobytes() == generated_logprobs.tobytes()
        pieces = list(session.stream(tokens, max_new_tokens=20, ignore_eos=True))
        assert [piece.token for piece in pieces[:-1]] == generated.tolist()
        assert np.float32([piece.logprob for piece in pieces[:-1]]).tobytes() == generated_logprobs.tobytes()
        assert session.score(tokens).tobytes() == logprobs.tobytes()


def test_against_the_record():
    """The model of tests/data as transformers computed it, within what docs/model.md says."""
    with open(os.path.join(NANO, 'expected.safetensors'), 'rb') as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), 'little')))
        data = file.read()

    def tensor(name, kind):
        entry = header[name]
        begin, end = entry['data_offsets']
        return np.frombuffer(data[begin:end], dtype=kind).reshape(entry['shape'])
    texts = tensor('input_ids', {'I64': 'i8', 'I32': 'i4'}[header['input_ids']['dtype']])
    logits = tensor('logits', 'f4')
    assert texts.shape == logits.shape[:2] and texts.size > 20
    with afmoe.Model.open(NANO) as model, model.session(precision='exact') as session:
        for ids, expected in zip(texts, logits):
            mine = session.sync(ids, positions=range(len(ids)), logits=True).logits
            assert np.abs(mine - expected).max() < 5e-5


def test_copies_and_the_view(session):
    session.append([1, 2, 3])
    copy, view = session.logits(), session.logits_view()
    assert copy.flags.writeable and not view.flags.writeable
    with pytest.raises(ValueError):
        view[0] = 1
    before = copy.copy()
    copy[:] = 0
    assert view.tobytes() == before.tobytes() == session.logits().tobytes()
    assert session.logits_view().ctypes.data == view.ctypes.data
    session.append([4])
    assert session.logits().tobytes() != before.tobytes()
    assert np.isclose(np.exp(session.logprobs()).sum(), 1, atol=1e-4)
    top = session.top_logprobs(3)
    assert [token for token, _ in top][0] == session.logits().argmax()
    assert [value for _, value in top] == sorted((value for _, value in top), reverse=True)
    assert len(session.top_logprobs(10**9)) == 1600
    with pytest.raises(afmoe.InvalidError):
        session.top_logprobs(-1)


def test_timeline(session):
    assert session.n_tokens == 0 and session.tokens == [] and session
    did = session.append([1, 2, 3, 4])
    assert (did.n_tokens, did.n_reused, did.n_computed) == (4, 0, 4)
    did = session.sync([1, 2, 5])
    assert (did.n_tokens, did.n_reused, did.n_computed) == (3, 2, 1)
    assert session.tokens == [1, 2, 5]
    assert session.rewind(1).n_tokens == 1
    with pytest.raises(afmoe.StateError):
        session.logits()
    with pytest.raises(afmoe.InvalidError):
        session.rewind(2)
    with pytest.raises(afmoe.InvalidError):
        session.append([1, 99999])
    with pytest.raises(afmoe.InvalidError, match='32 bits'):
        session.append([2**32])
    assert session.tokens == [1] and len(session) == 1
    session.append(np.array([7, 8]))
    session.append(np.array([9], dtype='int64'))
    session.append(iter([10]))
    assert session.tokens == [1, 7, 8, 9, 10]
    assert session.stats.n_reused == 2
    long = [index % 1600 for index in range(400)]
    session.sync(long)
    assert session.tokens == long


def test_wrong_requests(session):
    with pytest.raises(afmoe.InvalidError):
        session.append([1, 2, 3], logprobs=(2, 9))
    with pytest.raises(afmoe.InvalidError):
        session.append([1, 2, 3], logprobs=(2, 1))
    with pytest.raises(afmoe.InvalidError):
        session.append([1, 2, 3], positions=[3], logits=True)
    with pytest.raises(afmoe.InvalidError, match='positions is -1'):
        session.append([1, 2, 3], positions=[-1], logits=True)
    assert session.n_tokens == 0
    assert session.score([1]).size == 0


def test_context_options(model):
    with model.context(n_threads=2, cpu_level='c', cells=afmoe.Cells.BF16, chunk_tokens=8, max_tokens=16,
                       precision='exact', rewind_tokens=4, cpus=[min(os.sched_getaffinity(0))]) as context:
        info = context.info
        assert (info.n_threads, info.cpu_level, info.cells, info.chunk_tokens, info.max_tokens) == (2, 0, 3, 8, 16)
        with context.session() as session:
            with pytest.raises(afmoe.ContextFullError):
                session.append(range(17))
            assert session.generate([1, 2], ignore_eos=True).finish_reason == 'context'
            assert [piece.finish_reason for piece in session.stream([1, 2], ignore_eos=True)][-1] == 'context'
            assert session.n_tokens == 16
    for wrong in ({'n_threads': 0}, {'cells': 'f64'}, {'cells': 9}, {'max_tokens': -1}, {'n_threads': 2**32 + 1},
                  {'cpus': [-1]}):
        with pytest.raises(afmoe.InvalidError):
            model.context(**wrong)
    with pytest.raises(TypeError):
        model.context(threads=1)


def test_threads_of_the_host(model, question):
    """The same bits, and what the host's parallel-for raises comes back."""
    calls = []

    def parallel(n, task):
        calls.append(n)
        threads = [threading.Thread(target=task, args=(worker,)) for worker in range(1, n)]
        for thread in threads:
            thread.start()
        task(0)
        for thread in threads:
            thread.join()

    def broken(n, task):
        raise ZeroDivisionError('mine')
    with model.session(n_threads=2) as session, model.session(n_threads=2, parallel=parallel) as host:
        session.append(question)
        host.append(question)
        assert calls and session.logits().tobytes() == host.logits().tobytes()
    with model.session(n_threads=2, parallel=broken) as session:
        with pytest.raises(ZeroDivisionError, match='mine') as raised:
            session.append(question)
        assert raised.value.__context__ is None


def test_embed(session):
    texts = ['Tell me a story about a fox.', 'Tell me a story about a wolf.', '1 + 2 = 3']
    one, near, far = (session.embed(text) for text in texts)
    assert one.shape == (256,) and np.isclose(np.linalg.norm(one), 1, atol=1e-5)
    assert one @ near > one @ far
    last = session.embed([1, 2, 3], pooling='last', normalize=False)
    session.sync([1, 2, 3, 4])
    session.sync([1, 2, 3])
    assert last.tobytes() == session.sync([1, 2, 3], positions=[2], hidden=True).hidden[0].tobytes()
    with pytest.raises(afmoe.InvalidError):
        session.embed([])


def test_two_threads(context):
    """A second caller is told, at once, and the first is not disturbed."""
    with context.session() as session:
        inside, go = threading.Event(), threading.Event()

        def progress(done, total):
            inside.set()
            assert go.wait(30)
        failures = []

        def first():
            try:
                session.append(range(300), progress=progress)
            except BaseException as failure:
                failures.append(failure)
        thread = threading.Thread(target=first)
        thread.start()
        assert inside.wait(30)
        with pytest.raises(afmoe.BusyError) as busy:
            session.append([1])
        assert busy.value.code == afmoe.Status.BUSY
        go.set()
        thread.join()
        assert not failures and session.n_tokens == 300


def test_closed_by_another_thread(context):
    """The call in progress ends well; then the session is gone."""
    session = context.session()
    inside, go, done = threading.Event(), threading.Event(), []

    def progress(n, total):
        inside.set()
        assert go.wait(30)
    thread = threading.Thread(target=lambda: done.append(session.append(range(300), progress=progress).n_tokens))
    thread.start()
    assert inside.wait(30)
    session.close()
    assert session.closed
    go.set()
    thread.join()
    assert done == [300]
    with pytest.raises(afmoe.StateError):
        session.n_tokens


def test_closed_by_its_own_callback(context):
    session = context.session()
    assert session.append(range(300), progress=lambda done, total: session.close()).n_tokens == 300
    assert session.closed


def test_many_threads_on_one_model(model, question):
    def run(out):
        with model.session(n_threads=1) as session:
            out.append(session.generate(question).text)
    answers = []
    threads = [threading.Thread(target=run, args=(answers,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == ['The capital of France is Paris.'] * 4


def test_a_full_session_shifts_and_goes_on(model):
    with model.session(max_tokens=256) as session:
        session.append(range(256))
        with pytest.raises(afmoe.ContextFullError):
            session.append([1])
        with pytest.raises(afmoe.InvalidError, match='256 tokens, of which 4 pages are whole'):
            session.shift(100, 129)
        for wrong in (-1, 2**64):
            with pytest.raises(ValueError):
                session.shift(0, wrong)
        assert session.shift(20, 100) == 128
        assert (session.n_tokens, session.stats.n_dropped, session.tokens) == (256, 128, list(range(256)))
        session.append(range(100))
        result = session.sync([*range(256), *range(100)])
        assert (result.n_tokens, result.n_reused, result.n_computed) == (356, 356, 0)


def test_a_progress_that_raises(session):
    class Mine(BaseException):
        pass

    def progress(done, total):
        raise Mine
    with pytest.raises(Mine) as raised:
        session.append(range(700), progress=progress)
    assert raised.value.__context__ is None
    kept = session.n_tokens
    assert 0 < kept < 700
    session.append(range(kept, 700))
    whole = session.logits()
    session.rewind(0)
    session.append(range(700))
    assert whole.tobytes() == session.logits().tobytes()


LONG = 400 if os.environ.get('AFMOE_SANITIZE', 'none') != 'none' else 1200  # takes many times the delay


@pytest.fixture
def slow(model):
    """A session whose whole prompt is one chunk: without a callback in between it takes long."""
    with model.session(n_threads=1, cpu_level='c', chunk_tokens=2048, max_tokens=2048) as session:
        yield session


def interruption(delay):
    return threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))


def test_ctrl_c_in_a_long_prompt(slow):
    before = signal.getsignal(signal.SIGINT)
    began = time.monotonic()
    with afmoe.Cancel() as cancel:
        timer = interruption(0.1)
        with pytest.raises(KeyboardInterrupt) as raised:
            timer.start()
            slow.append(range(LONG), cancel=cancel)
        timer.join()
        assert not cancel.is_set
    stopped = time.monotonic() - began
    assert raised.value.__context__ is None
    assert signal.getsignal(signal.SIGINT) is before and signal.set_wakeup_fd(-1) == -1
    assert slow.n_tokens == 0  # not a whole chunk
    began = time.monotonic()
    assert slow.append(range(LONG)).n_tokens == LONG
    assert stopped < time.monotonic() - began, 'it ran to its end before Ctrl-C was seen'


def test_ctrl_c_while_generating(slow):
    timers = []

    def on_piece(piece):
        if not timers:
            timers.append(interruption(0.02))
            timers[0].start()
    with pytest.raises(KeyboardInterrupt):
        slow.generate([1, 2, 3], ignore_eos=True, on_piece=on_piece)
    timers.pop().join()
    assert slow.n_tokens > 3  # those given out are kept
    with pytest.raises(KeyboardInterrupt):
        for piece in slow.stream([1, 2, 3], ignore_eos=True):
            on_piece(piece)
    timers.pop().join()
    assert slow.generate([1, 2, 3], max_new_tokens=2).generation_tokens <= 2


def test_a_handler_that_raises(session):
    """Of any signal; and one that does not raise does not disturb."""
    class Alarm(Exception):
        pass
    seen = []

    def handler(number, frame):
        seen.append(number)
        if len(seen) > 1:
            raise Alarm
    before = signal.signal(signal.SIGUSR1, handler)
    try:
        def progress(done, total):
            if done < 600:
                os.kill(os.getpid(), signal.SIGUSR1)
        assert session.append(range(256), progress=progress).n_tokens == 256
        assert seen == [signal.SIGUSR1]
        with pytest.raises(Alarm):
            session.append(range(1000), progress=progress)
        assert signal.getsignal(signal.SIGUSR1) is handler
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_wakeup_file_of_the_host(session):
    """What asyncio has installed gets its bytes."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    old = signal.set_wakeup_fd(writer)
    before = signal.signal(signal.SIGUSR1, lambda number, frame: None)
    try:
        session.append(range(300), progress=lambda done, total: os.kill(os.getpid(), signal.SIGUSR1))
        assert signal.SIGUSR1 in os.read(reader, 64)
    finally:
        signal.signal(signal.SIGUSR1, before)
        assert signal.set_wakeup_fd(old) == writer
        os.close(reader)
        os.close(writer)
