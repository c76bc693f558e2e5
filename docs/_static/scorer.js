/* Pages that explain come before those that list, and names that only contain the word come last. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: -1,
  objPrio: { 0: 5, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: (result) => {
    const [name, , , , score, , kind] = result;
    const lists = /^(reference\/|internals\/|onnx-coverage|torch-coverage|coming-from-hidet)/.test(name);
    return lists && kind === "text" ? score / 4 : score;
  },
};
