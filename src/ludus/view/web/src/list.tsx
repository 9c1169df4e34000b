// The rollouts of a run: search, filters, sorting, tags.
import { useEffect, useRef, useState } from "preact/hooks";
import { address, send, served, type Page } from "./api";
import { percent, plural, seconds, short, whole } from "./format";
import { useKeys } from "./keys";
import { useAnswer } from "./live";
import { go, link } from "./router";
import { visible } from "./text";
import { Empty, Loading, Outcome, Problem } from "./ui";

const PAGE = 100;
const SORTS: [string, string][] = [
  ["order", "first ended first"], ["-order", "last ended first"], ["reward", "lowest reward"], ["-reward", "highest reward"],
  ["-tokens", "most tokens"], ["-turns", "most model calls"], ["-seconds", "slowest"], ["-errors", "most tool errors"],
];
const SUGGESTED = ["outcome:failed", "outcome:masked", "reward:0", "reward:>=1", "errors:>0", "turns:>5"];

export function RolloutList({ run, given, tags }: { run: string; given: Record<string, string>; tags: Record<string, number> }) {
  const query = given.q ?? "", sort = given.sort ?? "order", skip = Number(given.skip ?? 0) || 0;
  const [typed, setTyped] = useState(query);
  const [at, setAt] = useState(-1);
  const [said, setSaid] = useState("");
  const { data, problem, loading } = useAnswer<Page>("rollouts", { run, q: query, sort, skip, limit: PAGE }, run);
  const to = (q: string, order = sort, from = 0) =>
    link(["run", run], { tab: "rollouts", q, sort: order === "order" ? undefined : order, skip: from || undefined });
  const sent = useRef(query); // what this field asked for last: another query comes from a chip, a link or a step back
  useEffect(() => { if (query !== sent.current) { sent.current = query; setTyped(query); } }, [query]);
  useEffect(() => {
    if (typed === sent.current) return undefined;
    const timer = setTimeout(() => { sent.current = typed; go(to(typed), true); }, 250);
    return () => clearTimeout(timer);
  }, [typed]);
  useEffect(() => setAt(-1), [query, sort, skip]);
  const rows = data?.rollouts ?? [];
  const open = (index: number) => rows[index] && !loading
    ? link(["run", run, "rollout", rows[index].id], { q: query, sort: sort === "order" ? undefined : sort }) : undefined;
  useKeys({
    j: () => setAt((now) => Math.min(now + 1, rows.length - 1)),
    k: () => setAt((now) => Math.max(now - 1, 0)),
    Enter: () => { const found = open(at); if (found) go(found); },
  });
  useEffect(() => { document.querySelector("tr.current")?.scrollIntoView({ block: "nearest" }); }, [at]);
  const tagAll = async () => {
    const tag = prompt(`Tag ${plural(data?.total ?? 0, "rollout")} with:`);
    if (!tag) return;
    try {
      const found = await send<{ tagged: number }>("tag", { run, q: query, tag });
      setSaid(`${plural(found.tagged, "rollout")} tagged`);
    } catch (error) { setSaid((error as Error).message); }
  };
  const add = (part: string) => go(to(query.includes(part) ? query.replace(part, "").trim() : `${query} ${part}`.trim()));
  return (
    <div class="list">
      <div class="search-row">
        {served && <input type="search" id="search" aria-label="Search rollouts" value={typed} spellcheck={false} autocomplete="off"
          placeholder="Words, or filters: reward:0"
          onInput={(event) => setTyped(event.currentTarget.value)} />}
        {served && <select aria-label="Sort rollouts" value={sort} onChange={(event) => go(to(query, event.currentTarget.value))}>
          {SORTS.map(([name, shown]) => <option key={name} value={name}>{shown}</option>)}</select>}
      </div>
      {served && <div class="chips" role="group" aria-label="Filters">
        {[...SUGGESTED, ...Object.keys(tags).map((tag) => `tag:${tag}`)].map((part) => (
          <button key={part} type="button" aria-pressed={query.includes(part)} onClick={() => add(part)}>{part}</button>))}
      </div>}
      {problem && <Problem text={problem} />}
      {!data && !problem && <Loading />}
      {data && !problem && (
        <>
          <div class="list-head">
            <p aria-live="polite">{loading ? "Searching…" : plural(data.total, "rollout")}
              {data.index.bytes - data.index.texts > 2e6 && query &&
                <span class="quiet"> · the text search covers {percent(data.index.texts / data.index.bytes)} so far</span>}
              {said && <span class="quiet"> · {said}</span>}</p>
            {served && data.total > 0 && <div class="tools">
              <a class="button" href={address("matches.jsonl", { run, q: query })} download="matches.jsonl">Download as JSONL</a>
              <button type="button" onClick={tagAll}>Tag all</button></div>}
          </div>
          {!data.total && <Empty title={query ? "No rollout matches" : "There is no rollout yet"}>
            {query && <p class="quiet">Filters: reward, outcome, tool, stop, stage, kind, task, tokens, turns, errors, tag, note, policy, attempt. A minus excludes: <code>-tool:search</code></p>}
          </Empty>}
          {data.total > 0 && <table class="rollouts" data-shows={loading ? undefined : query}>
            <thead><tr><th scope="col">Reward</th><th scope="col">Asked</th><th scope="col">End</th>
              <th scope="col" class="number">Calls</th><th scope="col" class="number">Tokens</th><th scope="col" class="number">Time</th></tr></thead>
            <tbody>{rows.map((row, index) => (
              <tr key={row.id} class={index === at ? "current" : ""}>
                <td><Outcome outcome={row.outcome} reward={row.reward} small /></td>
                <td class="asked"><a href={open(index)}>{visible(row.about || row.rollout_id)}</a>
                  <div class="quiet small">{visible(row.task_id.slice(0, 60))} · repeat {row.repeat}{row.attempt > 1 && ` · attempt ${row.attempt}`}
                    {row.tags.map((tag) => <span class="tag" key={tag}>{visible(tag)}</span>)}{row.note && <span title={row.note}> ✎ note</span>}</div></td>
                <td class="end" data-label="End">{row.outcome === "ended_early"
                  ? <><span>ended early</span><div class="quiet small clip">{visible((row.cause ?? "").slice(0, 160))}</div></>
                  : row.outcome === "failed"
                  ? <><span class="failed-text">{row.stage}: {row.kind}</span><div class="quiet small clip">{visible((row.cause ?? "").slice(0, 160))}</div></>
                  : <>{visible(row.stop_reason ?? "")}{row.mask && <div class="masked-text small clip">{visible(row.mask)}</div>}</>}</td>
                <td class="number" data-label="Calls">{row.turns}{row.tool_errors > 0 && <div class="failed-text small">{plural(row.tool_errors, "error")}</div>}</td>
                <td class="number" data-label="Tokens">{short(row.output_tokens)}</td>
                <td class="number" data-label="Time">{seconds(row.seconds)}</td>
              </tr>))}</tbody>
          </table>}
          {data.total > PAGE && <nav class="pages" aria-label="Pages">
            {skip > 0 && <a class="button" href={to(query, sort, Math.max(0, skip - PAGE))}>Previous</a>}
            <span class="quiet">{whole(skip + 1)} to {whole(Math.min(skip + PAGE, data.total))} of {whole(data.total)}</span>
            {skip + PAGE < data.total && <a class="button" href={to(query, sort, skip + PAGE)}>Next</a>}</nav>}
        </>
      )}
    </div>
  );
}
