import type { Environment } from './environment.ts';
import { isModelKey } from './service-model.ts';
import { isVariable, VARIABLES } from './variables.ts';

/** A shorter name differs too little from names with another meaning, such as PATH, HOME or POST. */
const MIN_LENGTH = 6;
const MAX_CHANGES = 2;

/** Without the keys of providers: other programs have variables of similar names. */
const NAMES = Object.entries(VARIABLES)
  .filter(([name]) => !isModelKey(name))
  .flatMap(([name, { secret }]) => (secret ? [name, `${name}_FILE`] : [name]))
  .filter(({ length }) => length >= MIN_LENGTH);

/** What the names of the relay's variables begin with; `NODE_` belongs to Node.js. */
const PREFIXES = new Set(NAMES.flatMap(prefixOf).filter((prefix) => prefix !== 'NODE_'));

/**
 * What is wrong with the names of variables, in plain words. A name in `environment` is wrong if it differs from a
 * variable of the relay by one or two letters, or ends in `_FILE` where the variable takes no file.
 * A name in `inFile`, which `.env` sets, is wrong if it is no variable of the relay. No text is shown that may be a
 * part of a secret.
 */
export function nameProblems(environment: Environment, inFile: readonly string[]): string[] {
  const ofFile = inFile.filter((name) => !isVariable(name) && !name.startsWith('COMPOSE_'));
  // Kubernetes sets METRIC_PORT for a service named metric: that is not a misspelling.
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

/** The variables that look like variables of the relay and have no effect, as risks in plain words. */
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

/** The variables that Kubernetes sets, too, for a service named metrics, service or service-console. */
const LINKED = ['METRICS_PORT', 'SERVICE_PORT', 'SERVICE_CONSOLE_PORT'];

/** `environment` without the ports that Kubernetes has set for a service. */
export function withoutServiceLinks(environment: Environment): Environment {
  const links = LINKED.filter((name) => isServiceLink(environment[name]));
  return { ...environment, ...Object.fromEntries(links.map((name) => [name, undefined])) };
}

/**
 * Whether Kubernetes has set this value:
 * https://kubernetes.io/docs/concepts/services-networking/service/#environment-variables
 */
function isServiceLink(text: string | undefined): boolean {
  return text !== undefined && /^(tcp|udp|sctp):\/\//.test(text);
}

/** The names that are set and are no variables of the relay. */
function unknownIn(environment: Environment): string[] {
  return Object.keys(environment).filter((name) => environment[name] && !isVariable(name));
}

function prefixOf(name: string): string[] {
  return /^([A-Z]+_)\w+$/.exec(name)?.slice(1) ?? [];
}

function problemInFile(name: string): string {
  const hint = hintFor(name);
  // A name that does not look like a variable may be the second line of a secret.
  if (!hint && !/^[A-Z]+(_[A-Z]+)+$/.test(name))
    return '.env holds a line that sets something which the relay does not know; quote values of several lines';
  return `.env sets ${name}, which is not a variable of the relay${hint ? `: ${hint}` : ''}`;
}

/** Which variable was probably meant by an unknown name. */
function hintFor(name: string): string | undefined {
  const base = name.replace(/_FILE$/, '');
  if (base !== name && isVariable(base)) return `${base} cannot be given as a file`;
  const within = (changes: number) => NAMES.find((right) => isNear(name, right, changes));
  const right = within(1) ?? within(MAX_CHANGES);
  return right && `did you mean ${right}?`;
}

/** Whether `from` becomes `to` by adding, removing or replacing at most `changes` letters (Levenshtein distance). */
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
