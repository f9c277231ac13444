"""What the text of one kernel's stages is written with."""

from collections.abc import Callable, Mapping
from typing import NotRequired, TypedDict

from aotc.emit.text.dialect import Dialect
from aotc.ir.access import ArrayOf
from aotc.ir.expr import Expr, Guarded
from aotc.ir.kernel.plan_kernels import Scratch


class Env(TypedDict):
    """buffer: name -> C pointer. arrays: of buffers that are pointers to arrays. vars: C text of
    what stands for a variable of another name. rule: Guarded -> C text of its call up to the
    operands. get, put: where elements are reached through functions: (buffer, C text of its index,
    dtype) -> C text of the value; and with the value before the dtype, of the statement that stores
    it. reads, writes: likewise of neighbours, (buffer, C text of the first one's address, of how
    many) -> C text of the address. scratch: what lies in the memory of a block of threads."""

    buffer: Callable[[str], str]
    arrays: Mapping[str, ArrayOf]
    vars: Mapping[Expr, str]
    rule: Callable[[Guarded], str]
    get: NotRequired[Callable[[str, str, str], str]]
    put: NotRequired[Callable[[str, str, str, str], str]]
    reads: NotRequired[Callable[[str, str, str], str]]
    writes: NotRequired[Callable[[str, str, str], str]]
    scratch: NotRequired[Mapping[str, Scratch]]


class KernelEnv(Env):
    """Of a kernel in C.  prefix: of the functions it calls.  math: the Plan's."""

    prefix: str
    dialect: Dialect
    math: str


__all__ = ["Env", "KernelEnv"]
