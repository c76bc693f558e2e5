"use strict";
// Graphs are moved and zoomed by their viewBox; listings are unpacked when they are opened; tables are sorted by column.
// `data` is read by charts.js.

for (const view of document.querySelectorAll(".canvas")) {
  const svg = view.querySelector("svg"), name = view.dataset.graph, facts = document.getElementById(`facts-${name}`);
  const boxes = [...svg.querySelectorAll(".box")];
  const whole = svg.viewBox.baseVal, all = [whole.x, whole.y, whole.width, whole.height];
  let at = all.slice(), chosen = -1;
  const show = () => svg.setAttribute("viewBox", at.join(" "));
  // A large graph begins readable, at its top, where most of its first boxes are.
  const begin = () => {
    const wide = Math.max(view.clientWidth, 1), shape = view.clientHeight / wide;
    const width = Math.min(Math.max(all[2], 0.9 * wide), Math.max(1300, 1.5 * wide)), height = width * shape;
    const places = boxes.map((box) => box.querySelector("text")).filter((text) => +text.getAttribute("y") < all[1] + height);
    const middle = places.reduce((sum, text) => sum + +text.getAttribute("x"), 0) / Math.max(places.length, 1);
    at = [width < all[2] ? middle - width / 2 : (all[2] - width) / 2, all[1], width, height];
    show();
  };
  const zoom = (factor, x = 0.5, y = 0.5) => {
    const width = Math.min(Math.max(at[2] * factor, 80), Math.max(all[2], all[3]) * 4), scale = width / at[2];
    at = [at[0] + at[2] * x * (1 - scale), at[1] + at[3] * y * (1 - scale), width, at[3] * scale];
    show();
  };
  const choose = (number, follow) => {
    if (chosen >= 0) boxes[chosen].classList.remove("chosen");
    chosen = (number + boxes.length) % boxes.length;
    boxes[chosen].classList.add("chosen");
    facts.textContent = data[name][chosen].join("\n");
    if (follow) {
      const box = boxes[chosen].querySelector("rect"), x = +box.getAttribute("x"), y = +box.getAttribute("y");
      at = [x - at[2] / 2 + +box.getAttribute("width") / 2, y - at[3] / 2, at[2], at[3]];
      show();
    }
  };
  const keys = {
    "+": () => zoom(0.8), "=": () => zoom(0.8), "-": () => zoom(1.25),
    0: () => { at = all.slice(); show(); },
    ArrowLeft: () => { at[0] -= at[2] / 10; show(); }, ArrowRight: () => { at[0] += at[2] / 10; show(); },
    ArrowUp: () => { at[1] -= at[3] / 10; show(); }, ArrowDown: () => { at[1] += at[3] / 10; show(); },
    n: () => choose(chosen + 1, true), p: () => choose(chosen - 1, true),
  };
  view.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  view.addEventListener("wheel", (event) => {
    event.preventDefault();
    const place = svg.getBoundingClientRect();
    zoom(event.deltaY > 0 ? 1.15 : 0.87, (event.clientX - place.left) / place.width, (event.clientY - place.top) / place.height);
  }, { passive: false });
  let held = null;
  view.addEventListener("pointerdown", (event) => { held = [event.clientX, event.clientY]; });
  addEventListener("pointerup", () => { held = null; });
  view.addEventListener("pointermove", (event) => {
    if (!held) return;
    const scale = at[2] / view.clientWidth;
    at[0] -= (event.clientX - held[0]) * scale;
    at[1] -= (event.clientY - held[1]) * scale;
    held = [event.clientX, event.clientY];
    show();
  });
  svg.addEventListener("click", (event) => {
    const box = event.target.closest(".box");
    if (box) choose(+box.dataset.box, false);
  });
  view.begin = begin;
  begin();
}

const tabs = [...document.querySelectorAll("[role=tab]")];
function select(tab) {
  for (const each of tabs) {
    const is = each === tab, panel = document.getElementById(each.getAttribute("aria-controls"));
    each.setAttribute("aria-selected", is);
    each.tabIndex = is ? 0 : -1;
    panel.hidden = !is;
    if (is) panel.querySelector(".canvas").begin();
  }
}
tabs.forEach((tab, number) => {
  tab.addEventListener("click", () => select(tab));
  tab.addEventListener("keydown", (event) => {
    const move = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!move) return;
    const next = tabs[(number + move + tabs.length) % tabs.length];
    select(next);
    next.focus();
  });
});

async function unpacked(packed) {
  const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}
for (const place of document.querySelectorAll("pre.source")) {
  place.parentElement.addEventListener("toggle", async () => {
    if (place.textContent === "") place.textContent = await unpacked(data.texts[+place.dataset.text]);
  });
}

for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((head, column) => {
    head.tabIndex = 0;
    const sort = () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const rows = [...body.rows].sort((one, other) => {
        const [a, b] = [value(one), value(other)], both = [parseFloat(a), parseFloat(b)];
        const order = both.some(Number.isNaN) ? a.localeCompare(b) : both[0] - both[1];
        return down ? -order : order;
      });
      body.append(...rows);
    };
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => { if (event.key === "Enter") sort(); });
  });
}

function mark(number) {
  const row = document.getElementById(`row-${number}`);
  document.querySelectorAll("tr.marked").forEach((other) => other.classList.remove("marked"));
  row.classList.add("marked");
  row.scrollIntoView({ block: "center" });
}
document.addEventListener("chosen", (event) => mark(event.detail));
document.addEventListener("click", (event) => {
  const shape = event.target.closest("svg.chart [data-row]");
  if (shape) mark(shape.dataset.row);
});
