"""Find the shared library, hold it to the version this package was made for, and bind its functions.

The first of these that is there: the file that the environment variable AFMOE_LIBRARY names; libafmoe beside this
module; in the folder that meson-python puts libraries of a wheel into; where the system finds it.
"""
from __future__ import annotations

import ctypes
import os
import sysconfig
from typing import Tuple

from . import _ffi
from .errors import AbiError

_SONAME = f'libafmoe.so.{_ffi.AFMOE_VERSION_MAJOR}'
_MADE_FOR = (_ffi.AFMOE_VERSION_MAJOR, _ffi.AFMOE_VERSION_MINOR, _ffi.AFMOE_VERSION_PATCH)


def _candidate() -> str:
    named = os.environ.get('AFMOE_LIBRARY')
    if named:
        return named
    package = os.path.dirname(os.path.abspath(__file__))
    folders = [package] + [os.path.join(root, '.afmoe.mesonpy.libs')
                           for root in (os.path.dirname(package), sysconfig.get_path('platlib'))]
    files = (os.path.join(folder, _SONAME) for folder in folders)
    return next(filter(os.path.exists, files), _SONAME)


def _fits(version: Tuple[int, int, int]) -> bool:
    """Before 1.0 a second number may break things; a library must not be older than the header read."""
    n_fixed = 2 if version[0] == 0 else 1
    return version[:n_fixed] == _MADE_FOR[:n_fixed] and version >= _MADE_FOR


def _load() -> Tuple[str, _ffi.Functions]:
    path = _candidate()
    wanted = '.'.join(map(str, _MADE_FOR))
    try:
        library = ctypes.CDLL(path)
        number = library.afmoe_version
    except (OSError, AttributeError) as cause:
        raise AbiError(_ffi.AFMOE_NOT_FOUND,
                       f'this package needs libafmoe {wanted}; {path} is none ({cause}). AFMOE_LIBRARY can name the '
                       f'file') from cause
    number.restype = ctypes.c_uint32
    packed = number()
    version = (packed // 1000000, packed // 1000 % 1000, packed % 1000)
    if not _fits(version):
        raise AbiError(_ffi.AFMOE_UNSUPPORTED, f'this package was made for libafmoe {wanted}, but {path} is version '
                                               f'{".".join(map(str, version))}')
    try:
        return path, _ffi.Functions(library)
    except AttributeError as cause:
        raise AbiError(_ffi.AFMOE_UNSUPPORTED,
                       f'this package was made for libafmoe {wanted}; {path} says it is '
                       f'{".".join(map(str, version))}, but lacks a function ({cause})') from cause


path, lib = _load()
