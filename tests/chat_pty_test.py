"""`sluice chat` as a person uses it, on a pseudo-terminal; run by CTest as `chat_pty` (standard library only).

    python3 tests/chat_pty_test.py SLUICE MAKE_MODEL [unittest arguments]
"""

import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

from gguf_files import with_metadata

SLUICE = None
MAKE_MODEL = None
BUNDLED = Path(__file__).resolve().parent.parent / "models/storyteller-q4_0.gguf"
# As templates of thinking models do: the reply begins with reasoning, which goes away once the next turn has come.
THINKING = (
    "{% for m in messages %}<|{{ m.role }}|>\n"
    "{% if loop.last and m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n<think>\n"
    "{% if enable_thinking is defined and not enable_thinking %}\n</think>\n\n{% endif %}{% endif %}"
)
# A shell of one job, and what it sees of the terminal when the job stops, goes on and ends.
JOB = """
import os, signal, sys, termios, time
signal.signal(signal.SIGTTOU, signal.SIG_IGN)
pid = os.fork()
if pid == 0:
    os.setpgid(0, 0)
    os.tcsetpgrp(0, os.getpid())
    signal.signal(signal.SIGTTOU, signal.SIG_DFL)
    os.execv(sys.argv[1], sys.argv[1:])
def say(what):
    print(f"{what}, echo {bool(termios.tcgetattr(0)[3] & termios.ECHO)};", flush=True)
_, status = os.waitpid(pid, os.WUNTRACED)
os.tcsetpgrp(0, os.getpid())
say(f"stopped {os.WIFSTOPPED(status)}")
os.tcsetpgrp(0, pid)
os.kill(-pid, signal.SIGCONT)
time.sleep(0.5)
say("continued")
_, status = os.waitpid(pid, 0)
os.tcsetpgrp(0, os.getpid())
say(f"ended {os.waitstatus_to_exitcode(status)}")
"""
ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\]8;[^\x1b]*\x1b\\|\x1b[=>]|\r")


def pasted(text):
    return "\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~"


