"use strict";
// The page: a sentence, its translation by each run, and heads that can be switched off.

const KINDS = { encoder: "Encoder", decoder: "Decoder", cross: "Cross" };
const LANGUAGE = /^[a-z]{2,3}(-[A-Za-z0-9]+)*$/;

// An element; text becomes text, never markup.
function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in node && name !== "role") node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function signed(number) {
  return `${number < 0 ? "\u2212" : "+"}${Math.abs(number).toFixed(2)}`;
}

function plain(number) {
  return `${number < 0 ? "\u2212" : ""}${Math.abs(number).toFixed(2)}`;
}

// One run on the page: its translation, its heads, and the attention of the head that is chosen.
class Panel {
  constructor(run, languages) {
    this.run = run;
    this.off = new Set();
    this.words = true;
    this.buttons = new Map();
    const lang = LANGUAGE.test(languages[1]) ? languages[1] : "";
    this.speed = element("span");
    this.whole = element("p", { className: "translation", lang });
    this.wholeScore = element("p", { className: "score soft" });
    this.without = element("div", { className: "without", ariaLive: "polite" });
    this.reset = element("button", { type: "button", className: "small", textContent: "All heads on", disabled: true });
    this.unit = element("button", { type: "button", className: "small" });
    this.caption = element("h3");
    this.map = element("div", { className: "wide", tabIndex: 0, role: "region", ariaLabel: "Attention weights" });
    this.reset.onclick = () => this.switchOn();
    this.unit.onclick = () => {
      this.words = !this.words;
      this.drawMap();
    };
    this.grid = this.headGrid();
    this.node = element("article", { className: "run" },
      element("h2", { textContent: run.name }),
      element("p", { className: "soft" }, this.facts(), this.speed),
      element("p", { className: "label", textContent: "All heads" }), this.whole, this.wholeScore,
      this.without,
      element("div", { className: "bar" }, element("h3", { textContent: "Heads" }), this.reset),
      this.grid,
      element("div", { className: "bar" }, this.caption, this.unit),
      this.map);
    this.choose([...this.buttons.keys()].at(-1));
  }

  facts() {
    const { parameters, weights, model } = this.run;
    const count = model.attentions.reduce((sum, part) => sum + part.heads, 0);
    return `${count} heads, ${parameters.toLocaleString("en")} parameters in ${weights}`;
  }

  // A row of heads for each layer of each kind.
  headGrid() {
    const grid = element("div", { className: "heads", role: "group", ariaLabel: "Heads" });
    for (const part of this.run.model.attentions) {
      const [, kind, layer] = part.name.match(/^([a-z]+)(\d+)$/);
      const cells = Array.from({ length: part.heads }, (_, head) => this.headCell(`${part.name}.${head + 1}`));
      grid.append(element("div", { className: "layer" },
        element("span", { className: "name", textContent: `${KINDS[kind]} ${layer}` }),
        element("div", { className: "cells" }, ...cells)));
    }
    grid.onkeydown = (event) => this.key(event);
    return grid;
  }

  headCell(name) {
    const map = element("canvas", { width: 1, height: 1 });
    const pick = element("button", { type: "button", className: "pick", tabIndex: -1, title: name }, map);
    const tick = element("input", { type: "checkbox", checked: true, tabIndex: -1 });
    pick.onclick = () => this.choose(name);
    tick.onchange = () => this.toggle(name);
    this.buttons.set(name, { map, pick, tick });
    return element("div", { className: "head" }, pick, element("label", { ariaLabel: `${name} on` }, tick, name.split(".")[1]));
  }

