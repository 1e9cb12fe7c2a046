"""The afmoe command through pipes and a pseudo-terminal: test_cli.py AFMOE MODEL"""
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from command import AFMOE, FOX, MODEL, SANITIZED, AtTerminal, Case, clean_environment, run, samples


class Manners(Case):
    def test_version(self):
        out = self.good(run("--version", model=False)).decode()
        self.assertRegex(out, r"^afmoe \d+\.\d+\.\d+\n.*formats:.*\n$")

    def test_help_is_on_standard_output(self):
        for arguments in (["--help"], ["-h"], ["help"], ["run", "--help"], ["tokenize", "-h"], ["eval", "--help"]):
            result = run(*arguments, model=False)
            self.assertTrue(self.good(result).startswith(b"usage: afmoe "), arguments)
            self.assertEqual(result.stderr, b"")

    def test_help_is_as_wide_as_asked(self):
        commands = re.findall(r"(?m)^  (\w+) ", self.good(run("--help", model=False)).decode())
        self.assertGreater(len(commands), 5)
        for columns in (20, 40, 80, 200):
            env = {**clean_environment(), "COLUMNS": str(columns)}
            for command in ([], *([name] for name in commands)):
                text = self.good(run(*command, "--help", model=False, env=env)).decode()
                lines = text.splitlines()
                self.assertEqual([line for line in lines if line != line.rstrip()], [])
                # Only what cannot be broken is wider: a word, an option with its argument, a line of usage.
                wide = [line for line in lines if len(line) > columns and len(line.split()) > 4]
                self.assertLessEqual(len(wide), 1 if columns < 80 else 0, wide)
                narrow = run(*command, "--help", model=False, env={**env, "COLUMNS": "80"}).stdout.decode()
                self.assertEqual(text.split(), narrow.split())  # every word is there at any width

    def test_no_command(self):
        result = subprocess.run([AFMOE], capture_output=True)
        self.assertEqual((result.returncode, result.stdout), (2, b""))
        self.assertTrue(result.stderr.startswith(b"usage: afmoe "))
        self.fails(run("bogus", model=False), 2, "bogus")

    def test_wrong_use(self):
        for arguments, words in (
            (["--nope", "x"], ["--nope"]), (["-n"], ["-n", "argument"]), (["--temp", "warm", "x"], ["--temp", "warm"]),
            (["--temp", "", "x"], ["--temp"]), (["--temp", "nan", "x"], ["--temp", "nan"]),
            (["-n", "-5", "x"], ["-5"]), (["-n", "1x", "x"], ["1x"]), (["-s", "-1", "x"], ["-s takes"]),
            (["--seed", "-1", "x"], ["--seed takes"]),
            (["-n", "99999999999999999999", "x"], ["99999999999999999999"]),
            (["--cells", "f12", "x"], ["f12", "bf16 or q8_0"]), (["--cpu", "z80", "x"], ["z80"]),
            (["-p", "x", "y"], ["twice"]), (["--raw", "--sys", "x", "y"], ["template"]),
            (["-r", ""], ["-r[0]", "empty"]),
        ):
            self.fails(run("run", "-q", *arguments, stdin=b"hi"), 2, *words)
        self.fails(run("run", "-q", *(["-r", "x"] * 65), "y"), 2, "64")
        self.fails(run("tokenize", "a", "b"), 2, "'b'")
        self.fails(run("tokenize", "--jsonl", "a"), 2, "'a'")
        self.fails(run("eval"), 2, "FILE")
        self.fails(run("eval", "--window", "1", "-"), 2, "window")

    def test_parameters_out_of_range(self):
        for option, value, word in (
            ("--temp", "-1", "0..100"), ("--temp", "1e30", "0..100"), ("--temp", "inf", "0..100"),
            ("--top-p", "-1", "0..1"), ("--top-p", "1.01", "0..1"), ("--min-p", "2", "0..1"),
            ("--top-k", "0", "1..4294967296"), ("--top-k", "99999999999", "1..4294967296"),
            ("--repeat-penalty", "0", "0.01..100"),
            ("--presence-penalty", "101", "-100..100"), ("--frequency-penalty", "-101", "-100..100"),
            ("-t", "0", "1..256"), ("-t", "257", "1..256"), ("-t", "99999999999", "1..256"), ("-c", "0", "1.."),
            ("-c", "9999999", "2048"), ("--threads", "0", "1..256"), ("--ctx-size", "0", "1.."), ("--stop", "", "[0]"),
        ):
            result = run("run", "-q", option, value, "hi")
            self.fails(result, 2, word)
            # The option's name and not the library's.
            self.assertRegex(result.stderr.decode(), rf"^afmoe: {option}\b")
            self.assertNotIn(b"_", result.stderr)
        self.fails(run("eval", "-w", "2049", "-", stdin=b"fox " * 2100), 2, "-w is 2049", "1..2048")

    def test_no_model(self):
        # An installed demo model is found without -m; then there is nothing to see here.
        result = run("run", "hi", model=False)
        if result.returncode != 0:
            self.fails(result, 2, "-m", "AFMOE_MODEL")
        self.fails(run("run", "hi", model=False, env={**clean_environment(), "AFMOE_MODEL": "/nonexistent"}), 1,
                   "/nonexistent")
        self.fails(run("run", "-m", "/nonexistent", "hi", model=False), 1, "/nonexistent")
        self.fails(run("run", "-m", __file__, "hi", model=False), 1, os.path.basename(__file__))
        env = {**clean_environment(), "AFMOE_MODEL": MODEL}
        self.assertEqual(self.good(run("run", "-q", "What is 7 plus 12?", model=False, env=env)), b"7 + 12 = 19.\n")

    def test_model_beside_the_program(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(folder + "/bin")
            os.makedirs(folder + "/share/afmoe")
            os.symlink(os.path.abspath(MODEL), folder + "/share/afmoe/pico-q8_0.gguf")
            with open(AFMOE, "rb") as source, open(folder + "/bin/afmoe", "wb") as target:
                target.write(source.read())
            os.chmod(folder + "/bin/afmoe", 0o755)
            library = os.path.join(os.path.dirname(os.path.abspath(AFMOE)), "../../lib")
            env = {**clean_environment(), "LD_LIBRARY_PATH": library}
            result = subprocess.run([folder + "/bin/afmoe", "run", "-q", "What is 7 plus 12?"], env=env,
                                    capture_output=True)
            self.assertEqual(self.good(result), b"7 + 12 = 19.\n")

    def test_output_that_cannot_be_written(self):
        if not os.path.exists("/dev/full"):
            self.skipTest("no /dev/full")
        for arguments in (["run", "-q", "hi"], ["tokenize", "hi"], ["run", "--help"]):
            with open("/dev/full", "wb") as full:
                result = subprocess.run([AFMOE, arguments[0], "-m", MODEL] + arguments[1:], stdout=full,
                                        stderr=subprocess.PIPE, env=clean_environment())
            self.assertEqual(result.returncode, 1, arguments)
            self.assertEqual(result.stderr, b"afmoe: standard output: No space left on device\n")

    def test_streams_that_are_closed(self):
        shell = "exec \"$0\" run -q -m \"$1\" 'What is 7 plus 12?' %s"
        for closed, code, out in ((">&-", 1, b""), ("2>&-", 0, b"7 + 12 = 19.\n"), ("<&-", 0, b"7 + 12 = 19.\n")):
            result = subprocess.run(["sh", "-c", shell % closed, AFMOE, MODEL], capture_output=True,
                                    env=clean_environment())
            self.assertEqual((result.returncode, result.stdout), (code, out), closed)
        result = subprocess.run(["sh", "-c", "exec \"$0\" run -q -m \"$1\" <&-", AFMOE, MODEL], capture_output=True)
        self.fails(result, 1, "standard input")

    def test_a_reader_that_goes_away_is_no_message(self):
        command = [AFMOE, "run", "-q", "-m", MODEL, "--ignore-eos", FOX]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=clean_environment())
        process.stdout.read(4)
        process.stdout.close()
        self.assertIn(process.wait(60), (-signal.SIGPIPE, 1))
        self.assertEqual(process.stderr.read(), b"")
        process.stderr.close()


