// An experiment: the learning curves of a folder of runs over each other, and what the runs differ in.
import { useState } from "preact/hooks";
import { served, type Counts } from "./api";
import { percent, plural, reward, seconds, short, when, whole } from "./format";
import { useKeys } from "./keys";
import { useAnswer } from "./live";
import { COLOURS, Plot, type PlotLine } from "./plot";
import { go, link } from "./router";
import { bySettings, pointsOf, type Curve } from "./seeds";
import { visible } from "./text";
import { Card, CountBar, Empty, Loading, Problem } from "./ui";

export interface SeriesPoint {
  step: number | null; seconds: number | null; done: number; rollouts: number; run: string; q: string;
  new_verifiers: string[] | null; value: [number, number | null, number | null] | null;
}
export interface Series { name: string; points: SeriesPoint[] }
export interface ExperimentLine {
  key: string; name: string; counts: Counts; reward: { mean: number | null; ci95: [number, number] | null }; "pass@k": Record<string, number>;
  started: string | null; step: number | null; running: boolean; settings: (string | null)[]; model: string; environments: string[]; verifiers: string[];
}
export interface Folder { at: string; runs: number }
interface Shown {
  at: string; folders: Folder[]; figures: string[]; figure: string; series: Series[]; settings: string[]; settings_left_out: number; runs: ExperimentLine[]; preparing: number;
}

const NAMES: Record<string, string> = {
  reward: "Mean reward", length: "Tokens written", turns: "Model calls", seconds: "Seconds of a rollout", errors: "Tool errors of a rollout",
  failed: "Share that failed", masked: "Share that is masked" };
const AXES: [id: string, name: string, value: (point: SeriesPoint) => number | null][] = [
  ["step", "checkpoint", (point) => point.step], ["time", "time since the start", (point) => point.seconds], ["rollouts", "rollouts ended", (point) => point.done]];
const SHARES = new Set(["failed", "masked"]);

/** A figure as people call it. */
export const figureName = (name: string) => NAMES[name] ?? (name.startsWith("component:") ? `Component ${name.slice(10)}` : name.startsWith("value:") ? `Value ${name.slice(6)}` : name);

