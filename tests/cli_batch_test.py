"""Black-box tests of `sluice batch`, run by CTest as `cli_batch` (Python's standard library only).

    python3 tests/cli_batch_test.py PROGRAM [unittest arguments]

SLUICE_BATCH_KILLS says how often a batch is killed in the test of that (6; the full test is 50).
"""

import html.parser
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = None
KILLS = int(os.environ.get("SLUICE_BATCH_KILLS", "6"))
FAST = ["-n", "8", "-c", "256", "-t", "1"]


def items(count, **more):
    heroes = ["fox", "bear", "owl", "hare", "wolf"]
    return [
        {"id": f"item-{i}", "prompt": f"Tell me a story about a {heroes[i % 5]} and number {i}.", "temperature": 1.2, **more}
        for i in range(count)
    ]


def jsonl(objects):
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in objects).encode()


def without_timings(line):
    answer = json.loads(line)
    answer.pop("timings", None)
    body = (answer.get("response") or {}).get("body", {})
    body.pop("timings", None)
    body.pop("created", None)
    return json.dumps(answer, ensure_ascii=False)


class Batch(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-batch-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, name, data=None):
        path = self.folder / name
        if data is not None:
            path.write_bytes(data if isinstance(data, bytes) else jsonl(data))
        return path

    def command(self, source, target, *arguments):
        return [PROGRAM, "batch", "-i", str(source), "-o", str(target), *FAST, *map(str, arguments)]

    def batch(self, source, target, *arguments, code=0, **options):
        options.setdefault("stdin", subprocess.DEVNULL) if "input" not in options else None
        done = subprocess.run(self.command(source, target, *arguments), capture_output=True, timeout=300, **options)
        self.assertEqual(done.returncode, code, done.stderr.decode()[-1500:])
        return done

    def answers(self, path):
        """All lines of an output without what depends on time; each must be whole and UTF-8."""
        data = path if isinstance(path, bytes) else Path(path).read_bytes()
        self.assertTrue(data == b"" or data.endswith(b"\n"))
        return [without_timings(line) for line in data.decode("utf-8").splitlines()]

    def by_id(self, path):
        found = {}
        for line in self.answers(path):
            answer = json.loads(line)
            key = answer.get("custom_id", answer["id"])
            self.assertNotIn(key, found)
            found[key] = answer
        return found