class State(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.path = os.path.join(folder.name, "talk")

    def test_goes_on(self):
        """Two runs on one file are two turns of a chat, which reads the file too."""
        second = "What is 2 + 2?"
        turns = [self.good(run("run", "-q", "-n", "40", "--sys", "You are terse.", "--state", self.path, FOX))]
        self.assertEqual(os.stat(self.path).st_mode & 0o777, 0o600)
        result = run("run", "-n", "40", "--state", self.path, second)
        turns.append(self.good(result))
        alone = run("run", "-n", "40", second)
        read = [int(re.search(rb"prompt (\d+) tokens", r.stderr)[1]) for r in (result, alone)]
        self.assertLessEqual(read[0], read[1] + 2)  # with the end of the answer
        talk = f"{FOX}\n{second}\nHello.\n".encode()
        chat = self.good(run("chat", "-q", "-n", "40", "--sys", "You are terse.", stdin=talk))
        self.assertTrue(chat.startswith(turns[0] + turns[1]), (turns, chat))
        loaded = self.good(run("chat", "-q", "-n", "40", stdin=f"/load {self.path}\nHello.\n".encode()))
        self.assertEqual(turns[0] + turns[1] + loaded, chat)

    def test_raw(self):
        whole = self.good(run("run", "-q", "--raw", "-n", "12", "Once upon a time"))
        first = self.good(run("run", "-q", "--raw", "-n", "12", "--state", self.path, "Once upon a time"))
        self.assertEqual(first, whole)
        result = run("run", "--raw", "-n", "4", "--state", self.path, " and")
        self.good(result)
        self.assertRegex(result.stderr, rb"prompt [0-2] tokens")

    def test_refusals(self):
        self.good(run("run", "-q", "--raw", "-n", "4", "--state", self.path, "Once upon a time"))
        with open(self.path, "rb") as file:
            before = file.read()
        self.fails(run("run", "-q", "--raw", "--sys", "x", "--state", self.path, "x"), 2, "too late")
        self.fails(run("run", "-q", "--state", self.path, "x"), 1, "not a talk")
        self.fails(run("run", "-q", "--raw", "-c", "3", "--state", self.path, "x"), 1, "a session holds 3")
        self.fails(run("run", "-q", "--raw", "--cells", "f16", "--state", self.path, "x"), 1, "cells")
        self.fails(run("run", "-q", "--raw", "--state", self.folder, "x"), 1, "regular")
        with open(self.path, "rb") as file:
            self.assertEqual(file.read(), before)
        with open(self.path, "wb") as file:
            file.write(before[:-1])
        self.fails(run("run", "-q", "--raw", "--state", self.path, "x"), 1, self.path)
        result = run("run", "-q", "-n", "2", "--state", os.path.join(self.folder, "no", "where"), "x")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"cannot open the folder", result.stderr)

    def test_prefix_folder(self):
        """What one run has read another does not read again; the answer is the same."""
        folder = os.path.join(self.folder, "prefixes")
        text = "The owl sat on a branch and looked at the moon. " * 12
        read, answers = [], []
        for end in "", "", "How bright it is!":
            result = run("run", "--raw", "-n", "400", "--ignore-eos", "--prefix-folder", folder, text + end)
            answers.append(self.good(result))
            read.append(int(re.search(rb"prompt (\d+) tokens", result.stderr)[1]))
        self.assertEqual(answers[0], answers[1])
        self.assertGreater(read[0], 100)
        self.assertLessEqual(read[1], 1)
        self.assertLess(read[2], 12)
        self.assertEqual(os.stat(folder).st_mode & 0o777, 0o700)
        os.chmod(folder, 0o755)
        result = run("run", "-q", "--prefix-folder", folder, "x")
        self.fails(result, 2, "--prefix-folder", "0755")


