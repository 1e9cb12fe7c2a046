#!/usr/bin/python3
"""What scripts/check asks about the tests of one build folder.

test_results.py list BUILD_DIR [ONLY [BUT]]     names of the tests of which the suite or name matches ONLY and none
                                                matches BUT, one a line
test_results.py targets BUILD_DIR [ONLY [BUT]]  what ninja must build for them, one a line
test_results.py count BUILD_DIR N_TESTS         after `meson test`: "PASSED FAILED SKIPPED" on one line; what failed
                                                goes to stderr with its output

A test program is as many tests as it reports itself: cmocka prints a line per case, Python's unittest, pytest and cargo
test their numbers; any other program is one. A program that ends badly is at least one failure, whatever it printed
before.

A line "skipped: NAME (reason)" is a test that did not take place; to skip without such a line is a failure. Four kinds
are told apart:
    skipped: level X (...)      a failure when /proc/cpuinfo says the CPU has the level, else a skip
    skipped: program X (...)    a failure: scripts/check installs all programs
    skipped: sanitizer X (...)  a skip in a build with a sanitizer, which has the allocator or the address space; else
                                a failure
    anything else               the optional reference folder is missing: a failure when it is there, else a skip
"""
import json
import os
import re
import subprocess
import sys

LEVELS = {
    'avx2': {'avx2', 'fma', 'f16c'},
    'avxvnni': {'avx2', 'fma', 'f16c', 'avx_vnni'},
    'avx512': {'avx512f', 'avx512bw', 'avx512vl', 'avx512dq'},
    'avx512icl': {'avx512f', 'avx512bw', 'avx512vl', 'avx512dq', 'avx512cd', 'avx512_vnni', 'avx512vbmi',
                  'avx512_vbmi2', 'avx512ifma', 'avx512_bitalg', 'avx512_vpopcntdq', 'gfni', 'vaes', 'vpclmulqdq'},
}
LEVELS['avx512bf16'] = LEVELS['avx512icl'] | {'avx512_bf16'}


def cpu_flags():
    with open('/proc/cpuinfo', encoding='ascii', errors='replace') as info:
        for line in info:
            if line.startswith('flags'):
                return set(line.split(':', 1)[1].split())
    return set()


def is_sanitized(build_dir):
    options = {option['name']: option['value'] for option in introspect(build_dir, '--buildoptions')}
    return options['b_sanitize'] != 'none'


def is_excused(skip, flags, has_shared, sanitized):
    """Whether a test may be skipped on this machine."""
    kind, _, rest = skip.partition(' ')
    if kind == 'program':
        return False
    if kind == 'sanitizer':
        return sanitized
    if kind == 'level':
        level = rest.split(' ')[0]
        return level != 'c' and not LEVELS.get(level, set()) <= flags
    return not has_shared


def introspect(build_dir, what):
    answer = subprocess.run(['/usr/bin/meson', 'introspect', build_dir, what], check=True, capture_output=True)
    return json.loads(answer.stdout)


def choose(build_dir, only='', but=''):
    for test in introspect(build_dir, '--tests'):
        # Suites come as "project:suite".
        words = [test['name']] + [suite.rpartition(':')[2] for suite in test['suite']]
        if any(re.search(only, word) for word in words) and not (but and any(re.search(but, word) for word in words)):
            yield test


def list_tests(build_dir, *expressions):
    for test in choose(build_dir, *expressions):
        print(test['name'])


def list_targets(build_dir, *expressions):
    files = {target['id']: target['filename'] for target in introspect(build_dir, '--targets')}
    wanted = {name for test in choose(build_dir, *expressions) for target in test['depends'] for name in files[target]}
    for name in sorted(wanted):
        print(os.path.relpath(name, os.path.abspath(build_dir)))


def count_one(test, flags, has_shared, sanitized):
    """(passed, failed, skipped, reasons) of one line of meson's log."""
    out = test.get('stdout') or ''
    err = test.get('stderr') or ''
    text = out + '\n' + err
    passed = len(re.findall(r'^\[       OK \] ', text, re.M))
    failed = len(set(re.findall(r'^\[  FAILED  \] (\S+)$', text, re.M)))
    skipped = len(set(re.findall(r'^\[  SKIPPED \] (\S+)$', text, re.M)))
    ran = re.search(r'^Ran (\d+) tests? in ', text, re.M)
    if ran:
        # unittest: "FAILED (failures=1, errors=2, skipped=3)"
        kinds = dict(re.findall(r'(failures|errors|skipped)=(\d+)', text[ran.end():]))
        failed += int(kinds.get('failures', 0)) + int(kinds.get('errors', 0))
        skipped += int(kinds.get('skipped', 0))
        passed += int(ran.group(1)) - failed - skipped
    # pytest: "1 failed, 2 passed, 3 skipped, 1 error in 0.12s"
    for line in re.findall(r'^(?:\d+ [a-z]+(?:, )?)+ in [\d.]+s', text, re.M):
        kinds = {kind.rstrip('s'): int(n) for n, kind in re.findall(r'(\d+) ([a-z]+)', line)}
        passed += kinds.get('passed', 0)
        failed += kinds.get('failed', 0) + kinds.get('error', 0)
        skipped += kinds.get('skipped', 0)
    for good, bad in re.findall(r'^test result: \w+\. (\d+) passed; (\d+) failed;', text, re.M):
        passed += int(good)
        failed += int(bad)

    reasons = []
    lines = set(re.findall(r'\bskipped: (.+)', text))
    unexcused = {skip for skip in lines if not is_excused(skip, flags, has_shared, sanitized)}
    reasons += [f'skipped without need: {skip}' for skip in sorted(unexcused)]
    if (skipped or test['result'] == 'SKIP') and not lines:
        unexcused = {'no reason'}
        reasons.append('skipped without a line that says why')

    result = test['result']
    if result == 'OK':
        if passed + failed + len(lines) == 0:
            passed = 1
    elif result != 'SKIP':
        reasons.append(f'{result}, exit status {test.get("returncode")}')
        failed = max(failed, 1)
    if failed and not reasons:
        reasons.append('a case failed, but the program says it passed')
    return passed, failed + len(unexcused), len(lines - unexcused), reasons


def count(build_dir, n_tests):
    flags = cpu_flags()
    has_shared = os.path.isdir(os.environ.get('AFMOE_SHARED') or '../shared')
    sanitized = is_sanitized(build_dir)
    totals = [0, 0, 0]
    n_seen = 0
    with open(os.path.join(build_dir, 'meson-logs', 'testlog.json'), encoding='utf-8', errors='replace') as log:
        for line in log:
            test = json.loads(line)
            n_seen += 1
            *counts, reasons = count_one(test, flags, has_shared, sanitized)
            totals = [total + n for total, n in zip(totals, counts)]
            if reasons:
                print(f'--- {test["name"]}: {"; ".join(reasons)}', file=sys.stderr)
                for stream in ('stdout', 'stderr'):
                    tail = (test.get(stream) or '').splitlines()[-60:]
                    print(*tail, sep='\n', file=sys.stderr)
    if n_seen != n_tests:
        print(f'--- {n_seen} of {n_tests} test programs reported', file=sys.stderr)
        totals[1] += max(1, n_tests - n_seen)
    print(*totals)


if __name__ == '__main__':
    if sys.argv[1] == 'list':
        list_tests(*sys.argv[2:])
    elif sys.argv[1] == 'targets':
        list_targets(*sys.argv[2:])
    else:
        count(sys.argv[2], int(sys.argv[3]))
