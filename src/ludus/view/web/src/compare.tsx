// Two runs with paired statistics, and two rollouts of a task side by side.
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { served, type Item, type OneRollout } from "./api";
import { percent, plural, reward, whole } from "./format";
import { useKeys } from "./keys";
import { useAnswer } from "./live";
import { learnName } from "./names";
import { go, link } from "./router";
import { parsed, visible } from "./text";
import { Card, Empty, Loading, Outcome, Problem, Stat } from "./ui";

interface Result {
  tasks: number; mean_a: number; mean_b: number; pass_rate_a: number; pass_rate_b: number; difference: number; ci95: [number, number] | null; found: boolean;
  mcnemar: { only_a: number; only_b: number; p: number } | null; detectable: number | null; sentence: string;
}
interface Side { key: string; name: string; scored: number; failed: number; masked: number; result: Result | null }
interface Compared { runs: Side[]; warnings: string[]; tasks_total: number; tasks: { task_id: string; name: string; means: number[]; counts: number[] }[] }

const letter = (at: number) => String.fromCharCode(65 + at);

export function CompareRuns({ keys }: { keys: string[] }) {
  const { data, problem } = useAnswer<Compared>("compare", { run: keys[0], with: keys.slice(1).join(",") }, null);
  useKeys({ Escape: () => go("#/") });
  if (problem && !data) return <Problem text={problem} />;
  if (!data) return <Loading />;
  const [first, ...others] = data.runs, pair = others.length === 1 ? others[0].result : null;
  const none = others.every((side) => !side.result);
  return (
    <main id="main">
      <header class="page-head"><div><h1>Compare {others.length > 1 && <span class="count">{data.runs.length}</span>}</h1>
        <p class="quiet">{data.runs.map((side, at) => <span key={side.key}>{at > 0 && ", "}{letter(at)} is <a href={link(["run", side.key])}>{visible(side.name)}</a></span>)}</p></div>
        {others.length === 1 && <div class="tools"><a class="button" href={link(["compare", keys[1], keys[0]])}>Swap</a></div>}</header>
      {data.warnings.map((warning) => <p class="warning" key={warning}>{visible(warning)}</p>)}
      {none && <Empty title={others.length > 1 ? "No run shares a rewarded task with A" : "No task has a reward in both runs"}><p class="quiet">Collect all from the same rows.</p></Empty>}
      {pair && <>
        <p class="verdict-line">{pair.sentence}</p>
        <dl class="stats">
          <Stat name="Mean reward of B" note={`A ${reward(pair.mean_a)}; each task counts once`}>{reward(pair.mean_b)}</Stat>
          <Stat name="B minus A" note={pair.ci95 && `95 %: ${reward(pair.ci95[0])} to ${reward(pair.ci95[1])}`}><Found result={pair} /></Stat>
          <Stat name="Pass rate of B" note={`A ${percent(pair.pass_rate_a)}`}>{percent(pair.pass_rate_b)}</Stat>
          {pair.mcnemar && <Stat name="McNemar" note={`${whole(pair.mcnemar.only_b)} only in B, ${whole(pair.mcnemar.only_a)} only in A`}>p = {pair.mcnemar.p.toPrecision(2)}</Stat>}
          {pair.detectable !== null && <Stat name="Would be found" note="smallest difference, 80 % power">{reward(pair.detectable)}</Stat>}
        </dl></>}
      {others.length > 1 && !none && <Card title="Every run against A" wide note="means over the tasks that both have">
        <table class="versus"><thead><tr><th scope="col">Run</th><th scope="col" class="number">Tasks</th><th scope="col" class="number">Mean reward</th><th scope="col" class="number">Minus A</th><th scope="col" class="number">Pass rate</th><th scope="col">In words</th></tr></thead>
          <tbody><tr><td>A <a href={link(["run", first.key])}>{visible(first.name)}</a></td><td class="number" data-label="Tasks">–</td><td class="number" data-label="Mean reward">{reward(others.find((side) => side.result)?.result?.mean_a)}</td><td class="number" data-label="Minus A">–</td>
              <td class="number" data-label="Pass rate">{percent(others.find((side) => side.result)?.result?.pass_rate_a)}</td><td data-label="In words" class="quiet">the others are compared with it</td></tr>
            {others.map((side, at) => <tr key={side.key}><td>{letter(at + 1)} <a href={link(["compare", first.key, side.key])}>{visible(side.name)}</a></td>
            {side.result ? <><td class="number" data-label="Tasks">{whole(side.result.tasks)}</td><td class="number" data-label="Mean reward">{reward(side.result.mean_b)}</td>
              <td class="number" data-label="Minus A"><Found result={side.result} />{side.result.ci95 && <div class="quiet small">{reward(side.result.ci95[0])} to {reward(side.result.ci95[1])}</div>}</td>
              <td class="number" data-label="Pass rate">{percent(side.result.pass_rate_b)}</td>
              <td class="small" data-label="In words">{!side.result.found ? "no difference was found" : side.result.difference > 0 ? "better than A" : "worse than A"}</td></>
              : <td colSpan={5} class="quiet">no rewarded task in common with A</td>}</tr>)}</tbody></table></Card>}
      {data.tasks.length > 0 && <Card title="Tasks" wide note={`${plural(data.tasks_total, "task")} in ${others.length > 1 ? "all" : "both"}, the largest difference first`}>
        <div class="scrolls" tabIndex={0} role="region" aria-label="Mean rewards of tasks">
        <table class="tasks"><thead><tr><th scope="col">Task</th>{data.runs.map((side, at) => <th key={side.key} scope="col" class="number">{letter(at)}</th>)}{others.length === 1 && <th scope="col">Difference</th>}</tr></thead>
          <tbody>{data.tasks.slice(0, 200).map((task) => <tr key={task.task_id}>
            <td class="clip">{served ? <a href={link(["task"], { task: task.task_id })}>{visible(task.name)}</a> : visible(task.name)}</td>
            {data.runs.map((side, at) => <td key={side.key} class="number" data-label={letter(at)}><a href={link(["run", side.key], { tab: "rollouts", q: `task:"${task.task_id}"` })}>{reward(task.means[at])}</a></td>)}
            {others.length === 1 && <td data-label="Difference"><Difference value={task.means[1] - task.means[0]} /></td>}</tr>)}</tbody></table></div>
        {data.tasks_total > 200 && <p class="quiet small">The first 200 are listed.</p>}</Card>}
    </main>
  );
}

