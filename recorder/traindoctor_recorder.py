"""What a training does, step by step, kept on disk before the process can die.

    from traindoctor_recorder import Recorder

    rec = Recorder("runs/exp42", model, optimizer)
    for batch in rec.watch(loader):        # optional: measures the wait for data, remembers the batch
        loss = model(batch)
        loss.backward()
        rec.step(loss)                     # after backward, before optimizer.step()
        optimizer.step()

`RecorderCallback` does the same in the HF Trainer, `LightningRecorder` in Lightning, `Recorder.accelerate` with
Accelerate. The one file needs Python 3.9 and the torch that is there (1.13 or newer), and may be copied.

Everything goes to RUN/doctor-recorder/: `rank_0.jsonl` (a line a step), `events_rank_0.jsonl`,
`gradients_rank_0.jsonl` (norms by parameter, sampled), and on a value that is not finite
`nonfinite_rank_0_step_812.json` with `batch_rank_0_step_812.pt`. Nothing here ever raises into the training.
"""

from __future__ import annotations

import atexit
import collections
import contextlib
import json
import math
import os
import statistics
import sys
import threading
import time
import traceback

__version__ = "0.1.0"
__all__ = ["LightningRecorder", "Recorder", "RecorderCallback"]  # noqa: F822 - two are made by __getattr__

_EVERY = 0.5  # seconds between two writes of the thread
_AGAIN = 30.0  # seconds until writing is tried again after it failed
_PATIENCE = 10.0  # seconds that training waits for trouble to reach the disk
_QUEUE = 20_000  # lines waiting for a disk that does not answer
_SHARE = 0.003  # of a step's time that norms of all gradients may take; they are taken less often beyond it
_RARE = 20  # steps between two such norms at most
_RING = 50  # steps remembered
_SEEN = 20  # finite steps before anything is called a spike
_CALLS = 16  # micro-batches of one step whose inputs are remembered
_SPIKES = 3  # whose batch is kept
_SKIPS = 8  # skipped steps in a row that are no search for a scale any more
_LATE = 2  # steps that a device may be behind before their numbers are waited for
_LISTED = 20  # names listed of many
_FP16_NEAR = 2e4  # absolute values from which fp16 (65504) is near
_MAKES_INF = ("fill", "full", "where", "triu", "tril", "scalar_tensor", "empty", "new_", "lift", "_to_copy", "copy_",
              "view", "clone", "detach")  # fmt: skip  # operations that write infinities on purpose, or memory as it is


def _torch():
    """The torch that is there.

    Raises:
        RuntimeError: there is none.
    """
    try:
        import torch
    except ImportError as e:
        raise RuntimeError(f"traindoctor_recorder needs torch, which cannot be imported here: {e}") from e
    return torch


def _tell(text):
    """One line to the user, wherever stderr leads."""
    with contextlib.suppress(Exception):
        sys.stderr.write(f"traindoctor_recorder: {text}\n")
        sys.stderr.flush()


def _rank():
    """Rank of this process, as the launcher or torch.distributed says."""
    for name in ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    if os.environ.get("SLURM_PROCID", "").isdigit() and os.environ.get("SLURM_NTASKS", "1") != "1":
        return int(os.environ["SLURM_PROCID"])
    return 0


def _world():
    """Number of processes that train together; 1 where nobody says otherwise."""
    for name in ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    with contextlib.suppress(Exception):
        torch = _torch()
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return torch.distributed.get_world_size()
    return 1


def _resident():
    """Bytes of memory of this process; None where the system does not say."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _short(value):
    """A float with the digits that matter; NaN and infinities stay."""
    return float(f"{value:.7g}") if isinstance(value, float) and math.isfinite(value) else value


def _finite(value):
    return value is None or math.isfinite(value)


class _Writer:
    """Appends lines to files of one folder from a thread of its own.

    A disk that fails or hangs costs lines, which is told once, and never the training.
    """

    def __init__(self, folder, bound):
        self.folder = folder
        self.lost = 0
        self._bound = bound
        self._waiting = collections.deque()
        self._open = {}
        self._wake = threading.Event()
        self._turn = threading.Lock()
        self._thread = None
        self._told = False
        self._until = 0.0
        self._ended = False
        self._broken = set()  # files whose last line may be half written

    def line(self, name, row):
        """One line, on disk within a second."""
        if len(self._waiting) >= _QUEUE:
            self.lost += 1
            return
        self._waiting.append((name, row))
        if self._thread is None and not self._ended:
            self._thread = threading.Thread(target=self._run, name="traindoctor-recorder", daemon=True)
            self._thread.start()

    def now(self, make=None):
        """Everything so far on the disk, and what `make` writes; waits at most `_PATIENCE` seconds for it."""
        done = threading.Event()

        def work():
            try:
                self._drain(sync=True)
                if make is not None:
                    self._careful(make, again=True)
            finally:
                done.set()

        # A thread of its own: a server that hangs must not hold the training longer than the deadline.
        try:
            threading.Thread(target=work, name="traindoctor-recorder-now", daemon=True).start()
        except RuntimeError:  # no thread can be had while the interpreter ends
            work()
        return done.wait(_PATIENCE)

    def close(self):
        """Everything to the disk, and no more."""
        self._ended = True
        self._wake.set()
        self.now()
        with contextlib.suppress(OSError):
            for fd in self._open.values():
                os.close(fd)
        self._open = {}

    def whole(self, name, write):
        """A file that is there whole or not at all, and on the disk."""
        path = os.path.join(self.folder, name)
        part = f"{path}.part"
        try:
            with open(part, "wb") as file:
                write(file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part)
            raise

    def _run(self):
        while not self._ended:
            self._wake.wait(_EVERY)
            self._drain()

    def _drain(self, sync=False):
        with self._turn:
            self._careful(lambda: self._write(sync), again=sync)

    def _careful(self, work, again=False):
        if time.monotonic() < self._until and not again:
            self.lost += len(self._waiting)
            self._waiting.clear()
            return
        try:
            work()
        except Exception as e:  # noqa: BLE001 - whatever fails here must not reach the training
            self._until = time.monotonic() + _AGAIN
            if not self._told:
                self._told = True
                why = getattr(e, "strerror", None) or str(e) or type(e).__name__
                _tell(f"cannot write to {self.folder}: {why}; training goes on, its record has gaps")

    def _write(self, sync):
        texts = collections.defaultdict(list)
        while self._waiting:
            name, row = self._waiting.popleft()
            texts[name].append(json.dumps(row, default=str))
        if texts and not os.path.isdir(self.folder):
            self.lost += sum(map(len, texts.values()))
            raise OSError(2, "the folder is gone")
        for name, rows in texts.items():
            self._append(name, ("\n".join(rows) + "\n").encode())
        for fd in self._open.values() if sync else ():
            os.fsync(fd)

    def _append(self, name, data):
        path = os.path.join(self.folder, name)
        fd = self._open.get(name)
        if fd is not None and os.fstat(fd).st_size + len(data) > self._bound:
            os.close(self._open.pop(name))
            os.replace(path, os.path.join(self.folder, f"{name.rpartition('.')[0]}.before.jsonl"))
            fd = None
        if fd is None:
            fd = self._open[name] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if os.fstat(fd).st_size and _last_byte(path) != b"\n":  # an earlier process died within a line
                self._broken.add(name)
        if name in self._broken:
            data = b"\n" + data
        self._broken.add(name)
        while data:
            data = data[os.write(fd, data) :]
        self._broken.discard(name)


def _last_byte(path):
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)


class _Seen:
    """A micro-batch: its loss, what was fed, and the call of the model it went through."""

    __slots__ = ("batch", "call", "ids", "loss", "value")

    def __init__(self, loss, batch, ids, call):
        self.loss, self.batch, self.ids, self.call = loss, batch, ids, call
        self.value = None


def _leaves(value, name="", text=False, depth=6):
    """(name, tensor or text) of everything in nested containers."""
    torch = _torch()
    if isinstance(value, torch.Tensor):
        yield name or "tensor", value
    elif isinstance(value, str):
        if text:
            yield name or "text", value
    elif depth and isinstance(value, collections.abc.Mapping):
        for key in list(value):
            yield from _leaves(value[key], f"{name}.{key}" if name else str(key), text, depth - 1)
    elif depth and isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", range(len(value)))
        for key, one in list(zip(names, value))[:1000]:
            yield from _leaves(one, f"{name}.{key}" if name else str(key), text, depth - 1)
    elif depth and hasattr(value, "__dict__") and not callable(value):
        yield from _leaves(dict(vars(value)), name, text, depth - 1)


def _local(tensor):
    """The part of a tensor that this process holds."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _bad(tensor):
    """How many elements are not finite."""
    if not (tensor.is_floating_point() or tensor.is_complex()):
        return 0
    return int(tensor.numel() - tensor.isfinite().sum())


