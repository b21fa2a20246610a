"use strict";
// Sentencepiece segmentation: BPE and unigram, with byte fallback; text normalised as headcount does.

const PAD = 0, UNK = 1, BOS = 2, EOS = 3;
const SPACE = "\u2581"; // sentencepiece's sign for a space
// White space as Python's str.split knows it; JavaScript's \s differs.
const WHITE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+/u;

function collapse(text) {
  return text.split(WHITE).filter(Boolean).join(" ");
}

function normalise(text) {
  const whole = text.replace(/\p{Surrogate}/gu, "\ufffd");
  const normal = collapse(whole.normalize("NFC").replaceAll(SPACE, " "));
  return /[^ \p{Cf}\p{Default_Ignorable_Code_Point}]/u.test(normal) ? normal : ""; // of characters that can be seen
}

class Tokenizer {
  constructor({ type, pieces, scores, kinds }) {
    this.type = type;
    this.pieces = pieces;
    this.kinds = kinds;
    this.scores = Float32Array.from(scores);
    this.numbers = new Map(); // of the pieces that text is segmented into
    this.bytes = []; // number of the piece of each byte
    this.longest = 1;
    let least = Infinity;
    pieces.forEach((piece, number) => {
      if (kinds[number] === "6") this.bytes[parseInt(piece.slice(3, 5), 16)] = number;
      if (kinds[number] !== "1") return;
      this.numbers.set(piece, number);
      this.longest = Math.max(this.longest, [...piece].length);
      least = Math.min(least, this.scores[number]);
    });
    this.unknown = Math.fround(least - 10); // sentencepiece's penalty of an unknown character
  }

  // Numbers of the pieces of a text, without begin and end of sentence.
  encode(text) {
    const normal = normalise(text);
    if (!normal) return [];
    const characters = [...(SPACE + normal.replaceAll(" ", SPACE))];
    const parts = this.type === "bpe" ? this.merge(characters) : this.best(characters);
    return parts.flatMap((part) => this.numbers.get(part) ?? this.spell(part));
  }

  spell(text) {
    return [...new TextEncoder().encode(text)].map((byte) => this.bytes[byte]);
  }

  // Byte pair encoding: join the neighbours whose piece has the greatest score, the leftmost of equals, until none is left.
  merge(parts) {
    const score = (left) => {
      const number = left >= 0 && left + 1 < parts.length ? this.numbers.get(parts[left] + parts[left + 1]) : undefined;
      return number === undefined ? -Infinity : this.scores[number];
    };
    const scores = parts.map((_, left) => score(left));
    for (;;) {
      let best = -1;
      for (let left = 0; left < scores.length; left++) if (scores[left] > (best < 0 ? -Infinity : scores[best])) best = left;
      if (best < 0) return parts;
      parts.splice(best, 2, parts[best] + parts[best + 1]);
      scores.splice(best, 1);
      scores[best] = score(best);
      if (best > 0) scores[best - 1] = score(best - 1);
    }
  }

  // Unigram: the segmentation with the greatest sum of scores (Viterbi), in float32 as sentencepiece adds them.
  best(characters) {
    const size = characters.length;
    const scores = new Float32Array(size + 1), starts = new Int32Array(size + 1).fill(-1);
    const take = (start, end, score) => {
      if (starts[end] < 0 || score > scores[end]) {
        starts[end] = start;
        scores[end] = score;
      }
    };
    for (let start = 0; start < size; start++) {
      let piece = "", single = false;
      for (let end = start + 1; end <= Math.min(size, start + this.longest); end++) {
        piece += characters[end - 1];
        const number = this.numbers.get(piece);
        if (number === undefined) continue;
        single ||= end === start + 1;
        take(start, end, Math.fround(this.scores[number] + scores[start]));
      }
      if (!single) take(start, start + 1, Math.fround(this.unknown + scores[start]));
    }
    const parts = [];
    for (let end = size; end > 0; end = starts[end]) parts.unshift(characters.slice(starts[end], end).join(""));
    return parts;
  }

  // The text of pieces up to the first end of sentence, one line.
  decode(numbers) {
    const end = numbers.indexOf(EOS);
    let text = "", bytes = [];
    const flush = () => {
      text += utf8(bytes);
      bytes = [];
    };
    for (const number of end < 0 ? numbers : numbers.slice(0, end)) {
      if (this.kinds[number] === "6") bytes.push(parseInt(this.pieces[number].slice(3, 5), 16));
      else if (this.kinds[number] === "1") {
        flush();
        text += this.pieces[number];
      }
    }
    flush();
    return collapse(text.replaceAll(SPACE, " "));
  }

  piece(number) {
    return this.pieces[number];
  }
}

// Bytes as text; a byte that is no part of a character is U+FFFD.
function utf8(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let text = "";
  for (let start = 0; start < bytes.length; ) {
    const first = bytes[start], size = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    try {
      text += decoder.decode(Uint8Array.from(bytes.slice(start, start + size)));
      start += size;
    } catch {
      text += "\ufffd";
      start += 1;
    }
  }
  return text;
}
