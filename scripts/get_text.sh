#!/usr/bin/env bash
# Fetches a public-domain text of ordinary English prose for perplexity:
#   scripts/get_text.sh [FILE]      (FILE: build/models/northanger-abbey.txt)
# Prints its path. The text is Jane Austen's Northanger Abbey (published 1817), from the Debian package
# r-cran-janeaustenr, which carries Project Gutenberg's text line by line; nothing is installed or run.
# Paragraphs are put on one line each, so that line breaks of the print do not enter the measurement.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

sha=a3dd2c010ee617b5fde0b7450adcdb8187d74c83e7d7c7645129b868e99e7116
target=$(realpath -m "${1:-$(repo_root)/build/models/northanger-abbey.txt}")

if [ -f "$target" ] && [ "$(sha256sum "$target" | cut -d' ' -f1)" = "$sha" ]; then
  printf '%s\n' "$target"
  exit
fi
command -v apt-get >/dev/null || die "apt-get is not here; it is what downloads the text's package"
mkdir -p "$(dirname "$target")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
(cd "$work" && { apt-get download r-cran-janeaustenr || { as_root apt-get update &&
  apt-get download r-cran-janeaustenr; }; } >"$work/log" 2>&1) || { cat "$work/log" >&2; die "download failed"; }
dpkg-deb -x "$work"/r-cran-janeaustenr_*.deb "$work/package"

python3 - "$work/package/usr/lib/R/site-library/janeaustenr/data/Rdata.rdb" >"$work/text" <<'PY'
# R's lazy-load database: per object 4 bytes of length, then a zlib stream holding the XDR form of a
# character vector: header, then (flags, length, bytes) for each string. All numbers are big-endian.
import struct, sys, zlib

data = open(sys.argv[1], "rb").read()


def objects():
    at = 0
    while at < len(data):
        stream = zlib.decompressobj()
        yield stream.decompress(data[at + 4 :])
        at = len(data) - len(stream.unused_data)


def strings(xdr):
    assert xdr[:2] == b"X\n", "not an XDR serialization"
    version, _, _, encoding_length = struct.unpack_from(">4i", xdr, 2)
    assert version == 3, f"serialization version {version}, expected 3"
    at = 18 + encoding_length
    flags, count = struct.unpack_from(">2i", xdr, at)
    assert flags & 0xFF == 16, f"object of kind {flags & 0xFF}, expected 16 (strings)"
    at += 8
    for _ in range(count):
        _, length = struct.unpack_from(">2i", xdr, at)
        at += 8
        yield xdr[at : at + length].decode("utf-8")
        at += length


book = next(lines for lines in map(lambda o: list(strings(o)), objects()) if lines[0] == "NORTHANGER ABBEY")
paragraphs = "\n".join(line.strip() for line in book).split("\n\n")
text = "\n\n".join(" ".join(p.split()) for p in paragraphs if p.strip()) + "\n"
sys.stdout.buffer.write(text.encode("utf-8"))
PY

found=$(sha256sum "$work/text" | cut -d' ' -f1)
[ "$found" = "$sha" ] || die "the text has SHA-256 $found, expected $sha: the package has changed"
mv "$work/text" "$target"
chmod 644 "$target"
printf '%s\n' "$target"
