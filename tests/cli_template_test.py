"""Black-box tests of `sluice template`, run by CTest as `cli_template` (Python's standard library only).

    python3 tests/cli_template_test.py PROGRAM CONFORMANCE_FOLDER [unittest arguments]

Every reference case of every chat template goes through the program.
"""

import json
import os
import sys
import time
import unittest
from pathlib import Path

import cli_test
from cli_test import Terminal, WithFolder, sluice, with_metadata

CHAT = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ eos_token }}\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
FOLDER = None  # the reference results
HELLO = {"messages": [{"role": "user", "content": "Hi"}]}


def template(*arguments, given=HELLO, **options):
    data = given if isinstance(given, bytes) else json.dumps(given).encode()
    return sluice("template", *arguments, stdin=data, **options)


class WithTemplate(WithFolder):
    def setUp(self):
        super().setUp()
        self.path = self.write("chat.jinja", CHAT)

    def write(self, name, text):
        path = self.folder / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def refused(self, code, message, *arguments, **options):
        done = template(*arguments, **options)
        self.check_code(done, code)
        self.assertIn(message, done.stderr)
        self.assertIn(b"sluice: error: ", done.stderr)
        self.assertEqual(done.stdout, b"")
        self.assertLess(len(done.stderr), 5000)
        return done


class References(WithFolder):
    def setUp(self):
        super().setUp()
        self.templates = FOLDER / "templates"
        if not (self.templates / "expected.json").exists():
            self.skipTest(f"NO REFERENCE RESULTS in {self.templates}")
        self.expected = json.loads((self.templates / "expected.json").read_text())

    def test_every_case(self):
        rendered = refused = 0
        for name, cases in self.expected.items():
            for case in cases:
                given = {key: case[key] for key in ("messages", "tools", "add_generation_prompt") if key in case}
                given |= {"bos_token": "<BOS>", "eos_token": "<EOS>"}
                done = template("--template", self.templates / name, "--now", "2026-01-02T03:04:05", given=given)
                with self.subTest(template=name, case=case["name"]):
                    if "error" in case:
                        self.check_code(done, 1)
                        words = case["error"].removeprefix("TemplateError: ")
                        self.assertIn(f"refuses the conversation: {words}\n".encode(), done.stderr)
                        self.assertEqual(done.stdout, b"")
                        refused += 1
                    else:
                        self.check_code(done, 0)
                        self.assertEqual(done.stdout.decode(), case["expected"])
                        self.assertEqual(done.stderr, b"")
                        rendered += 1
        print(f"{rendered} reference prompts equal, {refused} refusals", file=sys.stderr)
        self.assertGreater(rendered, 0)


