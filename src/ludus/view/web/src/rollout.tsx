// The page of one rollout: the conversation, the verdict, the times, the notes.
import { Fragment } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { ask, send, served, type Item, type OneRollout, type Related } from "./api";
import { bytes, plural, reward, seconds, short, whole } from "./format";
import { blocksOf, ItemView } from "./items";
import { useKeys } from "./keys";
import { useAnswer } from "./live";
import { learnName } from "./names";
import { go, link } from "./router";
import { JsonView, Text, visible, wordsOf } from "./text";
import { marksOf, Restored, ThreadConversation, Threads } from "./threads";
import { Timeline, turnsOf } from "./timeline";
import { Tokens } from "./tokens";
import { Loading, Outcome, Pairs, Problem, Tabs } from "./ui";
import { transcriptsOf, VerdictEnd } from "./verdict";
import { WrittenBlocks } from "./written";

export function Rollout({ run, id, given }: { run: string; id: number; given: Record<string, string> }) {
  const query = given.q ?? "", sort = given.sort ?? "order";
  const { data, problem, loading } = useAnswer<OneRollout>("rollout", { run, id, q: query, sort }, run, false);
  const tab = given.tab ?? "conversation", thread = given.thread ?? "main";
  const to = (next: number | null, name = tab) => next === null ? undefined
    : link(["run", run, "rollout", next], { q: query, sort: sort === "order" ? undefined : sort, tab: name === "conversation" ? undefined : name });
  const step = (next: number | null | undefined) => { const found = to(next ?? null); if (found) go(found, true); };
  const pick = (name: string) => go(to(id, name) ?? "", true);
  useKeys({
    j: () => step(data?.around.next), k: () => step(data?.around.previous),
    Escape: () => go(link(["run", run], { tab: "rollouts", q: query, sort: sort === "order" ? undefined : sort })),
    1: () => pick("conversation"), 2: () => pick("tokens"), 3: () => pick("task"), 4: () => pick("raw"),
  });
  useEffect(() => { if (data) learnName(run, data.run_name); }, [data?.run_name]);
  if (problem) return <Problem text={problem} />;
  if (!data) return <Loading />;
  const { facts } = data;
  return (
    <main id="main" class={loading ? "rollout stale" : "rollout"}>
      <header class="page-head">
        <div>
          <h1 class="id">{visible(facts.rollout_id)} <Outcome outcome={facts.outcome} reward={facts.reward} /></h1>
          <p class="quiet">{[facts.environment, `repeat ${facts.repeat}`, facts.attempt > 1 ? `attempt ${facts.attempt}` : "", data.failure ? "" : facts.stop_reason ?? "",
            plural(facts.turns, "model call"), seconds(facts.t_total)].filter(Boolean).join(" · ")}</p>
        </div>
        <nav class="tools" aria-label="Other rollouts">
          <a class="button" aria-disabled={data.around.previous === null} href={to(data.around.previous)} title="k">Previous</a>
          <span class="quiet">{data.around.place !== null && `${whole(data.around.place)} of ${whole(data.around.total)}`}</span>
          <a class="button" aria-disabled={data.around.next === null} href={to(data.around.next)} title="j">Next</a>
        </nav>
      </header>
      <Tabs label="Parts of the rollout" now={tab} onPick={pick} tabs={[["conversation", "Conversation"],
        ["tokens", "Tokens"], ["task", "Task and verdict"], ["raw", "Raw"]]} />
      <div class="with-side">
        <div id="panel" role="tabpanel" aria-labelledby={`tab-${tab}`}>
          {tab === "tokens" ? <Tokens key={data.id} run={run} id={data.id} has={Boolean(facts.has_tokens)} />
            : tab === "task" ? <TaskTab data={data} />
            : tab === "raw" ? <Raw key={data.id} run={run} id={data.id} size={data.place.bytes} />
            : <><Threads data={data} now={thread} to={(name) => link(["run", run, "rollout", id], { ...given, thread: name === "main" ? undefined : name })} />
                <Restored counts={data.restored} />
                {thread === "main" ? <Conversation key={data.id} run={run} data={data} words={wordsOf(query)} />
                  : <div class="conversation"><ThreadConversation key={thread} run={run} id={data.id} thread={thread} has={Boolean(facts.has_tokens)} words={wordsOf(query)} /></div>}</>}
        </div>
        <Side run={run} data={data} to={to} />
      </div>
    </main>
  );
}

/** Whether an item belongs to a prompt: a program may send one of its own. */
const ownPrompt = (item?: Item) => item?.type === "message" && item.role !== "assistant";

