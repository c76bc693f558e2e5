"""Windows into what was compiled.

compiled.profile(*inputs)            how long each kernel takes: a `Profile`
compiled.report().html(path)         a page about the compilation
check_accuracy(compiled, *inputs)    how far each kernel is from float64: an `Accuracy`
minify_model(model, inputs, script)  the smallest part of a model with the same fault
record_calls(model, step)            graphs of a model that torch.compile made, with inputs: for all of these

These are imported when they are first used: the plug-in module of this package is imported wherever hidet is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hidet.lazy import lazy_attributes

if TYPE_CHECKING:
    from hidet.report.accuracy import Accuracy, AccuracyRow, Errors
    from hidet.report.checking import check_accuracy
    from hidet.report.minify import Minified, minify_model
    from hidet.report.profile import Profile, ProfileRow
    from hidet.report.recording import GraphCall, record_calls

__all__ = [
    "Accuracy",
    "AccuracyRow",
    "Errors",
    "GraphCall",
    "Minified",
    "Profile",
    "ProfileRow",
    "check_accuracy",
    "minify_model",
    "record_calls",
]

__getattr__, __dir__ = lazy_attributes(
    __name__,
    {
        "Accuracy": "accuracy",
        "AccuracyRow": "accuracy",
        "Errors": "accuracy",
        "GraphCall": "recording",
        "Minified": "minify",
        "Profile": "profile",
        "ProfileRow": "profile",
        "check_accuracy": "checking",
        "minify_model": "minify",
        "record_calls": "recording",
    },
)