def _described(tensor):
    """Shape, type and range of a tensor, never its contents."""
    torch = _torch()
    tensor = _local(tensor.detach())
    out = {"shape": list(tensor.shape), "dtype": str(tensor.dtype).replace("torch.", ""), "device": str(tensor.device)}
    if not tensor.numel() or tensor.is_complex() or tensor.layout != torch.strided:
        return out
    if tensor.is_floating_point():
        out["nan"] = int(tensor.isnan().sum())
        out["inf"] = int(tensor.isinf().sum())
        rows = (~tensor.isfinite()).reshape(tensor.shape[0], -1).any(1) if tensor.dim() and _bad(tensor) else None
        if rows is not None:
            out["bad_rows"] = rows.nonzero().flatten().tolist()[:_LISTED]
        tensor = tensor[tensor.isfinite()].float()
    if tensor.numel():
        out["min"], out["max"] = tensor.min().item(), tensor.max().item()
    return out


class _Watched:
    """A loader whose batches pass through the recorder; everything else is the loader's own."""

    def __init__(self, loader, recorder):
        self._loader, self._recorder = loader, recorder

    def __len__(self):
        return len(self._loader)

    def __getattr__(self, name):
        return getattr(self.__dict__["_loader"], name)

    def __iter__(self):
        it = iter(self._loader)
        while True:
            began = time.perf_counter()
            try:
                batch = next(it)
            except StopIteration:
                return
            self._recorder._fetched(batch, time.perf_counter() - began)
            yield batch


