"""The tables of docs/security.md: every test named there exists, and every count of cases is that of the source.

A row `| inputs | answer | [name](../tests/...c): a, b |` names tests or tables of a file; a row
`| [name](../tests/...c) | table | 12 |` says how many cases a table has."""
import os
import re
import sys

ROOT = os.environ['AFMOE_SOURCE_ROOT']
LEAST = 150
LINK = re.compile(r'\[[^\]]*\]\(\.\./(tests/[^)]+)\)')


def read(path):
    with open(os.path.join(ROOT, path), encoding='utf-8') as file:
        return file.read()


def strip(source):
    """Without comments; strings and characters as ""."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', re.S)
    return token.sub(lambda m: '""' if m.group()[0] in '"\'' else '', source)


def count_items(text):
    """Items of a list in braces, of which the first is left out of `text`."""
    depth, n, has_item = 1, 0, False
    for char in text:
        if char in '{(':
            depth += 1
        elif char in '})':
            depth -= 1
            if depth == 0:
                break
        if depth == 1 and char == ',':
            n, has_item = n + 1, False
        elif not char.isspace():
            has_item = True
    return n + has_item


def count_rows(path, table):
    """Initialisers of all arrays of structs named `table`."""
    source = strip(read(path))
    starts = re.finditer(r'(?:\}|\bstruct\s+\w+)\s*' + table + r'\[\]\s*=\s*\{', source)
    return sum(count_items(source[start.end():]) for start in starts)


def main():
    faults, n_tests, n_cases, n_tables = [], 0, 0, 0
    for number, line in enumerate(read('docs/security.md').splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip('|').split('|')]
        where = f'docs/security.md:{number}'
        if not line.startswith('|') or not LINK.search(line):
            continue
        counted = LINK.fullmatch(cells[0]) and len(cells) == 3 and cells[2].isdigit()
        if counted:
            n = count_rows(LINK.fullmatch(cells[0]).group(1), cells[1])
            n_tables, n_cases = n_tables + 1, n_cases + int(cells[2])
            if n != int(cells[2]):
                faults.append(f'{where}: {cells[1]} has {n} cases, not {cells[2]}')
            continue
        for part in cells[-1].split(';'):
            link = LINK.search(part)
            names = re.findall(r'`([a-z0-9_]+)`', part)
            if not link or not names:
                faults.append(f'{where}: no link with names in "{part.strip()}"')
                continue
            source = strip(read(link.group(1)))
            for name in names:
                n_tests += 1
                if not re.search(r'\b' + name + r'\b', source):
                    faults.append(f'{where}: {link.group(1)} has no {name}')
    if n_cases < LEAST:
        faults.append(f'{n_cases} cases in tables, at least {LEAST} are promised')
    for fault in faults:
        print(fault)
    print(f'{n_cases} cases in {n_tables} tables, {n_tests} tests named')
    return 1 if faults or n_tests == 0 else 0


if __name__ == '__main__':
    sys.exit(main())
