"""Checks of the repository itself, run by CTest as `repository` (Python's standard library only).

    python3 tests/repository_test.py [path of the sluice program]

With the program, the commands shown in the documents are held against its help.
"""

import ast
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = None


def tracked():
    done = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, check=True)
    return [name for name in done.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


def tracked_text():
    """(name, text) of each tracked file that is text."""
    for name in tracked():
        data = (ROOT / name).read_bytes()
        if b"\0" in data:
            continue
        try:
            yield name, data.decode("utf-8")
        except UnicodeDecodeError:
            continue


def documents():
    return [(name, text) for name, text in tracked_text() if name.endswith(".md")]


def shell_lines(text):
    """Commands in the ```sh blocks of a document, continuation lines joined, comments cut."""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.M | re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield line, words


# Layers from the bottom up; a layer includes itself and those of lower rank.
RANKS = {"base": 0, "quant": 1, "gguf": 2, "text": 3, "model": 3, "kv": 3, "backend": 4, "engine": 5, "cli": 6}

# Hosts that documentation may point to. Others (package servers, private machines) have no
# place in the tree: packages are named, and the user's own client knows where to get them.
HOSTS = {"huggingface.co", "github.com", "git-lfs.github.com", "arxiv.org", "www.pcre.org", "www.unicode.org", "unicode.org",
         "example.com", "example.org"}


def setUpModule():
    if not (ROOT / ".git").exists():
        raise unittest.SkipTest("NOT a git checkout: the checks of tracked files are skipped")


class Tree(unittest.TestCase):
    def test_no_paths_of_a_machine(self):
        # Spelled so that this file does not contain what it looks for.
        pattern = re.compile(r"(?<![\w.}$)])/(?:wor[k]|op[t]|roo[t]|hom[e]/\w+|User[s]/\w+)/")
        found = [
            f"{name}:{number}: {line.strip()[:100]}"
            for name, text in tracked_text()
            for number, line in enumerate(text.splitlines(), 1)
            if pattern.search(line)
        ]
        self.assertEqual(found, [], "paths of one machine in tracked files")

    def test_only_known_hosts(self):
        found = [
            f"{name}: {host}"
            for name, text in tracked_text()
            for host in re.findall(r"https?://([A-Za-z0-9.-]+)", text)
            if host not in HOSTS
        ]
        self.assertEqual(found, [], "hosts outside the list in tests/repository_test.py")

    def test_layers_are_one_way(self):
        found = []
        for name, text in tracked_text():
            parts = name.split("/")
            if parts[0] != "src" or len(parts) < 3:
                continue
            self.assertIn(parts[1], RANKS, f"{name}: layer without a rank")
            for used in re.findall(r'#include "src/(\w+)/', text):
                if used != parts[1] and RANKS[used] >= RANKS[parts[1]]:
                    found.append(f"{name} includes src/{used}")
            for other in re.findall(r'#include "((?:tests|tools|fuzz)/[^"]+)', text):
                found.append(f"{name} includes {other}")
        self.assertEqual(found, [], "includes that go up the layers")

    def test_sources_are_small(self):
        found = [
            f"{name}: {len(text.splitlines())} lines"
            for name, text in tracked_text()
            if re.match(r"(src|tools|cuda)/.*\.(h|cpp|cu|cuh)$", name) and len(text.splitlines()) > 800
        ]
        self.assertEqual(found, [], "files over 800 lines: split them")

    def test_scripts_are_sound(self):
        for name, text in tracked_text():
            if text.startswith("#!"):
                mode = (ROOT / name).stat().st_mode
                self.assertTrue(mode & 0o100, f"{name} starts with #! but is not executable")
            if name.endswith(".sh"):
                subprocess.run(["bash", "-n", ROOT / name], check=True)
            if name.endswith(".py"):
                ast.parse(text, name)


class Documents(unittest.TestCase):
    def test_there_are_some(self):
        names = [name for name, _ in documents()]
        for wanted in ["README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md"]:
            self.assertIn(wanted, names)

    def test_links_lead_somewhere(self):
        found = []
        for name, text in documents():
            for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
                if "://" not in target and not ((ROOT / name).parent / target).exists():
                    found.append(f"{name}: {target}")
        self.assertEqual(found, [])

    def test_named_files_exist(self):
        """What stands in backticks and looks like a file of ours is one, or matches some as a pattern."""
        found = []
        for name, text in documents():
            text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
            for path in re.findall(r"`((?:src|tests|tools|fuzz|scripts|docs|models)/[\w./*-]*)`", text):
                if not any(ROOT.glob(path.rstrip("/"))):
                    found.append(f"{name}: {path}")
        self.assertEqual(found, [])

    def test_scripts_in_commands_exist(self):
        seen = 0
        for name, text in documents():
            for line, words in shell_lines(text):
                for word in words:
                    for path in re.findall(r"(?<![\w/])((?:scripts|tests)/[\w./-]+)", word):
                        seen += 1
                        self.assertTrue((ROOT / path).is_file(), f"{name}: {line}")
        self.assertGreater(seen, 0, "no document shows a script: the parser of this test is broken")

    def test_commands_and_flags_exist(self):
        if PROGRAM is None:
            self.skipTest("no program given")
        helps, seen = {}, 0
        for name, text in documents():
            for line, words in shell_lines(text):
                if words[0].rsplit("/", 1)[-1] != "sluice" or len(words) < 2 or words[1].startswith("-"):
                    continue
                command = words[1]
                if command not in helps:
                    done = subprocess.run([PROGRAM, command, "--help-all"], capture_output=True, text=True, timeout=20)
                    self.assertEqual(done.returncode, 0, f"{name}: {line}: no command '{command}'")
                    helps[command] = done.stdout
                for word in words[2:]:
                    if word in ("|", ">", "<", "&&"):
                        break
                    if re.fullmatch(r"--?[a-z][a-z-]*", word):
                        seen += 1
                        self.assertRegex(
                            helps[command], rf"(?<![\w-]){re.escape(word)}(?![\w-])", f"{name}: {line}"
                        )
        self.assertGreater(seen, 0, "no document shows a flag: the parser of this test is broken")


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        PROGRAM = sys.argv.pop(1)
    unittest.main()
