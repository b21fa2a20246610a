// What a page of headcount.explore computes, under node: node explore.js PAGE < tasks.json; answers in JSON.
"use strict";
const fs = require("fs"), vm = require("vm");

const html = fs.readFileSync(process.argv[2], "utf8");
vm.runInThisContext(html.match(/<script>(.*?)<\/script>/s)[1]);
const [Run, Tokenizer, betweenWords, wordGroups, difference] =
  ["Run", "Tokenizer", "betweenWords", "wordGroups", "difference"].map((name) => vm.runInThisContext(name));
const data = JSON.parse(html.match(/<script type="application\/json" id="data">(.*?)<\/script>/s)[1]);
const runs = data.runs.map((run) => new Run(run, data.tokenizers));

const begin = (text, run, off = []) => runs[run].begin(runs[run].source.encode(text), new Set(off));

const tasks = {
  encode: ({ texts, run = 0, side = "source" }) => texts.map((text) => runs[run][side].encode(text)),
  decode: ({ tokens, run = 0 }) => tokens.map((each) => runs[run].target.decode(each)),
  greedy: ({ texts, run = 0, off = [] }) =>
    texts.map((text) => {
      const { tokens, score } = runs[run].greedy(begin(text, run, off));
      return { text: runs[run].target.decode(tokens), score };
    }),
  maps: ({ text, run = 0 }) => {
    const { maps } = runs[run].greedy(begin(text, run));
    return Object.fromEntries(Object.entries(maps).map(([name, heads]) => [name, heads.map((rows) => rows.map((row) => [...row]))]));
  },
  logProb: ({ pairs, run = 0, off = [] }) =>
    pairs.map(([source, target]) => runs[run].logProb(begin(source, run, off), runs[run].target.encode(target))),
  alternatives: ({ texts, run = 0 }) => texts.map((text) => runs[run].alternatives(begin(text, run))),
  words: ({ pieces }) => wordGroups(pieces),
  between: ({ rows, queries, keys }) => betweenWords(rows, queries, keys),
  difference: ({ before, after }) => difference(before, after),
  // Milliseconds of processor time of greedy search, for each sentence.
  time: ({ texts, run = 0 }) => texts.map((text) => {
    const start = process.cpuUsage();
    runs[run].greedy(begin(text, run));
    const { user, system } = process.cpuUsage(start);
    return (user + system) / 1e3;
  }),
};

const asked = JSON.parse(fs.readFileSync(0, "utf8"));
process.stdout.write(JSON.stringify(asked.map(({ task, ...given }) => tasks[task](given))));
