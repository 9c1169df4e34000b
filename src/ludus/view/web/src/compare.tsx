// Two runs with paired statistics, and two rollouts of a task side by side.
import { type ComponentChildren } from "preact";
import type { Item, OneRollout } from "./api";
import { percent, plural, reward, whole } from "./format";
import { useKeys } from "./keys";
import { useAnswer } from "./live";
import { go, link } from "./router";
import { visible } from "./text";
import { Card, Empty, Loading, Outcome, Problem, Stat } from "./ui";

interface Side { key: string; name: string; scored: number; failed: number; masked: number }
interface Compared {
  a: Side; b: Side; warnings: string[]; tasks: { task_id: string; name: string; a: number; b: number; n_a: number; n_b: number }[];
  result: { tasks: number; mean_a: number; mean_b: number; pass_rate_a: number; pass_rate_b: number; difference: number; ci95: [number, number] | null;
    mcnemar: { only_a: number; only_b: number; p: number } | null; detectable: number | null; sentence: string } | null;
}

export function CompareRuns({ a, b }: { a: string; b: string }) {
  const { data, problem } = useAnswer<Compared>("compare", { run: a, with: b }, null);
  useKeys({ Escape: () => go("#/") });
  if (problem && !data) return <Problem text={problem} />;
  if (!data) return <Loading />;
  const { result } = data;
  return (
    <main id="main">
      <header class="page-head"><div><h1>Compare</h1>
        <p class="quiet">A is <a href={link(["run", a])}>{data.a.name}</a>, B is <a href={link(["run", b])}>{data.b.name}</a></p></div>
        <div class="tools"><a class="button" href={link(["compare", b, a])}>Swap</a></div></header>
      {data.warnings.map((warning) => <p class="warning" key={warning}>{visible(warning)}</p>)}
      {!result && <Empty title="No task has a reward in both runs"><p class="quiet">Collect both from the same rows.</p></Empty>}
      {result && <>
        <p class="verdict-line">{result.sentence}</p>
        <dl class="stats">
          <Stat name="Mean reward of B" note={`A ${reward(result.mean_a)}`}>{reward(result.mean_b)}</Stat>
          <Stat name="B minus A" note={result.ci95 && `95 %: ${reward(result.ci95[0])} to ${reward(result.ci95[1])}`}>
            <span class={result.difference > 0 ? "good-text" : result.difference < 0 ? "bad-text" : ""}>{result.difference > 0 ? "+" : ""}{reward(result.difference)}</span></Stat>
          <Stat name="Pass rate of B" note={`A ${percent(result.pass_rate_a)}`}>{percent(result.pass_rate_b)}</Stat>
          {result.mcnemar && <Stat name="McNemar" note={`${whole(result.mcnemar.only_b)} only in B, ${whole(result.mcnemar.only_a)} only in A`}>p = {result.mcnemar.p.toPrecision(2)}</Stat>}
          {result.detectable !== null && <Stat name="Would be found" note="smallest difference, 80 % power">{reward(result.detectable)}</Stat>}
        </dl>
        <Card title="Tasks" wide note={`${plural(result.tasks, "task")} in both, the largest difference first`}>
          <table class="tasks"><thead><tr><th scope="col">Task</th><th scope="col" class="number">A</th><th scope="col" class="number">B</th><th scope="col">Difference</th></tr></thead>
            <tbody>{data.tasks.slice(0, 200).map((task) => <tr key={task.task_id}>
              <td class="clip">{visible(task.name)}</td>
              <td class="number" data-label="A"><a href={link(["run", a], { tab: "rollouts", q: `task:"${task.task_id}"` })}>{reward(task.a)}</a></td>
              <td class="number" data-label="B"><a href={link(["run", b], { tab: "rollouts", q: `task:"${task.task_id}"` })}>{reward(task.b)}</a></td>
              <td data-label="Difference"><Difference value={task.b - task.a} /></td></tr>)}</tbody></table></Card>
      </>}
    </main>
  );
}

function Difference({ value }: { value: number }) {
  const width = `${Math.min(Math.abs(value), 1) * 50}%`;
  return <span class="difference-cell"><span class="number">{value > 0 ? "+" : ""}{reward(value)}</span><span class="difference"><i class={value >= 0 ? "good" : "bad"} style={value >= 0 ? { left: "50%", width } : { right: "50%", width }} /></span></span>;
}

export function CompareRollouts({ run, a, b }: { run: string; a: number; b: number }) {
  const left = useAnswer<OneRollout>("rollout", { run, id: a }, run, false), right = useAnswer<OneRollout>("rollout", { run, id: b }, run, false);
  useKeys({ Escape: () => go(link(["run", run, "rollout", a])) });
  const problem = left.problem ?? right.problem;
  if (problem) return <Problem text={problem} />;
  if (!left.data || !right.data) return <Loading />;
  const lines = paired(left.data.items.map(plain), right.data.items.map(plain));
  const same = left.data.facts.task_id === right.data.facts.task_id;
  return (
    <main id="main">
      <header class="page-head"><h1>Two rollouts{same ? " of one task" : ""}</h1></header>
      {!same && <p class="warning">These rollouts are of different tasks.</p>}
      <div class="diff">
        {[left.data, right.data].map((side) => <h2 key={side.id}><a href={link(["run", run, "rollout", side.id])}>{visible(side.facts.rollout_id)}</a> <Outcome outcome={side.facts.outcome} reward={side.facts.reward} /></h2>)}
        {lines.map(([x, y], index) => {
          const equal = x !== null && y !== null && x.text === y.text;
          const [shownX, shownY] = x && y && !equal && x.kind === y.kind ? marked(x.text, y.text) : [x && visible(x.text), y && visible(y.text)];
          return [[x, shownX], [y, shownY]].map(([part, shown], side) => <div key={`${index}-${side}`} class={`diff-cell ${part === null ? "absent" : equal ? "" : "differs"}`}>
            {part !== null && <><h3>{(part as Plain).kind}</h3><div class="text">{shown as ComponentChildren}</div></>}</div>);
        })}
      </div>
    </main>
  );
}

interface Plain { kind: string; text: string }

function plain(item: Item): Plain {
  if (item.type === "function_call") return { kind: `call ${String(item.name).slice(0, 80)}`, text: textOf(item.arguments) };
  if (item.type === "function_call_output") return { kind: "output", text: textOf(item.output) };
  if (item.type === "reasoning") return { kind: "reasoning", text: [...(item.summary ?? []), ...(item.content ?? [])].map((part: Item) => textOf(part?.text)).join("\n") };
  return { kind: String(item.role ?? item.type ?? "message").slice(0, 40), text: Array.isArray(item.content) ? item.content.map((part: Item) => textOf(part?.text ?? part)).join("\n") : textOf(item.content) };
}

function textOf(value: unknown): string {
  const text = typeof value === "string" ? value : value && typeof value === "object" && "cut" in value ? String((value as { cut: string }).cut) : JSON.stringify(value) ?? "";
  return text.slice(0, 20_000);
}

/** The longest common order of two lists: equal entries stand beside each other, and so do different ones in between. */
function paired(a: Plain[], b: Plain[]): [Plain | null, Plain | null][] {
  const keep = common(a.map((each) => each.kind + each.text), b.map((each) => each.kind + each.text));
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
