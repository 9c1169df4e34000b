// The trainer's eye: the tokens of a rollout as a trainer sees them.
import { useState } from "preact/hooks";
import { plural, reward, whole } from "./format";
import { useAnswer } from "./live";
import { visible } from "./text";
import { Empty, Loading, Pairs, Problem, Stat } from "./ui";
import { Chances, NoText, surprise } from "./written";

interface Sequence {
  length: number; trained: number; ids: number[]; mask: number[]; logprobs: (number | null)[];
  policy_versions: (string | null)[]; samplings: unknown[]; pieces: string[] | null;
}
interface Span { call: number; sequence: number; from: number; to: number; policy: string | null; entropies?: (number | null)[] }
interface Call {
  call: number; policy: string | null; prompt: number | null; generated: number | null; logprob: number | null;
  entropy: number | null; entropy_is_least: boolean; sampling: Record<string, unknown> | null; given: boolean;
}
interface Break { call: number; at: number; length: number; why: string[]; before: number[]; after: number[]; before_text?: string; after_text?: string }
interface Trainer {
  sequences: Sequence[]; calls: Call[]; calls_total: number; spans: Span[]; breaks: Break[]; tokenizer: string | null; tokenizer_note?: string | null; missing: number[]; mask: string | null;
  advantage: { group: number; rewards: number[]; minus_mean: number; z_score: number; signal: boolean } | null;
}
const COLOURS: [string, string][] = [["mask", "loss mask"], ["logprob", "logprob"], ["entropy", "entropy"], ["call", "model call"], ["policy", "policy version"], ["advantage", "advantage"]];

export function Tokens({ run, id, has }: { run: string; id: number; has: boolean }) {
  const { data, problem } = useAnswer<Trainer>("tokens", { run, id }, run, false);
  const [by, setBy] = useState("mask");
  if (problem) return <Problem text={problem} />;
  if (!data) return <Loading />;
  const unsure = data.calls.some((call) => call.entropy !== null);
  if (!has) {
    return <><Empty title="This rollout has no token ids">
      <p class="quiet">Collect with <code>--tokens</code> and a model that reports them, and trainers get exactly what the model read and wrote.</p></Empty>
      {unsure && <Calls data={data} />}</>;
  }
  const byToken = data.spans.some((span) => span.entropies);
  const trained = data.sequences.reduce((sum, each) => sum + each.trained, 0);
  const total = data.sequences.reduce((sum, each) => sum + each.length, 0);
  const policies = [...new Set(data.spans.map((span) => span.policy ?? "unknown"))];
  return (
    <div class="trainer">
      <dl class="stats compact">
        <Stat name="Sequences">{data.sequences.length}</Stat>
        <Stat name="Tokens" note={`${whole(trained)} trained on`}>{whole(total)}</Stat>
        <Stat name="Advantage" note={data.advantage ? `z-score ${reward(data.advantage.z_score)}, group of ${data.advantage.group}` : "no reward"}>
          {data.advantage ? reward(data.advantage.minus_mean) : "–"}</Stat>
        <Stat name="Policy versions">{policies.length}</Stat>
      </dl>
      {data.advantage && !data.advantage.signal && data.advantage.group > 1 &&
        <p class="warning">All {data.advantage.group} rewards of the group are equal: this group teaches nothing.</p>}
      {data.mask && <p class="warning">Masked: {visible(data.mask)}. A trainer leaves this rollout out.</p>}
      {data.missing.length > 0 && <p class="warning">No token ids for model call {data.missing.join(", ")}.</p>}
      {data.breaks.map((each) => <div class="warning" key={each.call}>
        <p>A new sequence starts at call {each.call}: its prompt shares {whole(each.at)} of {whole(each.length)} ids with what came before.</p>
        <ul class="why">{each.why.map((reason) => <li key={reason}>{reason}</li>)}</ul>
        <Pairs rows={[["before", <code>{visible(each.before_text ?? each.before.join(" "))}</code>], ["after", <code>{visible(each.after_text ?? each.after.join(" "))}</code>]]} /></div>)}
      <Calls data={data} />
      <div class="chips" role="group" aria-label="Colour by">
        {COLOURS.filter(([name]) => name !== "entropy" || byToken).map(([name, shown]) => <button type="button" key={name} aria-pressed={by === name} onClick={() => setBy(name)}>{shown}</button>)}</div>
      <Legend by={by} policies={policies} data={data} />
      {!data.tokenizer && <NoText note={data.tokenizer_note} />}
      {data.sequences.map((sequence, index) => <section key={index}>
        <h2>Sequence {index + 1} <span class="quiet">{plural(sequence.length, "token")}, {whole(sequence.trained)} trained on</span></h2>
        <Ids sequence={sequence} spans={data.spans.filter((span) => span.sequence === index)} by={by} policies={policies} advantage={data.advantage?.minus_mean ?? null} />
        {sequence.ids.length < sequence.length && <p class="quiet">The first {whole(sequence.ids.length)} are shown.</p>}</section>)}
    </div>
  );
}