  key(event) {
    const { chosen } = this;
    const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: "down", ArrowUp: "up", Home: "first", End: "last" };
    if (event.key === " " && event.target.className === "pick") this.toggle(chosen);
    else if (event.key in moves) this.choose(this.neighbour(chosen, moves[event.key]), true);
    else return;
    event.preventDefault();
  }

  neighbour(name, move) {
    const names = [...this.buttons.keys()], at = names.indexOf(name);
    if (move === "first" || move === "last") return names.at(move === "first" ? 0 : -1);
    if (typeof move === "number") return names[Math.min(names.length - 1, Math.max(0, at + move))];
    const layers = this.run.model.attentions.filter((part) => part.heads), [layer, head] = name.split(".");
    const to = layers[layers.findIndex((part) => part.name === layer) + (move === "down" ? 1 : -1)];
    return to ? `${to.name}.${Math.min(to.heads, head)}` : name;
  }

  choose(name, focus = false) {
    for (const [each, { pick }] of this.buttons) {
      pick.ariaCurrent = each === name ? "true" : "false";
      pick.tabIndex = each === name ? 0 : -1;
      if (focus && each === name) pick.focus();
    }
    this.chosen = name;
    if (this.now) this.drawMap();
  }

  toggle(name) {
    if (!this.off.delete(name)) this.off.add(name);
    this.show();
  }

  switchOn() {
    this.off.clear();
    this.show();
  }

  // Translate a sentence; example: the test sentence that it is, with its reference.
  translate(text, example) {
    Object.assign(this, { text, example, source: this.run.source.encode(text) });
    this.problem = this.run.tooLong(this.source);
    this.best = this.source.length && !this.problem ? this.search(new Set()) : null;
    this.show();
  }

  search(off) {
    const started = performance.now(), found = this.run.greedy(this.run.begin(this.source, off));
    this.speed.textContent = `; ${(performance.now() - started).toFixed(0)} ms`;
    return found;
  }

  show() {
    const off = this.off.size > 0;
    this.now = this.best && off ? this.search(new Set(this.off)) : this.best;
    this.reset.disabled = !off;
    this.showTexts();
    for (const [name, { pick, tick, map }] of this.buttons) {
      tick.checked = !this.off.has(name);
      pick.ariaLabel = `${name}, ${tick.checked ? "on" : "off"}`;
      pick.parentNode.classList.toggle("off", !tick.checked);
      this.thumbnail(map, name);
    }
    this.drawMap();
  }

  showTexts() {
    const { best, now, run } = this;
    this.whole.textContent = best ? run.target.decode(best.tokens) : this.problem;
    this.whole.className = best ? "translation" : "soft";
    this.wholeScore.textContent = best ? `log p ${plain(best.score)}${this.margin(best.start)}` : "";
    this.without.replaceChildren();
    if (!best || now === best) return;
    const text = run.target.decode(now.tokens), kept = run.logProb(now.start, best.tokens);
    this.without.append(
      element("p", { className: "label", textContent: `without ${[...this.off].sort().join(", ")}` }),
      element("p", { className: "translation", lang: this.whole.lang, textContent: text }),
      element("p", { className: "score soft", textContent: `log p ${plain(now.score)}${this.margin(now.start)}` }),
      element("p", { className: "score soft" }, "The translation above has log p ", plain(kept), ": ",
        element("b", { textContent: signed(kept - best.score) }), text === this.whole.textContent ? "; the text is the same" : ""));
  }

  // log p of the right less that of the wrong translation of an example.
  margin(start) {
    if (!this.example?.contrast) return "";
    const [right, wrong] = [this.example.target, this.example.contrast].map((text) => this.run.target.encode(text));
    return `; right against wrong ${signed(this.run.logProb(start, right) - this.run.logProb(start, wrong))}`;
  }

  // Pieces of rows and columns of the maps of an attention.
  sides(kind) {
    const { run, source, now } = this;
    const read = [...source, EOS].map((token) => run.source.piece(token));
    const written = [...now.tokens, EOS].map((token) => run.target.piece(token));
    const before = ["<s>", ...written.slice(0, -1)];
    return { encoder: [read, read], cross: [written, read], decoder: [written, before] }[kind];
  }

  weights(name) {
    const [layer, head] = name.split(".");
    return this.now?.maps[layer]?.[head - 1];
  }

  thumbnail(canvas, name) {
    const rows = this.weights(name), size = 34 * Math.min(2, window.devicePixelRatio || 1);
    canvas.width = canvas.height = size;
    if (!rows) return;
    const brush = canvas.getContext("2d"), color = getComputedStyle(canvas).color, high = size / rows.length, columns = rows.at(-1).length;
    rows.forEach((row, i) => row.forEach((weight, j) => {
      brush.fillStyle = color;
      brush.globalAlpha = Math.min(1, weight);
      brush.fillRect((j * size) / columns, i * high, size / columns, high);
    }));
  }

  drawMap() {
    const name = this.chosen, rows = this.weights(name);
    this.caption.textContent = `${name}: ${this.off.has(name) ? "off; its weights, unused" : "attention"}`;
    this.unit.textContent = this.words ? "Show pieces" : "Show words";
    this.map.replaceChildren();
    if (!rows) return;
    const [queries, keys] = this.sides(name.match(/^[a-z]+/)[0]);
    const groups = [queries, keys].map((pieces) => (this.words ? wordGroups(pieces) : pieces.map((_, i) => [i])));
    const texts = groups.map((each, side) => each.map((group) => group.map((i) => [queries, keys][side][i]).join("")));
    const [down, across] = texts.map((each) => each.map((text) => (this.words ? text.replaceAll(SPACE, "") || "\u2423" : text)));
    this.map.append(mapTable(betweenWords(rows, ...groups), down, across));
  }
}