/** A difference, in colour only if one was found. */
function Found({ result }: { result: Result }) {
  const kind = !result.found ? "" : result.difference > 0 ? "good-text" : "bad-text";
  return <span class={kind}>{result.difference > 0 ? "+" : ""}{reward(result.difference)}</span>;
}

function Difference({ value }: { value: number }) {
  const width = `${Math.min(Math.abs(value), 1) * 50}%`;
  return <span class="difference-cell"><span class="number">{value > 0 ? "+" : ""}{reward(value)}</span><span class="difference"><i class={value >= 0 ? "good" : "bad"} style={value >= 0 ? { left: "50%", width } : { right: "50%", width }} /></span></span>;
}

export function CompareRollouts({ run, a, b }: { run: string; a: number; b: number }) {
  const left = useAnswer<OneRollout>("rollout", { run, id: a }, run, false), right = useAnswer<OneRollout>("rollout", { run, id: b }, run, false);
  useKeys({ Escape: () => go(link(["run", run, "rollout", a])) });
  useEffect(() => { if (left.data) learnName(run, left.data.run_name); }, [left.data?.run_name]);
  const problem = left.problem ?? right.problem;
  if (problem) return <Problem text={problem} />;
  if (!left.data || !right.data) return <Loading />;
  const lines = paired(left.data.items.map(plain), right.data.items.map(plain));
  const alike = ([x, y]: [Plain | null, Plain | null]) => x !== null && y !== null && x.exact === y.exact;
  const equal = lines.filter(alike).length, first = lines.findIndex((pair) => !alike(pair));
  const sides = [left.data, right.data], threads = sides.some((side) => side.threads.length > 0);
  const cut = sides.some((side) => side.items.length < side.items_total), what = `${cut ? "first items of the " : threads ? "main threads of the " : ""}two rollouts`;
  const same = left.data.facts.task_id === right.data.facts.task_id;
  return (
    <main id="main">
      <header class="page-head"><h1>Two rollouts{same ? " of one task" : ""}</h1></header>
      {!same && <p class="warning">These rollouts are of different tasks.</p>}
      <p class="verdict-line">{first < 0 ? `The ${what} are identical: ${plural(lines.length, "item")}.`
        : `${plural(equal, "item")} of ${whole(lines.length)} ${equal === 1 ? "is" : "are"} identical. The first difference is in item ${first + 1}.`}{threads && " Sub-agents and side calls are not compared."}</p>
      <div class="diff conversation">
        {sides.map((side) => <h2 key={side.id}><a href={link(["run", run, "rollout", side.id])}>{visible(side.facts.rollout_id)}</a> <Outcome outcome={side.facts.outcome} reward={side.facts.reward} /></h2>)}
        {lines.map(([x, y], index) => {
          const equal = alike([x, y]);
          const shown = x && y && !equal && x.kind === y.kind ? marked(x.text, y.text) : [x && visible(x.text), y && visible(y.text)];
          return [x, y].map((part, side) => part === null
            ? <div key={`${index}-${side}`} class="item diff-cell absent"><h3>nothing here</h3></div>
            : <article key={`${index}-${side}`} class={`item diff-cell ${part.role} ${equal ? "same" : "differs"}`} data-side={side}>
                <h3>{visible(part.kind)} <span class="quiet">{equal ? "identical" : x && y ? "differs" : `only in ${side ? "the right" : "the left"} one`}</span></h3>
                <div class={part.mono ? "text mono" : "text"} dir="auto">{shown[side]}</div></article>);
        })}
      </div>
    </main>
  );
}

