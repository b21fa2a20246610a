"use strict";
// Forward pass of the Transformer (Vaswani et al. 2017), one position at a time, in float32 with sums in float64.
// A head whose name is in the set `off` gives zeros (Michel et al. 2019, equation 2).

// Numbers of a typed array, from its bytes in base64.
function numbers(Type, base64) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new Type(bytes.buffer);
}

// A weight: float32, or int8 with a scale for each row.
function readTensor({ rows, columns, scales, data }) {
  if (!scales) return { rows, columns, data: numbers(Float32Array, data) };
  const scale = numbers(Float32Array, scales), whole = numbers(Int8Array, data);
  return { rows, columns, data: Float32Array.from(whole, (number, i) => number * scale[Math.floor(i / columns)]) };
}

function dot(x, p, y, q, size) {
  let sum = 0, i = 0;
  for (; i + 3 < size; i += 4) { // four at once: sums wait for each other
    const one = x[p + i] * y[q + i] + x[p + i + 1] * y[q + i + 1];
    sum += one + (x[p + i + 2] * y[q + i + 2] + x[p + i + 3] * y[q + i + 3]);
  }
  for (; i < size; i++) sum += x[p + i] * y[q + i];
  return sum;
}

function add(x, y) {
  return x.map((value, i) => value + y[i]);
}

function logSoftmax(logits) {
  const greatest = logits.reduce((one, other) => Math.max(one, other));
  const total = greatest + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - greatest), 0));
  return logits.map((logit) => logit - total);
}

