"use strict";
// Greedy search, and the log-probability of a given translation.

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
}

function argmax(values) {
  let best = 0;
  for (let i = 1; i < values.length; i++) if (values[i] > values[best]) best = i;
  return best;
}
