// The threads of a rollout: the main conversation, sub-agents below what opened them, and side calls folded.
import { useState } from "preact/hooks";
import type { Item, OneRollout, ThreadLine } from "./api";
import { plural, reward, whole } from "./format";
import { blocksOf, ItemView } from "./items";
import { useAnswer } from "./live";
import { visible } from "./text";
import { turnsOf } from "./timeline";
import { Loading, Problem } from "./ui";
import { WrittenBlocks } from "./written";

const WORDS: Record<string, string> = { agent: "sub-agent", side: "side call", compacted: "compacted", main: "main" };

export function Threads({ data, now, to }: { data: OneRollout; now: string; to: (thread: string) => string }) {
  if (!data.threads.length) return null;
  const names = new Set(data.threads.map((thread) => thread.name));
  const sides = data.threads.filter((thread) => thread.kind === "side");
  const below = (parent: string, depth: number): ThreadLine[] => depth > 20 ? [] : data.threads.filter((thread) => thread.kind !== "side" &&
    (thread.parent !== null && names.has(thread.parent) && thread.parent !== thread.name ? thread.parent : "main") === parent);
  const branch = (parent: string, depth = 0) => {
    const list = below(parent, depth);
    return list.length > 0 && <ul>{list.map((thread) => <li key={thread.name}><Line thread={thread} now={now} to={to} />{branch(thread.name, depth + 1)}</li>)}</ul>;
  };
  const calls = data.calls.reduce((sum, call) => sum + (Number(call.restored) || 0), 0);
  const main: ThreadLine = { name: "main", kind: "main", parent: null, calls: data.calls.length, items: data.items_total, asked: "", restored: calls, reward: null };
  return (
    <nav class="threads" aria-label="Threads"><h2>{plural(data.threads.length + 1, "thread")}</h2>
      <ul class="tree"><li><Line thread={main} now={now} to={to} />{branch("main")}</li></ul>
      {sides.length > 0 && <details open={sides.some((thread) => thread.name === now)}><summary>{plural(sides.length, "side call")} <span class="quiet">of the program itself, not trained on</span></summary>
        <ul class="tree">{sides.map((thread) => <li key={thread.name}><Line thread={thread} now={now} to={to} /></li>)}</ul></details>}
    </nav>
  );
}

function Line({ thread, now, to }: { thread: ThreadLine; now: string; to: (thread: string) => string }) {
  return <><a href={to(thread.name)} aria-current={thread.name === now ? "page" : undefined}>{visible(thread.name)}</a>{" "}
    <span class="quiet small">{thread.kind !== "main" && `${WORDS[thread.kind] ?? thread.kind} · `}{plural(thread.calls, "call")}{thread.reward !== null && ` · reward ${reward(thread.reward)}`}</span>
    {thread.restored > 0 && <span class="pill none">{whole(thread.restored)} restored</span>}
    {thread.asked && <div class="quiet small clip">{visible(thread.asked)}</div>}</>;
}

/** What a reader should know before a turn, by the place of its first item. */
export function marksOf(calls: Item[], items: Item[]): Map<number, string> {
  const marks = new Map<number, string>();
  turnsOf(calls, items).forEach((turn, index) => {
    const call = calls[index], said: string[] = [];
    if (call.given === true) said.push("from the parent rollout");
    if (call.compacted === true) said.push("the program rewrote its history here");
    if (Number(call.restored) > 0) said.push(`restored: the model got ${plural(Number(call.restored), "item")} as it wrote ${Number(call.restored) === 1 ? "it" : "them"}, not as the program repeated ${Number(call.restored) === 1 ? "it" : "them"}`);
    if (said.length && turn.last >= turn.first) marks.set(turn.first, said.join("; "));
  });
  return marks;
}

/** The words for what was restored in the whole rollout. */
export function Restored({ counts }: { counts: Record<string, string> }) {
  const said = [counts.restored_items && `${plural(Number(counts.restored_items), "restored item")}: as the model wrote them, not as the program repeated them`,
    counts.kept_calls && `${plural(Number(counts.kept_calls), "answer")} saved before an interruption and given again${counts.alike_calls ? `, ${counts.alike_calls} of them to a request that differs in volatile text` : ""}`,
    counts.lost_calls && `${counts.lost_calls} saved answers were not asked for again`].filter(Boolean);
  return said.length ? <p class="restored">{visible(said.join("; "))}.</p> : null;
}

/** A thread beside the main one, from its first item to its last. */
export function ThreadConversation({ run, id, thread, words, has }: { run: string; id: number; thread: string; words: string[]; has: boolean }) {
  const [byToken, setByToken] = useState(false);
  const { data, problem } = useAnswer<{ items: Item[]; calls: Item[]; total: number }>("items", { run, id, thread, skip: 0 }, run, false);
  if (problem) return <Problem text={problem} />;
  if (!data) return <Loading />;
  const marks = marksOf(data.calls, data.items);
  const blocks = blocksOf(data.items);
  return <>{has && <div class="replay"><button type="button" aria-pressed={byToken} onClick={() => setByToken(!byToken)}>Token probabilities</button></div>}
    {!data.items.length && <p class="quiet">There is no thread {visible(thread)} in this rollout.</p>}
    {byToken ? <WrittenBlocks run={run} id={id} thread={thread} blocks={blocks} items={data.items} calls={data.calls} words={words} marks={marks} />
      : blocks.map((block) => <div key={block.at}>{marks.has(block.at) && <p class="restored">{marks.get(block.at)}</p>}<ItemView block={block} words={words} /></div>)}
    {data.total > data.items.length && <p class="quiet">The first {whole(data.items.length)} of {whole(data.total)} items. The tab Raw has all.</p>}</>;
}
