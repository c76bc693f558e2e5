"""Names of scripts that LLVM reads in quotes alone."""

from __future__ import annotations

import numpy as np

import hidet
from hidet import dims
from hidet.lang import attrs, f32, grid

größe = dims.symbol("größe")


def test_names_may_have_every_letter_of_python() -> None:
    with hidet.script_module() as module:

        @hidet.script
        def doppelt(wert: f32) -> f32:
            höhe: f32 = wert
            höhe += wert
            return höhe

        @hidet.script
        def länge(é: f32[größe], è: f32[größe], faktor_ñ: f32):
            attrs.func_kind = "public"
            for ÿ in grid(größe, attrs="p"):
                assert faktor_ñ > 0.0, "faktor_ñ muss größer sein"
                Δ = doppelt(é[ÿ])
                è[ÿ] = Δ * faktor_ñ

    function = module.build("cpu")["länge"]
    x, y = np.ones(1000, np.float32), np.zeros(1000, np.float32)
    function(x, y, 1.5)
    assert (y == 3.0).all()


def test_names_that_differ_in_one_letter_stay_two() -> None:
    @hidet.script
    def f(ä: f32, ö: f32, a_: f32, out: f32[3]):
        out[0] = ä
        out[1] = ö
        out[2] = a_

    out = np.zeros(3, np.float32)
    f(1.0, 2.0, 3.0, out)
    assert out.tolist() == [1.0, 2.0, 3.0]
