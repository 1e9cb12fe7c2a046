"""include/afmoe.h as libclang sees it (Debian: python3-clang-14): the one reader of the header, for the tests of its
form (tests/abi) and for what is generated from it."""
import re
import textwrap

from clang.cindex import CursorKind, Index, TokenKind, TranslationUnit, TypeKind

INTEGERS = {'int32_t', 'uint32_t', 'uint64_t'}


def read_header(path):
    """The declarations and macros of the file itself, in its order."""
    unit = Index.create().parse(path, args=['-x', 'c', '-std=c11'],
                                options=TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
    problems = [str(problem) for problem in unit.diagnostics]
    assert not problems, problems
    return [cursor for cursor in unit.cursor.get_children()
            if cursor.location.file and cursor.location.file.name == path]


def is_number(kind):
    """float, or an integer of a fixed width under its own name or one of ours; never bool, int, long, size_t."""
    if kind.kind == TypeKind.FLOAT:
        return True
    if kind.kind != TypeKind.TYPEDEF:
        return False
    declaration = kind.get_declaration()
    return declaration.spelling in INTEGERS or (
        declaration.spelling.startswith('afmoe_') and is_number(declaration.underlying_typedef_type))


def is_struct(kind):
    return kind.get_canonical().kind == TypeKind.RECORD and \
        kind.get_declaration().spelling.startswith('afmoe_')


def is_callback(kind):
    canonical = kind.get_canonical()
    return kind.kind == TypeKind.TYPEDEF and kind.get_declaration().spelling.endswith('_fn') and \
        canonical.kind == TypeKind.POINTER and canonical.get_pointee().kind == TypeKind.FUNCTIONPROTO


def is_pointer(kind):
    """To void, text, a number, one of our structs, or to such a pointer."""
    if kind.kind != TypeKind.POINTER:
        return False
    to = kind.get_pointee()
    return to.kind in (TypeKind.VOID, TypeKind.CHAR_S) or is_number(to) or is_struct(to) or is_pointer(to)


def is_array(kind):
    if kind.kind != TypeKind.CONSTANTARRAY:
        return False
    element = kind.element_type
    return element.kind == TypeKind.CHAR_S or is_number(element)


def parameters_of(cursor):
    """Of a function or of the typedef of a callback."""
    return [child for child in cursor.get_children() if child.kind == CursorKind.PARM_DECL]


def clean_comment(raw):
    """The text of a comment without its marks."""
    if not raw:
        return ''
    body = re.sub(r'^/\*+ ?|\s*\*/$', '', raw)
    first, _, rest = body.partition('\n')
    rest = '\n'.join(re.sub(r'^ *\* ?', '', line) if line.lstrip().startswith('*') else line.strip()
                     for line in rest.split('\n'))
    return '\n'.join(line.rstrip() for line in (first.strip() + '\n' + textwrap.dedent(rest)).split('\n')).strip()


def comment_of(cursor):
    """Of a function, struct, callback or enum: the one above it."""
    return clean_comment(cursor.raw_comment)


def comments_inside(cursor):
    """{member or constant: text}: what stands behind a member on its line, and what stands above it."""
    names = {child.location.offset: child.spelling for child in cursor.get_children()}
    found, above, last, last_line = {}, [], None, 0
    for token in cursor.get_tokens():
        if token.kind == TokenKind.COMMENT:
            if last and token.location.line == last_line:
                found.setdefault(last, []).append(clean_comment(token.spelling))
            else:
                above.append(clean_comment(token.spelling))
            continue
        last_line = token.extent.end.line
        if token.location.offset in names:
            last = names[token.location.offset]
            found.setdefault(last, []).extend(above)
            above = []
    return {name: '\n'.join(texts) for name, texts in found.items()}