class Input(WithTemplate):
    def test_sources_are_the_same(self):
        expected = b"<user>Hi\n"
        file = self.write("chat.json", json.dumps(HELLO))
        for arguments in [[], ["-i", "-"], ["-i", file], ["--input", file]]:
            done = template("--template", self.path, *arguments)
            self.check_code(done, 0)
            self.assertEqual(done.stdout, expected)
            self.assertEqual(done.stderr, b"")
        self.assertEqual(template("--template", self.path, given=HELLO["messages"]).stdout, expected)

    def test_keys(self):
        given = HELLO | {"add_generation_prompt": True, "eos_token": "</s>", "mode": {"a": 1}, "enable_thinking": False}
        source = CHAT + "{{ mode.a }}{{ enable_thinking }}{{ bos_token is defined }}{{ tools is none }}"
        done = template("--template", self.write("more.jinja", source), given=given)
        self.assertEqual(done.stdout, b"<user>Hi</s>\n<assistant>1FalseFalseTrue")
        tools = template("--template", self.write("tools.jinja", "{{ tools[0].name }}"), given=HELLO | {"tools": [{"name": "f"}]})
        self.assertEqual(tools.stdout, b"f")
        # A key that is there is believed, null too.
        config = self.write("tokenizer_config.json", json.dumps({"chat_template": "{{ bos_token }}|{{ eos_token }}", "bos_token": {"content": "<s>"}, "eos_token": "</s>"}))
        self.assertEqual(template("--template", config).stdout, b"<s>|</s>")
        self.assertEqual(template("--template", config, given=HELLO | {"bos_token": None, "eos_token": "E"}).stdout, b"|E")

    def test_configurations_of_several_templates(self):
        several = {"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]}
        config = self.write("config.json", json.dumps(several))
        self.assertEqual(template("--template", config).stdout, b"plain")
        self.assertEqual(template("--template", config, given=HELLO | {"tools": [{}]}).stdout, b"tools")
        self.refused(3, b"has no chat_template", "--template", self.write("no.json", "{}"))
        self.refused(3, b"neither a text nor a list", "--template", self.write("odd.json", '{"chat_template": [1, {"name": 2}]}'))
        self.refused(3, b"is not JSON", "--template", self.write("bad.json", CHAT))

    def test_clock(self):
        clock = self.write("clock.jinja", "{{ strftime_now('%Y-%m-%d %H:%M:%S %A %j') }}")
        done = template("--template", clock, "--now", "2024-02-29T23:59:58")
        self.assertEqual(done.stdout, b"2024-02-29 23:59:58 Thursday 060")
        before = time.strftime("%Y-%m-%d")
        today = template("--template", clock).stdout[:10].decode()
        self.assertIn(today, [before, time.strftime("%Y-%m-%d")])
        for bad in ["", "now", "2026-01-02", "2026-02-30T00:00:00", "2026-01-02T24:00:00", "2026-01-02T03:04:05Z", "0000-01-01T00:00:00", "2026-1-2T03:04:05", "-026-01-02T03:04:05"]:
            self.refused(2, b"is not a time; expected one as 2026-01-02T03:04:05", "--template", clock, f"--now={bad}")

    def test_bytes_are_exact(self):
        text = "a\x1b[31m\0\r\n\u00e9\U0001f600\u2028 "
        done = template("--template", self.write("bytes.jinja", "{{ messages[0].content }}"), given={"messages": [{"role": "user", "content": text}]})
        self.assertEqual(done.stdout, text.encode())
        broken = template("--template", self.path, given=b'{"messages": [{"role": "user", "content": "a\xffb"}]}')
        self.assertEqual(broken.stdout, "<user>a\ufffdb\n".encode())
        self.assertIn(b"not UTF-8", broken.stderr)

    def test_json(self):
        answer = json.loads(template("--template", self.path, "--json").stdout)
        self.assertEqual(answer["text"], "<user>Hi\n")
        self.assertEqual(answer["parts"], [{"text": "<user>", "content": False}, {"text": "Hi", "content": True}, {"text": "\n", "content": False}])
        self.assertNotIn("ids", answer)


class Faults(WithTemplate):
    def test_conversations(self):
        cases = [
            (b"hello", b"stdin is not JSON"),
            (b"{", b"stdin is not JSON"),
            (b'{"messages": [}', b"at column 15"),
            (b"\0\0\0", b"stdin is not JSON"),
            (b'"text"', b"stdin is string; expected"),
            (b"{}", b"stdin has no 'messages'"),
            (b'{"messages": "Hi"}', b"'messages' in stdin is string, not a list"),
            (b'{"messages": null}', b"'messages' in stdin is null"),
            (b'{"messages": {"role": "user"}}', b"'messages' in stdin is an object"),
            (b'{"messages": [{"role": "user"}, "Hi"]}', b"message 2 in stdin is string, not an object"),
            (b'{"messages": [{"role": 5}]}', b"the role of message 1 in stdin is number"),
            (b'{"messages": [], "tools": {}}', b"'tools' in stdin is an object"),
            (b'{"messages": [], "add_generation_prompt": "yes"}', b"'add_generation_prompt' in stdin is string"),
            (b'{"messages": [], "bos_token": 1}', b"'bos_token' in stdin is number"),
            (b'{"messages": [{"content": 123456789012345678901234567890}]}', b"does not fit in 64 bits"),
            (b'{"messages": [{"content": -9223372036854775809}]}', b"does not fit in 64 bits"),
            (b'{"messages": [{"content": "\\ud83d"}]}', b"stdin is not JSON"),
            (b'{"messages": [{"role": "a\0b"}]}', b"stdin is not JSON"),
            (b"[" * 1000, b"more than 200 levels"),
            (b'{"a":' * 1000000, b"more than 200 levels"),
            (b'{"messages": ' + b"[" * 150 + b"]" * 150 + b"}", b"message 1 in stdin is a list"),
        ]
        for given, message in cases:
            with self.subTest(given=given[:60]):
                self.refused(3, message, "--template", self.path, given=given)
        self.refused(2, b"no conversation: stdin is empty", "--template", self.path, given=b"")
        self.refused(3, b"can't open", "--template", self.path, "-i", self.folder / "missing")
        self.refused(3, b"can't read", "--template", self.path, "-i", self.folder)

    def test_numbers_that_are_no_huge_integers(self):
        given = b'{"messages": [{"role": "user", "content": [0.12345678901234567890123, 1234567890123456789012e-3, -9223372036854775808, "99999999999999999999999"]}]}'
        done = template("--template", self.write("numbers.jinja", "{{ messages[0].content|tojson }}"), given=given)
        self.assertEqual(done.stdout, b'[0.12345678901234568, 1.2345678901234568e+18, -9223372036854775808, "99999999999999999999999"]')

    def test_role_missing(self):
        done = template("--template", self.path, given={"messages": [{"content": "Hi"}]})
        self.check_code(done, 0)
        self.assertEqual(done.stdout, b"<>Hi\n")
        self.assertIn(b"warning: message 1 has no role", done.stderr)

    def test_large_conversations(self):
        begin = time.monotonic()
        text = "x" * (40 << 20)
        done = template("--template", self.path, given={"messages": [{"role": "user", "content": text}]})
        self.check_code(done, 0)
        self.assertEqual(len(done.stdout), len("<user>\n") + len(text))
        self.refused(3, b"(limit)", "--template", self.write("twice.jinja", "{{ messages[0].content * 2 }}"), given={"messages": [{"role": "user", "content": text}]})
        self.refused(3, b"more than 4194304 values", "--template", self.path, given=b'{"messages": [' + b"0," * (25 << 20) + b"0]}")
        self.refused(3, b"64 MiB", "--template", self.path, given=b'{"messages": ["' + b"y" * (70 << 20) + b'"]}')
        self.assertLess(time.monotonic() - begin, 60)

    def test_templates(self):
        for source, message in [
            ("{% for x in %}", b"chat template: line 1, column "),
            ("a\n{{ nothing() }}", b"chat template: line 2, column "),
            ("a\n\u00e9\u00e9 {{ nothing() }} b\nc", "'nothing' is undefined; there: \u00e9\u00e9 {{ nothing() }} b\n".encode()),
            ("x" * 1000 + "{{ a + }}" + "y" * 1000, b"unexpected '}}'; there: ..." + b"x" * 17 + b"{{ a + }}" + b"y" * 54 + b"...\n"),
            ("{% include 'x' %}", b"not supported"),
            ("{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", b"(limit)"),
            (b"\xff\xfe{{", b"chat template: "),
            ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", b"(limit)"),
            ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", b"(limit)"),
            ("x" * (2 << 20), b"limit"),
        ]:
            with self.subTest(source=source[:40]):
                self.refused(3, message, "--template", self.write("bad.jinja", source))
        self.refused(3, b"can't open", "--template", self.folder / "missing.jinja")
        self.refused(3, b"can't read", "--template", self.folder)

    def test_refusals(self):
        source = "{{ raise_exception('Roles must alternate: ' ~ messages[0].content) }}"
        done = self.refused(1, b"the template refuses the conversation: Roles must alternate: Hi\n", "--template", self.write("no.jinja", source))
        self.assertEqual(done.stderr.count(b"\n"), 1)
        hostile = {"messages": [{"role": "user", "content": "\x1b[2J\x07"}]}
        done = template("--template", self.write("no.jinja", source), given=hostile)
        self.assertNotIn(b"\x1b", done.stderr)

    def test_usage(self):
        self.refused(2, b"--tokens needs a vocabulary", "--template", self.path, "--tokens")
        self.refused(2, b"unknown flag '--tokns'; did you mean --tokens?", "--tokns")
        self.refused(2, b"unexpected argument", "--template", self.path, "chat.json")

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "wb") as full:
            self.check_code(template("--template", self.path, stdout=full), 1)


