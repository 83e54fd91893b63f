import { baseOf, caller, randomId } from '../transport/calls.ts';
import type { SendOptions } from '../transport/message-stream.ts';
import { type BotClientOptions, botCalls, nameOf } from './bot-calls.ts';
import type { BotClient } from './bot-client.ts';
import { setInternals } from './client-internals.ts';
import { sessionCalls } from './session-calls.ts';
import { sessionTracker, tabsOf } from './session-tracker.ts';

/** A client without a key. @throws TypeError if `baseUrl` is no address */
export function relayClient(options: BotClientOptions): BotClient {
  const call = caller(options);
  const client = new EventTarget();
  const tracker = sessionTracker(() => client.dispatchEvent(new Event('signed-out')));
  const calls = botCalls(options, { call, tracker });
  const tabs = tabsOf(options);
  const internals = { options, calls, tracker, tabs };
  setInternals(client, internals);
  const channel = randomId();
  return Object.assign(client, sessionCalls(call, internals), {
    send(message: string | object, sendOptions: SendOptions = {}) {
      // With the number of the session, so that the next user does not continue the conversation of this one.
      const customChannelId = `${channel}-${tracker.current()}`;
      const ofText = { text: message, action: 'NONE', customMessageId: randomId(), customChannelId };
      const sent = typeof message === 'string' ? ofText : message;
      // Made to JSON now: a stream is resumed with the same body, and the caller may change the object meanwhile.
      const body = JSON.stringify(sent);
      const init = { method: 'POST', body } as const;
      return calls.stream(calls.pathOf('message/sse'), init, { ...sendOptions, name: nameOf(sent) });
    },
    signInUrl: (returnTo: string) => `${baseOf(options)}/auth/login?returnTo=${encodeURIComponent(returnTo)}`,
  });
}
