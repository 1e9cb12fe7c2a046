"""What the tests of the package share."""
import json
import os
import subprocess
import sys

import afmoe
import pytest

ROOT = os.environ['AFMOE_SOURCE_ROOT']
MODEL = os.path.join(ROOT, 'models', 'pico-q8_0.gguf')
NANO = os.path.join(ROOT, 'tests', 'data', 'nano')
SAMPLES = os.path.join(ROOT, 'models', 'samples-q8_0.jsonl')
PARIS = [{'role': 'user', 'content': 'What is the capital of France?'}]


@pytest.fixture(scope='session')
def model():
    with afmoe.Model.open(MODEL) as opened:
        yield opened


@pytest.fixture(scope='session')
def context(model):
    with model.context(n_threads=2, precision='exact') as made:
        yield made


@pytest.fixture
def session(context):
    with context.session() as made:
        yield made


@pytest.fixture(scope='session')
def question(model):
    return model.tokenizer.apply_chat_template(PARIS, add_generation_prompt=True)


def samples():
    with open(SAMPLES, encoding='utf-8') as file:
        return [json.loads(line) for line in file]


def python(program, *arguments, **environment):
    """Run a program in a process of its own."""
    return subprocess.run([sys.executable, '-c', program, *arguments], capture_output=True, text=True, timeout=120,
                          env={**os.environ, **environment})
