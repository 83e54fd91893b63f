import { type Bot, botName } from '../bots/bot.ts';
import { Problem } from '../errors.ts';
import type { Conversation } from '../guard/conversations.ts';
import { type KnownSandboxes, launchedSandboxes } from '../guard/sandboxes.ts';
import { parseJson } from '../http/json.ts';
import type { AboutChannel, AskMetadata } from './channel-metadata.ts';

/**
 * Lets a request for a sandbox pass if its conversation, which is the user's, has launched that sandbox, by the
 * conversation's metadata; and every request that names no sandbox.
 * @throws Problem `not_your_conversation`, and those of `AskMetadata`
 */
export type CheckSandbox = (
  named: { readonly sandbox: string | undefined; readonly conversation: () => Conversation | undefined },
  about: AboutChannel,
) => Promise<void>;

/** What a conversation has launched is known no more: the next request for one of its sandboxes asks for it. */
export type ForgetSandboxes = (bot: Bot, conversation: Conversation | undefined) => void;

export interface OwnSandboxes {
  readonly checkSandbox: CheckSandbox;
  readonly forgetSandboxes: ForgetSandboxes;
}

export interface OwnSandboxParts {
  readonly askMetadata: AskMetadata;
  readonly known: KnownSandboxes;
}

/** How a question ended. `left`: its own client or session has, which says nothing to others. */
type Told =
  | { readonly kind: 'launched'; readonly names: readonly string[] }
  | { readonly kind: 'failed'; readonly reason: unknown }
  | { readonly kind: 'left' };

/**
 * The service is asked, since it may take a sandbox from the path alone, whatever the conversation in the query. Requests
 * that come while it is asked for the same conversation wait for the answer.
 */
export function ownSandboxes({ askMetadata, known }: OwnSandboxParts): OwnSandboxes {
  /** What is being asked, by conversation. */
  const asked = new Map<string, Promise<Told>>();

  function ask(conversationKey: string, channel: string, about: AboutChannel): Promise<Told> {
    // An answer to a question that is forgotten meanwhile is for those who wait for it alone.
    const isCurrent = () => asked.get(conversationKey) === question;
    const question = askMetadata(channel, about)
      .then((metadata): Told => {
        const names = metadata ? launchedSandboxes(parseJson(metadata)) : [];
        if (isCurrent()) known.remember(conversationKey, names);
        return { kind: 'launched', names };
      })
      .catch((reason): Told => (about.signal.aborted ? { kind: 'left' } : { kind: 'failed', reason }))
      .finally(() => isCurrent() && asked.delete(conversationKey));
    asked.set(conversationKey, question);
    return question;
  }

  return {
    async checkSandbox({ sandbox, conversation }, about) {
      if (sandbox === undefined) return;
      const channel = conversation()?.upstream;
      if (channel === undefined) throw notLaunched();
      const conversationKey = conversationKeyOf(about.bot, channel);
      // The sandbox may have been launched since the other question was asked: its answer refuses nothing.
      let isOlder = asked.has(conversationKey);
      while (!known.has(conversationKey, sandbox)) {
        about.signal.throwIfAborted();
        const told = await unlessAborted(
          asked.get(conversationKey) ?? ask(conversationKey, channel, about),
          about.signal,
        );
        if (told.kind === 'failed') throw told.reason;
        if (told.kind === 'launched' && told.names.includes(sandbox)) return;
        if (told.kind === 'launched' && !isOlder) throw notLaunched();
        isOlder = false;
      }
    },
    forgetSandboxes(bot, conversation) {
      if (conversation === undefined) return;
      const conversationKey = conversationKeyOf(bot, conversation.upstream);
      asked.delete(conversationKey);
      known.forget(conversationKey);
    },
  };
}

function conversationKeyOf(bot: Bot, channel: string): string {
  return JSON.stringify([botName(bot), channel]);
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
