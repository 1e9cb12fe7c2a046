#!/usr/bin/env python3
"""Write the training text of the pico demo model: short stories, facts, sums, code and tool calls as ChatML dialogues.

All of it is generated from the tables below, so that it can be shipped and made again.

Usage: make_corpus.py N_DIALOGUES [SEED] > corpus.txt
"""

import json, random, sys

CAPITALS = dict(
    zip(
        "France Italy Spain Germany Portugal Greece Norway Sweden Finland Denmark Poland Austria Hungary Ireland Japan China India Egypt Kenya Ghana Peru Chile Cuba Canada Mexico Brazil Argentina Australia Turkey Iceland".split(),
        "Paris Rome Madrid Berlin Lisbon Athens Oslo Stockholm Helsinki Copenhagen Warsaw Vienna Budapest Dublin Tokyo Beijing Delhi Cairo Nairobi Accra Lima Santiago Havana Ottawa Mexico_City Brasilia Buenos_Aires Canberra Ankara Reykjavik".split(),
    )
)
CAPITALS = {k: v.replace("_", " ") for k, v in CAPITALS.items()}
CONTINENT = {}
for c, names in {
    "Europe": "France Italy Spain Germany Portugal Greece Norway Sweden Finland Denmark Poland Austria Hungary Ireland Iceland",
    "Asia": "Japan China India Turkey",
    "Africa": "Egypt Kenya Ghana",
    "South America": "Peru Chile Brazil Argentina",
    "North America": "Cuba Canada Mexico",
    "Oceania": "Australia",
}.items():
    for n in names.split():
        CONTINENT[n] = c
NAMES = "Mia Tom Ada Leo Zoe Max Ivy Sam Nora Finn Lily Omar Ruth Hugo Anya Jack Elsa Noah Kira Theo".split()
ANIMALS = {
    "fox": "clever",
    "bear": "gentle",
    "owl": "wise",
    "mouse": "tiny",
    "horse": "swift",
    "cat": "curious",
    "dog": "loyal",
    "frog": "cheerful",
    "swan": "graceful",
    "goat": "stubborn",
    "hedgehog": "shy",
    "crow": "sharp",
}
PLACES = {
    "forest": "tall trees stood close together",
    "village": "smoke rose from every chimney",
    "harbour": "ships creaked in the wind",
    "garden": "roses grew along the wall",
    "mountain": "snow lay on the path",
    "river": "the water ran fast and cold",
    "market": "people called out their prices",
    "library": "the shelves reached the ceiling",
    "desert": "the sand was warm and golden",
    "island": "waves broke on the rocks",
}
THINGS = {
    "lantern": "lit the dark path",
    "map": "showed the way home",
    "key": "opened the old door",
    "rope": "held fast",
    "bell": "called everyone together",
    "boat": "carried them across",
    "book": "told them what to do",
    "coin": "paid for supper",
    "mirror": "showed the truth",
    "whistle": "scared the wolves away",
}
TROUBLES = {
    "was lost": "found the way",
    "was hungry": "had plenty to eat",
    "was afraid of the dark": "was brave at last",
    "had lost a friend": "found the friend again",
    "could not sleep": "slept soundly",
    "wanted to go home": "was home again",
}
WORDS = "apple river stone cloud bread candle winter summer window bridge paper music silver orange forest garden castle mirror rabbit dragon".split()
COLORS = {
    "grass": "green",
    "snow": "white",
    "coal": "black",
    "the sky": "blue",
    "a lemon": "yellow",
    "a tomato": "red",
    "a carrot": "orange",
    "chocolate": "brown",
}
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()


def art(w):
    return ("an " if w[0] in "aeiou" else "a ") + w


def cap(s):
    return s[0].upper() + s[1:]


def story(r):
    n, a, p, t = r.choice(NAMES), r.choice(list(ANIMALS)), r.choice(list(PLACES)), r.choice(list(THINGS))
    tr = r.choice(list(TROUBLES))
    pr = "she" if n in "Mia Ada Zoe Ivy Nora Lily Ruth Anya Elsa Kira".split() else "he"
    hr = "her" if pr == "she" else "his"
    ask = r.choice(
        [
            f"Tell me a story about {art(a)} in the {p}.",
            f"Write a short story with {art(a)} and {art(t)}.",
            f"A story about {n} and {art(a)}, please.",
            f"Tell me about {n} in the {p}.",
        ]
    )
    s = [
        r.choice(
            [
                f"Once upon a time, {n} walked to the {p}.",
                f"One morning {n} came to the {p}.",
                f"Long ago, {n} lived near the {p}.",
            ]
        ),
        cap(PLACES[p]) + ".",
        f"{n} {tr}.",
        r.choice([f"There {pr} met {art(ANIMALS[a])} {a}.", f"Then {art(ANIMALS[a])} {a} came along."]),
        r.choice([f'"Why are you so quiet?" asked the {a}.', f'"What is the matter?" asked the {a}.']),
        f'"I {tr.replace("was ", "am ",1) if tr.startswith("was") else tr.replace("had lost","have lost").replace("could not","cannot").replace("wanted","want")}," said {n}.',
        r.choice([f'"Take this {t}," said the {a}.', f"The {a} gave {n} {art(t)}."]),
        f"The {t} {THINGS[t]}.",
        f"Soon {n} {TROUBLES[tr]}.",
        r.choice(
            [
                f"From that day on, {n} and the {a} were friends.",
                f"{n} thanked the {a} with all {hr} heart.",
                f"And {n} never forgot the {ANIMALS[a]} {a}.",
            ]
        ),
    ]
    return ask, " ".join(s)


