"use strict";
// Sentencepiece segmentation: BPE and unigram, with byte fallback; text normalised as headcount does.

const BOS = 2, EOS = 3;
const SPACE = "\u2581"; // sentencepiece's sign for a space
const [NORMAL, BYTE] = "16"; // sentencepiece's types of pieces
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
    Object.assign(this, { type, pieces, kinds, scores: Float32Array.from(scores) });
    const normal = pieces.map((_, number) => number).filter((number) => kinds[number] === NORMAL);
    this.numbers = new Map(normal.map((number) => [pieces[number], number]));
    this.longest = Math.max(...normal.map((number) => [...pieces[number]].length));
    this.unknown = Math.min(...normal.map((number) => this.scores[number])) - 10; // sentencepiece's penalty
    this.bytes = kinds.indexOf(BYTE); // number of the piece of byte 0
  }

  // Numbers of the pieces of a text, without begin and end of sentence.
  encode(text) {
    const normal = normalise(text);
    if (!normal) return [];
    const characters = [...(SPACE + normal.replaceAll(" ", SPACE))];
    const parts = this.type === "bpe" ? this.merge(characters) : this.best(characters);
    const spell = (part) => [...new TextEncoder().encode(part)].map((byte) => this.bytes + byte);
    return parts.flatMap((part) => this.numbers.get(part) ?? spell(part));
  }

  score(piece) {
    return this.scores[this.numbers.get(piece)] ?? -Infinity;
  }

  // Byte pair encoding: join the neighbours whose piece has the greatest score, the leftmost of equals.
  merge(parts) {
    for (;;) {
      const scores = parts.slice(1).map((part, left) => this.score(parts[left] + part));
      const greatest = Math.max(...scores), left = scores.indexOf(greatest);
      if (greatest === -Infinity) return parts;
      parts.splice(left, 2, parts[left] + parts[left + 1]);
    }
  }

  // Unigram: the segmentation with the greatest sum of scores (Viterbi), in float32 as sentencepiece adds them.
  best(characters) {
    const sums = [0], starts = [0];
    for (let end = 1; end <= characters.length; end++) {
      sums[end] = -Infinity;
      for (let start = Math.max(0, end - this.longest); start < end; start++) {
        let score = this.score(characters.slice(start, end).join(""));
        if (start === end - 1) score = Math.max(score, this.unknown);
        const sum = Math.fround(sums[start] + score);
        if (sum > sums[end]) [sums[end], starts[end]] = [sum, start];
      }
    }
    const parts = [];
    for (let end = characters.length; end > 0; end = starts[end]) parts.unshift(characters.slice(starts[end], end).join(""));
    return parts;
  }

  // The text of pieces, one line. Bytes that are no character become U+FFFD, of which Python may have more.
  decode(numbers) {
    const bytes = numbers.flatMap((number) => {
      const piece = this.pieces[number];
      if (this.kinds[number] === BYTE) return Number(piece.slice(1, 5));
      return this.kinds[number] === NORMAL ? [...new TextEncoder().encode(piece)] : [];
    });
    const text = new TextDecoder("utf-8", { ignoreBOM: true }).decode(Uint8Array.from(bytes));
    return collapse(text.replaceAll(SPACE, " "));
  }
}
