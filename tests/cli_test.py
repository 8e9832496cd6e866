"""Black-box tests of the command line, run by CTest as `cli` (Python's standard library only).

    python3 tests/cli_test.py PROGRAM CONFORMANCE_FOLDER [unittest arguments]

Output is looked at on a pipe and on a pseudo-terminal.
"""

import errno
import json
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

from gguf_files import with_metadata, write_gguf

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = None
CONFORMANCE = None
STORIES = None  # the real small model of the reference results; the bundled model in its place
BUNDLED = ROOT / "models/storyteller-q4_0.gguf"
# From Ctrl-C to the exit. The promise is 0.2 s; a busy test machine gets more.
INTERRUPT_SECONDS = 2.0
COMMANDS = ["run", "batch", "inspect", "template", "tokenize", "perplexity", "bench"]


def sluice(*arguments, stdin=subprocess.DEVNULL, timeout=120, **options):
    """Runs the program; text in and out is bytes."""
    if isinstance(stdin, bytes):
        options["input"] = stdin
    else:
        options["stdin"] = stdin
    options.setdefault("stdout", subprocess.PIPE)
    return subprocess.run(
        [PROGRAM, *map(str, arguments)], stderr=subprocess.PIPE, timeout=timeout, **options
    )


def run_model(*arguments, **options):
    return sluice("run", "-m", STORIES, *arguments, **options)


def read_for(fd, seconds, until=lambda data: False):
    """Bytes of a terminal until it closes, `until` holds, or time is up."""
    data, end = b"", time.monotonic() + seconds
    while time.monotonic() < end and not until(data):
        ready, _, _ = select.select([fd], [], [], 0.05)
        if not ready:
            continue
        try:
            piece = os.read(fd, 65536)
        except OSError as error:
            if error.errno == errno.EIO:  # the other side is closed
                break
            raise
        if not piece:
            break
        data += piece
    return data