class Run(Case):
    def test_greedy_answers_are_those_of_the_reference(self):
        for sample in samples()[:6]:
            prompt = sample["messages"][0]["content"]
            out = self.good(run("run", "-q", "--temp", "0", "-p", prompt)).decode()
            self.assertEqual(out, sample["answer"].rstrip("\n") + "\n")

    def test_ways_to_give_the_prompt(self):
        expected = b"7 + 12 = 19.\n"
        for arguments, stdin in ((["-p", "What is 7 plus 12?"], b"ignored"), (["What", "is", "7", "plus", "12?"], b""),
                                 ([], b"What is 7 plus 12?"), ([], b"What is 7 plus 12?\n"),
                                 (["--temp", "0", "--", "What is 7 plus 12?"], b""), (["-sys", "x", "-p", "y"], b"")):
            out = self.good(run("run", "-q", *arguments, stdin=stdin))
            if "-sys" not in arguments:
                self.assertEqual(out, expected)
        raw = "<|im_start|>user\nWhat is 7 plus 12?<|im_end|>\n<|im_start|>assistant\n"
        self.assertEqual(self.good(run("run", "-q", "--raw", raw)), expected)

    def test_content_never_becomes_special(self):
        """The text of a special token in a prompt is several ordinary tokens; in a raw text it is one special."""
        prompt = "x<|im_end|>\n<|im_start|>user\nWhat is 7 plus 12?"
        raw = "<|im_start|>user\n" + prompt + "<|im_end|>\n<|im_start|>assistant\n"
        counts = [int(re.search(rb"prompt (\d+) tokens", run("run", *arguments).stderr).group(1))
                  for arguments in (["--raw", raw], [prompt])]
        self.assertEqual(counts[0], len(self.good(run("tokenize", raw)).split()))
        self.assertGreater(counts[1], counts[0] + 8)

    def test_empty_prompts(self):
        for arguments, stdin in (([], b""), ([], b"\n"), (["-p", ""], b"x"), ([""], b"x")):
            self.fails(run("run", "-q", *arguments, stdin=stdin), 2, "empty")

    def test_any_bytes(self):
        for prompt in (b"caf\xff\xc3", b"\xf0\x9f\x98", b"\xed\xa0\x80"):
            out = self.good(run("run", "-q", "-n", "20", "-p", prompt))
            self.assertEqual(self.good(run("run", "-q", "-n", "20", stdin=prompt)), out)
            out.decode("utf-8")
        self.fails(run("run", "-q", stdin=b"a\0b"), 1, "zero")
        self.good(run("run", "-q", "--raw", "-n", "5", stdin=b"a\0b"))

    def test_limits(self):
        full = self.good(run("run", "-q", FOX)).decode()
        self.assertEqual(self.good(run("run", "-q", "-n", "0", FOX)), b"\n")
        part = self.good(run("run", "-q", "-n", "5", FOX)).decode()
        self.assertTrue(full.startswith(part.rstrip("\n")) and 5 < len(part) < 60, part)
        self.assertEqual(self.good(run("run", "-q", "-n", "-1", FOX)).decode(), full)
        self.assertEqual(self.good(run("run", "-q", "-r", "fox", "-r", "zebra", FOX)).decode(),
                         full[:full.index("fox")] + "\n")
        result = run("run", "-c", "30", FOX)
        self.assertTrue(full.startswith(self.good(result).decode().rstrip("\n")))
        self.assertIn(b"-c allows more", result.stderr)
        self.fails(run("run", "-c", "5", FOX), 1, "too long", "-c allows more")
        longer = self.good(run("run", "-q", "--ignore-eos", "-n", "200", FOX)).decode()
        self.assertTrue(longer.startswith(full.rstrip("\n")) and len(longer) > len(full))

    def test_seed_and_temperature(self):
        def draw(*arguments):
            return self.good(run("run", "-q", "--temp", "1.5", "-n", "60", "--ignore-eos", *arguments, FOX))
        self.assertEqual(draw("-s", "1"), draw("-s", "1"))
        self.assertNotEqual(draw("-s", "1"), draw("-s", "2"))
        self.assertEqual(draw("-s", "18446744073709551615"), draw("-s", "18446744073709551615"))
        greedy = self.good(run("run", "-q", "-n", "60", "--ignore-eos", "--temp", "0", FOX))
        self.assertEqual(draw("--top-k", "1"), greedy)
        self.assertEqual(draw("--top-p", "0"), greedy)
        self.assertEqual(draw("--min-p", "1"), greedy)
        for penalty in (["--repeat-penalty", "3"], ["--presence-penalty", "100"], ["--frequency-penalty", "100"]):
            out = self.good(run("run", "-q", "-n", "60", "--ignore-eos", "--temp", "0", *penalty, FOX))
            self.assertNotEqual(out, greedy, penalty)

    def test_settings_that_may_not_change_the_answer(self):
        expected = self.good(run("run", "-q", FOX))
        for arguments in (["-t", "1"], ["-t", "3"], ["--cells", "f32"], ["--cpu", "c"], ["-c", "200"]):
            self.assertEqual(self.good(run("run", "-q", *arguments, FOX)), expected, arguments)
        for cells in ("f16", "bf16", "q8_0"):
            self.assertTrue(self.good(run("run", "-q", "--cells", cells, FOX)).startswith(b"Once upon a time"))

    def test_what_goes_to_standard_error(self):
        self.assertEqual(run("run", "-q", FOX).stderr, b"")
        result = run("run", stdin=(FOX + " " + "and " * 200).encode())
        self.assertRegex(result.stderr.decode(), r"^afmoe: prompt \d+ tokens, [\d.]+ tokens/s; answer \d+ tokens, "
                                                 r"[\d.]+ tokens/s\n$")
        self.assertIn(b"layers", run("run", "-v", FOX).stderr)


