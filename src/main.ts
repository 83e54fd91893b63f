import { readFileSync } from 'node:fs';

/** Exit code of sysexits.h: something is set up wrong, and starting again mends nothing. */
const EX_CONFIG = 78;

const manifest = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
const { version, engines } = manifest as { version: string; engines: { node: string } };
if (meets(process.versions.node, engines.node)) {
  // Not before: an older Node.js fails in one of these in a way that says nothing of its age.
  const { runCommand } = await import('./commands/run-command.ts');
  await runCommand(process.argv.slice(2), version);
} else {
  process.stderr.write(
    `bot-relay runs on Node.js ${engines.node}, and this is Node.js ${process.versions.node} (${process.execPath}).\n`,
  );
  process.exitCode = EX_CONFIG;
}

/** Whether a version is in a range of npm that consists of `>=` and `^`, joined by `||`. */
function meets(version: string, range: string): boolean {
  const is = numbers(version);
  return range.split('||').some((part) => {
    const least = numbers(part);
    if (part.includes('^') && is[0] !== least[0]) return false;
    const at = least.findIndex((number, index) => number !== is[index]);
    return at < 0 || (is[at] ?? 0) > (least[at] ?? 0);
  });
}

function numbers(text: string): number[] {
  return (text.match(/\d+/g) ?? []).slice(0, 3).map(Number);
}
