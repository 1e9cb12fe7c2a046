"""Sessions that are forked, saved and loaded go on to the same bits."""
import os
import stat

import afmoe
import pytest
from conftest import MODEL, NANO, python

pytestmark = pytest.mark.skipif('state' not in afmoe.build_features().split(), reason='this build has no state')


def bits(session):
    return session.logits().tobytes()


def test_fork(session, question):
    session.append(question)
    before = bits(session)
    with session.fork() as other:
        assert isinstance(other, afmoe.Session) and other.tokens == question and bits(other) == before
        assert (other.stats.n_prompt_computed, other.context) == (0, session.context)
        other.append([5, 6])
        assert session.tokens == question and bits(session) == before
        session.append([7])
        assert other.tokens == question + [5, 6]
        theirs = bits(other)
        assert bits(session) != theirs
        session.rewind(len(question))
        session.append([5, 6])
        assert bits(session) == theirs


def test_fork_outlives(model, question):
    session = model.session(n_threads=1)
    session.append(question)
    other = session.fork()
    session.close()
    with pytest.raises(afmoe.StateError, match='closed'):
        session.fork()
    assert other.generate().text == 'The capital of France is Paris.'
    other.close()


def test_save_and_load(context, session, question, tmp_path):
    path = tmp_path / 'talk'
    session.append(question)
    session.save(path)
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert path.read_bytes() == session.state()
    assert isinstance(session.state(), bytes)
    expected = bits(session)
    session.append([9])
    further = bits(session)
    with context.session() as other:
        other.append([1, 2, 3])
        other.load(str(path))
        assert other.tokens == question and bits(other) == expected
        assert other.sync(question).n_computed == 0
        other.append([9])
        assert bits(other) == further
        for given in (bytes, bytearray, memoryview, lambda state: memoryview(bytearray(state))):
            other.restore(given(path.read_bytes()))
            assert other.tokens == question and bits(other) == expected


LOAD = f'''
import sys, afmoe
with afmoe.Model.open({MODEL!r}) as model, model.session(n_threads=1) as session:
    session.load(sys.argv[1])
    print(session.generate(None).text, session.stats.n_prompt_computed)
'''


def test_in_another_process(model, question, tmp_path):
    path = tmp_path / 'talk'
    with model.session(n_threads=2) as session:
        session.append(question)
        session.save(path)
    answer = python(LOAD, str(path))
    assert answer.stdout == 'The capital of France is Paris. 0\n', answer.stderr


def test_refused(session, question, tmp_path):
    session.append(question)
    state, before = session.state(), bits(session)
    broken = bytearray(state)
    broken[len(state) // 2] ^= 1
    for wrong, error in ((b'', afmoe.TruncatedError), (state[:-1], afmoe.TruncatedError),
                         (b'x' * len(state), afmoe.FormatError), (broken, afmoe.CorruptError)):
        with pytest.raises(error):
            session.restore(wrong)
        assert session.tokens == question and bits(session) == before
    with afmoe.Model.open(NANO) as nano, nano.session() as other, pytest.raises(afmoe.StateError):
        other.restore(state)
    with pytest.raises(afmoe.NotFoundError):
        session.load(tmp_path / 'nowhere')
    with pytest.raises(afmoe.NotFoundError):
        session.save(tmp_path / 'nowhere' / 'talk')
    with pytest.raises(afmoe.InvalidError):
        session.save(tmp_path)
    with pytest.raises(afmoe.InvalidError, match='zero byte'):
        session.save(f'{tmp_path}/talk\0more')
    assert os.listdir(tmp_path) == []
    with pytest.raises(TypeError):
        session.restore('text')


def test_snapshots_and_prefixes(model):
    tokens = [index * 7 % 1600 for index in range(700)]
    with model.session(n_threads=1, rewind_tokens=0) as session:
        session.append(tokens)
        assert session.rewind(200).n_computed == 200
    with model.context(n_threads=1, rewind_tokens=0, snapshot_tokens=128, snapshot_bytes=2**26,
                       prefix_bytes=2**26) as context:
        with context.session() as session:
            session.append(tokens)
            assert session.rewind(200).n_computed < 128
        assert context.memory.prefixes > 0
        with context.session() as session:
            assert session.append(tokens).n_reused > 0


def test_prefixes_on_disk(model, tmp_path):
    tokens = [index * 7 % 1600 for index in range(300)]
    folder = tmp_path / 'prefixes'
    for n_reused in 0, 299:
        with model.context(n_threads=1, prefix_folder=folder, prefix_folder_bytes=2**26) as context:
            with context.session() as session:
                assert session.append(tokens).n_reused == n_reused
            info = context.info
            assert (info.n_prefix_files_read, info.n_prefix_files_failed) == (n_reused > 0, 0)
    assert len(os.listdir(folder)) == 1
    folder.chmod(0o755)
    with pytest.raises(afmoe.InvalidError, match='0755'):
        model.context(n_threads=1, prefix_folder=str(folder))
    with pytest.raises(afmoe.NotFoundError):
        model.context(n_threads=1, prefix_folder=tmp_path / 'no' / 'where')
    with pytest.raises(afmoe.InvalidError, match='zero byte'):
        model.context(n_threads=1, prefix_folder='a\0b')
