"""Settings of `hidet.option` that hidet 0.6 had beside those of core.

Most of them nothing reads any more: they keep what they are set to, and warn where it is not how things are.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from hidet import option
from hidet.compat.warn import warn_unread
from hidet.errors import OptionError
from hidet.plugins.host import load_registry


@dataclass(frozen=True, slots=True)
class Setting:
    """default: its value where it was never set. advice: what there is instead. true: values that say how things are,
    so that setting them warns of nothing. argument: what a call without arguments sets."""

    default: object
    advice: str
    true: tuple[object, ...] = ()
    argument: object = True


_TUNING = 'hidet.tune(model, budget="60s") measures, and says in its report what'
_DUMP = 'hidet.option.dump("directory") writes every stage as text'
_SERVER = "kernels are compiled in this process and its children; a cache directory may be shared by machines"

SETTINGS: Mapping[str, Setting] = {
    "parallel_tune": Setting((-1, 1.5, 32), _TUNING, argument=(-1, 1.5, 32)),
    "fix_gpu_frequency_for_tuning": Setting(False, "nvidia-smi --lock-gpu-clocks", (False,), False),
    "debug_cache_tuning": Setting(False, _TUNING, (False,)),
    "debug_enable_var_id": Setting(True, "names in texts of programs are unique", (True,)),
    "debug_show_var_id": Setting(True, "names in texts of programs are unique", (True,)),
    "debug_strict_broadcast_check": Setting(True, "extents are always proved to be equal", (True,), False),
    "debug_show_verbose_flow_graph": Setting(False, _DUMP, (False,)),
    "runtime_check": Setting(True, "arguments are always checked", (True,)),
    "execution_mode": Setting("compilation", "operators on tensors are compiled", ("compilation",), "compilation"),
    "hexcute_matmul": Setting("auto", "rules of schedules are asked by priority", ("auto", "enable"), "enable"),
    "use_torch_stream": Setting(True, "kernels run on the stream that torch has at the call", (True,)),
    "hip.arch": Setting("auto", "a target is a wheel; none is for HIP yet", ("auto",), "auto"),
    **{
        f"compile_server.{name}": Setting(value, _SERVER, (value,))
        for name, value in {
            "addr": "localhost",
            "port": 3281,
            "enable": False,
            "username": "admin",
            "password": "",
            "repo": "",
            "num_workers": 96,
        }.items()
    },
    "internal.torch_api_use_example_input_shapes": Setting(
        False, "mark_dynamic of torch says which sizes change", (False,), False
    ),
    "internal.dispatch_table.set_split_points": Setting((), "programs take sizes as arguments"),
    "internal.dispatch_table.set_interval_dispatch_table_enabled": Setting(
        False, "programs take sizes as arguments", (False,)
    ),
}
"""By name, a dot after the name of what holds several. Defaults are what is true now."""


def _setter(name: str, setting: Setting) -> Any:
    def set_value(*values: object, **named: object) -> None:
        given = (*values, *named.values()) or (setting.argument,)
        value = given[0] if len(given) == 1 else given
        option.remember(name, value)
        if value not in setting.true:
            warn_unread(f"hidet.option.{name}({', '.join(map(repr, given))})", setting.advice)

    set_value.__name__ = name.rpartition(".")[2]
    set_value.__doc__ = f"Accepted, and read by nothing: {setting.advice}."
    return set_value


def _getter(name: str, setting: Setting) -> Any:
    def get_value() -> object:
        return option.remembered(name, setting.default)

    get_value.__name__ = f"get_{name.rpartition('.')[2]}"
    get_value.__doc__ = f"What `{name}` was set to; {setting.default!r} at first."
    return get_value


def _made() -> dict[str, Any]:
    """What `hidet.option` has of these: functions, and what holds functions."""
    made: dict[str, Any] = {}
    for path, setting in SETTINGS.items():
        *holders, name = path.split(".")
        place = made
        for holder in holders:
            place = vars(place.setdefault(holder, SimpleNamespace()))
        place[name] = _setter(path, setting)
        place[f"get_{name}"] = place[f"is_{name}"] = _getter(path, setting)
    made["compile_server"].enabled = made["compile_server"].get_enable
    return made


def parallel_k(strategy: str | int = "default") -> None:
    """Into how many parts long sums of products are split on a GPU (split-k): as a model of the device says
    ("default"), none ("disabled"), as measured ("search", by hidet-tune), or so many."""
    option.remember("parallel_k", strategy)
    option.remember("gpu.split_k", splits_of(strategy))
    if strategy == "search":
        option.search_space(max(1, option.get_search_space()))


def get_parallel_k() -> object:
    """What `parallel_k` was set to; "default" at first."""
    return option.remembered("parallel_k", "default")


def splits_of(strategy: object) -> int:
    """Option `gpu.split_k` for a strategy. OptionError for an unknown one."""
    known = {"default": 0, "search": 0, "disabled": 1}
    splits = known.get(strategy) if isinstance(strategy, str) else strategy
    if not isinstance(splits, int) or isinstance(splits, bool) or (splits < 1 and strategy not in known):
        raise OptionError(f"parallel_k is {', '.join(map(repr, known))} or a number of parts, got {strategy!r}")
    return splits


def bench_config(warmup: Any = 1, number: int = 5, repeat: int = 5) -> None:
    """How programs of a task are measured, of which `hidet.ir.library.tune` takes the fastest: calls before, calls of
    which the mean is taken, and means of which the median is."""
    given = warmup if isinstance(warmup, tuple) else (warmup, number, repeat)
    option.remember("bench_config", given)


def get_bench_config() -> tuple[int, int, int]:
    """What `bench_config` was set to; (3, 10, 3) at first."""
    found: tuple[int, int, int] = option.remembered("bench_config", (3, 10, 3))  # type: ignore[assignment]  # of its setter
    return found


def register_option(
    name: str,
    type_hint: str = "",
    description: str = "",
    default_value: object = None,
    normalizer: Callable[[Any], Any] | None = None,
    getter: Callable[[Any], Any] | None = None,
    checker: Callable[[Any], bool] | None = None,
) -> None:
    """Make a setting of one's own, for `set_option` and `get_option`; blocks of `context` forget what is set in them.

    normalizer: what is kept of a value. getter: what is told of it. checker: whether a value is right; OptionError for
    others, and for a name that is taken.
    """
    if option.is_option_exist(name):
        raise OptionError(f"option {name!r} exists already", hint="hidet.option.set_option changes it")

    def set_value(value: Any) -> None:
        if checker is not None and not checker(value):
            raise OptionError(f"option {name!r} is {type_hint or 'another kind of value'}, got {value!r}")
        option.remember(name, value if normalizer is None else normalizer(value))

    def get_value() -> Any:
        found = option.remembered(name, default_value)
        return found if getter is None else getter(found)

    set_value.__doc__ = get_value.__doc__ = description
    *holders, last = name.split(".")
    place: Any = option
    for holder in holders:
        if not hasattr(place, holder):
            setattr(place, holder, SimpleNamespace())
        place = getattr(place, holder)
    setattr(place, last, set_value)
    setattr(place, f"get_{last}", get_value)


def get_arch_pair(machine: object) -> tuple[int, int]:
    """The compute capability that `hidet.option.cuda.arch` names, as (9, 0); of "auto", that of the first GPU."""
    arch = option.cuda.get_arch()
    if arch == "auto":
        made: Any = load_registry().target("cuda").resolve()
        arch = made().architecture
    number = arch.removeprefix("sm_").rstrip("af")
    return int(number[:-1]), int(number[-1])


def cpu_arch(machine: object, arch: str = "auto") -> None:
    """`hidet.option.cpu.arch`."""
    option.cpu.arch(arch)


def get_cpu_arch(machine: object) -> str:
    """`hidet.option.cpu.get_arch`."""
    return option.cpu.get_arch()


def debug_dump_graph_visual(enabled: bool = True) -> None:
    """Write what the passes make of every graph, for the viewer Netron, into the folder `graphs` of the cache
    directory, or of the working directory where none is set."""
    option.remember("debug_dump_graph_visual", bool(enabled))
    importlib.import_module("hidet.compat.pass_context")  # from here on, passes are listened to


def get_debug_dump_graph_visual() -> object:
    """What `debug_dump_graph_visual` was set to; False at first."""
    return option.remembered("debug_dump_graph_visual", False)


_OWN = {
    "bench_config": bench_config,
    "get_bench_config": get_bench_config,
    "debug_dump_graph_visual": debug_dump_graph_visual,
    "get_debug_dump_graph_visual": get_debug_dump_graph_visual,
    "is_debug_dump_graph_visual": get_debug_dump_graph_visual,
    "parallel_k": parallel_k,
    "get_parallel_k": get_parallel_k,
    "register_option": register_option,
}
_NAMES = {**_made(), **_OWN}


class CudaBuild:
    """`hidet.option.cuda.build`: options of hidet-cuda about f32."""

    def use_ftz(self, flag: bool = True) -> None:
        """Whether numbers nearer to zero than 2^-126 count as zero: option `cuda.ftz`."""
        option.remember("cuda.ftz", bool(flag))

    def get_use_ftz(self) -> object:
        """What `use_ftz` was set to; False at first."""
        return option.remembered("cuda.ftz", False)

    def use_prec_div(self, flag: bool = True) -> None:
        """Whether quotients are rounded as IEEE 754 has it: option `cuda.prec_div`."""
        option.remember("cuda.prec_div", bool(flag))

    def get_use_prec_div(self) -> object:
        """What `use_prec_div` was set to; True at first."""
        return option.remembered("cuda.prec_div", True)


_BUILD = CudaBuild()
build = property(lambda machine: _BUILD)
"""`hidet.option.cuda.build`."""
MACHINE = ("build", "get_arch_pair", "cpu_arch", "get_cpu_arch")
"""What `hidet.option.cuda` has besides."""
NAMES = tuple(_NAMES)
"""What `__getattr__` finds."""


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return _NAMES[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