// A table of weights, the stronger the colour the larger.
function mapTable(weights, down, across) {
  const cell = (weight, i, j) => {
    const td = element("td", { title: `${down[i]} \u2192 ${across[j]}: ${weight.toFixed(3)}` },
      weight >= 0.095 ? weight.toFixed(1).replace("0.", ".") : "");
    td.style.setProperty("--weight", Math.min(1, weight).toFixed(3));
    if (weight > 0.6) td.className = "strong";
    return td;
  };
  const heads = across.map((text) => element("th", { scope: "col" }, element("span", { textContent: text })));
  return element("table", { className: "map" },
    element("thead", {}, element("tr", {}, element("td"), ...heads)),
    element("tbody", {}, ...weights.map((row, i) =>
      element("tr", {}, element("th", { scope: "row", textContent: down[i] }), ...row.map((weight, j) => cell(weight, i, j))))));
}

// Buttons of the phenomena: each press shows the next sentence of one.
function exampleButtons(examples, show) {
  const groups = new Map();
  for (const example of examples) {
    const name = example.phenomenon || "Test sentence";
    groups.set(name, [...(groups.get(name) ?? []), example]);
  }
  return [...groups].map(([name, group]) => {
    let next = 0;
    const button = element("button", { type: "button", textContent: name });
    button.onclick = () => show(group[next++ % group.length]);
    return button;
  });
}

function describe(example) {
  if (!example) return [];
  const lines = [["Reference", example.target], ["Wrong", example.contrast], ["The wrong one translates", example.twin]];
  return lines.filter(([, text]) => text).map(([name, text]) => element("p", {}, element("b", { textContent: `${name}: ` }), text));
}

function main() {
  const data = JSON.parse(document.getElementById("data").textContent), { languages, examples } = data;
  const [source, about, note] = ["source", "about", "example"].map((id) => document.getElementById(id));
  const panels = data.runs.map((run) => new Panel(new Run(run, data.tokenizers), languages));
  if (LANGUAGE.test(languages[0])) source.lang = languages[0];
  about.textContent = `From ${languages[0]} to ${languages[1]}. The model runs in this page; nothing is sent anywhere.`;
  document.getElementById("runs").append(...panels.map((panel) => panel.node));
  const translate = (example) => {
    note.replaceChildren(...describe(example));
    for (const panel of panels) panel.translate(source.value, example);
  };
  const show = (example) => {
    source.value = example.source;
    translate(example);
  };
  let later = 0;
  source.oninput = () => {
    clearTimeout(later);
    later = setTimeout(() => translate(examples.find((example) => example.source === source.value)), 150);
  };
  document.getElementById("examples").append(...exampleButtons(examples, show));
  document.onkeydown = ({ key }) => {
    if (key === "Escape") for (const panel of panels) if (panel.off.size) panel.switchOn();
  };
  if (examples.length) show(examples[0]);
}

if (typeof document !== "undefined") main();
