// Questions to the server. An exported page answers them from data that it carries, a published one from files.

export interface Counts { dispatched: number; completed: number; masked: number; failed: number; ended_early: number; retried: number }
export interface Progress { bytes: number; facts: number; texts: number }
export interface Cost { total: number | null; per_completed: number | null; unpriced_tokens: Record<string, number> }
export interface RunLine {
  key: string; name: string; environments: string[]; model: string; started: string | null; problem: string | null;
  counts: Counts; reward: { mean: number | null; ci95: [number, number] | null; tasks: number; range?: [number, number] | null };
  "pass@k": Record<string, number>; tokens: { input: number | null; output: number | null }; cost: Cost | null;
  spark: (number | null)[]; index: Progress;
  state: { running: boolean; total: number | null; per_second: number | null; seconds_left: number | null;
    control: { only_stop: boolean; most: number | "auto" | null; paused: boolean; concurrency: number | null; stop: boolean } | null };
}
export interface Named { name: string | null; count: number }
export interface TaskCell {
  id: number; task_id: string; name: string; environment: string; about: string;
  completed: number; passed: number; failed: number; masked: number; mean: number | null;
}
export interface FailureGroup {
  stage: string; kind: string; count: number; final: number; cause: string; causes: number; example: number;
}
export interface EnvironmentCard { environment: string; card: Json | null; from: string | null; command: string }
export interface Overview extends RunLine {
  histogram: { low: number; high: number; counts: number[] };
  tasks: { total: number; every: number; cells: TaskCell[] };
  stages: { stage: string; seconds: number; rollouts: number }[];
  failures: FailureGroup[]; masks: Named[];
  tools: { name: string; calls: number; errors: number; rollouts: number }[];
  stop_reasons: Named[]; policies: Named[];
  components: { name: string; mean: number; low: number; high: number; count: number }[];
  values: { name: string; mean: number; low: number; high: number; count: number }[];
  lengths: {
    bins: { from: number; to: number; rollouts: number; mean_reward: number; pass_rate: number }[];
    cells: { rollouts: number; shortest: number; longest: number; low: number; high: number }[];
  };
  rolling: { share: number; mean: number; low: number | null; high: number | null; first: number; last: number; rollouts: number }[];
  turns: { turns: number; count: number }[];
  bad_lines: { total: number; first: { file: number; number: number; why: string }[] };
  tags: Record<string, number>; described: Json; loop: Json; warnings: string[]; cards: EnvironmentCard[];
}
export interface Listed {
  id: number; rollout_id: string; repeat: number; attempt: number; final: number; outcome: string;
  reward: number | null; stop_reason: string | null; mask: string | null; stage: string | null; kind: string | null;
  cause: string | null; turns: number; input_tokens: number | null; output_tokens: number | null; tool_calls: number;
  tool_errors: number; seconds: number | null; about: string; task_id: string; environment: string;
  note: string | null; tags: string[];
}
export interface Page { total: number; skip: number; rollouts: Listed[]; index: Progress }
export type Json = any;
export type Item = Record<string, Json>;
export interface Related {
  id: number; rollout_id: string; repeat: number; attempt: number; final: number; outcome: string;
  reward: number | null; parent: string | null; branch_turn: number;
}
export interface ThreadLine {
  name: string; kind: string; parent: string | null; calls: number; items: number; asked: string; restored: number; reward: number | null;
}
export interface OneRollout {
  id: number; run_name: string; facts: Json; place: { file: string; line: number; bytes: number }; note: string; tags: string[];
  around: { previous: number | null; next: number | null; place: number | null; total: number };
  related: { repeats: Related[]; branches: Related[]; root: string | null };
  prompt: Item[]; tools: Item[]; items: Item[]; items_total: number; calls: Item[]; verdict: Json; failure: Json;
  task: Json; timings: Record<string, number>; steps: [number, string, number, number][]; steps_total: number; usage: Json; tool_errors: Item[]; response: Json;
  threads: ThreadLine[]; restored: Record<string, string>;
}

export type Given = Record<string, string | number>;

const carried: Record<string, Json> | null = (() => {
  const found = document.getElementById("ludus-data");
  return found ? JSON.parse(found.textContent || "{}") : null;
})();
const folder = document.querySelector<HTMLMetaElement>('meta[name="ludus-data"]')?.content ?? null;

/** Whether there is a server. An exported or published page can only show what it holds. */
export const served = carried === null && folder === null;

export function address(path: string, given: Given = {}): string {
  const kept = Object.entries(given).filter(([, value]) => value !== "" && value !== undefined);
  kept.sort(([a], [b]) => (a < b ? -1 : 1));
  const listed = kept.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&");
  return `/api/${path}${listed ? `?${listed}` : ""}`;
}

export async function ask<T>(path: string, given: Given = {}, signal?: AbortSignal): Promise<T> {
  const wanted = address(path, given);
  if (carried !== null) {
    if (!(wanted in carried)) throw new Error("This file does not hold that page. Open the run with: ludus view");
    return carried[wanted] as T;
  }
  const from = folder === null ? wanted : folder + wanted.slice(5).replace(/[^\w-]/g, "_") + ".json";
  if (wanted.length > 60_000) throw new Refused("This search is too long. Leave some words out.");
  const missing = (reply: Response) => folder !== null && reply.status === 404;
  return reach<T>(from, { signal }, (reply) => missing(reply) ? "This site does not hold that page." : null);
}

export async function send<T>(path: string, body: Json): Promise<T> {
  const headers = { "Content-Type": "application/json" };
  return reach<T>(`/api/${path}`, { method: "POST", headers, body: JSON.stringify(body) }, () => null);
}

/** The viewer cannot be reached, or does not know this browser any more. It may come back. */
export class Unreachable extends Error {}

/** The viewer says no: the message is its own. */
export class Refused extends Error {}

async function reach<T>(from: string, how: RequestInit, missing: (reply: Response) => string | null): Promise<T> {
  try {
    const reply = await fetch(from, how);
    if (reply.ok) return (await reply.json()) as T; // a body that breaks off, or is aborted, is no answer
    const said = missing(reply) ?? (await reply.json().catch(() => null))?.detail;
    if (served && reply.status === 403 && said === "open the link that ludus view printed") {
      throw new Unreachable("The viewer was started again and does not know this page. Press Enter in its terminal, and open the link that it prints.");
    }
    throw new Refused(typeof said === "string" ? said : `The viewer answered ${reply.status}.`);
  } catch (error) {
    if (error instanceof TypeError) throw new Unreachable("The viewer does not answer. Is ludus view still running?");
    throw error;
  }
}
