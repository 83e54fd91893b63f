import type { Environment } from './environment.ts';
import { isVariable, VARIABLES } from './variables.ts';

/** Shorter names have neighbours that mean something else: PATH, HOME, POST. */
const MIN_LENGTH = 6;
const MAX_CHANGES = 2;

const NAMES = Object.entries(VARIABLES)
  .flatMap(([name, { secret }]) => (secret ? [name, `${name}_FILE`] : [name]))
  .filter(({ length }) => length >= MIN_LENGTH);

/** Variables that had another name, and what became of them. */
const RENAMED: Readonly<Record<string, string>> = {
  MAX_STREAMS_PER_SESSION:
    'it is now MAX_STREAMS_PER_USER, which counts the messages of a user in all sessions together',
};

/** What our names begin with; `NODE_` is Node.js's own. */
const PREFIXES = new Set(NAMES.flatMap(prefixOf).filter((prefix) => prefix !== 'NODE_'));

/**
 * What is wrong with the names of `environment`: in it, those that are ours but for a letter or two, were ours
 * before, or end in `_FILE` where ours take no file; of `inFile`, the names that `.env` sets, all that are not ours. What may be part
 * of a secret is not shown.
 */
export function misnamed(environment: Environment, inFile: readonly string[]): string[] {
  const ofFile = inFile.filter((name) => !isVariable(name) && !name.startsWith('COMPOSE_'));
  // A service named metric has a METRIC_PORT, which nobody mistyped.
  const others = unknownIn(environment).filter(
    (name) => !inFile.includes(name) && !isServiceLink(environment[name]),
  );
  const problems = [
    ...ofFile.map(problemInFile),
    ...others.flatMap((name) => {
      const hint = hintFor(name);
      return hint ? [`${name} is not a variable of the relay: ${hint}`] : [];
    }),
  ];
  return [...new Set(problems)];
}

/** What in `environment` does nothing although it looks as if it did, as risks in plain words. */
export function unusedVariables(environment: Environment): string[] {
  const names = unknownIn(environment).filter((name) => PREFIXES.has(prefixOf(name)[0] ?? ''));
  const risks: string[] = [];
  if (isServiceLink(environment.METRICS_PORT)) {
    risks.push(
      'METRICS_PORT is the address that Kubernetes sets for a service named metrics: it is ignored, and there are no metrics; set it to a port in the container, or enableServiceLinks to false',
    );
  }
  if (names.length > 0) {
    risks.push(
      `${names.join(', ')}: not variables of the relay, which does nothing with them; look whether one is misspelt`,
    );
  }
  return risks;
}

/** `environment` without the variable of ours that Kubernetes may have set: `METRICS_PORT`, for a service named metrics. */
export function withoutServiceLinks(environment: Environment): Environment {
  return isServiceLink(environment.METRICS_PORT) ? { ...environment, METRICS_PORT: undefined } : environment;
}

/** https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables */
function isServiceLink(text: string | undefined): boolean {
  return text !== undefined && /^(tcp|udp|sctp):\/\//.test(text);
}

/** The names that are set, and are not ours. */
function unknownIn(environment: Environment): string[] {
  return Object.keys(environment).filter((name) => environment[name] && !isVariable(name));
}

function prefixOf(name: string): string[] {
  return /^([A-Z]+_)\w+$/.exec(name)?.slice(1) ?? [];
}

function problemInFile(name: string): string {
  const hint = hintFor(name);
  // What does not look like a variable may be the second line of a secret.
  if (!hint && !/^[A-Z]+(_[A-Z]+)+$/.test(name))
    return '.env holds a line that sets something which the relay does not know; quote values of several lines';
  return `.env sets ${name}, which is not a variable of the relay${hint ? `: ${hint}` : ''}`;
}

/** What a name that is not ours was probably meant to be. */
function hintFor(name: string): string | undefined {
  if (Object.hasOwn(RENAMED, name)) return RENAMED[name];
  const base = name.replace(/_FILE$/, '');
  if (base !== name && isVariable(base)) return `${base} cannot be given as a file`;
  const within = (changes: number) => NAMES.find((right) => isNear(name, right, changes));
  const right = within(1) ?? within(MAX_CHANGES);
  return right && `did you mean ${right}?`;
}

/** Whether adding, leaving out or changing so many letters makes `to` of `from` (the Levenshtein distance). */
function isNear(from: string, to: string, changes: number): boolean {
  if (from === to) return true;
  if (changes === 0) return false;
  let same = 0;
  while (same < from.length && from[same] === to[same]) same++;
  const [rest, wanted] = [from.slice(same), to.slice(same)];
  return (
    isNear(rest.slice(1), wanted.slice(1), changes - 1) ||
    isNear(rest.slice(1), wanted, changes - 1) ||
    isNear(rest, wanted.slice(1), changes - 1)
  );
}