function Conversation({ run, data, words }: { run: string; data: OneRollout; words: string[] }) {
  const [items, setItems] = useState<Item[]>(data.items);
  const [upTo, setUpTo] = useState<number | null>(null);
  const [shown, setShown] = useState(60);
  const [problem, setProblem] = useState("");
  const [wanted, setWanted] = useState<number | null>(null);
  const blocks = blocksOf(items);
  const rewards = turnRewards(data, items), marks = marksOf(data.calls, items);
  const end = useRef<HTMLDivElement>(null), asking = useRef(false);
  const more = async () => {
    if (shown < blocks.length) { setShown(shown + 100); return; }
    if (items.length >= data.items_total || !served || asking.current) return;
    asking.current = true;
    try {
      const found = await ask<{ items: Item[] }>("items", { run, id: data.id, skip: items.length });
      setItems([...items, ...found.items]);
      setShown(shown + found.items.length);
    } catch (error) { setProblem((error as Error).message); }
    asking.current = false;
  };
  useEffect(() => {
    if (!end.current || upTo !== null) return undefined;
    const watch = new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) void more(); }, { rootMargin: "600px" });
    watch.observe(end.current);
    return () => watch.disconnect();
  }, [shown, items.length, upTo]);
  useEffect(() => { if (upTo !== null) document.querySelector(".block:last-of-type")?.scrollIntoView({ block: "nearest" }); }, [upTo]);
  useEffect(() => {
    if (wanted === null) return;
    document.getElementById(`item-${wanted}`)?.scrollIntoView({ block: "center" });
    setWanted(null);
  }, [wanted]);
  const hasTokens = Boolean(data.facts.has_tokens) || data.items.some((item) => Array.isArray(item.content) && item.content.some((part: Item) => part?.logprobs?.length));
  const [byToken, setByToken] = useState(false);
  const steps = Math.min(blocks.length, 2000);
  useKeys({
    r: () => setUpTo((now) => (now === null ? 1 : null)),
    ArrowRight: () => setUpTo((now) => (now === null ? null : Math.min(now + 1, steps))),
    ArrowLeft: () => setUpTo((now) => (now === null ? null : Math.max(now - 1, 0))),
  });
  const visibleBlocks = blocks.slice(0, upTo ?? shown), early = endedEarly(data);
  return (
    <div class="conversation">
      <h2 class="sr-only">Conversation</h2>
      {upTo === null && <Timeline data={data} show={(item) => { setShown(Math.max(shown, item + 60)); setWanted(item); }} />}
      <div class="replay">
        <button type="button" aria-pressed={upTo !== null} onClick={() => setUpTo(upTo === null ? 1 : null)}>{upTo === null ? "Replay step by step" : "Show all"}</button>
        {upTo !== null && <>
          <button type="button" onClick={() => setUpTo(Math.max(upTo - 1, 0))}>Back</button>
          <input type="range" aria-label="Step of the replay" min={0} max={steps} value={upTo} onInput={(event) => setUpTo(Number(event.currentTarget.value))} />
          <button type="button" onClick={() => setUpTo(Math.min(upTo + 1, steps))}>Next step</button>
          <span class="quiet">{upTo} of {steps}</span></>}
        {upTo === null && hasTokens && <button type="button" aria-pressed={byToken} onClick={() => setByToken(!byToken)}>Token probabilities</button>}
      </div>
      {data.tools.length > 0 && <details class="offered"><summary>{plural(data.tools.length, "tool")} offered: {visible(data.tools.map((tool) => String(tool.name ?? tool.type)).join(", ").slice(0, 200))}</summary>
        <JsonView value={data.tools} /></details>}
      {blocksOf(data.prompt).map((block) => <ItemView key={`p${block.at}`} block={block} words={words} />)}
      {data.items_total > 0 && <div class="divider"><span>{ownPrompt(items[0]) ? "the program begins with its own prompt" : "the model answers"}</span></div>}
      {byToken && upTo === null ? <WrittenBlocks run={run} id={data.id} thread="" marks={marks} blocks={visibleBlocks} items={items} calls={data.calls} words={words} />
        : visibleBlocks.map((block) => <Fragment key={block.at}>{marks.has(block.at) && <p class="restored">{marks.get(block.at)}</p>}
        <ItemView block={block} words={words} turnReward={rewards.get(block.at)} /></Fragment>)}
      {data.failure && upTo === null && <div class={`item ${early ? "" : "failure"}`}><h3>{early ? "ended early" : `failed in stage ${visible(String(data.failure.stage))}: ${visible(String(data.failure.kind))}`}</h3>
        <Text value={data.failure.cause ?? ""} mono />{data.failure.where && <p class="quiet">{visible(String(data.failure.where))}</p>}</div>}
      {upTo === null && visibleBlocks.length === blocks.length && items.length >= data.items_total && <VerdictEnd data={data} />}
      {!data.items_total && !data.failure && <p class="quiet">The model wrote nothing.</p>}
      {problem && <Problem text={problem} />}
      {upTo === null && (visibleBlocks.length < blocks.length || items.length < data.items_total) &&
        <div ref={end}><button type="button" class="more" onClick={() => void more()}>
          {served ? `More of ${whole(data.items_total)} items` : `This file holds ${whole(items.length)} of ${whole(data.items_total)} items`}</button></div>}
    </div>
  );
}

