// One task over all runs of a folder.
import { plural, reward, whole } from "./format";
import { useKeys } from "./keys";
import { useAnswer } from "./live";
import { Plot } from "./plot";
import { go, link } from "./router";
import { visible } from "./text";
import { Card, Loading, Outcome, Problem } from "./ui";

interface TaskLine { key: string; name: string; step: number | null; rollouts: number; completed: number; passed: number; mean: number | null;
  listed: { id: number; repeat: number; outcome: string; reward: number | null }[] }
interface Shown { at: string; task: string; asked: string; runs: TaskLine[] }

export function OneTask({ given }: { given: Record<string, string> }) {
  const at = given.at ?? "", task = given.task ?? "", environment = given.environment ?? "";
  const { data, problem } = useAnswer<Shown>("task", { at, task, environment });
  useKeys({ Escape: () => go(link(["experiment"], { at })) });
  if (problem && !data) return <Problem text={problem} />;
  if (!data) return <Loading />;
  const query = `task:"${task.replace(/"/g, "")}"`, list = (key: string) => link(["run", key], { tab: "rollouts", q: query });
  const points = data.runs.filter((run) => run.step !== null && run.mean !== null).map((run) => ({ x: run.step!, y: run.mean!, href: list(run.key), said: `${run.name}: mean reward ${reward(run.mean)}` }));
  points.sort((a, b) => a.x - b.x);
  return (
    <main id="main">
      <header class="page-head"><div><h1 class="id">{visible(task)}</h1><p class="quiet">{visible(data.asked)}</p></div>
        <div class="tools"><a class="button" href={link(["experiment"], { at })}>All tasks</a></div></header>
      {points.length > 1 && <Card title="Mean reward over checkpoints" wide><Plot lines={[{ name: "task", style: 0, points }]} x="checkpoint" y="mean reward" label="Mean reward of this task over checkpoints" from={0} to={1} /></Card>}
      <Card title="Runs" wide note={plural(data.runs.length, "run")}>
        <table class="tasks"><thead><tr><th scope="col">Run</th><th scope="col" class="number">Checkpoint</th><th scope="col" class="number">Mean reward</th><th scope="col" class="number">Passed</th><th scope="col">Rollouts</th></tr></thead>
          <tbody>{data.runs.map((run) => <tr key={run.key}><td><a href={list(run.key)}>{visible(run.name)}</a></td>
            <td class="number" data-label="Checkpoint">{run.step ?? "–"}</td><td class="number" data-label="Mean reward">{reward(run.mean)}</td>
            <td class="number" data-label="Passed">{whole(run.passed)} of {whole(run.completed)}</td>
            <td data-label="Rollouts"><ul class="repeats">{run.listed.map((each) => <li key={each.id}><a href={link(["run", run.key, "rollout", each.id], { q: query })} aria-label={`repeat ${each.repeat}: ${each.outcome} ${reward(each.reward)}`}><Outcome outcome={each.outcome} reward={each.reward} small /></a></li>)}
              {run.rollouts > run.listed.length && <li class="quiet small">of {whole(run.rollouts)}</li>}</ul></td></tr>)}</tbody></table></Card>
    </main>
  );
}
