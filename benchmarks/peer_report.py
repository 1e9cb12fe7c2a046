"""What peer.py measures, its statistics and their forms.

A record is one test on one model with one peer: {"test", "model", "peer", .., "rounds": [{"afmoe": [..], "peer": [..],
"read_gb_s"}]}, the samples of each side in one round: tokens a second, seconds or MB."""
import csv
import io
import json
import os
import re
import statistics

ENGINES = ("llama.cpp", "transformers")  # the others are commands
KEYS = ("test", "model", "peer", "n_threads", "precision", "cells")


class Test:
    """ppN, tgN, tgN@D, tgNxS, open, memN; see peer.py."""

    def __init__(self, name):
        match = re.fullmatch(r"(pp|tg)([1-9]\d*)(?:@(\d+))?(?:x([1-9]\d*))?|(open)|(mem)([2-9]|[1-9]\d+)", name)
        if not match or (match[1] == "pp" and match[4]):
            raise ValueError(f"'{name}' is no test: ppN, ppN@D, tgN, tgN@D, tgNxS, tgN@DxS, open or memN")
        self.name, self.kind = name, match[1] or match[5] or match[6]
        self.is_rate = self.kind in ("pp", "tg")
        self.n_prompt, self.n_gen = (int(match[2]) if self.kind == kind else 0 for kind in ("pp", "tg"))
        self.n_depth, self.n_sessions = int(match[3] or match[7] or 0), int(match[4] or 1)
        self.unit = "t/s" if self.is_rate else {"open": "s", "mem": "MB"}[self.kind]

    def samples(self, row):
        """Of a row that afmoe bench or peer_run.py printed."""
        if self.is_rate:
            return row["samples_ts"]
        return [row["seconds"]] if self.kind == "open" else [row["private_bytes"] / 1e6]

    def amount(self, row):
        return statistics.median(self.samples(row))

    def merit(self, row):
        """More is better."""
        return self.amount(row) if self.is_rate else -self.amount(row)


def add(records, test, ours, peer, arguments, way):
    """One round of one test to {key: record}."""
    record = {"test": test.name, "model": os.path.basename(os.path.normpath(arguments.model)), "peer": arguments.peer,
              "n_threads": arguments.threads, "precision": ours.get("precision", arguments.precision) or "",
              "cells": ours.get("type_k", arguments.cells) or "", "peer_options": way,
              "peer_version": peer.get("engine_version", peer.get("build_version", "")),
              "peer_system": peer.get("engine_system", peer.get("cpu_info", "")),
              "afmoe_version": ours.get("build_version", ours.get("engine_version", "")),
              "cpu_level": ours.get("cpu_level", ours.get("engine_system", "")), "rounds": []}
    record = records.setdefault(tuple(record[name] for name in KEYS), record)
    record["rounds"].append({"afmoe": test.samples(ours), "peer": test.samples(peer),
                             "read_gb_s": ours.get("read_gb_s")})


def write_json(records, path):
    with open(path + ".part", "w", encoding="utf-8") as file:
        json.dump(list(records.values()), file, indent=1)
        file.write("\n")
    os.replace(path + ".part", path)


def read_json(paths):
    """Rounds of the same test on the same model and peer come together."""
    records = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            try:
                for record in json.load(file):
                    known = records.setdefault(tuple(record[name] for name in KEYS), {**record, "rounds": []})
                    known["rounds"] += record["rounds"]
            except (KeyError, TypeError) as error:
                raise ValueError(f"{path} is no file of peer.py --save: {error}") from error
    return records


def summary(records):
    """A row of figures for each record. A ratio is above 1 where afmoe is better."""
    rows = []
    for record in records.values():
        test, rounds = Test(record["test"]), record["rounds"]
        ours, peer = ([x for round_ in rounds for x in round_[side]] for side in ("afmoe", "peer"))
        power = 1 if test.is_rate else -1
        ratios = [(statistics.median(r["afmoe"]) / statistics.median(r["peer"])) ** power for r in rounds]
        reads = [r["read_gb_s"] for r in rounds if r["read_gb_s"]]
        rows.append({**{name: value for name, value in record.items() if name != "rounds"}, "n_rounds": len(rounds),
                     "unit": test.unit, "afmoe": statistics.median(ours), "afmoe_min": min(ours),
                     "afmoe_max": max(ours), "peer_median": statistics.median(peer), "peer_min": min(peer),
                     "peer_max": max(peer), "ratio": (statistics.median(ours) / statistics.median(peer)) ** power,
                     "ratio_min": min(ratios), "ratio_max": max(ratios),
                     "read_gb_s": statistics.median(reads) if reads else None})
    return rows


def form_json(rows):
    return json.dumps(rows, indent=1) + "\n"


def form_csv(rows):
    out = io.StringIO()
    if rows:
        writer = csv.DictWriter(out, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return out.getvalue()


def form_md(rows):
    def spread(row, side, middle):
        return f"{row[middle]:.4g} ({row[side + '_min']:.4g}..{row[side + '_max']:.4g})"
    lines = ["| model | test | unit | afmoe | peer | ratio | rounds | read GB/s |",
             "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for r in rows:
        read = f"{r['read_gb_s']:.1f}" if r["read_gb_s"] else ""
        lines.append(f"| {r['model']} | {r['test']} | {r['unit']} | {spread(r, 'afmoe', 'afmoe')} | "
                     f"{spread(r, 'peer', 'peer_median')} | {spread(r, 'ratio', 'ratio')} | {r['n_rounds']} | {read} |")
    for line in sorted({f"{r['test']}: {r['n_threads']} threads, afmoe {r['afmoe_version']} {r['cpu_level']} "
                        f"{r['precision']} {r['cells']}; {r['peer']} {r['peer_version']} {r['peer_options']}"
                        for r in rows}) + sorted({f"{r['peer']}: {r['peer_system']}" for r in rows}):
        lines.append(f"\n{re.sub(' +', ' ', line)}")
    return "\n".join(lines) + "\n"


FORMS = {"md": form_md, "csv": form_csv, "json": form_json}
