"""ctc_beam_search as thread IR: a work item searches one utterance, step by step.

Prefixes are the nodes of a tree, each one label behind its parent. A prefix that was given up stays in it, because
longer ones may hang from it. A node is made of what a step has kept at its end, so that a step adds at most as many as
there are beams.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hidet import dims, dtypes
from hidet.ir import build
from hidet.ir.builder import IRBuilder
from hidet.ir.expr import Expr, Var
from hidet.schedule.routines.site import RoutineKernel, RoutineSite

_NONE = build.index(-1)
# The place of a prefix that was found again in this step and was not better than the worst beam.
_REFUSED = build.index(-2)


@dataclass(frozen=True, slots=True, eq=False)
class _Tree:
    """parent, label, first child, next child of the same parent; place: the number of the beam that a node is, any
    number for one that was found in this step, negative for none. All begin at `start`."""

    start: Expr
    parent: Var
    label: Var
    child: Var
    sibling: Var
    place: Var

    def at(self, part: Var, node: Expr) -> Expr:
        return build.load(part, self.start + node)

    def set(self, k: IRBuilder, part: Var, node: Expr, value: Expr) -> None:
        k.store(part, self.start + node, value)


@dataclass(frozen=True, slots=True, eq=False)
class _Beams:
    """Beams in memory, best first. node is -1 for a prefix that is not in the tree yet: `label` behind the node
    `parent`."""

    total: Var
    ends_in_blank: Var
    ends_in_label: Var
    node: Var
    parent: Var
    label: Var

    @property
    def parts(self) -> tuple[Var, ...]:
        return (self.total, self.ends_in_blank, self.ends_in_label, self.node, self.parent, self.label)


def search_program(site: RoutineSite) -> RoutineKernel:
    """Results: labels of the best paths, -1 behind their ends, and the logarithms of their probabilities."""
    scores, _ = site.stage.operands
    time, batch, classes = scores.shape
    width = site.stage.attribute_values()["width"]
    item, dtype = build.size_var("item"), scores.dtype
    most = time * width + 1
    tree = _Tree(
        item * site.size(most),
        *[site.scratch(name, dtypes.i64, batch * most) for name in ("parent", "label", "child", "sibling", "place")],
    )
    # Those of the last step and those of this one.
    beams = _Beams(
        *[site.scratch(name, dtype, dims.product((batch, 2 * width))) for name in ("total", "blank", "last")],
        *[site.scratch(name, dtypes.i64, dims.product((batch, 2 * width))) for name in ("node", "prefix", "added")],
    )
    children = site.scratch("children", dtypes.i64, batch * classes)
    return _Search(site, item, tree, beams, children).kernel()


class _Search:
    """A kernel under construction. before, after: where the beams of the last step and of this one begin; count, kept:
    how many they are; nodes: how many the tree has."""

    def __init__(self, site: RoutineSite, item: Var, tree: _Tree, beams: _Beams, children: Var) -> None:
        self.site, self.item, self.tree, self.beams, self.children = site, item, tree, beams, children
        self.scores, self.lengths = site.stage.operands
        self.dtype = self.scores.dtype
        self.nothing = build.const(-math.inf, self.dtype)
        self.time, _, self.classes = map(site.size, self.scores.shape)
        attributes = site.stage.attribute_values()
        self.width, self.paths = build.index(attributes["width"]), build.index(attributes["paths"])
        self.k = k = IRBuilder()
        self.before = k.let("before", item * (2 * attributes["width"]))
        self.after = k.let("after", self.before + self.width)
        self.count, self.kept = k.let("count", build.index(1)), k.let("kept", build.index(0))
        self.nodes = k.let("nodes", build.index(1))

    def kernel(self) -> RoutineKernel:
        k, tree = self.k, self.tree
        for part in (tree.parent, tree.label, tree.child):
            tree.set(k, part, build.index(0), _NONE)
        tree.set(k, tree.place, build.index(0), build.index(0))
        one = build.const(0, self.dtype)
        k.store_each(self.beams.parts, self.before, (one, one, self.nothing, build.index(0), _NONE, _NONE))
        length = build.minimum(self.site.read(self.lengths, (self.item,)), self.time)
        with k.for_range("step", build.maximum(length, 0)) as step:
            k.assign(self.kept, build.index(0))
            with k.for_range("beam", self.count) as beam:
                self._stay(step, self.before + beam)
            with k.for_range("grown", self.count) as beam:
                self._grow(step, self.before + beam)
            self._plant()
            k.assign(self.count, self.kept)
            behind = k.let("behind", self.before)
            k.assign(self.before, self.after)
            k.assign(self.after, behind)
        with k.for_range("path", self.paths) as path:
            self._write(path)
        return RoutineKernel(self.item, self.scores.shape[1], k.body)

    def _said(self, step: Expr, label: Expr) -> Expr:
        return self.site.read(self.scores, (step, self.item, label))

    def _stay(self, step: Expr, beam: Expr) -> None:
        """A beam with a blank more, or with its last label again."""
        k, tree, beams = self.k, self.tree, self.beams
        node = k.let("node", build.load(beams.node, beam))
        parent, label = k.let("parent", tree.at(tree.parent, node)), k.let("label", tree.at(tree.label, node))
        ends_in_label = k.let("ends_in_label", build.load(beams.ends_in_label, beam))
        with k.if_(parent >= 0):
            place = k.let("place", tree.at(tree.place, parent))
            with k.if_(place >= 0):
                passed = k.let("passed", self._passed(self.before + place, parent, label))
                k.assign(ends_in_label, self._log_add(ends_in_label, passed))
            k.assign(ends_in_label, ends_in_label + self._said(step, label))
        old = build.load(beams.total, beam)
        ends_in_blank = k.let("ends_in_blank", old + self._said(step, self.classes - 1))
        total = k.let("total", self._log_add(ends_in_blank, ends_in_label))
        with k.if_(total > self.nothing):
            self._keep((total, ends_in_blank, ends_in_label, node, parent, label))
        with k.else_():
            tree.set(k, tree.place, node, _NONE)

    def _grow(self, step: Expr, beam: Expr) -> None:
        """A beam with one more label, for each that is better than the worst of those kept."""
        k, tree, beams = self.k, self.tree, self.beams
        node = k.let("node", build.load(beams.node, beam))
        is_refused = build.equal(tree.at(tree.place, node), _REFUSED)
        may_grow = self._is_candidate(k.let("old_total", build.load(beams.total, beam)))
        with k.if_(build.logical_and(build.unary("lnot", is_refused), may_grow)):
            of_this = self.item * self.classes
            with k.for_range("class", self.classes) as label:
                k.store(self.children, of_this + label, _NONE)
            child = k.let("child", tree.at(tree.child, node))
            with k.while_(child >= 0):
                k.store(self.children, of_this + tree.at(tree.label, child), child)
                k.assign(child, tree.at(tree.sibling, child))
            with k.for_range("added", self.classes - 1) as label:
                grown = k.let("grown", self._said(step, label) + self._passed(beam, node, label))
                known = k.let("known", build.load(self.children, of_this + label))
                is_known = known >= 0
                is_beam = k.let("is_beam", is_known)
                with k.if_(is_known):
                    k.assign(is_beam, tree.at(tree.place, known) >= 0)
                with k.if_(build.unary("lnot", is_beam)):
                    place = k.let("place", _REFUSED)
                    with k.if_(self._is_candidate(grown)):
                        self._keep((grown, self.nothing, grown, known, node, label))
                        k.assign(place, build.index(0))
                    with k.if_(is_known):
                        tree.set(k, tree.place, known, place)

    def _passed(self, beam: Expr, node: Expr, label: Expr) -> Expr:
        """What a beam passes on to itself with one more label: the same one again is another behind a blank alone."""
        repeats = build.equal(self.tree.at(self.tree.label, node), label)
        return build.select(repeats, build.load(self.beams.ends_in_blank, beam), build.load(self.beams.total, beam))

    def _log_add(self, a: Expr, b: Expr) -> Expr:
        """The logarithm of the sum of two numbers, by their logarithms."""
        high, low = build.maximum(a, b), build.minimum(a, b)
        added = build.unary("log1p", build.unary("exp", low - high))
        return build.select(build.equal(low, self.nothing), high, high + added)

    def _is_candidate(self, total: Expr) -> Expr:
        # Where there is room, the place behind the last one holds anything.
        last = build.load(self.beams.total, self.after + self.width - 1)
        return build.logical_and(total > self.nothing, build.binary("lor", self.kept < self.width, total > last))

    def _keep(self, beam: tuple[Expr, ...]) -> None:
        """Put a beam behind those that are as good, and give the worst one up where there are too many."""
        k, tree, parts = self.k, self.tree, self.beams.parts
        gap = k.let("gap", self.after + build.minimum(self.kept, self.width - 1))
        with k.if_(build.equal(self.kept, self.width)):
            dropped = k.let("dropped", build.load(self.beams.node, gap))
            with k.if_(dropped >= 0):
                tree.set(k, tree.place, dropped, _NONE)
        with k.else_():
            k.assign(self.kept, self.kept + 1)
        with k.while_(gap > self.after):
            with k.if_(build.load(parts[0], gap - 1) >= beam[0]):
                k.break_()
            k.store_each(parts, gap, [build.load(part, gap - 1) for part in parts])
            k.assign(gap, gap - 1)
        k.store_each(parts, gap, beam)

    def _plant(self) -> None:
        """New prefixes become nodes."""
        k, tree, beams = self.k, self.tree, self.beams
        with k.for_range("leaf", self.kept) as leaf:
            node = k.let("node", build.load(beams.node, self.after + leaf))
            with k.if_(node < 0):
                k.assign(node, self.nodes)
                k.assign(self.nodes, self.nodes + 1)
                parent = k.let("parent", build.load(beams.parent, self.after + leaf))
                tree.set(k, tree.parent, node, parent)
                tree.set(k, tree.label, node, build.load(beams.label, self.after + leaf))
                tree.set(k, tree.child, node, _NONE)
                tree.set(k, tree.sibling, node, tree.at(tree.child, parent))
                tree.set(k, tree.child, parent, node)
                k.store(beams.node, self.after + leaf, node)
            tree.set(k, tree.place, node, leaf)

    def _write(self, path: Expr) -> None:
        """One path, from its end to its beginning."""
        k, tree, site = self.k, self.tree, self.site
        labels, probable = site.stage.results
        node = k.let("node", build.index(0))
        k.emit(site.write(probable, (self.item, path), self.nothing))
        with k.if_(path < self.count):
            k.assign(node, build.load(self.beams.node, self.before + path))
            k.emit(site.write(probable, (self.item, path), build.load(self.beams.total, self.before + path)))
        length, above = k.let("length", build.index(0)), k.let("above", node)
        with k.while_(above > 0):
            k.assign(length, length + 1)
            k.assign(above, tree.at(tree.parent, above))
        with k.for_range("behind", self.time - length, start=length) as place:
            k.emit(site.write(labels, (self.item, path, place), _NONE))
        with k.while_(node > 0):
            k.assign(length, length - 1)
            k.emit(site.write(labels, (self.item, path, length), tree.at(tree.label, node)))
            k.assign(node, tree.at(tree.parent, node))
