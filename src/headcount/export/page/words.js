"use strict";
// Words: pieces joined to words, and attention between words.

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
