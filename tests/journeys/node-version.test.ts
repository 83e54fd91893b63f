import { execFileSync, spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterEach, describe, expect, test } from '@jest/globals';
import { freshFolder, stopProcesses } from '../harness/relay/process.ts';

const DIST = fileURLToPath(new URL('../../dist/', import.meta.url));
const THIS = process.versions.node;
const [MAJOR = 0, MINOR = 0, PATCH = 0] = THIS.split('.').map(Number);

/** A Node.js of this machine that is older than the relay needs. */
const old = (process.env.PATH ?? '')
  .split(delimiter)
  .map((folder) => join(folder, 'node'))
  .find((node) => {
    const { stdout } = spawnSync(node, ['--version'], { encoding: 'utf8' });
    return /^v(1[4-9]|2[01])\./.test(stdout ?? '');
  });
if (!old)
  process.stderr.write('The test with an old Node.js is left out; to run it: put Node.js 20 in PATH\n');

afterEach(() => stopProcesses());

/** Runs the built `main.js` alone, without the rest of the relay, with `range` as its `engines`. */
function runAsking(range: string) {
  const folder = freshFolder({
    'package.json': JSON.stringify({ type: 'module', engines: { node: range } }),
  });
  mkdirSync(join(folder, 'dist'));
  copyFileSync(join(DIST, 'main.js'), join(folder, 'dist', 'main.js'));
  return spawnSync(process.execPath, [join(folder, 'dist', 'main.js')], { encoding: 'utf8' });
}

describe('a Node.js that the relay does not run on', () => {
  test.each([
    `>=${MAJOR + 1}`,
    `>=${MAJOR}.${MINOR + 1}`,
    `>=${MAJOR}.${MINOR}.${PATCH + 1}`,
    `^${MAJOR - 2}.0.0 || ^${MAJOR - 1}.1.0 || >=${MAJOR + 2}.0.0`,
    `^${MAJOR}.${MINOR + 1}.0 || >=${MAJOR + 2}.0.0`,
  ])('is refused with its version and the right one (%s), before any other module is loaded', (range) => {
    const { status, stdout, stderr } = runAsking(range);
    expect(stderr).toBe(
      `bot-relay runs on Node.js ${range}, and this is Node.js ${THIS} (${process.execPath}); in a checkout, npx bot-relay and the npm scripts run on the Node.js that npm install has brought.\n`,
    );
    expect(stdout).toBe('');
    expect(status).toBe(78);
  });

  // An old Node.js may fail to parse the program, which the cases above cannot show.
  if (old) {
    test('is refused if it is old', () => {
      const { status, stderr } = spawnSync(old, [join(DIST, 'main.js')], { encoding: 'utf8' });
      const version = execFileSync(old, ['-p', 'process.versions.node'], { encoding: 'utf8' }).trim();
      expect(stderr).toMatch(/^bot-relay runs on Node\.js [^\n]+\n$/);
      expect(stderr).toContain(`this is Node.js ${version} (`);
      expect(status).toBe(78);
    });
  }
});

describe('a Node.js that the relay runs on', () => {
  test.each([
    `>=${MAJOR - 1}.99`,
    `>= ${MAJOR}.${MINOR}.${PATCH}`,
    `^${MAJOR - 2}.0.0 || ^${MAJOR}.0.0 || >=${MAJOR + 2}.0.0`,
    `^${MAJOR}.${MINOR}.${PATCH}`,
  ])('loads the other modules (%s)', (range) => {
    const { stderr } = runAsking(range);
    // The module does not exist here.
    expect(stderr).toContain('ERR_MODULE_NOT_FOUND');
    expect(stderr).toContain('commands/run-command.js');
  });
});
