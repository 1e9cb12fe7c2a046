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
    'a call in a daemon thread': '''
import threading, time
threading.Thread(target=lambda: session.append(list(range(2000))), daemon=True).start()
time.sleep(0.05)''',
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
