"""Modules of hidet 0.6 whose names say what there is instead."""

from __future__ import annotations

from typing import NoReturn

from hidet.errors import UnsupportedOp


class Gone:
    """A module: any of its names is an UnsupportedOp, with advice."""

    def __init__(self, name: str, hint: str) -> None:
        self.__name__ = name
        self._hint = hint

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UnsupportedOp(f"{self.__name__}.{name} is no part of hidet any more", hint=self._hint)


cublas = Gone("hidet.lang.cuda.cublas", "hidet.ops.matmul")
cuda_cublas = Gone("hidet.cuda.cublas", "hidet.ops.matmul; torch.mm calls the library")
cudnn = Gone("hidet.cuda.cudnn", "hidet.ops.conv2d; torch.nn.functional.conv2d calls the library")
apps = Gone("hidet.apps", "kernels are compiled in this process and its children: hidet.option.num_local_workers")
ffi = Gone("hidet.ffi", "hidet.runtime.CompiledModule calls compiled code")
kernels = Gone("hidet.kernels", "hidet.script, or an operator of one's own: hidet.graph.Operator")