class Chat:
    """A chat on a terminal of its own."""

    def __init__(self, state, *arguments, term="xterm-256color", under=()):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            environment = dict(os.environ, XDG_STATE_HOME=str(state), TERM=term, LC_ALL="C.UTF-8")
            command = [*under, SLUICE, "chat", *map(str, arguments)]
            os.execve(command[0], command, environment)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))
        self.data = b""
        self.checked = 0
        self.raw_checked = 0

    def text(self):
        return ESCAPES.sub(b"", self.data).decode(errors="replace")

    def read(self, seconds, until):
        end = time.monotonic() + seconds
        while time.monotonic() < end and not until():
            if not select.select([self.fd], [], [], 0.05)[0]:
                continue
            try:
                piece = os.read(self.fd, 65536)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
                return
            if not piece:
                return
            self.data += piece

    def expect(self, wanted, seconds=30):
        """Waits for a text after the one found last; gives what stood before it."""
        self.read(seconds, lambda: wanted in self.text()[self.checked :])
        text = self.text()
        at = text.find(wanted, self.checked)
        if at < 0:
            raise AssertionError(f"no {wanted!r} in {text[self.checked:]!r}")
        before = text[self.checked : at]
        self.checked = at + len(wanted)
        return before

    def ready(self):
        """Waits until a line is edited: bracketed paste is on, and then the prompt shows that the terminal's own editing
        is off. Gives all that was shown since the last look."""
        mark = re.compile(rb"\x1b\[\?2004h(?:\x1b\[[0-9;?]*[A-Za-z]|[\r\n])*>")
        self.read(60, lambda: mark.search(self.data, self.raw_checked))
        found = mark.search(self.data, self.raw_checked)
        if not found:
            raise AssertionError(f"no prompt in {self.text()[self.checked:]!r}")
        self.raw_checked = found.end()
        shown = ESCAPES.sub(b"", self.data[: self.raw_checked]).decode(errors="replace")[self.checked :]
        self.checked += len(shown)
        return shown

    def echoes(self):
        return bool(termios.tcgetattr(self.fd)[3] & termios.ECHO)

    def type(self, keys):
        data = keys.encode()
        while data:
            readable, writable, _ = select.select([self.fd], [self.fd], [])
            try:
                if readable:
                    self.data += os.read(self.fd, 65536)
                if writable:
                    data = data[os.write(self.fd, data[:500]) :]
            except OSError as error:
                raise AssertionError(f"the chat has ended: {self.text()[-800:]!r}") from error

    def say(self, message):
        """Sends a line and waits for the next prompt."""
        self.type(message + "\r")
        return self.ready()

    def end(self, keys="\x04", kill=None):
        # While this is open, what is left of the terminal's attributes can be seen.
        slave = os.open(os.readlink(f"/proc/{self.pid}/fd/0"), os.O_RDWR | os.O_NOCTTY)
        if keys:
            self.type(keys)
        if kill:
            os.kill(self.pid, kill)
        self.read(20, lambda: os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
        self.read(0.2, lambda: False)
        self.echo_at_the_end = self.echoes()
        os.close(slave)
        _, status = os.waitpid(self.pid, 0)
        os.close(self.fd)
        return os.waitstatus_to_exitcode(status)


class WithFolder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def export(self, chat):
        path = self.folder / f"export-{time.monotonic_ns()}.json"
        chat.say(f"/export json {path}")
        return json.loads(path.read_text())["messages"]


class ChatTest(WithFolder):
    def chat(self, *arguments, **options):
        chat = Chat(self.folder, "-s", "3", "-n", "60", *arguments, **options)
        chat.ready()
        return chat

    def autosaves(self):
        return sorted((self.folder / "sluice" / "chats").glob("*.jsonl"))

    def test_conversation_with_retry_undo_and_edit(self):
        chat = self.chat()
        chat.say("Tell me a story about a fox.")
        first = self.export(chat)
        self.assertEqual([m["role"] for m in first], ["user", "assistant"])
        self.assertTrue(first[1]["content"])
        chat.say("/retry")
        second = self.export(chat)
        self.assertEqual(second[0], first[0])
        self.assertNotEqual(second[1], first[1])
        chat.say("And then?")
        self.assertEqual(len(self.export(chat)), 4)
        self.assertIn("taken back: And then?", chat.say("/undo"))
        self.assertEqual(self.export(chat), second)
        chat.type("/edit\r")
        chat.ready()
        chat.expect("about a fox.")
        chat.type("\x7f\x7f\x7f\x7fbear.\r")
        chat.ready()
        self.assertEqual(self.export(chat)[0]["content"], "Tell me a story about a bear.")
        self.assertEqual(chat.end(), 0)

    def test_paste_of_thirty_lines_is_one_message(self):
        chat = self.chat()
        lines = "\n".join(f"line {i} of the paste" for i in range(30))
        chat.type(pasted(lines))
        chat.type("\r")
        chat.ready()
        messages = self.export(chat)
        self.assertEqual(messages[0]["content"], lines)
        self.assertEqual(len(messages), 2)
        self.assertEqual(chat.end(), 0)

    def slow_model(self):
        """Large enough that there is time to interrupt a reply; its random weights hardly ever end one."""
        path = self.folder / "slow.gguf"
        shape = "--layers 8 --embd 1024 --heads 16 --kv-heads 4 --head-dim 64 --ffn 4096 --vocab 2000 --type q4_0"
        subprocess.run([MAKE_MODEL, *shape.split(), path], check=True, capture_output=True)
        return path

    def test_interrupt_keeps_the_reply_and_twice_leaves(self):
        chat = Chat(self.folder, "-m", self.slow_model(), "-t", "1", "--temp", "0")
        self.assertIn("no chat template", chat.ready())
        chat.type("Tell me a story.\r")
        chat.expect("Tell me a story.")
        time.sleep(1)  # some of the reply is there
        began = time.monotonic()
        chat.type("\x03")
        chat.expect("stopped; what there is of the reply stays")
        self.assertLess(time.monotonic() - began, 5)
        chat.ready()
        messages = self.export(chat)
        self.assertEqual(len(messages), 2)
        self.assertTrue(messages[1]["content"])
        self.assertTrue(messages[1]["interrupted"])
        # What was typed only goes away, and the count begins anew.
        chat.type("some words\x03")
        chat.ready()
        chat.type("\x03")
        chat.expect("Ctrl-C once more")
        chat.ready()
        self.assertEqual(chat.end("\x03"), 130)

    def test_interrupt_of_a_reply_and_one_more_leave(self):
        chat = Chat(self.folder, "-m", self.slow_model(), "-t", "1", "--temp", "0")
        chat.ready()
        chat.type("Tell me a story.\r")
        chat.expect("Tell me a story.")
        time.sleep(1)
        chat.type("\x03")
        chat.expect("stopped; what there is of the reply stays")
        chat.ready()
        self.assertEqual(chat.end("\x03"), 130)

    def replying(self, *arguments, **options):
        """A chat in the middle of a long reply."""
        chat = Chat(self.folder, "-m", self.slow_model(), "-t", "1", "--temp", "0", *arguments, **options)
        chat.ready()
        self.assertFalse(chat.echoes())
        chat.type("Tell me a story.\r")
        chat.expect("Tell me a story.")
        length = len(chat.data)
        chat.read(20, lambda: len(chat.data) > length + 100)
        return chat

    def test_typing_during_a_reply_appears_on_the_next_prompt(self):
        chat = self.replying("-n", "40")
        chat.type("typed ahead," + pasted("and\npasted"))
        reply = chat.expect("cut after 40 tokens")
        self.assertNotIn("typed", reply)
        self.assertNotIn("200~", reply)
        chat.ready()
        chat.expect("typed ahead,and")
        chat.expect("pasted")
        chat.type("\r")
        chat.ready()
        self.assertEqual(self.export(chat)[2]["content"], "typed ahead,and\npasted")
        self.assertEqual(chat.end(), 0)
        self.assertTrue(chat.echo_at_the_end)

    def test_terminal_is_as_before_after_every_end_of_a_reply(self):
        for number, code in [(signal.SIGTERM, 130), (signal.SIGHUP, 130), (signal.SIGQUIT, -signal.SIGQUIT)]:
            with self.subTest(signal=number):
                chat = self.replying()
                self.assertFalse(chat.echoes())
                self.assertEqual(chat.end("", number), code)
                self.assertTrue(chat.echo_at_the_end)
                self.assertTrue(chat.data.endswith(b"\x1b[?2004l") or b"2004l" in chat.data[-300:])

    def test_stopped_in_a_reply_and_continued(self):
        chat = self.replying(under=[sys.executable, "-c", JOB])
        chat.type("\x1a")
        chat.expect("stopped True, echo True;")
        chat.expect("continued, echo False;")
        chat.type("\x03")
        chat.expect("stopped; what there is of the reply stays")
        chat.ready()
        chat.type("\x04")
        chat.expect("ended 0, echo True;")
        os.waitpid(chat.pid, 0)
        os.close(chat.fd)

    def test_closed_terminal_keeps_the_reply(self):
        chat = self.replying()
        chat.read(1, lambda: False)
        os.close(chat.fd)
        _, status = os.waitpid(chat.pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 130)
        lines = [json.loads(line) for line in self.autosaves()[-1].read_text().splitlines()]
        reply = lines[-1]["reply"]
        self.assertTrue(reply["interrupted"])
        # Whole, not only up to the last sentence.
        parts = "".join(line.get("answer", "") for line in lines)
        self.assertGreater(len(reply["content"]), len(parts))

    def test_folder_that_cannot_be_written_is_said_once(self):
        state = self.folder / "a file"
        state.write_text("")
        chat = Chat(state, "-n", "3")
        shown = chat.ready()
        for message in ["One.", "Two.", "Three."]:
            shown += chat.say(message)
        self.assertEqual(shown.count("no autosave"), 1, shown)
        self.assertEqual(shown.count("messages are not kept"), 1, shown)
        self.assertEqual(len(self.export(chat)), 6)
        self.assertEqual(chat.end(), 0)

    def test_limit_on_the_size_of_files(self):
        environment = dict(os.environ, XDG_STATE_HOME=str(self.folder))
        run = subprocess.run(["bash", "-c", 'ulimit -f 1; exec "$@"', "bash", SLUICE, "chat", "-n", "8"],
                             input=f"hi\n/save {self.folder}/a.chat\nhi\n".encode(), capture_output=True, env=environment,
                             timeout=60)
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"ulimit -f", run.stderr)
        self.assertEqual(run.stderr.count(b"cut after 8 tokens"), 2)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_one_interrupt_around_a_short_reply_does_not_leave(self):
        chat = self.chat()
        for milliseconds in range(0, 40, 2):
            chat.type("Hello!\r")
            time.sleep(milliseconds / 1000)
            chat.type("\x03")
            # Ctrl-C may have come before, in or after the reply; a command must work in any case. Until it does,
            # the terminal may throw keys away with the interrupt.
            path = self.folder / f"alive-{milliseconds}.md"
            for _ in range(20):
                chat.read(0.5, lambda: False)
                chat.type(f"\x15/export md {path}\r")
                chat.read(2, path.exists)
                if path.exists():
                    break
            self.assertTrue(path.exists(), chat.text()[-500:])
        self.assertEqual(chat.end(), 0)

    def test_edit_that_is_not_sent_changes_nothing(self):
        chat = self.chat()
        chat.say("Hello!")
        before = self.export(chat)
        for cancel in ("\x03", "\x15\r"):
            chat.type("/edit\r")
            chat.ready()
            chat.type(cancel)
            chat.ready()
            self.assertEqual(self.export(chat), before)
        self.assertEqual(chat.end(), 0)

    def test_colours_end_with_the_prompt(self):
        chat = self.chat()
        chat.say("Hello!")
        self.assertEqual(chat.end(), 0)
        codes = re.findall(rb"\x1b\[([0-9;]*)m", chat.data)
        self.assertIn(b"1;32", codes)
        self.assertIn(codes[-1], (b"0", b""))
        for i, code in enumerate(codes):
            if code == b"1;32":
                self.assertIn(codes[i + 1], (b"0", b""))

    def test_killed_within_a_reply(self):
        chat = Chat(self.folder, "-m", self.slow_model(), "-t", "1", "--temp", "0.5", "-s", "1")
        chat.ready()
        chat.type("Tell me a story.\r")
        chat.expect("Tell me a story.")
        length = len(chat.data)
        chat.read(60, lambda: len(chat.data) > length + 800)
        os.kill(chat.pid, signal.SIGKILL)
        os.waitpid(chat.pid, 0)
        chat.read(1, lambda: False)
        shown = chat.text()[chat.checked :].strip()
        os.close(chat.fd)
        chat = Chat(self.folder, "--resume", "last")
        chat.ready()
        messages = self.export(chat)
        self.assertEqual(messages[0]["content"], "Tell me a story.")
        # At most the last sentence, or 240 bytes, are missing; the random model writes few full stops.
        kept = messages[1]["content"] if len(messages) > 1 else ""
        self.assertGreater(len(shown), 300)
        self.assertGreater(len(kept) + 300, len(shown) - 300)
        self.assertTrue(messages[1]["interrupted"])
        self.assertEqual(chat.end(), 0)

    def test_kill_and_resume(self):
        chat = self.chat()
        chat.say("Tell me a story about a fox.")
        before = self.export(chat)
        os.kill(chat.pid, signal.SIGKILL)
        os.waitpid(chat.pid, 0)
        os.close(chat.fd)
        self.assertEqual(len(self.autosaves()), 1)
        chat = Chat(self.folder, "--resume", "last")
        self.assertIn("resumed: 2 messages", chat.ready())
        self.assertEqual(self.export(chat), before)
        self.assertEqual(chat.end(), 0)

    def test_save_and_load_go_on_with_the_same_text(self):
        path = self.folder / "a.chat"
        chat = self.chat()
        chat.say("Tell me a story about a fox.")
        self.assertIn("saved 2 messages", chat.say(f"/save {path}"))
        chat.say("What happened next?")
        expected = self.export(chat)
        chat.say(f"/load {path}")
        self.assertEqual(self.export(chat), expected[:2])
        chat.say("What happened next?")
        self.assertEqual(self.export(chat), expected)
        self.assertEqual(chat.end(), 0)
        chat = Chat(self.folder, "--resume", path, "-n", "60")
        self.assertIn("tokens are in the cache", chat.ready())
        chat.say("What happened next?")
        self.assertEqual(self.export(chat), expected)
        self.assertEqual(chat.end(), 0)

    def test_full_context_is_said(self):
        chat = self.chat("-c", "256")
        shown = "".join(chat.say(f"Tell me part {i} of a story.") for i in range(6))
        self.assertIn("no longer go to the model", shown.replace("goes", "go"))
        self.assertEqual(len(self.export(chat)), 12)
        self.assertIn("no longer go to the model", chat.say("/context"))
        self.assertEqual(chat.end(), 0)

    def test_read_set_system_and_errors(self):
        notes = self.folder / "some notes.txt"
        notes.write_text("The fox is called Rosa.\n")
        chat = self.chat()
        self.assertIn("goes in front of your next message", chat.say(f"/read {notes}"))
        chat.say("Tell me about her.")
        self.assertEqual(self.export(chat)[0]["content"], "The fox is called Rosa.\nTell me about her.")
        self.assertIn("temp is 0", chat.say("/set temp 0"))
        self.assertIn("did you mean top-k", chat.say("/set topk 5"))
        self.assertIn("did you mean /retry", chat.say("/rety"))
        self.assertIn("cannot", chat.say(f"/load {self.folder}/none"))
        self.assertIn("neither a saved", chat.say(f"/load '{notes}'".replace("'", "")))
        chat.say("/system Be brief.")
        self.assertEqual(self.export(chat)[0], {"role": "system", "content": "Be brief."})
        self.assertIn("tokens/s", chat.say("/stats"))
        shown = chat.say("/help")
        self.assertIn("/export", shown)
        self.assertLessEqual(max(len(line) for line in shown.splitlines()), 80)
        self.assertEqual(chat.say("//etc is a folder").count("is not a command"), 0)
        self.assertEqual(self.export(chat)[3]["content"], "/etc is a folder")
        self.assertEqual(chat.end("/exit\r"), 0)

    def test_dumb_terminal(self):
        chat = Chat(self.folder, "-n", "5", term="dumb")
        chat.expect("> ")
        chat.type("Hello.\n")
        chat.expect("cut after 5 tokens")
        chat.expect("> ")
        self.assertNotIn(b"\x1b", chat.data)
        self.assertEqual(chat.end(), 0)

    def test_pipe(self):
        environment = dict(os.environ, XDG_STATE_HOME=str(self.folder))
        run = subprocess.run([SLUICE, "chat", "-n", "8"], input=b"hi\nmore\n", capture_output=True,
                             env=environment, timeout=60)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertNotIn(b"\x1b", run.stdout)
        self.assertEqual(run.stderr.count(b"cut after 8 tokens"), 2)
        self.assertEqual(self.autosaves(), [])
        # A command that fails in a script shows in the exit code; the messages after it are still answered.
        run = subprocess.run([SLUICE, "chat", "-n", "8"], input=b"/load none\nhi", capture_output=True, env=environment,
                             timeout=60)
        self.assertEqual(run.returncode, 1)
        self.assertTrue(run.stdout.strip())
        # So does a message that can't be answered.
        run = subprocess.run([SLUICE, "chat", "-c", "64", "-n", "8"], input=b"hi\n" + 100 * b"word " + b"\nhi\n",
                             capture_output=True, env=environment, timeout=60)
        self.assertEqual(run.returncode, 1)
        self.assertEqual(run.stderr.count(b"too long"), 1)
        self.assertEqual(run.stderr.count(b"cut after 8 tokens"), 2)
        # A full disk.
        with open("/dev/full", "wb") as full:
            run = subprocess.run([SLUICE, "chat", "-n", "8"], input=b"hi\n", stdout=full, stderr=subprocess.PIPE,
                                 env=environment, timeout=60)
        self.assertEqual(run.returncode, 1)
        self.assertIn(b"No space left", run.stderr)


