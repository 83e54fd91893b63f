import { Chat } from '@ai-sdk/react';
import { afterAll, beforeAll, beforeEach } from '@jest/globals';
import type { ChatInit, UIMessage } from 'ai';
import { botChatTransport } from '../../../src/client/ai-sdk/bot-chat-transport.ts';
import type { BotChatTransportOptions } from '../../../src/client/ai-sdk/chat-types.ts';
import type { BotClient } from '../../../src/client/session/bot-client.ts';
import { until } from '../clock/until.ts';
import { deltaOf, type Run, typeOf } from '../service/bot-runs.ts';
import { refuseUnhandledRejections, startRunsStage } from './channels.ts';

/** A chat of the AI SDK over the transport of this checkout; its id is `my-chat`. */
export function chatOf(
  client: BotClient,
  { init, ...options }: BotChatTransportOptions & { readonly init?: ChatInit<UIMessage> } = {},
): Chat<UIMessage> {
  return new Chat<UIMessage>({ id: 'my-chat', ...init, transport: botChatTransport(client, options) });
}

/** A stage for the tests of a file, which forgets what was before each of them; every event of an answer says its run. */
export function chatStage(environment: Record<string, string>) {
  refuseUnhandledRejections();
  let stage: Awaited<ReturnType<typeof startRunsStage>>;
  beforeAll(async () => {
    stage = await startRunsStage({ OPERATIONS: 'message,chat,files', ...environment });
  });
  beforeEach(() => {
    stage.bot.forget();
    stage.bot.upstream.requests.length = 0;
  });
  afterAll(() => stage.close());
  return {
    get stage() {
      return stage;
    },
    /** The texts of the messages that have run. */
    runs: () => stage.bot.runs.map(({ text }) => text),
    /** How many runs were stopped. */
    suspends: () =>
      stage.bot.upstream.requests.filter(({ requestLine }) => requestLine.includes('message/suspend')).length,
    /** A chat whose answer to `text` has one word so far, and its run. */
    async streaming(client: BotClient, options: Parameters<typeof chatOf>[1] = {}, text = 'Hello') {
      const chat = chatOf(client, options);
      const sent = chat.sendMessage({ text });
      const run = await stage.bot.run(text);
      run.begin();
      sayIn(run, 'You');
      await until(() => textsOf(chat)[1] === 'assistant: You');
      return { chat, sent, run };
    },
  };
}

/** Sends an event of the run `runId`. */
export function sendIn(run: Run, fact: object, runId = 'run-1'): void {
  run.write(`data: ${JSON.stringify({ eventType: typeOf(fact), requestId: runId, fact })}\n\n`);
}
/** Sends a piece of the answer. */
export const sayIn = (run: Run, text: string) => sendIn(run, deltaOf(text));

/** The texts of a chat, each with who says it. */
export function textsOf({ messages }: Chat<UIMessage>): string[] {
  const said = ({ parts }: UIMessage) =>
    parts.map((part) => (part.type === 'text' ? part.text : '')).join('');
  return messages.map((message) => `${message.role}: ${said(message)}`);
}
