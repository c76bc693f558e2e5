/* Pages that explain come before those that list. */
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
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