/** The model calls as rows: what each one read and wrote, by which policy, and how sure it was. */
function Calls({ data }: { data: Trainer }) {
  const unsure = data.calls.some((call) => call.entropy !== null);
  const least = data.calls.some((call) => call.entropy !== null && call.entropy_is_least);
  return (
    <details class="calls" open={data.calls.length <= 12}>
      <summary>{plural(data.calls_total, "model call")}{unsure && least && <span class="quiet"> · entropy in nats, a lower bound from the listed alternatives</span>}</summary>
      <table><thead><tr><th scope="col">Call</th><th scope="col">Policy</th><th scope="col" class="number">Prompt</th><th scope="col" class="number">Written</th>
        <th scope="col" class="number">Mean logprob</th>{unsure && <th scope="col" class="number">Mean entropy</th>}<th scope="col">Sampling</th></tr></thead>
        <tbody>{data.calls.map((call) => <tr key={call.call}>
          <td data-label="Call">{call.call}{call.given && <span class="quiet"> of the parent</span>}</td><td data-label="Policy">{visible(call.policy ?? "–")}</td>
          <td class="number" data-label="Prompt">{call.prompt === null ? "–" : whole(call.prompt)}</td><td class="number" data-label="Written">{call.generated === null ? "–" : whole(call.generated)}</td>
          <td class="number" data-label="Mean logprob">{call.logprob === null ? "–" : call.logprob.toFixed(3)}</td>
          {unsure && <td class="number" data-label="Mean entropy">{call.entropy === null ? "–" : `${call.entropy_is_least ? "≥ " : ""}${call.entropy.toFixed(3)}`}</td>}
          <td data-label="Sampling">{call.sampling ? visible(Object.entries(call.sampling).filter(([, value]) => value !== null).map(([name, value]) => `${name} ${String(value)}`).join(", ").slice(0, 120)) : <span class="quiet">unknown</span>}</td>
        </tr>)}</tbody></table>
      {data.calls_total > data.calls.length && <p class="quiet small">The first {data.calls.length} are listed.</p>}
    </details>
  );
}

const entropyAt = (span: Span | null, index: number) => span?.entropies?.[index - span.from] ?? null;
const entropyKind = (value: number | null) => (value === null ? "" : `lp${value < 0.05 ? 0 : value < 0.4 ? 1 : value < 1 ? 2 : value < 2 ? 3 : 4}`);

function Legend({ by, policies, data }: { by: string; policies: string[]; data: Trainer }) {
  if (by === "mask") return <p class="legend-line"><span class="token trained">trained on</span> <span class="token">context</span></p>;
  if (by === "logprob") return <p class="legend-line"><Chances /> <span class="quiet">the probability of the token</span></p>;
  if (by === "entropy") return <p class="legend-line"><span class="token lp0">one choice (0)</span><span class="token lp1" /><span class="token lp2" /><span class="token lp3" /><span class="token lp4">many (2 nats or more)</span></p>;
  if (by === "call") return <p class="legend-line quiet">A colour for each model call; context is plain.</p>;
  if (by === "policy") return <p class="legend-line">{policies.map((name, index) => <span class={`token c${index % 6}`} key={name}>{visible(name)}</span>)}</p>;
  return <p class="legend-line quiet">{data.advantage ? "All trained tokens have the rollout's advantage: teal is better than the group, orange is worse." : "There is no reward, so there is no advantage."}</p>;
}

function Ids({ sequence, spans, by, policies, advantage }: { sequence: Sequence; spans: Span[]; by: string; policies: string[]; advantage: number | null }) {
  const [most, setMost] = useState(3000);
  const kinds: string[] = [];
  let at = 0;
  for (let index = 0; index < Math.min(sequence.ids.length, most); index++) {
    while (at < spans.length && index >= spans[at].to) at++;
    const span = spans[at] && index >= spans[at].from ? spans[at] : null;
    let kind = "";
    if (sequence.mask[index]) {
      const logprob = sequence.logprobs[index] ?? 0;
      if (by === "mask") kind = "trained";
      else if (by === "logprob") kind = surprise(logprob);
      else if (by === "entropy") kind = entropyKind(entropyAt(span, index));
      else if (by === "call") kind = span ? `c${(span.call - 1) % 6}` : "";
      else if (by === "policy") kind = span ? `c${policies.indexOf(span.policy ?? "unknown") % 6}` : "";
      else kind = advantage === null ? "" : advantage > 0 ? "better" : advantage < 0 ? "worse" : "even";
    }
    kinds.push(kind);
  }
  const entropyOf = (index: number) => entropyAt(spans.find((span) => index >= span.from && index < span.to) ?? null, index);
  const said = (value: number | null) => (value === null ? "" : `, entropy ${value.toFixed(3)}`);
  return (
    <div class={sequence.pieces ? "ids text-ids" : "ids"}>
      {kinds.map((kind, index) => <span key={index} class={`token ${kind}`}
        title={`${index}: id ${sequence.ids[index]}${sequence.mask[index] ? `, logprob ${sequence.logprobs[index]?.toFixed(3) ?? "unknown"}${said(entropyOf(index))}` : ", context"}`}>
        {sequence.pieces ? visible(sequence.pieces[index].replace(/\n/g, "↵\n")) : sequence.ids[index]}</span>)}
      {sequence.ids.length > most && <button type="button" class="more" onClick={() => setMost(most + 10000)}>{whole(sequence.ids.length - most)} more</button>}
    </div>
  );
}