/** `exact` tells two items apart whose shown texts are equal. */
interface Plain { kind: string; role: string; text: string; exact: string; mono?: boolean }

/** An item as its class in a conversation, its heading and its text. */
function plain(item: Item): Plain {
  const shown = shownOf(item);
  return { ...shown, exact: shown.kind + (shown.mono ? textOf(item.arguments ?? item.output) : shown.text) };
}

function shownOf(item: Item): Omit<Plain, "exact"> {
  if (item.type === "function_call") return { kind: `call ${String(item.name).slice(0, 80)}`, role: "calling", text: readable(textOf(item.arguments)), mono: true };
  if (item.type === "function_call_output") return { kind: "output", role: "answered", text: readable(textOf(item.output)), mono: true };
  if (item.type === "reasoning") return { kind: "reasoning", role: "reasoning", text: [...(item.summary ?? []), ...(item.content ?? [])].map((part: Item) => textOf(part?.text)).join("\n") };
  const role = ["user", "assistant", "system", "developer"].includes(item.role) ? item.role : "other";
  return { kind: String(item.role ?? item.type ?? "message").slice(0, 40), role, text: Array.isArray(item.content) ? item.content.map((part: Item) => textOf(part?.text ?? part)).join("\n") : textOf(item.content) };
}

/** JSON with a line for each entry, as the conversation shows it. */
function readable(text: string): string {
  const value = parsed(text);
  if (value === undefined) return text;
  return Object.entries(value).map(([name, inner]) => `${Array.isArray(value) ? "" : `${name}: `}${typeof inner === "string" ? inner : JSON.stringify(inner)}`).join("\n");
}

function textOf(value: unknown): string {
  const text = typeof value === "string" ? value : value && typeof value === "object" && "cut" in value ? String((value as { cut: string }).cut) : JSON.stringify(value) ?? "";
  return text.slice(0, 20_000);
}

/** The longest common order of two lists: equal entries stand beside each other, and so do different ones in between. */
function paired(a: Plain[], b: Plain[]): [Plain | null, Plain | null][] {
  const keep = common(a.map((each) => each.exact), b.map((each) => each.exact));
  const lines: [Plain | null, Plain | null][] = [];
  let i = 0, j = 0;
  for (const [x, y] of [...keep, [a.length, b.length] as [number, number]]) {
    while (i < x || j < y) lines.push([i < x ? a[i++] : null, j < y ? b[j++] : null]);
    if (x < a.length) lines.push([a[i++], b[j++]]);
  }
  return lines;
}

function common(a: string[], b: string[]): [number, number][] {
  if (a.length * b.length > 1_000_000) return [];
  const size = b.length + 1, table = new Uint16Array((a.length + 1) * size);
  for (let i = a.length - 1; i >= 0; i--) for (let j = b.length - 1; j >= 0; j--) {
    table[i * size + j] = a[i] === b[j] ? table[(i + 1) * size + j + 1] + 1 : Math.max(table[(i + 1) * size + j], table[i * size + j + 1]);
  }
  const found: [number, number][] = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) found.push([i++, j++]);
    else if (table[(i + 1) * size + j] >= table[i * size + j + 1]) i++;
    else j++;
  }
  return found;
}

function marked(a: string, b: string): [ComponentChildren, ComponentChildren] {
  const words = [a, b].map((text) => text.split(/([^\p{L}\p{N}]+)/u).slice(0, 1200));
  const keep = common(words[0], words[1]);
  const sides = words.map((list, side) => {
    const kept = new Set(keep.map((pair) => pair[side]));
    return list.map((word, index) => (kept.has(index) || index % 2 ? visible(word) : <mark key={index}>{visible(word)}</mark>));
  });
  return [sides[0], sides[1]];
}
