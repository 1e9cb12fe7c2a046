#!/usr/bin/env python3
"""Plots of speed from the csv of `afmoe bench -o csv`: plot.py FOLDER FILE.csv...   (needs matplotlib)

Writes FOLDER/prompt.png, depth.png, sessions.png and threads.png, each where the rows have two values or more of what
it is drawn against: prompt length, depth, sessions, threads. A line is one set of all other values, its legend names
those that differ between lines; bars are one standard deviation. Files are put together, so runs of several models or
versions can be compared."""
import csv
import os
import sys

AXES = {"prompt": ("n_prompt", "prompt length (tokens)"), "depth": ("n_depth", "depth (tokens)"),
        "sessions": ("n_sessions", "sessions"), "threads": ("n_threads", "threads")}
LINE = ("build_version", "cpu_level", "precision", "model_filename", "type_k", "n_threads", "n_prompt", "n_gen",
        "n_depth", "n_sessions")
NUMBERS = ("n_threads", "n_prompt", "n_gen", "n_depth", "n_sessions", "avg_ts", "stddev_ts")


def read(paths):
    rows = []
    for path in paths:
        with open(path, newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                missing = [name for name in LINE + NUMBERS if row.get(name) is None]
                if missing:
                    sys.exit(f"plot.py: {path} is no csv of afmoe bench: it has no {missing[0]}")
                row.update({name: float(row[name]) for name in NUMBERS})
                row["model_filename"] = os.path.basename(row["model_filename"])
                rows.append(row)
    return rows


def lines_along(rows, axis):
    """{all else: [row..] along the axis} of the lines with two points or more."""
    lines = {}
    for row in rows:
        if axis == "n_prompt" and row["n_gen"]:
            continue
        lines.setdefault(tuple(row[name] for name in LINE if name != axis), []).append(row)
    return {key: sorted(line, key=lambda row: row[axis]) for key, line in lines.items()
            if len({row[axis] for row in line}) > 1}


def show(name, value):
    return os.path.basename(str(value)) if isinstance(value, str) else f"{name.removeprefix('n_')} {value:g}"


def draw(pyplot, path, lines, axis, label):
    names = [name for name in LINE if name != axis]
    differ = [i for i in range(len(names)) if len({key[i] for key in lines}) > 1]
    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for key, line in sorted(lines.items(), key=lambda item: str(item[0])):
        axes.errorbar([row[axis] for row in line], [row["avg_ts"] for row in line],
                      yerr=[row["stddev_ts"] for row in line], marker="o", capsize=3,
                      label=", ".join(show(names[i], key[i]) for i in differ if not (names[i] in ("n_prompt", "n_gen")
                                                                                  and key[i] == 0)))
    axes.set_xlabel(label)
    axes.set_ylabel("tokens a second")
    axes.set_ylim(bottom=0)
    axes.grid(True, alpha=0.3)
    if differ:
        axes.legend()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        import matplotlib
    except ImportError as error:
        sys.exit(f"plot.py: {error}")
    matplotlib.use("Agg")
    from matplotlib import pyplot
    folder, rows = sys.argv[1], read(sys.argv[2:])
    os.makedirs(folder, exist_ok=True)
    drawn = 0
    for name, (axis, label) in AXES.items():
        lines = lines_along(rows, axis)
        if lines:
            path = os.path.join(folder, name + ".png")
            draw(pyplot, path, lines, axis, label)
            print(path)
            drawn += 1
    if not drawn:
        sys.exit("plot.py: no line has two points: give lists to -p, -d, --sessions or -t")


main()
