"""The generated layer against the compiler and the library, and the package against the layer."""
import ctypes
import glob
import inspect
import os
import re
import subprocess

import afmoe
import pytest
from afmoe import _ffi, errors
from afmoe._library import lib
from afmoe._struct import Struct
from conftest import MODEL, ROOT

STRUCTS = {name: kind for name, kind in vars(_ffi).items()
           if isinstance(kind, type) and issubclass(kind, Struct) and kind is not Struct}
# Functions that the package does without, and why.
NOT_USED = {
    'afmoe_model_retain': 'objects of Python are counted by Python; the library counts its own references',
    'afmoe_cancel_retain': 'the same',
    'afmoe_scheduler_run': 'steps made one by one, so that signals are seen between them',
    'afmoe_error_init': 'the package sets `size` itself, the one thing a caller must set',
}


def test_layout(tmp_path):
    """Sizes, offsets and constants as a C compiler sees them."""
    source, program = tmp_path / 'layout.c', tmp_path / 'layout'
    lines = [f'printf("{name} %zu\\n", sizeof({name}));' for name in STRUCTS]
    lines += [f'printf("{name}.{member} %zu %zu\\n", offsetof({name}, {member}), sizeof((({name} *)0)->{member}));'
              for name, kind in STRUCTS.items() for member, *_ in kind._fields_]
    lines += [f'printf("{name} %d\\n", (int){name});' for name in vars(_ffi) if name.startswith('AFMOE_')]
    source.write_text('#include <afmoe.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n' +
                      '\n'.join(lines) + '\nreturn 0; }\n')
    subprocess.run([os.environ['AFMOE_CC'], '-std=c11', '-I', os.path.join(ROOT, 'include'), source, '-o', program],
                   check=True)
    told = dict(line.split(' ', 1) for line in
                subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines())
    assert len(told) > 200
    for name, numbers in told.items():
        if '.' in name:
            struct, member = name.split('.')
            field = getattr(STRUCTS[struct], member)
            assert numbers == f'{field.offset} {field.size}', name
        elif name in STRUCTS:
            assert int(numbers) == ctypes.sizeof(STRUCTS[name]), name
        else:
            assert int(numbers) == getattr(_ffi, name), name


def larger(kind, fill):
    """The struct with eight bytes behind it, initialised, and those bytes."""
    class Larger(ctypes.Structure):
        _fields_ = [('known', kind), ('tail', ctypes.c_ubyte * 8)]
    made = Larger()
    getattr(lib, f'{kind.__name__}_init')(made.known, ctypes.sizeof(made))
    made.tail[:] = [fill] * 8
    return made


def scheduler_call(session, function, *arguments):
    with session.context.scheduler() as scheduler:
        return function(scheduler._borrow.pointer, *arguments)


OPTIONS = {
    'afmoe_model_options': lambda given, session, error: lib.afmoe_model_open(
        ctypes.POINTER(_ffi.afmoe_model)(), MODEL.encode(), given, error),
    'afmoe_context_options': lambda given, session, error: lib.afmoe_context_create(
        ctypes.POINTER(_ffi.afmoe_context)(), session.context.model._borrow.pointer, given, error),
    'afmoe_tokenize_options': lambda given, session, error: lib.afmoe_tokenize(
        session.context.model._borrow.pointer, b'a', 1, given, None, 0, None, error),
    'afmoe_chat_options': lambda given, session, error: lib.afmoe_chat_tokenize(
        session.context.model._borrow.pointer, (ctypes.c_char_p * 1)(b'a'), (ctypes.c_char_p * 1)(b'a'), 1, given, None,
        0, None, error),
    'afmoe_append_options': lambda given, session, error: lib.afmoe_session_append(
        session._borrow.pointer, None, 0, given, None, error),
    'afmoe_sampler_options': lambda given, session, error: lib.afmoe_sampler_create(
        ctypes.POINTER(_ffi.afmoe_sampler)(), session.context.model._borrow.pointer, given, error),
    'afmoe_generate_options': lambda given, session, error: lib.afmoe_generate(
        session._borrow.pointer, None, given, None, error),
    'afmoe_step_options': lambda given, session, error: lib.afmoe_context_step(
        session.context._borrow.pointer, None, 0, given, error),
    'afmoe_step_item': lambda given, session, error: lib.afmoe_context_step(
        session.context._borrow.pointer, given, 1, None, error),
    'afmoe_scheduler_options': lambda given, session, error: lib.afmoe_scheduler_create(
        ctypes.POINTER(_ffi.afmoe_scheduler)(), session.context._borrow.pointer, given, error),
    'afmoe_request': lambda given, session, error: scheduler_call(session, lib.afmoe_scheduler_submit, given, error),
}


@pytest.mark.parametrize('name', OPTIONS)
def test_size_of_options_in_the_library(name, session):
    """It tells how much of a larger struct it knows."""
    error = _ffi.afmoe_error(ctypes.sizeof(_ffi.afmoe_error))
    status = OPTIONS[name](larger(STRUCTS[name], 1).known, session, error)
    assert status == _ffi.AFMOE_UNSUPPORTED
    assert f'knows only {ctypes.sizeof(STRUCTS[name])} bytes' in error.message.decode()