class Terminal:
    """The program on a pseudo-terminal that is its controlling one: stdin, stdout and stderr."""

    def __init__(self, *arguments):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            try:
                os.execv(PROGRAM, [PROGRAM, *map(str, arguments)])
            finally:
                os._exit(127)
        # Keys typed before this would reach the Python in the child, or nobody.
        while not self.executing():
            time.sleep(0.001)
        self.before = termios.tcgetattr(self.fd)
        self.data = b""

    def executing(self):
        """Whether the program took the place of the Python in the child, or has ended already."""
        try:
            return os.readlink(f"/proc/{self.pid}/exe") == PROGRAM
        except FileNotFoundError:  # a process that ended has no program any more
            return True

    def read(self, seconds, until=lambda data: False):
        self.data += read_for(self.fd, seconds, lambda piece: until(self.data + piece))
        return self.data

    def type(self, keys):
        os.write(self.fd, keys)

    def attributes(self):
        return termios.tcgetattr(self.fd)

    def finish(self, seconds=30):
        """Exit code, or minus the signal; the rest of the output is read."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.data += read_for(self.fd, 0.02)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.data += read_for(self.fd, 0.1)
                os.close(self.fd)
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.fd)
        raise AssertionError(f"still running after {seconds} s; output: {self.data[-500:]!r}")


# ------------------------------------------------------------- tests


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def check_code(self, done, code):
        self.assertEqual(done.returncode, code, (done.stdout or b"")[-300:] + done.stderr[-1000:])


class WithModel(WithFolder):
    def setUp(self):
        super().setUp()
        if STORIES is None:
            self.skipTest("NO MODEL: neither the reference results nor models/ has one")


class Usage(WithFolder):
    def test_overview(self):
        for arguments in [[], ["--help"], ["--help-all"], ["-h"], ["help"]]:
            done = sluice(*arguments)
            self.check_code(done, 0)
            self.assertEqual(done.stderr, b"")
            for command in COMMANDS:
                self.assertIn(command.encode(), done.stdout)
            self.assertLessEqual(len(done.stdout.splitlines()), 24)
        self.assertRegex(sluice("--version").stdout, rb"^sluice \d+\.\d+\.\d+\n$")

    def test_help_fits_a_screen(self):
        for command in COMMANDS:
            done = sluice(command, "--help")
            self.check_code(done, 0)
            lines = done.stdout.decode().splitlines()
            self.assertLessEqual(len(lines), 30, command)
            self.assertLessEqual(max(map(len, lines)), 100, command)
            self.assertEqual(sluice("help", command).stdout, done.stdout)
            everything = sluice(command, "--help-all").stdout.decode()
            flags = re.findall(r"^ +(?:-\w, )?(--[a-z-]+)", done.stdout.decode(), re.M)
            self.assertTrue(flags)
            for flag in flags:
                self.assertIn(flag, everything)
            self.assertLessEqual(max(map(len, everything.splitlines())), 100, command)

    def test_help_wins_over_other_faults(self):
        self.check_code(sluice("run", "--no-such-flag", "--help"), 0)

    def test_unknown_commands(self):
        for word, suggestion in [("rnu", b"run"), ("inspct", b"inspect"), ("perplexty", b"perplexity")]:
            done = sluice(word)
            self.check_code(done, 2)
            self.assertIn(b"did you mean " + suggestion, done.stderr)
        for word in ["quantize", "serve"]:  # not there yet, and not promised
            done = sluice(word)
            self.check_code(done, 2)
            self.assertIn(b"is not a command; commands are chat, run, batch, inspect", done.stderr)
            self.assertNotIn(b"did you mean", done.stderr)
            self.assertEqual(done.stdout, b"")
        self.check_code(sluice("--frobnicate"), 2)

    def test_wrong_flags(self):
        cases = [
            (["run", "--tmep", "1", "-p", "a"], b"unknown flag '--tmep'; did you mean --temp?"),
            (["run", "--temp", "0,7", "-p", "a"], b"--temp: '0,7' is not a number from 0 to 1000"),
            (["run", "--temp", "nan", "-p", "a"], b"--temp: 'nan'"),
            (["run", "--top-p", "1.5", "-p", "a"], b"--top-p: '1.5' is not a number from 0 to 1"),
            (["run", "--mirostat", "1", "-p", "a"], b"--mirostat: '1'"),
            (["run", "-n", "-3", "-p", "a"], b"--predict: '-3'"),
            (["run", "-c", "0", "-p", "a"], b"--ctx-size: '0'"),
            (["run", "--kv", "int3", "-p", "a"], b"--kv: 'int3' is not a cache type; expected int4, int8, f16 or f32"),
            (["run", "--device", "cuda", "-p", "a"], b"this build has no CUDA backend"),
            (["run", "--device", "cuda:1", "-p", "a"], b"this build has no CUDA backend"),
            (["run", "--device", "tpu", "-p", "a"], b"'tpu' is not a device"),
            (["run", "-ngl", "x", "-p", "a"], b"--gpu-layers: 'x' is not a number of layers"),
            (["run", "-p", "a", "-ngl"], b"--gpu-layers needs a value"),
            (["run", "-nglx", "1", "-p", "a"], b"unknown flag '-nglx'"),
            (["run", "--logit-bias", "x", "-p", "a"], b"--logit-bias: 'x'"),
            (["run", "--stop", "", "-p", "a"], b"--stop: the text is empty"),
            (["run", "--logprobs", "2", "-p", "a"], b"add --json"),
            (["run", "-p"], b"-p needs a value"),
            (["run", "-p", "a", "-f", "b"], b"several prompts"),
            (["run", "-p", "a", "-"], b"several prompts"),
            (["run", "-p", "a", "--prompt-tokens", "1"], b"several prompts"),
            (["run", "--prompt-tokens", "1,,2"], b"'' is not a token id"),
            (["run", "--prompt-tokens", "1", "--system", "s"], b"--system and --raw can't apply"),
            (["run", "-p", "a", "--raw", "--system", "s"], b"--raw turns off"),
            (["run", "a story"], b"unexpected argument 'a story'; a prompt is given with -p"),
            (["inspect"], b"one model file"),
            (["inspect", "a", "b"], b"unexpected argument 'b'"),
            (["perplexity"], b"wants a text: -f FILE"),
            (["bench", "-b", "0"], b"--rows: '0' is not a number of rows; expected whole numbers from 1 to 1024"),
            (["bench", "-b", "1,abc"], b"--rows: 'abc' is not a number of rows"),
            (["bench", "-b", "1025"], b"from 1 to 1024"),
            (["inspect", "m", "--fit", "-c", "abc"], b"--ctx-size: 'abc' is not a number of tokens; expected whole numbers from 1 "),
            (["inspect", "m", "--fit", "-c", "0"], b"'0' is not a number of tokens"),
        ]
        for arguments, message in cases:
            done = sluice(*arguments)
            with self.subTest(arguments=arguments):
                self.check_code(done, 2)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stdout, b"")

    def test_layers_on_a_gpu_are_refused_in_one_line(self):
        for value in ["99", "-1", "all"]:
            done = sluice("run", "-p", "a", "-n", "1", "-ngl", value, "--quiet")
            self.check_code(done, 0)
            self.assertEqual(done.stderr.count(b"\n"), 1, done.stderr)
            self.assertIn(b"no GPU backend; all layers run on the CPU", done.stderr)
        for name, value in [("-ngl", "0"), ("--n-gpu-layers", "auto")]:
            self.assertEqual(sluice("run", "-p", "a", "-n", "0", name, value, "--quiet").stderr, b"")

    def test_documentation_is_up_to_date(self):
        done = subprocess.run(
            [ROOT / "scripts/cli_docs.sh", PROGRAM, "--check"], capture_output=True, timeout=60
        )
        self.check_code(done, 0)

    def test_files_that_are_no_models(self):
        empty, text = self.folder / "empty.gguf", self.folder / "text.gguf"
        empty.write_bytes(b"")
        text.write_bytes(b"hello\n" * 100)
        for path in [self.folder / "missing.gguf", self.folder, empty, text]:
            for command in [["run", "-p", "a", "-m"], ["inspect"], ["tokenize", "x", "-m"]]:
                done = sluice(*command, path)
                self.check_code(done, 3)
                self.assertIn(b"sluice: error: ", done.stderr)
                self.assertEqual(done.stdout, b"")


class Run(WithModel):
    def test_stdout_is_the_answer(self):
        if CONFORMANCE is None:
            self.skipTest("NO REFERENCE RESULTS: the known text is not there to compare with")
        facts = json.loads((CONFORMANCE / "stories260K.json").read_text())
        expected = facts["text_of_prompt_and_first_200"][len(facts["prompt"]) :]
        done = run_model("-p", facts["prompt"], "--temp", "0", "-n", "200", "--kv", "f32", "--stats")
        self.check_code(done, 0)
        # The recorded text goes a little beyond 200 tokens.
        self.assertEqual(done.stdout.decode(), expected[: len(done.stdout.decode())])
        self.assertGreater(len(done.stdout), 400)
        for part in [b"seed ", b"threads", b"KV cache (f32", b"per token", b"cut after 200 tokens"]:
            self.assertIn(part, done.stderr)
        ids = ",".join(map(str, facts["prompt_ids"]))
        same = run_model("--prompt-tokens", ids, "--temp", "0", "-n", "200", "--kv", "f32", "--quiet")
        self.assertEqual((same.stdout, same.stderr), (done.stdout, b""))
        answer = json.loads(run_model("-p", facts["prompt"], "--temp", "0", "-n", "200", "--kv", "f32", "--json").stdout)
        self.assertEqual(answer["tokens"], facts["greedy_ids"])
        self.assertEqual(answer["text"].encode(), done.stdout)

    def test_json(self):
        done = run_model("--raw", "-p", "Once upon a time", "-n", "5", "-s", "7", "--json", "--logprobs", "2")
        self.check_code(done, 0)
        answer = json.loads(done.stdout)
        self.assertEqual(done.stdout.count(b"\n"), 1)
        self.assertEqual(len(answer["tokens"]), 5)
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(answer["seed"], 7)
        self.assertIsNone(answer["stop"])
        self.assertGreater(answer["prompt_tokens"], 1)
        self.assertEqual(
            set(answer["timings"]),
            {"load_ms", "ttft_ms", "tpot_ms", "tokens_per_s", "bytes_per_token", "bandwidth_share"},
        )
        self.assertTrue(all(isinstance(value, float) for value in answer["timings"].values()))
        self.assertEqual([entry["token"] for entry in answer["logprobs"]], answer["tokens"])
        for entry in answer["logprobs"]:
            self.assertEqual(len(entry["top"]), 2)
            self.assertGreaterEqual(entry["top"][0]["logprob"], entry["logprob"])

    def test_equal_seeds_give_equal_text(self):
        texts = [
            run_model("--raw", "-p", "One day", "-n", "30", "-s", seed, "--temp", "1.5", *more).stdout
            for seed, more in [("1", []), ("1", ["-t", "1"]), ("1", ["--prefill-chunk", "1"]), ("2", [])]
        ]
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(texts[0], texts[2])
        self.assertNotEqual(texts[0], texts[3])
        picked = run_model("-p", "One day", "-n", "1", "-s", "-1")
        self.assertRegex(picked.stderr, rb"sluice: seed \d+\n")

    def test_locale_changes_nothing(self):
        command = ["-p", "One day", "-n", "20", "-s", "1", "--temp", "0.7", "--stats", "--raw"]
        plain = run_model(*command, env={"PATH": os.environ["PATH"], "LC_ALL": "C"})
        german = run_model(*command, env={"PATH": os.environ["PATH"], "LC_ALL": "de_DE.UTF-8"})
        self.check_code(german, 0)
        self.assertEqual(german.stdout, plain.stdout)
        self.assertIn(b"flag: temp 0.7\n", german.stderr)
        self.assertNotRegex(german.stderr, rb"\d,\d")
        self.check_code(run_model("-p", "a", "--temp", "0,7", env={"LC_ALL": "de_DE.UTF-8"}), 2)

    def test_prompts_of_every_source_are_the_same(self):
        text = "Once upon a time"
        (self.folder / "prompt").write_text(text + "\n")
        options = ["--raw", "-n", "10", "--temp", "0", "--quiet"]
        expected = run_model("-p", text, *options).stdout
        self.assertNotEqual(expected, b"")
        self.assertEqual(run_model("-f", self.folder / "prompt", *options).stdout, expected)
        self.assertEqual(run_model("-", *options, stdin=text.encode()).stdout, expected)
        self.assertEqual(run_model("-f", "-", *options, stdin=text.encode()).stdout, expected)
        self.assertEqual(run_model(*options, stdin=text.encode() + b"\r\n").stdout, expected)
        two_line_ends = run_model("--json", *options, stdin=text.encode() + b"\n\n")
        one = run_model("--json", *options, "-p", text)
        self.assertGreater(
            json.loads(two_line_ends.stdout)["prompt_tokens"], json.loads(one.stdout)["prompt_tokens"]
        )

    def test_prompt_flag_leaves_stdin_alone(self):
        reader, writer = os.pipe()
        os.write(writer, b"untouched")  # and stays open: reading to its end would wait for ever
        done = run_model("-p", "One day", "-n", "3", stdin=reader, timeout=30)
        self.check_code(done, 0)
        self.assertEqual(os.read(reader, 100), b"untouched")
        os.close(reader)
        os.close(writer)

    def test_empty_prompts(self):
        done = run_model(stdin=b"")
        self.check_code(done, 2)
        self.assertIn(b"stdin is empty", done.stderr)
        self.check_code(run_model("-p", "", "-n", "3"), 0)
        self.check_code(run_model("-f", self.folder / "missing"), 3)

    def test_broken_text_in(self):
        path = self.folder / "prompt"
        path.write_bytes(b"One\0day \xff\xc3 \xe2\x82 then")
        done = run_model("-f", path, "-n", "3", "--json", "--raw")
        self.check_code(done, 0)
        whole = json.loads(done.stdout)["prompt_tokens"]
        path.write_bytes(b"One")
        cut = json.loads(run_model("-f", path, "-n", "3", "--json", "--raw").stdout)["prompt_tokens"]
        self.assertGreater(whole, cut, "NUL cuts the prompt short")
        done = subprocess.run(
            [PROGRAM, b"run", b"-m", os.fsencode(STORIES), b"-p", b"caf\xc3\xa9 \xff", b"-n", b"3"],
            capture_output=True, stdin=subprocess.DEVNULL, timeout=60,
        )
        self.check_code(done, 0)

    def test_ends(self):
        none = run_model("-p", "One day", "-n", "0")
        self.check_code(none, 0)
        self.assertEqual(none.stdout, b"")
        full = run_model("--raw", "-p", "One day", "-n", "-2", "-c", "40", "--json")
        self.check_code(full, 0)
        answer = json.loads(full.stdout)
        self.assertEqual(answer["finish_reason"], "context")
        self.assertEqual(answer["prompt_tokens"] + len(answer["tokens"]), 40)
        self.assertIn(b"sluice: the context of 40 tokens is full, as asked", full.stderr)
        cut = run_model("--raw", "-p", "One day", "--ignore-eos", "-c", "40")
        self.assertIn(b"sluice: cut: the context of 40 tokens is full", cut.stderr)
        greedy = ["--raw", "-p", "Once upon a time", "-n", "40", "--temp", "0"]
        text = run_model(*greedy).stdout.decode()
        stop = text[10:14]
        stopped = json.loads(run_model(*greedy, "--json", "--stop", "no such text", "-r", stop).stdout)
        self.assertEqual(stopped["text"], text[: text.index(stop)])
        self.assertEqual((stopped["finish_reason"], stopped["stop"]), ("stop", stop))

    def test_prompts_that_do_not_fit(self):
        done = run_model("-p", "One day there was a big dog", "-c", "4")
        self.check_code(done, 2)
        self.assertRegex(done.stderr, rb"the prompt has \d+ tokens, the context holds 4")
        self.check_code(run_model("--prompt-tokens", "1,1000000"), 2)
        done = run_model("-p", "a", "-c", str(2**31), "--kv", "f32")
        self.check_code(done, 4)
        self.assertRegex(done.stderr, rb"MiB are needed, \d+ MiB are available.*-c \d+ would fit")

    def test_output_that_cannot_be_written(self):
        command = ["-p", "One day", "-n", "300", "--ignore-eos"]
        with open("/dev/full", "wb") as full:
            for arguments in [command, [*command, "--json"]]:
                done = run_model(*arguments, stdout=full)
                self.check_code(done, 1)
                self.assertIn(b"can't write the output: No space left on device", done.stderr)
            self.check_code(sluice("--help", stdout=full), 1)
            self.check_code(sluice("inspect", STORIES, stdout=full), 1)
        reader, writer = os.pipe()
        os.close(reader)
        done = run_model(*command, stdout=writer)
        os.close(writer)
        self.check_code(done, 1)
        self.assertIn(b"closed pipe", done.stderr)
        shell = 'set -o pipefail; "$0" run -m "$1" -p "One day" -n 400 --ignore-eos | head -c 10'
        done = subprocess.run(["bash", "-c", shell, PROGRAM, STORIES], capture_output=True, timeout=60)
        self.check_code(done, 1)
        self.assertEqual(len(done.stdout), 10)
        done = subprocess.run(
            ["bash", "-c", '"$0" run -m "$1" -p "One day" -n 5 >&-', PROGRAM, STORIES],
            capture_output=True, timeout=60,
        )
        self.check_code(done, 1)

    def test_isa_is_forced_or_refused(self):
        done = run_model("-p", "One day", "-n", "3", "--cpu-isa", "generic", "--stats")
        self.check_code(done, 0)
        self.assertIn(b"generic", done.stderr)
        self.check_code(run_model("-p", "One day", "--cpu-isa", "neon3000"), 2)

    def test_bundled_model_is_said(self):
        done = sluice("run", "-p", "A story about a fox.", "-n", "4")
        if not BUNDLED.exists():
            self.check_code(done, 2)
            self.assertIn(b"no model given, and the bundled one", done.stderr)
            self.skipTest("NO BUNDLED MODEL: only its absence was tested")
        self.check_code(done, 0)
        self.assertIn(b"sluice: no -m given: using the bundled model", done.stderr)
        self.assertEqual(sluice("run", "-p", "Fox.", "-n", "0", "--quiet").stderr, b"")


CHATML = (
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' and m.content == 'no' %}"
    "{{ raise_exception('Only nice systems, please') }}{% endif %}"
    "[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant]"
)


class Templates(WithModel):
    def setUp(self):
        super().setUp()
        about = json.loads(sluice("inspect", STORIES, "--json").stdout)
        tokens = about["metadata"]["tokenizer.ggml.tokens"]
        self.adds_bos = about["tokenizer"]["add_bos"]
        self.bos, self.eos = tokens[about["tokenizer"]["bos"]], tokens[about["tokenizer"]["eos"]]
        self.plain = self.folder / "plain.gguf"
        with_metadata(STORIES, self.plain, {}, ["tokenizer.chat_template"])

    def model(self, template, **extra):
        path = self.folder / "model.gguf"
        with_metadata(STORIES, path, {"tokenizer.chat_template": template, **extra})
        return path

    def prompt_tokens(self, model, *arguments):
        done = sluice("run", "-m", model, "-n", "0", "--json", *arguments)
        self.check_code(done, 0)
        return json.loads(done.stdout)["prompt_tokens"], done.stderr

    def ids(self, text, *more):
        return json.loads(sluice("tokenize", "-m", STORIES, "--json", *more, "--", text).stdout)["ids"]

    def test_template_is_used(self):
        model = self.model(CHATML)
        expected = self.ids("[system] be kind\n[user] hello\n[assistant]")
        count, warnings = self.prompt_tokens(model, "-p", "hello", "--system", "be kind")
        self.assertEqual(count, 1 + len(expected))  # one BOS, that of the template
        self.assertEqual(warnings.count(b"warning"), 0, warnings)
        stats = sluice("run", "-m", model, "-p", "hello", "-n", "1", "--stats").stderr
        self.assertIn(b"chat template", stats)
        count, _ = self.prompt_tokens(model, "-p", "hello", "--raw")
        self.assertEqual(count, len(self.ids("hello", "--bos")))

    def test_template_refuses(self):
        done = sluice("run", "-m", self.model(CHATML), "-p", "hello", "--system", "no")
        self.check_code(done, 1)
        self.assertIn(b"Only nice systems, please", done.stderr)
        self.assertEqual(done.stdout, b"")

    def test_broken_template_is_an_error(self):
        for template in ["{% for x in %}", "{{ nothing() }}", "{% for i in range(99999999) %}x{% endfor %}"]:
            done = sluice("run", "-m", self.model(template), "-p", "hello")
            self.check_code(done, 1)
            self.assertIn(b"the chat template can't be used", done.stderr)
            self.assertIn(b"--raw", done.stderr)

    def test_typed_control_tokens_are_text(self):
        typed = self.eos + self.bos
        self.assertLess(len(self.ids(typed, "--special")), len(self.ids(typed)))
        count, _ = self.prompt_tokens(self.model(CHATML), "-p", typed)
        self.assertEqual(count, 1 + len(self.ids(f"[user] {typed}\n[assistant]")))
        # In a raw prompt they count, and two BOS bring a warning.
        raw, warnings = self.prompt_tokens(self.plain, "-p", self.bos + "hello", "--raw")
        self.assertEqual(raw, len(self.ids(self.bos + "hello", "--bos", "--special")))
        self.assertEqual(b"BOS twice" in warnings, self.adds_bos)
        plain, warnings = self.prompt_tokens(self.plain, "-p", self.bos + "hello")
        self.assertEqual(plain, len(self.ids(self.bos + "hello", "--bos")))
        self.assertGreater(plain, raw)
        self.assertNotIn(b"BOS twice", warnings)

    def test_double_bos_of_a_template(self):
        _, warnings = self.prompt_tokens(self.model("{{ bos_token }}" + CHATML), "-p", "hello")
        self.assertIn(b"chat template begins the prompt with BOS twice", warnings)

    def test_system_needs_a_template(self):
        done = sluice("run", "-m", self.plain, "-p", "hello", "--system", "be kind")
        self.check_code(done, 2)
        self.assertIn(b"--system needs a chat template", done.stderr)

    def test_sampling_defaults_of_the_file(self):
        model = self.model(CHATML, **{"general.sampling.temp": 0.25, "general.sampling.top_k": 17})
        stats = sluice("run", "-m", model, "-p", "hi", "-n", "1", "--top-k", "5", "--stats").stderr
        self.assertRegex(stats, rb"flag: top-k 5\n")
        self.assertRegex(stats, rb"file: .*temp 0.25\n")
        self.assertRegex(stats, rb"built in: .*min-p 0.05,")


class OnATerminal(WithModel):
    ESCAPE = 3 + 0x1B  # the byte token <0x1B> of the model's vocabulary

    def test_control_characters_are_escaped(self):
        if CONFORMANCE is None:
            self.skipTest("NO REFERENCE RESULTS: the token of the ESC byte is not known")
        command = ["-p", "One day", "-n", "2", "--logit-bias", f"{self.ESCAPE}+10000", "--temp", "0"]
        piped = run_model(*command)
        self.assertEqual(piped.stdout, b"\x1b\x1b")
        terminal = Terminal("run", "-m", STORIES, *command)
        self.assertEqual(terminal.finish(), 0)
        self.assertIn(rb"\x1b\x1b", terminal.data)
        self.assertNotIn(b"\x1b", terminal.data)
        answer = json.loads(run_model(*command, "--json").stdout)
        self.assertEqual(answer["text"], "\x1b\x1b")

    def test_a_line_end_follows(self):
        command = ["--raw", "-p", "Once upon a time", "-n", "5", "--temp", "0", "--quiet"]
        piped = run_model(*command)
        terminal = Terminal("run", "-m", STORIES, *command)
        before = terminal.before
        self.assertEqual(terminal.finish(), 0)
        self.assertEqual(terminal.data, piped.stdout + b"\r\n")
        self.assertEqual(len(before), 7)

    def test_no_prompt_is_an_error(self):
        terminal = Terminal("run", "-m", STORIES)
        self.assertEqual(terminal.finish(10), 2)
        self.assertIn(b"no prompt; give one with -p", terminal.data)

    def test_prompt_typed_in(self):
        terminal = Terminal("run", "-m", STORIES, "-", "-n", "3")
        terminal.read(20, lambda data: b"Ctrl-D" in data)
        terminal.type(b"One day\n\x04")
        self.assertEqual(terminal.finish(), 0)


class Interrupts(WithModel):
    """Ctrl-C typed on a terminal, and signals; the time from it to the exit is printed."""

    LONG = ["-c", "200000", "-n", "-2", "-s", "1", "--raw"]

    def long_prompt(self):
        path = self.folder / "prompt"
        path.write_text("Once upon a time there was a dog. " * 15000)
        return path

    def check_exit(self, terminal, what, codes=(130,)):
        attributes = terminal.attributes()
        start = time.monotonic()
        terminal.type(b"\x03")
        code = terminal.finish(20)
        seconds = time.monotonic() - start
        print(f"Ctrl-C while {what}: {1000 * seconds:.0f} ms", file=sys.stderr)
        self.assertIn(code, codes, terminal.data[-300:])
        self.assertLess(seconds, INTERRUPT_SECONDS, what)
        self.assertEqual(attributes, terminal.before)
        self.assertFalse(terminal.data.rstrip().endswith(b"left"), "a progress line is left behind")

    def test_while_generating(self):
        terminal = Terminal("run", "-m", STORIES, "-p", "One day", *self.LONG)
        terminal.read(30, lambda data: len(data) > 300)
        self.check_exit(terminal, "generating")

    def test_while_reading_the_prompt(self):
        terminal = Terminal("run", "-m", STORIES, "-f", self.long_prompt(), *self.LONG)
        terminal.read(60, lambda data: b"reading the prompt" in data)
        self.assertRegex(terminal.data, rb"reading the prompt \d+%, \d+ of \d+ tokens, \d+ t/s")
        self.check_exit(terminal, "reading the prompt")

    def test_while_loading(self):
        for delay in [0.0, 0.01, 0.02, 0.05, 0.1]:
            terminal = Terminal("run", "-m", STORIES, "-p", "One day", *self.LONG)
            time.sleep(delay)
            # Before the program has come to install its handler, the signal itself ends it.
            self.check_exit(terminal, f"starting ({1000 * delay:.0f} ms)", (130, -signal.SIGINT))

    def test_while_waiting_for_stdin(self):
        terminal = Terminal("run", "-m", STORIES, "-", "-n", "3")
        terminal.read(20, lambda data: b"Ctrl-D" in data)
        self.check_exit(terminal, "waiting for stdin")

    def test_while_scoring(self):
        terminal = Terminal("perplexity", "-m", STORIES, "-f", self.long_prompt(), "-c", "8192")
        terminal.read(60, lambda data: b"scoring" in data)
        self.assertRegex(terminal.data, rb"scoring \d+%, \d+ of \d+ tokens, perplexity \d+\.\d+")
        self.check_exit(terminal, "scoring")

    def start(self, *arguments):
        process = subprocess.Popen(
            [PROGRAM, "run", "-m", str(STORIES), *map(str, arguments)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        self.addCleanup(process.kill)
        return process

    def test_json_of_an_interrupted_run(self):
        for prompt in [["-p", "One day"], ["-f", self.long_prompt()]]:
            for seconds in [1, 3, 10, 30]:  # until the model is loaded before the signal comes
                process = self.start(*prompt, *self.LONG, "--json")
                time.sleep(seconds)
                process.send_signal(signal.SIGINT)
                out, err = process.communicate(timeout=20)
                self.assertEqual(process.returncode, 130, err)
                if out:
                    break
            answer = json.loads(out)
            self.assertEqual(answer["finish_reason"], "interrupted")
            self.assertIsNone(answer["timings"]["bandwidth_share"])
            self.assertEqual(err.splitlines()[-1], b"sluice: interrupted")

    def test_terminate_is_like_interrupt(self):
        process = self.start("-p", "One day", *self.LONG)
        process.stdout.read(100)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130)

    def test_writer_that_waits_for_its_reader(self):
        process = self.start("-p", "One day", *self.LONG)
        time.sleep(3)  # nobody reads: the pipe is full or the run goes on
        start = time.monotonic()
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(20), 130)
        self.assertLess(time.monotonic() - start, INTERRUPT_SECONDS)
        process.communicate()

    def test_waiting_takes_no_time(self):
        reader, writer = os.pipe()
        process = subprocess.Popen(
            [PROGRAM, "run", "-m", str(STORIES)], stdin=reader, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        time.sleep(2)
        ticks = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        seconds = (int(ticks[11]) + int(ticks[12])) / os.sysconf("SC_CLK_TCK")
        self.assertLess(seconds, 0.5)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130)
        os.close(reader)
        os.close(writer)


class Inspect(WithFolder):
    HOSTILE = b"evil\x1b]0;title\x07\r\nsecond line\x9b31m\xe2\x80\xae"

    def hostile(self):
        path = self.folder / "hostile.gguf"
        write_gguf(
            path,
            {
                "general.architecture": b"\x1b[2J" + self.HOSTILE,
                self.HOSTILE: self.HOSTILE * 100,
                "tokenizer.ggml.model": self.HOSTILE,
                "tokenizer.chat_template": self.HOSTILE,
                "not.a.number": float("nan"),
            },
            [(self.HOSTILE, [1.0, 2.0]), ("plain", [3.0])],
        )
        return path

    def check_harmless(self, data):
        self.assertNotRegex(data, rb"[\x00-\x08\x0b-\x1f\x7f]")
        data.decode("utf-8")
        self.assertNotIn("\u202e", data.decode())
        self.assertNotIn(b"\nsecond line", data)

    def test_hostile_names(self):
        path = self.hostile()
        for arguments in [[], ["--tensors"]]:
            done = sluice("inspect", path, *arguments)
            self.check_code(done, 0)
            self.check_harmless(done.stdout)
            self.assertIn(rb"\x1b]0;title", done.stdout)
        done = sluice("inspect", path, "--json")
        self.check_code(done, 0)
        everything = json.loads(done.stdout)
        self.assertIsNone(everything["metadata"]["not.a.number"])
        self.assertEqual([tensor["shape"] for tensor in everything["tensors"]], [[2], [1]])
        self.assertFalse(everything["runnable"])
        for arguments in [["inspect", path, "--fit"], ["run", "-m", path, "-p", "a"]]:
            done = sluice(*arguments)
            self.check_code(done, 3)
            self.check_harmless(done.stderr)
        terminal = Terminal("inspect", path)
        self.assertEqual(terminal.finish(), 0)
        self.check_harmless(terminal.data.replace(b"\r\n", b"\n"))

    def test_cut_files(self):
        whole = self.hostile().read_bytes()
        cut = self.folder / "cut.gguf"
        for size in range(0, len(whole) - 64, 97):
            cut.write_bytes(whole[:size])
            self.check_code(sluice("inspect", cut), 3)

    def test_unknown_architecture_is_shown(self):
        path = self.folder / "model.gguf"
        write_gguf(path, {"general.architecture": "mamba99", "mamba99.block_count": 3})
        done = sluice("inspect", path)
        self.check_code(done, 0)
        self.assertIn(b"mamba99", done.stdout)
        self.assertRegex(done.stdout, rb"can be run +no: ")

    def test_model(self):
        if STORIES is None:
            self.skipTest("NO MODEL")
        done = sluice("inspect", STORIES)
        self.check_code(done, 0)
        for part in [b"architecture", b"parameters", b"tokenizer", b"chat template", b"metadata ("]:
            self.assertIn(part, done.stdout)
        self.assertLess(max(map(len, done.stdout.splitlines())), 400)
        done = sluice("inspect", "-m", STORIES, "--tensors")
        self.assertIn(b"token_embd.weight", done.stdout)

    def test_fit(self):
        if STORIES is None:
            self.skipTest("NO MODEL")
        done = sluice("inspect", STORIES, "--fit", "-c", "64,128")
        self.check_code(done, 0)
        self.assertRegex(done.stdout, rb"\n64 .* t/s.*\n128 .* t/s")
        fit = json.loads(sluice("inspect", STORIES, "--fit", "-c", "64,128", "--json").stdout)["fit"]
        rows = {(row["context"], row["kv"]): row for row in fit["contexts"]}
        self.assertEqual(len(rows), 8)
        self.assertEqual(2 * rows[64, "f16"]["kv_bytes"], rows[128, "f16"]["kv_bytes"])
        self.assertGreater(rows[64, "f32"]["kv_bytes"], rows[64, "f16"]["kv_bytes"])
        self.assertGreater(rows[64, "int8"]["tokens_per_s"], 0)
        self.assertTrue(rows[64, "int8"]["fits"])
        self.assertGreater(fit["largest_context"]["int8"], fit["largest_context"]["f32"])
        self.assertGreater(fit["largest_context"]["int4"], fit["largest_context"]["int8"])
        # What is said to fit does, and what run takes is what was planned.
        stats = json.loads(run_model("-p", "a", "-n", "1", "-c", "64", "--kv", "f16", "--json", "--raw").stdout)
        self.assertGreaterEqual(stats["timings"]["bytes_per_token"] or 0, 0)


class Tokenize(WithModel):
    def test_forms(self):
        done = sluice("tokenize", "-m", STORIES, "--json", "Once upon")
        self.check_code(done, 0)
        ids = json.loads(done.stdout)["ids"]
        self.assertGreater(len(ids), 0)
        piped = sluice("tokenize", "-m", STORIES, "--json", stdin=b"Once upon")
        self.assertEqual(json.loads(piped.stdout), {"ids": ids})
        many = sluice("tokenize", "-m", STORIES, "--json", stdin=b'["Once upon", "", "\\u00e9\\u0000"]')
        answers = json.loads(many.stdout)
        self.assertEqual(answers[0], {"ids": ids})
        self.assertEqual(len(answers), 3)
        lines = sluice("tokenize", "-m", STORIES, "Once upon").stdout.splitlines()
        self.assertEqual([int(line.split()[0]) for line in lines], ids)
        with_bos = json.loads(sluice("tokenize", "-m", STORIES, "--json", "--bos", "Once upon").stdout)["ids"]
        self.assertEqual(with_bos[-len(ids) :], ids)

    def test_faults(self):
        self.check_code(sluice("tokenize", "-m", STORIES, "--json", stdin=b'["a", 5]'), 3)
        broken = sluice("tokenize", "-m", STORIES, "--json", stdin=b'["a", ')
        self.check_code(broken, 3)
        self.assertIn(b"no valid JSON", broken.stderr)
        not_utf8 = sluice("tokenize", "-m", STORIES, stdin=b"caf\xe9 x")
        self.check_code(not_utf8, 0)
        self.assertIn(b"the text is not UTF-8 throughout: 1 byte is read as U+FFFD", not_utf8.stderr)

    def test_pieces_are_escaped(self):
        done = sluice("tokenize", "-m", STORIES, stdin=b"a\x1b[2J\n\0\xff")
        self.check_code(done, 0)
        self.assertNotRegex(done.stdout, rb"[\x00-\x09\x0b-\x1f]")
        done.stdout.decode("utf-8")


class Perplexity(WithModel):
    def text(self):
        if CONFORMANCE is not None:
            return CONFORMANCE / "stories.txt"
        path = self.folder / "text"
        path.write_text("Once upon a time there was a fox. It had a lantern. " * 200)
        return path

    def score(self, *arguments):
        done = sluice("perplexity", "-m", STORIES, "-f", self.text(), *arguments)
        self.check_code(done, 0)
        return done.stdout.decode()

    def test_figures(self):
        if CONFORMANCE is None:
            self.skipTest("NO REFERENCE RESULTS: there are no figures to compare with")
        facts = json.loads((CONFORMANCE / "stories260K.json").read_text())["perplexity"]
        for window in [256, 512]:
            expected = facts[f"n_ctx_{window}"]
            out = self.score("-c", window, "--kv", "f32")
            last = out.splitlines()[-1]
            match = re.fullmatch(r"perplexity: ([\d.]+) \+- ([\d.]+) over (\d+) tokens", last)
            self.assertIsNotNone(match, last)
            print(f"window {window}: {last} (reference {expected['ppl']})", file=sys.stderr)
            self.assertLess(abs(float(match[1]) / expected["ppl"] - 1), 1e-3)
            self.assertEqual(int(match[3]), expected["chunks"] * (window // 2 - 1))
        answer = json.loads(self.score("-c", 256, "--kv", "f32", "--json"))
        self.assertLess(abs(answer["perplexity"] / facts["n_ctx_256"]["ppl"] - 1), 1e-3)
        self.assertRegex(answer["line"], r"^perplexity: [\d.]+ \+- [\d.]+ over \d+ tokens$")

    def test_reference(self):
        reference = self.folder / "reference"
        plain = self.score("-c", 64, "--kv", "f32", "--reference", reference)
        self.assertNotIn("KL", plain)
        self.assertEqual(os.listdir(self.folder).count("reference"), 1)
        self.assertFalse([name for name in os.listdir(self.folder) if "partial" in name])
        same = json.loads(self.score("-c", 64, "--kv", "f32", "--reference", reference, "--json"))["comparison"]
        self.assertLess(abs(same["kl_divergence"]["mean"]), 1e-6)
        self.assertEqual(same["same_top"]["mean"], 1)
        self.assertEqual(same["perplexity_ratio"], 1)
        other = json.loads(self.score("-c", 64, "--kv", "int8", "--reference", reference, "--json"))["comparison"]
        self.assertGreater(other["kl_divergence"]["mean"], 0)
        self.assertLess(other["kl_divergence"]["mean"], 0.05)
        self.assertIn("KL divergence: ", self.score("-c", 64, "--kv", "int8", "--reference", reference))
        small = json.loads(self.score("-c", 64, "--kv", "int4", "--reference", reference, "--json"))["comparison"]
        self.assertGreater(small["kl_divergence"]["mean"], 0)
        self.assertLess(small["kl_divergence"]["mean"], 0.05)

        def refusal(*arguments):
            done = sluice("perplexity", "-m", STORIES, "--reference", reference, *arguments)
            self.check_code(done, 3)
            return done.stderr

        self.assertIn(b"window", refusal("-f", self.text(), "-c", "128"))
        text = self.folder / "other"
        text.write_bytes(b"Then" + self.text().read_bytes()[4:])
        self.assertIn(b"another text", refusal("-f", text, "-c", "64"))
        reference.write_bytes(reference.read_bytes()[:-100])
        self.assertIn(b"damaged", refusal("-f", self.text(), "-c", "64"))
        reference.write_bytes(b"my precious file")
        self.assertIn(b"no reference file", refusal("-f", self.text(), "-c", "64"))
        self.assertEqual(reference.read_bytes(), b"my precious file")

    def test_short_texts(self):
        text = self.folder / "short"
        text.write_text("Once")
        done = sluice("perplexity", "-m", STORIES, "-f", text)
        self.check_code(done, 2)
        self.assertEqual(done.stdout, b"")


class Bench(WithModel):
    def test_serve(self):
        arrivals = self.folder / "arrivals.jsonl"
        arrivals.write_text('{"at": 0, "prompt_tokens": 5, "tokens": 3}\n\n{"at": 0.01, "prompt_tokens": 70, "tokens": 1}\n')
        report = self.folder / "page.html"
        done = sluice("bench", "-m", STORIES, "--serve", "--arrivals", arrivals, "-c", 128, "--json", "--report", report)
        self.check_code(done, 0)
        results = json.loads(done.stdout)["serve"]
        self.assertEqual([each["policy"] for each in results], ["static", "continuous", "chunked", "prefix", "latency"])
        for each in results:
            self.assertEqual(each["requests"], 2)
            self.assertEqual(each["prompt_tokens"], 75)
        self.assertIn("<svg", report.read_text())
        done = sluice("bench", "-m", STORIES, "--serve", "--requests", 6, "--rate", 500, "--rate", 0, "--policies", "static,prefix", "-c", 128)
        self.check_code(done, 0)
        self.assertEqual(len([line for line in done.stdout.decode().splitlines() if line.startswith(("static", "prefix"))]), 4)
        for arguments, code, message in [
            (["--rate", "3"], 2, b"--rate has no meaning without --serve"),
            (["--serve", "-p", "3"], 2, b"about passes"),
            (["--serve", "--policies", "x"], 2, b"'x'"),
            (["--serve", "--rate", "-1"], 2, b"'-1'"),
            (["--serve", "--report", "x.json"], 2, b".html"),
            (["--serve", "--arrivals", report, "--report", report], 2, b"is read by this run"),
            (["--serve", "--prefix", "5000"], 2, b"--prefix 5000"),
            (["--serve", "--arrivals", arrivals, "-c", "32"], 3, b"needs 71 tokens"),
        ]:
            with self.subTest(arguments=arguments):
                done = sluice("bench", "-m", STORIES, *arguments)
                self.check_code(done, code)
                self.assertIn(message, done.stderr)
        arrivals.write_text('{"at": 1, "prompt_tokens": 5, "tokens": 3}\n{"at": 0, "prompt_tokens": 7, "tokens": 1}\n')
        done = sluice("bench", "-m", STORIES, "--serve", "--arrivals", arrivals)
        self.check_code(done, 3)
        self.assertIn(b"line 2", done.stderr)

    def test_json(self):
        done = sluice("bench", "-m", STORIES, "-p", 32, "-n", 8, "-d", 16, "-b", "1,4", "-r", 1, "--json")
        self.check_code(done, 0)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["prompt"]["tokens"], 32)
        self.assertEqual([entry["depth"] for entry in answer["decode"]], [16])
        self.assertEqual([entry["rows"] for entry in answer["passes"]], [1, 4])
        for entry in answer["decode"] + answer["passes"]:
            self.assertGreater(entry["ms"], 0)
            self.assertGreater(entry["bytes"], 0)
            self.assertGreater(entry["operations"], 0)
            self.assertNotIn("stages", entry)
        self.assertAlmostEqual(answer["passes"][1]["operations"] / answer["passes"][0]["operations"], 4)
        self.assertGreater(answer["bandwidth"], 1e8)
        self.assertGreater(answer["arithmetic"], 1e8)

    def test_profile(self):
        done = sluice("bench", "-m", STORIES, "-p", 0, "-n", 4, "-b", 2, "-r", 1, "--profile")
        self.check_code(done, 0)
        for stage in (b"query, key, value", b"attention", b"gate and up", b"logits"):
            self.assertEqual(len(re.findall(rb"\n  " + stage + rb" +[\d.]+ ms +[\d.]+%", done.stdout)), 2, stage)
        done = sluice("bench", "-m", STORIES, "-p", 0, "-n", 1, "-b", 2, "-r", 1, "--profile", "--json")
        self.check_code(done, 0)
        for entry in json.loads(done.stdout)["decode"]:
            self.assertEqual(sum(stage["bytes"] for stage in entry["stages"]), entry["bytes"])
        for arguments in (["--profile", "--serve"], ["-b", "1", "--serve"]):
            self.check_code(sluice("bench", "-m", STORIES, *arguments), 2)

    def test_text(self):
        done = sluice("bench", "-m", STORIES, "-p", 0, "-n", 4, "-b", 2, "-r", 1)
        self.check_code(done, 0)
        self.assertNotIn(b"prompt of", done.stdout)
        self.assertRegex(done.stdout, rb"decode at depth 0: [\d.]+ t/s")
        self.assertRegex(done.stdout, rb"pass of 2 rows: [\d.]+ ms")


def main():
    global PROGRAM, CONFORMANCE, STORIES
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    PROGRAM = os.path.realpath(sys.argv.pop(1))
    folder = Path(sys.argv.pop(1))
    if (folder / "stories260K.gguf").exists():
        CONFORMANCE = folder
        STORIES = folder / "stories260K.gguf"
    else:
        print(f"SKIPPED in part: no reference results in {folder}", file=sys.stderr)
        if BUNDLED.exists():
            STORIES = BUNDLED
    unittest.main()


if __name__ == "__main__":
    main()
