"""Convolutions, poolings and sampling of images, whose channels are the last axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import hidet

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed: nox -s tensorflow")


def images(*shape: int) -> Callable[[np.random.Generator], list[Any]]:
    return lambda rng: [rng.standard_normal(shape).astype(np.float32)]


def filters(x: Any, *shape: int) -> Any:
    """Filters that do not change between calls, in the type of x."""
    return tf.constant(np.random.default_rng(9).standard_normal(shape), x.dtype)


CONVOLUTIONS: dict[str, Callable[[Any], Any]] = {
    "same": lambda x: tf.nn.conv2d(x, filters(x, 3, 3, 8, 5), 1, "SAME"),
    "same with strides": lambda x: tf.nn.conv2d(x, filters(x, 3, 3, 8, 5), 2, "SAME"),
    "valid and dilated": lambda x: tf.nn.conv2d(x, filters(x, 3, 3, 8, 5), 1, "VALID", dilations=2),
    "padded by hand": lambda x: tf.nn.conv2d(x, filters(x, 3, 3, 8, 5), 1, [[0, 0], [1, 2], [0, 1], [0, 0]]),
    "padded before": lambda x: tf.nn.conv2d(
        tf.pad(x, [[0, 0], [0, 1], [0, 1], [0, 0]]), filters(x, 3, 3, 8, 5), 2, "VALID"
    ),
    "grouped": lambda x: tf.nn.conv2d(x, filters(x, 3, 3, 4, 6), 1, "SAME"),
    "depthwise": lambda x: tf.nn.depthwise_conv2d(x, filters(x, 3, 3, 8, 2), [1, 2, 2, 1], "SAME"),
    "transposed": lambda x: tf.nn.conv2d_transpose(x, filters(x, 3, 3, 5, 8), [tf.shape(x)[0], 18, 20, 5], 2, "SAME"),
    "transposed and valid": lambda x: tf.nn.conv2d_transpose(
        x, filters(x, 3, 3, 5, 8), [tf.shape(x)[0], 20, 21, 5], 2, "VALID"
    ),
    "separable": lambda x: tf.nn.separable_conv2d(
        x, filters(x, 3, 3, 8, 1), filters(x, 1, 1, 8, 4), [1, 1, 1, 1], "SAME"
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_read_images_with_channels_last(name, check) -> None:
    if name == "grouped":
        # TensorFlow's own kernels have no groups in f64.
        check(CONVOLUTIONS[name], images(2, 9, 10, 8), in_float64=False)
    else:
        check(CONVOLUTIONS[name], images(2, 9, 10, 8))


def test_volumes_are_convolved_and_pooled(check) -> None:
    def function(x: Any) -> Any:
        return tf.nn.avg_pool3d(tf.nn.conv3d(x, filters(x, 3, 3, 3, 2, 4), [1, 1, 1, 1, 1], "SAME"), 2, 2, "SAME")

    check(function, images(2, 5, 6, 7, 2), in_float64=False)
    check(lambda x: tf.nn.max_pool3d(x, 2, 2, "VALID"), images(2, 5, 6, 7, 2), in_float64=False)


def test_poolings_ignore_what_is_added_around(check) -> None:
    def function(x: Any) -> Any:
        pools = (
            tf.nn.max_pool2d(x, 3, 2, "SAME"),
            tf.nn.avg_pool2d(x, 3, 2, "SAME"),
            tf.nn.avg_pool2d(x, 2, 2, "VALID"),
        )
        return *pools, *tf.nn.max_pool_with_argmax(x, 2, 2, "VALID")

    check(function, images(2, 9, 10, 8))


def test_a_convolution_of_open_height_and_width_is_compiled_once() -> None:
    kernel = np.random.default_rng(1).standard_normal((3, 3, 2, 4)).astype(np.float32)

    def function(x: Any) -> Any:
        return tf.nn.conv2d(tf.nn.max_pool2d(x, 3, 2, "SAME"), kernel, 2, "SAME")

    compiled = hidet.compile(tf.function(function), tf.TensorSpec((None, None, None, 2)))
    for shape in ((1, 9, 12, 2), (2, 16, 7, 2)):
        x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
        np.testing.assert_allclose(compiled(x), function(x), rtol=0, atol=1e-5)
    assert compiled.report().nodes.fallback == 0


def test_channels_last_costs_no_copies() -> None:
    """Convolutions, poolings and what is element-wise between them read and write images as they lie: no task but
    these is left."""
    kernel = np.random.default_rng(1).standard_normal((3, 3, 8, 8)).astype(np.float32)
    scale = np.random.default_rng(1).random(8).astype(np.float32)

    def function(x: Any) -> Any:
        for _ in range(3):
            made = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, kernel, 1, "SAME"), scale) * scale + scale)
            x = made + x
        return tf.nn.max_pool2d(x, 2, 2, "VALID")

    report = hidet.compile(tf.function(function), tf.TensorSpec((None, 16, 16, 8))).report()
    assert {use.rule for use in report.uses} == {"cpu.conv", "cpu.pool"}
    assert sum(len(use.tasks) for use in report.uses) == 4


def test_batches_and_channels_are_normalised(check) -> None:
    def function(x: Any) -> Any:
        scale, offset, mean, variance = (tf.constant(np.linspace(0.5, 2, 8) + n, tf.float32) for n in range(4))
        inference = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, mean, variance, is_training=False)[0]
        training = tf.compat.v1.nn.fused_batch_norm(x, scale, offset, is_training=True)
        return inference, *training

    check(function, images(2, 4, 6, 8), in_float64=False)


def test_neighbouring_channels_are_normalised(check) -> None:
    check(lambda x: tf.nn.local_response_normalization(x, 2, 1.0, 0.5, 0.75), images(2, 4, 6, 8), in_float64=False)


def test_blocks_move_between_space_depth_and_batch(check) -> None:
    def function(x: Any) -> Any:
        batches = tf.space_to_batch_nd(x, [2, 2], [[0, 0], [1, 1]])
        return (
            tf.nn.space_to_depth(x, 2),
            tf.nn.depth_to_space(x, 2),
            batches,
            tf.batch_to_space(batches, [2, 2], [[0, 1], [1, 0]]),
        )

    check(function, images(2, 4, 6, 8))


@pytest.mark.parametrize("method", ["bilinear", "nearest", "bicubic"])
def test_images_are_resized(method, check) -> None:
    old = {"nearest": "nearest_neighbor"}.get(method, method)

    def function(x: Any) -> Any:
        new = [tf.image.resize(x, size, method=method) for size in ((7, 9), (3, 2))]
        names = tf.raw_ops, "Resize" + "".join(part.title() for part in old.split("_"))
        corners = getattr(*names)(images=x, size=[7, 9], align_corners=True)
        return *new, corners, getattr(*names)(images=x, size=[3, 9], align_corners=False)

    check(function, images(2, 5, 6, 3), in_float64=False)


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("size", [(4, 5), (9, 3), (13, 20), (1, 1)])
def test_a_pixel_is_the_mean_of_what_it_covers(size: tuple[int, int], align: bool, check) -> None:
    def function(x: Any) -> Any:
        return tf.raw_ops.ResizeArea(images=x, size=size, align_corners=align)

    compiled = check(function, images(2, 9, 10, 3), in_float64=False)
    assert compiled.report().nodes.eager == 0


def test_boxes_are_cropped_and_resized(check) -> None:
    def make(rng: np.random.Generator) -> list[Any]:
        boxes = rng.random((4, 4)) * 1.4 - 0.2
        return [*images(2, 6, 7, 3)(rng), boxes.astype(np.float32), np.array([0, 1, 1, 0], np.int32)]

    def function(x: Any, boxes: Any, at: Any) -> Any:
        linear = tf.image.crop_and_resize(x, boxes, at, (3, 4), extrapolation_value=2.0)
        return linear, tf.image.crop_and_resize(x, boxes, at, (2, 1), method="nearest")

    check(function, make, in_float64=False)


def overlapping(rng: np.random.Generator) -> list[Any]:
    corners = rng.random((9, 2))
    boxes = np.concatenate([corners, corners + rng.random((9, 2)) * 2], axis=1)
    return [boxes.astype(np.float32), rng.random(9).astype(np.float32)]


def test_overlapping_boxes_are_suppressed(check) -> None:
    def function(boxes: Any, scores: Any) -> Any:
        return tf.image.non_max_suppression(boxes, scores, 5, 0.3, 0.1)

    check(function, overlapping, in_float64=False)


def test_older_suppressions_are_known_as_well(check) -> None:
    def make(rng: np.random.Generator) -> list[Any]:
        corners = rng.random((12, 2)).astype(np.float32)
        return [np.concatenate([corners, corners + 0.4], 1).astype(np.float32), rng.random(12).astype(np.float32)]

    def function(boxes: Any, scores: Any) -> Any:
        given = {"boxes": boxes, "scores": scores, "max_output_size": 5}
        first = tf.raw_ops.NonMaxSuppression(**given, iou_threshold=0.3)
        return first, tf.raw_ops.NonMaxSuppressionV2(**given, iou_threshold=0.3)

    compiled = check(function, make, in_float64=False, strict=False)
    assert compiled.report().nodes.eager == 0


def test_suppression_can_fill_up_its_result(check) -> None:
    def function(boxes: Any, scores: Any) -> Any:
        return tf.raw_ops.NonMaxSuppressionV4(
            boxes=boxes,
            scores=scores,
            max_output_size=5,
            iou_threshold=0.3,
            score_threshold=0.1,
            pad_to_max_output_size=True,
        )

    check(function, overlapping, in_float64=False)


@pytest.mark.parametrize("own_boxes", [False, True])
def test_boxes_of_several_classes_are_suppressed_together(own_boxes, check) -> None:
    def make(rng: np.random.Generator) -> list[Any]:
        corners = rng.random((2, 9, 3 if own_boxes else 1, 2))
        boxes = np.concatenate([corners - 0.2, corners + rng.random(corners.shape)], axis=-1)
        return [boxes.astype(np.float32), rng.random((2, 9, 3)).astype(np.float32)]

    def function(boxes: Any, scores: Any) -> Any:
        options = {"iou_threshold": 0.3, "score_threshold": 0.2}
        few = tf.image.combined_non_max_suppression(boxes, scores, 4, 6, **options)
        many = tf.image.combined_non_max_suppression(boxes, scores, 9, 40, **options, clip_boxes=False)
        padded = tf.image.combined_non_max_suppression(boxes, scores, 2, 40, **options, pad_per_class=True)
        return *few, *many, *padded

    check(function, make, in_float64=False)


def test_patches_are_cut_out_of_images(check) -> None:
    def function(x: Any) -> Any:
        patches = tf.image.extract_patches(x, [1, 3, 2, 1], [1, 2, 1, 1], [1, 1, 2, 1], "VALID")
        return patches, tf.image.extract_patches(x, [1, 3, 3, 1], [1, 2, 2, 1], [1, 1, 1, 1], "SAME")

    check(function, images(2, 7, 9, 3))


def test_colours_are_changed(check) -> None:
    def make(rng: np.random.Generator) -> list[Any]:
        return [rng.random((2, 4, 5, 3)).astype(np.float32)]

    def function(x: Any) -> Any:
        hues = tf.image.rgb_to_hsv(x)
        return hues, tf.image.hsv_to_rgb(hues * 0.9), tf.image.adjust_contrast(x, 1.5), tf.image.rgb_to_grayscale(x)

    check(function, make, in_float64=False)


def test_hue_and_saturation_are_changed(check) -> None:
    def function(x: Any) -> Any:
        x = tf.sigmoid(x)
        return tf.image.adjust_hue(x, 0.3), tf.image.adjust_hue(x, -0.4), tf.image.adjust_saturation(x, 1.7)

    compiled = check(function, images(2, 5, 6, 3), in_float64=False)
    assert compiled.report().nodes.eager == 0


def test_blocks_of_one_size_move_between_space_and_batch(check) -> None:
    def function(x: Any) -> Any:
        there = tf.raw_ops.SpaceToBatch(input=x, paddings=[[1, 0], [2, 2]], block_size=2)
        return there, tf.raw_ops.BatchToSpace(input=there, crops=[[0, 1], [1, 1]], block_size=2)

    compiled = check(function, images(2, 5, 6, 3))
    assert compiled.report().nodes.eager == 0


@pytest.mark.parametrize("narrow", [False, True])
def test_numbers_are_rounded_as_quantised_training_does(narrow, check) -> None:
    def function(x: Any) -> Any:
        by_name = tf.quantization.fake_quant_with_min_max_vars(x, -1.3, 2.1, 6, narrow)
        low, high = tf.linspace(-2.0, -0.1, 3), tf.linspace(0.2, 3.0, 3)
        channels = tf.quantization.fake_quant_with_min_max_vars_per_channel(x, low, high, 8, narrow)
        return by_name, channels, tf.quantization.fake_quant_with_min_max_args(x, narrow_range=narrow)

    check(function, images(2, 4, 5, 3), in_float64=False)
