// The viewer: one page whose address says what is shown.
import { Component, render, type ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { served } from "./api";
import { CompareRollouts, CompareRuns } from "./compare";
import { Experiment } from "./experiment";
import { isTyping, useKeys } from "./keys";
import { useLost } from "./live";
import { shortName, useName } from "./names";
import { Play } from "./play";
import { Rollout } from "./rollout";
import { here, link, usePlace } from "./router";
import { Run } from "./run";
import { Runs } from "./runs";
import { Search } from "./search";
import { OneTask } from "./task";
import { Problem } from "./ui";
import "./style.css";

const KEYS: [string, string][] = [
  ["j  k", "next and previous run or rollout"], ["Enter", "open what is marked"], ["x", "tick a run to compare it"], ["/", "search"],
  ["1 2 3 4", "the tabs of a page"], ["r", "replay a rollout step by step"], ["← →", "one step of the replay"], ["Esc", "one level up"], ["t", "light or dark"], ["?", "this list"]];

function App() {
  const { path, given } = usePlace();
  const [kind, run, part, id] = path;
  const page = kind === "run" && part === "rollout" ? <Rollout key={run} run={run} id={Number(id)} given={given} />
    : kind === "run" && run ? <Run key={run} run={run} given={given} />
    : kind === "compare" && part ? <CompareRuns key={path.join(" ")} keys={path.slice(1)} />
    : kind === "experiment" ? <Experiment key={given.at ?? ""} given={given} />
    : kind === "search" && served ? <Search key={given.at ?? ""} given={given} />
    : kind === "task" && given.task && served ? <OneTask key={given.task} given={given} />
    : kind === "diff" && id ? <CompareRollouts key={run} run={run} a={Number(part)} b={Number(id)} />
    : kind === "play" && served ? <Play table={given.table ?? ""} />
    : kind ? <Problem text="There is no such page." /> : <Runs />;
  useEffect(() => { document.title = kind === "run" && part === "rollout" ? `rollout ${id} · ludus view` : "ludus view"; }, [path.join("/")]);
  return <Frame crumbs={<Crumbs path={path} />}><Boundary at={path.join("/")}>{page}</Boundary></Frame>;
}

/** A page that cannot be drawn says so, and the next address is drawn afresh. */
class Boundary extends Component<{ at: string; children: ComponentChildren }, { problem: string | null }> {
  state = { problem: null as string | null };
  static getDerivedStateFromError(error: unknown) { return { problem: String(error) }; }
  componentDidUpdate(before: { at: string }) { if (before.at !== this.props.at && this.state.problem) this.setState({ problem: null }); }
  render() { return this.state.problem ? <Problem text={`This page cannot be shown: ${this.state.problem}`} /> : this.props.children; }
}

function Crumbs({ path }: { path: string[] }) {
  const [kind, run, part, id] = path, name = useName(run);
  return <nav class="crumbs" aria-label="Where you are">
    <a href="#/">Runs</a>
    {(kind === "run" || kind === "diff") && <><span aria-hidden="true">/</span><a href={link(["run", run])} title={name} aria-current={part ? undefined : "page"}>{shortName(name) || "run"}</a></>}
    {kind === "run" && part && <><span aria-hidden="true">/</span><a href={link(["run", run], { tab: "rollouts", q: here().given.q, sort: here().given.sort })}>rollouts</a><span aria-hidden="true">/</span><span aria-current="page">{id}</span></>}
    {(kind === "experiment" || kind === "task" || (kind === "search" && here().given.at)) && <><span aria-hidden="true">/</span><a href={link(["experiment"], { at: here().given.at })} aria-current={kind === "experiment" ? "page" : undefined}>{here().given.at ?? "experiment"}</a></>}
    {kind === "search" && <><span aria-hidden="true">/</span><span aria-current="page">search</span></>}
    {kind === "task" && <><span aria-hidden="true">/</span><span aria-current="page">task</span></>}
    {(kind === "compare" || kind === "diff") && <><span aria-hidden="true">/</span><span aria-current="page">compare</span></>}
  </nav>;
}

function Frame({ crumbs, children }: { crumbs: ComponentChildren; children: ComponentChildren }) {
  const help = useRef<HTMLDialogElement>(null);
  const [theme, setTheme] = useState(() => { try { return localStorage.getItem("ludus-theme") ?? ""; } catch { return ""; } });
  useEffect(() => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    try { localStorage.setItem("ludus-theme", theme); } catch { /* a private window */ }
    dispatchEvent(new Event("themechange"));
  }, [theme]);
  const turn = () => setTheme((now) => now === "dark" || (!now && matchMedia("(prefers-color-scheme: dark)").matches) ? "light" : "dark");
  useKeys({ "?": () => help.current?.showModal(), t: turn, "/": () => document.getElementById("search")?.focus() });
  useLayoutEffect(() => {
    const leave = (event: KeyboardEvent) => { if (event.key === "Escape" && isTyping(event.target)) (event.target as HTMLElement).blur(); };
    addEventListener("keydown", leave);
    return () => removeEventListener("keydown", leave);
  }, []);
  return (
    <>
      <a class="skip" href="#main" onClick={(event) => { event.preventDefault(); const main = document.getElementById("main"); main?.setAttribute("tabindex", "-1"); main?.focus(); }}>Skip to the content</a>
      <header class="top">
        <a class="brand" href="#/" aria-label="ludus view, all runs"><svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M8 8v16h8M18 24V14m6 10V8" /></svg><span>ludus</span></a>
        {crumbs}
        <div class="tools">
          {served && <a class="quiet" href="#/play">Play</a>}
          {!served && <span class="quiet">an exported copy</span>}
          <button type="button" class="plain" onClick={turn} aria-label="Light or dark">◐</button>
          <button type="button" class="plain" onClick={() => help.current?.showModal()} aria-label="Keys">?</button>
        </div>
      </header>
      <Lost />
      {children}
      <dialog ref={help} aria-labelledby="keys-title">
        <h2 id="keys-title">Keys</h2>
        <dl class="pairs">{KEYS.map(([key, meaning]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{meaning}</dd></div>)}</dl>
        <form method="dialog"><button>Close</button></form>
      </dialog>
    </>
  );
}

/** What is shown may be out of date while the viewer cannot be reached. */
function Lost() {
  const lost = useLost();
  return lost && <p class="problem lost" role="alert">{lost} What you see may be out of date. This page goes on by itself when it can.</p>;
}

render(<App />, document.getElementById("app")!);
