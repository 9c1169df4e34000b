// Play: take part in a rollout, as the model or as the user of a model.
import { useEffect, useRef, useState } from "preact/hooks";
import { send, Unreachable, type Item, type Json } from "./api";
import { blocksOf, ItemView } from "./items";
import { useAnswer } from "./live";
import { go, link } from "./router";
import { JsonView, visible } from "./text";
import { Empty, Loading, Outcome, Problem } from "./ui";

interface Entry { item?: Item; said?: string; typed?: boolean }
interface Shown { entries: Entry[]; state: string; as: string; tools: string[]; abouts: Record<string, string>; result: Json; problem: string | null }

/** The address holds the rollout that is played, so that it goes on after a reload. */
export function Play({ table }: { table: string }) {
  const { data, problem } = useAnswer<{ environments: string[]; model: string | null }>("play", {}, null, false);
  const [environment, setEnvironment] = useState("");
  const [row, setRow] = useState("1");
  const [as, setAs] = useState("model");
  const setTable = (name: string) => go(link(["play"], { table: name }));
  const [said, setSaid] = useState("");
  if (problem) return <Problem text={problem} />;
  if (!data) return <Loading />;
  const start = async () => {
    if (!/^[1-9]\d{0,8}$/.test(row.trim())) { setSaid(`A row is a whole number from 1, not ${row.trim() || "nothing"}.`); return; }
    try {
      setSaid("");
      setTable((await send<{ table: string }>("play/start", { environment: environment || data.environments[0], row: Number(row), as })).table);
    } catch (error) { setSaid((error as Error).message); }
  };
  return (
    <main id="main">
      <header class="page-head"><h1>Play</h1></header>
      {!data.environments.length && <Empty title="No environment is offered">
        <p>A session runs the environment's code, so you name what may be played:</p>
        <pre>ludus view runs --play mcqa --play-model local</pre></Empty>}
      {data.environments.length > 0 && !table && <div class="play-start">
        <label>Environment <select value={environment || data.environments[0]} onChange={(event) => setEnvironment(event.currentTarget.value)}>
          {data.environments.map((name) => <option key={name} value={name}>{name}</option>)}</select></label>
        <label>Row <input type="number" min={1} value={row} onInput={(event) => setRow(event.currentTarget.value)} /></label>
        <label>You are <select value={as} onChange={(event) => setAs(event.currentTarget.value)}>
          <option value="model">the model</option>{data.model && <option value="user">the user of {data.model}</option>}</select></label>
        <button type="button" class="primary" onClick={start}>Start</button></div>}
      {data.environments.length > 0 && !table && !data.model && <p class="quiet small">To talk to a model as its user, start the viewer with{" "}
        <code>--play-model MODEL</code>. More environments: <code>--play ENV</code>.</p>}
      {said && <Problem text={said} />}
      {table && <Table key={table} table={table} again={() => setTable("")} />}
    </main>
  );
}

function Table({ table, again }: { table: string; again: () => void }) {
  const [shown, setShown] = useState<Shown>({ entries: [], state: "opening", as: "model", tools: [], abouts: {}, result: null, problem: null });
  const asModel = shown.as === "model";
  const [line, setLine] = useState("");
  const [said, setSaid] = useState("");
  const count = useRef(0), end = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let stopped = false, lost = "";
    const look = async () => {
      try {
        const found = await send<Shown>("play/look", { table, skip: count.current });
        count.current += found.entries.length;
        if (!stopped) setShown((old) => ({ ...found, entries: [...old.entries, ...found.entries] }));
        if (found.state === "ended") return;
        setSaid((old) => (old === lost ? "" : old));
        lost = "";
      } catch (error) {
        if (stopped) return;
        setSaid((error as Error).message);
        if (!(error instanceof Unreachable)) { setShown((old) => ({ ...old, state: "ended" })); return; }
        lost = (error as Error).message;
      }
      if (!stopped) setTimeout(look, 400);
    };
    void look();
    return () => { stopped = true; };
  }, [table]);
  useEffect(() => { end.current?.scrollIntoView({ block: "nearest" }); }, [shown.entries.length, shown.state]);
  const act = async (name: string, more: Json = {}) => {
    try { setSaid(""); await send(`play/${name}`, { table, ...more }); return true; } catch (error) { setSaid((error as Error).message); return false; }
  };
  const submit = (event: Event) => {
    event.preventDefault();
    if (!line.trim() || shown.state !== "yours") return;
    setShown((old) => ({ ...old, state: "waiting" }));
    setLine("");
    void act("say", { line }).then((sent) => { // a line that was not sent can be sent again
      if (!sent) { setLine((typed) => typed || line); setShown((old) => (old.state === "waiting" ? { ...old, state: "yours" } : old)); }
    });
  };
  const keyed = (event: KeyboardEvent) => { if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event); };
  const items = shown.entries.map((entry) => entry.item ?? { type: "said", text: entry.said });
  return (
    <div class={shown.tools.length ? "with-side" : ""}>
    <div class="conversation play">
      <h2 class="sr-only">Conversation</h2>
      {blocksOf(items).map((block) => block.item.type === "said" && shown.entries[block.at].said !== undefined
        ? <p key={block.at} class="quiet">{visible(shown.entries[block.at].said ?? "")}</p>
        : <ItemView key={block.at} block={block} words={[]} />)}
      {shown.state === "opening" && <p class="quiet" aria-live="polite">Opening the session…</p>}
      {shown.state === "waiting" && <p class="quiet" aria-live="polite">Waiting…</p>}
      {shown.problem && <Problem text={shown.problem} />}
      {said && <Problem text={said} />}
      {shown.result && <section class="item"><h3>verdict</h3><p><Outcome outcome={shown.result.outcome} reward={shown.result.reward ?? null} /></p><JsonView value={shown.result} /></section>}
      {shown.state !== "ended" ? <form class="play-line" onSubmit={submit}>
        <label class="sr-only" for="line">{asModel ? "Your answer or tool call" : "Your message"}</label>
        <textarea id="line" autocomplete="off" value={line} disabled={shown.state !== "yours"} onInput={(event) => setLine(event.currentTarget.value)} onKeyDown={keyed}
          rows={Math.min(12, Math.max(1, line.split("\n").length))} aria-describedby="line-keys"
          placeholder={shown.state !== "yours" ? "" : asModel ? "An answer, or a call: NAME key=value" : "The next message to the model"} />
        <button disabled={shown.state !== "yours"}>Send</button>
        <button type="button" disabled={shown.state !== "yours"} onClick={() => void act("verdict")}>Verdict</button>
        <button type="button" onClick={() => void act("leave")}>Leave</button></form>
        : <p><button type="button" onClick={again}>Play another</button></p>}
      {shown.state !== "ended" && <p class="quiet small" id="line-keys"><kbd>Enter</kbd> sends, <kbd>Shift</kbd> <kbd>Enter</kbd> begins a new line.</p>}
      <div ref={end} />
    </div>
    {shown.tools.length > 0 && <aside aria-label="Tools"><section><h2>Tools</h2><ul class="offered-tools">{shown.tools.map((tool) => <li key={tool}><code>{visible(tool)}</code>
      {shown.abouts[tool] && <p class="quiet small">{visible(shown.abouts[tool])}</p>}</li>)}</ul></section></aside>}
    </div>
  );
}
