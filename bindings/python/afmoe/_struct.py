"""What the structs of the C interface share."""
from __future__ import annotations

import ctypes
from typing import Any, Dict


class Struct(ctypes.Structure):
    """A plain struct that begins with its size. Infos and statistics are handed out as such copies: their members are
    attributes, of the names and meanings in include/afmoe.h."""

    def to_dict(self) -> Dict[str, Any]:
        """The members by name, without `size` and what is reserved."""
        values = {name: getattr(self, name) for name, *_ in self._fields_}
        return {name: value for name, value in values.items() if name != 'size' and not name.startswith('reserved')}

    def __repr__(self) -> str:
        return f'{type(self).__name__}({", ".join(f"{name}={value!r}" for name, value in self.to_dict().items())})'
