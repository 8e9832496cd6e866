"""GGUF files for tests: small ones, and copies of models with something changed."""

import struct


def gguf_string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def gguf_value(value):
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<Ii", 5, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<I", 8) + gguf_string(value)


def write_gguf(path, metadata, tensors=()):
    """Metadata of scalars; tensors as (name, F32 values)."""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    for key, value in metadata.items():
        out += gguf_string(key) + gguf_value(value)
    offset = 0
    for name, values in tensors:
        out += gguf_string(name) + struct.pack("<IQIQ", 1, len(values), 0, offset)
        offset += (len(values) * 4 + 31) // 32 * 32
    out += b"\0" * (-len(out) % 32)
    for _, values in tensors:
        data = struct.pack(f"<{len(values)}f", *values)
        out += data + b"\0" * (-len(data) % 32)
    path.write_bytes(out)


def with_metadata(source, target, extra, without=(), renamed=None):
    """A copy of a GGUF file (version 3, alignment 32) with other metadata; `renamed`: other texts in lists."""
    data = source.read_bytes()
    sizes = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
    version, tensors, count = struct.unpack_from("<IQQ", data, 4)
    assert version == 3
    at = 24

    def skip_string(at):
        return at + 8 + struct.unpack_from("<Q", data, at)[0]

    def skip_value(kind, at):
        if kind == 8:
            return skip_string(at)
        if kind != 9:
            return at + sizes[kind]
        element, length = struct.unpack_from("<IQ", data, at)
        at += 12
        for _ in range(length):
            at = skip_value(element, at)
        return at

    pairs = []
    for _ in range(count):
        start = at
        at = skip_string(at)
        key = data[start + 8 : at].decode()
        at = skip_value(struct.unpack_from("<I", data, at)[0], at + 4)
        if key in extra or key in without:
            continue
        pair = data[start:at]
        for old, new in (renamed or {}).items():
            pair = pair.replace(gguf_string(old), gguf_string(new))
        pairs.append(pair)
    infos = at
    for _ in range(tensors):
        at = skip_string(at)
        dims = struct.unpack_from("<I", data, at)[0]
        at += 4 + 8 * dims + 4 + 8
    body = (at + 31) // 32 * 32
    pairs += [gguf_string(key) + gguf_value(value) for key, value in extra.items()]
    out = b"GGUF" + struct.pack("<IQQ", 3, tensors, len(pairs)) + b"".join(pairs) + data[infos:at]
    out += b"\0" * (-len(out) % 32)
    target.write_bytes(out + data[body:])
