import { execFile, spawn } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sleep } from '../clock/sleep.ts';
import { ROOT } from '../documents/sources.ts';
import { freePort } from '../relay/free-port.ts';

/** Where examples and documents expect the relay. */
const RELAY = 'http://localhost:3000';

// Without what Jest and npm set for this process, and with the pinned Node.js.
const { NODE_ENV: _mode, INIT_CWD: _folder, ...outer } = process.env;
const environment = {
  ...outer,
  PATH: `${join(ROOT, 'node_modules/.bin')}:${outer.PATH}`,
  NEXT_TELEMETRY_DISABLED: '1',
  // The answer to the question of `npm create`, whether it may run the package that it was told to run.
  npm_config_yes: 'true',
};

/** A project of a front-end developer, in a temporary folder. */
export interface Project {
  readonly folder: string;
  /** Runs shell commands, and prints how long they took. Rejects with what they have printed if one fails. */
  run(commands: string): Promise<void>;
  /** Runs commands that need the registry. */
  install(commands: string): Promise<void>;
  /** Starts a server, whose command line ends with a port; resolves with its address as soon as it answers. */
  serve(command: string, port?: number): Promise<string>;
  /** Writes a file, which then has the address of `relay` in place of the one in the documents. */
  write(file: string, text: string): void;
  /** Ends its servers and removes it. */
  remove(): Promise<void>;
}

/** Makes an empty project, whose relay has the port `relayPort`. `name` stands in what is printed, and its commands have `variables`. */
export function emptyProject(name: string, relayPort: number, variables: NodeJS.ProcessEnv = {}): Project {
  const folder = mkdtempSync(join(tmpdir(), 'bot-relay-project-'));
  const place = { cwd: folder, env: { ...environment, ...variables } };
  const ends: (() => Promise<void>)[] = [];
  const addressed = (text: string) => text.replaceAll(RELAY, `http://localhost:${relayPort}`);
  const run = async (commands: string) => {
    const started = performance.now();
    await runIn(place, addressed(commands));
    const seconds = ((performance.now() - started) / 1000).toFixed(1);
    process.stderr.write(`${name}: ${commands.trim().replaceAll('\n', '; ')}: ${seconds} s\n`);
  };
  return {
    folder,
    run,
    install: (commands) =>
      run(commands).catch((error) => {
        throw new Error(
          `The packages of ${name} could not be installed; this proof needs the npm registry. ${error}`,
        );
      }),
    async serve(command, port) {
      const [url, end] = await serveIn(place, command, port ?? (await freePort()));
      ends.push(end);
      return url;
    },
    write: (file, text) => writeFileSync(join(folder, file), addressed(text)),
    async remove() {
      for (const end of ends.splice(0)) await end();
      rmSync(folder, { recursive: true });
    },
  };
}

/** A copy of the example `name`. `port` is that of its own server, if it has one. */
export async function exampleProject(name: string, relayPort = 0, port = 0): Promise<Project> {
  const project = emptyProject(name, relayPort);
  await runIn({ cwd: ROOT, env: environment }, `node build/example.ts ${name} ${project.folder}`);
  for (const file of readdirSync(project.folder).filter((one) => /\.(js|ts)$/.test(one)))
    project.write(file, readFileSync(join(project.folder, file), 'utf8').replace('8080', String(port)));
  return project;
}

/** Where commands run, and with which variables. */
interface Place {
  readonly cwd: string;
  readonly env: NodeJS.ProcessEnv;
}

function runIn(place: Place, commands: string): Promise<void> {
  return new Promise((resolve, reject) => {
    execFile('sh', ['-ec', commands], place, (error, stdout, stderr) => {
      if (error) reject(new Error(`${commands}\n${(stdout + stderr).slice(-3000)}`));
      else resolve();
    });
  });
}

async function serveIn(place: Place, command: string, port: number) {
  // A group of its own, since npm and a shell stand above the server.
  const child = spawn('sh', ['-c', `${command} ${port}`], { ...place, detached: true });
  let printed = '';
  for (const output of [child.stdout, child.stderr])
    output.setEncoding('utf8').on('data', (text: string) => {
      printed += text;
    });
  const ended = new Promise<void>((resolve) => child.once('close', () => resolve()));
  const end = async () => {
    if (child.exitCode === null && child.pid) process.kill(-child.pid, 'SIGKILL');
    await ended;
  };
  const url = `http://localhost:${port}/`;
  const isUp = () =>
    fetch(url).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isUp())) {
    if (child.exitCode !== null) throw new Error(`${command} has ended: ${printed}`);
    await sleep(100);
  }
  return [url, end] as const;
}
