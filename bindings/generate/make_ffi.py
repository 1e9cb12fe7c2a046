#!/usr/bin/python3
"""Write the ctypes layer of the Python package from include/afmoe.h: every constant, struct, callback and function with
its types and its comment.

make_ffi.py            write bindings/python/afmoe/_ffi.py
make_ffi.py --check    exit 1 when that file is not what would be written
"""
import os
import sys
import textwrap

from clang.cindex import CursorKind, TypeKind

from header import (comment_of, comments_inside, is_array, is_callback, is_number, is_struct, parameters_of,
                    read_header)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HEADER = os.path.join(ROOT, 'include', 'afmoe.h')
TARGET = os.path.join(ROOT, 'bindings', 'python', 'afmoe', '_ffi.py')

TOP = '''\
"""The C interface for ctypes, name by name. Written by bindings/generate/make_ffi.py from include/afmoe.h: change
that and run it again.

Text that comes out with a length is a pointer to c_char, for it has no NUL at its end; text that goes in is bytes.
"""
from __future__ import annotations

import ctypes
import enum
from typing import Any, Callable, Dict, Final, Optional, Tuple

from ._struct import Struct'''
C_TYPES = {'int32_t': 'ctypes.c_int32', 'uint32_t': 'ctypes.c_uint32', 'uint64_t': 'ctypes.c_uint64'}
# Of the version and the status, whose constants share no further word.
ENUM_NAMES = {'AFMOE_OK': 'Status', 'AFMOE_VERSION_MAJOR': None}


def number(kind):
    kind = kind.get_canonical() if kind.kind == TypeKind.FLOAT else kind
    if kind.kind == TypeKind.FLOAT:
        return 'ctypes.c_float'
    while kind.spelling.replace('const ', '') not in C_TYPES:
        kind = kind.get_declaration().underlying_typedef_type
    return C_TYPES[kind.spelling.replace('const ', '')]


def pointee(kind, text):
    """What ctypes calls the thing that `kind` points to; `text` is what a char in it becomes."""
    to = kind.get_pointee()
    if to.kind == TypeKind.POINTER:
        # const char *const *: texts that go in. const char **: a place for a text.
        return ctype(to, 'ctypes.c_char_p' if to.is_const_qualified() else 'ctypes.POINTER(ctypes.c_char)')
    if is_struct(to):
        return to.get_declaration().spelling
    return number(to)


def ctype(kind, text):
    """`text`: what a pointer to char becomes where it stands."""
    if kind.kind == TypeKind.VOID:
        return 'None'
    if is_callback(kind):
        return kind.get_declaration().spelling
    if is_number(kind):
        return number(kind)
    if is_array(kind):
        element = 'ctypes.c_char' if kind.element_type.kind == TypeKind.CHAR_S else number(kind.element_type)
        return f'{element} * {kind.element_count}'
    to = kind.get_pointee()
    if to.kind == TypeKind.VOID:
        return 'ctypes.c_void_p'
    if to.kind == TypeKind.CHAR_S:
        return text if to.is_const_qualified() else 'ctypes.POINTER(ctypes.c_char)'
    return f'ctypes.POINTER({pointee(kind, text)})'


def python_type(kind):
    """As mypy sees it."""
    if kind.kind == TypeKind.VOID:
        return 'None'
    if is_number(kind):
        return 'float' if number(kind) == 'ctypes.c_float' else 'int'
    if is_array(kind) and kind.element_type.kind == TypeKind.CHAR_S:
        return 'bytes'
    if kind.kind == TypeKind.POINTER and kind.get_pointee().kind == TypeKind.VOID:
        return 'Optional[int]'
    return 'Any'


def fit(text, width):
    """Lines of the text; a paragraph with one that is too long is filled anew."""
    paragraphs = []
    for paragraph in text.split('\n\n'):
        if any(len(line) > width for line in paragraph.split('\n')):
            paragraph = textwrap.fill(' '.join(paragraph.split()), width, break_on_hyphens=False)
        paragraphs.append(paragraph)
    return '\n\n'.join(paragraphs).split('\n')


def doc(text, indent):
    """Lines of a docstring, or none."""
    if not text:
        return []
    pad = ' ' * indent
    # An escape would mean something else in Python.
    prefix = 'r' if '\\' in text else ''
    lines = fit(text, 113 - indent)
    close = '"""' if not lines[-1].endswith('"') else ' """'
    return [f'{pad}{prefix}"""{lines[0]}'] + [pad + line if line else '' for line in lines[1:-1]] + \
        [f'{pad}{lines[-1]}{close}'] if len(lines) > 1 else [f'{pad}{prefix}"""{lines[0]}{close}']


def enum_name(constants):
    """AFMOE_CELLS_F32, AFMOE_CELLS_F16 -> ('Cells', 'AFMOE_CELLS_'); (None, ...) where no class is wanted."""
    if constants[0].spelling in ENUM_NAMES:
        return ENUM_NAMES[constants[0].spelling], 'AFMOE_'
    words = [constant.spelling.split('_')[:-1] for constant in constants]
    common = [at[0] for at in zip(*words) if len(set(at)) == 1]
    if len(constants) < 2 or len(common) < 2:
        return None, ''
    return ''.join(word.capitalize() for word in common[1:]), '_'.join(common) + '_'


