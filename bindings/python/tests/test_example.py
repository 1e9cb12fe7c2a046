"""The example and the benchmark run as their readers run them."""
import json
import os
import subprocess
import sys

from conftest import MODEL, NANO, ROOT

PACKAGE = os.path.join(ROOT, 'bindings', 'python')


def run(*arguments, **keywords):
    answer = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=200, **keywords)
    assert answer.returncode == 0, answer.stderr
    return answer.stdout


def test_experts(tmp_path):
    picture = tmp_path / 'load.png'
    out = run(os.path.join(PACKAGE, 'examples', 'experts.py'), MODEL, picture)
    assert 'The capital of France is Paris.' in out
    assert picture.read_bytes().startswith(b'\x89PNG')


def test_overhead():
    lines = [json.loads(line) for line in
             run(os.path.join(PACKAGE, 'benchmarks', 'overhead.py'), NANO, '20', '2').splitlines()]
    assert [line['way'] for line in lines] == ['c_loop', 'python_generate', 'python_generate_on_piece',
                                               'python_stream']
