// The page of one run: what it adds up to, and the way to its rollouts.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { send, served, type Overview, type TaskCell } from "./api";
import { Histogram } from "./charts";
import { bytes, percent, plural, reward, seconds, short, speed, when, whole } from "./format";
import { useKeys } from "./keys";
import { useAnswer } from "./live";
import { RolloutList } from "./list";
import { learnName } from "./names";
import { Plot } from "./plot";
import { Qualification, TrustPill } from "./qualification";
import { go, link } from "./router";
import { JsonView, visible } from "./text";
import { Bars, Card, CountBar, Empty, Loading, Pairs, Problem, Stat, Tabs } from "./ui";

const STAGES: Record<string, string> = {
  open: "opening the session", connect: "waiting for a connection", model: "the model", tool: "tools",
  user: "the simulated user", verify: "verifying", group: "waiting for the group", close: "closing",
  other: "the agent, and waiting for a slot",
};

export function Run({ run, given }: { run: string; given: Record<string, string> }) {
  const { data, problem } = useAnswer<Overview>("run", { run }, run);
  const tab = given.tab ?? (given.q !== undefined ? "rollouts" : "overview");
  const pick = (name: string) => go(link(["run", run], { tab: name, q: name === "rollouts" ? given.q : undefined }));
  useKeys({ Escape: () => go("#/"), 1: () => pick("overview"), 2: () => pick("rollouts"), 3: () => pick("about") });
  useEffect(() => { if (data) learnName(run, data.name); }, [data?.name]);
  if (problem && !data) return <Problem text={problem} />;
  if (!data) return <Loading />;
  return (
    <main id="main">
      <header class="page-head">
        <div>
          <h1>{data.name} {data.state.running && <span class="pill live">running</span>}</h1>
          <p class="quiet">{[data.environments.join(", "), data.model, when(data.started)].filter(Boolean).join(" · ")}{" "}
            {data.cards.filter((each) => each.card).map((each) => <a key={each.environment} href={link(["run", run], { tab: "about" })}
              title={`The qualification card of ${each.environment}`}><TrustPill card={each.card} of="environment: " /></a>)}</p>
        </div>
        {served && data.state.control && <Controls run={run} control={data.state.control} />}
      </header>
      <Tabs label="Parts of the run" now={tab} onPick={pick}
        tabs={[["overview", "Overview"], ["rollouts", <>Rollouts <span class="count">{short(data.counts.dispatched)}</span></>], ["about", "About"]]} />
      <div id="panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
        {tab === "rollouts" ? <RolloutList run={run} given={given} tags={data.tags} />
          : tab === "about" ? <About data={data} /> : <Figures run={run} data={data} />}
      </div>
    </main>
  );
}

