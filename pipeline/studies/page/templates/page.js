"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const PAGE = 25;
  const byId = (id) => document.getElementById(id);
  const several = data.names.length > 1;
  const color = (result) => `var(--series-${result % 10})`;

  function make(tag, attributes = {}, ...children) {
    const svg = ["svg", "path", "line", "text", "circle"].includes(tag);
    const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
      else if (value !== undefined) element.setAttribute(name, value);
    }
    element.append(...children);
    return element;
  }
  const mark = (result) => make("i", { class: "mark", style: { "--c": color(result) } });
  const number = (value) => value.toFixed(4);
  const signed = (value) => (Math.abs(value) < 5e-5 ? "0.0000" : (value > 0 ? "+" : "-") + number(Math.abs(value)));
  const whole = (value) => value.toLocaleString("en");
  const wholeRange = ([start, stop]) => `${whole(start + 1)} to ${whole(stop)}`;
  const counted = (count, one, many) => `${whole(count)} ${count === 1 ? one : many}`;

  // The list of queries: `rows` in order, of which the first `drawn` are in the page.
  const state = { first: 0, second: several ? 1 : -1, by: "", up: false, rows: [], drawn: 0, widest: 1 };
  const value = (result, row) => data.values[result][row];
  const difference = (row) => value(state.first, row) - value(state.second, row);
  const columns = () => (state.second < 0
    ? [["query"], ["first", state.first]]
    : [["query"], ["first", state.first], ["second", state.second], ["difference"]]);
  const keys = {
    query: (row) => row,
    first: (row) => value(state.first, row),
    second: (row) => value(state.second, row),
    difference,
  };

  function reset() {
    state.by = state.second < 0 ? "first" : "difference";
    state.up = state.second < 0;
    spread();
    refresh();
  }

  function refresh() {
    const search = byId("find").value.trim().toLowerCase();
    const matches = (row) => !search || data.texts[row].toLowerCase().includes(search) || data.ids[row].toLowerCase().includes(search);
    const key = keys[state.by];
    state.rows = data.ids.map((_, row) => row).filter(matches);
    state.rows.sort((a, b) => (state.up ? key(a) - key(b) : key(b) - key(a)) || (b in data.details) - (a in data.details) || a - b);
    state.drawn = 0;
    byId("list").tBodies[0].replaceChildren();
    header();
    draw();
  }

  function header() {
    byId("list").tHead.rows[0].replaceChildren(...columns().map(([by, result]) => {
      const sorted = state.by === by ? (state.up ? "ascending" : "descending") : "none";
      const button = make("button", { type: "button" }, ...(result === undefined ? [by] : [mark(result), data.names[result]]));
      button.addEventListener("click", () => {
        state.up = state.by === by ? !state.up : by === "query";
        state.by = by;
        refresh();
        byId("list").querySelector(`[data-by=${by}] button`).focus();
      });
      return make("th", { scope: "col", "aria-sort": sorted, "data-by": by, class: by === "query" ? "text" : by }, button);
    }));
  }

  function draw() {
    const stop = Math.min(state.drawn + PAGE, state.rows.length);
    byId("list").tBodies[0].append(...state.rows.slice(state.drawn, stop).map(line));
    state.drawn = stop;
    byId("shown").textContent = `${whole(stop)} of ${counted(state.rows.length, "query", "queries")}.`;
    byId("more").hidden = stop === state.rows.length;
  }

  function line(row) {
    const button = make("button", { type: "button", class: "open", "aria-expanded": "false" },
      make("span", {}, make("bdi", {}, data.texts[row] || data.ids[row]), " ", make("small", {}, data.texts[row] ? make("bdi", {}, data.ids[row]) : "")));
    const cells = [make("th", { scope: "row", class: "text" }, button), make("td", {}, number(value(state.first, row)))];
    if (state.second >= 0) {
      const delta = difference(row);
      const bar = make("span", { class: delta < 0 ? "lean down" : "lean" },
        make("i", { style: { "--w": 100 * Math.abs(delta) / state.widest, "--c": color(delta < 0 ? state.second : state.first) } }));
      cells.push(make("td", {}, number(value(state.second, row))), make("td", { class: "difference" }, signed(delta), bar));
    }
    const element = make("tr", row in data.details ? {} : { class: "bare" }, ...cells);
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      if (open) element.nextSibling.remove();
      else element.after(detail(row));
    });
    return element;
  }

  // The row below an opened query: one card for each selected result.
  function detail(row) {
    const cell = make("td", { colspan: columns().length });
    const element = make("tr", { class: "detail" }, cell);
    if (!(row in data.details)) {
      cell.append(make("p", { class: "below" }, "This file holds no passages for this query."));
      return element;
    }
    const grade = (kind, text, meaning) => make("span", {}, make("span", { class: `grade ${kind}` }, text), meaning);
    const longer = make("button", { type: "button", class: "whole", "aria-pressed": "false" }, "Longer passages");
    longer.addEventListener("click", () => longer.setAttribute("aria-pressed", String(element.classList.toggle("full"))));
    const results = state.second < 0 ? [state.first] : [state.first, state.second];
    cell.append(
      make("p", { class: "below" }, grade("yes", String(data.rel), "relevant, with its grade"),
        grade("no", "0", "judged not relevant"), grade("unknown", "?", "not judged"), longer),
      make("div", { class: "sides" }, ...results.map((result) => card(row, result, results.find((other) => other !== result)))));
    return element;
  }

  // One result for an opened query; `other` is the result beside it, if there is one.
  function card(row, result, other) {
    const details = data.details[row][result];
    const heading = make("h3", {}, make("span", {}, data.names[result]), make("span", {}, `${data.measure} ${number(value(result, row))}`));
    const element = make("article", { class: "side", style: { "--c": color(result) } }, heading);
    if (!details) {
      element.append(make("p", { class: "why" }, "The collection of this result is not in the cache."));
      return element;
    }
    const top = `top ${details.top.length}`;
    const otherDetails = other === undefined ? null : data.details[row][other];
    element.append(make("p", { class: "why" }, details.why));
    if (details.relevant) element.append(rankLine(details, result, Math.max(...data.details[row].map((each) => each?.depth ?? 0))));
    element.append(make("h4", {}, `Passages in the ${top}`), hits(details.top, otherDetails, other));
    if (details.missed.length) {
      const outside = details.relevant - details.ranks.filter((rank) => rank <= details.top.length).length;
      const shown = details.missed.length < outside ? `, ${details.missed.length} of ${outside}` : "";
      element.append(make("h4", {}, `Relevant passages outside the ${top}${shown}`), hits(details.missed, otherDetails, other));
    }
    return element;
  }

  // A list of passages, each with its rank in the other result.
  function hits(list, otherDetails, other) {
    return make("ol", { class: "hits" }, ...list.map(([passage, rank, score, grade, chunk]) => {
      const text = chunk ? chunk[2] : data.passages[passage];
      const kind = grade === null ? "unknown" : grade >= data.rel ? "yes" : "no";
      const meaning = grade === null ? "not judged" : `grade ${grade}`;
      const facts = [score === null ? "not retrieved" : `score ${Number(score.toPrecision(5))}`];
      if (chunk) facts.push(`its best chunk, characters ${wholeRange(chunk)}`);
      if (otherDetails) {
        const found = [...otherDetails.top, ...otherDetails.missed].find((hit) => hit[0] === passage);
        const place = !found ? "not in the top 10" : found[1] ? `rank ${found[1]}` : "not retrieved";
        facts.push(`${data.names[other]}: ${place}`);
      }
      return make("li", {},
        make("span", { class: "rank" }, rank === null ? "–" : String(rank)),
        make("span", { class: `grade ${kind}`, role: "img", title: meaning, "aria-label": meaning }, grade === null ? "?" : String(grade)),
        make("div", {}, make("p", { dir: "auto" }, text), make("small", {}, make("bdi", {}, passage), ...facts.map((fact) => ` · ${fact}`))));
    }));
  }

  // A line with a tick at the rank of each relevant passage, on a logarithmic scale.
  function rankLine(details, result, depth) {
    const width = 400;
    const base = 16;
    const last = Math.max(10, depth);
    const x = (rank) => 6 + (width - 90) * Math.log(rank) / Math.log(last);
    const missing = details.relevant - details.ranks.length;
    const label = `Ranks of the ${details.relevant} relevant passages: ${details.ranks.slice(0, 20).join(", ")}${missing ? `; ${missing} not retrieved` : ""}`;
    const drawing = make("svg", { class: "ranks", viewBox: `0 0 ${width} 32`, role: "img", "aria-label": label },
      make("line", { x1: 6, x2: x(last), y1: base, y2: base, style: { stroke: "var(--rule)" } }));
    for (const rank of [1, 10, 100, 1000].filter((tick) => tick <= last)) {
      drawing.append(make("text", { x: x(rank), y: 29, "text-anchor": rank === 1 ? "start" : "middle", style: { fill: "var(--muted)" } }, rank === 1 ? "rank 1" : String(rank)));
    }
    for (const rank of details.ranks) {
      drawing.append(make("line", { x1: x(rank), x2: x(rank), y1: base - 10, y2: base + 2, style: { stroke: color(result), "stroke-width": 2 } }));
    }
    if (missing) drawing.append(make("text", { x: width - 2, y: base + 2, "text-anchor": "end", style: { fill: "var(--bad)" } }, `${missing} not retrieved`));
    return drawing;
  }

  // A bar for the difference of every query, largest first; or for its value if only one result is selected, lowest first:
  // as the list of queries is sorted at first.
  function spread() {
    const single = state.second < 0;
    const sorted = data.ids.map((_, row) => (single ? value(state.first, row) : difference(row))).sort((a, b) => (single ? a - b : b - a));
    const top = Math.max(sorted[0], sorted.at(-1), 0) || 1e-9;
    const bottom = Math.min(sorted[0], sorted.at(-1), 0);
    state.widest = Math.max(top, -bottom);
    const y = (v) => (100 * (top - v)) / (top - bottom);
    const path = (keep) => sorted.map((v, i) => (keep(v) ? `M${i} ${y(0)}V${y(v)}H${i + (sorted.length > 300 ? 1 : 0.85)}V${y(0)}Z` : "")).join("");
    const drawing = make("svg", { viewBox: `0 0 ${sorted.length} 100`, preserveAspectRatio: "none", role: "img", "aria-labelledby": "spread-caption" },
      make("path", { d: path((v) => v > 0), style: { fill: color(state.first) } }));
    if (!single) drawing.append(make("path", { d: path((v) => v < 0), style: { fill: color(state.second) } }));
    drawing.append(make("line", { x1: 0, x2: sorted.length, y1: y(0), y2: y(0), style: { stroke: "var(--muted)", "stroke-width": 1, "vector-effect": "non-scaling-stroke" } }));
    const ends = single ? [number(top), ""] : [sorted[0] > 0 ? signed(top) : "", bottom < 0 ? signed(bottom) : ""];
    byId("spread").replaceChildren(drawing, make("span", { class: single ? "high first" : "high" }, ends[0]), make("span", { class: "low" }, ends[1]));
    byId("spread-caption").replaceChildren(...(single ? singleCaption(sorted) : pairCaption()));
  }

  function singleCaption(sorted) {
    const zero = sorted.filter((v) => v === 0).length;
    const tail = zero ? `; ${whole(zero)} of ${whole(sorted.length)} at 0` : "";
    return [mark(state.first), `${data.measure} of every query in ${data.names[state.first]}, lowest first${tail}.`];
  }

  function pairCaption() {
    const a = state.first;
    const b = state.second;
    const pair = data.pairs.find(([x, y]) => (x === a && y === b) || (x === b && y === a));
    const names = [mark(a), `${data.names[a]} - `, mark(b), `${data.names[b]} for every query, largest first`];
    if (!pair) return [...names, "."];
    const [, , delta, low, high, fragile, shown, wins, ties, losses] = pair;
    const swapped = pair[0] !== a;
    const mean = swapped ? -delta : delta;
    const ends = swapped ? [-high, -low] : [low, high];
    const interval = low === null ? "" : `, 95% interval of this pair alone ${signed(ends[0])} to ${signed(ends[1])}${fragile ? "~" : ""}`;
    const [won, lost] = swapped ? [losses, wins] : [wins, losses];
    return [...names, `: ${counted(won, "win", "wins")}, ${counted(ties, "tie", "ties")}, ${counted(lost, "loss", "losses")}; `,
      `mean difference ${signed(mean)}${interval}; ${shown ? "a" : "no"} significant difference.`];
  }

  byId("more").addEventListener("click", draw);
  byId("find").addEventListener("input", refresh);
  byId("controls").addEventListener("submit", (event) => event.preventDefault());
  if (several) {
    for (const which of ["first", "second"]) {
      byId(which).value = String(state[which]);
      byId(which).addEventListener("change", (event) => {
        state[which] = Number(event.target.value);
        if (state.first === state.second) {
          state.second = state.first === 0 ? 1 : 0;
          byId("second").value = String(state.second);
        }
        reset();
      });
    }
  }
  byId("controls").hidden = false;
  reset();
})();