/** The reward of each turn, by the place of the turn's last item. */
function turnRewards(data: OneRollout, items: Item[]): Map<number, number> {
  const rewards = data.verdict.turn_rewards, found = new Map<number, number>();
  if (!Array.isArray(rewards) || rewards.length !== data.calls.length) return found;
  turnsOf(data.calls, items).forEach((turn, index) => {
    if (turn.last >= turn.first && typeof rewards[index] === "number") found.set(turn.last, rewards[index]);
  });
  return found;
}

function TaskTab({ data }: { data: OneRollout }) {
  return (
    <div class="stack">
      <section><h2>Verdict</h2><JsonView value={data.failure ?? data.verdict} /></section>
      <section><h2>Task</h2><JsonView value={data.task} /></section>
      <section><h2>Model calls</h2><JsonView value={data.calls} /></section>
      <section><h2>Response</h2><JsonView value={data.response} /></section>
    </div>
  );
}

function Raw({ run, id, size }: { run: string; id: number; size: number }) {
  const [text, setText] = useState<string | null>(null);
  const [said, setSaid] = useState("");
  const load = async () => {
    const found = await fetch(`/api/raw?run=${encodeURIComponent(run)}&id=${id}`).then((reply) => reply.text());
    try { setText(JSON.stringify(JSON.parse(found), null, 2)); } catch { setText(found); }
    return found;
  };
  useEffect(() => { if (served && size < 2_000_000) void load(); }, []);
  const copy = async () => {
    try { await navigator.clipboard.writeText(await load()); setSaid("Copied."); } catch { setSaid("The browser did not allow it."); }
  };
  if (!served) return <p class="quiet">The raw record is not part of this page. Open the run with: ludus view</p>;
  return (
    <div>
      <p class="tools"><button type="button" onClick={copy}>Copy the line ({bytes(size)})</button>
        {text === null && size >= 2_000_000 && <button type="button" onClick={() => void load()}>Show it all the same</button>}<span class="quiet" aria-live="polite">{said}</span></p>
      {text !== null && <Text value={text} mono />}
    </div>
  );
}

const endedEarly = (data: OneRollout) => data.facts.outcome === "ended_early";

const STAGE_ORDER = ["open", "connect", "model", "tool", "user", "verify", "group", "close"];