function Figures({ run, data }: { run: string; data: Overview }) {
  const list = (q: string, sort?: string) => link(["run", run], { tab: "rollouts", q, sort });
  const { counts, state } = data;
  const passes = Object.entries(data["pass@k"]);
  const time = data.stages.reduce((sum, each) => sum + each.seconds, 0);
  return (
    <>
      <dl class="stats">
        <Stat name="Rollouts" note={<CountBar counts={counts} total={state.total} />}>
          {whole(counts.dispatched)}{state.total !== null && <span class="quiet"> / {state.total >= 10_000 ? short(state.total) : whole(state.total)}</span>}
        </Stat>
        <Stat name="Mean reward" note={data.reward.ci95 && `95 %: ${reward(data.reward.ci95[0])} to ${reward(data.reward.ci95[1])}`}>
          {reward(data.reward.mean)}
        </Stat>
        {passes.length > 0 && (
          <Stat name={`pass@${passes[passes.length - 1][0]}`} note={passes.length > 1 && `pass@1: ${percent(passes[0][1])}`}>
            {percent(passes[passes.length - 1][1])}
          </Stat>)}
        <Stat name="Failed" note={counts.retried ? `${plural(counts.retried, "attempt")} retried` : "no attempt retried"}>
          {counts.failed ? <a class="failed-text" href={list("outcome:failed")}>{whole(counts.failed)}</a> : "0"}
        </Stat>
        <Stat name="Masked" note="not fit to train on">
          {counts.masked ? <a class="masked-text" href={list("outcome:masked")}>{whole(counts.masked)}</a> : "0"}
        </Stat>
        {counts.ended_early > 0 && (
          <Stat name="Ended early" note="by a limit of the run">
            <a class="neutral-text" href={list("outcome:ended_early")}>{whole(counts.ended_early)}</a>
          </Stat>)}
        <Stat name="Tokens" note={data.tokens.input === null ? "not recorded" : `written; ${short(data.tokens.input)} read`}>{short(data.tokens.output)}</Stat>
        {data.cost && <Stat name="Cost" note={data.cost.per_completed !== null ? `$${data.cost.per_completed.toFixed(4)} a rollout` : "prices missing"}>
          {data.cost.total === null ? "–" : `$${data.cost.total.toFixed(2)}`}</Stat>}
        <Stat name="Speed" note={state.control?.paused ? "paused" : state.seconds_left !== null ? `${seconds(state.seconds_left)} left` : state.running ? "running" : "ended"}>
          {speed(state.per_second).split(" ").map((part, place) => (place ? <span class="quiet"> {part}</span> : part))}
        </Stat>
      </dl>
      {data.warnings.map((warning) => <p class="warning" key={warning}>{warning}</p>)}
      {data.bad_lines.total > 0 && (
        <p class="warning">{plural(data.bad_lines.total, "line")} could not be read:{" "}
          {data.bad_lines.first.slice(0, 3).map((line) => `${line.file ? "failures.jsonl" : "rollouts.jsonl"}:${line.number} ${line.why}`).join("; ")}</p>)}
      {!counts.dispatched && (
        <Empty title={data.index.facts < data.index.bytes ? "The run is being indexed" : "No rollout has ended yet"}>
          <p class="quiet">{data.index.bytes ? `${percent(data.index.facts / data.index.bytes)} of ${bytes(data.index.bytes)}` : "They appear here as they end."}</p>
        </Empty>)}
      {counts.dispatched > 0 && <Card title="Pass rate per task" wide note={data.tasks.every > 1
          ? `every ${data.tasks.every}th of ${whole(data.tasks.total)} tasks` : plural(data.tasks.total, "task")}>
          <HeatMap cells={data.tasks.cells} href={(cell) => list(`task:"${cell.task_id}"`)} />
        </Card>}
      {counts.dispatched > 0 && <div class="grid">
        <Card title="Rewards" note={`${whole(counts.completed)} completed`}>
          {counts.completed
            ? <Histogram {...data.histogram} href={(low, high, last) =>
                list(`outcome:completed reward:>=${+low.toFixed(6)} reward:${last ? "<=" : "<"}${+high.toFixed(6)}`)} />
            : <p class="quiet">No rollout has completed.</p>}
        </Card>
        <Card title="Reward over time" note={data.rolling.length > 1 ? `rolling mean of ${whole(data.rolling[0].rollouts)} rollouts, 95 % band` : undefined}>
          {data.rolling.length > 1
            ? <Plot lines={[{ name: "reward", style: 0, points: data.rolling.map((each) => ({ x: each.share * 100, y: each.mean, low: each.low, high: each.high,
                href: list(`outcome:completed number:${each.first}..${each.last}`), said: `${percent(each.share)} of the run: mean reward ${reward(each.mean)} of ${plural(each.rollouts, "rollout")}` })) }]}
                x="share of the run, %" y="mean reward" label="Mean reward over the run" from={0} to={1} />
            : <p class="quiet">A line needs 40 completed rollouts.</p>}
        </Card>
        <Card title="Where the time went" note={time ? `${seconds(time)} over all rollouts` : undefined}>
          <Bars empty="The rollouts record no times." most={time || 1} rows={data.stages.map((each) => ({
            name: STAGES[each.stage] ?? each.stage, value: each.seconds,
            shown: `${seconds(each.seconds / Math.max(counts.dispatched, 1))} each · ${percent(time ? each.seconds / time : 0)}` }))} />
        </Card>
        <Card title="Failures" note="by stage and kind; a click shows them">
          <Bars empty="No attempt failed." rows={data.failures.map((each) => ({
            name: <><b>{each.stage}</b> {each.kind}</>, value: each.count, kind: "failed", title: each.cause,
            href: list(`outcome:failed stage:${each.stage} kind:${each.kind} all:yes`),
            shown: `${whole(each.count)}${each.final < each.count ? ` · ${whole(each.final)} final` : ""}` }))} />
          {data.failures.slice(0, 3).map((each) => <p key={`${each.stage} ${each.kind}`} class="quiet small cause"><b>{each.stage} {each.kind}</b>{each.causes > 1 && `, 1 of ${whole(each.causes)} causes`}: {visible(each.cause ?? "no cause")}</p>)}
        </Card>
        <Card title="Tool calls" note="errors in red">
          <Bars empty="No tool was called." rows={data.tools.map((each) => ({
            name: <code>{each.name}</code>, value: each.calls, href: list(`tool:${quoted(each.name)}`),
            shown: `${whole(each.calls)}${each.errors ? ` · ${plural(each.errors, "error")}` : ""}`,
            red: each.errors / Math.max(each.calls, 1) }))} />
        </Card>
        <Card title="Stop reasons">
          <Bars empty="None is recorded." rows={data.stop_reasons.map((each) => ({
            name: each.name ?? "none", value: each.count, href: each.name ? list(`stop:${quoted(each.name)}`) : undefined }))} />
        </Card>
        {data.masks.length > 0 && <Card title="Why rollouts are masked">
          <Bars empty="" rows={data.masks.map((each) => ({
            name: each.name ?? "none", value: each.count, kind: "masked", href: list(`mask:${quoted(each.name ?? "")}`) }))} /></Card>}
        {data.components.length > 0 && <Card title="Reward components" note={`means, on the scale of the reward${data.components.some((each) => each.mean < 0) ? "; orange lowers it" : ""}`}>
          <Bars empty="" most={Math.max(1, data.reward.range?.[1] ?? 1, ...data.components.map((each) => Math.abs(each.mean)))} rows={data.components.map((each) => ({
            name: each.name, value: Math.abs(each.mean), kind: each.mean < 0 ? "bad" : "", shown: reward(each.mean), title: `from ${reward(each.low)} to ${reward(each.high)}` }))} /></Card>}
        {data.values.length > 0 && <Card title="Values of the verdict" note="means">
          <Pairs rows={data.values.map((each) => [each.name, each.low === each.high ? reward(each.mean) : `${reward(each.mean)} (${reward(each.low)} to ${reward(each.high)})`])} /></Card>}
        <Card title="Length against reward" note="the area of a circle is its number of rollouts">
          {data.lengths.cells.length
            ? <Plot kind="cells" log lines={[{ name: "rollouts", style: 0, points: data.lengths.cells.map((cell) => ({ x: (cell.shortest * cell.longest) ** 0.5, y: (cell.low + cell.high) / 2, size: cell.rollouts,
                href: list(`outcome:completed tokens:${cell.shortest}..${cell.longest} reward:${cell.low}..${cell.high}`),
                said: `${plural(cell.rollouts, "rollout")} of ${whole(cell.shortest)} to ${whole(cell.longest)} tokens with a reward ${cell.low === cell.high ? `of ${reward(cell.low)}` : `from ${reward(cell.low)} to ${reward(cell.high)}`}` })) }]}
                x="tokens that the model wrote" y="reward" label="Rollouts by length in tokens and reward" from={0} to={1} format={short} />
            : <p class="quiet">The rollouts record no tokens.</p>}
        </Card>
        <Card title="Model calls in a rollout">
          <Bars empty="None is recorded." rows={data.turns.map((each) => ({
            name: plural(each.turns, "call"), value: each.count, href: list(`turns:${each.turns}`) }))} />
        </Card>
        {data.policies.length > 1 && <Card title="Policy versions">
          <Bars empty="" rows={data.policies.map((each) => ({ name: each.name ?? "none", value: each.count, href: list(`policy:${quoted((each.name ?? "").split(" ")[0])}`) }))} /></Card>}
        {typeof data.loop?.lag?.p50 === "number" && <Card title="Event loop" note="a high lag slows every rollout">
          <Pairs rows={[["lag, median", seconds(data.loop.lag.p50)], ["lag, 95 %", seconds(data.loop.lag.p95)],
            ["longest", seconds(data.loop.lag.max)], ["blocked by", (data.loop.blocked ?? []).length ? <JsonView value={data.loop.blocked} /> : "nothing"]]} /></Card>}
      </div>}
    </>
  );
}

