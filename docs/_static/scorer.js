// How the site's search orders its results. Pages come before dumps: the list of all errors, the reference of Python
// names and the cards of environments hold every word, and are found last.
var Scorer = {
  score: function (result) {
    const [page, , , , score] = result;
    return /^(troubleshooting\/errors|reference\/python\/|reference\/configuration|environments\/)/.test(page)
      ? score - 100
      : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
