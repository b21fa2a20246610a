"use strict";
// Greedy and beam search, and the log-probability of a given translation.

// A run of the page: its model, its tokenizers, and the limits of its search.
class Run {
  constructor(data, tokenizers) {
    Object.assign(this, data);
    this.model = new Model(data.model, data.tensors);
    this.tensors = null;
    [this.source, this.target] = ["source", "target"].map((side) => new Tokenizer(tokenizers[data.tokenizers[side]]));
  }

  // Most tokens of a translation, without its end of sentence.
  limit(pieces) {
    const most = Math.trunc(pieces * this.search.ratio) + this.search.extra;
    return this.model.longest === null ? most : Math.min(most, this.model.longest - 1);
  }

  // Why a source cannot be translated; an empty text if it can.
  tooLong(source) {
    const { longest } = this.search, places = this.model.longest;
    if (longest !== null && source.length > longest) return `${source.length} pieces; the run allows ${longest}`;
    return places !== null && source.length >= places ? `${source.length} pieces; the model has positions for ${places - 1}` : "";
  }

  // The state of a source before its translation; off: names of the heads that give zeros.
  begin(source, off = new Set()) {
    return this.model.start([...source, EOS], off, {});
  }

  // Greedy search from a state: tokens, their log-probability with the end of sentence, and the attention weights.
  greedy(start) {
    const state = this.model.fork(start, { ...start.maps }), limit = this.limit(start.sources - 1), tokens = [];
    let score = 0, token = BOS;
    for (;;) {
      const logProbs = this.model.step(token, state);
      token = tokens.length >= limit ? EOS : argmax(logProbs);
      score += logProbs[token];
      if (token === EOS) return { start, tokens, score, maps: state.maps };
      tokens.push(token);
    }
  }

  // log p of a translation, in nats, with its end of sentence.
  logProb(start, tokens) {
    const state = this.model.fork(start), before = [BOS, ...tokens];
    return [...tokens, EOS].reduce((sum, token, i) => sum + this.model.step(before[i], state)[token], 0);
  }

  // Beam search as in headcount: the hypotheses that finish, best first, each text once.
  alternatives(start, { beam, alpha } = this.search) {
    const limit = this.limit(start.sources - 1), penalty = (length) => ((5 + length) / 6) ** alpha;
    let live = [{ tokens: [BOS], score: 0, state: this.model.fork(start) }], finished = [];
    for (let length = 1; live.length; length++) {
      const candidates = live.flatMap((hypothesis) => this.extensions(hypothesis, 2 * beam, length > limit));
      const best = candidates.sort((a, b) => b.score - a.score).slice(0, 2 * beam);
      const ended = best.slice(0, beam).filter(({ token }) => token === EOS);
      finished.push(...ended.map(({ parent, score }) => ({ tokens: parent.tokens.slice(1), score: score / penalty(length) })));
      finished = finished.sort((a, b) => b.score - a.score).slice(0, beam);
      const going = best.filter(({ token }) => token !== EOS).slice(0, beam);
      const longest = alpha > 0 ? Math.max(limit + 1, length + 1) : length + 1;
      const reach = going.length ? going[0].score / penalty(longest) : -Infinity;
      if (finished.length === beam && finished[beam - 1].score > -Infinity) break;
      if (!(reach > -Infinity)) break;
      live = going.map(({ parent, token, score }) => ({
        tokens: [...parent.tokens, token], score, state: this.model.fork(parent.state),
      }));
    }
    const texts = new Map();
    for (const { tokens, score } of finished) {
      const text = this.target.decode(tokens);
      if (!texts.has(text)) texts.set(text, score);
    }
    return [...texts].map(([text, score]) => ({ text, score }));
  }

  // The `count` best tokens after a hypothesis; only the end of sentence where it must end.
  extensions(parent, count, mustEnd) {
    const logProbs = this.model.step(parent.tokens.at(-1), parent.state);
    const tokens = mustEnd ? [EOS] : largest(logProbs, count);
    return tokens.map((token) => ({ parent, token, score: parent.score + logProbs[token] }));
  }
}

function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}

// Places of the `count` largest values, largest first.
function largest(values, count) {
  const places = [];
  for (let i = 0; i < values.length; i++) {
    if (places.length === count && values[i] <= values[places[count - 1]]) continue;
    let at = places.length;
    while (at > 0 && values[places[at - 1]] < values[i]) at--;
    places.splice(at, 0, i);
    if (places.length > count) places.pop();
  }
  return places;
}