function Controls({ run, control }: { run: string; control: NonNullable<Overview["state"]["control"]> }) {
  const [now, setNow] = useState(control);
  const [said, setSaid] = useState("");
  useEffect(() => setNow(control), [JSON.stringify(control)]); // another page may have asked for something
  const [typed, setTyped] = useState<string | null>(null); // kept while the page is drawn again
  const limit = (text: string) => {
    setTyped(null);
    const wanted = Number(text);
    if (text.trim() && Number.isInteger(wanted) && wanted >= 1 && wanted <= 1_000_000) { void change({ concurrency: wanted }); return; }
    setSaid(`“at once” is a whole number from 1 to 1,000,000, not ${text.trim() || "nothing"}. To begin no rollout, press Pause.`);
  };
  const change = async (more: Partial<typeof control>) => {
    const next = { ...now, ...more };
    try {
      await send("control", { run, paused: next.paused, concurrency: next.concurrency, stop: next.stop });
      setNow(next);
      setSaid(next.stop ? "It stops after closing its sessions." : next.paused ? "Paused: rollouts in flight end, none begins." : "");
    } catch (error) { setSaid((error as Error).message); }
  };
  return (
    <div class="tools" role="group" aria-label="Control of the collection">
      <span class="quiet small" aria-live="polite">{said}</span>
      {!now.only_stop && <button type="button" onClick={() => void change({ paused: !now.paused })}>{now.paused ? "Resume" : "Pause"}</button>}
      {!now.only_stop && now.most !== null && <label class="small quiet">at once <input type="number" min={1} value={typed ?? now.concurrency ?? (now.most === "auto" ? "" : now.most)} placeholder={now.most === "auto" ? "auto" : undefined}
        onInput={(event) => setTyped(event.currentTarget.value)} onChange={(event) => limit(event.currentTarget.value)} /></label>}
      <button type="button" disabled={now.stop} onClick={() => { if (confirm("Stop the collection? It can be resumed with --resume.")) void change({ stop: true }); }}>Stop</button>
    </div>
  );
}

