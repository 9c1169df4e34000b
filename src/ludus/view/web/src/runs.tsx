// The page Runs: all runs in one table.
import { useState } from "preact/hooks";
import { served, type RunLine } from "./api";
import { Spark } from "./charts";
import type { Folder } from "./experiment";
import { percent, plural, reward, seconds, short, speed, when, whole } from "./format";
import { useAnswer } from "./live";
import { go, link } from "./router";
import { CountBar, Empty, Loading, Problem } from "./ui";
import { useKeys } from "./keys";

/** The most runs of one comparison. */
const MOST = 12;

type Column = [id: string, name: string, value: (run: RunLine) => number | string];

const last = (run: RunLine): [string, number] | null => Object.entries(run["pass@k"]).pop() ?? null;
const COLUMNS: Column[] = [
  ["name", "Run", (run) => run.name],
  ["done", "Rollouts", (run) => run.counts.dispatched],
  ["reward", "Mean reward", (run) => run.reward.mean ?? -Infinity],
  ["pass", "pass@k", (run) => last(run)?.[1] ?? -Infinity],
  ["tokens", "Tokens", (run) => (run.tokens.input ?? -1) + (run.tokens.output ?? -1)],
  ["cost", "Cost", (run) => run.cost?.total ?? -1],
  ["speed", "Speed", (run) => run.state.per_second ?? -1],
];

