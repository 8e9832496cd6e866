#!/usr/bin/env python3
"""Time to first token of each turn of a growing conversation, beside reading the whole conversation anew.

    scripts/chat_turns.py -m model.gguf --text book.txt          # prints a Markdown table

Each turn first makes the conversation longer by a piece of the text, untimed, and then asks a short question, whose first token is
timed: once in the running chat, and once in a new process that has the conversation as text only (an autosave) and so has to read
all of it. Standard library only.
"""

import argparse
import os
import pathlib
import re
import subprocess
import tempfile
import time

QUESTION = "Who is the text about?"
SPEED = re.compile(r"first token after (\d+) ms \((\d+) of (\d+) prompt tokens")


class Chat:
    def __init__(self, arguments):
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                        text=True)

    def say(self, message):
        """Milliseconds to the first token, tokens found in the cache, tokens of the prompt."""
        self.process.stdin.write(message + "\n")
        self.process.stdin.flush()
        for line in self.process.stderr:
            if found := SPEED.search(line):
                return tuple(int(group) for group in found.groups())
            if "error" in line:
                raise SystemExit(line)
        raise SystemExit("the program ended: " + str(self.process.wait()))

    def end(self):
        self.process.stdin.close()
        self.process.stderr.read()
        self.process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--text", required=True, type=pathlib.Path)
    parser.add_argument("--sluice", default="build/release/sluice")
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--words", type=int, default=250, help="words of the text in each message")
    parser.add_argument("-n", type=int, default=48, help="tokens of a reply")
    parser.add_argument("-c", type=int, default=8192)
    options = parser.parse_args()
    words = options.text.read_text(errors="replace").replace('"', "'").split()
    base = [options.sluice, "chat", "-m", options.model, "-c", str(options.c), "-n", str(options.n), "--temp", "0", "--stats"]

    print("| turn | tokens before | new tokens | first token, ms | all read anew, ms |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        journal = os.path.join(folder, "chat.jsonl")
        chat = Chat([*base, "--autosave", journal])
        for turn in range(1, options.turns + 1):
            part = " ".join(words[(turn - 1) * options.words : turn * options.words])
            chat.say(f"{part} -- What is this about?")
            copy = pathlib.Path(folder, f"copy{turn}.jsonl")
            copy.write_text(pathlib.Path(journal).read_text())
            milliseconds, cached, prompt = chat.say(QUESTION)
            other = Chat([*base, "--resume", str(copy)])
            anew, found, _ = other.say(QUESTION)
            if found != 0:
                raise SystemExit(f"{found} tokens were found in the cache of a new process")
            other.end()
            print(f"| {turn} | {cached} | {prompt - cached} | {milliseconds} | {anew} |", flush=True)
            time.sleep(0.1)
        chat.end()


if __name__ == "__main__":
    main()
