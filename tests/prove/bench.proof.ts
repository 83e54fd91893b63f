import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from '@jest/globals';
import { FIGURES, type Results } from '../../bench/report/results.ts';
import { COMPILE_CACHE } from '../harness/relay/process.ts';

const folder = mkdtempSync(join(tmpdir(), 'bot-relay-compare-'));
afterAll(() => rmSync(folder, { recursive: true }));

const TIMEOUT_MS = 120_000;

/** Runs the comparison; resolves with its exit code and its output. */
function compare(...args: string[]): Promise<{ code: number; printed: string }> {
  return new Promise((resolve) => {
    const options = { timeout: TIMEOUT_MS, env: { ...process.env, ...COMPILE_CACHE } };
    const child = execFile(process.execPath, ['bench/compare.ts', ...args], options, (_error, out, err) =>
      resolve({ code: child.exitCode ?? -1, printed: out + err }),
    );
  });
}

test(
  'one small round gives every figure of the peers that were asked for, and a chart',
  async () => {
    const peers = ['bot-relay'];
    const args = ['--rounds', '1', '--scale', '0.002', '--only', peers.join(','), '--out', folder];
    const { code, printed } = await compare(...args);
    expect(printed).toContain('Delay of events');
    expect(code).toBe(0);
    const results = JSON.parse(readFileSync(join(folder, 'results.json'), 'utf8')) as Results;
    expect(results.peers.map(({ name, notes }) => ({ name, notes }))).toEqual(
      peers.map((name) => ({ name, notes: [] })),
    );
    for (const { figures } of results.peers)
      expect(Object.keys(figures).sort()).toEqual(Object.keys(FIGURES).sort());
    for (const { median } of Object.values(results.direct)) expect(median).toBeGreaterThan(0);
    for (const { figures } of results.peers) {
      expect(figures.cpuPerEvent?.median).toBeGreaterThan(0);
      expect(figures.cpuPerMessage?.median).toBeGreaterThan(0);
      expect(figures.throughput?.median).toBeGreaterThan(0);
    }
    expect(readFileSync(join(folder, 'results.svg'), 'utf8')).toContain('</svg>');
  },
  TIMEOUT_MS,
);

// `npm test` covers the other refusals, which need no peers.
test(
  'a peer that there is not is refused with a message that names it',
  async () => {
    const { code, printed } = await compare('--only', 'nginx,another');
    expect(code).toBe(64);
    expect(printed).toContain('another');
    expect(printed).toContain('Usage: npm run bench');
  },
  TIMEOUT_MS,
);