export function Runs() {
  const { data, problem } = useAnswer<{ runs: RunLine[]; paths: string[]; folders: Folder[]; preparing: number }>("runs", {});
  const [sort, setSort] = useState("");
  const [filter, setFilter] = useState("");
  const [chosen, setChosen] = useState<string[]>([]);
  const [at, setAt] = useState(-1);
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const runs = (data?.runs ?? []).filter((run) => {
    const text = [run.name, run.model, ...run.environments, run.state.running ? "running" : ""].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const column = COLUMNS.find(([id]) => id === sort.replace("-", ""));
  if (column) {
    runs.sort((a, b) => {
      const [x, y] = [column[2](a), column[2](b)];
      return (x < y ? -1 : x > y ? 1 : 0) * (sort.startsWith("-") ? -1 : 1);
    });
  }
  const priced = runs.some((run) => run.cost !== null);
  const toggle = (key: string) => setChosen((old) => old.includes(key) ? old.filter((each) => each !== key) : [...old, key].slice(-MOST));
  useKeys({
    j: () => setAt((now) => Math.min(now + 1, runs.length - 1)),
    k: () => setAt((now) => Math.max(now - 1, 0)),
    Enter: () => { if (runs[at]) go(link(["run", runs[at].key])); },
    x: () => { if (runs[at]) toggle(runs[at].key); },
  });
  if (problem && !data) return <Problem text={problem} />;
  if (!data) return <Loading />;
  return (
    <main id="main">
      <header class="page-head">
        <h1>Runs <span class="count">{whole(data.runs.length)}</span></h1>
        <div class="tools">
          <input type="search" id="search" placeholder="Filter runs" aria-label="Filter runs" value={filter}
            onInput={(event) => setFilter(event.currentTarget.value)} />
          {served && <a class="button" href={link(["search"], {})}>Search all rollouts</a>}
          {chosen.length > 1
            ? <a class="button primary" href={link(["compare", ...chosen])}>Compare the {chosen.length === 2 ? "two" : chosen.length}</a>
            : <span class="quiet wide-only">Tick runs to compare them</span>}
        </div>
      </header>
      {data.runs.length > 1 && <nav class="folders" aria-label="Experiments"><span class="quiet small">Curves of</span>
        {(data.folders.length ? data.folders : [{ at: "", runs: data.runs.length }]).map((folder) => <a key={folder.at} class="button" href={link(["experiment"], { at: folder.at })}>{folder.at || "all runs"} <span class="count">{folder.runs}</span></a>)}</nav>}
      {data.preparing > 0 && <p class="quiet" aria-live="polite">{plural(data.preparing, "run")} being prepared</p>}
      {!data.runs.length && !data.preparing && (
        <Empty title="There is no run yet">
          <p>Collect one, and it appears here while it runs:</p>
          <pre>ludus collect mcqa --model local --output runs/first</pre>
          <p class="quiet">Looked in {data.paths.join(", ")}</p>
        </Empty>
      )}
      {data.runs.length > 0 && !runs.length && <Empty title="No run matches the filter" />}
      {runs.length > 0 && (
        <table class="runs">
          <thead><tr>
            <th scope="col"><span class="sr-only">Compare</span></th>
            {COLUMNS.filter(([id]) => id !== "cost" || priced).map(([id, name]) => (
              <th key={id} scope="col" aria-sort={sort === id ? "ascending" : sort === `-${id}` ? "descending" : undefined}
                class={id === "name" ? "" : "number"}>
                <button type="button" onClick={() => setSort(sort === `-${id}` ? id : `-${id}`)}>
                  {name}<span aria-hidden="true">{sort === id ? " ↑" : sort === `-${id}` ? " ↓" : ""}</span>
                </button>
              </th>
            ))}
            <th scope="col">Reward over time</th>
          </tr></thead>
          <tbody>
            {runs.map((run, index) => (
              <tr key={run.key} class={index === at ? "current" : ""}>
                <td class="pick"><input type="checkbox" aria-label={`Compare ${run.name}`} checked={chosen.includes(run.key)}
                  onChange={() => toggle(run.key)} /></td>
                <td class="name">
                  <a href={link(["run", run.key])}>{run.name}</a>
                  {run.state.running && <span class="pill live">running</span>}
                  <div class="quiet lines-2">{run.environments.join(", ") || "environment unknown"}{run.model && ` · ${run.model}`}</div>
                  <div class="quiet">{when(run.started)}</div>
                  {run.problem && <div class="problem">{run.problem}</div>}
                  {run.index.bytes - run.index.facts > 2e6 && (
                    <div class="quiet">indexed {percent(run.index.facts / run.index.bytes)}</div>)}
                </td>
                <td class="number" data-label="Rollouts">
                  <div>{whole(run.counts.dispatched)}{run.state.total ? <span class="quiet"> / {whole(run.state.total)}</span> : ""}</div>
                  <CountBar counts={run.counts} total={run.state.total} />
                  <div class="quiet small">
                    {run.counts.failed > 0 && <span class="failed-text">{whole(run.counts.failed)} failed </span>}
                    {run.counts.masked > 0 && <span class="masked-text">{whole(run.counts.masked)} masked </span>}
                    {run.counts.ended_early > 0 && <span>{whole(run.counts.ended_early)} ended early</span>}
                  </div>
                </td>
                <td class="number" data-label="Mean reward">
                  <div class="big">{reward(run.reward.mean)}</div>
                  {run.reward.ci95 && <div class="quiet small" title="95 % confidence interval; repeats of a task count as one cluster">
                    {reward(run.reward.ci95[0])} to {reward(run.reward.ci95[1])}</div>}
                </td>
                <td class="number" data-label="pass@k">
                  {Object.entries(run["pass@k"]).filter(([k], i, list) => i === 0 || i === list.length - 1 || k === "").map(([k, value]) => (
                    <div key={k}><span class="quiet small">@{k}</span> {percent(value)}</div>))}
                  {!last(run) && "–"}
                </td>
                <td class="number" data-label="Tokens">
                  {run.tokens.output === null && run.tokens.input === null ? "–" : <>
                    <div>{short(run.tokens.output)} <span class="quiet small">out</span></div>
                    <div class="quiet small">{short(run.tokens.input)} in</div></>}
                </td>
                {priced && <td class="number" data-label="Cost">{run.cost?.total === null || !run.cost ? "–" : `$${run.cost.total.toFixed(2)}`}</td>}
                <td class="number" data-label="Speed">
                  <div>{speed(run.state.per_second)}</div>
                  {run.state.control?.paused && <div class="quiet small">paused</div>}
                  {run.state.seconds_left !== null && <div class="quiet small">{seconds(run.state.seconds_left)} left</div>}
                </td>
                <td class="spark-cell" data-label="Reward over time">
                  <Spark values={run.spark} label={`Mean reward of ${plural(run.spark.length, "part")} of the run, in order`} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
    </main>
  );
}