export function Experiment({ given }: { given: Record<string, string> }) {
  const at = given.at ?? "", figure = given.figure ?? "";
  const { data, problem } = useAnswer<Shown>("experiment", { at, figure });
  const [hidden, setHidden] = useState<string[]>([]);
  const [chosen, setChosen] = useState<string[]>([]);
  useKeys({ Escape: () => go("#/") });
  if (problem && !data) return <Problem text={problem} />;
  if (!data) return <Loading />;
  const axes = AXES.filter(([, , value]) => data.series.some((series) => series.points.filter((point) => value(point) !== null).length > 1));
  const axis = axes.find(([id]) => id === given.axis) ?? axes[0] ?? AXES[2];
  const to = (more: Record<string, string>) => go(link(["experiment"], { at, figure, axis: given.axis, seeds: given.seeds, ...more }), true);
  const together = bySettings(data.series, data.runs, data.settings, data.settings_left_out);
  const curves: Curve[] = given.seeds === "apart" ? data.series.map((series) => ({ ...series, seeds: [series] })) : together;
  const drawn = curves.map((curve, style) => ({ curve, style })).filter(({ curve }) => !hidden.includes(curve.name));
  const toggle = (name: string, list: string[]) => (list.includes(name) ? list.filter((each) => each !== name) : [...list, name]);
  const marks = data.series.some((series) => series.points.some((point) => point.new_verifiers));
  const lines = drawn.map(({ curve, style }) => lineOf(curve, style, axis, data.figure));
  const seeds = curves.some((curve) => curve.seeds.length > 1);
  return (
    <main id="main" class="experiment">
      <header class="page-head"><div><h1>{at ? visible(at) : "All runs"} <span class="count">{whole(data.runs.length)}</span></h1>
        <p class="quiet">{plural(curves.length, "curve")} of {plural(data.runs.length, "run")}, {short(data.runs.reduce((sum, run) => sum + run.counts.dispatched, 0))} rollouts{data.preparing > 0 && `. ${plural(data.preparing, "run")} being prepared`}</p></div>
        <nav class="tools" aria-label="In this folder">{served && <a class="button" href={link(["search"], { at })}>Search all rollouts</a>}{data.folders.slice(0, 8).map((folder) => <a key={folder.at} class="button" href={link(["experiment"], { at: folder.at })}>{visible(inside(folder.at, at))} <span class="count">{folder.runs}</span></a>)}</nav>
      </header>
      <Card title={figureName(data.figure)} wide note={seeds ? "the band is the 95 % interval of the mean; with several seeds, of the mean of the seeds" : "the band is the 95 % interval of the mean"}>
        <div class="search-row">
          <label class="small quiet">Figure <select value={data.figure} onChange={(event) => to({ figure: event.currentTarget.value })}>
            {data.figures.map((name) => <option key={name} value={name}>{figureName(name)}</option>)}</select></label>
          {axes.length > 0 && <label class="small quiet">over <select value={axis[0]} onChange={(event) => to({ axis: event.currentTarget.value })}>
            {axes.map(([id, name]) => <option key={id} value={id}>{name}</option>)}</select></label>}
          {together.length < data.series.length && <label class="small quiet"><input type="checkbox" checked={given.seeds !== "apart"} onChange={(event) => to({ seeds: event.currentTarget.checked ? "" : "apart" })} /> seeds as one curve</label>}
        </div>
        {lines.some((line) => line.points.length)
          ? <Plot lines={lines} bands={lines.filter((line) => line.points.length).length <= COLOURS} height={340} x={axis[1]} y={figureName(data.figure)} label={`${figureName(data.figure)} over ${axis[1]}`}
              from={data.figure === "reward" || data.figure.startsWith("pass@") || SHARES.has(data.figure) ? 0 : undefined} to={data.figure === "reward" || data.figure.startsWith("pass@") ? 1 : undefined}
              format={axis[0] === "time" ? seconds : short} />
          : <Empty title="No point of this figure"><p class="quiet">{data.runs.length ? "Choose another figure, or show a curve below." : "No run is indexed yet."}</p></Empty>}
        <ul class="curves" aria-label="Curves">{curves.map((curve, style) => {
          const known = pointsOf(curve, axis[0] === "step").filter((point) => point.value);
          const last = known[known.length - 1];
          return <li key={curve.name}><label><input type="checkbox" checked={!hidden.includes(curve.name)} onChange={() => setHidden(toggle(curve.name, hidden))} />
            <svg class="key" viewBox="0 0 22 8" aria-hidden="true"><path class={`line k${style % COLOURS} d${Math.floor(style / COLOURS) % 3}`} d="M0 4H22" /></svg>
            <span>{visible(curve.name)}</span></label> <span class="quiet small">{known.length > 0 && !known.some((point) => axis[2](point) !== null) ? `no ${axis[1]}`
              : <>{known.length > 1 && `${reward(known[0].value![0])} → `}{last ? reward(last.value![0]) : "no value"}</>}</span></li>;
        })}</ul>
        {lines.filter((line) => line.points.length).length > COLOURS && <p class="quiet small">Bands are drawn for up to {COLOURS} curves: untick some.</p>}
        {marks && <p class="quiet small"><svg class="key" viewBox="0 0 22 8" aria-hidden="true"><path class="new-verifier" d="M11 0V8" /></svg> Another verifier judges from here: rewards before and after it are not comparable.</p>}
        <Numbers lines={lines} axis={axis[1]} format={axis[0] === "time" ? seconds : short} />
      </Card>
      <Card title="Runs" wide note={data.settings.length ? "only the settings that differ" : "no setting differs"}>
        <div class="tools table-tools">{served && chosen.length > 1
          ? <a class="button primary" href={link(["compare", ...chosen.slice(0, 12)])}>Compare the {Math.min(chosen.length, 12)}</a>
          : <span class="quiet small">Tick runs to compare them</span>}</div>
        <div class="scrolls" tabIndex={0} role="region" aria-label="Runs and their settings"><table class="settings">
          <thead><tr><th scope="col"><span class="sr-only">Compare</span></th><th scope="col">Run</th><th scope="col" class="number">Checkpoint</th><th scope="col" class="number">Rollouts</th>
            <th scope="col" class="number">Mean reward</th><th scope="col" class="number">pass@k</th>{data.settings.map((name) => <th key={name} scope="col">{visible(name)}</th>)}</tr></thead>
          <tbody>{data.runs.map((run) => <tr key={run.key}>
            <td class="pick"><input type="checkbox" aria-label={`Compare ${run.name}`} checked={chosen.includes(run.key)} onChange={() => setChosen(toggle(run.key, chosen))} /></td>
            <td><a href={link(["run", run.key])}>{visible(run.name)}</a>{run.running && <span class="pill live">running</span>}<div class="quiet small">{when(run.started)}</div></td>
            <td class="number" data-label="Checkpoint">{run.step ?? "–"}</td>
            <td class="number" data-label="Rollouts">{whole(run.counts.dispatched)}<CountBar counts={run.counts} total={null} /></td>
            <td class="number" data-label="Mean reward"><b>{reward(run.reward.mean)}</b>{run.reward.ci95 && <div class="quiet small">{reward(run.reward.ci95[0])} to {reward(run.reward.ci95[1])}</div>}</td>
            <td class="number" data-label="pass@k">{Object.entries(run["pass@k"]).filter((_, index, list) => index === 0 || index === list.length - 1).map(([k, value]) => <div key={k}><span class="quiet small">@{k}</span> {percent(value)}</div>)}</td>
            {run.settings.map((value, index) => <td key={index} data-label={data.settings[index]}><code>{value === null ? "–" : visible(value)}</code></td>)}
          </tr>)}</tbody></table></div>
        {data.settings_left_out > 0 && <p class="quiet small">{plural(data.settings_left_out, "more setting")} differ. The page About of a run has its run.json.</p>}
      </Card>
    </main>
  );
}

