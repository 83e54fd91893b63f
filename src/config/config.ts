import { readFileSync } from 'node:fs';
import { readBotsFile } from '../bots/bots-file.ts';
import { readSecretFile } from '../bots/secret-files.ts';
import { readChatFile } from './chat-file.ts';
import type { Environment, Sources } from './environment.ts';
import { nameProblems, unusedVariables, withoutServiceLinks } from './names.ts';
import { contradictions, missingVariables, serviceContradictions } from './rules.ts';
import { isForeignKey, isModelKey } from './service-model.ts';
import { serviceOf } from './service-settings.ts';
import { settingsOf } from './settings.ts';
import { unusedOfService } from './unused-of-service.ts';
import { VARIABLES, type Values, type VariableName } from './variables.ts';

/** The whole configuration of the relay, checked and frozen. Times in ms, sizes in bytes. */
export type Config = ReturnType<typeof settingsOf>;

/** Thrown when the environment is not a valid configuration; `problems` says all that is wrong, in plain words. */
export class ConfigError extends Error {
  readonly problems: readonly string[];

  constructor(problems: readonly string[], message = listed(problems)) {
    super(message);
    this.name = 'ConfigError';
    this.problems = problems;
  }
}

function listed(problems: readonly string[]): string {
  return `The configuration has ${problems.length} problem(s):\n${problems.map((one) => `  - ${one}`).join('\n')}`;
}

/** Checks the names of variables. @throws ConfigError if one is misspelt, or is unknown in `.env` */
export function checkNames({ environment, inFile = [] }: Sources): void {
  const problems = nameProblems(environment, inFile);
  if (problems.length > 0) throw new ConfigError(problems);
}

/**
 * Reads the environment. An empty variable counts as not set.
 * @throws ConfigError with every problem at once; no message holds a value that was set.
 */
export function loadConfig(given: Environment, inFile: Sources['inFile'] = []): Config {
  const environment = withoutServiceLinks(given);
  const reading = readVariables(Object.keys(VARIABLES) as VariableName[], environment);
  const values = reading.values as Values;
  const botsFile = values.BOTS_FILE ? readBotsFile(values.BOTS_FILE, values.BOTS) : undefined;
  const chatFile = values.CHAT_FILE ? readChatFile(values.CHAT_FILE) : undefined;
  const problems = [
    ...nameProblems(environment, inFile),
    ...reading.problems,
    ...(botsFile?.problems ?? []),
    ...(chatFile?.problems ?? []),
    ...missingVariables(values, reading.faulty),
    ...contradictions(values, reading.faulty),
  ];
  if (problems.length > 0) throw new ConfigError(problems);
  const keyFiles = { apiKeys: environment.UPSTREAM_API_KEYS_FILE || undefined, bots: values.BOTS_FILE };
  const unused = [...unusedVariables(given), ...unusedOfService(environment)];
  const chat = chatFile?.chat ?? {};
  const own = botsFile?.own ?? {};
  return deepFreeze(settingsOf(values, { own, chat, keyFiles, unused, openFiles: openFilesLimit() }));
}

/** The variables that `bot-relay service` reads: where it runs, there need be no relay. */
const OF_SERVICE = (Object.keys(VARIABLES) as VariableName[]).filter(
  (name) => name === 'LOG_LEVEL' || name.startsWith('SERVICE_') || isModelKey(name),
);

/** What `bot-relay service` is started with. */
export interface ServiceConfig extends ReturnType<typeof serviceOf> {
  readonly logLevel: Config['logLevel'];
}

/**
 * Reads what concerns the bot service. No other variable needs to be good, but for its name.
 * @throws ConfigError
 */
export function loadServiceConfig({ environment, inFile = [] }: Sources): ServiceConfig {
  const { values: read, faulty, problems } = readVariables(OF_SERVICE, withoutServiceLinks(environment));
  const values = read as Values;
  const all = [
    ...nameProblems(environment, inFile),
    ...problems,
    ...missingVariables(values, faulty),
    ...serviceContradictions(values, faulty),
  ];
  if (all.length > 0) throw new ConfigError(all);
  return deepFreeze({ ...serviceOf(values), logLevel: values.LOG_LEVEL });
}

interface ReadVariables {
  readonly values: Partial<Record<VariableName, unknown>>;
  /** Variables with an invalid value. */
  readonly faulty: Set<VariableName>;
  readonly problems: string[];
}

function readVariables(names: readonly VariableName[], environment: Environment): ReadVariables {
  const reading: ReadVariables = { values: {}, faulty: new Set(), problems: [] };
  const read = names.filter((name) => !isForeignKey(name, environment.SERVICE_MODEL));
  for (const name of read) readVariable(name, environment, reading);
  return reading;
}

function readVariable(
  name: VariableName,
  environment: Environment,
  { values, faulty, problems }: ReadVariables,
) {
  const report = (problem: string) => {
    faulty.add(name);
    problems.push(problem);
  };
  const { schema, fallback, secret: isSecret } = VARIABLES[name];
  const text = (isSecret ? secretText(name, environment, report) : environment[name]) || fallback;
  if (text === undefined) return;
  const result = schema.safeParse(text);
  if (result.success) values[name] = result.data;
  else
    for (const message of new Set(result.error.issues.map((issue) => issue.message)))
      report(`${name} ${message}`);
}

function secretText(name: VariableName, environment: Environment, report: (problem: string) => void) {
  const file = environment[`${name}_FILE`];
  if (!file) return environment[name];
  if (environment[name]) {
    report(`${name} and ${name}_FILE are both set; set one of them`);
    return undefined;
  }
  const read = readSecretFile(file);
  if ('text' in read) return read.text;
  report(`${name}_FILE ${read.problem}`);
  return undefined;
}

function deepFreeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !(value instanceof URL) && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const inner of Object.values(value)) deepFreeze(inner);
  }
  return value;
}

/**
 * How many files this process may open, which Node.js raises to the hard limit at its start; undefined if not on Linux.
 */
export function openFilesLimit(): number | undefined {
  try {
    const [, limit] = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'utf8')) ?? [];
    return limit === undefined ? undefined : Number(limit);
  } catch {
    return undefined;
  }
}
