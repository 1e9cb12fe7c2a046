#!/usr/bin/python3
"""What a program compiled against include/afmoe.h has in it stays as it is: functions with their types, struct members
with offsets, values of constants. public_abi.txt beside this file is the record; a line of it never changes and never
goes away, new ones come behind. Read by bindings/generate/header.py.

test_frozen.py             compare
test_frozen.py --write     add what is new to the record; refuses when a line of it is gone

Environment: AFMOE_SOURCE_ROOT.
"""
import os
import sys
import unittest

try:
    from clang.cindex import CursorKind
except ImportError:
    print('skipped: program python3-clang-14 (not installed)')
    sys.exit(77)

from test_header_form import HEADER, read_header

RECORD = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'public_abi.txt')


def describe(cursor):
    """The lines of one declaration."""
    if cursor.kind == CursorKind.FUNCTION_DECL:
        yield f'function {cursor.spelling}: {cursor.type.spelling}'
    elif cursor.kind == CursorKind.ENUM_DECL:
        for constant in cursor.get_children():
            yield f'constant {constant.spelling} = {constant.enum_value}'
    elif cursor.kind == CursorKind.STRUCT_DECL:
        for member in cursor.get_children():
            offset = cursor.type.get_offset(member.spelling) // 8
            yield f'member {cursor.spelling}.{member.spelling} at {offset}: {member.type.spelling}'
    elif cursor.kind == CursorKind.TYPEDEF_DECL:
        yield f'type {cursor.spelling}: {cursor.underlying_typedef_type.spelling}'


def lines_now():
    return [line for cursor in read_header(HEADER) for line in describe(cursor)
            # The version moves; the library's own is compared with it elsewhere.
            if not line.startswith('constant AFMOE_VERSION_')]


def lines_recorded():
    with open(RECORD, encoding='utf-8') as record:
        return record.read().splitlines()


class Frozen(unittest.TestCase):
    def test_nothing_is_gone(self):
        now = set(lines_now())
        for line in lines_recorded():
            with self.subTest(line=line):
                self.assertIn(line, now)

    def test_everything_is_recorded(self):
        recorded = set(lines_recorded())
        for line in lines_now():
            with self.subTest(line=line):
                self.assertIn(line, recorded, 'run test_frozen.py --write')

    def test_sizes(self):
        """No padding at the end that an old caller could not know of: the last member ends the struct."""
        for cursor in read_header(HEADER):
            members = list(cursor.get_children()) if cursor.kind == CursorKind.STRUCT_DECL else []
            if members:
                with self.subTest(struct=cursor.spelling):
                    end = cursor.type.get_offset(members[-1].spelling) // 8 + members[-1].type.get_size()
                    self.assertEqual(cursor.type.get_size(), end)


def write():
    recorded, now = (lines_recorded() if os.path.exists(RECORD) else []), lines_now()
    gone = [line for line in recorded if line not in now]
    if gone:
        sys.exit('gone from the header: ' + '; '.join(gone))
    with open(RECORD, 'a', encoding='utf-8') as record:
        record.writelines(line + '\n' for line in now if line not in recorded)


if __name__ == '__main__':
    if sys.argv[1:] == ['--write']:
        write()
    else:
        unittest.main()
