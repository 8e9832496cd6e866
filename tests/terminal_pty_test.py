"""Reading of messages, driven on a pseudo-terminal; run by CTest as `terminal_pty` (standard library only).

    python3 tests/terminal_pty_test.py TERMINAL_ECHO [unittest arguments]
"""

import errno
import fcntl
import os
import pty
import re
import select
import shutil
import signal
import stat
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest
from pathlib import Path

PROGRAM = None
UP, DOWN, RIGHT, LEFT, HOME, END, DELETE = (f"\x1b[{key}" for key in ("A", "B", "C", "D", "H", "F", "3~"))
CTRL_C, CTRL_D, CTRL_R, CTRL_Z = "\x03", "\x04", "\x12", "\x1a"
THIRTY = "\n".join(f"line {i}: é漢😀 \"quoted\" \\" for i in range(30))


def pasted(text):
    return "\x1b[200~" + text.replace("\n", "\r") + "\x1b[201~"


class Terminal:
    """The echo program on a pseudo-terminal that is its controlling one."""

    def __init__(self, *arguments, term="xterm-256color", locale="C", size=(24, 80), first=""):
        start, go = os.pipe()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.read(start, 1)
            environment = dict(os.environ, LC_ALL=locale)
            environment.pop("TERM", None)
            if term is not None:
                environment["TERM"] = term
            try:
                os.execve(PROGRAM, [PROGRAM, *map(str, arguments)], environment)
            finally:
                os._exit(127)
        self.resize(*size)
        self.before = termios.tcgetattr(self.fd)
        self.data = b""
        self.checked = 0
        os.write(self.fd, first.encode())
        os.write(go, b"!")
        os.close(start)
        os.close(go)
        self.expect("> ")

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self, seconds, until=lambda: False):
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

    def expect(self, text, seconds=20):
        """Waits for a text after the one found last."""
        wanted = text.encode()
        self.read(seconds, lambda: wanted in self.data[self.checked :])
        at = self.data.find(wanted, self.checked)
        if at < 0:
            raise AssertionError(f"no {text!r} in {self.data[self.checked:]!r}")
        self.checked = at + len(wanted)

    def type(self, keys):
        data = keys.encode() if isinstance(keys, str) else keys
        while data:  # the terminal takes a few thousand at a time, and may have something to say
            readable, writable, _ = select.select([self.fd], [self.fd], [])
            if readable:
                self.data += os.read(self.fd, 65536)
            if writable:
                data = data[os.write(self.fd, data[:1000]) :]

    def ready(self):
        """Waits for the prompt of a line that is edited."""
        self.expect("\x1b[?2004h")
        self.expect("> ")

    def message(self, kind="message"):
        """The text of the next frame."""
        frame = re.compile(rb"<%s([^>]*)>(.*?)</%s>" % (kind.encode(), kind.encode()), re.S)
        self.read(20, lambda: frame.search(self.data, self.checked))
        found = frame.search(self.data, self.checked)
        if not found:
            raise AssertionError(f"no {kind} in {self.data[self.checked:]!r}")
        self.checked = found.end()
        self.flags = found[1].decode().split()
        return found[2].decode().replace("\r\n", "\n")

    def say(self, keys):
        self.type(keys)
        return self.message()

    def finish(self, seconds=20):
        """Exit code, or minus the signal. The attributes of the terminal must be those of before."""
        end = time.monotonic() + seconds
        status = None
        while status is None and time.monotonic() < end:
            self.read(0.02)
            pid, code = os.waitpid(self.pid, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if pid else None
        if status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            raise AssertionError(f"still running; output: {self.data[-500:]!r}")
        self.read(0.2)
        self.after = termios.tcgetattr(self.fd)
        os.close(self.fd)
        return status


class WithFolder(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="sluice-terminal-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def leave(self, terminal, keys=CTRL_D):
        terminal.type(keys)
        self.assertEqual(terminal.finish(), 0)
        self.assertEqual(terminal.after, terminal.before)
        self.assertEqual(terminal.data.count(b"\x1b[?2004h"), terminal.data.count(b"\x1b[?2004l"))
        self.assertNotIn(b"\x1b[?2004h", terminal.data[terminal.data.rfind(b"\x1b[?2004l") :])


class Editing(WithFolder):
    def test_typing_and_the_end(self):
        for locale in ["C", "C.UTF-8"]:
            terminal = Terminal(locale=locale)
            self.assertEqual(terminal.say("Hello, wörld 漢字 😀\r"), "Hello, wörld 漢字 😀")
            terminal.ready()
            self.assertEqual(terminal.say("\r"), "")
            self.leave(terminal)
            self.assertIn(b"<end/>", terminal.data)

    def test_editing_of_utf8(self):
        terminal = Terminal()
        self.assertEqual(terminal.say("aé漢z" + LEFT * 2 + "\x7f" + "ü" + "\r"), "aü漢z")
        self.assertEqual(terminal.say("bc" + HOME + "ä" + RIGHT + DELETE + END + "!\r"), "äb!")
        self.assertEqual(terminal.say("one two" + "\x17" + "three\r"), "one three")
        self.assertEqual(terminal.say("gone" + "\x15" + "here\r"), "here")
        self.assertEqual(terminal.say("ab" + LEFT + CTRL_D + "c\r"), "ac")
        self.leave(terminal)

    def test_bytes_that_are_not_utf8(self):
        terminal = Terminal()
        self.assertEqual(terminal.say(b"a\xffb\xc3(\r"), "a�b�(")
        self.assertEqual(terminal.flags, ["replaced=2"])
        self.leave(terminal)

    def test_continuation(self):
        terminal = Terminal()
        self.assertEqual(terminal.say("one\\\rtwo\\\r\r"), "one\ntwo\n")
        self.assertEqual(terminal.say("row \\\\\r"), "row \\\\")
        self.assertEqual(terminal.say("a\x1b\rb\r"), "a\nb")
        self.leave(terminal)

    def test_blocks(self):
        terminal = Terminal()
        self.assertEqual(terminal.say('"""\rone\\\r\r  two\r"""\r'), "one\\\n\n  two")
        self.assertEqual(terminal.flags, ["literal"])
        self.assertEqual(terminal.say('"""/one\rtwo"""\r'), "/one\ntwo")
        self.assertEqual(terminal.say('"""single"""\r'), "single")
        self.leave(terminal)

    def test_lines_of_a_message_are_edited(self):
        terminal = Terminal()
        # Up to the first line, to its end, and down again.
        keys = "first\\\rsecond" + UP + END + "!" + DOWN + HOME + "the " + "\r"
        self.assertEqual(terminal.say(keys), "first!\nthe second")
        self.leave(terminal)

    def test_ctrl_c(self):
        terminal = Terminal()
        terminal.type("some text" + CTRL_C)
        self.assertEqual(terminal.message("interrupted"), "some text")
        self.assertIn(b"^C", terminal.data)
        terminal.ready()
        self.assertEqual(terminal.say("next\r"), "next")
        terminal.ready()
        terminal.type("a\\\rb" + CTRL_C)
        self.assertEqual(terminal.message("interrupted"), "a\nb")
        self.leave(terminal, CTRL_C)

    def test_ctrl_d_leaves_only_an_empty_line(self):
        terminal = Terminal()
        self.assertEqual(terminal.say("ab" + CTRL_D + "c\r"), "abc")
        self.leave(terminal)

    def test_a_signal_of_others(self):
        terminal = Terminal()
        terminal.type("text")
        terminal.expect("text")
        os.kill(terminal.pid, signal.SIGINT)
        self.assertEqual(terminal.message("interrupted"), "text")
        terminal.ready()
        terminal.type("more")
        terminal.expect("more")
        self.assertFalse(termios.tcgetattr(terminal.fd)[3] & termios.ICANON)
        os.kill(terminal.pid, signal.SIGTERM)  # its handler calls restore_terminal()
        self.assertEqual(terminal.finish(), 128 + signal.SIGTERM)
        self.assertEqual(terminal.after, terminal.before)
        self.assertTrue(terminal.data.endswith(b"\x1b[?2004l"))

    def test_attributes_while_an_answer_is_written(self):
        terminal = Terminal()
        terminal.say("x\r")
        terminal.ready()
        terminal.type("y\r")
        terminal.expect("\x1b[?2004l")
        self.leave(terminal)

    def test_suspended_and_continued(self):
        terminal = Terminal()
        # Nobody would continue a group without a parent in the session: that is simulated here.
        terminal.type("before " + CTRL_Z)
        terminal.expect("\x1b[?2004l")
        time.sleep(0.3)
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.ready()
        self.assertEqual(terminal.say("after\r"), "before after")
        self.leave(terminal)

    def test_window_size(self):
        terminal = Terminal()
        terminal.type("a" * 60)
        terminal.read(0.3)
        terminal.resize(24, 40)
        terminal.expect("> " + "a" * 37)
        self.assertEqual(terminal.say("b\r"), "a" * 60 + "b")
        self.leave(terminal)

    def test_typed_ahead(self):
        terminal = Terminal()
        terminal.type("one\rtwo\rthree\r")
        self.assertEqual([terminal.message() for _ in range(3)], ["one", "two", "three"])
        self.leave(terminal)

    def test_typed_before_the_first_prompt(self):
        """In canonical mode, that is, as during an answer."""
        for keys, wanted in [("hé\nx\r", ["hé", "x"]), (CTRL_D, []), ("a\n" + CTRL_D, ["a"])]:
            terminal = Terminal(first=keys)
            self.assertEqual([terminal.message() for _ in wanted], wanted)
            self.leave(terminal, "" if CTRL_D in keys else CTRL_D)

    def test_prefill(self):
        terminal = Terminal("", "edit mé\nplease")
        terminal.expect("please")
        self.assertEqual(terminal.say("!\r"), "edit mé\nplease!")
        self.leave(terminal)
        terminal = Terminal("", '"""\nnot open')
        terminal.expect("open")
        self.assertEqual(terminal.say("\r"), '"""\nnot open')
        self.leave(terminal)

    def test_cpu_time_while_waiting(self):
        terminal = Terminal()
        time.sleep(1)
        fields = Path(f"/proc/{terminal.pid}/stat").read_text().rsplit(")", 1)[1].split()
        ticks = int(fields[11]) + int(fields[12])
        self.assertLess(ticks / os.sysconf("SC_CLK_TCK"), 0.2)
        self.leave(terminal)


class Pastes(WithFolder):
    def test_thirty_lines_are_one_message(self):
        terminal = Terminal()
        terminal.type(pasted(THIRTY))
        terminal.expect("[30 lines #1: line 0: é漢😀 \"quoted\"")
        self.assertEqual(terminal.say("\r"), THIRTY)
        self.assertEqual(terminal.data.count(b"<message"), 1)
        # Text around it, twice, and what stands in its place is seen only on the screen.
        self.assertEqual(terminal.say("Explain " + pasted(THIRTY) + " please\r"), f"Explain {THIRTY} please")
        self.assertEqual(terminal.say(UP + "!\r"), f"Explain {THIRTY} please!")
        self.leave(terminal)

    def test_short_pastes_are_shown(self):
        terminal = Terminal()
        terminal.type(pasted("a\tb\n  c\n"))
        terminal.expect("  c")
        self.assertEqual(terminal.say("\r"), "a\tb\n  c")
        self.assertEqual(terminal.flags, ["literal"])
        terminal.ready()  # before it, the terminal itself would turn the CR into a newline
        self.assertEqual(terminal.say("x \x1b[200~y\r\nz\x1b[201~\r"), "x y\nz")
        self.assertEqual(terminal.say(pasted("/help") + "\r"), "/help")
        self.assertEqual(terminal.flags, [])
        self.leave(terminal)

    def test_a_pasted_block_mark_is_text(self):
        terminal = Terminal()
        text = '"""A docstring.\n"""\ncode'
        self.assertEqual(terminal.say(pasted(text) + "\r"), text)
        self.assertEqual(terminal.say('"""\r' + pasted("x\ny") + '\r"""\r'), "x\ny")
        self.leave(terminal)

    def test_odd_bytes(self):
        terminal = Terminal()
        self.assertEqual(terminal.say(b"\x1b[200~a\x00b\xff\x1b[31m\x1b[201~\r"), "a�b�\x1b[31m")
        self.assertEqual(terminal.flags, ["replaced=2"])
        self.leave(terminal)

    def test_a_paste_that_never_ends_is_interrupted(self):
        terminal = Terminal()
        terminal.type("\x1b[200~lost")
        terminal.read(0.3)
        terminal.type(CTRL_C)
        terminal.message("interrupted")
        terminal.ready()
        self.assertEqual(terminal.say("x\r"), "x")
        self.leave(terminal)

    def test_a_megabyte(self):
        terminal = Terminal()
        text = "0123456789abcde\n" * 65535 + "end"
        terminal.type(pasted(text))
        terminal.expect("[65536 lines #1")
        self.assertEqual(terminal.say("\r"), text)
        self.leave(terminal)


class History(WithFolder):
    def test_recall_over_sessions(self):
        path = self.folder / "state" / "sluice" / "history"
        terminal = Terminal(path)
        terminal.say("first\r")
        terminal.say("zwei\\\rZeilen\r")
        terminal.say(pasted(THIRTY) + "\r")
        terminal.say("fourth \\n\r")
        self.assertEqual(terminal.say(UP * 2 + DOWN + "!\r"), "fourth \\n!")
        self.leave(terminal)
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.assertEqual(stat.S_IMODE(path.parent.stat().st_mode), 0o700)

        terminal = Terminal(path)
        self.assertEqual(terminal.say(UP * 2 + "\r"), "fourth \\n")
        self.assertEqual(terminal.say(UP * 4 + "?\r"), THIRTY + "?")
        # From the second line of a message Up goes to its first, then to the one before.
        terminal.ready()  # before it, Ctrl-R is a key of the terminal's own
        self.assertEqual(terminal.say(CTRL_R + "Zeil\x1b" + END + "!\r"), "zwei\nZeilen!")
        self.leave(terminal)

    def test_no_place_for_it(self):
        (self.folder / "file").write_text("")
        terminal = Terminal(self.folder / "file" / "history")
        terminal.say("x\r")
        terminal.expect("<problem>can't open the history")
        self.leave(terminal)
        os.mkfifo(self.folder / "pipe")
        terminal = Terminal(self.folder / "pipe")
        self.leave(terminal)
        self.assertIn(b"is not a regular file", terminal.data)

    def test_a_damaged_file(self):
        path = self.folder / "history"
        path.write_bytes(b"good\n\xff\x00bad\\\nno end\\n")
        path.chmod(0o644)
        terminal = Terminal(path)
        self.assertEqual(terminal.say(UP * 3 + "\r"), "good")
        self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600)
        self.leave(terminal)


class Completion(WithFolder):
    def test_commands_and_files(self):
        (self.folder / "my file.txt").write_text("")
        (self.folder / "other").mkdir()
        terminal = Terminal()
        self.assertEqual(terminal.say("/h\t\r"), "/help")
        terminal.type("/re\t\t")
        terminal.expect("/read")
        terminal.expect("/retry")
        self.assertEqual(terminal.say(f"a\t{self.folder}/my\t\r"), f"/read {self.folder}/my file.txt")
        self.assertEqual(terminal.say(f"/read {self.folder}/o\t\r"), f"/read {self.folder}/other/")
        self.assertEqual(terminal.say("no command\t\r"), "no command")
        self.leave(terminal)


class WithoutEditing(WithFolder):
    def test_dumb_terminals(self):
        for term in ["dumb", None, "", "no-such-terminal"]:
            terminal = Terminal(term=term)
            self.assertEqual(terminal.say("héllo\r"), "héllo")
            terminal.expect("> ")
            terminal.type("a\\\r")
            terminal.expect(". ")
            self.assertEqual(terminal.say("b\r"), "a\nb")
            self.assertEqual(terminal.say('"""\rx\r\ry"""\r'), "x\n\ny")
            terminal.expect("> ")
            terminal.type(CTRL_C)
            terminal.message("interrupted")
            terminal.expect("> ")
            self.leave(terminal)
            self.assertNotIn(b"\x1b", terminal.data)

    def pipe(self, data, **options):
        done = subprocess.run([PROGRAM], input=data, stdout=subprocess.PIPE, timeout=60, **options)
        return done.returncode, done.stdout.decode()

    def test_pipes(self):
        for data, wanted in [
            (b"", "<end/>\n"),
            (b"hi\nmore\n", "<message>hi</message>\n<message>more</message>\n<end/>\n"),
            (b"hi\r\nno newline", "<message>hi</message>\n<message>no newline</message>\n<end/>\n"),
            (b"\n\n", "<message></message>\n<message></message>\n<end/>\n"),
            (b"a\\\nb\\\\\n", "<message>a\nb\\\\</message>\n<end/>\n"),
            (b'"""\na\\\n\n"""  \nb', "<message literal>a\\\n</message>\n<message>b</message>\n<end/>\n"),
            (b'"""a\nb', "<message literal>a\nb</message>\n<end/>\n"),
            (b"a\\", "<message>a\n</message>\n<end/>\n"),
            (b"a\x00\xff\xe2\x82b\n", "<message replaced=3>a���b</message>\n<end/>\n"),
        ]:
            with self.subTest(data):
                self.assertEqual(self.pipe(data), (0, wanted))

    def test_fifty_megabytes(self):
        line = b"0123456789" * 5_000_000
        began = time.monotonic()
        code, out = self.pipe(line + b"\nshort\n")
        self.assertEqual(code, 0)
        self.assertTrue(out == f"<message>{line.decode()}</message>\n<message>short</message>\n<end/>\n")
        self.assertLess(time.monotonic() - began, 10)

    def test_fifty_megabytes_of_lines_in_a_block(self):
        block = b"0123456789abcde\n" * 3_000_000
        began = time.monotonic()
        code, out = self.pipe(b'"""\n' + block + b'"""\n')
        self.assertEqual(code, 0)
        self.assertTrue(out == f"<message literal>{block[:-1].decode()}</message>\n<end/>\n")
        self.assertLess(time.monotonic() - began, 10)

    def test_input_without_end(self):
        with open("/dev/zero", "rb") as zero:
            done = subprocess.run([PROGRAM], stdin=zero, stdout=subprocess.PIPE, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"<error>a message of more than 268435456 bytes", done.stdout)

    def test_a_folder_as_input(self):
        folder = os.open(self.folder, os.O_RDONLY)
        done = subprocess.run([PROGRAM], stdin=folder, stdout=subprocess.PIPE, timeout=60)
        os.close(folder)
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"<error>can't read the input: ", done.stdout)

    def test_output_elsewhere(self):
        """Input is a terminal, output is not: no prompt and no codes in the file."""
        master, slave = pty.openpty()
        process = subprocess.Popen([PROGRAM], stdin=slave, stdout=subprocess.PIPE)
        os.write(master, b"hi\n\x04")
        out, _ = process.communicate(timeout=20)
        os.close(master)
        os.close(slave)
        self.assertEqual(out, b"<message>hi</message>\n<end/>\n")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()