// Error function: Abramowitz and Stegun 7.1.26, error below 1.5e-7.
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const polynomial = (((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592;
  return Math.sign(x) * (1 - polynomial * t * Math.exp(-x * x));
}

const ACTIVATIONS = {
  relu: (x) => Math.max(x, 0),
  gelu: (x) => (x * (1 + erf(x * Math.SQRT1_2))) / 2,
  swiglu: (x) => x / (1 + Math.exp(-x)),
};

class Model {
  constructor(settings, tensors) {
    Object.assign(this, settings);
    this.tensors = tensors.map(readTensor);
  }

  // W x + b
  linear([matrix, bias], x) {
    const { rows, columns, data } = this.tensors[matrix], y = new Float32Array(rows);
    for (let row = 0; row < rows; row++) y[row] = dot(data, row * columns, x, 0, columns);
    return bias === null ? y : add(y, this.tensors[bias].data);
  }

  // Layer normalisation: Ba et al. 2016.
  normed(norm, x) {
    if (norm[0] === null) return x;
    const [gain, bias] = norm.map((number) => this.tensors[number].data);
    const mean = x.reduce((sum, value) => sum + value, 0) / x.length;
    const variance = x.reduce((sum, value) => sum + (value - mean) ** 2, 0) / x.length;
    return x.map((value, i) => ((value - mean) / Math.sqrt(variance + 1e-5)) * gain[i] + bias[i]);
  }

  // x plus a sublayer, with the norm before it or after the sum.
  residual(norm, x, sublayer) {
    return this.norm === "pre" ? add(x, sublayer(this.normed(norm, x))) : this.normed(norm, add(x, sublayer(x)));
  }

  embed(side, token, position) {
    const row = (number, at) => this.tensors[number].data.subarray(at * this.width, (at + 1) * this.width);
    const x = row(this.embeddings[side], token).map((value) => value * this.scale);
    if (this.positions === "learned") return add(x, row(this.tables[side], position));
    if (this.positions === "rotary") return x;
    return x.map((value, i) => {
      const angle = position * 10000 ** (-(i - (i % 2)) / this.width);
      return value + Math.fround(i % 2 ? Math.cos(angle) : Math.sin(angle));
    });
  }

  feedForward({ gate, first, last }, x) {
    const up = this.linear(first, x), act = ACTIVATIONS[this.activation];
    return this.linear(last, gate ? this.linear(gate, x).map((value, i) => act(value) * up[i]) : up.map(act));
  }

  // Queries or keys, rotated head by head, in place: Su et al. 2021.
  placed({ size, rotary }, x, position) {
    for (let i = 0; rotary && i < x.length; i += 2) {
      const angle = position * 10000 ** (-(i % size) / size), cos = Math.cos(angle), sin = Math.sin(angle);
      [x[i], x[i + 1]] = [x[i] * cos - x[i + 1] * sin, x[i + 1] * cos + x[i] * sin];
    }
    return x;
  }

  remember(part, memory, x, position) {
    memory.keys.push(this.placed(part, this.linear(part.key, x), position));
    memory.values.push(this.linear(part.value, x));
  }

  // Attention of one query; the weights of each head are one more row of its map.
  attention(part, x, { keys, values }, position, { off, maps }) {
    const { heads, size, shared, scale } = part, joined = new Float32Array(heads * size);
    const query = this.placed(part, this.linear(part.query, x), position);
    for (let head = 0; head < heads; head++) {
      const from = head * size, shift = Math.floor(head / shared) * size;
      const scores = Float32Array.from(keys, (key) => dot(query, from, key, shift, size) * scale);
      const weights = logSoftmax(scores).map(Math.exp);
      ((maps[part.name] ??= [])[head] ??= []).push(weights);
      if (off.has(`${part.name}.${head + 1}`)) continue;
      values.forEach((value, key) => {
        for (let i = 0; i < size; i++) joined[from + i] += weights[key] * value[shift + i];
      });
    }
    return this.linear(part.output, joined);
  }

  // The encoder's output for each source token.
  encode(tokens, state) {
    let xs = tokens.map((token, position) => this.embed("source", token, position));
    for (const layer of this.encoder) {
      const memory = { keys: [], values: [] }, [first, second] = layer.norms;
      xs.forEach((x, position) => {
        this.remember(layer.self, memory, this.norm === "pre" ? this.normed(first, x) : x, position);
      });
      xs = xs.map((x, position) => {
        const attended = this.residual(first, x, (y) => this.attention(layer.self, y, memory, position, state));
        return this.residual(second, attended, (y) => this.feedForward(layer.forward, y));
      });
    }
    return xs.map((x) => this.normed(this.encoderNorm, x));
  }

  // The state before the first target token. off: names of the heads that give zeros.
  start(tokens, off) {
    const state = { off, maps: {}, position: 0 }, memory = this.encode(tokens, state);
    state.layers = this.decoder.map((layer) => {
      const cross = { keys: [], values: [] };
      memory.forEach((x, position) => this.remember(layer.cross, cross, x, position));
      return { past: { keys: [], values: [] }, cross };
    });
    return state;
  }

  // Log-probabilities of the token after `token`; the state moves on.
  step(token, state) {
    const position = state.position++;
    let x = this.embed("target", token, position);
    this.decoder.forEach((layer, number) => {
      const { past, cross } = state.layers[number], [own, other, last] = layer.norms;
      x = this.residual(own, x, (y) => {
        this.remember(layer.self, past, y, position);
        return this.attention(layer.self, y, past, position, state);
      });
      x = this.residual(other, x, (y) => this.attention(layer.cross, y, cross, position, state));
      x = this.residual(last, x, (y) => this.feedForward(layer.forward, y));
    });
    return logSoftmax(this.linear([this.output, null], this.normed(this.decoderNorm, x)));
  }
}

// A model with its tokenizers: greedy search, and the log-probability of a given translation.
class Run {
  constructor({ model, tensors, tokenizers, search }) {
    this.model = new Model(model, tensors);
    this.search = search;
    [this.source, this.target] = [tokenizers.at(0), tokenizers.at(-1)].map((each) => new Tokenizer(each));
  }

  // Greedy search: tokens, their log-probability with the end of sentence, and the attention weights.
  greedy(source, off) {
    const { ratio, extra, target } = this.search, state = this.model.start([...source, EOS], off);
    const limit = Math.min(Math.trunc(source.length * ratio) + extra, target ?? Infinity), tokens = [];
    for (let token = BOS, score = 0; ; tokens.push(token)) {
      const logProbs = this.model.step(token, state);
      token = tokens.length < limit ? logProbs.indexOf(Math.max(...logProbs)) : EOS;
      score += logProbs[token];
      if (token === EOS) return { tokens, score, maps: state.maps };
    }
  }

  // log p of a translation, in nats, with its end of sentence.
  logProb(source, off, tokens) {
    const state = this.model.start([...source, EOS], off), before = [BOS, ...tokens];
    return [...tokens, EOS].reduce((sum, token, i) => sum + this.model.step(before[i], state)[token], 0);
  }
}
