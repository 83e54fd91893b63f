import { execFile, spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, expect, test } from '@jest/globals';
import { FIGURES, type Results } from '../../bench/report/results.ts';
import { ROOT } from '../harness/documents/sources.ts';
import { COMPILE_CACHE } from '../harness/relay/process.ts';

const folder = mkdtempSync(join(tmpdir(), 'bot-relay-compare-'));
afterAll(() => rmSync(folder, { recursive: true }));

const TIMEOUT_MS = 180_000;

test(
  'the types of the comparison are right',
  () => {
    const tsc = ['node_modules/typescript/bin/tsc', '-p', 'bench'];
    const { status, stdout } = spawnSync(process.execPath, tsc, { cwd: ROOT, encoding: 'utf8' });
    expect([status, stdout]).toEqual([0, '']);
  },
  TIMEOUT_MS,
);

test(
  'one small round gives every figure of the peers that were asked for, and a chart',
  async () => {
    const args = ['--rounds', '1', '--scale', '0.002', '--only', 'bot-relay', '--out', folder];
    const env = { ...process.env, ...COMPILE_CACHE };
    const program = [process.execPath, ['bench/compare.ts', ...args], { timeout: TIMEOUT_MS, env }] as const;
    // It rejects unless the exit code is 0.
    const { stdout, stderr } = await promisify(execFile)(...program);
    expect(stdout + stderr).toContain('Delay of events');
    const results = JSON.parse(readFileSync(join(folder, 'results.json'), 'utf8')) as Results;
    const peers = results.peers.map(({ name, notes }) => ({ name, notes }));
    expect(peers).toEqual([{ name: 'bot-relay', notes: [] }]);
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
