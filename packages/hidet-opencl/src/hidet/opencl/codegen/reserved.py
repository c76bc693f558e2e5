"""Names that OpenCL C has for something already."""

from __future__ import annotations

import re

from hidet.gpu.codegen.dialect import ReservedNames
from hidet.gpu.codegen.names import CPP_WORDS

_WORDS = """
    f16 bf16 f8e4m3 f8e4m3fnuz f8e5m2 f8e5m2fnuz f8e8m0 f4e2m1
    global local constant private generic kernel read_only write_only read_write uniform pipe half restrict
    uchar ushort uint ulong size_t ptrdiff_t intptr_t uintptr_t event_t sampler_t queue_t true false inline printf
    exp log sin cos tan pow min max abs floor ceil round trunc sqrt rsqrt erf tanh dot cross length distance normalize
    mix step sign select clamp degrees radians any all rotate shuffle shuffle2 barrier main gamma bool unix linux"""

_FUNCTIONS = r"""
    a?(?:sin|cos|tan)(?:h|pi)?|atan2(?:pi)?|cbrt|ceil|copysign|erfc?|exp(?:2|10|m1)?|fabs|fdim|floor|fma|fmax|fmin|fmod
    |fract|frexp|hypot|ilogb|ldexp|lgamma(?:_r)?|log(?:2|10|1p|b)?|mad|maxmag|minmag|modf|nan|nextafter|pow[nr]?
    |remainder|remquo|rint|rootn|round|r?sqrt|sincos|tgamma|trunc|native_\w+|half_\w+|abs_diff|hadd|rhadd|clz|ctz
    |mad_hi|mad_sat|mul_hi|add_sat|sub_sat|upsample|popcount|mad24|mul24|smoothstep|fast_\w+|isequal|is\w+|signbit
    |bitselect|v(?:load|store)\w*|async_\w+|wait_group_events|prefetch|mem_fence|\w+_mem_fence|atomic?_\w+|atom_\w+
    |vec_step|read_image\w+|write_image\w+|get_\w+|sub_group_\w+|work_group_\w+|intel_sub_group_\w+|to_\w+|as_\w+
    |convert_\w+|enqueue_\w+|(?:u?char|u?short|u?int|u?long|float|double|half|bool)\d*"""

RESERVED = ReservedNames(
    words=CPP_WORDS | frozenset(_WORDS.split()),
    declared=re.compile("|".join([re.sub(r"\s+", "", _FUNCTIONS), *sorted(CPP_WORDS | frozenset(_WORDS.split()))])),
    macros=re.compile(r"NULL|CL\w*|M_\w+|__\w*|[A-Z]+_(?:MAX|MIN|EPSILON|DIG)|MAXFLOAT|INFINITY|NAN|HUGE_VALF?|FP_\w+"),
)
