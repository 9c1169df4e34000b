// One search over all runs of a folder.
import { useEffect, useState } from "preact/hooks";
import type { Listed } from "./api";
import { plural, whole } from "./format";
import { useKeys } from "./keys";
import { useAnswer } from "./live";
import { go, link } from "./router";
import { visible } from "./text";
import { Card, Empty, Loading, Outcome, Problem } from "./ui";

interface Found { at: string; query: string; total: number; waiting: number; runs: { key: string; name: string; total: number; rollouts: Listed[] }[] }

export function Search({ given }: { given: Record<string, string> }) {
  const at = given.at ?? "", query = given.q ?? "";
  const [typed, setTyped] = useState(query);
  const { data, problem, loading } = useAnswer<Found>("search", { at, q: query });
  useEffect(() => {
    if (typed === query) return undefined;
    const timer = setTimeout(() => go(link(["search"], { at, q: typed }), true), 300);
    return () => clearTimeout(timer);
  }, [typed]);
  useKeys({ Escape: () => go(at ? link(["experiment"], { at }) : "#/") });
  return (
    <main id="main">
      <header class="page-head"><h1>Search {at ? visible(at) : "all runs"}</h1></header>
      <div class="search-row"><input type="search" id="search" value={typed} aria-label="Search all runs" placeholder={'words, "phrases", reward:0, tool:NAME, outcome:failed'} onInput={(event) => setTyped(event.currentTarget.value)} /></div>
      {problem && <Problem text={problem} />}
      {!data && !problem && <Loading />}
      {data && !problem && <>
        <p aria-live="polite" data-shows={loading ? undefined : query} class="found">{loading ? "Searching…" : `${plural(data.total, "rollout")} in ${plural(data.runs.length, "run")}`}
          {data.waiting > 0 && <span class="quiet"> · {plural(data.waiting, "run")} still being indexed</span>}</p>
        {!data.total && !loading && <Empty title="No rollout matches" />}
        {data.runs.map((run) => <Card key={run.key} title={run.name} wide note={<a href={link(["run", run.key], { tab: "rollouts", q: query })}>all {whole(run.total)}</a>}>
          <table class="rollouts"><thead><tr><th scope="col">Reward</th><th scope="col">Asked</th><th scope="col">End</th></tr></thead>
            <tbody>{run.rollouts.map((row) => <tr key={row.id}><td><Outcome outcome={row.outcome} reward={row.reward} small /></td>
              <td class="asked"><a href={link(["run", run.key, "rollout", row.id], { q: query })}>{visible(row.about || row.rollout_id)}</a><div class="quiet small">{visible(row.task_id.slice(0, 60))} · repeat {row.repeat}</div></td>
              <td class="end" data-label="End">{row.stage ? `${row.stage}: ${row.kind}` : visible(row.stop_reason ?? "")}</td></tr>)}</tbody></table></Card>)}
      </>}
    </main>
  );
}
