#!/usr/bin/env python3
"""llama.cpp's quantiser, for files to compare with: llama_quantize.py IN.gguf OUT.gguf FORMAT   (needs llama_cpp)

IN holds F32, F16 or BF16. FORMAT is a name of llama.cpp's, as Q4_K_M. With - as OUT nothing is written: printed is the
type each tensor would get."""
import ctypes
import re
import sys


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    source, target, name = sys.argv[1:]
    try:
        import llama_cpp
    except ImportError as error:
        sys.exit(f"llama_quantize.py: {error}")
    ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name.upper()}", None)
    if ftype is None:
        sys.exit(f"llama_quantize.py: llama.cpp has no {name}")
    log = []
    on_log = llama_cpp.llama_log_callback(lambda _, text, data: log.append(text.decode(errors="replace")))
    llama_cpp.llama_log_set(on_log, ctypes.c_void_p())
    parameters = llama_cpp.llama_model_quantize_default_params()
    parameters.ftype, parameters.nthread, parameters.dry_run = ftype, 2, target == "-"
    status = llama_cpp.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(parameters))
    text = "".join(log)
    if status != 0:
        sys.exit(f"llama_quantize.py: {status}\n{text[-2000:]}")
    if target == "-":
        print(text)


main()
