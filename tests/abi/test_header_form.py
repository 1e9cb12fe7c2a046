#!/usr/bin/python3
"""include/afmoe.h holds only what other languages can read: functions, integer constants, plain structs, opaque
structs, integer types and function pointers. Read by bindings/generate/header.py.

Environment: AFMOE_SOURCE_ROOT.
"""
import os
import sys
import unittest

try:
    from clang.cindex import CursorKind, TypeKind
except ImportError:
    print('skipped: program python3-clang-14 (not installed)')
    sys.exit(77)

ROOT = os.environ['AFMOE_SOURCE_ROOT']
HEADER = os.path.join(ROOT, 'include', 'afmoe.h')
sys.path.insert(0, os.path.join(ROOT, 'bindings', 'generate'))
from header import INTEGERS, is_array, is_callback, is_number, is_pointer, parameters_of, read_header

# Handed to callbacks only: nobody but the library makes one.
NOT_MADE_BY_CALLERS = {'afmoe_piece'}
# Functions that say all by their names: they come in pairs, and the header's rules describe them.
PAIRED = ('_init', '_free', '_retain')


class Form(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cursors = read_header(HEADER)
        cls.functions = [c for c in cls.cursors if c.kind == CursorKind.FUNCTION_DECL]
        cls.typedefs = [c for c in cls.cursors if c.kind == CursorKind.TYPEDEF_DECL]
        cls.structs = [c for c in cls.cursors if c.kind == CursorKind.STRUCT_DECL]
        cls.plain = [c for c in cls.structs if c.is_definition()]
        cls.enums = [c for c in cls.cursors if c.kind == CursorKind.ENUM_DECL]

    def check_signature(self, name, result, parameters):
        with self.subTest(name=name, part='result'):
            self.assertTrue(result.kind == TypeKind.VOID or is_number(result) or is_pointer(result), result.spelling)
        for parameter in parameters:
            with self.subTest(name=name, part=parameter.spelling):
                self.assertTrue(is_number(parameter) or is_pointer(parameter) or is_callback(parameter))

    def test_something_was_read(self):
        self.assertGreater(len(self.functions), 40)
        self.assertGreater(len(self.plain), 10)
        self.assertGreater(len(self.enums), 5)

    def test_only_known_kinds(self):
        known = {CursorKind.FUNCTION_DECL, CursorKind.TYPEDEF_DECL, CursorKind.STRUCT_DECL, CursorKind.ENUM_DECL,
                 CursorKind.MACRO_DEFINITION, CursorKind.MACRO_INSTANTIATION, CursorKind.INCLUSION_DIRECTIVE}
        for cursor in self.cursors:
            with self.subTest(line=cursor.location.line):
                self.assertIn(cursor.kind, known, cursor.spelling)

    def test_names(self):
        for cursor in self.functions + self.typedefs + self.structs:
            with self.subTest(line=cursor.location.line):
                self.assertRegex(cursor.spelling, r'^afmoe_[a-z0-9]+(_[a-z0-9]+)*$')
        for enum in self.enums:
            for constant in enum.get_children():
                with self.subTest(line=constant.location.line):
                    self.assertRegex(constant.spelling, r'^AFMOE_[A-Z0-9]+(_[A-Z0-9]+)*$')

    def test_macros(self):
        """The guard and the export mark: no macro carries meaning."""
        macros = {c.spelling for c in self.cursors if c.kind == CursorKind.MACRO_DEFINITION}
        self.assertEqual(macros, {'AFMOE_H', 'AFMOE_API'})

    def test_includes(self):
        includes = {c.spelling for c in self.cursors if c.kind == CursorKind.INCLUSION_DIRECTIVE}
        self.assertEqual(includes, {'stdint.h'})

    def test_enums_have_no_type(self):
        for enum in self.enums:
            with self.subTest(line=enum.location.line):
                self.assertTrue(enum.is_anonymous())
                self.assertNotIn(enum.get_usr(), {t.underlying_typedef_type.get_declaration().get_usr()
                                                  for t in self.typedefs})

    def test_functions(self):
        for function in self.functions:
            with self.subTest(name=function.spelling):
                self.assertFalse(function.type.is_function_variadic())
                self.assertFalse(function.is_definition(), 'no inline functions')
            self.check_signature(function.spelling, function.result_type, function.type.argument_types())

    def test_typedefs(self):
        structs = {c.spelling for c in self.structs}
        for typedef in self.typedefs:
            kind = typedef.underlying_typedef_type
            with self.subTest(name=typedef.spelling):
                if typedef.spelling.endswith('_fn'):
                    self.assertTrue(is_callback(typedef.type))
                    function = kind.get_canonical().get_pointee()
                    self.assertFalse(function.is_function_variadic())
                elif typedef.spelling in structs:
                    self.assertEqual(kind.get_declaration().spelling, typedef.spelling)
                else:
                    self.assertTrue(is_number(kind) and kind.spelling in INTEGERS, kind.spelling)
            if typedef.spelling.endswith('_fn'):
                parameters = [c.type for c in parameters_of(typedef)]
                results = [c.type for c in typedef.get_children() if c.kind == CursorKind.TYPE_REF]
                self.check_signature(typedef.spelling, function.get_result() if not results else results[0],
                                     parameters)

    def test_callbacks_begin_with_user_data(self):
        for typedef in self.typedefs:
            # afmoe_task_fn goes the other way: the library gives it to the host.
            if typedef.spelling.endswith('_fn') and typedef.spelling != 'afmoe_task_fn':
                parameters = parameters_of(typedef)
                with self.subTest(name=typedef.spelling):
                    self.assertEqual((parameters[0].type.spelling, parameters[0].spelling), ('void *', 'user_data'))

    def test_plain_structs(self):
        for struct in self.plain:
            members = list(struct.get_children())
            with self.subTest(name=struct.spelling):
                self.assertEqual((members[0].type.spelling, members[0].spelling), ('uint32_t', 'size'))
            for member in members:
                with self.subTest(name=struct.spelling, member=member.spelling):
                    self.assertEqual(member.kind, CursorKind.FIELD_DECL)
                    self.assertFalse(member.is_bitfield())
                    kind = member.type
                    self.assertTrue(is_number(kind) or is_pointer(kind) or is_array(kind) or is_callback(kind),
                                    kind.spelling)

    def test_plain_structs_have_no_holes(self):
        """Padding is named (`reserved`): what lies in a struct is the same for every compiler and binding."""
        for struct in self.plain:
            end = 0
            for member in struct.get_children():
                with self.subTest(name=struct.spelling, member=member.spelling):
                    self.assertEqual(struct.type.get_offset(member.spelling), end * 8)
                end = struct.type.get_offset(member.spelling) // 8 + member.type.get_size()
            with self.subTest(name=struct.spelling, member='end'):
                self.assertEqual(struct.type.get_size(), end)

    def test_plain_structs_have_an_init(self):
        functions = {c.spelling: c for c in self.functions}
        for struct in self.plain:
            if struct.spelling in NOT_MADE_BY_CALLERS:
                continue
            with self.subTest(name=struct.spelling):
                init = functions[f'{struct.spelling}_init']
                self.assertEqual([t.spelling for t in init.type.argument_types()], [f'{struct.spelling} *', 'uint32_t'])
                self.assertEqual(init.result_type.kind, TypeKind.VOID)

    def test_opaque_structs_have_a_free(self):
        functions = {c.spelling for c in self.functions}
        plain = {c.spelling for c in self.plain}
        for struct in self.structs:
            if struct.spelling not in plain:
                with self.subTest(name=struct.spelling):
                    self.assertIn(f'{struct.spelling}_free', functions)

    def test_failing_functions_take_an_error(self):
        for function in self.functions:
            if function.result_type.spelling == 'afmoe_status':
                with self.subTest(name=function.spelling):
                    self.assertEqual(list(function.type.argument_types())[-1].spelling, 'afmoe_error *')

    def test_comments(self):
        for function in self.functions:
            if not function.spelling.endswith(PAIRED):
                with self.subTest(name=function.spelling):
                    self.assertTrue((function.raw_comment or '').startswith('/**'), 'no comment')


if __name__ == '__main__':
    unittest.main()