class Recorder:
    """Records a training.

    Args:
        run: folder of the run; `doctor-recorder/` is made in it.
        model: the module that is called for the forward pass.
        optimizer: for the learning rate and the time of its step.
        scaler: a GradScaler, so that steps it skips are told apart from trouble.
        start: steps already done, after a resume.
        layers_every: steps between two rows of gradient norms by parameter; 0 for none.
        save_batch: keep the tensors of the batch at trouble; `keep_bytes` at most. Texts only with `text=True`.
        replay: run the forward pass of a bad batch once more under hooks, without gradients, to name the layer.
            By default only where no other rank could be left waiting: one process, or DistributedDataParallel.
        wait: look at the loss before `step` returns. By default so on the CPU; on a device the numbers are
            fetched a step later, so that nothing waits, and the layer is seldom known. Costs one
            synchronisation a step.
        captures: troubles whose batch and layer are kept; a row of steps that are not finite is one.
        first_call: the first call of the model or of one of its parts is the forward pass of a batch (Lightning).
        bound: bytes of each file of lines; one older file of that size is kept.

    Raises:
        RuntimeError: torch is not there. Nothing else: what goes wrong later is told on stderr once.
    """

    def __init__(self, run, model=None, optimizer=None, scaler=None, *, start=0, layers_every=50, save_batch=True,
                 keep_bytes=64 << 20, text=False, replay=None, wait=None, captures=5, bound=256 << 20,
                 first_call=False):  # fmt: skip
        self._torch = _torch()
        self.folder = os.path.join(os.fspath(run), "doctor-recorder")
        self.rank = _rank()
        self.model, self.optimizer, self.scaler = model, optimizer, scaler
        self._index, self._layers_every = int(start), layers_every
        self._save_batch, self._keep, self._text = save_batch, keep_bytes, text
        self._replay_asked, self._wait, self._captures = replay, wait, captures
        self._first_call = first_call
        self._pid = os.getpid()
        self._faults = 0
        self._writer = _Writer(self.folder, bound)
        self._seen, self._call, self._fetched_batch, self._ids = [], None, None, None
        self._ring = collections.deque(maxlen=_RING)
        self._late = collections.deque()
        self._late_seen = {}
        self._params, self._names, self._canaries, self._plain = [], [], [], True
        self._last_norms = None
        self._weights_then = None
        self._cost, self._step_time, self._norms_at = 0.0, 0.0, -(10**9)
        self._last = self._batch_at = None
        self._data = self._optimizing = 0.0
        self._streak = self._skipped = self._skips = self._spikes = 0
        self._last_spike = -(10**9)
        self._filtered, self._filter_told = [], False
        self._undo = []
        self._replaying = self._closed = False
        self._reduce = "mean"
        with self._guarded():
            os.makedirs(self.folder, exist_ok=True)
        with self._guarded():
            self._begin()

    # What a script calls

    def watch(self, loader):
        """The loader, with the wait for each batch measured and the batch remembered until its step is over."""
        return _Watched(loader, self)

    def saw(self, loss, batch=None, ids=None):
        """One micro-batch of a step that accumulates several; `step()` ends it."""
        if self._ours():
            with self._guarded():
                self._saw(loss, batch, ids)

    def step(self, loss=None, batch=None, ids=None, step=None, tokens=None, grad_norm=None, **values):
        """One step is computed: call it after backward and before `optimizer.step()`.

        Args:
            loss: the loss, a tensor or a number; it is averaged with those of `saw`.
            batch: what was fed, where no `watch` and no call of the model tells it.
            ids: of the samples, a list or a tensor.
            step: its number; counted from `start` otherwise.
            grad_norm: as `clip_grad_norm_` returned it, where gradients are already clipped.
            values: further numbers of the row.
        """
        if not self._ours():
            return
        with self._guarded():
            began = time.perf_counter()
            if loss is not None or batch is not None or ids is not None or not self._seen:
                self._saw(loss, batch, ids)
            self._index = int(step) if step is not None else self._index + 1
            self._take(began, tokens, grad_norm, values)

    def logged(self, loss, step=None):
        """The loss as a logger shows it; tells the user where values that were not finite are missing from it."""
        if not self._ours():
            return
        with self._guarded():
            self._settle(all_of_it=True)
            if self._filtered and loss is not None and math.isfinite(float(loss)):
                steps = self._filtered[:_LISTED]
                self._event("nan_filtered", step=steps[0], steps=steps, count=len(self._filtered), shown=float(loss))
                if not self._filter_told:
                    self._filter_told = True
                    named = ", ".join(map(str, steps[:8])) + (" ..." if len(self._filtered) > 8 else "")
                    _tell(f"NaNs are being filtered from the logged loss ({float(loss):.6g}): steps {named}")
            self._filtered = []

    def note(self, **values):
        """Further numbers of the step that was recorded last."""
        if self._ours():
            with self._guarded():
                self._row({"step": self._index, **{k: _short(v) for k, v in values.items()}})

    def accelerate(self, accelerator, reduce="mean"):
        """Record every step that goes through `accelerator.backward`, by itself; gives the recorder back."""
        with self._guarded():
            original = accelerator.backward
            self.scaler = self.scaler or getattr(accelerator, "scaler", None)
            self._reduce = reduce

            def backward(loss, *args, **kwargs):
                out = original(loss, *args, **kwargs)
                if self._ours():
                    self.saw(loss)
                    if getattr(accelerator, "sync_gradients", True):
                        self.step()
                return out

            accelerator.backward = backward
            self._undo.append(lambda: accelerator.__dict__.pop("backward", None))
        return self

    def close(self):
        """Everything on disk, hooks taken away. Called by itself when the program ends."""
        if self._closed or os.getpid() != self._pid:
            return
        with self._guarded():
            self._settle(all_of_it=True)
            self._event("end", step=self._index, skipped_total=self._skipped, lost=self._writer.lost)
        self._closed = True
        for undo in self._undo:
            with contextlib.suppress(Exception):
                undo()
        self._undo = []
        with contextlib.suppress(Exception):
            atexit.unregister(self.close)
            self._writer.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __getstate__(self):
        """Another process gets a recorder that does nothing."""
        return {"_pid": -1, "_closed": True, "_faults": 0}

    def __setstate__(self, state):
        self.__dict__.update(state)

    # Beginning

    def _ours(self):
        """Whether this process records: not a fork of it (a worker of a loader), not after trouble of our own."""
        return not self._closed and os.getpid() == self._pid and self._faults < 3 and not self._replaying

    @contextlib.contextmanager
    def _guarded(self):
        try:
            yield
        except Exception as e:  # noqa: BLE001 - a fault of the recorder is told and never reaches the training
            self._faults += 1
            if self._faults == 1:
                at = traceback.extract_tb(e.__traceback__)[-1]
                _tell(f"a fault of its own, training goes on: {type(e).__name__}: {e} ({at.name}, line {at.lineno})")

    def _begin(self):
        atexit.register(self.close)
        if self.model is not None:
            self._refresh()
            self._hook_calls()
            with self._torch.no_grad():
                self._weights_then = self._weight_norm()
        inner = getattr(self.optimizer, "optimizer", self.optimizer)  # Accelerate wraps it
        if hasattr(inner, "register_step_post_hook"):
            self._hook_optimizer(inner)
        world = _world()
        self._event("start", step=self._index, torch=str(self._torch.__version__), pid=self._pid, world_size=world,
                    parameters=sum(p.numel() for p in self._params), tensors=len(self._params),
                    sharded=self._sharded(), weight_norm=_short(self._weights_then))  # fmt: skip

    def _refresh(self):
        """The parameters that are trained, in forward order as far as the model lists them so."""
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        self._names, self._params = [_bare(n) for n, _ in named], [p for _, p in named]
        first = sorted(self._params[:6], key=lambda p: p.numel())[:1]  # what breaks in backward arrives here
        self._canaries = first + self._params[-1:]
        self._plain = not any(hasattr(p, "to_local") for p in self._params)

    def _sharded(self):
        kinds = {type(p).__name__ for p in self._params} | {type(m).__name__ for m in self.model.modules()} \
            if self.model is not None else set()  # fmt: skip
        return bool(kinds & {"DTensor", "FlatParameter", "FullyShardedDataParallel", "DeepSpeedEngine"})

    def _hook_calls(self):
        torch = self._torch
        compiling = getattr(getattr(torch, "compiler", None), "is_compiling", None)

        def before(module, args, kwargs=None):
            if compiling is not None and compiling():
                return
            if torch.is_grad_enabled() and self._ours() and not (self._first_call and self._call):
                self._call = (module, args, kwargs or {}, _casting(torch))

        for one in (self.model, *(self.model.children() if self._first_call else ())):
            try:
                handle = one.register_forward_pre_hook(before, with_kwargs=True)
            except TypeError:  # torch 1.13
                handle = one.register_forward_pre_hook(before)
            self._undo.append(handle.remove)

    def hook_loss(self):
        """Take the loss from what the model returns (`output.loss`), for loops that show it nowhere else."""

        def after(_module, _args, output):
            loss = output.get("loss") if isinstance(output, collections.abc.Mapping) else getattr(output, "loss", None)
            if loss is not None and self._torch.is_grad_enabled() and getattr(loss, "ndim", 1) == 0:
                self.saw(loss)

        self._undo.append(self.model.register_forward_hook(after).remove)

    def _hook_optimizer(self, optimizer):
        def before(*_):
            self._optimizer_at = time.perf_counter()

        def after(*_):
            self._optimizing += time.perf_counter() - self._optimizer_at

        self._optimizer_at = time.perf_counter()
        self._undo.append(optimizer.register_step_pre_hook(before).remove)
        self._undo.append(optimizer.register_step_post_hook(after).remove)

    # A step

    def _fetched(self, batch, seconds):
        if self._ours():
            self._data += seconds
            self._batch_at = time.perf_counter()
            self._fetched_batch = batch

    def waited(self, seconds):
        """Seconds that the training waited for data, where another than `watch` measured them."""
        if self._ours():
            self._data += seconds
            self._batch_at = time.perf_counter()

    def _saw(self, loss, batch, ids):
        if hasattr(loss, "detach"):
            loss = _local(loss.detach())
            if loss.ndim:
                loss = loss.float().mean()
        one = _Seen(loss, batch if batch is not None else self._fetched_batch, ids, self._call)
        if len(self._seen) >= _CALLS:
            old = self._seen[-_CALLS]
            old.batch = old.call = None
        self._seen.append(one)
        if loss is not None and not self._behind(loss):
            one.value = float(loss)

    def _behind(self, value):
        """Whether reading this value would wait for a device."""
        return hasattr(value, "device") and value.device.type != "cpu" and not self._wait

    def _take(self, began, tokens, grad_norm, values):
        now = time.time()
        row = {"step": self._index, "timestamp": round(now, 3)}
        seen, self._seen = self._seen, []
        spent = None if self._last is None else began - self._last
        if spent is not None:
            self._step_time = spent if not self._step_time else 0.9 * self._step_time + 0.1 * spent
            row["step_time"] = round(spent, 6)
        if self._data:
            row["data_time"] = round(self._data, 6)
        if self._batch_at is not None:
            row["compute_time"] = round(began - self._batch_at, 6)
        if self._optimizing:
            row["optimizer_time"] = round(self._optimizing, 6)
        self._data = self._optimizing = 0.0
        self._last = began
        self._about(row, seen, tokens, values)
        self._numbers(row, seen, grad_norm, began)
        self._settle()

    def _about(self, row, seen, tokens, values):
        """What costs nothing to know: rate, memory, ids."""
        if self.optimizer is not None and self.optimizer.param_groups:
            row["learning_rate"] = _short(float(self.optimizer.param_groups[0]["lr"]))
        if self._index % 10 == 1 or self._index < 3:
            row["host_memory"] = _resident()
            if self._torch.cuda.is_available() and self._torch.cuda.is_initialized():
                row["peak_memory"] = self._torch.cuda.max_memory_allocated()
        if tokens is not None:
            row["tokens"] = int(tokens)
        ids = [i for one in seen if one.ids is not None for i in _listed(one.ids)]
        if ids:  # numbers of samples under the name that other readers know
            row["indices" if all(isinstance(i, int) for i in ids) else "ids"] = ids
        for name, value in values.items():
            row[name] = _short(float(value)) if hasattr(value, "item") or isinstance(value, float) else value

    def _numbers(self, row, seen, grad_norm, began):
        """Loss, scale and norms: at once where that waits for nobody, a step later otherwise."""
        sampled = bool(self._layers_every) and self._index % self._layers_every == 0
        losses = [one.loss for one in seen if one.loss is not None]
        late = any(self._behind(v) for v in losses) or (not losses and any(self._behind(p) for p in self._params[:1]))
        norms = names = None
        alarming = not late and self._alarming(seen)
        if self.model is not None and (late or sampled or alarming or self._due()):
            at = time.perf_counter()
            names, norms = self._norms()
            took = time.perf_counter() - at
            self._cost = took if not self._cost else 0.9 * self._cost + 0.1 * took
            self._norms_at = self._index
        if sampled:
            row["_weights"] = self._foreach_norm([_local(p.detach()) for p in self._params])
            row["_weight_names"] = list(self._names)
        scale = getattr(self.scaler, "_scale", None) if self.scaler is not None else None
        facts = {"scaled": scale is not None and not self._unscaled(), "sampled": sampled, "names": names}
        if not late:
            for one in seen:
                if one.value is None and one.loss is not None:
                    one.value = float(one.loss)
            number = float(scale) if scale is not None else None
            self._finish(row, seen, norms, number, grad_norm, facts, current=True)
            return
        self._later(row, seen, losses, norms, scale, grad_norm, facts)

    def _later(self, row, seen, losses, norms, scale, grad_norm, facts):
        """The numbers set off for the host, without waiting for them."""
        torch = self._torch
        device = next(v.device for v in [*losses, *self._params] if hasattr(v, "device"))
        parts = [torch.stack([torch.as_tensor(v, device=device).float() for v in losses])] if losses else []
        for value in (scale, grad_norm):
            if hasattr(value, "device"):
                parts.append(value.detach().to(device).float().reshape(1))
        if norms is not None:
            parts.append(norms.float())
        sent = torch.cat(parts) if parts else torch.zeros(0)
        if device.type == "cuda":
            host = torch.empty(sent.shape, dtype=sent.dtype, pin_memory=True)
            host.copy_(sent, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        else:
            host, event = sent.to("cpu"), None
        self._late.append((row, seen, len(losses), norms is not None, scale, grad_norm, facts, host, event))

    def _settle(self, all_of_it=False):
        """Take in the numbers that have arrived."""
        while self._late:
            row, seen, count, normed, scale, grad_norm, facts, host, event = self._late[0]
            if event is not None and not event.query():
                if len(self._late) <= _LATE and not all_of_it:
                    return
                event.synchronize()
            self._late.popleft()
            numbers = host.tolist()
            for one, value in zip([s for s in seen if s.loss is not None], numbers[:count]):
                one.value = value
            numbers = numbers[count:]
            if hasattr(scale, "device"):
                scale, numbers = numbers[0], numbers[1:]
            if hasattr(grad_norm, "device"):
                grad_norm, numbers = numbers[0], numbers[1:]
            self._finish(row, seen, numbers if normed else None, scale, grad_norm, facts, current=False)

    def _alarming(self, seen):
        """Whether this step wants a close look: its loss, or what arrives at the first layers, is not finite."""
        if any(not _finite(one.value) for one in seen):
            return True
        for p in self._canaries:
            readable = p.grad is not None and not self._behind(p) and not p.grad.is_sparse
            if readable and not math.isfinite(float(_local(p.grad.detach()).sum())):
                return True
        return False

    def _due(self):
        """Whether norms of all gradients may be taken without costing more than their share of a step."""
        if not self._cost or not self._step_time or len(self._ring) < _SEEN:
            return True
        every = min(_RARE, math.ceil(self._cost / (_SHARE * self._step_time)))
        return self._index - self._norms_at >= every

    def _norms(self):
        """Names and norms of the gradients that are there, in one call for all."""
        if self._index % 50 == 1:
            self._refresh()
        grads = [p.grad for p in self._params]
        if self._plain and not any(g is None or g.is_sparse for g in grads):  # the usual case, made cheap
            return self._names, self._foreach_norm(grads)
        there = [(n, _local(g.detach())) for n, g in zip(self._names, grads) if g is not None]
        return [n for n, _ in there], self._foreach_norm([g._values() if g.is_sparse else g for _, g in there])

    def _foreach_norm(self, tensors):
        torch = self._torch
        if not tensors:
            return None
        with torch.no_grad():
            norms = torch._foreach_norm(tensors) if hasattr(torch, "_foreach_norm") else [t.norm() for t in tensors]
            try:
                return torch.stack(norms)
            except RuntimeError:  # several types or devices
                return torch.stack([n.to(norms[0].device).float() for n in norms])

    def _wide_norms(self):
        grads = [_local(p.grad.detach()) for p in self._params if p.grad is not None]
        return [float((g._values() if g.is_sparse else g).double().norm()) for g in grads]

    def _weight_norm(self):
        norms = self._foreach_norm([_local(p.detach()) for p in self._params])
        return None if norms is None else min(float(norms.double().norm()), 3e38)  # squares overflow before numbers do

    def _unscaled(self):
        """Whether the scaler has already divided the gradients by its scale."""
        states = getattr(self.scaler, "_per_optimizer_states", None) or {}
        return any(getattr(state.get("stage"), "name", "READY") != "READY" for state in list(states.values()))

    # What came out of a step

    def _finish(self, row, seen, norms, scale, grad_norm, facts, current):
        values = [one.value for one in seen if one.value is not None]
        if values:
            row["loss"] = _short(sum(values) / (len(values) if self._reduce == "mean" else 1))
        if scale is not None:
            row["loss_scale"] = scale
        if hasattr(norms, "tolist"):
            norms = norms.float().tolist()
            if current and math.inf in norms:  # squares overflow before numbers do
                norms = self._wide_norms()
        if norms is not None:
            divisor = scale if facts["scaled"] and scale else 1.0
            norms = [n / divisor for n in norms]
            row["grad_norm"] = _short(math.hypot(*norms) if all(map(math.isfinite, norms)) else _worst(norms))
        if grad_norm is not None:
            row["grad_norm"] = _short(float(grad_norm))
        weights, weight_names = row.pop("_weights", None), row.pop("_weight_names", None)
        self._row(row)
        if facts["sampled"] and norms is not None:
            weights = dict(zip(weight_names, weights.tolist())) if weights is not None else {}
            self._gradient_rows(row["step"], facts["names"], norms, weights)
        self._judge(row, seen, norms, facts, current)

    def _judge(self, row, seen, norms, facts, current):
        loss, norm = row.get("loss"), row.get("grad_norm")
        if not _finite(loss):
            self._filtered.append(row["step"])
        elif self.scaler is not None and not _finite(norm):
            self._skip(row)
            if self._skips != _SKIPS:
                return
        elif norm is not None:
            self._skips = 0
        if _finite(loss) and _finite(norm):
            if self._streak > 1:
                self._event("finite_again", step=row["step"], after=self._streak)
            self._streak = 0
            self._spiked(row, seen)
            self._ring.append((row["step"], loss, norm))
            if norms is not None:
                self._last_norms = (row["step"], facts["names"], norms)
            return
        self._streak += 1
        if self._streak == 1 and self._captures > 0:
            self._captures -= 1
            self._trouble(row, seen, norms, facts, current)
        elif self._streak in (10, 100, 1000, 10_000):
            self._event("goes_on", step=row["step"], steps=self._streak)

    def _skip(self, row):
        """A scaler takes a step back: ordinary at the beginning, and now and then."""
        self._skips += 1
        self._skipped += 1
        if self._skipped <= 10 or self._skipped % 100 == 0:
            self._event("skipped", step=row["step"], scale=row.get("loss_scale"), total=self._skipped)

    def _spiked(self, row, seen):
        """A loss or norm far outside of what the last steps showed."""
        for place, name, times in ((1, "loss", 1.5), (2, "grad_norm", 10.0)):
            value, before = row.get(name), [r[place] for r in self._ring if r[place] is not None]
            if value is None or len(before) < _SEEN or value <= max(0, times * min(before)):
                continue  # the usual is at least the least: most steps end here
            usual = statistics.median(before)
            spread = 1.4826 * statistics.median(abs(b - usual) for b in before)
            if value <= max(usual * times, usual + 10 * spread, usual + abs(usual) * 0.5):
                continue
            if row["step"] - self._last_spike > _SEEN and self._spikes < _SPIKES:
                self._spikes += 1
                self._spike(row["step"], seen, {"metric": name, "value": f"{value:.6g}", "usual": f"{usual:.6g}",
                                                "times": _ratio(value, usual)})  # fmt: skip
            self._last_spike = row["step"]
            return

    def _spike(self, step, seen, facts):
        one = seen[-1] if seen else None
        kept = f"batch_rank_{self.rank}_step_{step}.pt" if self._save_batch and one else None
        self._event("spike", step=step, batch=kept, **facts, **self._ids_of(seen))
        self._writer.now((lambda: self._keep_batch(kept, one)) if kept else None)

    # Trouble

    def _trouble(self, row, seen, norms, facts, current):
        """Not finite: what is known goes to the disk at once, then the layer is looked for."""
        torch = self._torch
        bad = next((s for s in seen if not _finite(s.value)), seen[-1] if seen else None)
        fed = self._fed(bad)
        about = {name: _described(t) for name, t in _leaves(fed) if name}
        broken = [name for name, d in about.items() if d.get("nan") or d.get("inf")]
        where = "gradient" if _finite(row.get("loss")) else "loss"
        story = {"event": "nonfinite", "step": row["step"], "where": where, "current": current}
        story.update(self._ids_of([bad] if bad else []))
        story["value"] = str(row.get("loss") if story["where"] == "loss" else row.get("grad_norm"))
        story["batch_known"] = bool(about)
        if broken:
            story["batch_nonfinite"] = broken[:_LISTED]
            story["batch_rows"] = next((about[n]["bad_rows"] for n in broken if "bad_rows" in about[n]), [])
        self._before(story)
        if self.model is not None:
            with torch.no_grad():
                self._weights_now(story)
                self._gradients_now(story, norms, facts, current)
        if story.get("parameters_nonfinite"):
            story["where"] = "parameter"
        stem = f"rank_{self.rank}_step_{row['step']}"
        kept = f"batch_{stem}.pt" if self._save_batch and bad is not None else None
        story["file"], story["batch"] = f"nonfinite_{stem}.json", kept
        before = [list(r) for r in self._ring]
        whole = dict(story, row=row, tensors=about, before=before, norms_before=self._named_norms())

        def first():
            self._writer.whole(story["file"], lambda f: f.write(_document(whole)))
            if kept:
                self._keep_batch(kept, bad)

        # First what is known for sure: the process may be killed, or fall over, while the layer is looked for.
        self._writer.now(first)
        layer = self._find_layer(bad, story, current)
        story.update(layer)
        whole.update(layer)
        self._event(**story)
        self._writer.now(lambda: self._writer.whole(story["file"], lambda f: f.write(_document(whole))))
        said = f"; {story['layer']} is the first" if story.get("layer") else ""
        said = f"; the batch itself holds NaN or infinity ({broken[0]})" if broken else said
        _tell(f"step {row['step']}: {story['where']} is {story['value']}{said}; kept in {self.folder}/{story['file']}")

    def _fed(self, one):
        """What went in: the call of the model tells it best, else the batch."""
        if one is None:
            return None
        if one.call is not None:
            _, args, kwargs, _ = one.call
            return {**{f"input_{i}" if len(args) > 1 else "input": a for i, a in enumerate(args)}, **kwargs,
                    **({"batch": one.batch} if one.batch is not None else {})}  # fmt: skip
        return one.batch

    def _before(self, story):
        """How large gradients were in the steps before, and whether they grew."""
        norms = [r[2] for r in self._ring if r[2] is not None]
        if norms:
            story["norm_before"] = _short(norms[-1])
            if len(norms) >= 4:
                usual = statistics.median(norms[: max(2, len(norms) // 2)])
                story["norm_ratio"] = _ratio(max(norms[-5:]), usual)
        losses = [r[1] for r in self._ring if r[1] is not None]
        if losses:
            story["loss_before"] = _short(losses[-1])
            story["loss_ratio"] = _ratio(max(losses[-5:]), statistics.median(losses[: max(1, len(losses) // 2)]))
        story["steps_before"] = len(self._ring)

    def _weights_now(self, story):
        bad = [n for n, p in zip(self._names, self._params) if _bad(_local(p.detach()))]
        if bad:
            story["parameters_nonfinite"] = len(bad)
            story["parameters"] = bad[:_LISTED]
        elif self._weights_then:
            story["weights_ratio"] = _ratio(self._weight_norm(), self._weights_then)

    def _gradients_now(self, story, norms, facts, current):
        """Which gradients are not finite; elements are counted while they are there."""
        if norms is None:
            return
        counts = {}
        if current:
            for name, p in zip(self._names, self._params):
                if p.grad is not None and not p.grad.is_sparse:
                    counts[name] = _bad(_local(p.grad.detach()))
        bad = [n for n, v in zip(facts["names"], norms) if not _finite(v)]
        story["gradients_nonfinite"] = len(bad)
        story["gradients"] = bad[:_LISTED]
        story["all_gradients"] = len(bad) == len(norms)
        if bad and not story["all_gradients"]:
            story["backward_origin"] = bad[-1]
        self._gradient_rows(story["step"], facts["names"], norms, {}, counts)

    def _find_layer(self, one, story, current):
        """The first module that made something not finite out of finite numbers, by a replay, else by gradients."""
        out = {}
        if story["where"] == "gradient" and story.get("backward_origin"):
            out["layer"] = story["backward_origin"].rpartition(".")[0] or story["backward_origin"]
            out["layer_by"] = "gradients"
        if story["where"] == "parameter":
            return {**out, "replay": "no: weights are not finite already"}
        if not current:
            return {**out, "replay": "no: seen after the step was over (wait=True looks before)"}
        why = self._no_replay(one)
        if why:
            return {**out, "replay": f"no: {why}"}
        self._replaying = True
        try:
            found = _Replay(self._torch, self.model, one.call).run()
        except Exception as e:  # noqa: BLE001 - a model may refuse a second pass in any way
            return {**out, "replay": f"failed: {type(e).__name__}: {str(e)[:200]}"}
        finally:
            self._replaying = False
        if story["where"] == "loss" or found.get("layer"):
            out.update(found)
            if found.get("layer"):
                out["layer_by"], story["where"] = "replay", "activation"
        return out

    def _no_replay(self, one):
        """Why the forward pass is not run again; empty where it is."""
        if self._replay_asked is False:
            return "not asked for"
        if self.model is None or one is None or one.call is None:
            return "no call of the model is known"
        if self._replay_asked:
            return ""
        if _world() > 1 or self._sharded():
            inner = _inner(self.model)
            plain = type(self.model).__name__ == "DistributedDataParallel" and not self._sharded()
            foreign = ("megatron", "deepspeed", "fairscale", "colossalai", "torch.distributed")
            if not plain or any(
                type(m).__module__.startswith(foreign) or "SyncBatchNorm" in type(m).__name__ for m in inner.modules()
            ):
                return "other ranks take part in the forward pass"
        return ""

    def _keep_batch(self, name, one):
        """The tensors of a batch as a torch file, up to the bound."""
        kept, left, out = {}, self._keep, []
        for key, value in _leaves(self._fed(one), text=self._text):
            size = len(value) if isinstance(value, str) else value.numel() * value.element_size()
            if size > left:
                out.append(key)
                continue
            left -= size
            kept[key] = value if isinstance(value, str) else _local(value.detach()).to("cpu").clone()
        if out:
            kept["left_out"] = ", ".join(out[:_LISTED])
        self._writer.whole(name, lambda f: self._torch.save(kept, f))

    def _ids_of(self, seen):
        ids = [i for one in seen if one is not None and one.ids is not None for i in _listed(one.ids)]
        return {"ids": ids[:1000]} if ids else {}

    def _named_norms(self):
        if self._last_norms is None:
            return None
        step, names, norms = self._last_norms
        return {"step": step, "norms": {n: _short(v) for n, v in zip(names, norms)}}

    def _gradient_rows(self, step, names, norms, weights, counts=None):
        for name, norm in zip(names or [], norms or []):
            row = {"step": step, "name": name, "norm": _short(norm), "requires_grad": True}
            if name in weights:
                row["weight_norm"] = _short(weights[name])
            if counts:
                row["nonfinite"] = counts.get(name, 0)
            self._writer.line(f"gradients_rank_{self.rank}.jsonl", row)

    def _row(self, row):
        self._writer.line(f"rank_{self.rank}.jsonl", row)

    def _event(self, event, **facts):
        row = {"event": event, **facts, "timestamp": round(time.time(), 3)}
        self._writer.line(f"events_rank_{self.rank}.jsonl", {k: v for k, v in row.items() if v is not None})


class _Replay:
    """One forward pass more, without gradients, under hooks and with every operation looked at.

    Buffers and random numbers are put back afterwards. Other hooks of the model run once more too.
    """

    def __init__(self, torch, model, call):
        self._t, self._model, self._call = torch, _inner(call[0]), call
        self._names = {id(m): n for n, m in _inner(model).named_modules()}
        self._inside = []
        self._operations = []
        self._bad = None
        self._near = None

    def run(self):
        """What was found: `layer`, its class, the operation and the place in the code."""
        torch, model = self._t, self._model
        buffers = [(b, b.detach().clone()) for b in model.buffers()]
        handles = []
        devices = [torch.cuda.current_device()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
        try:
            for module in model.modules():
                handles.append(module.register_forward_pre_hook(self._enter))
                handles.append(module.register_forward_hook(self._leave))
            _, args, kwargs, casting = self._call
            with contextlib.ExitStack() as stack:
                stack.enter_context(torch.no_grad())
                stack.enter_context(torch.random.fork_rng(devices=devices))
                for kind, dtype in casting:
                    stack.enter_context(torch.autocast(kind, dtype=dtype))
                self._watch_operations(stack)
                model(*args, **kwargs)
        finally:
            for handle in handles:
                handle.remove()
            with torch.no_grad():
                for buffer, old in buffers:
                    buffer.copy_(old)
        return self._answer()

    def _enter(self, module, _args):
        self._inside.append(id(module))

    def _leave(self, module, args, output):
        if self._inside:
            self._inside.pop()
        bad = self._bad is None and any(_bad(t) for _, t in _leaves(output))
        if bad:
            finite = not any(_bad(t) for _, t in _leaves(args))
            half = next((t for _, t in _leaves(output) if t.is_floating_point()), None)
            self._bad = (id(module), type(module).__name__, finite, str(half.dtype) if half is not None else "")
        elif self._bad is None:
            for _, t in _leaves(output):
                if t.dtype == self._t.float16 and t.numel() and float(t.abs().max()) > _FP16_NEAR:
                    self._near = self._names.get(id(module), "")

    def _watch_operations(self, stack):
        try:
            from torch.utils._python_dispatch import TorchDispatchMode
        except ImportError:
            return
        replay = self

        class Operations(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                out = func(*args, **(kwargs or {}))
                replay._operation(func, args, out)
                return out

        stack.enter_context(Operations())

    def _operation(self, func, args, out):
        if self._bad is not None or len(self._operations) >= 50:
            return
        name = str(func)
        if any(part in name for part in _MAKES_INF):
            return
        torch = self._t
        outs = out if isinstance(out, (list, tuple)) else [out]
        if not any(isinstance(t, torch.Tensor) and _bad(t) for t in outs):
            return
        flat = [a for arg in args for a in (arg if isinstance(arg, (list, tuple)) else [arg])]
        tensors = [a for a in flat if isinstance(a, torch.Tensor)]
        if any(_bad(a) for a in tensors):
            return
        dtype = next((str(t.dtype) for t in outs if isinstance(t, torch.Tensor) and t.is_floating_point()), "")
        self._operations.append((list(self._inside), name, _where(), dtype))

    def _answer(self):
        if self._bad is None:
            out = {"replay": "every module's output was finite: the rest is computed outside of this pass"}
            if self._near is not None:
                out["near_fp16_max"] = self._near
            return out
        who, kind, finite, dtype = self._bad
        out = {"replay": "done", "layer": self._names.get(who) or "(the whole model)", "layer_class": kind,
               "layer_input_finite": finite}  # fmt: skip
        for inside, name, where, op_dtype in self._operations:
            if who in inside:
                out["op"], out["place"], dtype = name, where, op_dtype or dtype
                break
        if "float16" in dtype and "bfloat16" not in dtype:
            out["fp16"] = True
        if self._near is not None:
            out["near_fp16_max"] = self._near
        return out


def _where():
    """The line of the user's code that runs right now, as `file.py:42`."""
    here = os.path.abspath(__file__)
    for frame in reversed(traceback.extract_stack()):
        name = frame.filename.replace("\\", "/")
        if os.path.abspath(frame.filename) != here and "/torch/" not in name and not name.startswith("<"):
            return f"{os.path.basename(name)}:{frame.lineno}"
    return None


def _bare(name):
    """A parameter's name without what wraps the model."""
    for part in ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module."):
        name = name.replace(part, "")
    return name


def _inner(model):
    """The module within DistributedDataParallel and torch.compile."""
    for _ in range(4):
        if type(model).__name__ == "DistributedDataParallel":
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
    return model


def _casting(torch):
    """The autocasts that are on: (device, type)."""
    out = []
    if torch.is_autocast_enabled():
        out.append(("cuda", torch.get_autocast_gpu_dtype()))
    cpu = getattr(torch, "is_autocast_cpu_enabled", None)
    if cpu is not None and cpu():
        out.append(("cpu", torch.get_autocast_cpu_dtype()))
    return out


def _listed(ids):
    """Ids as a list of plain numbers and words."""
    ids = ids.tolist() if hasattr(ids, "tolist") else ids
    ids = list(ids) if isinstance(ids, (list, tuple, set, range)) else [ids]
    return [i if isinstance(i, (int, str)) else str(i) for i in ids[:4096]]


def _worst(norms):
    return math.nan if any(math.isnan(n) for n in norms) else math.inf


def _ratio(value, usual):
    return float(f"{value / usual:.4g}") if usual and math.isfinite(value) else None


def _document(whole):
    return (json.dumps(whole, indent=1, default=str) + "\n").encode()


# Callbacks, made when they are asked for: this file imports neither transformers nor lightning by itself.


def _hf_callback():
    from transformers import TrainerCallback

    class RecorderCallback(TrainerCallback):
        """Records a HF Trainer: `trainer.add_callback(RecorderCallback("runs/exp42", trainer))`.

        With the trainer given, losses of every kind and norms before clipping are seen; without it, the loss that
        the model returns and norms after clipping. Options are those of `Recorder`.
        """

        def __init__(self, run, trainer=None, **options):
            self._run, self._trainer, self._options = run, trainer, options
            self.recorder = None
            self._ended = None
            self._taken = False

        def on_train_begin(self, args, state, control, model=None, optimizer=None, **kwargs):
            self.recorder = Recorder(self._run, model, optimizer, start=state.global_step, **self._options)
            accelerator = getattr(self._trainer, "accelerator", None)
            if accelerator is not None:
                self.recorder.accelerate(accelerator, reduce="sum")
            else:
                self.recorder._reduce = "mean"
                with self.recorder._guarded():
                    self.recorder.hook_loss()
            self._own = accelerator is None

        def on_step_begin(self, args, state, control, optimizer=None, **kwargs):
            if self.recorder is not None:
                if self.recorder.optimizer is None:
                    self.recorder.optimizer = optimizer
                if self._ended is not None:
                    self.recorder.waited(time.perf_counter() - self._ended)

        def on_pre_optimizer_step(self, args, state, control, **kwargs):
            if self.recorder is not None and self._own:
                self._taken = True
                self.recorder.step(step=state.global_step + 1)

        def on_step_end(self, args, state, control, **kwargs):
            if self.recorder is not None and self._own and not self._taken:  # before on_pre_optimizer_step was made
                self.recorder.step(step=state.global_step)
            self._taken = False
            self._ended = time.perf_counter()

        def on_log(self, args, state, control, logs=None, **kwargs):
            if self.recorder is not None and logs and "loss" in logs:
                with contextlib.suppress(TypeError, ValueError):
                    self.recorder.logged(float(logs["loss"]), state.global_step)

        def on_train_end(self, args, state, control, **kwargs):
            if self.recorder is not None:
                self.recorder.close()

    return RecorderCallback


def _lightning_callback():
    bases = []
    for name in ("lightning.pytorch", "pytorch_lightning"):
        if name in sys.modules:
            bases.append(sys.modules[name].Callback)
    if not bases:
        try:
            from lightning.pytorch import Callback
        except ImportError:
            from pytorch_lightning import Callback
        bases = [Callback]

    class LightningRecorder(*bases):
        """Records a Lightning Trainer: `Trainer(callbacks=[LightningRecorder("runs/exp42")])`."""

        def __init__(self, run, **options):
            super().__init__()
            self._run, self._options = run, options
            self.recorder = None
            self._ended = None

        def on_train_start(self, trainer, pl_module):
            optimizer = trainer.optimizers[0] if trainer.optimizers else None
            plugin = getattr(getattr(trainer, "strategy", None), "precision_plugin", None)
            self.recorder = Recorder(
                self._run, pl_module, optimizer, getattr(plugin, "scaler", None), start=trainer.global_step,
                first_call=True, **self._options,
            )  # fmt: skip

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            waited = 0.0 if self._ended is None else time.perf_counter() - self._ended
            if self.recorder is not None:
                self.recorder._fetched(batch, waited)
                self.recorder._call = None

        def on_before_backward(self, trainer, pl_module, loss):
            if self.recorder is not None:
                if trainer.accumulate_grad_batches > 1:
                    loss = loss.detach() * trainer.accumulate_grad_batches
                self.recorder.saw(loss)

        def on_before_optimizer_step(self, trainer, pl_module, optimizer, *_):
            if self.recorder is not None:
                self.recorder.step()

        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, *_):
            self._ended = time.perf_counter()
            shown = trainer.callback_metrics.get("train_loss") if self.recorder is not None else None
            if shown is not None and self.recorder._filtered:
                self.recorder.logged(float(shown))

        def on_train_end(self, trainer, pl_module):
            if self.recorder is not None:
                self.recorder.close()

        def on_exception(self, trainer, pl_module, exception):
            if self.recorder is not None:
                self.recorder.close()

    return LightningRecorder


def __getattr__(name):
    makers = {"RecorderCallback": _hf_callback, "LightningRecorder": _lightning_callback}
    if name not in makers:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = makers[name]()
    made.__module__, made.__qualname__ = __name__, name
    globals()[name] = made
    return made
