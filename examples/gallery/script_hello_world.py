"""Script: the smallest one
========================

The smallest script: a function that the host calls, and that prints.
"""

import hidet
from hidet.lang import attrs, printf

hidet.option.cache_dir("./outs/cache")


def main() -> None:
    with hidet.script_module() as script_module:

        @hidet.script
        def launch():
            attrs.func_kind = "public"
            printf("Hello, World!\n")

    module = script_module.build()
    module()  # calls the function called launch
    module["launch"]()  # any function by its name
    print(module.source(color=True)[:200])


if __name__ == "__main__":
    main()