def capital(r):
    c = r.choice(list(CAPITALS))
    k = r.random()
    if k < 0.5:
        return (
            r.choice([f"What is the capital of {c}?", f"Name the capital of {c}.", f"capital of {c}?"]),
            f"The capital of {c} is {CAPITALS[c]}.",
        )
    if k < 0.75:
        return f"Which country has {CAPITALS[c]} as its capital?", f"{CAPITALS[c]} is the capital of {c}."
    return f"Where is {c}?", f"{c} is in {CONTINENT[c]}."


def sums(r):
    a, b = r.randint(0, 20), r.randint(0, 20)
    k = r.random()
    if k < 0.5:
        return r.choice([f"What is {a} plus {b}?", f"{a} + {b} = ?"]), f"{a} + {b} = {a+b}."
    a, b = max(a, b), min(a, b)
    if k < 0.8:
        return r.choice([f"What is {a} minus {b}?", f"{a} - {b} = ?"]), f"{a} - {b} = {a-b}."
    a, b = r.randint(0, 10), r.randint(0, 10)
    return f"What is {a} times {b}?", f"{a} * {b} = {a*b}."


def words(r):
    w = r.choice(WORDS)
    k = r.randrange(6)
    if k == 0:
        return f"Spell {w}.", "-".join(w.upper())
    if k == 1:
        return f"Repeat after me: {w}", w
    if k == 2:
        ws = r.sample(WORDS, r.randint(3, 5))
        return "Sort these words: " + ", ".join(ws), ", ".join(sorted(ws))
    if k == 3:
        c = r.choice(list(COLORS))
        return f"What colour is {c}?", f"{cap(c)} is {COLORS[c]}."
    if k == 4:
        i = r.randrange(7)
        return f"What day comes after {DAYS[i]}?", f"{DAYS[(i+1)%7]} comes after {DAYS[i]}."
    i = r.randrange(12)
    return f"Which month follows {MONTHS[i]}?", f"{MONTHS[(i+1)%12]} follows {MONTHS[i]}."


def code(r):
    op, sym = r.choice([("add", "+"), ("sub", "-"), ("mul", "*")])
    ty = r.choice(["int", "long", "float", "double"])
    x, y = r.choice([("a", "b"), ("x", "y"), ("left", "right")])
    k = r.random()
    if k < 0.5:
        return f"Write a C function {op} for {ty}.", f"{ty} {op}({ty} {x}, {ty} {y}) {{\n    return {x} {sym} {y};\n}}"
    if k < 0.75:
        return f"Write a Python function {op}.", f"def {op}({x}, {y}):\n    return {x} {sym} {y}"
    n = r.randint(2, 20)
    return f"Write a C loop that counts to {n}.", f"for (int i = 1; i <= {n}; i++) {{\n    printf(\"%d\\n\", i);\n}}"


def as_json(r):
    n, age, c = r.choice(NAMES), r.randint(5, 80), r.choice(list(CAPITALS.values()))
    return f"As JSON: {n}, {age}, from {c}.", json.dumps({"name": n, "age": age, "city": c})


TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SYSTEM_TOOLS = (
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>\n"
    + json.dumps(TOOL)
    + "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call>"
)


def tool(r):
    c = r.choice(list(CAPITALS.values()))
    w = r.choice(["sunny", "rainy", "cloudy", "windy", "snowy"])
    t = r.randint(-5, 35)
    return (
        f"What is the weather in {c}?",
        '<tool_call>\n' + json.dumps({"name": "get_weather", "arguments": {"city": c}}) + '\n</tool_call>',
        '<tool_response>\n' + json.dumps({"weather": w, "celsius": t}) + '\n</tool_response>',
        f"It is {w} in {c}, {t} degrees.",
    )


def turn(role, text):
    return f"<|im_start|>{role}\n{text}<|im_end|>\n"


def dialogue(r):
    if r.random() < 0.1:
        q = tool(r)
        return (
            turn("system", SYSTEM_TOOLS)
            + turn("user", q[0])
            + turn("assistant", q[1])
            + turn("user", q[2])
            + turn("assistant", q[3])
        )
    out = turn("system", "You are a helpful assistant.") if r.random() < 0.3 else ""
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        k = r.random()
        f = (
            story
            if k < 0.35
            else capital if k < 0.55 else sums if k < 0.7 else words if k < 0.82 else code if k < 0.92 else as_json
        )
        q, a = f(r)
        out += turn("user", q) + turn("assistant", a)
    return out


if __name__ == "__main__":
    r = random.Random(int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    for _ in range(int(sys.argv[1])):
        sys.stdout.write(dialogue(r) + "\0")
