"""Script: numbers
===============

Numbers as parameters and as a result.
"""

import hidet
from hidet.lang import attrs, f32


def main() -> None:
    with hidet.script_module() as script_module:

        @hidet.script
        def launch(a: f32, b: f32) -> f32:
            attrs.func_kind = "public"
            return a + b

    module = script_module.build()
    total = module(3.0, 4.0)
    print(total)
    assert isinstance(total, float) and total == 7.0


if __name__ == "__main__":
    main()
