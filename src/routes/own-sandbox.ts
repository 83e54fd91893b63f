import { type Bot, botName } from '../bots/bot.ts';
import { Problem } from '../errors.ts';
import type { Conversation } from '../guard/conversations.ts';
import { KNOWN_MS, type KnownSandboxes, launchedSandboxes } from '../guard/sandboxes.ts';
import { parseJson } from '../http/json.ts';
import { badResponse, rateLimited } from '../relay/operations/judge-operation.ts';
import { CHANNEL_METADATA } from '../relay/operations/operation-table.ts';
import { conversationKey } from '../runs/run-name.ts';
import type { AskService, OwnAnswer, OwnRequest } from './own-request.ts';

/**
 * Lets a request for a sandbox pass if its conversation, which is the user's, has launched that sandbox, by the
 * conversation's metadata; and every request that names no sandbox.
 * @throws Problem `not_your_conversation`, and those of `AskMetadata`
 */
type CheckSandbox = (
  named: { readonly sandbox: string | undefined; readonly conversation: () => Conversation | undefined },
  about: AboutChannel,
) => Promise<void>;

/** Forgets what a conversation has launched: the next request for one of its sandboxes asks the service. */
type ForgetSandboxes = (bot: Bot, conversation: Conversation | undefined) => void;

interface OwnSandboxes {
  readonly checkSandbox: CheckSandbox;
  readonly forgetSandboxes: ForgetSandboxes;
}

interface OwnSandboxOptions {
  readonly askMetadata: AskMetadata;
  readonly known: KnownSandboxes;
}

/**
 * How a question for the metadata ended. `left`: its client has left, or its session has ended; others must ask again.
 */
type SandboxAnswer =
  | { readonly kind: 'launched'; readonly names: readonly string[] }
  | { readonly kind: 'failed'; readonly reason: unknown }
  | { readonly kind: 'left' };

/**
 * The service is asked, since it may take a sandbox from the path alone, whatever the conversation in the query. Requests
 * that come while it is asked for the same conversation wait for the answer.
 */
export function ownSandboxes({ askMetadata, known }: OwnSandboxOptions): OwnSandboxes {
  /** The answers that are on their way, by conversation. */
  const asked = new Map<string, Promise<SandboxAnswer>>();

  function ask(key: string, channel: string, about: AboutChannel): Promise<SandboxAnswer> {
    // After `forgetSandboxes`, the answer is not remembered: only those who wait for it get it.
    const isCurrent = () => asked.get(key) === question;
    const question = askMetadata(channel, about)
      .then((metadata): SandboxAnswer => {
        const names = metadata ? launchedSandboxes(parseJson(metadata)) : [];
        if (isCurrent()) known.remember(key, names);
        return { kind: 'launched', names };
      })
      .catch(
        (reason): SandboxAnswer => (about.signal.aborted ? { kind: 'left' } : { kind: 'failed', reason }),
      )
      .finally(() => isCurrent() && asked.delete(key));
    asked.set(key, question);
    return question;
  }

  return {
    async checkSandbox({ sandbox, conversation }, about) {
      if (sandbox === undefined) return;
      const channel = conversation()?.upstream;
      if (channel === undefined) throw notLaunched();
      const key = conversationKey({ bot: botName(about.bot), channel });
      // What was asked before this request may be older than the sandbox: its answer can allow, but not refuse.
      let mayBeOlder = asked.has(key);
      while (!known.has(key, sandbox)) {
        about.signal.throwIfAborted();
        const answer = await unlessAborted(asked.get(key) ?? ask(key, channel, about), about.signal);
        if (answer.kind === 'failed') throw answer.reason;
        if (answer.kind === 'launched' && answer.names.includes(sandbox)) return;
        if (answer.kind === 'launched' && !mayBeOlder) throw notLaunched();
        mayBeOlder = false;
      }
    },
    forgetSandboxes(bot, conversation) {
      if (conversation === undefined) return;
      const key = conversationKey({ bot: botName(bot), channel: conversation.upstream });
      asked.delete(key);
      known.forget(key);
    },
  };
}

/** Resolves as `work` does. Rejects with the signal's reason if that aborts first. */
async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  signal.throwIfAborted();
  const aborted = Promise.withResolvers<never>();
  const onAbort = () => aborted.reject(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    return await Promise.race([work, aborted.promise]);
  } finally {
    signal.removeEventListener('abort', onAbort);
  }
}

function notLaunched(): Problem {
  return new Problem('not_your_conversation', 'This conversation has no such sandbox at the moment.');
}

/** The request of a client that needs the metadata of a conversation. */
type AboutChannel = Omit<OwnRequest, 'operation' | 'query'>;

/**
 * Asks the bot service for the metadata of the conversation with its id `channel`. Resolves with its JSON, or with
 * undefined if the bot has no such conversation.
 * @throws Problem of `AskService`, `upstream_rate_limited`, or `upstream_bad_response` if the answer says neither
 */
type AskMetadata = (channel: string, about: AboutChannel) => Promise<Buffer | undefined>;

/** Makes the question; `ask` sends it. */
export function channelMetadata(ask: AskService): AskMetadata {
  return async function askMetadata(channel, about) {
    const query = new URLSearchParams({ custom_channel_id: channel });
    const answer = await ask({ ...about, operation: CHANNEL_METADATA, query });
    const { status, json } = answer;
    // Only JSON is from the service itself: a 404 of a proxy on the way says nothing about the conversation.
    if (json && status === 404) return undefined;
    if (json && status >= 200 && status < 300) return json;
    throw problemOf(answer);
  };
}

function problemOf({ status, retryAfter, json }: OwnAnswer): Problem {
  if (status === 429) return rateLimited(retryAfter);
  return badResponse(`status ${status}${json ? '' : ', no JSON'}, of the conversation's metadata`);
}

/**
 * Checks a sandbox again and again while a stream shows it, as often as a new request for it would. Aborts `stop` with
 * the reason once it is refused; a check that gets no slot is skipped. Returns the function that ends the checks.
 */
export function recheckSandbox(check: () => Promise<void>, stop: AbortController): () => void {
  const timer = setInterval(() => {
    check().catch((reason) => {
      if (!(reason instanceof Problem) || reason.status !== 429) stop.abort(reason);
    });
  }, KNOWN_MS);
  return () => clearInterval(timer);
}