const quoted = (text: string) => (/[\s"]/.test(text) ? `"${text.replace(/"/g, "")}"` : text);

function HeatMap({ cells, href }: { cells: TaskCell[]; href: (cell: TaskCell) => string }) {
  return (
    <>
      <ul class={cells.length > 400 ? "heat dense" : "heat"}>
        {cells.map((cell) => {
          const rate = cell.completed ? cell.passed / cell.completed : null;
          const step = rate === null ? "none" : `h${Math.round(rate * 10)}`;
          const said = `${cell.name}: ${rate === null ? "no reward" : `${cell.passed} of ${cell.completed} passed`}` +
            `${cell.failed ? `, ${cell.failed} failed` : ""}${cell.masked ? `, ${cell.masked} masked` : ""}`;
          return <li key={cell.id}><a class={`${step}${cell.failed ? " has-failed" : ""}`} href={href(cell)}
            title={`${said}\n${cell.about}`} aria-label={said} /></li>;
        })}
      </ul>
      <div class="legend" aria-hidden="true"><span>0 % {[0, 2, 4, 6, 8, 10].map((step) => <i key={step} class={`h${step}`} />)} 100 % passed</span>
        <span><i class="none" /> no reward</span><span><i class="h0 has-failed" /> with failures</span></div>
    </>
  );
}

function About({ data }: { data: Overview }) {
  const parts: [string, ComponentChildren][] = [
    ["rollouts", bytes(data.index.bytes)], ["started", when(data.started) || "unknown"],
    ["searchable", percent(data.index.bytes ? data.index.texts / data.index.bytes : 1)]];
  return (
    <div class="grid">
      <Card title="Files"><Pairs rows={parts} /></Card>
      {data.cards.map((each) => <Card key={each.environment} title={`Can ${each.environment} be trusted?`}><Qualification given={each} /></Card>)}
      <Card title="run.json">
        {Object.keys(data.described).length ? <JsonView value={data.described} /> : <p class="quiet">The run has no run.json.</p>}
      </Card>
    </div>
  );
}
