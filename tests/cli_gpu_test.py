"""Black-box tests of the program with a GPU, which the emulator plays: cli_gpu_test.py SLUICE_EMULATED MAKE_MODEL."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SLUICE, MAKE_MODEL = sys.argv[1:3]


def run(*arguments, code=0):
    done = subprocess.run([SLUICE, *map(str, arguments)], capture_output=True, timeout=200, stdin=subprocess.DEVNULL)
    if done.returncode != code:
        raise AssertionError(f"{arguments}: exit {done.returncode}, expected {code}\n{done.stderr.decode()}")
    return done


class Gpu(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = Path(cls.folder.name) / "model.gguf"
        subprocess.run([MAKE_MODEL, "--arch", "llama", "--layers", "3", "--embd", "64", "--heads", "4", "--kv-heads", "2",
                        "--head-dim", "32", "--ffn", "96", "--vocab", "300", "--type", "q4_0", str(cls.model)],
                       check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def generate(self, *arguments):
        done = run("run", "-m", self.model, "--raw", "-p", "abc def", "-n", 8, "--temp", 0, "--json", *arguments)
        return json.loads(done.stdout), done.stderr

    def test_who_runs_what(self):
        for arguments, backend in [
            ([], "cuda:0 (emulated GPU)"),
            (["--device", "cuda"], "cuda:0 (emulated GPU)"),
            (["--device", "cuda:0", "-ngl", "all"], "cuda:0 (emulated GPU)"),
            (["--device", "cpu"], "cpu ("),
            (["-ngl", "0"], "cpu ("),
            (["-ngl", "2"], "layers 0 to 0, cuda:0 (emulated GPU): layers 1 to 2"),
            (["-ngl", "99"], "cuda:0 (emulated GPU)"),
        ]:
            with self.subTest(arguments=arguments):
                result, _ = self.generate(*arguments)
                self.assertIn(backend, result["device"])

    def test_same_text_as_the_cpu(self):
        for cache in ("int4", "int8", "f16"):
            cpu, _ = self.generate("--device", "cpu", "--kv", cache)
            for arguments in (["--device", "cuda"], ["-ngl", "1"], ["--device", "cuda", "--prefill-chunk", "3"]):
                with self.subTest(arguments=arguments, cache=cache):
                    self.assertEqual(self.generate(*arguments, "--kv", cache)[0]["text"], cpu["text"])

    def test_speculation_changes_nothing(self):
        done = run("run", "-m", self.model, "--raw", "-p", "abc abc abc abc", "-n", 12, "--temp", 0, "--device", "cuda",
                   "--verify")
        self.assertTrue(done.stdout)
        done = run("run", "-m", self.model, "--raw", "-p", "abc abc abc abc", "-n", 60, "--temp", 0, "--device", "cuda",
                   "--kv", "int4", "--verify")
        self.assertTrue(done.stdout)

    def test_a_batch_with_a_common_beginning(self):
        folder = Path(self.folder.name)
        (folder / "common.txt").write_text("a b c d e f g h " * 5)
        (folder / "in.txt").write_text("".join(f"{word}\n" for word in ("one", "two two", "three", "four four four")))
        answers = []
        for slots in (1, 3):
            out = folder / f"out{slots}.jsonl"
            run("batch", "-m", self.model, "--raw", "--lines", "-i", folder / "in.txt", "-o", out, "--prefix-file",
                folder / "common.txt", "-n", 6, "-c", 256, "--kv", "int4", "--device", "cuda", "--ordered", "--slots", slots)
            lines = [json.loads(line) for line in out.read_text().splitlines()]
            answers.append([(line["id"], line.get("text"), line.get("error")) for line in lines])
        self.assertEqual(answers[0], answers[1])
        self.assertEqual(len(answers[0]), 4)
        self.assertTrue(all(text is not None and error is None for _, text, error in answers[0]))

    def test_a_batch_on_a_device_that_is_lost_keeps_what_is_done(self):
        folder = Path(self.folder.name)
        (folder / "prompts.txt").write_text("".join(f"{word}\n" for word in ("one", "two two", "three", "four four four")))
        command = ["batch", "-m", self.model, "--raw", "--lines", "-i", folder / "prompts.txt", "-n", 6, "-c", 64, "--device",
                   "cuda", "--ordered", "--slots", 1]
        run(*command, "-o", folder / "whole.jsonl")
        done = subprocess.run([SLUICE, *map(str, command), "-o", str(folder / "lost.jsonl")], capture_output=True, timeout=200,
                              stdin=subprocess.DEVNULL, env={**os.environ, "SLUICE_EMULATED_FAIL_AT_LAUNCH": "500"})
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn(b"the GPU emulated GPU failed: it was lost; what was written so far is kept", done.stderr)
        kept = (folder / "lost.jsonl").read_text().splitlines()
        self.assertIn(len(kept), (1, 2, 3), done.stderr)
        run(*command, "-o", folder / "lost.jsonl")  # goes on
        texts = [[json.loads(line)["text"] for line in (folder / name).read_text().splitlines()]
                 for name in ("whole.jsonl", "lost.jsonl")]
        self.assertEqual(texts[0], texts[1])

    def test_the_kernels_chosen_are_said(self):
        done = run("run", "-m", self.model, "--raw", "-p", "abc", "-n", 2, "--device", "cuda", "--stats")
        self.assertRegex(done.stderr, rb"as measured: rows that dp4a takes: Q4_0 [0-4]")

    def test_a_part_on_the_gpu_is_said(self):
        _, said = self.generate("-ngl", "1")
        self.assertIn(b"1 of 3 layers are on the GPU, 2 on the CPU", said)

    def test_packed_weights_are_of_the_cpu(self):
        with tempfile.TemporaryDirectory() as home:
            command = [SLUICE, "run", "-m", str(self.model), "--raw", "-p", "a", "-n", "1", "--packed-cache"]
            done = subprocess.run(command, capture_output=True, timeout=100, stdin=subprocess.DEVNULL, env={"HOME": home})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(b"packed weights are not kept for later starts: all layers are on the GPU", done.stderr)
            self.assertEqual(list(Path(home).iterdir()), [])

    def test_messages(self):
        for arguments, message in [
            (["--device", "cuda:7"], b"there is no device cuda:7; this machine has 1"),
            (["--device", "cuda:x"], b"'cuda:x' is not a device; expected auto, cpu, cuda or cuda:N"),
            (["--device", "cuda", "--kv", "f32"], b"on the GPU the KV cache is int4, int8 or f16"),
        ]:
            with self.subTest(arguments=arguments):
                done = run("run", "-m", self.model, "-p", "a", *arguments, code=2)
                self.assertIn(message, done.stderr)
        # With --device auto the CPU takes over, and says why.
        _, said = self.generate("--kv", "f32")
        self.assertIn(b"int4, int8 or f16", said)
        self.assertIn(b"running on the CPU", said)

    def test_fit(self):
        fit = json.loads(run("inspect", self.model, "--fit", "-c", "64,128", "--json").stdout)["gpu_fit"]
        self.assertEqual([device["name"] for device in fit["devices"]], ["emulated GPU"])
        rows = {(row["context"], row["kv"]): row for row in fit["contexts"]}
        self.assertEqual(len(rows), 8)
        self.assertEqual(2 * rows[64, "f16"]["kv_bytes"], rows[128, "f16"]["kv_bytes"])
        for (context, kv), row in rows.items():
            self.assertEqual(row["gpu_layers"], 0 if kv == "f32" else 3)
            self.assertGreater(row["tokens_per_s"], 0)
        text = run("inspect", self.model, "--fit", "-c", "64", "--device", "cuda:0").stdout
        self.assertIn(b"1000 GB/s by data sheet", text)
        self.assertRegex(text, rb"\n64 .* 3/3 .* t/s.*on the CPU\n")
        self.assertIn(b"f32 needs --device cpu: running on the CPU", text)
        self.assertNotIn(b"GPU", run("inspect", self.model, "--fit", "-c", "64", "--device", "cpu").stdout)
        self.assertIn(b"there is no device cuda:7", run("inspect", self.model, "--fit", "--device", "cuda:7", code=2).stderr)
        self.assertIn(b"--device belongs to --fit", run("inspect", self.model, "--device", "cuda", code=2).stderr)

    def test_help_names_the_device(self):
        self.assertIn(b"cuda", run("run", "--help-all").stdout)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
