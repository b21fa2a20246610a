"use strict";
// Forward pass of the Transformer (Vaswani et al. 2017), one position at a time, in float32 with sums in float64.
// A head whose name is in the set `off` gives zeros (Michel et al. 2019, equation 2).

// Weights: int8 as scale of the row times whole number, or float32.
function readTensors({ places, bytes: base64 }) {
  const text = atob(base64), bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return places.map(([offset, rows, columns, form]) => {
    const size = rows * columns;
    if (form === "float32") return { rows, columns, data: new Float32Array(bytes.buffer.slice(offset, offset + 4 * size)) };
    const scales = new Float32Array(bytes.buffer.slice(offset, offset + 4 * rows));
    const whole = new Int8Array(bytes.buffer, offset + 4 * rows, size), data = new Float32Array(size);
    for (let row = 0, i = 0; row < rows; row++) for (let column = 0; column < columns; column++, i++) data[i] = whole[i] * scales[row];
    return { rows, columns, data };
  });
}

// W x + b; four rows at once, for which x is read once.
function product({ rows, columns, data }, bias, x) {
  const y = new Float32Array(rows), whole = rows - (rows % 4);
  for (let row = 0; row < whole; row += 4) {
    const p = row * columns, q = p + columns, r = q + columns, s = r + columns;
    let a = 0, b = 0, c = 0, d = 0;
    for (let i = 0; i < columns; i++) {
      const v = x[i];
      a += data[p + i] * v;
      b += data[q + i] * v;
      c += data[r + i] * v;
      d += data[s + i] * v;
    }
    y[row] = a;
    y[row + 1] = b;
    y[row + 2] = c;
    y[row + 3] = d;
  }
  for (let row = whole; row < rows; row++) {
    let sum = 0;
    for (let i = 0; i < columns; i++) sum += data[row * columns + i] * x[i];
    y[row] = sum;
  }
  if (bias) for (let row = 0; row < rows; row++) y[row] += bias.data[row];
  return y;
}

function add(x, y) {
  const sum = new Float32Array(x.length);
  for (let i = 0; i < x.length; i++) sum[i] = x[i] + y[i];
  return sum;
}

// Error function: Abramowitz and Stegun 7.1.26, error below 1.5e-7.
function erf(x) {
  const t = 1 / (1 + 0.3275911 * Math.abs(x));
  const tail = ((((1.061405429 * t - 1.453152027) * t + 1.421413741) * t - 0.284496736) * t + 0.254829592) * t * Math.exp(-x * x);
  return x < 0 ? tail - 1 : 1 - tail;
}

const ACTIVATIONS = {
  relu: (x) => (x > 0 ? x : 0),
  gelu: (x) => (x * (1 + erf(x * Math.SQRT1_2))) / 2,
  swiglu: (x) => x / (1 + Math.exp(-x)),
};

class Model {
  constructor(settings, packed) {
    Object.assign(this, settings);
    this.tensors = readTensors(packed);
  }

  get attentions() {
    const own = (layer) => layer.self;
    return [...this.encoder.map(own), ...this.decoder.map(own), ...this.decoder.map((layer) => layer.cross)];
  }

  linear([matrix, bias], x) {
    return product(this.tensors[matrix], bias === null ? null : this.tensors[bias], x);
  }

  // Layer normalisation: Ba et al. 2016.
  normed(norm, x) {
    if (!norm) return x;
    const [gain, bias] = norm.map((number) => this.tensors[number].data), size = x.length, y = new Float32Array(size);
    let mean = 0, square = 0;
    for (let i = 0; i < size; i++) mean += x[i] / size;
    for (let i = 0; i < size; i++) square += (x[i] - mean) ** 2 / size;
    const factor = 1 / Math.sqrt(square + 1e-5);
    for (let i = 0; i < size; i++) y[i] = (x[i] - mean) * factor * gain[i] + bias[i];
    return y;
  }

  // x plus a sublayer, with the norm before it or after the sum.
  residual(norm, x, sublayer) {
    return this.norm === "pre" ? add(x, sublayer(this.normed(norm, x))) : this.normed(norm, add(x, sublayer(x)));
  }

  embed(side, token, position) {
    const { embedding, positions, table } = this[side], width = this.width, rows = this.tensors[embedding].data;
    const x = new Float32Array(width);
    for (let i = 0; i < width; i++) x[i] = Math.fround(rows[token * width + i] * this.scale);
    if (positions === "learned") for (let i = 0; i < width; i++) x[i] += this.tensors[table].data[position * width + i];
    if (positions === "sinusoidal") for (let i = 0; i < width; i++) {
      const angle = position * Math.exp((i - (i % 2)) * (-Math.log(10000) / width));
      x[i] += Math.fround(i % 2 ? Math.cos(angle) : Math.sin(angle));
    }
    return x;
  }

  feedForward(part, x) {
    const hidden = this.linear(part.kind === "swiglu" ? part.gate : part.first, x), act = ACTIVATIONS[part.kind];
    const up = part.kind === "swiglu" ? this.linear(part.first, x) : null;
    for (let i = 0; i < hidden.length; i++) hidden[i] = act(hidden[i]) * (up ? up[i] : 1);
    return this.linear(part.last, hidden);
  }

