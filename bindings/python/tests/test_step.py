"""Context.step: every session as if it had been alone."""
import contextlib
import os
import signal

import afmoe
import pytest

TOKENS = [list(range(5, 90)), [1], list(range(300, 340)), [2, 3]]


@pytest.fixture
def sessions(context):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(context.session()) for _ in TOKENS]


def test_is_append(context, session, sessions):
    seen = {}
    for tokens in (TOKENS, [[4]] * len(TOKENS)):
        outcomes = context.step(zip(sessions, tokens), on_item=seen.__setitem__)
        assert [did.n_computed for did in outcomes] == list(map(len, tokens))
        assert seen == dict(enumerate(outcomes))
    for alone, tokens in zip(sessions, TOKENS):
        session.rewind(0)
        session.append(tokens)
        session.append([4])
        assert alone.tokens == tokens + [4]
        assert alone.logits().tobytes() == session.logits().tobytes()
    assert context.step([]) == []


def test_options_of_items(context, session, sessions):
    steps = []
    items = [afmoe.StepItem(one, tokens, logprobs=(1, len(tokens)), positions=[0], logits=True, hidden=True,
                            experts=True, progress=lambda done, total: steps.append((done, total)))
             for one, tokens in zip(sessions, TOKENS)]
    for did, tokens in zip(context.step(items), TOKENS):
        session.rewind(0)
        mine = session.append(tokens, logprobs=(1, len(tokens)), positions=[0], logits=True, hidden=True, experts=True)
        for name in ('logprobs', 'logits', 'hidden', 'expert_ids', 'expert_weights'):
            assert getattr(did, name).tobytes() == getattr(mine, name).tobytes(), name
        assert (len(tokens), len(tokens)) in steps


def test_each_fails_alone(context, sessions, model):
    with model.context(n_threads=1) as other, other.session() as foreign, afmoe.Cancel() as cancel:
        cancel.set()
        outcomes = context.step([(sessions[0], [1, 2]), (sessions[0], [3]), (sessions[1], [99999]), (foreign, [1]),
                                 afmoe.StepItem(sessions[2], [1, 2], cancel=cancel), (sessions[3], range(5000))])
        assert cancel.is_set
    assert [type(outcome) for outcome in outcomes] == [
        afmoe.AppendResult, afmoe.BusyError, afmoe.InvalidError, afmoe.InvalidError, afmoe.CancelledError,
        afmoe.ContextFullError]
    assert '99999' in str(outcomes[2]) and 'another context' in str(outcomes[3])
    assert [one.n_tokens for one in sessions] == [2, 0, 0, 0]
    sessions[1].close()
    with pytest.raises(afmoe.StateError, match='closed'):
        context.step([(sessions[0], [1]), (sessions[1], [1])])
    assert sessions[0].n_tokens == 2


def test_cancel(context, sessions):
    with afmoe.Cancel() as cancel:
        cancel.set()
        outcomes = context.step(zip(sessions, TOKENS), cancel=cancel)
    assert all(isinstance(outcome, afmoe.CancelledError) for outcome in outcomes)
    assert not any(one.n_tokens for one in sessions)


class Mine(BaseException):
    pass


@pytest.mark.parametrize('place', ['on_item', 'progress'])
def test_a_callback_that_raises(context, sessions, place):
    def raises(*_):
        raise Mine(place)
    items = [afmoe.StepItem(one, range(1000), progress=raises if place == 'progress' else None) for one in sessions]
    if place == 'on_item':
        items[0] = afmoe.StepItem(sessions[0], [1])
    with pytest.raises(Mine) as raised:
        context.step(items, on_item=raises if place == 'on_item' else None)
    assert raised.value.__context__ is None
    assert sum(one.n_tokens for one in sessions) < 3001  # the others were stopped
    for one in sessions:
        one.sync([1, 2])
        assert one.tokens == [1, 2]


def test_busy_and_closed_in_a_callback(context, sessions):
    failures = []

    def progress(done, total):
        for one in sessions[:2]:
            try:
                one.append([1])
            except afmoe.BusyError as failure:
                failures.append(failure)
        sessions[1].close()
    outcomes = context.step([afmoe.StepItem(sessions[0], range(9), progress=progress), (sessions[1], range(9))])
    assert failures and [outcome.n_tokens for outcome in outcomes] == [9, 9]
    assert sessions[1].closed and sessions[0].n_tokens == 9


def test_ctrl_c(context, sessions):
    def progress(done, total):
        os.kill(os.getpid(), signal.SIGINT)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        context.step([afmoe.StepItem(one, range(2000), progress=progress) for one in sessions])
    assert signal.getsignal(signal.SIGINT) is before
    assert sum(one.n_tokens for one in sessions) < 8000
