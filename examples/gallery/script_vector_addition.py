"""Script: tensors
===============

Tensors as parameters: types with extents, loops over ranges.
"""

import hidet
from hidet.lang import attrs, f32


def main() -> None:
    with hidet.script_module() as script_module:

        @hidet.script
        def launch(a: f32[3], b: f32[3], c: f32[3]):
            attrs.func_kind = "public"
            for i in range(3):  # a larger number is refused: elements outside of the tensors
                c[i] = a[i] + b[i]

    module = script_module.build()
    a, b = hidet.randn([3]), hidet.randn([3])
    c = hidet.empty([3])
    module(a, b, c)
    print(a, b, c, sep="\n")
    hidet.utils.assert_close(c, a + b)


if __name__ == "__main__":
    main()
