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
