"""Checkpoint files that are broken or meant to harm: by name, with what must not be believed about them."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from collections.abc import Iterator
from typing import Any

FLOATS = struct.pack("<4f", 1, 2, 3, 4)
TENSOR = (
    b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
    b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x04tQK\x00K\x02K\x02\x86K\x02K\x01\x86\x89}tRs."
)


def safetensors(header: Any, data: bytes = FLOATS, *, length: int | None = None) -> bytes:
    """A file with this header, as JSON or as given bytes."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(raw) if length is None else length) + raw + data


def entry(dtype: Any = "F32", shape: Any = (2, 2), offsets: Any = (0, 16)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


def zipped(entries: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as z:
        for name, data in entries:
            z.writestr(zipfile.ZipInfo(name), data, method)
    return out.getvalue()


def torch_zip(pickle: bytes = TENSOR, data: bytes = FLOATS, more: list[tuple[str, bytes]] | None = None) -> bytes:
    """What `torch.save` would leave, with this pickle and storage."""
    return zipped(
        [("a/data.pkl", pickle), ("a/byteorder", b"little"), ("a/data/0", data), ("a/version", b"3\n"), *(more or [])]
    )


def legacy(pickle: bytes = TENSOR, keys: bytes = b"\x80\x02]X\x01\x00\x00\x000a.", data: bytes | None = None) -> bytes:
    """The format before 1.6."""
    magic = b"\x80\x02\x8a\x0a" + (0x1950A86A20F9469CFC6C).to_bytes(10, "little") + b"."
    system = b"\x80\x02}X\x0d\x00\x00\x00little_endian\x88s."
    return (
        magic
        + b"\x80\x02M\xe9\x03."
        + system
        + pickle
        + keys
        + (struct.pack("<q", 4) + FLOATS if data is None else data)
    )


def patched(data: bytes, old: bytes, new: bytes, which: int = 0) -> bytes:
    """`data` with one occurrence of `old` replaced by `new` of the same length."""
    at = -1
    for _ in range(which + 1):
        at = data.index(old, at + 1)
    return data[:at] + new + data[at + len(new) :]


def hostile_safetensors() -> Iterator[tuple[str, bytes]]:
    good = {"w": entry()}
    yield "empty", b""
    yield "short", b"\x01\x02\x03"
    yield "no_header", struct.pack("<Q", 0)
    yield "header_past_end", safetensors(good, length=10_000)
    yield "header_huge", safetensors(good, length=1 << 62)
    yield "header_all_ones", b"\xff" * 64
    yield "zeros", b"\0" * 4096
    yield "not_json", safetensors(b"{not json}")
    yield "array", safetensors(b"[1, 2]")
    yield "not_utf8", safetensors(b'{"\xff\xfe": 1}')
    yield "nan", safetensors(b'{"w": {"dtype": "F32", "shape": [NaN], "data_offsets": [0, 16]}}')
    yield "deep_json", safetensors(b'{"w": ' + b"[" * 200_000 + b"]" * 200_000 + b"}")
    yield "many_lists", safetensors(b'{"w": [' + b"[]," * 9_000_000 + b"[]]}")
    yield (
        "huge_number",
        safetensors(b'{"w": {"dtype": "F32", "shape": [' + b"9" * 10_000 + b'], "data_offsets": [0, 16]}}'),
    )
    yield "twice", safetensors(b'{"w": %b, "w": %b}' % ((json.dumps(entry()).encode(),) * 2))
    yield (
        "twice_inside",
        safetensors(b'{"w": {"dtype": "F32", "dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}}'),
    )
    yield "no_dtype", safetensors({"w": {"shape": [2, 2], "data_offsets": [0, 16]}})
    yield "unknown_dtype", safetensors({"w": entry("F31")})
    yield "dtype_number", safetensors({"w": entry(3)})
    yield "shape_negative", safetensors({"w": entry(shape=[-2, -2])})
    yield "shape_text", safetensors({"w": entry(shape="22")})
    yield "shape_float", safetensors({"w": entry(shape=[2.0, 2])})
    yield "shape_bool", safetensors({"w": entry(shape=[True, 4])})
    yield "shape_overflow", safetensors({"w": entry(shape=[1 << 40, 1 << 40])})
    yield "shape_dimensions", safetensors({"w": entry(shape=[1] * 100_000)})
    yield "offsets_reversed", safetensors({"w": entry(offsets=[16, 0])})
    yield "offsets_negative", safetensors({"w": entry(offsets=[-16, 0])})
    yield "offsets_three", safetensors({"w": entry(offsets=[0, 8, 16])})
    yield "offsets_past_end", safetensors({"w": entry(offsets=[16, 32])})
    yield "length_wrong", safetensors({"w": entry(offsets=[0, 12])})
    yield "overlap", safetensors({"w": entry(), "v": entry(offsets=[8, 24])}, FLOATS * 2)
    yield "same_bytes", safetensors({"w": entry(), "v": entry()})
    yield "hole", safetensors({"w": entry(), "v": entry(offsets=[20, 36])}, FLOATS * 3)
    yield "hole_first", safetensors({"w": entry(offsets=[16, 32])}, FLOATS * 2)
    yield "bytes_after", safetensors(good, FLOATS * 2)
    yield "data_cut", safetensors(good, FLOATS[:9])
    yield "metadata_numbers", safetensors({"__metadata__": {"a": 1}, "w": entry()})
    yield "metadata_list", safetensors({"__metadata__": [], "w": entry()})
    yield "half_byte", safetensors({"w": entry("F4", [3], [0, 2])}, b"ab")


def hostile_zips() -> Iterator[tuple[str, bytes]]:
    good = torch_zip()
    end = good.rindex(b"PK\x05\x06")
    directory = struct.unpack_from("<I", good, end + 16)[0]
    yield "no_end", good[:end]
    yield "cut_in_directory", good[: directory + 10]
    yield "cut_in_data", good[: directory - 20]
    yield "cut_after_head", good[:4]
    yield "bytes_after", good + b"more"
    yield "bytes_before", b"PK\x03\x04" + good
    yield "no_pickle", zipped([("a/data/0", FLOATS)])
    yield "no_storage", zipped([("a/data.pkl", TENSOR)])
    yield "no_entries", b"PK\x05\x06" + b"\0" * 18
    yield "compressed", zipped([("a/data.pkl", TENSOR), ("a/data/0", FLOATS)], zipfile.ZIP_DEFLATED)
    yield "bomb", zipped([("a/data.pkl", TENSOR), ("a/data/0", b"\0" * 50_000_000)], zipfile.ZIP_DEFLATED)
    yield "bzip2", zipped([("a/data.pkl", TENSOR), ("a/data/0", FLOATS)], zipfile.ZIP_BZIP2)
    yield "twice", zipped([("a/data.pkl", TENSOR), ("a/data/0", FLOATS), ("a/data/0", FLOATS)])
    yield "two_pickles", torch_zip(more=[("a/data.pkl", TENSOR)])
    yield "parent", torch_zip(more=[("a/../../etc/passwd", b"x")])
    yield "absolute", torch_zip(more=[("/etc/passwd", b"x")])
    yield "backslash", torch_zip(more=[("a\\..\\..\\x", b"x")])
    yield "drive", torch_zip(more=[("C:x", b"x")])
    yield "storage_short", torch_zip(data=FLOATS[:8])
    yield "storage_long", torch_zip(data=FLOATS * 2)
    yield "encrypted", patched(good, b"PK\x01\x02\x14\x03\x14\x00\x00\x00", b"PK\x01\x02\x14\x03\x14\x00\x01\x00", 2)
    yield "local_name", patched(good, b"a/data/0", b"a/data/9")
    yield "directory_name", patched(good, b"a/data/0", b"a/data/9", 1)
    yield "local_method", patched(good, good[:10], good[:8] + b"\x08\x00")
    yield "local_size", patched(good, struct.pack("<II", len(TENSOR), len(TENSOR)), struct.pack("<II", 7, 7))
    yield "directory_size", patched(good, struct.pack("<II", 16, 16), struct.pack("<II", 1 << 30, 1 << 30), 1)
    yield "sizes_differ", patched(good, struct.pack("<II", 16, 16), struct.pack("<II", 16, 17), 1)
    second = directory + 46 + len("a/data.pkl")
    yield "overlap", good[: second + 42] + struct.pack("<I", 0) + good[second + 46 :]
    yield "offset_past_end", good[: second + 42] + struct.pack("<I", 1 << 30) + good[second + 46 :]
    yield "offset_nowhere", good[: second + 42] + struct.pack("<I", 5) + good[second + 46 :]
    yield "count_wrong", good[: end + 8] + struct.pack("<HH", 9, 9) + good[end + 12 :]
    yield "volumes", good[: end + 4] + struct.pack("<HH", 1, 1) + good[end + 8 :]
    yield "directory_place", good[: end + 16] + struct.pack("<I", directory - 3) + good[end + 20 :]
    yield "directory_garbage", good[:directory] + b"\xaa" * (end - directory) + good[end:]
    yield "zip64_nowhere", good[:end] + b"PK\x06\x07" + struct.pack("<IQI", 0, 1 << 40, 1) + good[end:]
    yield "zip64_wrong", good[:end] + b"PK\x06\x07" + struct.pack("<IQI", 0, 4, 1) + good[end:]
    yield "comment", good[:-2] + b"\x05\x00" + b"abc"
    yield "pickle_cut", torch_zip(TENSOR[:-9])
    yield "pickle_checksum", patched(good, b"wctorch", b"vctorch")
    yield "key_outside", torch_zip(TENSOR.replace(b"X\x01\x00\x00\x000X", b"X\x04\x00\x00\x00../0X"))


def hostile_rest() -> Iterator[tuple[str, bytes]]:
    """(file name, bytes) of the other formats."""
    good = legacy()
    yield "legacy_cut.pt", good[:-5]
    yield "legacy_no_data.pt", good[:-24]
    yield "legacy_in_pickle.pt", good[:60]
    yield "legacy_version.pt", good.replace(b"M\xe9\x03", b"M\xea\x03")
    yield "legacy_count.pt", legacy(data=struct.pack("<q", 5) + FLOATS)
    yield "legacy_negative.pt", legacy(data=struct.pack("<q", -4) + FLOATS)
    yield "legacy_huge.pt", legacy(data=struct.pack("<q", 1 << 60) + FLOATS)
    yield "legacy_keys.pt", legacy(keys=b"\x80\x02}.")
    yield "legacy_other_key.pt", legacy(keys=b"\x80\x02]X\x01\x00\x00\x007a.")
    yield "legacy_more.pt", good + b"more"
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (4,), }"
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    yield "array_cut.npy", npy + FLOATS[:5]
    yield "array_more.npy", npy + FLOATS + b"x"
    yield "array_code.npy", npy.replace(b"(4,)", b"a()!") + FLOATS
    yield "array_negative.npy", npy.replace(b"(4,)", b"(-4)") + FLOATS
    yield "array_header.npy", b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 31)
    yield "array_deep.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 9000) + b"(" * 9000
    yield "arrays_cut.npz", zipped([("a.npy", npy + FLOATS)])[:-30]
    yield "arrays_bad.npz", zipped([("a.npy", b"nothing")])
    yield (
        "arrays_deflate.npz",
        patched(zipped([("a.npy", npy + FLOATS * 90)], zipfile.ZIP_DEFLATED), b"\x93", b"\xff")
        if (b"\x93" in zipped([("a.npy", npy + FLOATS * 90)], zipfile.ZIP_DEFLATED))
        else zipped([("a.npy", b"")]),
    )
    yield "text.pt", b"<html><title>404 Not Found</title></html>"
    yield "pointer.bin", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n"
    yield "zeros.pt", b"\0" * 100_000
    yield "gzip.pt", b"\x1f\x8b\x08\x00" + b"x" * 50
    yield "ones.bin", b"\xff" * 1000