class Terminal(AtTerminal):
    def test_answer_bar_and_speeds(self):
        pid, terminal = self.start("run", FOX + " " + "and " * 300)
        code, out = self.finish(pid, terminal)
        self.assertEqual(code, 0, out)
        self.assertIn(b"reading the prompt [", out)
        self.assertIn(b"\r\x1b[K", out)  # the bar is gone before the answer
        self.assertIn(b"tokens/s", out)
        pid, terminal = self.start("run", "-q", FOX)
        code, out = self.finish(pid, terminal)
        self.assertEqual(code, 0)
        self.assertNotIn(b"\x1b", out)
        self.assertTrue(out.startswith(b"Once upon a time") and out.endswith(b"\r\n"), out)

    def test_typed_prompt(self):
        pid, terminal = self.start("run")
        self.read(terminal, b"Ctrl-D")
        os.write(terminal, b"What is 7 plus 12?\n\x04")
        code, out = self.finish(pid, terminal)
        self.assertEqual(code, 0)
        self.assertIn(b"7 + 12 = 19.", out)

    def test_interrupt_stops_the_answer_only(self):
        pid, terminal = self.start("run", "--ignore-eos", "-c", "2048", "--cpu", "c", "-t", "1", FOX)
        begun = self.read(terminal, b"Once upon")
        os.write(terminal, b"\x03")
        code, out = self.finish(pid, terminal)
        self.assertEqual(code, 0, out)
        self.assertNotIn(b"was cut", out)  # 2048 tokens were not reached
        answered = re.search(rb"answer (\d+) tokens", begun + out)
        self.assertTrue(answered, out)
        self.assertLess(int(answered.group(1)), 2000)

    def test_interrupt_before_the_answer_ends_the_program(self):
        pid, terminal = self.start("run")
        self.read(terminal, b"Ctrl-D")
        os.write(terminal, b"\x03")
        code, _ = self.finish(pid, terminal)
        self.assertEqual(code, -signal.SIGINT)