class ThinkingTest(WithFolder):
    """The bundled model with a template that makes it think, and a token in whose place it writes </think>."""

    STORY = "Tell me a story about a fox."

    def setUp(self):
        super().setUp()
        template = self.folder / "template.gguf"
        with_metadata(BUNDLED, template, {"tokenizer.chat_template": THINKING})
        run = subprocess.run([SLUICE, "run", "-m", template, "-p", self.STORY, "-n", "40", "--temp", "0", "--json"],
                             capture_output=True, check=True)
        ids = json.loads(run.stdout)["tokens"]
        inspected = subprocess.run([SLUICE, "inspect", template, "--json"], capture_output=True, check=True)
        tokens = json.loads(inspected.stdout)["metadata"]["tokenizer.ggml.tokens"]
        mark = next(i for i in range(8, 30) if ids.count(ids[i]) == 1 and tokens[ids[i]].startswith("\u0120"))
        self.model = self.folder / "thinking.gguf"
        with_metadata(BUNDLED, self.model, {"tokenizer.chat_template": THINKING}, renamed={tokens[ids[mark]]: "</think>"})
        self.mark = mark

    def think(self, *arguments, tokens=40):
        chat = Chat(self.folder, "-m", self.model, "--temp", "0", "-n", tokens, *arguments)
        chat.ready()
        return chat

    def test_reasoning_is_dimmed_and_kept_apart(self):
        chat = self.think()
        begin = len(chat.data)
        shown = chat.say(self.STORY)
        message = self.export(chat)[1]
        self.assertTrue(message["reasoning"] and message["content"], message)
        self.assertNotIn("think>", shown)
        # Dimmed up to the end of the reasoning, and not beyond.
        drawn = chat.data[begin:]
        dim = re.search(rb"\x1b\[(?:0;)?2m", drawn).end()
        normal = drawn.index(b"\x1b[0m", dim)
        self.assertEqual(ESCAPES.sub(b"", drawn[dim:normal]).decode().split(), message["reasoning"].split())
        self.assertIn(message["reasoning"], chat.say("/think"))
        # The next turn no longer holds it, and says so by its size.
        with_reasoning = chat.say("/context")
        chat.say("And then?")
        self.assertNotEqual(re.search(r"1 +(\d+) tokens", with_reasoning)[1],
                            re.search(r"1 +(\d+) tokens", chat.say("/context"))[1])
        self.assertEqual(len(self.export(chat)), 4)
        self.assertNotEqual(chat.say("/retry"), "")
        self.assertEqual(self.export(chat)[1], message)
        path = self.folder / "a.chat"
        chat.say(f"/save {path}")
        whole = self.export(chat)
        self.assertEqual(chat.end(), 0)
        chat = self.think("--resume", path)
        self.assertEqual(self.export(chat), whole)
        self.assertEqual(chat.end(), 0)

    def test_folded_and_avoided(self):
        chat = self.think("--think", "hide")
        shown = chat.say(self.STORY)
        message = self.export(chat)[1]
        self.assertTrue(message["reasoning"])
        self.assertNotIn(message["reasoning"], shown)
        self.assertIn(f"thinking ... {len(message['reasoning'])} bytes; /think shows them", shown)
        # Only that line is dimmed.
        self.assertRegex(chat.data, rb"\x1b\[(0;)?2mthinking")
        answer = chat.data.index(message["content"][:10].encode())
        self.assertEqual(re.findall(rb"\x1b\[([0-9;]*)m", chat.data[:answer])[-1], b"0")
        self.assertIn("no reasoning from the next reply on", chat.say("/think off"))
        chat.say("/undo")
        chat.say(self.STORY)
        self.assertNotIn("reasoning", self.export(chat)[1])
        self.assertIn("shown, dimmed", chat.say("/think on"))
        chat.say("/undo")
        self.assertIn(message["reasoning"], chat.say(self.STORY))
        self.assertEqual(self.export(chat)[1], message)
        self.assertEqual(chat.end(), 0)

    def test_template_without_a_switch_is_said(self):
        chat = Chat(self.folder, "--think", "off", "-n", "5")
        self.assertIn("has no switch for thinking", chat.ready())
        self.assertIn("has no switch for thinking", chat.say("/think off"))
        self.assertNotIn("has no switch", chat.say("/think hide") + chat.say("/think on"))
        self.assertEqual(chat.end(), 0)

    def test_cut_while_thinking(self):
        chat = self.think(tokens=self.mark)
        shown = chat.say(self.STORY)
        self.assertIn(f"cut after {self.mark} tokens (-n), before any answer", shown)
        message = self.export(chat)[1]
        self.assertEqual(message["content"], "")
        self.assertTrue(message["reasoning"])
        chat.say("And then?")
        self.assertEqual(len(self.export(chat)), 4)
        self.assertEqual(chat.end(), 0)
        chat = Chat(self.folder, "--resume", "last")
        self.assertNotIn("reply: \n", chat.ready())
        self.assertEqual(chat.end(), 0)
        # On a pipe the reasoning is no answer.
        run = subprocess.run([SLUICE, "chat", "-m", self.model, "--temp", "0", "-n", str(self.mark)],
                             input=self.STORY.encode(), capture_output=True)
        self.assertEqual((run.returncode, run.stdout), (0, b"\n"))
        self.assertIn(b"before any answer", run.stderr)


if __name__ == "__main__":
    SLUICE, MAKE_MODEL = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    unittest.main(verbosity=2)