function Side({ run, data, to }: { run: string; data: OneRollout; to: (id: number | null) => string | undefined }) {
  const { verdict, timings, usage } = data, early = endedEarly(data);
  const parts = STAGE_ORDER.filter((stage) => typeof timings[stage] === "number" && timings[stage] > 0)
    .map((stage): [string, number] => [stage, stage === "model" ? Math.max(0, timings.model - (timings.connect ?? 0)) : timings[stage]]);
  const known = parts.reduce((sum, [, value]) => sum + value, 0), rest = (timings.total ?? 0) - known;
  if (rest > 0) parts.push(["agent", rest]);
  const total = Math.max(timings.total ?? 0, known) || 1;
  return (
    <aside aria-label="About this rollout">
      <section><h2>Verdict</h2>
        {early ? <p><span class="pill none">ended early</span> {visible(String(data.failure?.cause ?? ""))}. No reward exists.</p>
          : data.failure ? <p><span class="pill failed">failed</span> in stage <b>{visible(String(data.failure.stage))}</b>: {visible(String(data.failure.kind))}. No reward exists.</p>
          : <Pairs rows={[
              ["reward", <b class="big">{reward(verdict.reward)}</b>],
              ...(verdict.mask ? [["masked because", <span class="masked-text">{visible(String(verdict.mask))}</span>] as [string, any]] : []),
              ...Object.entries(verdict.reward_components ?? {}).map(([name, value]): [string, any] => [name, typeof value === "number" ? reward(value) : String(value)]),
              ...Object.entries(verdict.values ?? {}).filter(([name]) => !transcriptsOf(verdict.values).some(([judged]) => judged === name)).slice(0, 30).map(([name, value]): [string, any] => [name, short_(value)]),
              ...(verdict.receipt ? [["receipt", <code class="small">{visible(String(verdict.receipt))}</code>] as [string, any]] : [])]} />}
        {data.tool_errors.map((error, index) => <p key={index} class="failed-text small">{visible(String(error.tool))} raised {visible(String(error.exception))} ×{error.count}</p>)}
      </section>
      {parts.length > 0 && <section><h2>Time <span class="quiet">{seconds(timings.total)}</span></h2>
        {!data.steps.length && <div class="timeline" role="img" aria-label={parts.map(([stage, value]) => `${stage} ${seconds(value)}`).join(", ")}>
          {parts.map(([stage, value]) => <i key={stage} class={`s-${stage}`} style={{ width: `${(value / total) * 100}%` }} title={`${stage}: ${seconds(value)}`} />)}</div>}
        <Pairs rows={parts.map(([stage, value]) => [stage === "agent" ? "the agent, and waiting for a slot" : stage, <><i class={`dot s-${stage}`} />{seconds(value)}</>])} /></section>}
      {Object.keys(usage).length > 0 && <section><h2>Tokens</h2><Pairs rows={[["in", whole(usage.input_tokens)],
        ...(usage.input_tokens_details?.cached_tokens ? [["cached", whole(usage.input_tokens_details.cached_tokens)] as [string, any]] : []),
        ["out", whole(usage.output_tokens)],
        ...(usage.output_tokens_details?.reasoning_tokens ? [["reasoning", whole(usage.output_tokens_details.reasoning_tokens)] as [string, any]] : [])]} /></section>}
      <Notes key={data.id} run={run} data={data} />
      {data.related.repeats.length > 1 && <section><h2>The same task <span class="quiet">{short(data.related.repeats.length)}</span></h2>
        <ul class="repeats">{data.related.repeats.map((each) => <li key={each.id}>
          <a aria-current={each.id === data.id ? "page" : undefined} href={to(each.id)}><Outcome outcome={each.outcome} reward={each.reward} small /><span class="sr-only">repeat {each.repeat}</span></a>
          {each.id !== data.id && served && <a class="small" href={link(["diff", run, data.id, each.id])} aria-label={`Compare with repeat ${each.repeat}`}>compare</a>}</li>)}</ul>
        {served && <p class="small"><a href={link(["task"], { task: data.facts.task_id, environment: data.facts.environment })}>This task in all runs</a></p>}</section>}
      {data.related.branches.length > 0 && <section><h2>Branches</h2><Tree data={data} to={to} /></section>}
      <section><h2>Place</h2><p class="quiet small">{data.place.file}, line {whole(data.place.line)}, {bytes(data.place.bytes)}</p></section>
    </aside>
  );
}

function Tree({ data, to }: { data: OneRollout; to: (id: number | null) => string | undefined }) {
  const { branches, root } = data.related;
  const line = (each: Related) => <a href={to(each.id)} aria-current={each.id === data.id ? "page" : undefined}>
    <Outcome outcome={each.outcome} reward={each.reward} small /> {visible(each.rollout_id)}</a>;
  const parent = branches.find((each) => !each.parent);
  return (
    <ul class="tree"><li>{parent ? line(parent) : <span class="quiet">{visible(root ?? "")}, in another run</span>}
      <ul>{branches.filter((each) => each.parent).map((each) => <li key={each.id}><span class="quiet small">after {plural(each.branch_turn, "call")}</span> {line(each)}</li>)}</ul></li></ul>
  );
}

function Notes({ run, data }: { run: string; data: OneRollout }) {
  const [note, setNote] = useState(data.note);
  const [tags, setTags] = useState(data.tags.join(" "));
  const [said, setSaid] = useState("");
  const save = async () => {
    try {
      await send("note", { run, id: data.id, note, tags: tags.split(/\s+/).filter(Boolean) });
      setSaid("Saved beside the run.");
    } catch (error) { setSaid((error as Error).message); }
  };
  const changed = note !== data.note || tags !== data.tags.join(" ");
  if (!served) {
    return data.note || data.tags.length ? <section><h2>Note</h2><p>{data.tags.map((tag) => <span class="tag" key={tag}>{tag}</span>)}</p><Text value={data.note} /></section> : null;
  }
  return (
    <section><h2>Note</h2>
      <label class="sr-only" for="note">Note</label>
      <textarea id="note" rows={2} placeholder="What did you see?" value={note} onInput={(event) => { setNote(event.currentTarget.value); setSaid(""); }} />
      <label class="sr-only" for="tags">Tags</label>
      <input id="tags" placeholder="tags, with spaces between" value={tags} onInput={(event) => { setTags(event.currentTarget.value); setSaid(""); }} />
      <p class="tools"><button type="button" disabled={!changed} onClick={save}>Save</button><span class="quiet small" aria-live="polite">{said}</span></p>
    </section>
  );
}

const short_ = (value: unknown) => {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  return visible(text.length > 120 ? `${text.slice(0, 120)}…` : text);
};
