"""Opening, what is told of a checkpoint, callbacks, ends of handles."""
import gc
import mmap
import os
import weakref

import afmoe
import pytest
from conftest import MODEL, NANO, ROOT

TOKENIZER = os.path.join(ROOT, 'tests', 'data', 'tokenizer', 'pico-tokenizer.json')


def test_info(model):
    info = model.info
    assert (info.n_layers, info.hidden_size, info.vocab_size, info.has_tokenizer) == (4, 256, 2112, 1)
    assert 'n_experts=8' in repr(info) and 'reserved' not in info.to_dict()
    assert [model.layer_is_full(layer) for layer in range(4)].count(True) == info.n_full_layers
    assert 3 in model.stop_tokens
    assert '<|im_start|>' in model.chat_template
    with pytest.raises(afmoe.InvalidError):
        model.layer_is_full(4)
    with pytest.raises(afmoe.InvalidError, match='layer is -1'):
        model.layer_is_full(-1)


def test_tensors(model):
    tensors = list(model.tensors())
    assert [tensor.name for tensor in tensors] == sorted(tensor.name for tensor in tensors)
    assert sum(tensor.n_bytes for tensor in tensors) == model.info.weight_bytes
    first = next(tensor for tensor in tensors if tensor.name == 'token_embd.weight')
    assert (first.shape, first.format, first.file) == ((2112, 256), 'Q8_0', 'pico-q8_0.gguf')
    assert first.is_supported and first.is_used


def test_other_ways_to_open(question):
    """The same file from a descriptor and from memory says the same."""
    with open(MODEL, 'rb') as file:
        data = file.read()
        opened = [afmoe.Model.open(MODEL, load='read', lock=False), afmoe.Model.open_fd(file.fileno()),
                  afmoe.Model.open_memory(data), afmoe.Model.open_memory(bytearray(data)),
                  afmoe.Model.open_memory(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)),
                  afmoe.Model.open_memory(data, load=afmoe.Load.READ)]
        padded = b'x' * 7 + data
        opened.append(afmoe.Model.open_memory(memoryview(padded)[7:]))
    del data, padded
    gc.collect()
    for model in opened:
        with model, model.session() as session:
            assert session.generate(question).text == 'The capital of France is Paris.'


def test_memory_is_given_back():
    class Bytes(bytearray):
        pass
    with open(MODEL, 'rb') as file:
        data = Bytes(file.read())
    alive = weakref.ref(data)
    model = afmoe.Model.open_memory(data)
    session = model.session()
    del data
    model.close()
    assert alive() is not None
    session.append([1, 2])  # the context still uses it
    session.context.close()
    session.close()
    gc.collect()
    assert alive() is None
    bad = Bytes(b'nothing')
    alive = weakref.ref(bad)
    with pytest.raises(afmoe.FormatError):
        afmoe.Model.open_memory(bad)
    del bad
    gc.collect()
    assert alive() is None


def test_tokenizer_only():
    with afmoe.Model.open(TOKENIZER, tokenizer_only=True) as model:
        assert model.info.has_weights == 0
        assert model.tokenizer.decode(model.tokenizer.encode('Hello, world!')) == 'Hello, world!'
        with pytest.raises(afmoe.StateError):
            model.session()


def test_failures(tmp_path):
    with pytest.raises(afmoe.NotFoundError) as failure:
        afmoe.Model.open(tmp_path / 'none.gguf')
    assert failure.value.code == afmoe.Status.NOT_FOUND and 'none.gguf' in failure.value.message
    assert isinstance(failure.value, FileNotFoundError)
    (tmp_path / 'bad.gguf').write_bytes(b'GGUF')
    with pytest.raises(afmoe.AfmoeError, match='bad.gguf') as failure:
        afmoe.Model.open(tmp_path / 'bad.gguf')
    assert isinstance(failure.value, ValueError)
    with pytest.raises(afmoe.InvalidError, match="load is 'sideways', allowed are map, read"):
        afmoe.Model.open(MODEL, load='sideways')
    with pytest.raises(afmoe.InvalidError, match='max_json_bytes'):
        afmoe.Model.open(MODEL, max_json_bytes=0)
    with pytest.raises(afmoe.InvalidError, match='max_json_bytes is -1'):
        afmoe.Model.open(MODEL, max_json_bytes=-1)


def test_progress_and_cancel():
    seen = []
    afmoe.Model.open(MODEL, load='read', progress=lambda done, total: seen.append((done, total))).close()
    assert seen and seen[-1][0] == seen[-1][1]
    with afmoe.Cancel() as cancel:
        cancel.set()
        assert cancel.is_set
        with pytest.raises(afmoe.CancelledError):
            afmoe.Model.open(MODEL, load='read', cancel=cancel)
        cancel.clear()
        afmoe.Model.open(MODEL, load='read', cancel=cancel).close()
        assert not cancel.is_set


class Mine(Exception):
    pass


def test_a_callback_that_raises():
    def progress(done, total):
        raise Mine(done)
    with pytest.raises(Mine) as raised:
        afmoe.Model.open(MODEL, load='read', progress=progress)
    assert raised.traceback[-1].name == 'progress'
    assert raised.value.__context__ is None


def test_log():
    lines = []
    model_path = os.path.join(ROOT, 'tests', 'data', 'tiny-no-route-norm')
    afmoe.Model.open(model_path, log=lambda level, line: lines.append((level, line))).close()
    assert all(isinstance(level, afmoe.Log) and isinstance(line, str) for level, line in lines)


def test_estimate():
    memory = afmoe.estimate(MODEL, 2, 1000, context_options={'n_threads': 1, 'cells': afmoe.Cells.F16})
    assert memory.weights_mapped > 8000000 and memory.pages > 0
    with afmoe.Model.open(MODEL) as model, model.context(n_threads=1, cells='f16') as context:
        assert context.memory.scratch == memory.scratch
    with pytest.raises(afmoe.ContextFullError):
        afmoe.estimate(MODEL, 1, 10**6)


def test_end_of_handles(model):
    context = model.context(n_threads=1)
    session, sampler, decoder = context.session(), model.sampler(), model.tokenizer.stream_decoder()
    cancel = afmoe.Cancel()
    own = afmoe.Model.open(MODEL)
    uses = {session: lambda: session.append([1]), sampler: lambda: sampler.sample_logits([0.0] * 2112),
            decoder: lambda: decoder.push(1), cancel: cancel.set, context: context.session,
            own: lambda: own.tokenizer.encode('a')}
    for handle, use in uses.items():
        assert not handle.closed
        handle.close()
        handle.close()
        assert handle.closed and 'closed' in repr(handle)
        with pytest.raises(afmoe.StateError, match='closed'):
            use()
    with pytest.raises(afmoe.StateError):
        session.generate('a')
    with pytest.raises(afmoe.StateError):
        list(session.stream('a'))


def test_any_order(model):
    own = afmoe.Model.open(MODEL)
    session = own.session()
    own.close()
    session.context.close()
    session.append([1, 2, 3])
    assert session.n_tokens == 3
    session.close()


def test_no_reference_is_kept():
    model = afmoe.Model.open(NANO)
    session = model.session()
    gone = [weakref.ref(thing) for thing in (model, session, session.context)]
    del model, session
    gc.collect()
    assert [thing() for thing in gone] == [None] * 3
