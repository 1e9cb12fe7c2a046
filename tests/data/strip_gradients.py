#!/usr/bin/python3
"""Copies model fixtures of the optional reference folder here, without the gradients in expected.safetensors.

    tests/data/strip_gradients.py ../shared/fixtures/models nano tied ...

Every file is copied as it is but expected.safetensors, which loses its tensors named grad.*; the others keep their
bytes. Standard library only."""
import json
import pathlib
import shutil
import struct
import sys


def strip(source, target):
    data = source.read_bytes()
    n_header = struct.unpack_from("<Q", data)[0]
    header = json.loads(data[8:8 + n_header])
    out_header, parts, at = {}, [], 0
    for name, entry in header.items():
        if name == "__metadata__":
            out_header[name] = entry
            continue
        if name.startswith("grad."):
            continue
        begin, end = entry["data_offsets"]
        parts.append(data[8 + n_header + begin:8 + n_header + end])
        out_header[name] = dict(entry, data_offsets=[at, at + end - begin])
        at += end - begin
    text = json.dumps(out_header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    target.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def main():
    models, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    here = pathlib.Path(__file__).resolve().parent
    for name in names:
        target = here / name
        target.mkdir(exist_ok=True)
        for source in sorted((models / name).iterdir()):
            if source.name == "expected.safetensors":
                strip(source, target / source.name)
            else:
                shutil.copyfile(source, target / source.name)


if __name__ == "__main__":
    main()
