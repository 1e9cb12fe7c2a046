"""Which library is loaded, and what is refused."""
import os
import subprocess

import afmoe
import pytest
from conftest import MODEL, python

IMPORT = '''
try:
    import afmoe
except ImportError as error:
    print(type(error).__name__, error)
'''


def fake(folder, body):
    source, library = folder / 'fake.c', folder / 'libfake.so'
    source.write_text(body)
    subprocess.run([os.environ['AFMOE_CC'], '-shared', '-fPIC', '-o', library, source], check=True)
    return str(library)


def refusal(path):
    # A fake has no sanitizer, and the process loads nothing else that has.
    answer = python(IMPORT, AFMOE_LIBRARY=path)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_from_the_environment():
    assert afmoe.library_path == os.environ['AFMOE_LIBRARY']
    assert afmoe.__version__ == '.'.join(map(str, (afmoe._ffi.AFMOE_VERSION_MAJOR, afmoe._ffi.AFMOE_VERSION_MINOR,
                                                   afmoe._ffi.AFMOE_VERSION_PATCH)))


def test_no_such_file(tmp_path):
    text = refusal(str(tmp_path / 'nothing.so'))
    assert text.startswith('AbiError') and 'nothing.so' in text and 'AFMOE_LIBRARY' in text


@pytest.mark.parametrize('number, spelled', [(9008007, '9.8.7'), (0, '0.0.0'), (99000, '0.99.0')])
def test_another_version_names_both(tmp_path, number, spelled):
    text = refusal(fake(tmp_path, f'unsigned afmoe_version(void) {{ return {number}; }}\n'))
    assert text.startswith('AbiError') and spelled in text and afmoe.__version__ in text


def test_a_library_without_a_function(tmp_path):
    packed = sum(int(part) * scale for part, scale in zip(afmoe.__version__.split('.'), (1000000, 1000, 1)))
    text = refusal(fake(tmp_path, f'unsigned afmoe_version(void) {{ return {packed}; }}\n'))
    assert text.startswith('AbiError') and 'lacks a function' in text and 'afmoe_version_string' in text


def test_another_library(tmp_path):
    assert refusal(fake(tmp_path, 'int nothing;\n')).startswith('AbiError')


def test_without_numpy(tmp_path):
    """Text needs no numpy; what does says so."""
    (tmp_path / 'numpy.py').write_text('raise ImportError("hidden")\n')
    answer = python('''
import sys, afmoe
sys.path.insert(0, sys.argv[2])
with afmoe.Model.open(sys.argv[1]) as model, model.session() as session:
    print(len(session.generate("Once upon a time", max_new_tokens=3).tokens))
    try:
        session.logits()
    except ImportError as error:
        print(error)
''', MODEL, str(tmp_path))
    assert answer.stdout == '3\nthis call returns an array and needs numpy: pip install numpy\n', answer.stderr


ENDS = {
    'open handles': '',
    'a reference cycle': 'session.itself = session; model.session = session',
    'an unfinished stream': 'stream = session.stream("Once", max_new_tokens=9); print(next(stream).text, end="")',
    'an exception': 'raise SystemExit(0)',
    'after fork': '''
import os
pid = os.fork()
if pid == 0:
    try:
        session.append([1])
    except afmoe.StateError:
        sys.exit(0)
    sys.exit(1)
assert os.waitpid(pid, 0)[1] == 0''',
}


@pytest.mark.parametrize('end', ENDS)
def test_interpreter_exit(end):
    answer = python(f'''
import sys, afmoe
model = afmoe.Model.open(sys.argv[1])
with open(sys.argv[1], 'rb') as file:
    other = afmoe.Model.open_memory(bytearray(file.read()))
session = model.session(max_tokens=2048)
session.append([1, 2, 3])
decoder, sampler, cancel = model.tokenizer.stream_decoder(), model.sampler(), afmoe.Cancel()
{ENDS[end]}
''', MODEL, PYTHONWARNINGS='ignore')  # Python 3.12 and later warn of fork with threads
    assert (answer.returncode, answer.stderr) == (0, '')