class Formats(Batch):
    def test_native(self):
        source = self.path("in.jsonl", items(3) + [{"id": 7, "messages": [{"role": "user", "content": "Hi"}], "tokens": True}])
        done = self.batch(source, self.path("out.jsonl"))
        self.assertEqual(done.stdout, b"")
        lines = [json.loads(line) for line in self.path("out.jsonl").read_text().splitlines()]
        self.assertEqual({line["id"] for line in lines}, {"item-0", "item-1", "item-2", 7})
        for line in lines:
            self.assertLessEqual(line["generated_tokens"], 8)
            self.assertIn(line["finish_reason"], ["stop", "length"])
            self.assertEqual(set(line["timings"]), {"queue_ms", "ttft_ms", "tpot_ms"})
            self.assertGreater(line["timings"]["ttft_ms"], 0)
        seven = next(line for line in lines if line["id"] == 7)
        self.assertEqual(len(seven["tokens"]), seven["generated_tokens"])
        for part in [b"4 answered, 0 failed", b"TTFT", b"p99", b"items/s", b"KV cache"]:
            self.assertIn(part, done.stderr)

    def test_the_answer_is_that_of_run(self):
        text = "Tell me a story about a fox and a lantern."
        source = self.path("in.jsonl", [{"id": "a", "prompt": text, "temperature": 0}])
        self.batch(source, self.path("out.jsonl"))
        run = subprocess.run(
            [PROGRAM, "run", "-p", text, "--temp", "0", "--json", *FAST], capture_output=True, timeout=60, check=True
        )
        self.assertEqual(json.loads(self.answers(self.path("out.jsonl"))[0])["text"], json.loads(run.stdout)["text"])

    def test_openai(self):
        def request(name, url, body):
            return {"custom_id": name, "method": "POST", "url": url, "body": body}

        hello = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Tell me a story."}], "max_tokens": 5}
        source = self.path("in.jsonl", [
            request("chat", "/v1/chat/completions", {**hello, "logprobs": True, "top_logprobs": 2}),
            request("text", "/v1/completions", {"model": "x", "prompt": "Once upon a time", "max_tokens": 4}),
            request("three", "/v1/chat/completions", {**hello, "n": 3}),
            request("json", "/v1/chat/completions", {**hello, "response_format": {"type": "json_object"}}),
            request("embed", "/v1/embeddings", {"input": "x"}),
        ])
        done = self.batch(source, self.path("out.jsonl"), code=1)
        found = self.by_id(self.path("out.jsonl"))
        self.assertEqual(list(found["chat"]), ["id", "custom_id", "response", "error"])
        body = found["chat"]["response"]["body"]
        self.assertEqual(found["chat"]["response"]["status_code"], 200)
        self.assertEqual(body["object"], "chat.completion")
        self.assertEqual(body["usage"]["completion_tokens"], 5)
        choice = body["choices"][0]
        self.assertEqual((choice["index"], choice["finish_reason"], choice["message"]["role"]), (0, "length", "assistant"))
        self.assertEqual(len(choice["logprobs"]["content"]), 5)
        self.assertEqual(len(choice["logprobs"]["content"][0]["top_logprobs"]), 2)
        self.assertEqual(found["text"]["response"]["body"]["object"], "text_completion")
        self.assertIsInstance(found["text"]["response"]["body"]["choices"][0]["text"], str)
        for name in ["three", "json", "embed"]:
            self.assertEqual(found[name]["response"]["status_code"], 400)
            self.assertIn("line ", found[name]["response"]["body"]["error"]["message"])
        self.assertEqual(done.stderr.count(b"asks for the model"), 1)
        self.assertIn(b"3 of 5 items failed", done.stderr)

    def test_lines(self):
        source = self.path("in.txt", b"\xef\xbb\xbfOne day\r\n\r\n  \nTwo foxes\nbad \xff byte\nlast without an end")
        done = self.batch(source, self.path("out.jsonl"), "--lines", "--ordered")
        self.assertEqual([json.loads(line)["id"] for line in self.answers(self.path("out.jsonl"))], [1, 4, 5, 6])
        self.assertIn(b"1 lines held bytes that are not UTF-8", done.stderr)

    def test_stdin_and_stdout(self):
        data = jsonl(items(3))
        self.batch(self.path("in.jsonl", data), self.path("out.jsonl"))
        done = self.batch("-", "-", input=data)
        self.assertEqual(self.answers(done.stdout), self.answers(self.path("out.jsonl")))
        self.assertEqual(sorted(os.listdir(self.folder)), ["in.jsonl", "out.jsonl", "out.jsonl.run"])

    def test_a_slow_pipe_is_answered_as_it_comes(self):
        process = subprocess.Popen(
            self.command("-", "-", "--quiet"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for item in items(2):
            process.stdin.write(jsonl([item]))
            process.stdin.flush()
            self.assertEqual(json.loads(process.stdout.readline())["id"], item["id"])
        _, errors = process.communicate(timeout=30)
        self.assertEqual((process.returncode, errors), (0, b""))

    def test_bad_lines_and_the_rest_goes_on(self):
        data = (
            b'\xef\xbb\xbf{"id":"a","prompt":"One"}\r\n\r\n   \nnot json\n[1,2]\n{"id":"a","prompt":"Two"}\n'
            b'{"prompt":"no id"}\n{"id":"b","prompt":"x","temperature":"hot"}\n{"id":"c"}\n"\xff\xfe"\n'
            b'{"id":"deep","prompt":' + b"[" * 5000 + b"\n" + b"\0\n"
            b'{"id":"d","prompt":"x","frobnicate":1}\n{"id":"e","prompt":"x","frobnicate":2}'
        )
        source = self.path("in.jsonl", data)
        done = self.batch(source, self.path("out.jsonl"), code=1)
        found = self.by_id(self.path("out.jsonl"))
        good = {"a", "line-7", "d", "e"}
        self.assertEqual(set(found), good | {"line-4", "line-5", "line-6", "b", "c", "line-10", "line-11", "line-12"})
        for name, answer in found.items():
            self.assertEqual("error" in answer, name not in good, name)
        self.assertEqual(found["line-4"]["line"], 4)
        self.assertIn("'a' was on line 1 already", found["line-6"]["error"])
        self.assertIn("'temperature'", found["b"]["error"])
        self.assertEqual(done.stderr.count(b"unknown key 'frobnicate'"), 1)
        self.assertIn(b"8 of 12 items failed", done.stderr)
        # Errors are not tried again, unless asked for; the exit code still tells.
        before = self.path("out.jsonl").read_bytes()
        again = self.batch(source, self.path("out.jsonl"), code=1)
        self.assertEqual(self.path("out.jsonl").read_bytes(), before)
        self.assertIn(b"8 of them in an earlier run", again.stderr)
        source.write_bytes(data.replace(b'"hot"', b"0.5"))
        mended = self.batch(source, self.path("out.jsonl"), "--retry-errors", code=1)
        self.assertIn(b"the input is not what the output was begun with", mended.stderr)
        last = {json.loads(line)["id"]: json.loads(line) for line in self.answers(self.path("out.jsonl"))}
        self.assertNotIn("error", last["b"])
        self.assertIn(b"7 of 12 items failed", mended.stderr)

    def test_a_line_of_50_megabytes(self):
        source = self.path("in.jsonl")
        with open(source, "wb") as file:
            file.write(b'{"id":"big","prompt":"' + b"x" * 50_000_000 + b'"}\n' + jsonl(items(1)))
        started = time.monotonic()
        self.batch(source, self.path("out.jsonl"), code=1)
        self.assertLess(time.monotonic() - started, 60)
        found = self.by_id(self.path("out.jsonl"))
        self.assertEqual(set(found), {"line-1", "item-0"})
        self.assertIn("50000024 bytes", found["line-1"]["error"])

    def test_broken_bytes_of_the_model_are_valid_utf8_in_the_answer(self):
        # Tokens of half characters, drawn at random, are all but certain to break some.
        source = self.path("in.jsonl", items(12, temperature=1000, top_k=0, top_p=1, min_p=0, max_tokens=40))
        self.batch(source, self.path("out.jsonl"))
        texts = "".join(json.loads(line)["text"] for line in self.answers(self.path("out.jsonl")))
        self.assertIn("\N{REPLACEMENT CHARACTER}", texts)

    def test_empty_input(self):
        for data in [b"", b"\n\n", b"\xef\xbb\xbf"]:
            target = self.path("out.jsonl")
            target.unlink(missing_ok=True)
            self.batch(self.path("in.jsonl", data), target)
            self.assertEqual(target.read_bytes(), b"")
        done = self.batch("-", self.path("piped.jsonl"), code=3, input=b"\n")
        self.assertIn(b"standard input has no items", done.stderr)

    def test_a_context_of_one_token(self):
        for slots in ("auto", "2"):
            target = self.path(f"{slots}.jsonl")
            source = self.path("in.jsonl", items(2))
            command = [PROGRAM, "batch", "-i", source, "-o", target, "-c", "1", "-t", "1", "--slots", slots]
            done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertEqual(len(self.answers(target)), 2)
            self.assertIn("the context holds 1", json.loads(self.answers(target)[0])["error"])
            self.assertIn(b"2 of 2 items failed", done.stderr)

    def test_conversations_without_a_template(self):
        model = self.path("plain.gguf")
        subprocess.run([Path(PROGRAM).parent / "tools/make_model", model], check=True, capture_output=True)
        source = self.path("in.jsonl", [{"id": str(i), "messages": [{"role": "user", "content": "x"}]} for i in range(2)])
        done = self.batch(source, "-", "-m", model)
        self.assertEqual(done.stderr.count(b"no chat template: conversations go to it as plain"), 1)

    def test_content_that_is_no_text(self):
        messages = [5, {"a": 1}, True]
        source = self.path("in.jsonl", [{"id": str(i), "messages": [{"role": "user", "content": m}]} for i, m in enumerate(messages)])
        self.batch(source, self.path("out.jsonl"), code=1)
        for line in self.answers(self.path("out.jsonl")):
            self.assertIn("expected a text or a list of parts", json.loads(line)["error"])

    def test_token_ids_stay_without_the_prefix(self):
        source = self.path("in.jsonl", [{"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {"prompt": [5, 6, 7], "max_tokens": 2}}])
        done = self.batch(source, "-", "--prefix-file", self.path("prefix", b"Once"))
        self.assertIn(b"prompts of token ids stay without it", done.stderr)

    def test_ordered(self):
        work = items(10) + ["broken"]
        work = [work[i] for i in [3, 0, 10, 7, 1, 9, 2, 8, 4, 6, 5]]
        source = self.path("in.jsonl", b"".join(each.encode() + b"\n" if isinstance(each, str) else jsonl([each]) for each in work))
        self.batch(source, self.path("out.jsonl"), "--ordered", code=1)
        expected = ["line-3" if isinstance(each, str) else each["id"] for each in work]
        self.assertEqual([json.loads(line)["id"] for line in self.answers(self.path("out.jsonl"))], expected)

    def test_shards_are_the_whole(self):
        data = jsonl(items(20)) + b'broken\n{"id":"item-3","prompt":"again"}\n{"prompt":"no id"}\n'
        source = self.path("in.jsonl", data)
        self.batch(source, self.path("all.jsonl"), code=1)
        parts = b""
        for k in range(3):
            done = subprocess.run(
                self.command(source, self.path(f"{k}.jsonl"), "--shard", f"{k}/3"), capture_output=True, timeout=120
            )
            self.assertIn(done.returncode, [0, 1])
            part = self.path(f"{k}.jsonl").read_bytes()
            self.assertGreater(len(part.splitlines()), 2)
            parts += part
        self.assertEqual(sorted(self.answers(parts)), sorted(self.answers(self.path("all.jsonl"))))
        self.assertEqual(len(self.by_id(parts)), 23)

    def test_texts_for_all_items(self):
        source = self.path("in.jsonl", [{"id": "a", "prompt": "fox."}])
        self.path("prefix", b"Tell me a story about a ")
        self.path("template", b"{{ messages[0].role }}:{{ messages[0].content }};{{ messages[-1].content }}=")

        def tokens(*flags):
            done = self.batch(source, "-", *flags)
            return json.loads(done.stdout)["prompt_tokens"]

        plain = tokens()
        self.assertGreater(tokens("--prefix-file", self.path("prefix")), plain)
        self.assertGreater(tokens("--system", "Be brief."), plain)
        self.assertNotEqual(tokens("--template", self.path("template")), plain)
        self.assertLess(tokens("--raw"), plain)
        self.path("template", b"{% if %}")
        done = self.batch(source, "-", "--template", self.path("template"), code=3)
        self.assertIn(b"line 1", done.stderr)

    def test_reports(self):
        source = self.path("in.jsonl", items(4))
        model_name = self.path("<b>&.jsonl")
        self.batch(source, model_name, "--report", self.path("r.json"), "--report", self.path("r.html"),
                   "--slo", "ttft=100000,tpot=0.000001")
        report = json.loads(self.path("r.json").read_text())
        self.assertTrue(report["complete"])
        self.assertEqual(report["items"], {"answered": 4, "failed": 0, "skipped": 0, "skipped_errors": 0})
        self.assertEqual(report["goodput"]["items"], 0)
        self.assertLessEqual(report["latency_ms"]["ttft"]["p50"], report["latency_ms"]["ttft"]["p99"])
        self.assertEqual(len(report["items_over_time"]), 4)
        self.assertTrue(report["timeline"])
        page = self.path("r.html").read_text()
        self.assertGreaterEqual(page.count("<svg"), 4)
        self.assertNotIn("://", page)  # nothing from outside
        self.assertNotIn("<b>&.jsonl", page)
        stack = []

        class Checker(html.parser.HTMLParser):
            def handle_starttag(self, tag, attrs):
                if tag not in ("meta", "!doctype"):
                    stack.append(tag)

            def handle_startendtag(self, tag, attrs):
                pass

            def handle_endtag(self, tag):
                assert stack and stack.pop() == tag, tag

        Checker().feed(page)
        self.assertEqual(stack, [])


class Usage(Batch):
    def test_wrong_usage(self):
        source = self.path("in.jsonl", items(1))
        cases = [
            (["-o", "x"], b"-i FILE"),
            (["-i", source], b"-o FILE"),
            (["-i", source, "-o", source], b"same file"),
            (["-i", source, "-o", "-", "--shard", "3/3"], b"--shard: '3/3'"),
            (["-i", source, "-o", "-", "--slots", "0"], b"--slots: '0'"),
            (["-i", source, "-o", "-", "--slo", "x=1"], b"--slo: 'x=1'"),
            (["-i", source, "-o", "-", "--report", "r.txt"], b"neither in .json nor in .html"),
            (["-i", source, "-o", "-", "--report", "/no/such/folder/r.json"], b"can't be written there"),
            (["-i", source, "-o", "-", "--report", self.folder / "." / "in.jsonl.json", "--prefix-file", self.path("in.jsonl.json", b"x")],
             b"same file"),
            (["-i", source, "-o", self.folder / "out.json", "--report", self.folder / "out.json"], b"same file"),
            (["-i", source, "-o", self.folder / "o", "--prefix-file", self.path("o", b"text")], b"same file"),
            (["-i", source, "-o", "-", "-m", self.path("m.json", b"m"), "--report", self.folder / "m.json"], b"same file"),
            (["-i", source, "-o", "-", "--draft", self.path("d.json", b"d"), "--report", self.folder / "d.json"], b"same file"),
            (["-i", source, "-o", self.folder / "l", "--lookup-file", self.path("l", b"")], b"same file"),
            (["-i", source, "-o", "-", "--prefix-file", self.path("long", b"many words " * 4000)], b"--prefix-file"),
            (["-i", source, "-o", "-", "--raw", "--system", "s"], b"--raw"),
            (["-i", source, "-o", "-", "--policy", "x"], b"--policy: 'x'"),
            (["-i", source, "-o", "/dev/null"], b"no regular file"),
            (["-i", source, "-o", "-", "--retry-errors"], b"--retry-errors"),
        ]
        for arguments, message in cases:
            with self.subTest(arguments=arguments):
                done = subprocess.run(
                    [PROGRAM, "batch", *map(str, arguments)], capture_output=True, stdin=subprocess.DEVNULL, timeout=60
                )
                self.assertEqual(done.returncode, 2, done.stderr)
                self.assertIn(message, done.stderr)
                self.assertEqual(done.stdout, b"")

    def test_unusable_files(self):
        source = self.path("in.jsonl", items(1))
        self.batch(self.path("missing"), self.path("out"), code=3)
        self.batch(self.folder, self.path("out"), code=3)
        self.batch(source, self.path("out"), "-m", self.path("missing.gguf"), code=3)
        self.batch(self.path("utf16", '{"id":1}\n'.encode("utf-16")), self.path("out"), code=3)
        done = self.batch(source, self.folder / "no" / "folder", code=1)
        self.assertIn(b"can't open", done.stderr)
        done = self.batch(source, self.path("notes.txt", b"my notes\n"), code=3)
        self.assertIn(b"is no answer of a batch", done.stderr)
        self.assertEqual(self.path("notes.txt").read_bytes(), b"my notes\n")


class Resume(Batch):
    def reference(self, source, *arguments):
        target = self.path("reference.jsonl")
        self.batch(source, target, *arguments)
        return self.answers(target)

    def test_files_of_others_are_left_alone(self):
        source = self.path("in.jsonl", items(1))
        for name, data, run in [("a", b"precious", None), ("b", b'{"a":1}', None), ("c", None, b"my notes"), ("d", b"text\n", None)]:
            target = self.path(name, data) if data else self.folder / name
            notes = self.path(name + ".run", run) if run else None
            self.batch(source, target, code=3)
            self.assertEqual(target.read_bytes() if data else b"", data or b"")
            if notes:
                self.assertEqual(notes.read_bytes(), run)

    def test_nothing_is_run_twice(self):
        source, target = self.path("in.jsonl", items(4)), self.path("out.jsonl")
        self.batch(source, target)
        before = target.read_bytes()
        done = self.batch(source, target)
        self.assertIn(b"going on: 4 answers are there already", done.stderr)
        self.assertEqual(target.read_bytes(), before)
        source.write_bytes(jsonl(items(6)))  # more items behind the others are no change
        done = self.batch(source, target)
        self.assertNotIn(b"not what the output was begun with", done.stderr)
        self.assertEqual(len(self.by_id(target)), 6)
        self.assertTrue(target.read_bytes().startswith(before))

    def test_cut_anywhere(self):
        source, target = self.path("in.jsonl", items(5)), self.path("out.jsonl")
        self.batch(source, target)
        whole = target.read_bytes()
        generator = random.Random(5)
        for size in [1, whole.index(b"\n"), whole.index(b"\n") + 1, *[generator.randrange(len(whole)) for _ in range(6)]]:
            target.write_bytes(whole[:size])
            done = self.batch(source, target)
            self.assertEqual(self.answers(target), self.answers(whole))
            torn = not whole[:size].endswith(b"\n")
            self.assertEqual(b"was cut short" in done.stderr, torn)

    def test_other_settings_are_refused(self):
        source, target = self.path("in.jsonl", items(2)), self.path("out.jsonl")
        self.batch(source, target, "--temp", "0.7")
        before = target.read_bytes()
        for flags, message in [
            ([], b"--temp was 0.7 and is not set"),
            (["--temp", "0.9"], b"--temp was 0.7 and is 0.9"),
            (["--temp", "0.7", "-s", "1"], b"--seed was 0 and is 1"),
            (["--temp", "0.7", "--system", "x"], b"--system"),
            (["--temp", "0.7", "--shard", "0/2"], b"--shard was 0/1 and is 0/2"),
            (["--temp", "0.7", "--kv", "f32"], b"--kv was int8 and is f32"),
            (["--temp", "0.7", "--stop", "x"], b"--stop"),
            (["--temp", "0.7", "-m", ROOT / "models/storyteller-draft-q4_0.gguf"], b"model was"),
        ]:
            done = self.batch(source, target, *flags, code=2)
            self.assertIn(message, done.stderr)
            self.assertIn(b"another output", done.stderr)
        self.batch(source, target, "--temp", "0.7", "--prefill-chunk", "7")  # changes no token
        self.assertEqual(target.read_bytes(), before)
        self.path("out.jsonl.run").unlink()
        self.assertIn(b"is missing", self.batch(source, target, "--temp", "0.7", code=2).stderr)

    def test_a_picked_seed_is_remembered(self):
        source, target = self.path("in.jsonl", items(4)), self.path("out.jsonl")
        first = self.batch(source, target, "-s", "-1")
        whole = self.answers(target)
        target.write_bytes(b"".join(target.read_bytes().splitlines(True)[:1]))
        second = self.batch(source, target, "-s", "-1")
        seed = re.search(rb"seed (\d+)", first.stderr).group(1)
        self.assertIn(b"seed " + seed, second.stderr)
        self.assertEqual(self.answers(target), whole)

    def test_two_processes_on_one_output(self):
        source, target = self.path("in.jsonl", items(400)), self.path("out.jsonl")
        first = subprocess.Popen(self.command(source, target), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.wait_for_lines(target, 1, first)
            self.assertIn(b"in use by another process", self.batch(source, target, code=2).stderr)
        finally:
            first.kill()
            first.wait()

    def wait_for_lines(self, target, count, process):
        end = time.monotonic() + 60
        while time.monotonic() < end and process.poll() is None:
            if target.exists() and target.read_bytes().count(b"\n") >= count:
                return
            time.sleep(0.005)
        self.fail("the batch wrote nothing")

    def test_kill_at_any_moment(self):
        data = jsonl(items(200, max_tokens=24)) + b"broken line\n"
        source = self.path("in.jsonl", data)
        for flags in [[], ["--ordered"]]:
            reference = self.path("reference.jsonl")
            reference.unlink(missing_ok=True)
            started = time.monotonic()
            self.batch(source, reference, *flags, code=1)
            seconds = time.monotonic() - started
            target = self.path("killed.jsonl")
            target.unlink(missing_ok=True)
            generator = random.Random(len(flags))
            kills = max(1, KILLS // 2)
            for _ in range(kills):
                process = subprocess.Popen(
                    self.command(source, target, *flags), stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
                )
                time.sleep(generator.uniform(0, 2.5 * seconds / kills))
                process.kill()
                process.wait()
            self.batch(source, target, *flags, code=1)
            if flags:
                self.assertEqual(self.answers(target), self.answers(reference))
            else:
                self.assertEqual(sorted(self.answers(target)), sorted(self.answers(reference)))

    def test_interrupt(self):
        source, target = self.path("in.jsonl", items(60)), self.path("out.jsonl")
        expected = self.reference(source)
        for number in [signal.SIGINT, signal.SIGTERM]:
            target.unlink(missing_ok=True)
            process = subprocess.Popen(
                self.command(source, target), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            self.wait_for_lines(target, 3, process)
            process.send_signal(number)
            _, errors = process.communicate(timeout=10)
            self.assertEqual(process.returncode, 130)
            self.assertIn(b"the same command goes on from here", errors)
            self.assertIn(b"not complete", errors)
            self.assertLess(len(self.answers(target)), 60)
            self.batch(source, target)
            self.assertEqual(sorted(self.answers(target)), sorted(expected))

    def test_full_disk(self):
        source, target = self.path("in.jsonl", items(20)), self.path("out.jsonl")
        expected = self.reference(source)
        limit = len(self.path("reference.jsonl").read_bytes()) // 2
        done = self.batch(
            source, target, code=1, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        )
        self.assertIn(b"make room", done.stderr)
        kept = self.answers(target)
        self.assertTrue(0 < len(kept) < 20)
        self.batch(source, target)
        self.assertEqual(sorted(self.answers(target)), sorted(expected))

    def test_full_file_system(self):
        mount = self.path("small")
        mount.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", mount], capture_output=True)
        if made.returncode != 0:
            self.skipTest("NO RIGHT to mount a small file system: RLIMIT_FSIZE stands in for it")
        self.addCleanup(subprocess.run, ["umount", mount], capture_output=True)
        source, target = self.path("in.jsonl", items(60)), mount / "out.jsonl"
        expected = self.reference(source)
        (mount / "ballast").write_bytes(b"x" * 57344)  # leaves a page for the answers
        done = self.batch(source, target, code=1)
        self.assertIn(b"No space left on device", done.stderr)
        self.answers(target)
        (mount / "ballast").unlink()
        self.batch(source, target)
        self.assertEqual(sorted(self.answers(target)), sorted(expected))

    def test_answers_are_on_the_disk_within_a_second(self):
        if shutil.which("strace") is None:
            self.skipTest("NO strace: whether lines are synced is not seen")
        source, target = self.path("in.jsonl", items(1500, max_tokens=24)), self.path("out.jsonl")
        log = self.path("log")
        subprocess.run(
            ["strace", "-f", "-ttt", "-e", "trace=write,fdatasync", "-o", log, *self.command(source, target)],
            capture_output=True, timeout=300, check=True,
        )
        dirty, syncs = None, 0
        for line in log.read_text(errors="replace").splitlines():
            at = float(line.split()[1])
            if "fdatasync(" in line:
                dirty, syncs = None, syncs + 1
            elif "write(" in line and '"{\\"id' in line and dirty is None:
                dirty = at
            self.assertTrue(dirty is None or at - dirty < 1.5)
        self.assertIsNone(dirty)
        self.assertGreater(syncs, 2, "the batch was over too soon to see anything")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
