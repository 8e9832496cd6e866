"""Black-box tests of packed weights that are kept between starts: cli_cache_test.py SLUICE MAKE_MODEL."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

SLUICE, MAKE_MODEL = sys.argv[1:3]
KEPT = "packed weights are written for later starts"


class Cache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = Path(cls.folder.name) / "model.gguf"  # 110 MB, since less is not kept
        subprocess.run([MAKE_MODEL, "--layers", "4", "--embd", "1024", "--heads", "8", "--kv-heads", "2", "--head-dim", "64",
                        "--ffn", "8192", "--vocab", "400", "--type", "q8_0", str(cls.model)], check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.home = Path(tempfile.mkdtemp(dir=self.folder.name))

    def command(self, *arguments):
        if "--off" in arguments:
            arguments = [argument for argument in arguments if argument != "--off"]
        else:
            arguments = ["--packed-cache", *arguments]
        return [SLUICE, "run", "-m", str(self.model), "--raw", "-p", "abc", "--temp", "0", "--json", "-n", "4", *arguments]

    def run_model(self, *arguments, **environment):
        environment = {"PATH": os.environ["PATH"], **environment}
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL,
                              env=environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["text"], done.stderr

    def files(self, folder):
        return sorted(path for path in folder.rglob("*") if path.is_file())

    def test_kept_once_and_said_once(self):
        want, said = self.run_model("--off", HOME=str(self.home))
        self.assertNotIn(KEPT, said)
        self.assertEqual(self.files(self.home), [])
        text, said = self.run_model(HOME=str(self.home))
        self.assertEqual(text, want)
        self.assertIn(f"{KEPT}: ", said)
        self.assertIn(str(self.home / ".cache/sluice/packed"), said)
        kept = self.files(self.home)
        self.assertEqual(len(kept), 1)
        before = kept[0].stat()
        text, said = self.run_model(HOME=str(self.home))
        self.assertEqual(text, want)
        self.assertNotIn("packed", said)
        after = self.files(self.home)[0].stat()
        self.assertEqual((before.st_ino, before.st_mtime_ns), (after.st_ino, after.st_mtime_ns))

    def test_where(self):
        elsewhere = self.home / "elsewhere"
        self.run_model("--quiet", HOME=str(self.home), XDG_CACHE_HOME=str(elsewhere))
        self.assertEqual(self.files(self.home), self.files(elsewhere / "sluice/packed"))
        self.assertEqual(len(self.files(elsewhere)), 1)
        _, said = self.run_model()  # no home, no cache
        self.assertIn("--packed-cache: there is no folder to keep packed weights in", said)

    def test_a_model_that_is_too_small_is_said(self):
        done = subprocess.run([SLUICE, "run", "-p", "a", "-n", "1", "--packed-cache"], capture_output=True, text=True, timeout=100,
                              stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], "HOME": str(self.home)})
        self.assertIn("packed weights are not kept for later starts: 1 MB are packed as fast as they are found", done.stderr)

    def test_a_folder_that_cannot_be_made(self):
        (self.home / ".cache").write_text("a file")
        _, said = self.run_model(HOME=str(self.home))
        self.assertIn("packed weights are not kept for later starts: ", said)
        self.assertIn(".cache/sluice/packed' cannot be made", said)

    def test_what_goes_wrong_is_said(self):
        limited = ["bash", "-c", 'ulimit -f 20000; exec "$0" "$@"', *self.command()]
        done = subprocess.run(limited, capture_output=True, text=True, timeout=100, stdin=subprocess.DEVNULL,
                              env={"PATH": os.environ["PATH"], "HOME": str(self.home)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("packed weights were not kept for later starts: the file cannot be written: File too large", done.stderr)
        self.assertEqual(self.files(self.home), [])

    def test_an_interrupt_leaves_nothing_half_written(self):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        for wait in (0.05, 0.2, 0.35, 0.5):
            process = subprocess.Popen(self.command("-n", "-2", "--ignore-eos"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                       stdin=subprocess.DEVNULL, env=environment)
            time.sleep(wait)
            process.send_signal(signal.SIGINT)
            process.wait(20)
            self.assertEqual([path for path in self.files(self.home) if path.suffix == ".partial"], [])
        text, _ = self.run_model(HOME=str(self.home))
        self.assertEqual(text, self.run_model("--off")[0])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
