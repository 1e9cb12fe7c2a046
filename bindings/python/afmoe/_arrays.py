"""numpy, which only calls that return arrays need."""
from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Tuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]
    Ints = npt.NDArray[np.int32]


def numpy() -> Any:
    try:
        import numpy as module
    except ImportError as cause:
        raise ImportError('this call returns an array and needs numpy: pip install numpy') from cause
    return module


def floats(*shape: int) -> Floats:
    made: Floats = numpy().empty(shape, dtype='float32')
    return made


def ints(*shape: int) -> Ints:
    made: Ints = numpy().empty(shape, dtype='int32')
    return made


def pointer(array: Any) -> Any:
    """To the elements of an array that the caller keeps; None for None."""
    if array is None:
        return None
    ctype: Any = ctypes.c_float if array.dtype.kind == 'f' else ctypes.c_int32
    return array.ctypes.data_as(ctypes.POINTER(ctype))


def view(address: Any, shape: Tuple[int, ...]) -> Floats:
    """Memory of the library, not to be written to."""
    made: Floats = numpy().ctypeslib.as_array(address, shape)
    made.flags.writeable = False
    return made
