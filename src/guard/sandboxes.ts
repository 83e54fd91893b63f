import { Problem } from '../errors.ts';

/** One segment of a path that every service reads the same: no dots, no slashes, nothing that an encoder escapes. */
const NAME = /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/;

/**
 * The name of a sandbox, as it stands in a path.
 * @throws Problem `bad_request` if it cannot be one
 */
export function sandboxName(name: unknown): string {
  if (isSandboxName(name)) return name;
  throw new Problem('bad_request', 'The path does not name a sandbox.');
}

/**
 * The names of the sandboxes that a conversation has launched, by its metadata: the member `launchedSandboxes`, alone
 * or in the service's `data`. Other names than those of `sandboxName` are left out.
 */
export function launchedSandboxes(metadata: unknown): readonly string[] {
  const launched = memberOf(memberOf(metadata, 'data'), 'launchedSandboxes');
  const list = launched ?? memberOf(metadata, 'launchedSandboxes');
  return Array.isArray(list) ? list.map((one) => memberOf(one, 'sandboxName')).filter(isSandboxName) : [];
}

function isSandboxName(name: unknown): name is string {
  return typeof name === 'string' && NAME.test(name);
}

function memberOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? (value as Record<string, unknown>)[name]
    : undefined;
}

/** Remembers for a minute which sandboxes a conversation has launched, so that not each request has to ask for it. */
export interface KnownSandboxes {
  /** Whether `sandbox` was among those that were last remembered of the conversation, within the last minute. */
  has(conversationKey: string, sandbox: string): boolean;
  /** `conversationKey` names the conversation and its bot. The oldest is forgotten if there are too many. */
  remember(conversationKey: string, sandboxes: readonly string[]): void;
  forget(conversationKey: string): void;
}

/** How long a sandbox is known to be of its conversation, in ms. */
export const KNOWN_MS = 60_000;
/** How many conversations are kept, and how many sandboxes of each. */
const MAX_CONVERSATIONS = 1_000;
const MAX_SANDBOXES = 64;

/** Remembers sandboxes in the memory of this process. `now` is in ms. */
export function knownSandboxes(now: () => number = () => performance.now()): KnownSandboxes {
  const conversations = new Map<string, { readonly names: ReadonlySet<string>; readonly until: number }>();
  return {
    has(conversationKey, sandbox) {
      const known = conversations.get(conversationKey);
      return known !== undefined && known.until > now() && known.names.has(sandbox);
    },
    remember(conversationKey, sandboxes) {
      // The map is in the order of the last answer.
      conversations.delete(conversationKey);
      conversations.set(conversationKey, {
        names: new Set(sandboxes.slice(0, MAX_SANDBOXES)),
        until: now() + KNOWN_MS,
      });
      for (const [oldest, { until }] of conversations) {
        if (conversations.size <= MAX_CONVERSATIONS && until > now()) break;
        conversations.delete(oldest);
      }
    },
    forget: (conversationKey) => void conversations.delete(conversationKey),
  };
}