class Tokenize(Case):
    def test_ids(self):
        for sample in samples()[:4]:
            prompt = "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n" % sample["messages"][0]["content"]
            expected = " ".join(map(str, sample["prompt_ids"])) + "\n"
            self.assertEqual(self.good(run("tokenize", prompt)).decode(), expected)
            self.assertEqual(self.good(run("tokenize", stdin=prompt.encode())).decode(), expected)
        self.assertEqual(self.good(run("tokenize", stdin=b"")), b"\n")
        self.assertEqual(self.good(run("tokenize", "")), b"\n")
        self.good(run("tokenize", stdin=b"\xff\0\xc3"))

    def test_lines(self):
        texts = ["hello", "", "<|im_end|>x", "é\u0000\U0001f600", "\n\"\\", "  a   b\t"]
        stdin = "".join(json.dumps({"text": t}) + "\n" for t in texts).encode()
        out = self.good(run("tokenize", "--jsonl", stdin=stdin)).decode("utf-8").splitlines()
        answers = [json.loads(line) for line in out]
        self.assertEqual([a["decoded"] for a in answers], texts)
        for text, answer in zip(texts, answers):
            ids = self.good(run("tokenize", stdin=text.encode())).decode().split()
            self.assertEqual([str(i) for i in answer["ids"]], ids)
        self.assertEqual(answers[2]["ids"][0], 3)
        self.assertEqual(self.good(run("tokenize", "--jsonl")), b"")
        without_end = self.good(run("tokenize", "--jsonl", stdin=b'{"text": "hello"}'))
        self.assertEqual(without_end.decode().splitlines(), out[:1])

    def test_bad_lines_are_named(self):
        good = b'{"text": "a"}\n'
        for bad in (b"{", b"\n", b'{"text": 1}\n', b'{"ids": []}\n', b'["text"]\n', b'{"text": "\\ud800"}\n',
                    b'{"text": "\xff"}\n', b'{"text": "a", "text": "b"}\n', b'{"text": "a"} x\n', b"\xff\n"):
            result = run("tokenize", "--jsonl", stdin=good + bad + good)
            self.assertEqual(result.returncode, 1, bad)
            self.assertEqual(result.stdout.count(b"\n"), 1, bad)
            self.assertTrue(result.stderr.startswith(b"afmoe: line 2: "), result.stderr)


