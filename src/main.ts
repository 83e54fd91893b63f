import { readFileSync } from 'node:fs';

/** Exit code of sysexits.h: a wrong setup, which another start would not mend. */
const EX_CONFIG = 78;

const manifest = readFileSync(new URL('../package.json', import.meta.url), 'utf8');
const { engines } = JSON.parse(manifest) as { engines: { node: string } };
if (meets(process.versions.node, engines.node)) {
  // Loaded only now: an older Node.js would fail without naming the reason.
  const { runCommand } = await import('./commands/run-command.ts');
  process.exitCode = await runCommand(process.argv.slice(2));
} else {
  process.stderr.write(
    `bot-relay runs on Node.js ${engines.node}, and this is Node.js ${process.versions.node} (${process.execPath}); in a checkout, npx bot-relay and the npm scripts run on the Node.js that npm install has brought.\n`,
  );
  process.exitCode = EX_CONFIG;
}

/** Whether a version is in an npm range that consists of `>=` and `^`, joined by `||`. */
function meets(version: string, range: string): boolean {
  const actual = numbers(version);
  return range.split('||').some((part) => {
    const least = numbers(part);
    if (part.includes('^') && actual[0] !== least[0]) return false;
    const different = least.findIndex((number, index) => number !== actual[index]);
    return different < 0 || (actual[different] ?? 0) > (least[different] ?? 0);
  });
}

function numbers(text: string): number[] {
  return (text.match(/\d+/g) ?? []).slice(0, 3).map(Number);
}
