// The steps of a rollout on a line of time.
import type { Item, OneRollout } from "./api";
import { plural, seconds } from "./format";

const NAMES: Record<string, string> = {
  open: "opening the session", model: "model call", tool: "tools", user: "the simulated user", verify: "verify", close: "closing",
  replay: "coming back after an interruption", agent: "the agent" };
const ORDER = ["open", "replay", "model", "tool", "user", "agent", "verify", "close"];

export interface Turn { first: number; last: number; call: number | null }

/** Which items of the trajectory each model call wrote: its first, its last, and its first tool call. */
export function turnsOf(calls: Item[], items: Item[]): Turn[] {
  const isInput = (item: Item) => item.type === "function_call_output" || ((item.type ?? "message") === "message" && (item.role ?? "assistant") !== "assistant");
  let at = 0;
  return calls.map((call) => {
    if (Number.isInteger(call.at) && call.at >= 0) at = call.at;
    else while (at < items.length && isInput(items[at])) at++;
    const first = at;
    at += Number(call.items) || 0;
    const tool = items.slice(first, at).findIndex((item) => item.type === "function_call");
    return { first, last: at - 1, call: tool < 0 ? null : first + tool };
  });
}

export function Timeline({ data, show }: { data: OneRollout; show: (item: number) => void }) {
  const { steps } = data;
  if (!steps.length) return null;
  const total = Math.max(data.timings.total ?? 0, ...steps.map(([, , at, took]) => at + took), 1e-9);
  const own = data.calls.filter((call) => !call.given).length;
  const turns = turnsOf(data.calls, data.items);
  // A step belongs to a call only if every call has its step: a resumed rollout has fewer.
  const known = data.steps_total === steps.length && steps.filter(([, stage]) => stage === "model").length === own;
  let call = data.calls.length - own;
  const drawn = steps.map(([number, stage, at, took]) => {
    if (stage === "model") call++;
    const turn = known && call > 0 ? turns[call - 1] : undefined;
    const item = stage === "model" ? turn?.first : stage === "tool" ? turn?.call : undefined;
    const tool = stage === "tool" && item !== undefined && item !== null ? data.items[item]?.name : undefined;
    const name = stage === "model" && known ? `model call ${call}` : tool ? `tool ${String(tool).slice(0, 60)}` : NAMES[stage] ?? stage.slice(0, 40);
    return { number, stage, at, took, item, name };
  });
  const stages = ORDER.filter((stage) => drawn.some((step) => step.stage === stage));
  const slowest = [...drawn].sort((a, b) => b.took - a.took).slice(0, 5);
  const open = (event: Event) => {
    const at = (event.target as HTMLElement).dataset.step;
    const step = at === undefined ? undefined : drawn[Number(at)];
    if (step?.item !== undefined && step.item !== null && step.item >= 0) show(step.item);
  };
  return (
    <section class="steps-line" aria-label="Time of each step">
      <header><h2>{plural(data.steps_total, "step")} in {seconds(total)}</h2>
        <span class="legend">{stages.map((stage) => <span key={stage}><i class={`dot s-${stage}`} />{stage}</span>)}</span></header>
      <div class="lanes" role="img" aria-label={`The longest steps: ${slowest.map((step) => `${step.name} ${seconds(step.took)}`).join(", ")}`} onClick={open}>
        {drawn.map((step, index) => <i key={step.number} data-step={index} class={`s-${ORDER.includes(step.stage) ? step.stage : "agent"}${step.item !== undefined && step.item !== null ? " leads" : ""}`}
          style={{ left: `${(step.at / total) * 100}%`, width: `${(step.took / total) * 100}%` }} title={`${step.name}: ${seconds(step.took)}, begun at ${seconds(step.at)}`} />)}
      </div>
      <div class="axis" aria-hidden="true"><span>0</span><span>{seconds(total / 2)}</span><span>{seconds(total)}</span></div>
      {data.steps_total > steps.length && <p class="quiet small">The {steps.length} longest steps are drawn.</p>}
    </section>
  );
}