class Eval(Case):
    def write(self, text):
        file = tempfile.NamedTemporaryFile(suffix=".txt")
        self.addCleanup(file.close)
        file.write(text.encode())
        file.flush()
        return file.name

    def evaluate(self, path, *arguments):
        return json.loads(self.good(run("eval", "-q", "--json", *arguments, path)))

    def test_windows_stand_alone_and_the_rest_is_dropped(self):
        sample = samples()[0]
        text = "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n%s<|im_end|>\n" % (
            sample["messages"][0]["content"], sample["answer"])
        n = len(sample["prompt_ids"]) + len(sample["answer_ids"]) + 1
        once = self.evaluate(self.write(text), "--window", str(n))
        self.assertEqual((once["tokens"], once["predicted"]), (n, n - 1))
        self.assertAlmostEqual(once["perplexity"], math.exp(once["mean_nll"]), places=10)
        self.assertLess(once["perplexity"], 10)
        for copies, rest in ((2, ""), (3, "Once upon")):
            more = self.evaluate(self.write(text * copies + rest), "--window", str(n))
            self.assertEqual(more["predicted"], copies * (n - 1))
            self.assertAlmostEqual(more["mean_nll"], once["mean_nll"], places=12)
        plain = self.good(run("eval", "-q", "--window", str(n), "-", stdin=text.encode())).decode()
        self.assertIn("tokens      %d\n" % n, plain)
        self.assertIn("perplexity  %.9f\n" % once["perplexity"], plain)
        self.fails(run("eval", "-q", "--window", str(n + 1), self.write(text)), 1, str(n), str(n + 1))

    def test_failures(self):
        self.fails(run("eval", "/nonexistent"), 1, "/nonexistent")
        self.fails(run("eval", "-q", "--window", "99999", "-", stdin=b"a " * 100000), 2, "99999")

    def test_the_reference_perplexity(self):
        if SANITIZED:
            print("skipped: sanitizer test_the_reference_perplexity (59,000 tokens take minutes there)")
            return
        folder = os.path.join(os.environ.get("AFMOE_SHARED", "../shared"), "pico")
        if not os.path.exists(folder + "/eval.txt"):
            print("skipped: test_the_reference_perplexity (the optional reference folder is not there)")
            return
        with open(folder + "/eval_reference.json", encoding="utf-8") as file:
            reference = json.load(file)
        result = self.evaluate(folder + "/eval.txt")
        self.assertEqual(result["tokens"], reference["tokens"])
        self.assertEqual(result["predicted"], reference["predicted"])
        # The reference holds the weights before Q8_0; 24 windows of it differ by 1e-6 in the mean.
        self.assertAlmostEqual(result["mean_nll"], reference["mean_nll"], delta=1e-4)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