# What three daemon threads do, again and again, when the interpreter ends; all of it calls back.
DAEMONS = {
    'append': 'session.rewind(0), session.append(range(1900))',
    'sync': 'session.rewind(0), session.sync(range(1900), logits=True, positions=[1], progress=lambda *_: None)',
    'generate': 'session.generate([1], max_new_tokens=1900, ignore_eos=True, on_piece=lambda _: None)',
    'stream': '[piece for piece in session.stream(range(1, 1500), max_new_tokens=9, cancel=afmoe.Cancel())]',
    'step': 'session.rewind(0), session.context.step([(session, range(1900))])',
    'embed': 'session.embed(range(1900))',
    'scheduler': """
with session.context.scheduler() as scheduler, session.context.session() as other:
    scheduler.submit(other, range(1800), on_piece=lambda _: None, on_done=lambda _: None)
    scheduler.run()""",
    'open': "afmoe.Model.open(sys.argv[1], load='read', progress=lambda *_: None, log=lambda *_: None).close()",
    'open_memory': """
with afmoe.Model.open_memory(bytearray(data)) as own, own.session() as other:
    other.append(range(1900))""",
}
HELD = '''
import ctypes, os, sys, threading, time
# Keep the process for a while when the interpreter is gone.
libc = ctypes.CDLL(None)
libc.__cxa_atexit(ctypes.cast(libc.usleep, ctypes.c_void_p), ctypes.c_void_p(400000), None)
'''
DAEMON = HELD + '''
import afmoe
with open(sys.argv[1], 'rb') as file:
    data = file.read()
model = afmoe.Model.open_memory(bytearray(data))
body = compile(sys.argv[2], 'body', 'exec')

def run(session):
    while True:
        exec(body, {**globals(), 'session': session})

def parallel(n, task):
    for worker in range(n):
        task(worker)
for options in {}, {'chunk_tokens': 2048}, {'parallel': parallel}:
    session = model.session(max_tokens=2048, n_threads=2, **options)
    threading.Thread(target=run, args=(session,), daemon=True).start()
time.sleep(0.1)
'''


@pytest.mark.parametrize('call', DAEMONS)
def test_daemon_threads_at_exit(call):
    answer = python(DAEMON, MODEL, DAEMONS[call], PYTHONWARNINGS='ignore')
    assert (answer.returncode, answer.stderr) == (0, '')


LAST = HELD + '''
import atexit
last = []
atexit.register(lambda: [function() for function in last])  # behind the end of the package

import afmoe
model = afmoe.Model.open(sys.argv[1])
session = model.session(max_tokens=2048, n_threads=2)
inside = threading.Event()

def thread(function):
    def run():
        try:
            function()
        finally:
            print('left', flush=True)
    made = threading.Thread(target=run, daemon=True)
    made.start()
    return made
'''
LASTS = {
    'a thread that is joined': ('''
def append():
    while True:
        session.rewind(0)
        session.append(range(1900), progress=lambda *_: inside.set())
appending = thread(append)
inside.wait()
last.append(appending.join)
last.append(lambda: print('joined', flush=True))
''', 'left\njoined\n'),
    'a callback that goes on': ('''
def progress(*_):
    inside.set()
    while not session.closed:
        time.sleep(0.001)
    print('called back', flush=True)
appending = thread(lambda: session.append(range(1900), progress=progress))
inside.wait()
last.append(appending.join)
''', 'called back\nleft\n'),
    'a callback that never returns': ('''
def progress(*_):
    inside.set()
    threading.Event().wait()
thread(lambda: session.append(range(1900), progress=progress))
inside.wait()
last.append(lambda: print('went on', flush=True))
''', 'went on\n'),
    'a call that cannot be stopped': ('''
afmoe._borrow.CALL_SECONDS = 0.2

def call():
    with session._borrow:
        inside.set()
        threading.Event().wait()
thread(call)
inside.wait()
last.append(lambda: print('went on', flush=True))
''', 'went on\n'),
    'a flag of the caller': ('''
cancel = afmoe.Cancel()

def append():
    try:
        while True:
            session.rewind(0)
            session.append(range(1900), cancel=cancel, progress=lambda *_: inside.set())
    except afmoe.AfmoeError:
        print('not reached')
appending = thread(append)
inside.wait()
last.append(appending.join)
''', 'left\n'),
    'uses afterwards': ('''
def use(function):
    try:
        function()
    except afmoe.StateError as error:
        print(error, flush=True)
last.append(lambda: use(lambda: session.append([1])))
last.append(lambda: use(lambda: afmoe.Model.open(sys.argv[1])))
last.append(lambda: use(lambda: next(model.tensors())))
last.append(lambda: use(lambda: afmoe.Cancel().set()))
session.append([1])
atexit.register(lambda: print(session.n_tokens, flush=True))
''', '1\nthis Session is closed\nthis Cancel is closed\nthis Model is closed\nthis Cancel is closed\n'),
    'a child': ('''
def append():
    session.append(range(1900), progress=lambda *_: (inside.set(), threading.Event().wait()))
thread(append)
inside.wait()
child = os.fork()
if child == 0:
    sys.exit(0)  # nobody is inside here
print(os.waitpid(child, 0)[1], flush=True)
''', '0\n'),
}


@pytest.mark.parametrize('case', LASTS)
def test_end_of_the_interpreter(case):
    body, expected = LASTS[case]
    answer = python(LAST + body, MODEL, PYTHONWARNINGS='ignore')
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, expected, '')
