"use strict";
// The page: a sentence, its translation, and heads that can be switched off.

// An element; text becomes text, never markup.
function element(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

class Page {
  constructor(data) {
    this.run = new Run(data);
    this.off = new Set();
    this.cells = new Map(); // of each head, by its name
    const ids = ["text", "examples", "reference", "translation", "without", "on", "every", "heads", "caption", "map"];
    for (const id of ids) {
      this[id] = document.getElementById(id);
    }
    const { encoder, decoder } = this.run.model, parts = [...encoder, ...decoder].map((layer) => layer.self);
    this.heads.append(...[...parts, ...decoder.map((layer) => layer.cross)].map((part) => this.layer(part)));
    const label = ({ phenomenon, source, head }) =>
      `${phenomenon ? `${phenomenon}: ` : ""}${source}${head ? ` (try ${head})` : ""}`;
    this.known = data.examples;
    this.examples.append(...this.known.map((example) => element("option", {}, label(example))));
    this.examples.onchange = () => this.translate(this.known[this.examples.selectedIndex]);
    this.text.oninput = () => {
      clearTimeout(this.later);
      this.later = setTimeout(() => this.translate({ source: this.text.value }), 150);
    };
    this.on.onclick = () => {
      this.off.clear();
      this.show();
    };
    this.every.onclick = () => this.tryEvery();
    this.chosen = [...this.cells.keys()].at(-1);
    this.open();
    window.onhashchange = () => this.open();
  }

  // Show the sentence and switch off the heads that the address names, as in #text=Hello.&off=cross2.1,cross2.2
  open() {
    const given = new URLSearchParams(location.hash.slice(1)), text = given.get("text");
    this.off = new Set((given.get("off") ?? "").split(",").filter((name) => this.cells.has(name)));
    const named = this.known.find(({ source }) => source === text);
    this.translate(named ?? (text === null ? (this.known[0] ?? { source: "" }) : { source: text }));
  }

  // A row of heads: of each its map, which chooses it, and a tick, which switches it off.
  layer({ name, heads }) {
    const cells = Array.from({ length: heads }, (_, number) => {
      const head = `${name}.${number + 1}`, map = element("canvas"), tick = element("input", { type: "checkbox" });
      const choose = element("button", { title: `attention of ${head}` }, map);
      choose.onclick = () => {
        this.chosen = head;
        this.drawMap();
      };
      tick.onchange = () => {
        if (!this.off.delete(head)) this.off.add(head);
        this.show();
      };
      const cell = element("span", { className: "head" }, choose, element("label", { title: head }, tick, number + 1));
      this.cells.set(head, { cell, choose, map, tick });
      return cell;
    });
    return element("div", {}, element("span", { className: "layer" }, name), ...cells);
  }

  // Translate a sentence: of the examples, or what is typed.
  translate(example) {
    const { source, target, contrast } = example, longest = this.run.search.source ?? Infinity;
    if (this.text.value !== source) this.text.value = source;
    this.reference.textContent = [target && `Reference: ${target}`, contrast && `Wrong: ${contrast}`].join("\n");
    Object.assign(this, { example, source: this.run.source.encode(source) });
    this.examples.selectedIndex = this.known.indexOf(example);
    if (example.head) this.chosen = example.head;
    for (const [name, { cell }] of this.cells) {
      cell.classList.toggle("named", name === example.head);
      this.colour(name, 0, `attention of ${name}`);
    }
    this.whole = null;
    if (this.source.length && this.source.length <= longest) this.whole = this.run.greedy(this.source, new Set());
    this.show();
    if (this.source.length > longest) this.translation.append(`${this.source.length} subwords; at most ${longest}`);
  }

  show() {
    const off = [...this.off];
    this.now = this.whole && off.length ? this.run.greedy(this.source, this.off) : this.whole;
    this.translation.replaceChildren(...(this.whole ? this.lines("All heads", this.whole, new Set()) : []));
    this.without.replaceChildren(...(this.now !== this.whole ? this.changes(off) : []));
    for (const [name, { cell, map, tick }] of this.cells) {
      tick.checked = !this.off.has(name);
      cell.classList.toggle("off", !tick.checked);
      drawSmall(map, this.weights(name));
    }
    this.drawMap();
    const address = new URLSearchParams({ text: this.text.value, off: off.join(",") });
    history.replaceState(null, "", `#${address}`);
  }

  // Each head off alone, one after another; the colour of its cell is the change of what `preferred` gives.
  async tryEvery() {
    const { example } = this, whole = this.whole && this.preferred(new Set());
    for (const name of this.whole ? this.cells.keys() : []) {
      await new Promise((done) => setTimeout(done)); // the browser draws, and answers
      if (this.example !== example) return;
      const change = this.preferred(new Set([name])) - whole;
      this.colour(name, change, `${name} off: ${change.toFixed(2)}`);
    }
  }

  colour(name, change, title) {
    const { choose } = this.cells.get(name);
    choose.title = title;
    choose.style.setProperty("--change", Math.tanh(Math.abs(change) / 2));
    choose.classList.toggle("better", change > 0);
  }

  lines(label, { tokens, score }, off) {
    return [
      element("div", { className: "soft" }, label),
      element("div", { className: "translation" }, this.run.target.decode(tokens)),
      element("div", { className: "soft" }, `log p ${score.toFixed(2)}${this.difference(off)}`),
    ];
  }

  changes(off) {
    const kept = this.run.logProb(this.source, this.off, this.whole.tokens), change = kept - this.whole.score;
    const text = `The translation above has log p ${kept.toFixed(2)}, a change of ${change.toFixed(2)}.`;
    return [...this.lines(`Without ${off.join(", ")}`, this.now, this.off), element("div", { className: "soft" }, text)];
  }

  difference(off) {
    return this.example.contrast ? `; log-probability difference ${this.preferred(off).toFixed(2)}` : "";
  }

  // log p of the right translation of an example less that of the wrong one; without a wrong one, log p of the
  // translation by all heads.
  preferred(off) {
    const { target, contrast } = this.example, score = (tokens) => this.run.logProb(this.source, off, tokens);
    if (!contrast) return score(this.whole.tokens);
    return score(this.run.target.encode(target)) - score(this.run.target.encode(contrast));
  }

  // The attention weights of a head [query][key].
  weights(name) {
    const [layer, head] = name.split(".");
    return this.now?.maps[layer]?.[head - 1] ?? [];
  }

  // Subwords of the rows and of the columns of a head's weights.
  sides(name) {
    const { run, source, now } = this;
    const read = [...source, EOS].map((token) => run.source.pieces[token]);
    const written = [...now.tokens, EOS].map((token) => run.target.pieces[token]);
    if (name.startsWith("encoder")) return [read, read];
    return [written, name.startsWith("cross") ? read : ["<s>", ...written.slice(0, -1)]];
  }

  // The weights of the chosen head as a table, the stronger the colour the larger.
  drawMap() {
    const rows = this.weights(this.chosen), [queries, keys] = rows.length ? this.sides(this.chosen) : [[], []];
    this.caption.textContent = `Attention of ${this.chosen}${this.off.has(this.chosen) ? ", which is off" : ""}`;
    const cell = (weight = 0) => {
      const td = element("td", { title: weight.toFixed(3) }, weight < 0.095 ? "" : weight.toFixed(1).replace("0.", "."));
      td.style.setProperty("--weight", weight);
      return td;
    };
    const header = keys.map((key) => element("th", {}, element("span", {}, key)));
    this.map.replaceChildren(
      element("tr", {}, element("td"), ...header),
      ...rows.map((row, i) => element("tr", {}, element("th", {}, queries[i]), ...keys.map((_, j) => cell(row[j])))),
    );
  }
}

// A head's weights as a picture, a point for each.
function drawSmall(canvas, rows) {
  canvas.width = rows.at(-1)?.length ?? 1;
  canvas.height = rows.length || 1;
  const brush = canvas.getContext("2d");
  brush.fillStyle = getComputedStyle(canvas).color;
  rows.forEach((row, i) => row.forEach((weight, j) => {
    brush.globalAlpha = weight;
    brush.fillRect(j, i, 1, 1);
  }));
}

if (typeof document !== "undefined") new Page(JSON.parse(document.getElementById("data").textContent));
