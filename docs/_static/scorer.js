// How the site's search orders its results. First come pages whose title or headings hold the words that were asked for,
// and pages of the first day before others. Pages come before dumps: the list of all errors, the reference of Python names
// and the cards of environments hold every word, and are found last.
const dumps = /^(troubleshooting\/errors|reference\/(python\/|configuration)|environments\/(?!index))/;
const side_pages = /^(cookbook|contribute|about|architecture|reference\/cli)/;
const heading_stems = new Map();

function stems(text) {
  const stemmer = new window.Stemmer();
  const words = text.toLowerCase().split(/[^\p{Letter}\p{Number}_]+/u);
  return new Set(words.filter((word) => word && !stopwords.has(word)).map((word) => stemmer.stemWord(word)));
}

function stems_of_headings(page) {
  if (heading_stems.size === 0)
    for (const [heading, places] of Object.entries(Search._index.alltitles))
      for (const [place] of places) {
        const name = Search._index.docnames[place];
        heading_stems.set(name, new Set([...(heading_stems.get(name) ?? []), ...stems(heading)]));
      }
  return heading_stems.get(page) ?? new Set();
}

function relevance(page, title) {
  const asked = stems(new URLSearchParams(window.location.search).get("q") ?? "");
  if (asked.size === 0) return 0;
  const titled = stems(title);
  const in_title = [...asked].filter((word) => titled.has(word)).length;
  const in_headings = [...asked].filter((word) => stems_of_headings(page).has(word)).length;
  return (30 * in_title) / asked.size + (20 * in_title) / Math.max(titled.size, 1) + (15 * in_headings) / asked.size;
}

var Scorer = {
  score: function (result) {
    const [page, title, , , score] = result;
    if (dumps.test(page)) return score - 100;
    const section = page.startsWith("get-started/") ? 3 : side_pages.test(page) ? -12 : 0;
    return score + relevance(page, title) + section;
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