  // Queries or keys: normalised (Henry et al. 2020) and rotated (Su et al. 2021), head by head, in place.
  placed(part, x, position) {
    const size = part.size;
    for (let start = 0; start < x.length; start += size) {
      if (part.headScales !== null) {
        let square = 0;
        for (let i = 0; i < size; i++) square += x[start + i] ** 2 / size;
        for (let i = 0; i < size; i++) x[start + i] /= Math.sqrt(square + 1e-6);
      }
      if (part.rotary) for (let i = 0; i < size; i += 2) {
        const angle = position * Math.exp(i * (-Math.log(10000) / size)), cos = Math.cos(angle), sin = Math.sin(angle);
        const a = x[start + i], b = x[start + i + 1];
        x[start + i] = a * cos - b * sin;
        x[start + i + 1] = b * cos + a * sin;
      }
    }
    return x;
  }

  query(part, x, position) {
    const query = this.placed(part, this.linear(part.query, x), position);
    const scales = part.headScales === null ? null : this.tensors[part.headScales].data;
    if (scales) for (let i = 0; i < query.length; i++) query[i] *= scales[Math.floor(i / part.size)];
    return query;
  }

  remember(part, memory, x, position) {
    memory.keys.push(this.placed(part, this.linear(part.key, x), position));
    memory.values.push(this.linear(part.value, x));
  }

  // Attention of one query; maps: gets the weights of each head, one row more.
  attention(part, x, { keys, values }, position, off, maps) {
    const { heads, size, shared, local, window, scale } = part, query = this.query(part, x, position);
    const joined = new Float32Array(heads * size);
    for (let head = 0; head < heads; head++) {
      const from = head * size, shift = Math.floor(head / shared) * size, weights = new Float32Array(keys.length);
      let greatest = -Infinity, sum = 0;
      for (let key = 0; key < keys.length; key++) {
        const vector = keys[key];
        let score = 0;
        for (let i = 0; i < size; i++) score += query[from + i] * vector[shift + i];
        const near = head >= local || Math.abs(position - key) <= window;
        weights[key] = near ? score * scale : -Infinity;
        greatest = Math.max(greatest, weights[key]);
      }
      for (let key = 0; key < keys.length; key++) sum += weights[key] = Math.exp(weights[key] - greatest);
      for (let key = 0; key < keys.length; key++) weights[key] /= sum;
      if (maps) ((maps[part.name] ??= [])[head] ??= []).push(weights);
      if (off.has(`${part.name}.${head + 1}`)) continue;
      for (let key = 0; key < keys.length; key++) {
        const vector = values[key], weight = weights[key];
        for (let i = 0; i < size; i++) joined[from + i] += weight * vector[shift + i];
      }
    }
    return this.linear(part.output, joined);
  }

  // The encoder's output for each source token.
  encode(tokens, off, maps) {
    let xs = tokens.map((token, position) => this.embed("source", token, position));
    for (const layer of this.encoder) {
      const memory = { keys: [], values: [] };
      const before = (x) => (this.norm === "pre" ? this.normed(layer.norms[0], x) : x);
      xs.forEach((x, position) => this.remember(layer.self, memory, before(x), position));
      const attend = (position) => (y) => this.attention(layer.self, y, memory, position, off, maps);
      xs = xs.map((x, position) => this.residual(layer.norms[0], x, attend(position)));
      xs = xs.map((x) => this.residual(layer.norms[1], x, (y) => this.feedForward(layer.forward, y)));
    }
    return xs.map((x) => this.normed(this.encoderNorm, x));
  }

  // The state before the first target token.
  start(tokens, off, maps) {
    const memory = this.encode(tokens, off, maps);
    const layers = this.decoder.map((layer) => {
      const cross = { keys: [], values: [] };
      memory.forEach((x, position) => this.remember(layer.cross, cross, x, position));
      return { past: { keys: [], values: [] }, cross };
    });
    return { layers, sources: tokens.length, position: 0, off, maps };
  }

  // A state that goes on by itself, from the keys and values so far; maps: gets the attention weights.
  fork(state, maps = null) {
    const layers = state.layers.map(({ past, cross }) => ({ past: { keys: [...past.keys], values: [...past.values] }, cross }));
    return { ...state, layers, maps };
  }

  // Log-probabilities of the token after `token`; the state moves on.
  step(token, state) {
    const { layers, position, off, maps } = state;
    let x = this.embed("target", token, position);
    this.decoder.forEach((layer, number) => {
      const { past, cross } = layers[number], [own, other, last] = layer.norms;
      x = this.residual(own, x, (y) => {
        this.remember(layer.self, past, y, position);
        return this.attention(layer.self, y, past, position, off, maps);
      });
      x = this.residual(other, x, (y) => this.attention(layer.cross, y, cross, position, off, maps));
      x = this.residual(last, x, (y) => this.feedForward(layer.forward, y));
    });
    state.position += 1;
    return this.logProbs(this.linear([this.output, null], this.normed(this.decoderNorm, x)));
  }

  logProbs(logits) {
    let greatest = -Infinity, sum = 0;
    for (let i = 0; i < logits.length; i++) {
      if (this.cap !== null) logits[i] = Math.tanh(logits[i] / this.cap) * this.cap;
      if (logits[i] > greatest) greatest = logits[i];
    }
    for (let i = 0; i < logits.length; i++) sum += Math.exp(logits[i] - greatest);
    const total = greatest + Math.log(sum);
    for (let i = 0; i < logits.length; i++) logits[i] -= total;
    return logits;
  }
}
