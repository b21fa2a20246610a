"use strict";
// Words: pieces joined to words, attention between words, and the difference of two texts.

const MARK = /^[.,;:!?\u2026\u3001\u3002\uff01\uff0c\uff1a\uff1b\uff1f]+$/; // punctuation that ends a clause

// The pieces of each word: [[0, 1], [2], ...]; a special token is a word, and a punctuation mark.
function wordGroups(pieces) {
  const groups = [];
  pieces.forEach((piece, i) => {
    const alone = /^<\/?s>$/.test(piece) || /^<\/?s>$/.test(pieces[i - 1] ?? "<s>") || MARK.test(piece);
    if (alone || piece.startsWith(SPACE)) groups.push([i]);
    else groups.at(-1).push(i);
  });
  return groups;
}

// Attention from word to word: the mean over the pieces of a query, of the sum over the pieces of a key.
function betweenWords(rows, queries, keys) {
  const sum = (row, group) => group.reduce((total, key) => total + (row[key] ?? 0), 0);
  return queries.map((group) => keys.map((key) => group.reduce((total, i) => total + sum(rows[i], key), 0) / group.length));
}

// Words of two texts in order, [word, tag]: "" for those of their longest common subsequence, "del" for those of `before`
// alone, "ins" for those of `after` alone.
function difference(before, after) {
  const a = before.split(" "), b = after.split(" ");
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
  const words = [];
  for (let i = 0, j = 0; i < a.length || j < b.length; ) {
    if (a[i] === b[j]) words.push([b[(i++, j++)], ""]);
    else if (j === b.length || (i < a.length && table[i + 1][j] >= table[i][j + 1])) words.push([a[i++], "del"]);
    else words.push([b[j++], "ins"]);
  }
  return words;
}