def write_enum(cursor):
    constants = list(cursor.get_children())
    comments = comments_inside(cursor)
    for constant in constants:
        yield f'{constant.spelling}: Final = {constant.enum_value}'
        yield from doc(comments.get(constant.spelling), 0)
    name, prefix = enum_name(constants)
    if not name:
        return
    yield ''
    yield ''
    yield f'class {name}(enum.IntEnum):'
    yield from doc(comment_of(cursor) or f'{prefix}*', 4)
    yield ''
    for constant in constants:
        yield f'    {constant.spelling[len(prefix):]} = {constant.spelling}'


def write_struct(cursor):
    members = [child for child in cursor.get_children() if child.kind == CursorKind.FIELD_DECL]
    comments = comments_inside(cursor)
    yield f'class {cursor.spelling}({"Struct" if members else "ctypes.Structure"}):'
    comment = doc(comment_of(cursor) or ('' if members else 'Opaque.'), 4)
    yield from comment
    if not members:
        return
    if comment:
        yield ''
    for member in members:
        yield f'    {member.spelling}: {python_type(member.type)}'
        yield from doc(comments.get(member.spelling), 4)
    yield ''
    yield '    _fields_ = ['
    for member in members:
        yield f"        ('{member.spelling}', {ctype(member.type, 'ctypes.POINTER(ctypes.c_char)')}),"
    yield '    ]'


def write_callback(cursor):
    result = cursor.underlying_typedef_type.get_canonical().get_pointee().get_result()
    named = [child.type for child in cursor.get_children() if child.kind == CursorKind.TYPE_REF]
    types = [ctype(named[0] if named and result.kind != TypeKind.VOID else result, 'ctypes.c_char_p')]
    types += [ctype(parameter.type, 'ctypes.c_char_p') for parameter in parameters_of(cursor)]
    line = f'{cursor.spelling} = ctypes.CFUNCTYPE({", ".join(types)})'
    yield line if len(line) <= 120 else f'{cursor.spelling} = ctypes.CFUNCTYPE(\n    ' + ',\n    '.join(types) + ')'
    yield from doc(comment_of(cursor), 0)


def write_functions(functions):
    yield 'SIGNATURES: Dict[str, Tuple[Any, Tuple[Any, ...]]] = {'
    for function in functions:
        arguments = [ctype(parameter.type, 'ctypes.c_char_p') for parameter in parameters_of(function)]
        yield f"    '{function.spelling}': ({ctype(function.result_type, 'ctypes.c_char_p')}, ("
        yield from (f'        {argument},' for argument in arguments)
        yield '    )),'
    yield '}'
    yield '"""Result and arguments of every function."""'
    yield ''
    yield ''
    yield 'class Functions:'
    yield '    """Every function of the header, bound to a library that was loaded."""'
    yield ''
    yield '    def __init__(self, library: ctypes.CDLL) -> None:'
    yield '        for name, (result, arguments) in SIGNATURES.items():'
    yield '            function = getattr(library, name)'
    yield '            function.restype = result'
    yield '            function.argtypes = arguments'
    yield '            setattr(self, name, function)'
    for function in functions:
        names = ', '.join(parameter.spelling for parameter in parameters_of(function))
        returns = 'bytes' if function.result_type.kind == TypeKind.POINTER else python_type(function.result_type)
        text = f'{function.spelling}({names})'
        comment = comment_of(function)
        yield ''
        yield f'    {function.spelling}: Callable[..., {returns}]'
        yield from doc(text + (f'\n\n{comment}' if comment else ''), 4)


def layer():
    """The whole text of _ffi.py."""
    cursors = read_header(HEADER)
    out, functions, seen = [TOP], [], set()
    for cursor in cursors:
        lines = []
        if cursor.kind == CursorKind.ENUM_DECL:
            lines = list(write_enum(cursor))
        elif cursor.kind == CursorKind.STRUCT_DECL and cursor.spelling not in seen:
            seen.add(cursor.spelling)
            lines = list(write_struct(cursor))
        elif cursor.kind == CursorKind.TYPEDEF_DECL and is_callback(cursor.type):
            lines = list(write_callback(cursor))
        elif cursor.kind == CursorKind.FUNCTION_DECL:
            functions.append(cursor)
        if lines:
            out += ['', '', *lines]
    out += ['', '', *write_functions(functions)]
    return '\n'.join(out) + '\n'


def main():
    text = layer()
    if sys.argv[1:] == ['--check']:
        with open(TARGET, encoding='utf-8') as file:
            if file.read() != text:
                sys.exit(f'{os.path.relpath(TARGET, ROOT)} is not what include/afmoe.h says: run {sys.argv[0]}')
        return
    with open(TARGET, 'w', encoding='utf-8') as file:
        file.write(text)


if __name__ == '__main__':
    main()