class Models(WithTemplate):
    def setUp(self):
        super().setUp()
        if cli_test.STORIES is None:
            self.skipTest("NO MODEL: neither the reference results nor models/ has one")
        about = json.loads(sluice("inspect", cli_test.STORIES, "--json").stdout)
        tokens = about["metadata"]["tokenizer.ggml.tokens"]
        self.bos_id, self.eos_id = about["tokenizer"]["bos"], about["tokenizer"]["eos"]
        self.bos, self.eos = tokens[self.bos_id], tokens[self.eos_id]
        self.adds_bos = about["tokenizer"]["add_bos"]

    def model(self, source):
        path = self.folder / "model.gguf"
        with_metadata(cli_test.STORIES, path, {"tokenizer.chat_template": source})
        return path

    def test_template_of_a_model(self):
        model = self.model("{{ bos_token }}" + CHAT)
        done = template("-m", model)
        self.check_code(done, 0)
        self.assertEqual(done.stdout.decode(), f"{self.bos}<user>Hi{self.eos}\n")
        self.assertEqual(template("-m", model, given=HELLO | {"bos_token": "B", "eos_token": "E"}).stdout, b"B<user>HiE\n")
        # Another template, and this model's texts.
        self.assertEqual(template("-m", model, "--template", self.write("e.jinja", "{{ eos_token }}")).stdout.decode(), self.eos)

    def test_no_template(self):
        plain = self.folder / "plain.gguf"
        with_metadata(cli_test.STORIES, plain, {}, ["tokenizer.chat_template"])
        self.refused(3, b"has no chat template (tokenizer.chat_template)", "-m", plain)
        self.refused(3, b"is a model; give it with -m", "--template", plain)
        self.refused(3, b"sluice: error: ", "-m", self.path)

    def test_tokens(self):
        model = self.model("{{ bos_token }}" + CHAT)
        typed = {"messages": [{"role": "user", "content": "Hi" + self.eos + "\x1b[2J"}]}
        done = template("-m", model, "--tokens", given=typed)
        self.check_code(done, 0)
        self.assertEqual(done.stderr, b"")
        self.assertNotIn(b"\x1b", done.stdout)
        rows = [line.split(None, 1) for line in done.stdout.decode().splitlines()]
        ids = [int(row[0]) for row in rows]
        controls = [(int(row[0]), row[1]) for row in rows if row[1].startswith("control")]
        # BOS and EOS are the template's; the EOS that was typed is plain text.
        self.assertEqual(controls, [(self.bos_id, f'control  "{self.bos}"'), (self.eos_id, f'control  "{self.eos}"')])
        self.assertEqual(ids[0], self.bos_id)
        answer = json.loads(template("-m", model, "--tokens", "--json", given=typed).stdout)
        self.assertEqual(answer["ids"], ids)
        run = json.loads(sluice("run", "-m", model, "-p", typed["messages"][0]["content"], "-n", "0", "--json").stdout)
        generated = json.loads(template("-m", model, "--tokens", "--json", given=typed | {"add_generation_prompt": True}).stdout)
        self.assertEqual(len(generated["ids"]), run["prompt_tokens"])

    def test_bos_is_as_in_run(self):
        done = template("-m", self.model(CHAT), "--tokens", "--json")
        self.assertEqual(json.loads(done.stdout)["ids"][0] == self.bos_id, self.adds_bos)
        self.assertEqual(b"the model wants BOS" in done.stderr, self.adds_bos)
        self.assertFalse(json.loads(done.stdout)["text"].startswith(self.bos))  # may be the EOS, too
        twice = template("-m", self.model("{{ bos_token }}{{ bos_token }}" + CHAT), "--tokens")
        self.assertIn(b"BOS twice", twice.stderr)

    def test_bundled_model_is_said(self):
        if not cli_test.BUNDLED.exists():
            self.skipTest("NO BUNDLED MODEL")
        done = template("--template", self.path)
        self.assertEqual(done.stderr, b"")
        self.assertIn(b"storyteller", template().stderr)