const inside = (path: string, at: string) => (at && path.startsWith(`${at}/`) ? path.slice(at.length + 1) : path);

function lineOf(curve: Curve, style: number, [id, , value]: typeof AXES[number], figure: string): PlotLine {
  const points = pointsOf(curve, id === "step").filter((point) => point.value && value(point) !== null).map((point) => {
    const [mean, low, high] = point.value!, x = value(point)!;
    const where = point.step !== null && id === "step" ? `checkpoint ${point.step}` : id === "time" ? seconds(x) : `${whole(point.done)} rollouts`;
    const said = `${curve.name}, ${where}: ${figureName(figure)} ${reward(mean)}${low === null || high === null ? "" : `, 95 % ${reward(low)} to ${reward(high)}`}, ${plural(point.rollouts, "rollout")}` +
      `${point.new_verifiers ? `, judged by another verifier: ${point.new_verifiers.join(", ")}` : ""}`;
    const single = link(["run", point.run], { tab: "rollouts", q: point.q });
    const href = point.runs.length === 1 ? single : served ? link(["compare", ...point.runs.slice(0, 12)]) : undefined;
    return { x, y: mean, low, high, said, href, mark: point.new_verifiers?.join(" ") };
  });
  return { name: curve.name, style, points };
}

/** The points as a table, for those who cannot see or hit them. */
function Numbers({ lines, axis, format }: { lines: PlotLine[]; axis: string; format: (value: number) => string }) {
  const [open, setOpen] = useState(false);
  return <details class="numbers" open={open} onToggle={(event) => setOpen(event.currentTarget.open)}><summary>The points as numbers</summary>
    {open && lines.map((line) => <table key={line.name}><caption>{visible(line.name)}</caption>
      <thead><tr><th scope="col">{axis}</th><th scope="col" class="number">mean</th><th scope="col">95 %</th></tr></thead>
      <tbody>{line.points.map((point, index) => <tr key={index}><td data-label={axis}>{point.href ? <a href={point.href}>{format(point.x)}</a> : format(point.x)}{point.mark && <span class="quiet small"> another verifier</span>}</td><td class="number" data-label="mean">{reward(point.y)}</td>
        <td data-label="95 %">{typeof point.low === "number" && typeof point.high === "number" ? `${reward(point.low)} to ${reward(point.high)}` : "–"}</td></tr>)}</tbody></table>)}</details>;
}
