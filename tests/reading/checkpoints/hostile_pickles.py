"""Pickles that would run something if they were loaded, in every way that opcodes can name and call a function."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from pathlib import Path

CALLED = """
os.system posix.system nt.system os.execv os.popen os.remove subprocess.Popen subprocess.run subprocess.call
subprocess.check_output subprocess.getoutput commands.getoutput builtins.eval builtins.exec builtins.compile
builtins.__import__ builtins.getattr builtins.open builtins.breakpoint builtins.input __builtin__.eval
__builtin__.execfile __builtin__.apply runpy.run_path runpy._run_code importlib.import_module pty.spawn
code.InteractiveInterpreter.runcode timeit.timeit timeit.main cProfile.run profile.run pdb.run bdb.Bdb.run
doctest.debug_script trace.Trace.run idlelib.run.Executive.runcode idlelib.pyshell.ModifiedInterpreter.runcode
idlelib.calltip.get_entity idlelib.autocomplete.AutoComplete.get_entity lib2to3.pgen2.grammar.Grammar.loads
lib2to3.pgen2.pgen.ParserGenerator.make_label ensurepip._run_pip pip.main pydoc.pipepager pydoc.locate
asyncio.unix_events._UnixSubprocessTransport._start _osx_support._read_output distutils.file_util.write_file
numpy.f2py.crackfortran.getlincoef numpy.testing._private.utils.runstring torch.utils.collect_env.run
torch.utils.bottleneck.__main__.run_cprofile torch._dynamo.guards.GuardBuilder.get torch.hub.load torch.load
torch.jit.unsupported_tensor_ops.execWrapper torch.serialization.load operator.attrgetter operator.methodcaller
functools.reduce types.CodeType types.FunctionType ctypes.CDLL logging.config.listen
http.client.HTTPSConnection urllib.request.urlopen requests.get socket.create_connection smtplib.SMTP
ssl.get_server_certificate webbrowser.open shutil.rmtree shutil.move uuid._get_command_stdout cloudpickle.load
dill.loads joblib.load marshal.loads pickle.loads _pickle.loads sys.exit multiprocessing.Process threading.Thread
venv.create zipimport.zipimporter tempfile.mktemp linecache.getlines signal.raise_signal
""".split()  # noqa: SIM905 - a list of words

MERELY_UNKNOWN = """
torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression my_project.models.Net __main__.Trainer
torch.utils._config_module.ConfigModule.load_config pathlib.Path.unlink collections.namedtuple functools.partial
""".split()  # noqa: SIM905 - a list of words


def text(word: str) -> bytes:
    """SHORT_BINUNICODE."""
    data = word.encode()
    return b"\x8c" + bytes([len(data)]) + data


def naming(module: str, name: str, canary: Path) -> Iterator[tuple[str, bytes]]:
    """(way, pickle) of calling `module.name` with a command that would leave a file behind."""
    command = f"touch {canary}"
    argument = b"X" + struct.pack("<I", len(command)) + command.encode()
    named = f"c{module}\n{name}\n".encode()
    yield "reduce", b"\x80\x02" + named + argument + b"\x85R."
    yield "stack_global", b"\x80\x04" + text(module) + text(name) + b"\x93" + argument + b"\x85R."
    yield "memo", b"\x80\x04" + text(name) + b"\x94" + text(module) + b"\x94" + b"h\x01h\x00\x93" + argument + b"\x85R."
    yield "inst", b"(" + argument + f"i{module}\n{name}\n.".encode()
    yield "obj", b"(" + named + argument + b"o."
    yield "newobj", b"\x80\x02" + named + argument + b"\x85\x81."
    yield "newobj_ex", b"\x80\x04" + named + argument + b"\x85}\x92."
    yield "build", b"\x80\x02" + named + b")R}X\x0c\x00\x00\x00__setstate__" + named + b"sb" + argument + b"b."
    yield "in_key", b"\x80\x02}" + named + argument + b"\x85RK\x01s."
    yield "popped", b"\x80\x02" + named + argument + b"\x85R0N."
    yield "unfinished", b"\x80\x02" + named + argument + b"\x85R"
    yield "persistent", b"\x80\x02(X\x07\x00\x00\x00storage" + named + b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ."


def hostile_pickles(canary: Path) -> Iterator[tuple[str, bytes]]:
    """Every function above once, each way of calling with several of them."""
    for number, name in enumerate(CALLED):
        module, _, function = name.rpartition(".")
        ways = list(naming(module, function, canary))
        chosen = ways if name in ("os.system", "builtins.eval", "subprocess.Popen") else [ways[number % len(ways)]]
        for way, data in chosen:
            yield f"{name}-{way}", data
    nested = pickle.dumps({"a": [(1, b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00id\x85R.")]})
    yield "nested-bytes", nested.replace(b"}", b"}", 1)[:-1] + b"0cos\nsystem\nX\x02\x00\x00\x00id\x85R."
    yield "dotted", b"\x80\x04" + text("torch") + text("os.system") + b"\x93" + text("id") + b"\x85R."


def malformed_pickles() -> Iterator[tuple[str, bytes]]:
    """Pickles that no reader can follow, or that would cost one its memory, its time or its stack."""
    yield "empty", b"\x80\x02"
    yield "stop_only", b"\x80\x02."
    yield "unknown_opcode", b"\x80\x02\xff."
    yield "protocol_9", b"\x80\x09N."
    yield "huge_string", b"\x80\x04\x8d" + struct.pack("<Q", 1 << 60) + b"x."
    yield "huge_bytes", b"\x80\x04\x8e" + struct.pack("<Q", (1 << 64) - 1) + b"x."
    yield "huge_bytearray", b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"x."
    yield "huge_long", b"\x80\x02\x8b" + struct.pack("<i", 1 << 30) + b"\x01" * 100 + b"."
    yield "negative_long", b"\x80\x02\x8b" + struct.pack("<i", -5) + b"."
    yield "digits", b"L" + b"9" * 100_000 + b"L\n."
    yield "int_digits", b"I" + b"9" * 100_000 + b"\n."
    yield "not_digits", b"Iabc\n."
    yield "underscores", b"I1__0\n."
    yield "float_words", b"Fdoctor\n."
    yield "memo_missing", b"\x80\x02h\x05."
    yield "memo_far", b"\x80\x02Nr\xff\xff\xff\xff0j\xff\xff\xff\xff."
    yield "memo_negative", b"Np-1\n0g-1\n."
    yield "memoize_nothing", b"\x80\x04\x94."
    yield "extension_1", b"\x80\x02\x82\x01."
    yield "extension_2", b"\x80\x02\x83\x01\x00."
    yield "extension_4", b"\x80\x02\x84\x01\x00\x00\x00."
    yield "next_buffer", b"\x80\x05\x97."
    yield "stack_global_numbers", b"\x80\x04K\x01K\x02\x93."
    yield "stack_global_list", b"\x80\x04]]\x93."
    yield "global_no_newline", b"\x80\x02cos"
    yield "global_not_utf8", b"\x80\x02c\xff\xfe\n\xff\n."
    yield "global_long", b"\x80\x02c" + b"a" * 70_000 + b"\nb\n."
    yield "unhashable_list", b"\x80\x02}]K\x01s."
    yield "unhashable_dict", b"\x80\x02}}K\x01s."
    yield "odd_dict", b"(K\x01d."
    yield "setitem_on_list", b"\x80\x02]K\x01K\x02s."
    yield "append_to_dict", b"\x80\x02}K\x01a."
    yield "appends_to_int", b"\x80\x02K\x01(K\x02e."
    yield "tuple_of_nothing", b"\x80\x02\x87."
    yield "mark_missing", b"\x80\x02t."
    yield "pop_nothing", b"\x80\x020."
    yield "reduce_number", b"\x80\x02K\x01K\x02R."
    yield "build_nothing", b"\x80\x02Nb."
    yield "frame_cut", b"\x80\x04\x95\xff\xff\xff\xff\xff\xff\xff\x7fN."
    yield "quotes", b"S'abc\n."
    yield "quotes_2", b"Sabc\n."
    yield "escapes", b"S'\\x'\n."
    yield "unicode_escapes", b"V\\u12\n."
    yield "surrogates", b"\x80\x02X\x02\x00\x00\x00\xff\xff."
    yield "marks", b"\x80\x02" + b"(" * 3_000_000 + b"."
    yield "deep_tuple", b"\x80\x02N" + b"\x85" * 1_000_000 + b"."
    yield "deep_list", b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b"."
    yield "deep_key", b"\x80\x02}N" + b"\x85" * 200_000 + b"K\x01s."
    yield "deep_dict", b"\x80\x02" + b"}K\x01" * 300_000 + b"N" + b"s" * 300_000 + b"."
    yield "many_lists", b"\x80\x02" + b"]" * 9_000_000 + b"."
    yield "many_dicts", b"\x80\x02(" + b"}" * 5_000_000 + b"l."
    yield "many_memos", b"\x80\x04N" + b"\x94" * 9_000_000 + b"."
    yield "operations", b"\x80\x02" + b"N0" * 8_000_000 + b"N."
    yield "doubling", b"\x80\x02]q\x00" + b"".join(b"(" + b"h%c" % i * 10 + b"lq%c" % (i + 1) for i in range(40)) + b"."
    yield "self_list", b"\x80\x02]q\x00h\x00a."
    yield "self_dict", b"\x80\x02}q\x00K\x01h\x00s."
    yield (
        "collisions",
        b"\x80\x02}("
        + b"".join(b"\x8a\x0a" + (i * ((1 << 61) - 1)).to_bytes(10, "little") + b"N" for i in range(1, 60_000))
        + b"u.",
    )
    yield (
        "encode_bomb",
        b"\x80\x02X\x40\x42\x0f\x00" + b"a" * 1_000_000 + b"q\x00" + (b"c_codecs\nencode\nh\x00\x85R" * 5_000) + b".",
    )
    view = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpu%stQ"
    tensor = b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\n(" + view + b"%s\x89}tR."
    big = b"\x8a\x08" + b"\xff" * 7 + b"\x7f"
    yield "tensor_negative", tensor % (b"K\x04", b"J\xff\xff\xff\xffK\x02\x85K\x01\x85")
    yield "tensor_negative_stride", tensor % (b"K\x04", b"K\x00K\x02\x85J\xff\xff\xff\xff\x85")
    yield "tensor_huge", tensor % (b"K\x04", b"K\x00" + big + b"\x85K\x01\x85")
    yield "tensor_past_end", tensor % (b"K\x04", b"K\x02K\x04\x85K\x01\x85")
    yield "tensor_dimensions", tensor % (b"K\x04", b"K\x00K\x01K\x01\x86K\x01\x85")
    yield "tensor_text", tensor % (b"K\x04", b"K\x00X\x01\x00\x00\x00a\x85K\x01\x85")
    yield "storage_negative", tensor % (b"J\xff\xff\xff\xff", b"K\x00K\x02\x85K\x01\x85")
    yield "storage_huge", tensor % (big, b"K\x00K\x02\x85K\x01\x85")
    yield "tensor_arguments", b"\x80\x02ctorch._utils\n_rebuild_tensor_v2\nK\x01\x85R."
    yield "storage_unknown", tensor.replace(b"FloatStorage", b"WhatStorage") % (b"K\x04", b"K\x00K\x02\x85K\x01\x85")