def next_piece(out, session):
    generation = ctypes.POINTER(_ffi.afmoe_generation)()
    session.append([1])
    assert lib.afmoe_generation_create(generation, session._borrow.pointer, None, None, None) == 0
    status = lib.afmoe_generation_next(generation, out, None)
    lib.afmoe_generation_free(generation)
    return status


RESULTS = {
    'afmoe_model_info': lambda out, session: lib.afmoe_model_get_info(session.context.model._borrow.pointer, out, None),
    'afmoe_tensor_info': lambda out, session: lib.afmoe_model_get_tensor(session.context.model._borrow.pointer, 0, out,
                                                                         None),
    'afmoe_context_info': lambda out, session: lib.afmoe_context_get_info(session.context._borrow.pointer, out, None),
    'afmoe_memory': lambda out, session: lib.afmoe_context_get_memory(session.context._borrow.pointer, out, None),
    'afmoe_append_result': lambda out, session: lib.afmoe_session_append(
        session._borrow.pointer, ctypes.c_int32(1), 1, None, out, None),
    'afmoe_session_stats': lambda out, session: lib.afmoe_session_get_stats(session._borrow.pointer, out, None),
    'afmoe_generate_result': lambda out, session: (
        session.append([1]), lib.afmoe_generate(session._borrow.pointer, None, None, out, None))[1],
    'afmoe_piece': next_piece,
    'afmoe_scheduler_info': lambda out, session: scheduler_call(session, lib.afmoe_scheduler_get_info, out, None),
}


@pytest.mark.parametrize('name', RESULTS)
def test_size_of_results_in_the_library(name, session):
    """It writes the whole struct and not a byte more."""
    kind = STRUCTS[name]
    out = larger(kind, 0xAA)
    last = kind._fields_[-1][0]
    start = getattr(kind, last).offset
    ctypes.memset(ctypes.addressof(out) + 4, 0xAA, ctypes.sizeof(kind) - 4)
    assert RESULTS[name](out.known, session) >= 0
    assert bytes(out.tail) == b'\xaa' * 8
    assert bytes(out.known)[start:] != b'\xaa' * (ctypes.sizeof(kind) - start)


def test_every_struct_is_measured():
    assert set(OPTIONS) | set(RESULTS) | {'afmoe_error'} == set(STRUCTS)


def test_every_function_is_used():
    package = os.path.dirname(afmoe.__file__)
    text = ''
    for path in glob.glob(os.path.join(package, '*.py')):
        if os.path.basename(path) != '_ffi.py':
            with open(path, encoding='utf-8') as file:
                text += file.read()
    used = set(re.findall(r'\b(?:_?lib|library)\.(afmoe_\w+)', text))
    # make() calls the init of the struct it is given; results get only their size.
    inits = {f'{name}_init' for name in STRUCTS if re.search(rf'_ffi\.{name}\b', text)} - {'afmoe_error_init'}
    assert set(_ffi.SIGNATURES) - used - inits == set(NOT_USED)
    assert len(NOT_USED) <= 5


# Where the members of a struct of options are keywords, and the members that come from another keyword.
KEYWORDS = {
    'afmoe_model_options': (afmoe.Model.open, {'log_data', 'progress_data'}),
    'afmoe_context_options': (afmoe.Context, {'log_data', 'n_cpus', 'parallel_data'}),
    'afmoe_sampler_options': (afmoe.Sampler, {'bias_tokens', 'bias_values', 'n_bias'}),
    'afmoe_tokenize_options': (afmoe.Tokenizer.tokenize, {'n_special_ranges'}),
}


@pytest.mark.parametrize('name', KEYWORDS)
def test_every_option_is_a_keyword(name):
    function, others = KEYWORDS[name]
    members = {member for member, *_ in STRUCTS[name]._fields_ if member != 'size' and 'reserved' not in member}
    assert members - set(inspect.signature(function).parameters) == others


def test_every_failure_has_a_class():
    assert set(errors.CLASSES) == {status for status in afmoe.Status if status < 0}
    for status, kind in errors.CLASSES.items():
        assert kind.__name__.upper() == afmoe.Status(status).name.replace('_', '') + 'ERROR'
    unknown = errors.error_of(-99, 'of a later version')
    assert (type(unknown), unknown.code) == (afmoe.AfmoeError, -99)


def test_errors_can_be_pickled():
    import pickle
    for status, kind in errors.CLASSES.items():
        back = pickle.loads(pickle.dumps(kind(status, 'a text')))
        assert (type(back), back.code, back.message, str(back)) == (kind, status, 'a text', 'a text')


def test_constants_with_names():
    assert afmoe.Cells.F16 == _ffi.AFMOE_CELLS_F16
    assert _ffi.Finish.STOP_STRING == _ffi.AFMOE_FINISH_STOP_STRING
    assert afmoe.status_name(-1) == 'AFMOE_INVALID' and afmoe.status_name(-99) == 'AFMOE_UNKNOWN'
    assert afmoe.cpu_level_name(afmoe.Cpu.C) == 'c' and afmoe.cpu_level() >= afmoe.Cpu.C
    assert 'c' in afmoe.build_features().split()


def test_comments_came_along():
    assert 'out of memory' in open(_ffi.__file__, encoding='utf-8').read()
    assert 'rope_theta' in _ffi.afmoe_model_info.__annotations__
    assert _ffi.afmoe_append_options.__doc__.startswith('How a call that computes runs')
