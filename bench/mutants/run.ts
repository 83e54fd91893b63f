import { spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type Edit, type Mutant, mutantsOf, probes, sample } from './mutants.ts';
import { type Outcome, type Result, record } from './record.ts';

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
/** The rooms whose scores are recorded. */
const ROOMS = ['src/pace', 'src/guard', 'src/relay/message', 'src/authenticate/sessions'];
/** How long the tests of one mutant may have taken without it, together. */
const MS_PER_MUTANT = 60_000;
/** Of so many mutants, one is also run without its change, which no test may notice. */
const CONTROL_EVERY = 15;

interface Placed extends Mutant {
  readonly id: number;
  readonly path: string;
  readonly room: string;
}
/** Test files, and how long they took in the gate. */
interface Tests {
  readonly files: readonly string[];
  readonly ms: number;
}
type Edits = Readonly<Record<string, readonly Edit[]>>;

const [perRoom = '75', ...paths] = process.argv.slice(2);
const isRoom = (path: string) => path.startsWith('src/');
const rooms = paths.some(isRoom) ? paths.filter(isRoom) : ROOMS;
/** Of the paths of the tests to run; none means all. */
const patterns = paths.filter((path) => !isRoom(path));
const folder = mkdtempSync(join(tmpdir(), 'mutants-'));
const ran = join(folder, 'ran');
const running = new Set<number>();
process.on('exit', () => {
  for (const pid of running) stop(pid);
  rmSync(folder, { recursive: true, force: true });
});
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => process.exit(1));

/** Ends a process and all that it has started. */
function stop(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch {}
}

/** Runs Jest with `edits`; returns its status, null after `limitMs`, and what it printed. */
async function jest(edits: Edits, args: readonly string[], limitMs: number) {
  const file = join(mkdtempSync(join(folder, 'edits-')), 'edits.json');
  writeFileSync(file, JSON.stringify(edits));
  const config = ['--config', 'bench/mutants/jest.config.js'];
  const program = ['--experimental-vm-modules', 'node_modules/jest/bin/jest.js', ...config, ...args];
  const child = spawn(process.execPath, program, {
    cwd: ROOT,
    detached: true,
    stdio: ['ignore', 'pipe', 'ignore'],
    env: { ...process.env, MUTANTS_EDITS: file, MUTANTS_RAN: ran, TMPDIR: folder },
  });
  const pid = child.pid as number;
  running.add(pid);
  let printed = '';
  child.stdout.on('data', (bytes) => {
    printed += bytes;
  });
  const timer = setTimeout(stop, limitMs, pid);
  const status = await new Promise<number | null>((resolve) => child.once('exit', resolve));
  clearTimeout(timer);
  stop(pid);
  running.delete(pid);
  return { status, printed };
}

function choose(room: string): Omit<Placed, 'id'>[] {
  const names = readdirSync(join(ROOT, room), { recursive: true, encoding: 'utf8' });
  const paths = names.filter((name) => name.endsWith('.ts')).sort();
  const all = paths.flatMap((name) => {
    const path = join(ROOT, room, name);
    return mutantsOf(readFileSync(path, 'utf8')).map((mutant) => ({ ...mutant, path, room }));
  });
  return sample(all, Number(perRoom));
}

/** Runs the gate once, and returns which tests each mutant gets. */
async function findTests(mutants: readonly Placed[]): Promise<(mutant: Placed) => Tests> {
  const output = join(folder, 'gate.json');
  const edits = [...Map.groupBy(mutants, ({ path }) => path)].map(([path, of]) => [path, probes(of)]);
  await jest(Object.fromEntries(edits), ['--json', '--outputFile', output, ...patterns], 3_600_000);
  const { testResults } = JSON.parse(readFileSync(output, 'utf8')) as {
    testResults: { name: string; status: string; startTime: number; endTime: number; message: string }[];
  };
  const times = new Map(testResults.map(({ name, startTime, endTime }) => [name, endTime - startTime]));
  for (const { name, status, message } of testResults)
    if (status === 'failed' && times.delete(name))
      console.log(`left out, since it fails: ${name}\n${message}`);
  const idsOf = new Map<string, Set<number>>();
  for (const line of readFileSync(ran, 'utf8').trimEnd().split('\n')) {
    const [id, file] = line.split(' ') as [string, string];
    idsOf.set(file, (idsOf.get(file) ?? new Set()).add(Number(id)));
  }
  // Tests that run the fewest mutants are the nearest ones.
  const nearest = [...idsOf].sort(
    ([one, ids], [other, more]) => ids.size - more.size || (one < other ? -1 : 1),
  );
  return ({ id }) => {
    const files: string[] = [];
    let ms = 0;
    for (const [file, ids] of nearest) {
      const more = times.get(file);
      if (more === undefined || !ids.has(id)) continue;
      if (files.length > 0 && ms + more > MS_PER_MUTANT) break;
      files.push(file);
      ms += more;
    }
    return { files, ms };
  };
}

/** Whether the tests notice `edits`. */
async function judge(name: string, edits: Edits, { files, ms }: Tests): Promise<Outcome> {
  if (files.length === 0) return 'not run';
  const first = ['--testTimeout', '30000', '--reporters', './bench/mutants/first-failure.js'];
  const order = ['--testSequencer', './bench/mutants/order.js', '--runInBand', '--runTestsByPath', ...files];
  const { status, printed } = await jest(edits, [...first, ...order], 60_000 + 3 * ms);
  const outcome = status === 0 ? 'survived' : status === null ? 'timed out' : 'killed';
  console.log(`${name}: ${outcome} ${printed.trim().split('\n').at(-1)}`);
  return outcome;
}

const mutants = rooms.flatMap(choose).map((mutant, id) => ({ ...mutant, id }));
const testsOf = await findTests(mutants);
console.log(`the gate has run: ${Math.round(performance.now() / 60_000)} min`);
const results: Result[] = [];
const controls: Outcome[] = [];
const waiting = [...mutants];
async function work(): Promise<void> {
  for (let mutant = waiting.shift(); mutant; mutant = waiting.shift()) {
    const { id, path, room, at, end, text } = mutant;
    const source = readFileSync(path, 'utf8');
    const place = `${relative(ROOT, path)}:${source.slice(0, at).split('\n').length}`;
    const tests = testsOf(mutant);
    const outcome = await judge(`${id} ${place}`, { [path]: [mutant] }, tests);
    results.push({ id, room, place, from: source.slice(at, end), to: text, outcome });
    if (id % CONTROL_EVERY === 0) controls.push(await judge(`${id} unchanged`, {}, tests));
  }
}
await Promise.all(Array.from({ length: availableParallelism() + 1 }, work));
console.log(`all have run: ${Math.round(performance.now() / 60_000)} min`);
record(results, controls, process.argv.length === 2);
