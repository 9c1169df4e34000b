// Curves of runs that differ in nothing but the seed are one curve: the mean of the seeds with its interval.
import type { ExperimentLine, Series, SeriesPoint } from "./experiment";

/** Settings that the seeds of an experiment may differ in. Rows may be drawn by the seed. */
const SEED = /(^|[._])seed$/, DRAWN_BY_SEED = /^dataset\.digest$/;

/** The two-sided 95 % quantile of Student's t distribution, by degrees of freedom from 1. */
const STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11, 2.101, 2.093, 2.086];

export interface Curve extends Series { seeds: Series[] }
type Figure = [number, number | null, number | null];

/** The curves with seeds of the same settings together, in the order of their first seed. */
export function bySettings(series: Series[], runs: ExperimentLine[], settings: string[], leftOut: number): Curve[] {
  const alone = (one: Series): Curve => ({ ...one, seeds: [one] });
  const seedColumns = settings.flatMap((name, column) => (SEED.test(name) ? [column] : []));
  if (!seedColumns.length || leftOut > 0) return series.map(alone);
  const lines = new Map(runs.map((run) => [run.key, run]));
  const others = settings.flatMap((name, column) => (SEED.test(name) || DRAWN_BY_SEED.test(name) ? [] : [column]));
  const told = (one: Series, columns: number[]) => {
    const keys = [...new Set(one.points.map((point) => point.run))];
    return JSON.stringify(columns.map((column) => [...new Set(keys.map((key) => lines.get(key)?.settings[column] ?? null))].sort()));
  };
  const differ = (group: Series[]) => new Set(group.map((one) => told(one, seedColumns))).size === group.length;
  return grouped(series, (one) => told(one, others))
    .flatMap((group) => (differ(group) ? [group] : grouped(group, (one) => masked(one.name))))
    .flatMap((group) => (group.length > 1 && differ(group) ? [{ name: nameOf(group), points: [], seeds: group }] : group.map(alone)));
}

function grouped(series: Series[], same: (one: Series) => string): Series[][] {
  const groups = new Map<string, Series[]>();
  for (const one of series) groups.set(same(one), [...(groups.get(same(one)) ?? []), one]);
  return [...groups.values()];
}

const masked = (name: string) => name.replace(/\d+/g, "*");

function nameOf(group: Series[]): string {
  const names = [...new Set(group.map((one) => masked(one.name)))];
  return `${names.length === 1 ? names[0] : group.slice(0, 3).map((one) => one.name).join(", ")} (${group.length} seeds)`;
}

/** The points of a curve: its own, or the means of its seeds where at least two have a value. Seeds are matched by checkpoint, else by place. */
export function pointsOf(curve: Curve, byStep: boolean): (SeriesPoint & { runs: string[] })[] {
  if (curve.seeds.length === 1) return curve.seeds[0].points.map((point) => ({ ...point, runs: [point.run] }));
  const places = new Map<number, SeriesPoint[]>();
  for (const seed of curve.seeds) seed.points.forEach((point, place) => {
    const at = byStep ? point.step : place;
    if (at !== null && point.value) places.set(at, [...(places.get(at) ?? []), point]);
  });
  return [...places.entries()].filter(([, points]) => points.length > 1).sort(([a], [b]) => a - b).map(([, points]) => ({
    ...points[0],
    seconds: points.every((point) => point.seconds !== null) ? mean(points.map((point) => point.seconds!)) : null,
    done: Math.round(mean(points.map((point) => point.done))), rollouts: points.reduce((sum, point) => sum + point.rollouts, 0),
    runs: [...new Set(points.map((point) => point.run))], value: meanOfSeeds(points.map((point) => point.value![0])),
    new_verifiers: points.map((point) => point.new_verifiers).find((verifiers) => verifiers) ?? null,
  }));
}

const mean = (values: number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

/** The mean of the seeds' means and its 95 % interval. */
export function meanOfSeeds(values: number[]): Figure {
  const middle = mean(values), freedom = values.length - 1;
  const deviation = Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / freedom);
  const half = ((STUDENT[freedom - 1] ?? 1.96) * deviation) / Math.sqrt(values.length);
  return [middle, middle - half, middle + half];
}
