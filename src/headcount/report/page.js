// Charts that answer: where scripts run, Vega draws each figure anew, from the specification that its SVG was made of.
for (const script of document.querySelectorAll("figure > script")) {
  const figure = script.parentElement, still = figure.querySelector("svg"), place = document.createElement("div");
  figure.append(place);
  place.hidden = true;
  unpacked(script.textContent).then((spec) => vegaEmbed(place, spec, { actions: false, renderer: "svg", tooltip: { theme: "page" } })).then(
    () => { place.hidden = false; still.remove(); figure.dataset.live = ""; },
    () => place.remove(), // the SVG stays
  );
}

async function unpacked(text) { // JSON from gzip in base64
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).json();
}

// Translations of two rows, side by side; a word that the reference does not have in this place is marked.
const words = (text) => text.split(/\s+/).filter(Boolean);

function common(one, other) { // whether each word of `one` is in the longest common subsequence
  const most = Array.from({ length: one.length + 1 }, () => new Uint16Array(other.length + 1));
  for (let i = one.length - 1; i >= 0; i--)
    for (let j = other.length - 1; j >= 0; j--)
      most[i][j] = one[i] === other[j] ? most[i + 1][j + 1] + 1 : Math.max(most[i + 1][j], most[i][j + 1]);
  const shared = new Array(one.length).fill(false);
  for (let i = 0, j = 0; i < one.length && j < other.length; )
    if (one[i] === other[j]) { shared[i++] = true; j++; } else if (most[i + 1][j] >= most[i][j + 1]) i++; else j++;
  return shared;
}

function line(name, text, reference) {
  const paragraph = document.createElement("p"), label = document.createElement("b");
  label.textContent = name;
  paragraph.append(label);
  const own = words(text), shared = reference === undefined ? null : common(own, words(reference));
  own.forEach((word, index) => {
    const part = document.createElement(shared && !shared[index] ? "mark" : "span");
    part.textContent = word;
    paragraph.append(part, " ");
  });
  return paragraph;
}

function select(form, name, options, value) {
  const label = document.createElement("label"), choice = document.createElement("select");
  options.forEach(([key, text]) => choice.add(new Option(text, key, false, String(key) === String(value))));
  choice.name = name;
  label.append(name + " ", choice);
  form.append(label);
  return choice;
}

for (const place of document.querySelectorAll(".sentences")) {
  const data = JSON.parse(place.querySelector("script").textContent);
  const form = document.createElement("form"), list = document.createElement("div");
  const rows = data.rows.map((name, index) => [index, name]), every = ["", "all"];
  const better = select(form, "better", rows, data.first[0]), worse = select(form, "worse", rows, data.first[1]);
  const length = select(form, "length", [every, ...data.lengths.map((each) => [each, each])], "");
  const about = select(form, "phenomenon", [every, ...data.phenomena.map((each) => [each, each])], "");
  about.parentElement.hidden = !data.phenomena.length;
  const show = () => {
    list.replaceChildren();
    for (const [number, gap] of data.pairs[`${better.value} ${worse.value}`] ?? []) {
      const each = data.sentences[number];
      if ((length.value && each.length !== length.value) || (about.value && each.phenomenon !== about.value)) continue;
      const box = document.createElement("div");
      box.className = "sentence";
      if (each.source) box.append(line("source", each.source));
      box.append(line("reference", each.reference));
      for (const row of [better.value, worse.value])
        for (const [text, runs] of each.written[row]) box.append(line(`${data.rows[row]}${runs > 1 ? `, ${runs} runs` : ""}`, text, each.reference));
      box.append(line("gap", [gap, each.phenomenon].filter(Boolean).join(", ")));
      list.append(box);
    }
    if (!list.children.length) list.append(line("", better.value === worse.value ? "Choose two different rows." : "No such sentence."));
  };
  form.addEventListener("change", show);
  form.addEventListener("submit", (event) => event.preventDefault());
  list.tabIndex = 0; // it scrolls
  place.replaceChildren(form, list);
  show();
}