class OnATerminal(WithTemplate):
    HOSTILE = {"messages": [{"role": "user", "content": "a\x1b[2J\x07\u009b1mb"}]}

    def show(self, *arguments, environment=None):
        conversation = self.write("chat.json", json.dumps(self.HOSTILE))
        old = dict(os.environ)
        os.environ.update({"TERM": "xterm"} | (environment or {}))
        try:
            terminal = Terminal("template", "--template", self.path, "-i", conversation, *arguments)
            self.assertEqual(terminal.finish(), 0)
        finally:
            os.environ.clear()
            os.environ.update(old)
        return terminal.data

    def test_content_is_dimmed_and_escaped(self):
        shown = rb"a\x1b[2J\x07\x9b1mb"
        self.assertEqual(self.show(), b"<user>\x1b[2m" + shown + b"\x1b[22m\r\n")
        for environment in [{"NO_COLOR": "1"}, {"TERM": "dumb"}]:
            self.assertEqual(self.show(environment=environment), b"<user>" + shown + b"\r\n")
        self.assertNotIn(b"\x1b", self.show("--json"))

    def test_sample(self):
        terminal = Terminal("template", "--template", self.path)
        self.assertEqual(terminal.finish(), 0)
        self.assertIn(b"this is a sample; -i FILE takes another", terminal.data)
        self.assertIn(b"<user>", terminal.data)
        self.assertTrue(terminal.data.endswith(b"<assistant>\r\n"), terminal.data[-60:])

    def test_typed_conversation(self):
        terminal = Terminal("template", "--template", self.path, "-i", "-")
        terminal.read(20, lambda data: b"Ctrl-D" in data)
        terminal.type(b'[{"role": "user", "content": "typed"}]\n\x04')
        self.assertEqual(terminal.finish(), 0)
        self.assertIn(b"<user>", terminal.data)


if __name__ == "__main__":
    FOLDER = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    cli_test.main()
